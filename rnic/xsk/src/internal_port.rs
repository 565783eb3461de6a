//! An internal link: two ports of two devices of one process, each with a UMEM of its own, and no kernel
//! between them.
//!
//! A frame that is sent is copied into the link's memory and complete at once; one that is received is
//! copied from there into frames of the receiver's pool. What finds the link full, or its receiver without
//! free frames, is lost and counted, as at a switch: a slow receiver never holds up what its sender has for
//! others. Neither end ever waits for the other. A port may be slept on: see [`Port::poll_fd`].

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::channel::{Bell, Queue};
use crate::error::XskError;
use crate::frame::Frame;
use crate::packet::Packet;
use crate::pool::FramePool;
use crate::port::{Port, PortStatistics};
use crate::send_queue::{Fate, SendQueue};
use crate::umem::{ChunkSize, Umem};

#[cfg(all(test, loom))]
mod models;

/// One end of an internal link, before a device has it.
#[derive(Debug)]
pub struct InternalEnd {
    outbound: Outbound,
    inbound: Arc<Direction>,
    depth: u32,
}

/// One end of an internal link, as the port of a device.
#[derive(Debug)]
pub struct InternalPort {
    queue: SendQueue,
    outbound: Outbound,
    inbound: Arc<Direction>,
    /// The receiver said that it would sleep, and has not looked since.
    slept: bool,
    statistics: PortStatistics,
}

/// The sender's part of a direction.
#[derive(Debug)]
struct Outbound {
    /// The link's frames that are free to be sent in.
    free: FramePool,
    direction: Arc<Direction>,
    frame_capacity: usize,
}

/// What goes one way, and whom it wakes.
#[derive(Debug)]
struct Direction {
    umem: Umem,
    /// Under way, oldest first.
    sent: Queue<Frame>,
    /// Received, and free again.
    returned: Queue<Frame>,
    bell: Bell,
}

impl InternalEnd {
    /// Two ends of one link, for devices whose frames have so many bytes at most. `depth` frames may be under way in
    /// each direction; memory for as many is reserved, and used as far as so many have been under way.
    ///
    /// # Errors
    ///
    /// The kernel's, when it gives no eventfd.
    ///
    /// # Panics
    ///
    /// When `depth` is 0, or more than a UMEM may have.
    pub fn pair(frame_bytes: [usize; 2], depth: u32) -> io::Result<(InternalEnd, InternalEnd)> {
        let frame_capacity = frame_bytes[0].min(frame_bytes[1]);
        let (to_b, free_to_b) = Direction::new(depth, frame_capacity)?;
        let (to_a, free_to_a) = Direction::new(depth, frame_capacity)?;
        let end = |free, outbound: &Arc<_>, inbound: &Arc<_>| InternalEnd {
            outbound: Outbound {
                free,
                direction: Arc::clone(outbound),
                frame_capacity,
            },
            inbound: Arc::clone(inbound),
            depth,
        };
        Ok((end(free_to_b, &to_b, &to_a), end(free_to_a, &to_a, &to_b)))
    }
}

impl InternalPort {
    /// The port of a device whose frames are in this UMEM.
    pub fn new(end: InternalEnd, umem: &Umem) -> Self {
        Self {
            queue: SendQueue::new(umem, end.depth as usize),
            outbound: end.outbound,
            inbound: end.inbound,
            slept: false,
            statistics: PortStatistics::default(),
        }
    }

    /// Both ports of a link, of devices whose UMEMs are these; as [`InternalEnd::pair`].
    ///
    /// # Errors
    ///
    /// The kernel's, when it gives no eventfd.
    pub fn pair(a: &Umem, b: &Umem, depth: u32) -> io::Result<(InternalPort, InternalPort)> {
        let (to_b, to_a) = InternalEnd::pair([a, b].map(Umem::frame_capacity), depth)?;
        Ok((InternalPort::new(to_b, a), InternalPort::new(to_a, b)))
    }

    /// Exchanges this end, whose frames were all taken back, for one of another link. Its counts go on.
    pub fn exchange(&mut self, end: &mut InternalPort) {
        end.statistics = self.statistics;
        std::mem::swap(self, end);
    }

