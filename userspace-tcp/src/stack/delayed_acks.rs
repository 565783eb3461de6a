//! Acknowledgments that are delayed (RFC 9293 section 3.8.6.3), of all connections together.
//!
//! To one connection's sender it is little that one segment's acknowledgment waits. But a peer may
//! share one window among thousands of connections (RFC 3124, RFC 9040), each of which sends a short message and then
//! nothing. Soon that window is full of segments whose acknowledgments all wait. Then the peer sends no faster than
//! a window in each such delay. So only so many wait; when there is one more, the
//! oldest goes out. An acknowledgment may always go out earlier.

use std::collections::VecDeque;

use userspace_net::Instant;

/// The latest that began to wait, oldest first; some have gone out since.
#[derive(Debug)]
pub(super) struct DelayedAcks {
    waiting: VecDeque<Delayed>,
    most: usize,
}

/// An acknowledgment that waits, if it still does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Delayed {
    /// Whose: the index of the connection, which may be another's by now.
    pub(super) index: u32,
    /// How long it may wait, by which it is known.
    pub(super) until: Instant,
}

impl DelayedAcks {
    /// None waits; `most` may.
    pub(super) fn new(most: usize) -> Self {
        Self {
            waiting: VecDeque::with_capacity(most),
            most,
        }
    }

    /// One more begins to wait. Back comes the one that is to go out for it, if there are too many.
    #[inline]
    pub(super) fn begin(&mut self, delayed: Delayed) -> Option<Delayed> {
        if let Some(last) = self.waiting.back_mut()
            && last.index == delayed.index
        {
            // The one before has gone out.
            *last = delayed;
            return None;
        }
        if self.most == 0 {
            return Some(delayed);
        }
        let oldest = match self.waiting.len() < self.most {
            true => None,
            false => self.waiting.pop_front(),
        };
        self.waiting.push_back(delayed);
        oldest
    }
}
