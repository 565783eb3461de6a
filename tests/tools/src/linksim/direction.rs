//! One direction of the link, without I/O: frames come in with the time, and go out when due.
//!
//! A frame meets, in this order: changes of the settings; the MTU; re-segmentation; the bottleneck
//! (its queue, its rate, ECN marks); loss; duplication; corruption; delay; reordering. So what is
//! lost has used the bottleneck, as on a wire, and a copy has not.

use std::time::Duration;

use rnic_xsk::Frame;

use super::bottleneck::{Bottleneck, Passage};
use super::buffers::Buffers;
use super::checksum;
use super::config::{Change, When};
use super::corrupt::corrupt;
use super::counters::{Counters, Fate};
use super::loss::{Loss, Lost};
use super::mtu::{Clamped, clamp};
use super::packet::Packet;
use super::random::{Dice, Purpose, below};
use super::resegment::{Moment, Resegmenter};
use super::schedule::Schedule;
use super::settings::Settings;

/// Sees every frame that is dropped or leaves.
pub trait Watch {
    /// A frame of direction 0 or 1 was dropped.
    fn dropped(&mut self, now: Duration, direction: usize, fate: Fate, bytes: &[u8]);
    /// A frame left. One that the link itself made, as an answer, counts for the direction in which
    /// it goes.
    fn forwarded(&mut self, now: Duration, direction: usize, bytes: &[u8]);
}

/// Nobody watches.
impl Watch for () {
    fn dropped(&mut self, _: Duration, _: usize, _: Fate, _: &[u8]) {}
    fn forwarded(&mut self, _: Duration, _: usize, _: &[u8]) {}
}

#[derive(Debug)]
pub struct Direction {
    index: usize,
    settings: Settings,
    changes: Vec<Change>,
    dice: Dice,
    loss: Loss,
    resegmenter: Resegmenter,
    bottleneck: Bottleneck,
    schedule: Schedule,
    /// No frame that keeps its order is due before this.
    last_due: Duration,
    /// Frames that have come to the bottleneck: the next one's number.
    numbered: u64,
    counters: Counters,
    /// Room for what one frame becomes.
    pieces: Vec<Frame>,
}

impl Direction {
    /// Direction 0 (to the right) or 1 (to the left) of a link with this seed. `changes` are those
    /// of this direction.
    pub fn new(index: usize, seed: u64, settings: Settings, changes: Vec<Change>) -> Self {
        Self {
            index,
            settings,
            changes,
            dice: Dice::new(seed, index as u64),
            loss: Loss::default(),
            resegmenter: Resegmenter::default(),
            bottleneck: Bottleneck::default(),
            schedule: Schedule::default(),
            last_due: Duration::ZERO,
            numbered: 0,
            counters: Counters::default(),
            pieces: Vec::new(),
        }
    }

    /// Takes a frame. What is to be sent back to its sender is appended to `answers`.
    pub fn arrive(
        &mut self,
        now: Duration,
        frame: Frame,
        buffers: &mut Buffers,
        answers: &mut Vec<Frame>,
        watch: &mut dyn Watch,
    ) {
        self.advance(now, buffers, watch);
        let number = self.counters.arrived;
        self.counters.arrived += 1;
        self.counters.arrived_bytes += frame.len() as u64;
        self.change(now);
        if !buffers.plenty() {
            self.drop(now, Fate::NoFrame, frame, buffers, watch);
            return;
        }
        match clamp(frame, &self.settings, buffers) {
            Clamped::Fits(frame) => self.resegment(now, frame, number, buffers, watch),
            Clamped::Fragments(fragments) => {
                self.counters.fragmented += 1;
                self.counters.added += fragments.len() as u64 - 1;
                for fragment in fragments {
                    self.enter(now, fragment, buffers, watch);
                }
            }
            Clamped::Dropped { frame, answer } => {
                self.counters.icmp_sent += u64::from(answer.is_some());
                answers.extend(answer);
                self.drop(now, Fate::TooBig, frame, buffers, watch);
            }
        }
    }

    /// There was no frame for a packet of so many bytes.
    pub fn lack(&mut self, bytes: usize) {
        self.counters.arrived += 1;
        self.counters.arrived_bytes += bytes as u64;
        self.counters.dropped(Fate::NoFrame);
    }

    /// Takes a frame whose time has come.
    pub fn depart(
        &mut self,
        now: Duration,
        buffers: &mut Buffers,
        watch: &mut dyn Watch,
    ) -> Option<Frame> {
        self.advance(now, buffers, watch);
        let (frame, overtaken) = self.schedule.pop(now)?;
        self.counters.reordered += u64::from(overtaken);
        self.counters.forwarded += 1;
        self.counters.forwarded_bytes += frame.len() as u64;
        watch.forwarded(now, self.index, buffers.bytes(&frame));
        Some(frame)
    }

    /// When to call [`depart`](Self::depart) next, if nothing comes before.
    pub fn deadline(&self) -> Option<Duration> {
        let deadlines = [self.schedule.deadline(), self.resegmenter.deadline()];
        deadlines.into_iter().flatten().min()
    }

    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Packets in the queue of the bottleneck.
    pub fn queued(&mut self, now: Duration) -> usize {
        self.bottleneck.queued(now).0
    }

    /// Frames that are in this direction: queued, delayed, or held back.
    pub fn waiting(&self) -> usize {
        self.schedule.len() + self.resegmenter.len()
    }

    fn change(&mut self, now: Duration) {
        let arrived = self.counters.arrived;
        let due = |change: &mut Change| match change.when {
            When::At(time) => time <= now,
            When::After(packets) => packets < arrived,
        };
        for change in self.changes.extract_if(.., due) {
            self.settings.apply(&change.set);
            self.counters.changes += 1;
        }
    }

