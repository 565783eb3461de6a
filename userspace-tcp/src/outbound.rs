//! The sending half of a connection: the queue of segments and what became of each (RFC 9293
//! section 3.4, RFC 2018, RFC 6675).
//!
//! A segment is the unit: it is never split or joined. Its buffer is here, or with the link, or
//! released. A segment whose buffer is with the link is not sent a second time.

mod fin;
mod slot;

use std::collections::VecDeque;

pub(crate) use fin::Fin;
pub(crate) use slot::{Slot, SlotState};

use crate::checksum::PartialSum;
use crate::interface::{Outgoing, Payload, SegmentId};
use crate::options::SackBlock;
use crate::pool::QueuePool;
use crate::seq::{Position, SeqNum, Space};
use crate::time::Instant;

/// DupThresh of RFC 6675 section 2: so many segments received above one make it lost.
pub(crate) const DUP_THRESH: u32 = 3;

/// SND.UNA, SND.NXT, SND.WND and the queue.
#[derive(Debug)]
pub(crate) struct Outbound<B> {
    space: Space,
    /// Borrowed from the pool while it is not empty.
    queue: VecDeque<Slot<B>>,
    /// Name of the first segment of `queue`.
    front_id: u32,
    /// Segments of `queue` that were sent at least once: they come first.
    sent: usize,
    /// SND.UNA.
    una: Position,
    /// SND.NXT.
    next: Position,
    /// Behind the last octet queued.
    tail: Position,
    /// SND.WND, in octets.
    window: u64,
    window_max: u64,
    /// SND.WL1 (of the peer's space) and SND.WL2.
    window_seq: i64,
    window_ack: Position,
    pub(crate) fin: Fin,
    /// Octets believed to be in the network.
    pipe: u64,
    lost_octets: u64,
    /// Segments that the peer has by its SACK blocks.
    sacked: usize,
    /// Everything before this was judged by [`Outbound::mark_lost`].
    judged: Position,
    /// Without SACK: octets that must have left the network by the count of duplicate ACKs.
    left_by_duplicates: u64,
}

/// What a cumulative acknowledgment did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Acked {
    /// Sequence numbers newly acknowledged.
    pub(crate) octets: u64,
    /// When the first of the segments was sent that were acknowledged by this ACK alone; `None`
    /// when the ACK is ambiguous (Karn's algorithm, RFC 6298 section 3).
    pub(crate) sent_at: Option<Instant>,
    /// When the latest retransmission was sent of those that it acknowledged.
    pub(crate) resent_at: Option<Instant>,
}

/// A segment with payload to be sent.
pub(crate) struct Outgo<B> {
    pub(crate) payload: Payload<B>,
    pub(crate) seq: SeqNum,
    /// The last of the queue: pushed.
    pub(crate) last: bool,
}

impl<B> Outbound<B> {
    /// Before the SYN.
    pub(crate) fn new(iss: SeqNum) -> Self {
        Self {
            space: Space::new(iss),
            queue: VecDeque::new(),
            front_id: 0,
            sent: 0,
            una: 0,
            next: 0,
            tail: 1,
            window: 0,
            window_max: 0,
            window_seq: 0,
            window_ack: 0,
            fin: Fin::default(),
            pipe: 0,
            lost_octets: 0,
            sacked: 0,
            judged: 0,
            left_by_duplicates: 0,
        }
    }

    pub(crate) fn iss(&self) -> SeqNum {
        self.space.wire(0)
    }

    pub(crate) fn una(&self) -> Position {
        self.una
    }

    pub(crate) fn next(&self) -> Position {
        self.next
    }

    pub(crate) fn window(&self) -> u64 {
        self.window
    }

    pub(crate) fn window_max(&self) -> u64 {
        self.window_max
    }

    pub(crate) fn queued_segments(&self) -> usize {
        self.queue.len()
    }

    /// Octets in the network.
    pub(crate) fn pipe(&self) -> u64 {
        self.pipe.saturating_sub(self.left_by_duplicates)
    }

    /// The sum of all DeliveredData (RFC 6937 section 3): what was sent and is neither in the network
    /// nor lost.
    pub(crate) fn delivered(&self) -> u64 {
        self.next.saturating_sub(self.pipe() + self.lost_octets)
    }

    pub(crate) fn lost_octets(&self) -> u64 {
        self.lost_octets
    }

