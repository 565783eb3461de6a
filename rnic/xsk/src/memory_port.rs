//! A link in memory: two ports, a bounded wire each way, no kernel. For tests, simulation, bench.
//!
//! Transmitted frames are copied to the wire and complete at once; received ones are copied from
//! the wire into frames of the receiver's pool, of one chunk each, as a kernel would.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::error::XskError;
use crate::frame::Frame;
use crate::packet::Packet;
use crate::pool::FramePool;
use crate::port::{Port, PortStatistics};
use crate::send_queue::{Fate, SendQueue};
use crate::umem::{CHUNKS_MAX, Umem};

mod wire;

use wire::Wire;

/// One end of a link in memory.
#[derive(Debug)]
pub struct MemoryPort {
    outbound: Arc<Wire>,
    inbound: Arc<Wire>,
    queue: SendQueue,
    statistics: PortStatistics,
}

/// The far end of a [`MemoryPort`] in the hands of a test or a simulator: it takes the frames that
/// the port sent and puts frames there for it to receive.
#[derive(Debug)]
pub struct MemoryWire {
    from_port: Arc<Wire>,
    to_port: Arc<Wire>,
}

impl MemoryPort {
    /// Two ends of one link, which may share a UMEM. `depth` frames may be under way in each
    /// direction; a port that finds its wire full keeps its frames queued, as many again.
    pub fn pair(a: &Umem, b: &Umem, depth: usize) -> (MemoryPort, MemoryPort) {
        let (to_b, to_a) = (
            Wire::new(depth, b.frame_capacity()),
            Wire::new(depth, a.frame_capacity()),
        );
        (
            MemoryPort::new(a, Arc::clone(&to_b), Arc::clone(&to_a), depth),
            MemoryPort::new(b, to_a, to_b, depth),
        )
    }

    /// One end of a link whose other end is a test's.
    pub fn intercepted(umem: &Umem, depth: usize) -> (MemoryPort, MemoryWire) {
        Self::intercepted_by(umem, depth, umem.frame_capacity())
    }

    /// The same, where packets come that are larger than the link's frames: of as many frames as there may be in one.
    pub fn intercepted_with_super_packets(umem: &Umem, depth: usize) -> (MemoryPort, MemoryWire) {
        let most = CHUNKS_MAX * umem.chunk().chunk_capacity();
        Self::intercepted_by(umem, depth, most)
    }

    fn intercepted_by(umem: &Umem, depth: usize, largest: usize) -> (MemoryPort, MemoryWire) {
        let from_port = Wire::new(depth, umem.frame_capacity());
        let to_port = Wire::new(depth, largest);
        let port = MemoryPort::new(umem, Arc::clone(&from_port), Arc::clone(&to_port), depth);
        (port, MemoryWire { from_port, to_port })
    }

    fn new(umem: &Umem, outbound: Arc<Wire>, inbound: Arc<Wire>, depth: usize) -> MemoryPort {
        MemoryPort {
            outbound,
            inbound,
            queue: SendQueue::new(umem, depth),
            statistics: PortStatistics::default(),
        }
    }
}

impl MemoryWire {
    /// Takes the oldest frame that the port sent, in place of what `into` held; `false` when there
    /// is none.
    pub fn take(&self, into: &mut Vec<u8>) -> bool {
        self.from_port.pop(|bytes| {
            into.clear();
            into.extend_from_slice(bytes);
        })
    }

    /// How many frames that the port sent were not taken yet.
    pub fn waiting(&self) -> usize {
        self.from_port.len()
    }

    /// Gives the port a frame to receive; `false` when the wire is full or the frame is larger
    /// than what the port takes.
    pub fn push(&self, bytes: &[u8]) -> bool {
        self.to_port.push(bytes)
    }
}

impl Port for MemoryPort {
    fn umem(&self) -> &Umem {
        self.queue.umem()
    }

    fn receive(&mut self, pool: &mut FramePool, out: &mut Vec<Packet>, max: usize) -> usize {
        let umem = self.queue.umem();
        let most = umem.chunk().chunk_capacity();
        let mut count = 0;
        while count < max
            && let Some(len) = self.inbound.next_len()
        {
            if pool.available() < Packet::frames_for(len, most) {
                // As a kernel whose fill ring is empty: the frame stays on the wire, which then
                // fills and pushes back.
                self.statistics.receive_no_frame += 1;
                break;
            }
            let mut packet = None;
            self.inbound
                .pop(|bytes| packet = Packet::from_bytes(umem, pool, bytes));
            let Some(packet) = packet else { break };
            self.statistics.received += 1;
            self.statistics.received_bytes += len as u64;
            out.push(packet);
            count += 1;
        }
        count
    }

    fn transmit_room(&mut self) -> usize {
        self.queue.room()
    }

    fn transmit(&mut self, frame: Frame, cookie: u64) -> Result<(), Frame> {
        self.queue.push(frame, cookie, &mut self.statistics)
    }

    fn flush(&mut self) -> Result<(), XskError> {
        let wire = &self.outbound;
        self.queue.flush(&mut self.statistics, |bytes| {
            if wire.push(bytes) {
                Fate::Sent
            } else if bytes.len() <= wire.frame_capacity() {
                Fate::Waits
            } else {
                // Larger than the other end's frames: lost, as on a link with a smaller MTU.
                Fate::Lost
            }
        });
        Ok(())
    }

    fn unsent(&mut self) -> usize {
        self.queue.unsent()
    }

    fn copy_transmitted(&self, index: usize, pool: &mut FramePool) -> Option<Frame> {
        self.queue.copy(index, pool)
    }

    fn completed(&mut self) -> Option<(Frame, u64)> {
        self.queue.completed(&mut self.statistics)
    }

    fn refill(&mut self, _: &mut FramePool) {}

    fn prepare_sleep(&mut self, _: &mut FramePool) {}

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn frame_capacity(&self) -> usize {
        self.umem().frame_capacity()
    }

    fn statistics(&self) -> PortStatistics {
        self.statistics
    }
}

#[cfg(test)]
mod tests;
