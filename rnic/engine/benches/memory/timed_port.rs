//! A port that keeps the time that its link takes, which a real one's kernel would take elsewhere.

use std::cell::Cell;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use rnic_xsk::{Frame, FramePool, MemoryPort, Packet, Port, PortStatistics, Umem, XskError};

pub struct TimedPort {
    port: MemoryPort,
    spent: Rc<Cell<Duration>>,
}

impl TimedPort {
    /// The port, and where the time adds up.
    pub fn new(port: MemoryPort) -> (Self, Rc<Cell<Duration>>) {
        let spent = Rc::new(Cell::new(Duration::ZERO));
        (
            Self {
                port,
                spent: Rc::clone(&spent),
            },
            spent,
        )
    }
}

impl Port for TimedPort {
    fn umem(&self) -> &Umem {
        self.port.umem()
    }

    fn receive(&mut self, pool: &mut FramePool, out: &mut Vec<Packet>, max: usize) -> usize {
        let begin = Instant::now();
        let count = self.port.receive(pool, out, max);
        if count > 0 {
            self.spent.set(self.spent.get() + begin.elapsed());
        }
        count
    }

    fn transmit_room(&mut self) -> usize {
        self.port.transmit_room()
    }

    fn transmit(&mut self, frame: Frame, cookie: u64) -> Result<(), Frame> {
        self.port.transmit(frame, cookie)
    }

    fn flush(&mut self) -> Result<(), XskError> {
        if self.port.unsent() == 0 {
            return self.port.flush();
        }
        let begin = Instant::now();
        let result = self.port.flush();
        self.spent.set(self.spent.get() + begin.elapsed());
        result
    }

    fn unsent(&mut self) -> usize {
        self.port.unsent()
    }

    fn completed(&mut self) -> Option<(Frame, u64)> {
        self.port.completed()
    }

    fn refill(&mut self, pool: &mut FramePool) {
        self.port.refill(pool);
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        self.port.poll_fd()
    }

    fn frame_capacity(&self) -> usize {
        self.port.frame_capacity()
    }

    fn statistics(&self) -> PortStatistics {
        self.port.statistics()
    }
}