    /// FlightSize of RFC 5681: sent and not cumulatively acknowledged.
    pub(crate) fn flight(&self) -> u64 {
        self.next - self.una
    }

    /// Octets queued that no segment carried yet.
    pub(crate) fn unsent_octets(&self) -> u64 {
        self.queue
            .get(self.sent)
            .map_or(0, |slot| self.tail - slot.start)
    }

    /// The position of an acknowledgment number.
    pub(crate) fn position(&self, ack: SeqNum) -> i64 {
        self.space.position(self.una, ack)
    }

    /// The sequence number of a segment that takes none. Not beyond the window, so that a peer that
    /// has moved its right edge back still listens.
    pub(crate) fn idle_seq(&self, slack: u64) -> SeqNum {
        let edge = self.una + self.window;
        self.space.wire(if self.next > edge + slack {
            edge
        } else {
            self.next
        })
    }

    /// The sequence number before the first unacknowledged one: whoever gets a segment with it has
    /// to answer (RFC 9293 sections 3.8.4 and 3.10.7.4).
    pub(crate) fn probe_seq(&self) -> SeqNum {
        self.space.wire(self.una.saturating_sub(1))
    }

    /// The SYN goes out (again).
    pub(crate) fn syn_sent(&mut self) {
        self.next = self.next.max(1);
    }

    pub(crate) fn push(&mut self, outgoing: Outgoing<B>, pool: &mut QueuePool<Slot<B>>) {
        pool.make_room(&mut self.queue);
        let start = self.tail;
        self.tail += u64::from(outgoing.len);
        self.queue.push_back(Slot {
            buf: Some(outgoing.buf),
            start,
            sent_at: Instant::ZERO,
            len: outgoing.len,
            sum: outgoing.payload_sum.folded(),
            state: SlotState::Queued,
            transmitted: false,
            retransmitted: false,
        });
    }

    /// The link is done with a buffer. It comes back out when its segment is gone.
    pub(crate) fn returned(&mut self, id: SegmentId, buf: B) -> Option<B> {
        let index = id.0.wrapping_sub(self.front_id) as usize;
        match self.queue.get_mut(index) {
            Some(slot) if slot.buf.is_none() => {
                slot.buf = Some(buf);
                None
            }
            _ => Some(buf),
        }
    }

    /// The peer's window, from a segment at `seq` with the acknowledgment `ack` (RFC 9293
    /// section 3.10.7.4).
    pub(crate) fn update_window(&mut self, seq: i64, ack: Position, window: u64) {
        let newer = self.window_seq < seq || (self.window_seq == seq && self.window_ack <= ack);
        if newer {
            self.window = window;
            self.window_max = self.window_max.max(window);
            self.window_seq = seq;
            self.window_ack = ack;
        }
    }

    /// Whether the first unsent segment is there and fits the peer's window.
    pub(crate) fn unsent_fits_window(&self) -> Option<bool> {
        let slot = self.queue.get(self.sent)?;
        Some(slot.end() <= self.una + self.window)
    }

    /// Whether the first unsent segment fits `cwnd`.
    pub(crate) fn unsent_fits_cwnd(&self, cwnd: u64) -> bool {
        let len = self
            .queue
            .get(self.sent)
            .map_or(0, |slot| u64::from(slot.len));
        self.pipe() + len <= cwnd
    }

    /// Octets that could be queued and sent at once with a congestion window of `cwnd`.
    pub(crate) fn room(&self, cwnd: u64) -> u64 {
        let by_network = cwnd.saturating_sub(self.pipe() + self.lost_octets);
        let by_peer = (self.una + self.window).saturating_sub(self.next);
        by_network.min(by_peer).saturating_sub(self.unsent_octets())
    }

    /// Whether anything waits to be acknowledged or retransmitted.
    pub(crate) fn outstanding(&self) -> bool {
        self.una < self.next
    }

    /// Takes the first unsent segment out to the link.
    pub(crate) fn take_unsent(&mut self, now: Instant) -> Option<Outgo<B>> {
        let outgo = self.take(self.sent, now)?;
        let slot = &self.queue[self.sent];
        self.sent += 1;
        self.next = self.next.max(slot.end());
        Some(outgo)
    }

    /// The first lost segment whose buffer is here.
    pub(crate) fn next_lost(&self) -> Option<usize> {
        if self.lost_octets == 0 {
            return None;
        }
        let sent = self.queue.iter().take(self.sent);
        sent.enumerate()
            .find(|(_, slot)| slot.state == SlotState::Lost && slot.buf.is_some())
            .map(|(index, _)| index)
    }