    /// The other end may have gone on sending without waking this one.
    #[inline(never)]
    fn wake_up(&mut self) {
        self.slept = false;
        self.inbound.bell.wake_up();
    }
}

impl Outbound {
    /// Copies a frame into the link; `false` when it is full, or the frame larger than it carries.
    fn send(&mut self, bytes: &[u8]) -> bool {
        if bytes.len() > self.frame_capacity {
            return false;
        }
        let Some(mut copy) = self.free.alloc() else {
            return false;
        };
        let link = &self.direction;
        link.umem.bytes_mut(&mut copy)[..bytes.len()].copy_from_slice(bytes);
        copy.set_len(bytes.len());
        // It has a place for each of the link's frames.
        link.sent.push(copy).is_ok()
    }

    /// Frames that were received are free. The one that came back last is used first: the processor still
    /// has it in its caches.
    fn take_returned(&mut self) {
        while let Some(frame) = self.direction.returned.pop() {
            self.free.free(frame);
        }
    }
}

impl Direction {
    /// An empty one, and all of its frames.
    fn new(depth: u32, frame_capacity: usize) -> io::Result<(Arc<Direction>, FramePool)> {
        let (umem, free) = Umem::heap(depth, chunk_for(frame_capacity));
        let direction = Direction {
            umem,
            sent: Queue::new(depth as usize),
            returned: Queue::new(depth as usize),
            bell: Bell::new()?,
        };
        Ok((Arc::new(direction), free))
    }
}

/// The smallest that takes so many bytes in one chunk: any UMEM's largest frame fits the largest.
fn chunk_for(bytes: usize) -> ChunkSize {
    let chunks = [ChunkSize::Bytes2048, ChunkSize::Bytes4096];
    let found = chunks.into_iter().find(|it| it.chunk_capacity() >= bytes);
    found.unwrap_or(ChunkSize::Bytes16384)
}

impl Port for InternalPort {
    fn umem(&self) -> &Umem {
        self.queue.umem()
    }

    fn receive(&mut self, pool: &mut FramePool, out: &mut Vec<Packet>, max: usize) -> usize {
        if self.slept {
            self.wake_up();
        }
        let umem = self.queue.umem();
        let most = umem.chunk().chunk_capacity();
        let (mut count, mut looked) = (0, 0);
        // Those that are lost count as well: their sender may be as fast as this.
        while looked < max
            && let Some(frame) = self.inbound.sent.pop()
        {
            looked += 1;
            let bytes = self.inbound.umem.bytes(&frame);
            let enough = pool.available() >= Packet::frames_for(bytes.len(), most);
            let packet = enough.then(|| Packet::from_bytes(umem, pool, bytes));
            match packet.flatten() {
                Some(packet) => {
                    self.statistics.received += 1;
                    self.statistics.received_bytes += bytes.len() as u64;
                    out.push(packet);
                    count += 1;
                }
                None => self.statistics.receive_no_frame += 1,
            }
            // It has a place for each of the link's frames.
            let _ = self.inbound.returned.push(frame);
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
        if self.queue.unsent() == 0 {
            return Ok(());
        }
        let link = &mut self.outbound;
        link.take_returned();
        self.queue
            .flush(&mut self.statistics, |bytes| match link.send(bytes) {
                true => Fate::Sent,
                false => Fate::Lost,
            });
        self.statistics.send_calls += u64::from(link.direction.bell.ring());
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

    fn prepare_sleep(&mut self, _: &mut FramePool) {
        self.slept = true;
        self.inbound.bell.prepare_sleep();
        if !self.inbound.sent.is_empty() {
            // Its sender may not have seen that this end sleeps.
            self.inbound.bell.end_sleep();
        }
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inbound.bell.fd()
    }

    fn frame_capacity(&self) -> usize {
        self.outbound.frame_capacity
    }

    fn statistics(&self) -> PortStatistics {
        self.statistics
    }

    fn of_internal(end: InternalPort) -> Option<Self> {
        Some(end)
    }

    fn internal(&mut self) -> Option<&mut InternalPort> {
        Some(self)
    }
}

#[cfg(test)]
mod tests;
