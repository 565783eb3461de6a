//! When a SACK is due (RFC 9260 section 6.2).
//!
//! It goes at the latest with every second packet of data, or after the delay. It goes at once when something is
//! missing or came twice, or the sender asks for it. In a fast stream ([`ArrivalRate`]) one that is due waits for
//! further packets, some microseconds at most, as an acknowledgment of TCP does.
//!
//! [`ArrivalRate`]: userspace_net::arrival_rate::ArrivalRate

#[cfg(test)]
mod tests;

use std::time::Duration;

use userspace_net::{
    Instant,
    arrival_rate::{STRETCH, STRETCH_PACKETS},
};

/// How long a SACK may wait: the recommended time, below the 500 ms that must not be exceeded.
pub const DELAY: Duration = Duration::from_millis(200);

/// Packets of data that may be acknowledged together.
const PACKETS: u16 = 2;

/// What a packet of data brought, as far as its acknowledgment goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Brought {
    /// Something is missing before what is here, or was until this packet (section 6.7).
    pub gap: bool,
    /// A chunk came again, or could not be taken.
    pub again: bool,
    /// A chunk has the I bit.
    pub immediate: bool,
    /// It came in a fast stream, and most of the window is still open.
    pub may_wait: bool,
}

/// Whether and when a SACK is due.
#[derive(Debug, Default)]
pub struct Acks {
    /// Packets of data since the last SACK.
    packets: u16,
    due: Option<Instant>,
    /// A SACK was sent.
    any: bool,
}

impl Acks {
    /// Of an association that is established, before its first packet of data.
    pub const fn new() -> Self {
        Self {
            packets: 0,
            due: None,
            any: false,
        }
    }

    /// Takes a packet with data that came `now`.
    pub fn packet(&mut self, now: Instant, brought: Brought) {
        self.packets = self.packets.saturating_add(1);
        let Brought {
            gap,
            again,
            immediate,
            may_wait,
        } = brought;
        // The first one is acknowledged at once (section 5.1.5).
        let due = if gap || again || immediate || !self.any {
            now
        } else if self.packets < PACKETS {
            now + DELAY
        } else if may_wait && self.packets < STRETCH_PACKETS {
            now + STRETCH
        } else {
            now
        };
        self.due_by(due);
    }

    /// A SACK goes as soon as it can: the window has opened again, or the association shuts down.
    pub fn at_once(&mut self, now: Instant) {
        self.due_by(now);
    }

    fn due_by(&mut self, at: Instant) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    /// When a SACK is due; it may go earlier, with data.
    pub const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// A SACK went.
    pub const fn sent(&mut self) {
        *self = Self {
            packets: 0,
            due: None,
            any: true,
        };
    }
}
