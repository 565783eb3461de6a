//! Segments that are lost because they were too large for the path: that is no sign of congestion.

use super::Outbound;
use super::slot::SlotState;
use crate::seq::Position;

impl<B> Outbound<B> {
    /// Bytes of the segment that holds `position`, if it is there.
    pub(crate) fn segment_at(&self, position: Position) -> Option<(Position, u32)> {
        let name = self.ring.find(position + 1).wrapping_sub(1);
        let slot = self.ring.get(name)?;
        let holds = slot.start <= position && position < slot.end();
        holds.then_some((slot.start, slot.len))
    }

    /// The first segment, if it was sent: where it begins, and its length.
    pub(crate) fn first_sent(&self) -> Option<(Position, u32)> {
        let slot = self.ring.front().filter(|_| self.sent > 0)?;
        Some((slot.start, slot.len))
    }

    /// Whether the peer has the segment at `start`, by its word.
    pub(crate) fn is_sacked(&self, start: Position) -> bool {
        let slot = self.ring.get(self.ring.find(start));
        slot.is_some_and(|slot| slot.start == start && slot.state == SlotState::Sacked)
    }

    /// The segment at `start`, if it is lost, is so because of its size. Returns whether it was not
    /// excused before.
    pub(crate) fn excuse(&mut self, start: Position) -> bool {
        let name = self.ring.find(start);
        let Some(slot) = self.ring.get_mut(name) else {
            return false;
        };
        if slot.start != start || slot.state != SlotState::Lost || slot.excused {
            return false;
        }
        slot.excused = true;
        self.excused_bytes += u64::from(slot.len);
        if let Some(rate) = &mut self.rate {
            rate.excused(slot.len);
        }
        true
    }

    /// All segments in flight of more than `len` bytes were dropped because of their size. Returns
    /// whether there is one.
    pub(crate) fn lose_larger(&mut self, len: u32) -> bool {
        let before = self.lost_bytes;
        for place in 0..self.sent {
            let name = self.ring.name(place);
            let Some(slot) = self.ring.get(name) else {
                break;
            };
            if slot.state == SlotState::InFlight && slot.len > len {
                let start = slot.start;
                self.lose(name);
                self.excuse(start);
            }
        }
        self.lost_bytes > before
    }

    /// The segment at `start`, if it is in flight, was dropped because of its size. Returns whether it
    /// is.
    pub(crate) fn lose_oversized(&mut self, start: Position) -> bool {
        let name = self.ring.find(start);
        let in_flight =
            |slot: &super::Slot<B>| slot.start == start && slot.state == SlotState::InFlight;
        let dropped = self.ring.get(name).is_some_and(in_flight);
        if dropped {
            self.lose(name);
            self.excuse(start);
        }
        dropped
    }

    /// Whether only segments are lost that are excused.
    pub(crate) fn all_lost_excused(&self) -> bool {
        self.lost_bytes == self.excused_bytes
    }

    /// A segment is lost no more.
    pub(super) fn forget_excuse(&mut self, name: u32) {
        if let Some(slot) = self.ring.get_mut(name)
            && std::mem::take(&mut slot.excused)
        {
            self.excused_bytes -= u64::from(slot.len);
        }
    }
}
