//! A port that keeps the time that its link takes, which a real one's kernel would take elsewhere.

use std::cell::Cell;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use rnic_xsk::{Frame, FramePool, MemoryPort, Packet, Port, PortStatistics, Umem, XskError};

pub struct TimedPort {
    port: MemoryPort,
    spent: Rc<Cell<Duration>>,
    /// What a look at the clock takes.
    look: Duration,
}

/// What a look at the clock takes: between two of them, one behind the other, as much goes by.
pub fn look() -> Duration {
    let looks = (0..10_000).map(|_| Instant::now().elapsed());
    looks.min().unwrap_or_default()
}

impl TimedPort {
    /// The port, and where the time adds up.
    pub fn new(port: MemoryPort) -> (Self, Rc<Cell<Duration>>) {
        let look = look();
        let spent = Rc::new(Cell::new(Duration::ZERO));
        (
            Self {
                port,
                spent: Rc::clone(&spent),
                look,
            },
            spent,
        )
    }

    /// The time that has passed is the link's, and that of two readings of the clock: half of each is
    /// in it already.
    fn spend(&self, begin: Instant) {
        let spent = begin.elapsed() + self.look;
        self.spent.set(self.spent.get() + spent);
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
            self.spend(begin);
        } else {
            // A port is asked in any case, but not the clock.
            self.spent.set(self.spent.get() + self.look);
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
        self.spend(begin);
        result
    }

    fn unsent(&mut self) -> usize {
        self.port.unsent()
    }

    fn copy_transmitted(&self, index: usize, pool: &mut FramePool) -> Option<Frame> {
        self.port.copy_transmitted(index, pool)
    }

    fn completed(&mut self) -> Option<(Frame, u64)> {
        self.port.completed()
    }

    fn refill(&mut self, pool: &mut FramePool) {
        self.port.refill(pool);
    }

    fn prepare_sleep(&mut self, pool: &mut FramePool) {
        self.port.prepare_sleep(pool);
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
