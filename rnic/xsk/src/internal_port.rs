//! An internal link: two ports of two devices of one process, each with a UMEM of its own, and no kernel
//! between them.
//!
//! A frame that is sent is copied into the link's memory and complete at once; one that is received is
//! copied from there into frames of the receiver's pool. What finds the link full, or its receiver without
//! free frames, is lost and counted, as at a switch: a slow receiver never holds up what its sender has for
//! others. Neither end ever waits for the other. A port may be slept on: see [`Port::poll_fd`].

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use crate::error::XskError;
use crate::frame::Frame;
use crate::packet::Packet;
use crate::pool::FramePool;
use crate::port::{Port, PortStatistics};
use crate::umem::{ChunkSize, Umem};

mod bell;
mod queue;

use bell::Bell;
use queue::Queue;

/// One end of an internal link.
#[derive(Debug)]
pub struct InternalPort {
    umem: Umem,
    /// The link's frames that are free to be sent in.
    free: FramePool,
    outbound: Arc<Direction>,
    inbound: Arc<Direction>,
    /// Taken by `transmit`, not flushed yet, oldest first.
    queued: VecDeque<(Frame, u64)>,
    /// Sent, for `completed`, oldest first.
    done: VecDeque<(Frame, u64)>,
    depth: usize,
    frame_capacity: usize,
    /// The receiver said that it would sleep, and has not looked since.
    slept: bool,
    statistics: PortStatistics,
}

/// What goes one way, and whom it wakes.
#[derive(Debug)]
struct Direction {
    /// The link's memory.
    umem: Umem,
    /// Under way, oldest first.
    sent: Queue,
    /// Received, and free again.
    returned: Queue,
    bell: Bell,
}

impl InternalPort {
    /// Two ends of one link. `depth` frames may be under way in each direction; memory for as many is
    /// reserved, and used as far as so many have been under way.
    ///
    /// # Errors
    ///
    /// The kernel's, when it gives no eventfd.
    ///
    /// # Panics
    ///
    /// When `depth` is 0, or more than a UMEM may have.
    pub fn pair(a: &Umem, b: &Umem, depth: u32) -> io::Result<(InternalPort, InternalPort)> {
        let frame_capacity = a.frame_capacity().min(b.frame_capacity());
        let (to_b, free_to_b) = Direction::new(depth, frame_capacity)?;
        let (to_a, free_to_a) = Direction::new(depth, frame_capacity)?;
        let end = |umem: &Umem, free, outbound: &Arc<_>, inbound: &Arc<_>| InternalPort {
            umem: umem.clone(),
            free,
            outbound: Arc::clone(outbound),
            inbound: Arc::clone(inbound),
            queued: VecDeque::with_capacity(depth as usize),
            done: VecDeque::with_capacity(depth as usize),
            depth: depth as usize,
            frame_capacity,
            slept: false,
            statistics: PortStatistics::default(),
        };
        Ok((
            end(a, free_to_b, &to_b, &to_a),
            end(b, free_to_a, &to_a, &to_b),
        ))
    }

    /// Copies a frame into the link; `false` when it is full, or the frame larger than it carries.
    fn send(&mut self, frame: &Frame) -> bool {
        let bytes = self.umem.bytes(frame);
        if bytes.len() > self.frame_capacity {
            return false;
        }
        let Some(mut copy) = self.free.alloc() else {
            return false;
        };
        let link = &self.outbound;
        link.umem.bytes_mut(&mut copy)[..bytes.len()].copy_from_slice(bytes);
        copy.set_len(bytes.len());
        // It has a place for each of the link's frames.
        link.sent.push(copy).is_ok()
    }

    /// The other end may have gone on sending without waking this one.
    #[inline(never)]
    fn wake_up(&mut self) {
        self.slept = false;
        self.inbound.bell.wake_up();
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
        &self.umem
    }

    fn receive(&mut self, pool: &mut FramePool, out: &mut Vec<Packet>, max: usize) -> usize {
        if self.slept {
            self.wake_up();
        }
        let most = self.umem.chunk().chunk_capacity();
        let (mut count, mut looked) = (0, 0);
        // Those that are lost count as well: their sender may be as fast as this.
        while looked < max
            && let Some(frame) = self.inbound.sent.pop()
        {
            looked += 1;
            let bytes = self.inbound.umem.bytes(&frame);
            let enough = pool.available() >= Packet::frames_for(bytes.len(), most);
            let packet = enough.then(|| Packet::from_bytes(&self.umem, pool, bytes));
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
        self.depth
            .saturating_sub(self.queued.len() + self.done.len())
    }

    fn transmit(&mut self, frame: Frame, cookie: u64) -> Result<(), Frame> {
        assert!(self.umem.owns(&frame), "a frame of another UMEM");
        if self.transmit_room() == 0 {
            self.statistics.transmit_ring_full += 1;
            return Err(frame);
        }
        self.statistics.transmitted += 1;
        self.statistics.transmitted_bytes += frame.len() as u64;
        self.queued.push_back((frame, cookie));
        Ok(())
    }

    fn flush(&mut self) -> Result<(), XskError> {
        if self.queued.is_empty() {
            return Ok(());
        }
        // The frame that came back last is used first: the processor still has it in its caches.
        while let Some(frame) = self.outbound.returned.pop() {
            self.free.free(frame);
        }
        while let Some((frame, cookie)) = self.queued.pop_front() {
            if !self.send(&frame) {
                self.statistics.send_dropped += 1;
            }
            self.done.push_back((frame, cookie));
        }
        self.statistics.send_calls += u64::from(self.outbound.bell.ring());
        Ok(())
    }

    fn unsent(&mut self) -> usize {
        self.queued.len()
    }

    fn completed(&mut self) -> Option<(Frame, u64)> {
        let done = self.done.pop_front()?;
        self.statistics.completed += 1;
        Some(done)
    }

    fn refill(&mut self, _: &mut FramePool) {}

    fn prepare_sleep(&mut self, _: &mut FramePool) {
        self.slept = true;
        self.inbound.bell.prepare_sleep();
        if !self.inbound.sent.is_empty() {
            // Whoever sent it may not have seen that this end sleeps.
            self.inbound.bell.ring();
        }
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.inbound.bell.as_fd())
    }

    fn frame_capacity(&self) -> usize {
        self.frame_capacity
    }

    fn statistics(&self) -> PortStatistics {
        self.statistics
    }
}

#[cfg(test)]
mod tests;
