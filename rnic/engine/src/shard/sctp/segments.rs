//! Segments and messages of a session that came before their turn, by place (RFC 5043 section 10).
//!
//! A segment that could be placed when it came leaves its header only. What has to wait is copied: control messages,
//! segments of a session that has not begun, and Sends whose receive is not known yet. SCTP's receive window bounds
//! the copies, because they are not consumed.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use rnic_proto::sctp::IN_FLIGHT_MAX;

use crate::conn::DDP_HEADER_MAX;

/// User data that waits for its turn.
#[derive(Debug)]
pub enum Held {
    /// A segment whose payload is where it belongs.
    Placed {
        /// Its DDP header, and the RDMAP header after it.
        header: [u8; DDP_HEADER_MAX],
        /// Its bytes.
        len: u16,
    },
    /// The user data of a chunk.
    Copy {
        /// Its Payload Protocol Identifier.
        protocol: u32,
        /// With the DDP-SSN.
        bytes: Box<[u8]>,
    },
}

/// What is here of a session from the next in order on. It has memory for that, and none for what is missing.
#[derive(Debug, Default)]
pub struct Segments {
    /// All before have had their turn.
    next: u64,
    /// By place.
    held: BTreeMap<u64, Held>,
}

/// A place that was taken before: the peer has used a DDP-SSN twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakenTwice;

impl Segments {
    /// The next in order.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// The next in order had its turn as it came.
    #[inline]
    pub fn pass(&mut self) {
        self.next += 1;
    }

    /// Keeps what came for a place, which is not before the next and less than [`IN_FLIGHT_MAX`] ahead of it.
    pub fn keep(&mut self, place: u64, held: Held) -> Result<(), TakenTwice> {
        let ahead = place.wrapping_sub(self.next);
        debug_assert!(ahead < IN_FLIGHT_MAX, "place {place} of {self:?}");
        match self.held.entry(place) {
            Entry::Occupied(_) => Err(TakenTwice),
            Entry::Vacant(free) => {
                free.insert(held);
                Ok(())
            }
        }
    }

    /// What has its turn now, if it is here.
    #[inline]
    pub fn first(&self) -> Option<&Held> {
        let (place, held) = self.held.first_key_value()?;
        (*place == self.next).then_some(held)
    }

    /// Takes what has its turn now, if it is here.
    pub fn take(&mut self) -> Option<Held> {
        let first = self.held.first_entry()?;
        if *first.key() != self.next {
            return None;
        }
        let held = first.remove();
        self.pass();
        Some(held)
    }

    /// Nothing of it gets a turn any more. The bytes of user data that were kept.
    pub fn clear(&mut self) -> usize {
        let held = std::mem::take(&mut self.held);
        held.values().map(Held::bytes).sum()
    }
}

impl Held {
    /// Bytes of user data that are kept.
    fn bytes(&self) -> usize {
        match self {
            Self::Placed { .. } => 0,
            Self::Copy { bytes, .. } => bytes.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(byte: u8) -> Held {
        Held::Copy {
            protocol: 16,
            bytes: Box::new([byte]),
        }
    }

    fn byte(held: &Held) -> u8 {
        match held {
            Held::Copy { bytes, .. } => bytes[0],
            Held::Placed { .. } => panic!("{held:?}"),
        }
    }

    #[test]
    fn each_has_its_turn_once_in_the_order_of_places() {
        let mut segments = Segments::default();
        for place in [3, 1, 2] {
            segments.keep(place, copy(place as u8)).unwrap();
        }
        assert!(segments.take().is_none(), "the first is not here");
        assert_eq!(segments.keep(2, copy(9)), Err(TakenTwice));
        segments.pass();
        let turns: Vec<u8> = std::iter::from_fn(|| segments.take())
            .map(|held| byte(&held))
            .collect();
        assert_eq!(turns, [1, 2, 3]);
        assert!(segments.held.is_empty());
        assert_eq!(segments.next(), 4);
        segments.keep(4 + IN_FLIGHT_MAX - 1, copy(0)).unwrap();
        assert!(segments.first().is_none());
        assert!(segments.take().is_none());
        assert_eq!(segments.clear(), 1);
        assert!(segments.held.is_empty());
    }

    /// What was placed was told as consumed when it came.
    #[test]
    fn what_is_cleared_away_counts_as_far_as_it_was_kept() {
        let mut segments = Segments::default();
        let placed = Held::Placed {
            header: [0; DDP_HEADER_MAX],
            len: 100,
        };
        segments.keep(0, placed).unwrap();
        segments.keep(1, copy(7)).unwrap();
        assert_eq!(segments.clear(), 1);
    }
}