    pub(crate) fn len_of(&self, index: usize) -> u64 {
        self.queue.get(index).map_or(0, |slot| u64::from(slot.len))
    }

    /// Takes a lost segment out to the link again.
    pub(crate) fn take_lost(&mut self, index: usize, now: Instant) -> Option<Outgo<B>> {
        let outgo = self.take(index, now)?;
        self.queue[index].retransmitted = true;
        self.lost_octets -= u64::from(self.queue[index].len);
        Some(outgo)
    }

    fn take(&mut self, index: usize, now: Instant) -> Option<Outgo<B>> {
        let last = index + 1 == self.queue.len();
        let id = SegmentId(self.front_id.wrapping_add(index as u32));
        let slot = self.queue.get_mut(index)?;
        let buf = slot.buf.take()?;
        slot.state = SlotState::InFlight;
        slot.sent_at = now;
        self.pipe += u64::from(slot.len);
        let payload = Payload {
            id,
            buf,
            len: slot.len,
            sum: PartialSum::from_folded(slot.sum),
            retransmission: std::mem::replace(&mut slot.transmitted, true),
        };
        Some(Outgo {
            payload,
            seq: self.space.wire(slot.start),
            last,
        })
    }

    /// Everything before `ack`, which lies in SND.UNA..=SND.NXT, is with the peer.
    pub(crate) fn acknowledge(
        &mut self,
        ack: Position,
        pool: &mut QueuePool<Slot<B>>,
        mut release: impl FnMut(B),
    ) -> Acked {
        let octets = ack.saturating_sub(self.una);
        let mut first_sent: Option<Instant> = None;
        let mut resent_at: Option<Instant> = None;
        // The first segment is what duplicate ACKs ask for; those behind it they stand for.
        let asked_for = self.len_of(0);
        self.una = self.una.max(ack);
        while let Some(slot) = self.queue.front().filter(|slot| slot.end() <= ack) {
            debug_assert!(self.sent > 0, "acknowledged before it was sent");
            let len = u64::from(slot.len);
            match slot.state {
                SlotState::InFlight => self.pipe -= len,
                SlotState::Lost => self.lost_octets -= len,
                SlotState::Sacked => self.sacked -= 1,
                SlotState::Queued => break,
            }
            if slot.retransmitted {
                resent_at = resent_at.max(Some(slot.sent_at));
            }
            if slot.state != SlotState::Sacked && first_sent.is_none() {
                first_sent = Some(slot.sent_at);
            }
            self.sent -= 1;
            self.front_id = self.front_id.wrapping_add(1);
            if let Some(buf) = self.queue.pop_front().and_then(|slot| slot.buf) {
                release(buf);
            }
        }
        pool.settle(&mut self.queue);
        let first_len = self.len_of(0);
        self.left_by_duplicates = self
            .left_by_duplicates
            .saturating_sub(octets.saturating_sub(asked_for));
        self.left_by_duplicates = self
            .left_by_duplicates
            .min(self.pipe.saturating_sub(first_len));
        if let Some(sent_at) = self.fin.acknowledge(ack) {
            if self.fin.retransmitted {
                resent_at = resent_at.max(Some(sent_at));
            }
            first_sent = first_sent.or(Some(sent_at));
        }
        Acked {
            octets,
            sent_at: first_sent.filter(|_| resent_at.is_none()),
            resent_at,
        }
    }

    /// Notes what the peer's SACK blocks name; blocks that make no sense are ignored. Returns
    /// whether a segment was not known to be there.
    pub(crate) fn note_sacked(&mut self, blocks: &[SackBlock]) -> bool {
        let before = self.sacked;
        for block in blocks {
            let (left, right) = (self.position(block.left), self.position(block.right));
            let una = self.una.cast_signed();
            if left < una || left >= right || right > self.next.cast_signed() {
                continue;
            }
            let (left, right) = (left.cast_unsigned(), right.cast_unsigned());
            let first = self.queue.partition_point(|slot| slot.start < left);
            for slot in self.queue.range_mut(first.min(self.sent)..self.sent) {
                if slot.end() > right {
                    break;
                }
                let len = u64::from(slot.len);
                match slot.state {
                    SlotState::InFlight => self.pipe -= len,
                    SlotState::Lost => self.lost_octets -= len,
                    SlotState::Sacked | SlotState::Queued => continue,
                }
                slot.state = SlotState::Sacked;
                self.sacked += 1;
            }
        }
        self.sacked > before
    }

