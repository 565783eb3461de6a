//! The scoreboard against a slow and simple one: random histories of one queue, in which after each
//! step every number and list is what a look at all segments says.

use super::*;
use crate::link::BurstSegment;
use crate::options::SackBlock;
use crate::rack::Rack;

const LEN: u32 = 100;
const MS: u64 = 1_000_000;

/// xorshift64*
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) % n.max(1)
    }
}

struct World {
    outbound: Outbound<u64>,
    pool: QueuePool<Slot<u64>>,
    rack: Rack,
    now: Instant,
    with_link: Vec<(SegmentId, u64)>,
    buffers: u64,
    /// What the peer has got, by segment, from the start of the stream.
    peer: Vec<bool>,
    acked: usize,
}

impl World {
    fn new() -> Self {
        let mut outbound = Outbound::new(SeqNum(u32::MAX - 500));
        outbound.syn_sent();
        outbound.syn_acknowledged();
        let now = Instant::ZERO.plus_nanos(1000 * MS);
        let mut rack = Rack::new();
        rack.opened(now, MS);
        Self {
            outbound,
            pool: QueuePool::new(300, 0),
            rack,
            now,
            with_link: Vec::new(),
            buffers: 0,
            peer: Vec::new(),
            acked: 0,
        }
    }

    fn start_of(segment: usize) -> Position {
        1 + segment as u64 * u64::from(LEN)
    }

    fn send(&mut self) {
        let outgoing = Outgoing {
            buf: self.buffers,
            len: LEN,
            payload_sum: PartialSum::ZERO,
        };
        self.buffers += 1;
        self.peer.push(false);
        self.outbound.push(outgoing, &mut self.pool);
        let sent = take_unsent(&mut self.outbound, self.now).expect("it is unsent");
        self.with_link.push((sent.id, sent.buf));
    }

    fn resend(&mut self) {
        if let Some(outgo) = self.outbound.take_lost(self.now) {
            assert_ne!(outgo.payload.buf, u64::MAX);
            self.with_link.push((outgo.payload.id, outgo.payload.buf));
        }
    }

    fn link_returns(&mut self, random: &mut Random) {
        if !self.with_link.is_empty() {
            let which = random.below(self.with_link.len() as u64) as usize;
            let (id, buf) = self.with_link.swap_remove(which);
            let _gone = self.outbound.returned(id, buf);
        }
    }

    /// The peer gets some of what it has not, and says so in at most three blocks.
    fn acknowledge(&mut self, random: &mut Random) {
        let mut some = None;
        for _ in 0..random.below(4) {
            let out = self.peer.len() - self.acked;
            if out > 0 {
                let which = self.acked + random.below(out as u64) as usize;
                self.peer[which] = true;
                some = Some(which);
            }
        }
        while self.peer.get(self.acked) == Some(&true) {
            self.acked += 1;
        }
        let ack = Self::start_of(self.acked);
        let mut delivered = Delivered::default();
        let answers = |_| true;
        self.outbound
            .acknowledge(ack, answers, &mut self.pool, &mut delivered, |_| ());
        let mut blocks = Vec::new();
        for first in some.into_iter().chain([self.acked + 3, self.acked + 20]) {
            blocks.extend(self.block_around(first));
        }
        self.outbound
            .note_sacked(&blocks, ack, answers, &mut delivered);
        self.rack.delivered(self.now, &delivered);
    }

    fn block_around(&self, segment: usize) -> Option<SackBlock> {
        let has = |segment: usize| self.peer.get(segment) == Some(&true) && segment > self.acked;
        if !has(segment) {
            return None;
        }
        let left = (0..segment).rev().find(|&below| !has(below))? + 1;
        let right = (segment..=self.peer.len()).find(|&above| !has(above))?;
        Some(SackBlock {
            left: self.outbound.space.wire(Self::start_of(left)),
            right: self.outbound.space.wire(Self::start_of(right)),
        })
    }

