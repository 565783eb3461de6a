//! Sending super-packets: frames that are one packet together go by a packet socket, all others by the TX ring.
//!
//! The frames stay as they are: the socket copies their payload from where it lies, and they are done when the
//! system call is. What the device can't cut the kernel does (no `PACKET_QDISC_BYPASS`).

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;

use rustix::io::{Errno, writev};

use super::options;
use super::super_packet::{HEADERS_MAX, Run, SEGMENTS_MAX, VNET_HEADER};
use crate::frame::Frame;
use crate::pool::FramePool;
use crate::port::PortStatistics;
use crate::umem::Umem;

/// Frames on their way to one or the other, in their order.
#[derive(Debug)]
pub(super) struct SuperSend {
    socket: OwnedFd,
    /// Not flushed yet, oldest first.
    queued: VecDeque<(Frame, u64)>,
    /// Sent by the socket, or lost, oldest first.
    done: VecDeque<(Frame, u64)>,
    depth: usize,
}

/// What the frames at the front of the queue are.
pub(super) enum Front {
    /// There are none.
    Empty,
    /// One that goes by the ring.
    Single(Frame, u64),
    Several(Run),
}

impl SuperSend {
    /// For an interface of the calling thread's network namespace; `depth` frames at most are queued.
    pub(super) fn open(interface: &str, depth: usize) -> io::Result<Self> {
        Ok(Self {
            socket: options::packet_socket(interface)?,
            queued: VecDeque::with_capacity(depth),
            done: VecDeque::with_capacity(depth),
            depth,
        })
    }

    /// How many frames there is space for, when the ring has space for so many.
    pub(super) fn room(&self, ring: usize) -> usize {
        let left = self.depth - (self.queued.len() + self.done.len()).min(self.depth);
        left.min(ring.saturating_sub(self.queued.len()))
    }

    pub(super) fn unsent(&self) -> usize {
        self.queued.len()
    }

    /// Appends a frame that there is [`room`](Self::room) for.
    pub(super) fn push(&mut self, frame: Frame, cookie: u64) {
        self.queued.push_back((frame, cookie));
    }

    /// Puts a frame back to the front, which the ring has no space for.
    pub(super) fn put_back(&mut self, frame: Frame, cookie: u64) {
        self.queued.push_front((frame, cookie));
    }

    /// What is to be sent next; a single frame is taken out.
    pub(super) fn front(&mut self, umem: &Umem) -> Front {
        if self.queued.len() > 1
            && let frames = self.queued.iter().map(|(frame, _)| umem.bytes(frame))
            && let Some(run) = Run::at_front(frames)
            && run.count > 1
        {
            return Front::Several(run);
        }
        match self.queued.pop_front() {
            Some((frame, cookie)) => Front::Single(frame, cookie),
            None => Front::Empty,
        }
    }

    /// Sends the frames at the front as the packet that [`front`](Self::front) said they are. False, and nothing is
    /// done, when the link takes no more now.
    pub(super) fn send(
        &mut self,
        run: Run,
        umem: &Umem,
        statistics: &mut PortStatistics,
    ) -> Result<bool, Errno> {
        let (count, at) = (run.count, run.payload_at());
        let (mut vnet, mut headers) = ([0; VNET_HEADER], [0; HEADERS_MAX]);
        if let Some((first, _)) = self.queued.front() {
            run.write(umem.bytes(first), &mut vnet, &mut headers);
        }
        let mut parts = [IoSlice::new(&[]); SEGMENTS_MAX + 2];
        parts[0] = IoSlice::new(&vnet);
        parts[1] = IoSlice::new(&headers[..at]);
        let queued = self.queued.iter().take(count);
        for (part, (frame, _)) in parts[2..].iter_mut().zip(queued) {
            *part = IoSlice::new(&umem.bytes(frame)[at..]);
        }
        statistics.send_calls += 1;
        match writev(&self.socket, &parts[..2 + count]) {
            Ok(_) => {
                statistics.super_packets_sent += 1;
                statistics.super_packet_segments_sent += count as u64;
            }
            Err(Errno::AGAIN | Errno::INTR | Errno::NOMEM) => {
                statistics.send_busy += 1;
                return Ok(false);
            }
            // The link's queue was full, or it takes no such packet.
            Err(Errno::NOBUFS | Errno::MSGSIZE | Errno::INVAL | Errno::IO) => {
                statistics.send_dropped += count as u64;
            }
            Err(errno) => return Err(errno),
        }
        self.done.extend(self.queued.drain(..count));
        Ok(true)
    }

    /// As [`Port::copy_transmitted`](crate::Port::copy_transmitted), of what is not in the ring.
    pub(super) fn copy(&self, umem: &Umem, index: usize, pool: &mut FramePool) -> Option<Frame> {
        let mut all = self.queued.iter().chain(&self.done);
        let (frame, _) = all.find(|(frame, _)| frame.index() == index)?;
        umem.copy(frame, pool)
    }

    /// Takes back the oldest frame that is done.
    pub(super) fn completed(&mut self, statistics: &mut PortStatistics) -> Option<(Frame, u64)> {
        let done = self.done.pop_front()?;
        statistics.completed += 1;
        Some(done)
    }
}
