//! What is lost, by RACK (RFC 8985), by duplicate ACKs (RFC 6582) or by a timeout, and what of it
//! goes out next.

use userspace_net::{Instant, earlier};

use super::list::List;
use super::slot::{Slot, SlotState};
use super::{Outbound, Outgo};
use crate::rack::Rack;
use crate::seq::Position;

impl<B> Outbound<B> {
    /// RACK_detect_loss() of RFC 8985 section 6.2: marks what is lost by now, retransmissions
    /// included. Returns when the next segment will be that was overtaken already.
    pub(crate) fn detect_losses(
        &mut self,
        rack: &Rack,
        reo_wnd: u64,
        now: Instant,
    ) -> Option<Instant> {
        let patience = rack.patience(reo_wnd);
        let originals = self.judge_originals(rack, patience, now);
        let again = self.judge_retransmissions(rack, patience, now);
        let fin = self.fin.judge(rack, patience, now);
        earlier(earlier(originals, again), fin)
    }

    fn judge_originals(&mut self, rack: &Rack, patience: u64, now: Instant) -> Option<Instant> {
        loop {
            let name = self.originals;
            if self.ring.place(name) >= self.sent {
                return None;
            }
            let slot = self.ring.get(name)?;
            match slot.state {
                SlotState::Sacked => {
                    self.originals = self.behind_sacked(name);
                    continue;
                }
                SlotState::InFlight if !slot.retransmitted => {
                    if !rack.sent_after(slot.sent_at, slot.end()) {
                        return None;
                    }
                    let due = slot.sent_at.plus_nanos(patience);
                    if due > now {
                        return Some(due);
                    }
                    self.lose(name);
                }
                SlotState::InFlight | SlotState::Lost | SlotState::Queued => {}
            }
            self.originals = name.wrapping_add(1);
        }
    }

    fn judge_retransmissions(
        &mut self,
        rack: &Rack,
        patience: u64,
        now: Instant,
    ) -> Option<Instant> {
        loop {
            let name = self.again.first()?;
            let slot = self.ring.get(name)?;
            if !rack.sent_after(slot.sent_at, slot.end()) {
                return None;
            }
            // What has just left is not lost, however short the round trip.
            let due = slot.sent_at.plus_nanos(patience.max(1));
            if due > now {
                return Some(due);
            }
            self.lose(name);
        }
    }

    /// Three duplicate ACKs, or a partial one (RFC 6582 section 3.2): the first segment is lost.
    pub(crate) fn mark_front_lost(&mut self) {
        let fresh = |slot: &Slot<B>| slot.state == SlotState::InFlight && !slot.retransmitted;
        if self.sent > 0 && self.ring.front().is_some_and(fresh) {
            self.lose(self.ring.front_name());
        }
    }

    /// A retransmission timeout: the first segment is lost, and whatever went out longer than
    /// `patience` ago (RFC 8985 section 6.3). When the peer turns out to have dropped what it had
    /// reported, its reports are forgotten (RFC 2018 section 8).
    pub(crate) fn mark_timed_out(&mut self, patience: u64, now: Instant) {
        let front = self.ring.front_name();
        let reneged = self
            .ring
            .front()
            .is_some_and(|slot| slot.state == SlotState::Sacked);
        if reneged {
            self.forget_sacks();
        }
        // Made again, in the order of the stream.
        self.lost = List::default();
        self.lost_again = List::default();
        for place in 0..self.sent {
            let name = self.ring.name(place);
            let Some(slot) = self.ring.get(name) else {
                break;
            };
            match slot.state {
                SlotState::InFlight
                    if name == front || slot.sent_at.plus_nanos(patience) <= now =>
                {
                    self.lose(name);
                }
                SlotState::Lost => self.list_lost(name),
                SlotState::InFlight | SlotState::Sacked | SlotState::Queued => {}
            }
        }
        self.left_by_duplicates = 0;
        if self.ring.len() == 0 || self.fin.sent_at.plus_nanos(patience) <= now {
            self.fin.lose();
        }
    }

    /// The peer's SACK blocks were a lie, or it has changed its mind.
    fn forget_sacks(&mut self) {
        for place in 0..self.sent {
            let name = self.ring.name(place);
            if let Some(slot) = self.ring.get_mut(name)
                && slot.state == SlotState::Sacked
            {
                slot.state = SlotState::Lost;
                self.lost_bytes += u64::from(slot.len);
            }
        }
        self.sacked_bytes = 0;
        self.segs_sacked = 0;
        self.sack_cache.clear();
        self.fin.forget_sack();
    }

    /// What is in flight becomes lost.
    pub(super) fn lose(&mut self, name: u32) {
        let Some(slot) = self.ring.get_mut(name) else {
            return;
        };
        slot.state = SlotState::Lost;
        if let Some(rate) = &mut self.rate {
            rate.lost(slot.stamp, slot.len, slot.end());
        }
        self.pipe -= u64::from(slot.len);
        self.lost_bytes += u64::from(slot.len);
        if slot.retransmitted {
            self.again.remove(&mut self.ring, name);
        }
        self.list_lost(name);
    }

    /// A lost segment waits to be sent again, once its buffer is here.
    pub(super) fn list_lost(&mut self, name: u32) {
        match self.ring.get(name) {
            Some(slot) if slot.buf.is_some() && slot.retransmitted => {
                self.lost_again.push(&mut self.ring, name);
            }
            Some(slot) if slot.buf.is_some() => self.lost.push(&mut self.ring, name),
            _ => {}
        }
    }