    /// Marks what must be lost because [`DUP_THRESH`] segments above it have come (IsLost of
    /// RFC 6675 section 4). A retransmission is never judged this way: only a timeout does that.
    pub(crate) fn mark_lost(&mut self) {
        let mut above = 0;
        let mut edge = None;
        if self.sacked >= DUP_THRESH as usize {
            for slot in self.queue.range(..self.sent).rev() {
                above += u32::from(slot.state == SlotState::Sacked);
                if above == DUP_THRESH {
                    edge = Some(slot.start);
                    break;
                }
            }
        }
        let Some(edge) = edge.filter(|&edge| edge > self.judged) else {
            return;
        };
        let first = self.queue.partition_point(|slot| slot.start < self.judged);
        self.judged = edge;
        for index in first..self.sent {
            let slot = &self.queue[index];
            if slot.start >= edge {
                break;
            }
            if slot.state == SlotState::InFlight && !slot.retransmitted {
                self.lose(index);
            }
        }
    }

    /// Three duplicate ACKs, or a partial one (RFC 6582 section 3.2): the first segment is lost.
    pub(crate) fn mark_front_lost(&mut self) {
        let fresh = |slot: &Slot<B>| slot.state == SlotState::InFlight && !slot.retransmitted;
        if self.sent > 0 && self.queue.front().is_some_and(fresh) {
            self.lose(0);
        }
    }

    /// Whether the first segment is lost and not on its way again.
    pub(crate) fn front_lost(&self) -> bool {
        self.sent > 0
            && self
                .queue
                .front()
                .is_some_and(|slot| slot.state == SlotState::Lost)
    }

    /// Whether the first segment's buffer is with the link: it may not even have left.
    pub(crate) fn front_with_link(&self) -> bool {
        self.sent > 0 && self.queue.front().is_some_and(|slot| slot.buf.is_none())
    }

    /// A retransmission timeout: nothing is believed to be in the network any more. When the peer
    /// turns out to have dropped what it had reported, its reports are forgotten (RFC 2018
    /// section 8).
    pub(crate) fn mark_all_lost(&mut self) {
        let reneged = self
            .queue
            .front()
            .is_some_and(|slot| slot.state == SlotState::Sacked);
        for index in 0..self.sent {
            match self.queue[index].state {
                SlotState::InFlight => self.lose(index),
                SlotState::Sacked if reneged => {
                    self.queue[index].state = SlotState::Lost;
                    self.lost_octets += u64::from(self.queue[index].len);
                    self.sacked -= 1;
                }
                SlotState::Sacked | SlotState::Lost | SlotState::Queued => {}
            }
        }
        self.left_by_duplicates = 0;
        self.judged = self.next;
        self.fin.timed_out();
    }

    fn lose(&mut self, index: usize) {
        let slot = &mut self.queue[index];
        slot.state = SlotState::Lost;
        self.pipe -= u64::from(slot.len);
        self.lost_octets += u64::from(slot.len);
    }

    /// One more duplicate ACK: some segment behind the first has left the network.
    pub(crate) fn one_left(&mut self, smss: u64) {
        let most = self.pipe.saturating_sub(self.len_of(0));
        self.left_by_duplicates = (self.left_by_duplicates + smss).min(most);
    }

    /// Recovery is over.
    pub(crate) fn forget_duplicates(&mut self) {
        self.left_by_duplicates = 0;
    }

    /// A FIN goes out (again); the sequence number it takes.
    pub(crate) fn take_fin(&mut self, now: Instant) -> SeqNum {
        let at = self.fin.sent(self.tail, now);
        self.next = self.next.max(at + 1);
        self.space.wire(at)
    }

    /// Gives every buffer that is here to `release` and forgets the queue.
    pub(crate) fn clear(&mut self, pool: &mut QueuePool<Slot<B>>, mut release: impl FnMut(B)) {
        self.front_id = self.front_id.wrapping_add(self.queue.len() as u32);
        for slot in self.queue.drain(..) {
            if let Some(buf) = slot.buf {
                release(buf);
            }
        }
        pool.settle(&mut self.queue);
        self.sent = 0;
        self.sacked = 0;
        self.pipe = 0;
        self.lost_octets = 0;
        self.left_by_duplicates = 0;
    }
}
