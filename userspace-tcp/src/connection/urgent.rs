//! Urgent bytes (RFC 9293 section 3.8.5), as little as must be: they stay in their place in the
//! stream, and the layer above is told how far they reach.

use crate::effects::Env;
use crate::interface::{Event, State};
use crate::segment::{Flags, Segment};
use crate::seq::{Position, SeqNum, StreamOffset};

use super::Connection;

/// How far urgent bytes reach in either direction; 0: there were none.
#[derive(Debug, Default)]
pub(super) struct Urgent {
    /// SND.UP: one past the byte that the layer above called urgent last.
    ours: Position,
    /// RCV.UP: one past the byte that the peer called urgent last.
    peers: Position,
}

impl<B> Connection<B> {
    /// See [`crate::Stack::urge`].
    pub(crate) fn urge(&mut self) -> bool {
        let tail = self.outbound.tail();
        let open = matches!(self.state, State::Established | State::CloseWait);
        if !open || self.outbound.una() >= tail {
            return false;
        }
        self.urgent.ours = tail;
        // Also a peer whose window is closed has to hear of it.
        self.inbound.ack_at_once();
        true
    }

    /// Whether what goes out next may have to say that something is urgent.
    pub(super) fn is_urgent(&self) -> bool {
        self.outbound.una() < self.urgent.ours
    }

    /// The flag and the pointer of a segment that goes out at `seq` while urgent bytes are not
    /// acknowledged.
    #[inline]
    pub(super) fn urgent_mark(&self, seq: SeqNum) -> (Flags, u16) {
        if !self.is_urgent() {
            return (Flags::default(), 0);
        }
        let end = self.urgent.ours;
        let ahead = self.outbound.wire(end).distance(seq);
        if ahead < 0 {
            return (Flags::default(), 0);
        }
        // Further on than the field can say: urgent so far, and later segments say more.
        (Flags::URG, u16::try_from(ahead).unwrap_or(u16::MAX))
    }

    /// An acceptable segment may say how far urgent bytes reach (section 3.10.7.4, sixth).
    pub(super) fn on_urgent(&mut self, env: &mut Env<'_, B>, segment: &Segment<'_>) {
        if !segment.header.flags.contains(Flags::URG) {
            return;
        }
        let start = self.inbound.position(segment.header.seq);
        let end = start.saturating_add(i64::from(segment.header.urgent));
        let end = end.max(1).cast_unsigned();
        if end > self.inbound.consumed() && self.urgent.peers < end {
            self.urgent.peers = end;
            env.effects.events.push_back((self.id, Event::Urgent));
        }
    }

    /// Where the peer's urgent bytes end, unless all of them are consumed.
    pub(super) fn urgent_to(&self) -> Option<StreamOffset> {
        let end = self.urgent.peers;
        (end > self.inbound.consumed()).then(|| end - 1)
    }
}