    fn check(&mut self) {
        let out = &self.outbound;
        let (mut pipe, mut lost, mut sacked) = (0, 0, 0);
        let mut lists = [Vec::new(), Vec::new(), Vec::new()];
        for place in 0..out.ring.len() {
            let slot = out.ring.at(place).expect("it is there");
            assert_eq!(slot.state == SlotState::Queued, place >= out.sent);
            let name = out.ring.name(place);
            match slot.state {
                SlotState::InFlight => {
                    pipe += u64::from(slot.len);
                    if slot.retransmitted {
                        lists[0].push(name);
                    } else {
                        assert!(place >= out.ring.place(out.originals));
                    }
                }
                SlotState::Lost => {
                    lost += u64::from(slot.len);
                    if slot.buf.is_some() {
                        lists[1 + usize::from(slot.retransmitted)].push(name);
                    }
                }
                SlotState::Sacked => sacked += 1,
                SlotState::Queued => {}
            }
        }
        assert_eq!((out.pipe, out.lost_bytes), (pipe, lost));
        assert_eq!(out.segs_sacked, sacked);
        assert_eq!(out.sacked_bytes, u64::from(sacked * LEN));
        for (list, mut names) in [out.again, out.lost, out.lost_again].iter().zip(lists) {
            let mut listed = list_names(list, &out.ring);
            listed.sort_unstable();
            names.sort_unstable();
            assert_eq!(listed, names);
        }
        let sent: Vec<Instant> = list_names(&out.again, &out.ring)
            .iter()
            .filter_map(|&name| Some(out.ring.get(name)?.sent_at))
            .collect();
        assert!(sent.is_sorted(), "in the order of time");
    }
}

fn list_names(list: &List, ring: &Ring<u64>) -> Vec<u32> {
    let mut names: Vec<u32> = list.first().into_iter().collect();
    while let Some(&last) = names.last() {
        match ring.get(last) {
            Some(slot) if slot.next != last => names.push(slot.next),
            _ => break,
        }
    }
    names
}