    fn advance(&mut self, now: Duration, buffers: &mut Buffers, watch: &mut dyn Watch) {
        if self.resegmenter.deadline().is_some_and(|at| at <= now) {
            let mut pieces = std::mem::take(&mut self.pieces);
            self.resegmenter.flush(&mut pieces);
            self.enter_all(now, pieces, buffers, watch);
        }
    }

    fn resegment(
        &mut self,
        now: Duration,
        frame: Frame,
        number: u64,
        buffers: &mut Buffers,
        watch: &mut dyn Watch,
    ) {
        let mut pieces = std::mem::take(&mut self.pieces);
        let moment = Moment {
            now,
            number,
            settings: &self.settings,
            dice: self.dice,
        };
        let became = self.resegmenter.arrive(frame, moment, buffers, &mut pieces);
        if let Some((were, are)) = became {
            self.counters.resegmented += 1;
            self.counters.added += are.saturating_sub(were) as u64;
            self.counters.merged += were.saturating_sub(are) as u64;
        }
        self.enter_all(now, pieces, buffers, watch);
    }

    fn enter_all(
        &mut self,
        now: Duration,
        mut pieces: Vec<Frame>,
        buffers: &mut Buffers,
        watch: &mut dyn Watch,
    ) {
        for piece in pieces.drain(..) {
            self.enter(now, piece, buffers, watch);
        }
        self.pieces = pieces;
    }

    /// A frame comes to the bottleneck; from here on it has a number.
    fn enter(
        &mut self,
        now: Duration,
        mut frame: Frame,
        buffers: &mut Buffers,
        watch: &mut dyn Watch,
    ) {
        let number = self.numbered;
        self.numbered += 1;
        // Decided for every number, whatever the queue says: the burst loss has a memory.
        let lost = self.loss.decide(&self.settings, self.dice, number);
        let leaves = match self.bottleneck.offer(now, frame.len(), &self.settings) {
            Passage::Full => return self.drop(now, Fate::QueueFull, frame, buffers, watch),
            Passage::Through { leaves, mark } => {
                let marked = mark && mark_congestion(buffers.bytes_mut(&mut frame));
                self.counters.ecn_marked += u64::from(marked);
                leaves
            }
        };
        if let Some(lost) = lost {
            self.counters.lost_in_bursts += u64::from(lost == Lost::InBurst);
            return self.drop(now, Fate::Lost, frame, buffers, watch);
        }
        let twice = self.decide(self.settings.duplicate, number, Purpose::Duplicate);
        let copy = if twice { buffers.copy(&frame) } else { None };
        // The frame and its copy are damaged each by itself.
        self.damage(&mut frame, 2 * number, buffers);
        let due = self.send(leaves, frame, number);
        if let Some(mut copy) = copy {
            self.counters.duplicated += 1;
            self.damage(&mut copy, 2 * number + 1, buffers);
            self.schedule.push(due, copy);
        }
    }

    /// Gives the frame its delay and its place in line; says when it is due.
    fn send(&mut self, leaves: Duration, frame: Frame, number: u64) -> Duration {
        let roll = |purpose| self.dice.roll(number, purpose);
        let up_to = |most: Duration, random| {
            let most = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
            Duration::from_nanos(below(random, most.saturating_add(1)))
        };
        let jitter = up_to(self.settings.jitter, roll(Purpose::Jitter));
        let due = (leaves + self.settings.delay + jitter).max(self.last_due);
        self.last_due = due;
        if !self.decide(self.settings.reorder, number, Purpose::Reorder) {
            self.schedule.push(due, frame);
            return due;
        }
        self.counters.held_back += 1;
        let random = roll(Purpose::ReorderBy);
        if self.settings.reorder_time > Duration::ZERO {
            let later = due + up_to(self.settings.reorder_time, random);
            self.schedule.push(later, frame);
        } else {
            let behind = 1 + below(random, u64::from(self.settings.reorder_by)) as u32;
            let wait = self.settings.reorder_wait;
            self.schedule.hold(due, frame, behind, wait);
        }
        due
    }

    fn damage(&mut self, frame: &mut Frame, number: u64, buffers: &mut Buffers) {
        if self.decide(self.settings.corrupt, number, Purpose::Corrupt) {
            let bytes = buffers.bytes_mut(frame);
            let damaged = corrupt(bytes, &self.settings, self.dice, number);
            self.counters.corrupted += u64::from(damaged);
        }
    }

    fn decide(&self, share: super::Share, number: u64, purpose: Purpose) -> bool {
        share.hits(self.dice.roll(number, purpose))
    }

    fn drop(
        &mut self,
        now: Duration,
        fate: Fate,
        frame: Frame,
        buffers: &mut Buffers,
        watch: &mut dyn Watch,
    ) {
        self.counters.dropped(fate);
        watch.dropped(now, self.index, fate, buffers.bytes(&frame));
        buffers.free(frame);
    }
}

/// Marks a packet of an ECN-capable transport (RFC 3168 section 5); `false` when it is none.
fn mark_congestion(frame: &mut [u8]) -> bool {
    let Some(packet) = Packet::parse(frame) else {
        return false;
    };
    let (byte, shift) = if packet.version == 4 { (1, 0) } else { (1, 4) };
    let byte = &mut frame[packet.ip + byte];
    if *byte >> shift & 3 == 0 {
        return false;
    }
    *byte |= 3 << shift;
    checksum::set_ip(frame, &packet);
    true
}

#[cfg(test)]
mod tests;
