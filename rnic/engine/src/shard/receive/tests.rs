use std::cell::Cell;
use std::os::fd::BorrowedFd;
use std::rc::Rc;

use rnic_xsk::{
    ChunkSize, Frame, FramePool, MemoryPort, Packet, Port, PortStatistics, Umem, XskError,
};
use userspace_tcp::Instant;

use crate::shard::{Shard, ShardConfig};

/// A port that says how many looks it was last asked for.
struct Asked {
    port: MemoryPort,
    looks: Rc<Cell<u32>>,
}

impl Port for Asked {
    fn umem(&self) -> &Umem {
        self.port.umem()
    }

    fn receive(&mut self, pool: &mut FramePool, out: &mut Vec<Packet>, max: usize) -> usize {
        self.port.receive(pool, out, max)
    }

    fn receive_within(
        &mut self,
        looks: u32,
        pool: &mut FramePool,
        out: &mut Vec<Packet>,
        max: usize,
    ) -> usize {
        self.looks.set(looks);
        self.port.receive(pool, out, max)
    }

    fn transmit_room(&mut self) -> usize {
        self.port.transmit_room()
    }

    fn transmit(&mut self, frame: Frame, cookie: u64) -> Result<(), Frame> {
        self.port.transmit(frame, cookie)
    }

    fn flush(&mut self) -> Result<(), XskError> {
        self.port.flush()
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

/// The looks that an idle poll of a shard over so many ports asks each of them for.
fn asked_of(ports: usize) -> Vec<u32> {
    let (umem, pool) = Umem::heap(64, ChunkSize::for_mtu(1500).unwrap());
    let (mut all, mut asked, mut wires) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ports {
        let (port, wire) = MemoryPort::intercepted(&umem, 4);
        let looks = Rc::new(Cell::new(0));
        asked.push(looks.clone());
        wires.push(wire);
        all.push(Asked { port, looks });
    }
    let config = ShardConfig {
        idle_looks: 7,
        ..ShardConfig::default()
    };
    let mut shard = Shard::new(config, pool, all, Instant::ZERO);
    assert!(!shard.poll(Instant::ZERO), "there is nothing to do");
    asked.iter().map(|looks| looks.get()).collect()
}

#[test]
fn a_poll_with_nothing_to_do_looks_again_only_where_no_other_port_waits() {
    assert_eq!(asked_of(1), [7]);
    assert_eq!(asked_of(2), [1, 1]);
}
