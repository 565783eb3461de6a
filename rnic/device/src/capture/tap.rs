//! From the shard to a capture's thread: a fixed number of buffers that go round. The shard makes no
//! system call for it, and wakes no thread: the thread looks from time to time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossbeam::channel::{Receiver, Sender, TryRecvError};
use rnic_engine::capture::{Capture, SeenFrame};
use rnic_ipc::capture::Direction;

/// Frames that wait to be written.
pub(super) const BUFFERS: usize = 4096;
/// Between two looks of the thread that found nothing.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// What a capture has done.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    taken: AtomicU64,
    lost: AtomicU64,
}

impl Counts {
    /// Frames given to the thread.
    pub(crate) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Frames lost because all buffers were full, or because the thread has ended.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

/// A frame on its way.
#[derive(Debug)]
pub(super) struct Captured {
    pub(super) unix_ns: u64,
    pub(super) direction: Direction,
    pub(super) original: usize,
    pub(super) bytes: Vec<u8>,
}

#[derive(Clone, Debug)]
pub(crate) struct Tap {
    full: Sender<Captured>,
    empty: Receiver<Captured>,
    counts: Arc<Counts>,
}

impl Capture for Tap {
    fn frame(&mut self, frame: &SeenFrame<'_>) {
        let Ok(mut captured) = self.empty.try_recv() else {
            self.counts.lost.fetch_add(1, Ordering::Relaxed);
            return;
        };
        captured.unix_ns = frame.unix_ns;
        captured.direction = frame.direction;
        captured.original = frame.original;
        captured.bytes.clear();
        captured.bytes.extend_from_slice(frame.bytes);
        match self.full.try_send(captured) {
            Ok(()) => self.counts.taken.fetch_add(1, Ordering::Relaxed),
            // The thread has ended: the disk is full, the client gone, or the like.
            Err(_) => self.counts.lost.fetch_add(1, Ordering::Relaxed),
        };
    }
}

#[derive(Debug)]
pub(super) struct Queue {
    full: Receiver<Captured>,
    empty: Sender<Captured>,
    counts: Arc<Counts>,
}

/// Where a capture's thread writes to.
pub(super) trait Sink {
    /// One frame; so many were lost until now.
    fn frame(&mut self, captured: &Captured, lost: u64) -> std::io::Result<()>;
    /// Nothing more came for a while.
    fn flush(&mut self) -> std::io::Result<()>;
    /// Nothing more comes.
    fn end(&mut self, counts: &Counts) -> std::io::Result<()>;
}

/// Both ends, with `buffers` for as many bytes of a frame.
pub(super) fn queue(buffers: usize, bytes: usize) -> (Tap, Queue) {
    let (full_sender, full) = crossbeam::channel::bounded(buffers);
    let (empty_sender, empty) = crossbeam::channel::bounded(buffers);
    for _ in 0..buffers {
        let captured = Captured {
            unix_ns: 0,
            direction: Direction::In,
            original: 0,
            bytes: Vec::with_capacity(bytes),
        };
        // The channel was made for as many.
        let _ = empty_sender.try_send(captured);
    }
    let counts = Arc::new(Counts::default());
    let tap = Tap {
        full: full_sender,
        empty,
        counts: counts.clone(),
    };
    let queue = Queue {
        full,
        empty: empty_sender,
        counts,
    };
    (tap, queue)
}

impl Queue {
    /// What this capture has done, from now on too.
    pub(super) fn counts(&self) -> &Arc<Counts> {
        &self.counts
    }

    /// Writes everything until all taps are gone.
    pub(super) fn write_to(self, sink: &mut impl Sink) -> std::io::Result<()> {
        loop {
            match self.full.try_recv() {
                Ok(captured) => {
                    sink.frame(&captured, self.counts.lost())?;
                    // The shard may be gone, and its end with it.
                    let _ = self.empty.try_send(captured);
                }
                Err(TryRecvError::Empty) => {
                    sink.flush()?;
                    std::thread::sleep(LOOK_AGAIN);
                }
                Err(TryRecvError::Disconnected) => return sink.end(&self.counts),
            }
        }
    }
}

#[cfg(test)]
mod tests;
