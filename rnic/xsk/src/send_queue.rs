//! Frames that a port in memory was given to send: first they wait for the next flush, then for their owner
//! to take them back.

use std::collections::VecDeque;

use crate::frame::Frame;
use crate::pool::FramePool;
use crate::port::PortStatistics;
use crate::umem::Umem;

/// At most `depth` frames, each with its cookie.
#[derive(Debug)]
pub(crate) struct SendQueue {
    umem: Umem,
    /// Not flushed yet, oldest first.
    queued: VecDeque<(Frame, u64)>,
    /// Sent or lost, oldest first.
    done: VecDeque<(Frame, u64)>,
    depth: usize,
}

/// What happened to a frame that was to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Sent,
    Lost,
    /// The link takes it later, and those after it.
    Waits,
}

impl SendQueue {
    /// For frames of `umem`.
    pub(crate) fn new(umem: &Umem, depth: usize) -> Self {
        Self {
            umem: umem.clone(),
            queued: VecDeque::with_capacity(depth),
            done: VecDeque::with_capacity(depth),
            depth,
        }
    }

    pub(crate) fn umem(&self) -> &Umem {
        &self.umem
    }

    /// How many more frames there is space for: those that are done count until they are taken back.
    pub(crate) fn room(&self) -> usize {
        self.depth
            .saturating_sub(self.queued.len() + self.done.len())
    }

    pub(crate) fn unsent(&self) -> usize {
        self.queued.len()
    }

    /// Appends a frame; it comes back when there is no space for it.
    pub(crate) fn push(
        &mut self,
        frame: Frame,
        cookie: u64,
        statistics: &mut PortStatistics,
    ) -> Result<(), Frame> {
        assert!(self.umem.owns(&frame), "a frame of another UMEM");
        if self.room() == 0 {
            statistics.transmit_ring_full += 1;
            return Err(frame);
        }
        statistics.transmitted += 1;
        statistics.transmitted_bytes += frame.len() as u64;
        self.queued.push_back((frame, cookie));
        Ok(())
    }

    /// The frames that were not sent yet, oldest first.
    pub(crate) fn queued(&self) -> impl Iterator<Item = &[u8]> {
        self.queued.iter().map(|(frame, _)| self.umem.bytes(frame))
    }

    /// So many of them, the oldest, are sent or lost.
    pub(crate) fn done(&mut self, count: usize) {
        let count = count.min(self.queued.len());
        self.done.extend(self.queued.drain(..count));
    }

    /// Has the queued frames sent, oldest first, until one has to wait.
    pub(crate) fn flush(
        &mut self,
        statistics: &mut PortStatistics,
        mut send: impl FnMut(&[u8]) -> Fate,
    ) {
        while let Some((frame, _)) = self.queued.front() {
            match send(self.umem.bytes(frame)) {
                Fate::Sent => {}
                Fate::Lost => statistics.send_dropped += 1,
                Fate::Waits => {
                    statistics.send_busy += 1;
                    return;
                }
            }
            self.done.extend(self.queued.pop_front());
        }
    }

    /// As [`Port::copy_transmitted`](crate::Port::copy_transmitted).
    pub(crate) fn copy(&self, index: usize, pool: &mut FramePool) -> Option<Frame> {
        let mut all = self.queued.iter().chain(&self.done);
        let (frame, _) = all.find(|(frame, _)| frame.index() == index)?;
        self.umem.copy(frame, pool)
    }

    /// Takes back the oldest frame that is done.
    pub(crate) fn completed(&mut self, statistics: &mut PortStatistics) -> Option<(Frame, u64)> {
        let done = self.done.pop_front()?;
        statistics.completed += 1;
        Some(done)
    }
}