#[test]
fn every_number_is_what_a_look_at_all_segments_says() {
    for seed in 1..200 {
        let mut random = Random(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        let mut world = World::new();
        for _ in 0..600 {
            world.now = world.now.plus_nanos(random.below(MS));
            match random.below(12) {
                0..4 if world.peer.len() - world.acked < 300 => world.send(),
                4..6 => world.resend(),
                6..8 => world.link_returns(&mut random),
                8 => {
                    let reo_wnd = random.below(MS);
                    let (rack, now) = (&world.rack, world.now);
                    let due = world.outbound.detect_losses(rack, reo_wnd, now);
                    assert!(due.is_none_or(|due| due > now));
                }
                9 if random.below(10) == 0 => {
                    let patience = random.below(2 * MS);
                    world.outbound.mark_timed_out(patience, world.now);
                }
                10 if random.below(10) == 0 => world.outbound.mark_front_lost(),
                11 if random.below(10) == 0 => world.outbound.forgive(),
                _ => world.acknowledge(&mut random),
            }
            world.check();
        }
    }
}

/// What RACK finds by its lists is what RFC 8985 section 6.2, step 5, says of each segment.
#[test]
fn the_lost_are_those_that_were_overtaken_and_have_had_their_time() {
    for seed in 1..200 {
        let mut random = Random(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        let mut world = World::new();
        for _ in 0..300 {
            world.now = world.now.plus_nanos(1 + random.below(MS));
            match random.below(6) {
                0..2 => world.send(),
                2 => world.resend(),
                3 => world.link_returns(&mut random),
                _ => world.acknowledge(&mut random),
            }
            let reo_wnd = MS / 2;
            let patience = world.rack.patience(reo_wnd).max(1);
            let overdue = |slot: &Slot<u64>| {
                slot.state == SlotState::InFlight
                    && world.rack.sent_after(slot.sent_at, slot.end())
                    && slot.sent_at.plus_nanos(patience) <= world.now
            };
            let places = 0..world.outbound.sent;
            let expected: Vec<usize> = places
                .clone()
                .filter(|&place| {
                    let slot = world.outbound.ring.at(place).expect("it is there");
                    slot.state == SlotState::Lost || overdue(slot)
                })
                .collect();
            world
                .outbound
                .detect_losses(&world.rack, reo_wnd, world.now);
            let lost = |&place: &usize| {
                let slot = world.outbound.ring.at(place).expect("it is there");
                slot.state == SlotState::Lost
            };
            assert_eq!(places.filter(lost).collect::<Vec<_>>(), expected);
            world.check();
        }
    }
}

#[test]
fn what_is_sent_again_tells_when_it_was_lost() {
    let mut world = World::new();
    for _ in 0..3 {
        world.send();
    }
    for (id, buf) in std::mem::take(&mut world.with_link) {
        let _kept = world.outbound.returned(id, buf);
    }
    let sent = world.now;
    let later = sent.plus_nanos(5 * MS);
    let tail = world.outbound.take_tail(later).expect("it is here");
    assert_eq!(tail.payload.lost, None, "a probe may be needless");
    let _kept = world.outbound.returned(tail.payload.id, tail.payload.buf);
    world.outbound.mark_timed_out(0, later);
    assert!(world.outbound.excuse(World::start_of(1)));
    let mut lost = Vec::new();
    while let Some(outgo) = world.outbound.take_lost(later.plus_nanos(MS)) {
        lost.push((outgo.payload.buf, outgo.payload.lost));
    }
    lost.sort_unstable();
    assert_eq!(lost, [(0, Some(sent)), (1, None), (2, Some(later))]);
}

#[test]
fn a_reneging_peer_makes_its_segments_lost_in_the_order_of_the_stream() {
    let mut world = World::new();
    for _ in 0..5 {
        world.send();
    }
    for (id, buf) in std::mem::take(&mut world.with_link) {
        let _kept = world.outbound.returned(id, buf);
    }
    let block = SackBlock {
        left: world.outbound.space.wire(World::start_of(0)),
        right: world.outbound.space.wire(World::start_of(4)),
    };
    let mut delivered = Delivered::default();
    world
        .outbound
        .note_sacked(&[block], 1, |_| true, &mut delivered);
    assert_eq!(world.outbound.segs_sacked(), 4);
    world.outbound.mark_timed_out(0, world.now);
    world.check();
    let mut again = Vec::new();
    while let Some(outgo) = world.outbound.take_lost(world.now) {
        again.push(outgo.payload.buf);
    }
    assert_eq!(again, [0, 1, 2, 3, 4]);
}

#[test]
fn a_duplicate_is_reported_below_the_acknowledgment_or_within_the_second_block() {
    let mut world = World::new();
    for _ in 0..9 {
        world.send();
    }
    let block = |left, right| SackBlock {
        left: world.outbound.space.wire(World::start_of(left)),
        right: world.outbound.space.wire(World::start_of(right)),
    };
    let cases = [
        (vec![block(0, 1)], Some((0, 1))),
        (vec![block(0, 3)], None),
        (vec![block(5, 6)], None),
        (vec![block(5, 6), block(4, 8)], Some((5, 6))),
        (vec![block(4, 8), block(5, 6)], None),
        (vec![block(1, 2), block(4, 8)], Some((1, 2))),
        (vec![block(2, 1), block(4, 8)], None),
    ];
    for (blocks, expected) in cases {
        let mut delivered = Delivered::default();
        let ack = World::start_of(2);
        world
            .outbound
            .note_sacked(&blocks, ack, |_| true, &mut delivered);
        let expected = expected.map(|(a, b)| (World::start_of(a), World::start_of(b)));
        assert_eq!(delivered.duplicate, expected, "{blocks:?}");
    }
}

/// Of originals that one ACK takes, those in the middle say nothing but their sizes.
#[test]
fn originals_taken_together_say_what_they_say_one_by_one() {
    for (count, at_once) in [(1, 1), (2, 2), (7, 7), (7, 3), (40, 39)] {
        let mut pool = QueuePool::new(64, 4);
        let (mut out, mut expected) = (Outbound::new(SeqNum(0)), Delivered::default());
        out.update_window(1, 1, 1 << 20);
        out.syn_sent();
        out.syn_acknowledged();
        let mut end = 1;
        for number in 0..count {
            let len = 100 + number * 37 % 11;
            out.push(
                Outgoing {
                    buf: number,
                    len,
                    payload_sum: PartialSum::ZERO,
                },
                &mut pool,
            );
            // Two at a time.
            let sent_at = Instant::from_nanos(u64::from(1 + number / 2));
            let _ = take_unsent(&mut out, sent_at).unwrap();
            if number < at_once {
                end += u64::from(len);
                let arrived = Arrived::from(out.ring.at(number as usize).unwrap());
                expected.add(&arrived, &|_| true);
                expected.first_sent.get_or_insert(sent_at);
                expected.largest = expected.largest.max(len);
            }
        }
        expected.bytes = end - 1;
        let (mut delivered, before) = (Delivered::default(), out.pipe());
        out.acknowledge(end, |_| true, &mut pool, &mut delivered, |_| {});
        assert_eq!(format!("{delivered:?}"), format!("{expected:?}"));
        assert_eq!(out.pipe(), before - (end - 1));
        assert_eq!(out.sent as u32, count - at_once);
        assert_eq!(out.originals, out.ring.front_name());
    }
}

/// Takes the first unsent segment out to the link; the peer's window is as large as need be.
fn take_unsent<B>(outbound: &mut Outbound<B>, now: Instant) -> Option<BurstSegment<B>> {
    let mut taken = None;
    outbound.window = 1 << 40;
    outbound.take_burst(now, &Limits::NONE, |segment| {
        taken = Some(segment);
        Given {
            back: None,
            goes_on: false,
        }
    });
    taken
}