    /// A lost segment is lost no more.
    pub(super) fn unlist_lost(&mut self, name: u32) {
        match self.ring.get(name) {
            Some(slot) if slot.buf.is_some() && slot.retransmitted => {
                self.lost_again.remove(&mut self.ring, name);
            }
            Some(slot) if slot.buf.is_some() => self.lost.remove(&mut self.ring, name),
            _ => {}
        }
    }

    fn next_lost(&self) -> Option<u32> {
        let heads = [self.lost.first(), self.lost_again.first()];
        heads
            .into_iter()
            .flatten()
            .min_by_key(|&name| self.ring.place(name))
    }

    /// Bytes of the lost segment to be sent next.
    pub(crate) fn next_lost_len(&self) -> Option<u64> {
        let slot = self.ring.get(self.next_lost()?)?;
        Some(u64::from(slot.len))
    }

    /// Takes the next lost segment out to the link again.
    pub(crate) fn take_lost(&mut self, now: Instant) -> Option<Outgo<B>> {
        let name = self.next_lost()?;
        self.unlist_lost(name);
        let before = self.ring.get(name)?;
        let lost = (!before.excused).then_some(before.sent_at);
        let mut outgo = self.take(self.ring.place(name), now)?;
        outgo.payload.lost = lost;
        let slot = self.ring.get_mut(name)?;
        slot.retransmitted = true;
        self.lost_bytes -= u64::from(slot.len);
        self.forget_excuse(name);
        self.again.push(&mut self.ring, name);
        Some(outgo)
    }

    /// Whether the last segment that was sent can be sent again: our FIN, or one whose buffer is
    /// here.
    pub(crate) fn tail_here(&self) -> bool {
        self.fin.is_out() || self.last_in_flight()
    }

    /// Whether the last segment that was sent is in flight, and its buffer here.
    fn last_in_flight(&self) -> bool {
        let last = self.sent.checked_sub(1);
        last.is_some_and(|place| self.in_flight(place))
    }

    /// Whether our FIN is out, and to be sent again by itself.
    pub(crate) fn fin_out_alone(&self) -> bool {
        self.fin.is_out() && !(self.fin.rides() && self.last_in_flight())
    }

    fn in_flight(&self, place: usize) -> bool {
        let here = |slot: &Slot<B>| slot.state == SlotState::InFlight && slot.buf.is_some();
        self.ring.at(place).is_some_and(here)
    }

    /// Takes the last segment that was sent out to the link again, though it may be in flight.
    pub(crate) fn take_tail(&mut self, now: Instant) -> Option<Outgo<B>> {
        let place = self
            .sent
            .checked_sub(1)
            .filter(|&place| self.in_flight(place))?;
        let name = self.ring.name(place);
        let slot = self.ring.get_mut(name)?;
        self.pipe -= u64::from(slot.len);
        if std::mem::replace(&mut slot.retransmitted, true) {
            self.again.remove(&mut self.ring, name);
        }
        let outgo = self.take(self.ring.place(name), now)?;
        self.again.push(&mut self.ring, name);
        Some(outgo)
    }

    /// What is believed to be lost is in flight after all, but for what was too large for the path.
    pub(crate) fn forgive(&mut self) {
        self.lost = List::default();
        self.lost_again = List::default();
        // What follows in the stream mostly was sent again a little later.
        let mut near = None;
        for place in 0..self.sent {
            let name = self.ring.name(place);
            if let Some(slot) = self.ring.get_mut(name)
                && slot.state == SlotState::Lost
            {
                if slot.excused {
                    self.list_lost(name);
                    continue;
                }
                slot.state = SlotState::InFlight;
                self.pipe += u64::from(slot.len);
                self.lost_bytes -= u64::from(slot.len);
                if slot.retransmitted {
                    self.again.insert(&mut self.ring, name, near);
                    near = Some(name);
                }
            }
        }
        self.originals = self.ring.front_name();
        self.left_by_duplicates = 0;
        self.fin.forgive();
    }

    /// Behind the first segment that is not acknowledged.
    pub(crate) fn front_end(&self) -> Position {
        let front = self.ring.front().filter(|_| self.sent > 0);
        front.map_or(self.next, Slot::end)
    }

    /// Whether something is lost by congestion and not on its way again.
    pub(crate) fn any_lost(&self) -> bool {
        !self.all_lost_excused() || self.fin.is_lost()
    }

    /// Whether the first segment is lost and not on its way again.
    pub(crate) fn front_lost(&self) -> bool {
        let lost = |slot: &Slot<B>| slot.state == SlotState::Lost;
        self.sent > 0 && self.ring.front().is_some_and(lost)
    }

    /// Whether the first segment's buffer is with the link: it may not even have left.
    pub(crate) fn front_with_link(&self) -> bool {
        self.sent > 0 && self.ring.front().is_some_and(|slot| slot.buf.is_none())
    }

    /// One more duplicate ACK: some segment behind the first has left the network.
    pub(crate) fn one_left(&mut self, smss: u64) {
        self.left_by_duplicates += smss;
        self.stand_in(0);
    }

    /// So many bytes are acknowledged for which duplicate ACKs stood.
    pub(super) fn stand_in(&mut self, bytes: u64) {
        let asked_for = self.ring.front().map_or(0, |slot| u64::from(slot.len));
        let most = self.pipe.saturating_sub(asked_for);
        self.left_by_duplicates = self.left_by_duplicates.saturating_sub(bytes).min(most);
    }

    /// Recovery is over.
    pub(crate) fn forget_duplicates(&mut self) {
        self.left_by_duplicates = 0;
    }
}
