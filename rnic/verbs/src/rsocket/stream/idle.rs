//! Asking a peer that is silent whether it is still there (`SO_KEEPALIVE`).
//!
//! The question is a message: TCP sends it until the peer acknowledges it, and ends the connection when
//! the peer does not, or knows nothing of the connection any more. No answer to the message itself comes.

use std::time::{Duration, Instant};

use super::Stream;
use super::work::{Work, message_of};
use crate::rsocket::wire::Message;

/// Since when nothing has completed, as far as anybody has looked.
#[derive(Debug)]
pub(super) struct Quiet {
    since: Instant,
    /// Something has completed since the last look.
    pub(super) broken: bool,
}

impl Quiet {
    pub(super) fn new() -> Self {
        Self {
            since: Instant::now(),
            broken: false,
        }
    }

    /// Whether it has been quiet for `idle`; then that time starts over.
    fn has_lasted(&mut self, idle: Duration, now: Instant) -> bool {
        let broken = std::mem::take(&mut self.broken);
        let lasted = !broken && now.duration_since(self.since) >= idle;
        if broken || lasted {
            self.since = now;
        }
        lasted
    }
}

impl Stream {
    /// Asks the peer when nothing has come or gone for `idle`.
    pub(crate) fn keep_alive(&mut self, idle: Duration, now: Instant) {
        let may_ask = self.end.is_none() && self.peer.is_some();
        // One is kept free for an end.
        if may_ask && self.quiet.has_lasted(idle, now) && self.control.take(1, 1) {
            let message = Message::KeepAlive.to_ne_bytes();
            self.post(&[message_of(Work::Control(1), &message)]);
        }
    }
}

#[cfg(test)]
mod tests;
