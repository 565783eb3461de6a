//! The rate limit and the queue in front of it.
//!
//! Packets leave one after the other at the rate of the wire, so when each leaves is known when it
//! comes. The queue holds those that have not left, the one on the wire among them.

use std::collections::VecDeque;
use std::time::Duration;

use super::settings::Settings;

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passage {
    /// The queue has no room.
    Full,
    /// It has left at this time.
    Through {
        /// When its last byte is on the wire.
        leaves: Duration,
        /// More than the ECN threshold waits in front of it.
        mark: bool,
    },
}

/// A rate limit with a queue.
#[derive(Debug, Default)]
pub struct Bottleneck {
    /// When each packet in the queue leaves, and its bytes.
    waiting: VecDeque<(Duration, u32)>,
    /// Bytes of these.
    bytes: u64,
    /// When the wire is free again.
    free_at: Duration,
    /// What the last packet's time lacks to the next nanosecond, in bits times 10^9.
    rest: u64,
}

impl Bottleneck {
    /// Queues a packet of `bytes` bytes, if there is room.
    pub fn offer(&mut self, now: Duration, bytes: usize, settings: &Settings) -> Passage {
        self.advance(now);
        let Some(rate) = settings.rate.bits() else {
            return Passage::Through {
                leaves: now,
                mark: false,
            };
        };
        let (packets, queued) = (self.waiting.len(), self.bytes);
        if !settings.queue.holds(packets + 1, queued + bytes as u64) {
            return Passage::Full;
        }
        let begin = if self.free_at > now {
            self.free_at
        } else {
            self.rest = 0;
            now
        };
        let bits = 8 * (bytes as u64 + u64::from(settings.overhead));
        let scaled = bits.saturating_mul(1_000_000_000).saturating_add(self.rest);
        self.rest = scaled % rate;
        let leaves = begin.saturating_add(Duration::from_nanos(scaled / rate));
        self.free_at = leaves;
        self.waiting.push_back((leaves, bytes as u32));
        self.bytes += bytes as u64;
        Passage::Through {
            leaves,
            mark: !settings.ecn.holds(packets, queued),
        }
    }

    /// Packets and bytes that have not left at this time.
    pub fn queued(&mut self, now: Duration) -> (usize, u64) {
        self.advance(now);
        (self.waiting.len(), self.bytes)
    }

    fn advance(&mut self, now: Duration) {
        while let Some(&(leaves, bytes)) = self.waiting.front()
            && leaves <= now
        {
            self.waiting.pop_front();
            self.bytes -= u64::from(bytes);
        }
    }
}

#[cfg(test)]
mod tests;
