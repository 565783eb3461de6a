//! How large a stream is, and what of that an RNIC has.

use rustix::io::Errno;

use crate::ffi::{Fail, Outcome};
use crate::rsocket::flow::Control;

/// Receives beyond the credits, for messages that are no data.
pub(super) const SPARE_RECEIVES: u32 = 32;

/// The least that a stream can do with: half of the credits is told at a time, and control messages take
/// slots of their own.
const SEND_QUEUE_MIN: u16 = 4 * Control::SLOTS as u16;
const CREDITS_MIN: u16 = 8;

/// How large a stream is to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Bytes of the send ring.
    pub(crate) send: u32,
    /// Bytes of the receive ring.
    pub(crate) receive: u32,
    /// Work requests of the send queue.
    pub(crate) send_queue: u16,
    /// Data messages that the peer may send before they are read.
    pub(crate) credits: u16,
    /// Entries of the table of memory that the peer maps.
    pub(crate) iomap: u16,
}

impl Sizes {
    /// What a program may ask for.
    pub(crate) fn check(self) -> Outcome<()> {
        let enough = self.send_queue >= SEND_QUEUE_MIN && self.credits >= CREDITS_MIN;
        let why = || {
            let least = format!("{SEND_QUEUE_MIN} (send) and {CREDITS_MIN} (receive)");
            Fail::of(
                Errno::INVAL,
                format!("queues of an rsocket are {least} at least"),
            )
        };
        enough.then_some(()).ok_or_else(why)
    }

    /// As much of it as an RNIC has whose queues are at most so deep.
    pub(super) fn within(self, deepest: u32) -> Outcome<Self> {
        let at_most = |wanted: u16, most: u32| wanted.min(u16::try_from(most).unwrap_or(u16::MAX));
        let sizes = Self {
            send_queue: at_most(self.send_queue, deepest),
            credits: at_most(self.credits, deepest.saturating_sub(SPARE_RECEIVES)),
            receive: self.receive & !1,
            ..self
        };
        let least = SPARE_RECEIVES + u32::from(CREDITS_MIN);
        sizes.check().map(|()| sizes).map_err(|_| {
            let why = format!(
                "an rsocket needs queues of {least} work requests, and the RNIC's limit is {deepest}: \
                 raise `queue_depth` of the daemon's limits"
            );
            Fail::of(Errno::NOMEM, why)
        })
    }
}

#[cfg(test)]
mod tests;
