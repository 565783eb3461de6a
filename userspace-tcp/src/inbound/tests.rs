use std::ops::{Deref, DerefMut};

use userspace_net::arrival_rate::ArrivalRate;

use super::*;
use crate::config::Config;

const DELAY: Duration = Duration::from_millis(5);
const IRS: SeqNum = SeqNum(u32::MAX - 100);

/// A receiving half with the pool that it borrows from.
struct Half {
    inbound: Inbound,
    pool: RangePool,
    arrival_rate: ArrivalRate,
}

impl Half {
    fn new(config: &Config, plan: WindowPlan) -> Self {
        Self {
            inbound: Inbound::new(IRS, plan, 1448, config.sack),
            pool: RangePool::new(RANGES_MAX, 0),
            arrival_rate: ArrivalRate::default(),
        }
    }

    fn take(&mut self, start: i64, len: u32, fin: bool) -> Accepted {
        self.take_at(Instant::ZERO, (start, len), 1, fin)
    }

    /// So many segments of one length, given as one.
    fn take_at(
        &mut self,
        now: Instant,
        (start, len): (i64, u32),
        segments: u32,
        fin: bool,
    ) -> Accepted {
        let text = Text {
            start,
            len,
            segments,
            longest: len / segments,
            in_fast_stream: self.arrival_rate.is_fast_with(now, segments),
            fin,
            ce: false,
            cwr: false,
        };
        self.inbound.accept(now, text, DELAY, &mut self.pool)
    }

    /// The blocks of the next acknowledgment, as positions.
    fn blocks(&mut self, room: usize) -> Vec<(i64, i64)> {
        self.acknowledge();
        let blocks = self.sack_blocks(room);
        let position = |seq| self.inbound.position(seq);
        let blocks = blocks.as_slice().iter();
        blocks
            .map(|block| (position(block.left), position(block.right)))
            .collect()
    }
}

impl Deref for Half {
    type Target = Inbound;

    fn deref(&self) -> &Inbound {
        &self.inbound
    }
}

impl DerefMut for Half {
    fn deref_mut(&mut self) -> &mut Inbound {
        &mut self.inbound
    }
}

fn inbound(window: u32) -> Half {
    let config = Config {
        receive_window: window,
        ..Config::default()
    };
    Half::new(&config, WindowPlan::new(&config, 1460))
}

fn accept(inbound: &mut Half, start: i64, len: u32) -> Vec<(u64, u32, u32)> {
    assert!(inbound.acceptable(start, u64::from(len)), "{start} {len}");
    let accepted = inbound.take(start, len, false);
    accepted
        .new
        .iter()
        .map(|range| (range.offset, range.skip, range.len))
        .collect()
}

#[test]
fn each_byte_is_new_once() {
    let mut inbound = inbound(100_000);
    assert_eq!(accept(&mut inbound, 1, 1000), [(0, 0, 1000)]);
    assert_eq!(accept(&mut inbound, 2001, 1000), [(2000, 0, 1000)]);
    assert_eq!(accept(&mut inbound, 501, 2000), [(1000, 500, 1000)]);
    assert_eq!(inbound.in_order_to(), 3000);
    assert!(!inbound.acceptable(1, 3000));
    assert!(inbound.acceptable(1, 3001));
}

#[test]
fn every_second_full_segment_is_acknowledged_at_once() {
    let mut inbound = inbound(100_000);
    accept(&mut inbound, 1, 1448);
    assert!(!inbound.ack_due() && inbound.ack_deadline() == Some(Instant::ZERO + DELAY));
    accept(&mut inbound, 1449, 1448);
    assert!(inbound.ack_due());
    inbound.acknowledge();
    assert!(!inbound.ack_due() && inbound.ack_deadline().is_none());
}

#[test]
fn a_full_segment_and_the_short_end_of_a_message_are_acknowledged_at_once() {
    let mut inbound = inbound(100_000);
    accept(&mut inbound, 1, 1448);
    assert!(!inbound.ack_due());
    accept(&mut inbound, 1449, 10);
    assert!(inbound.ack_due());
}

#[test]
fn small_segments_are_acknowledged_every_eighth() {
    let mut inbound = inbound(100_000);
    for i in 0..7 {
        accept(&mut inbound, 1 + i * 10, 10);
        assert!(!inbound.ack_due());
    }
    accept(&mut inbound, 71, 10);
    assert!(inbound.ack_due());
}

/// A stream that is just fast enough: two segments at a time, until an acknowledgment waits.
fn fast_stream(window: u32) -> (Half, i64, Instant) {
    let mut inbound = inbound(window);
    let (mut start, mut now) = (1, Instant::ZERO + Duration::from_secs(1));
    for _ in 0..4 {
        inbound.take_at(now, (start, 2 * 1448), 2, false);
        assert!(inbound.ack_due(), "how fast it is can't be known yet");
        inbound.acknowledge();
        start += 2 * 1448;
        now += Duration::from_micros(8);
    }
    inbound.take_at(now, (start, 2 * 1448), 2, false);
    assert!(!inbound.ack_due());
    (inbound, start + 2 * 1448, now)
}

#[test]
fn an_acknowledgment_in_a_fast_stream_waits_some_microseconds() {
    let (mut inbound, start, now) = fast_stream(1_000_000);
    let until = now + Duration::from_micros(30);
    assert_eq!(inbound.ack_deadline(), Some(until));
    // What comes behind makes it no later.
    inbound.take_at(now + Duration::from_micros(10), (start, 1448), 1, false);
    assert_eq!(inbound.ack_deadline(), Some(until));
    inbound.advance(until);
    assert!(inbound.ack_due());
}

#[test]
fn an_acknowledgment_in_a_fast_stream_waits_for_64_segments() {
    let (mut inbound, start, now) = fast_stream(1_000_000);
    inbound.take_at(now, (start, 61 * 1448), 61, false);
    assert!(!inbound.ack_due());
    inbound.take_at(now, (start + 61 * 1448, 1448), 1, false);
    assert!(inbound.ack_due());
}

#[test]
fn an_acknowledgment_in_a_fast_stream_waits_for_a_part_of_the_window() {
    let (mut inbound, start, now) = fast_stream(40_000);
    inbound.take_at(now, (start, 4 * 1448), 4, false);
    assert!(!inbound.ack_due());
    inbound.take_at(now, (start + 4 * 1448, 1448), 1, false);
    assert!(inbound.ack_due());
}

#[test]
fn behind_a_fast_stream_every_second_full_segment_is_acknowledged_at_once_again() {
    let (mut inbound, start, now) = fast_stream(1_000_000);
    inbound.acknowledge();
    // Slower than before: the stretch that ends has seven segments.
    let now = now + Duration::from_micros(29);
    inbound.take_at(now, (start, 5 * 1448), 5, false);
    assert!(!inbound.ack_due());
    inbound.acknowledge();
    let now = now + Duration::from_micros(4);
    inbound.take_at(now, (start + 5 * 1448, 2 * 1448), 2, false);
    assert!(inbound.ack_due());
    // As fast, but long ago.
    let (mut inbound, start, now) = fast_stream(1_000_000);
    inbound.take_at(now, (start, 62 * 1448), 62, false);
    inbound.acknowledge();
    let now = now + Duration::from_micros(130);
    inbound.take_at(now, (start + 62 * 1448, 2 * 1448), 2, false);
    assert!(inbound.ack_due());
}

#[test]
fn a_hole_in_a_fast_stream_is_acknowledged_at_once() {
    let (mut inbound, start, now) = fast_stream(1_000_000);
    inbound.take_at(now, (start + 1448, 1448), 1, false);
    assert!(inbound.ack_due());
}

#[test]
fn a_delayed_acknowledgment_is_due_at_its_time() {
    let mut inbound = inbound(100_000);
    accept(&mut inbound, 1, 10);
    inbound.advance(Instant::ZERO);
    assert!(!inbound.ack_due());
    inbound.advance(Instant::ZERO + DELAY);
    assert!(inbound.ack_due());
}

#[test]
fn a_hole_and_its_filling_are_acknowledged_at_once() {
    let mut inbound = inbound(100_000);
    accept(&mut inbound, 1001, 10);
    assert!(inbound.ack_due() && inbound.pure_ack_due());
    assert_eq!(inbound.blocks(4), [(1001, 1011)]);
    accept(&mut inbound, 1, 1000);
    assert!(inbound.ack_due() && !inbound.pure_ack_due());
}

#[test]
fn sack_blocks_name_the_latest_first_and_no_range_twice() {
    let mut inbound = inbound(100_000);
    for start in [5001, 1001, 9001] {
        accept(&mut inbound, start, 100);
    }
    assert_eq!(
        inbound.blocks(4),
        [(9001, 9101), (1001, 1101), (5001, 5101)]
    );
    for start in [1101, 3001, 7001] {
        accept(&mut inbound, start, 100);
    }
    let expected = [(7001, 7101), (3001, 3101), (1001, 1201), (9001, 9101)];
    assert_eq!(inbound.blocks(4), expected);
    assert!(!inbound.pure_ack_due());
}

/// What comes between two chances to send is not forgotten: each new range is the news of one
/// acknowledgment.
#[test]
fn ranges_that_do_not_fit_one_acknowledgment_take_several() {
    let mut inbound = inbound(100_000);
    for i in 1..=7 {
        accept(&mut inbound, i * 1000, 100);
    }
    let block = |i: i64| (i * 1000, i * 1000 + 100);
    assert_eq!(inbound.blocks(3), [3, 2, 1].map(block));
    assert_eq!(inbound.blocks(3), [6, 5, 4].map(block));
    assert!(inbound.pure_ack_due());
    assert_eq!(inbound.blocks(3), [7, 6, 5].map(block));
    assert!(!inbound.pure_ack_due());
}

#[test]
fn without_sack_each_segment_out_of_order_owes_a_duplicate_acknowledgment() {
    let config = Config {
        sack: false,
        ..Config::default()
    };
    let mut inbound = Half::new(&config, WindowPlan::new(&config, 1460));
    for i in 1..=3 {
        accept(&mut inbound, i * 1000, 1000);
    }
    for _ in 0..3 {
        assert!(inbound.pure_ack_due());
        assert_eq!(inbound.blocks(4), []);
    }
    assert!(!inbound.pure_ack_due());
}

#[test]
fn bytes_beyond_the_window_are_cut_off() {
    let mut inbound = inbound(10_000);
    assert_eq!(accept(&mut inbound, 9_901, 200), [(9_900, 0, 100)]);
    assert!(inbound.acceptable(10_001, 0));
    assert!(!inbound.acceptable(10_002, 0));
}

#[test]
fn the_edge_follows_what_is_consumed_and_never_moves_back() {
    let mut inbound = inbound(10_000);
    for i in 0..5 {
        accept(&mut inbound, 1 + i * 1000, 1000);
    }
    assert_eq!(inbound.acknowledge().window, 5000);
    inbound.consume(1000);
    // Less than a segment: not worth a step (silly window avoidance).
    assert!(!inbound.ack_due());
    assert_eq!(inbound.acknowledge().window, 5000);
    inbound.consume(3000);
    assert_eq!(inbound.acknowledge().window, 8000);
    inbound.consume(0);
    assert_eq!(inbound.acknowledge().window, 8000);
}

#[test]
fn opening_a_nearly_closed_window_is_told_at_once() {
    let mut inbound = inbound(10_000);
    for i in 0..10 {
        accept(&mut inbound, 1 + i * 1000, 1000);
    }
    assert_eq!(inbound.acknowledge().window, 0);
    inbound.consume(1000);
    assert!(!inbound.ack_due());
    inbound.consume(1448);
    assert!(inbound.ack_due());
    assert_eq!(inbound.acknowledge().window, 1448);
}

#[test]
fn consuming_what_has_not_come_opens_nothing() {
    let mut inbound = inbound(10_000);
    inbound.consume(u64::MAX);
    assert_eq!(inbound.acknowledge().window, 10_000);
}

#[test]
fn a_large_window_is_scaled() {
    let config = Config {
        receive_window: 1 << 20,
        ..Config::default()
    };
    let plan = WindowPlan::new(&config, 1460);
    assert_eq!((plan.shift(), plan.syn_field()), (5, u16::MAX));
    assert_eq!(plan.unscaled().limit, 65_535);
    let mut inbound = Half::new(&config, plan);
    assert_eq!(inbound.acknowledge().window, 1 << 15);
}

#[test]
fn a_fin_counts_when_everything_before_it_is_here() {
    let mut inbound = inbound(10_000);
    let early = inbound.take(101, 100, true);
    assert!(!early.closed);
    assert!(inbound.take(1, 100, false).closed);
    assert_eq!((inbound.in_order_to(), inbound.next()), (200, 202));
    // Bytes behind the FIN are no part of the stream.
    assert!(inbound.take(150, 300, false).new.is_empty());
}

#[test]
fn a_fin_that_waited_alone_is_acknowledged_at_once() {
    let mut inbound = inbound(10_000);
    inbound.take(101, 0, true);
    inbound.acknowledge();
    assert!(inbound.take(1, 100, false).closed);
    assert!(inbound.ack_due());
}

#[test]
fn a_fin_before_bytes_that_came_already_is_ignored() {
    let mut inbound = inbound(10_000);
    accept(&mut inbound, 101, 100);
    assert!(!inbound.take(1, 50, true).closed);
    accept(&mut inbound, 51, 50);
    assert_eq!(inbound.in_order_to(), 200);
}

/// The examples of RFC 2883 section 4, and more of its rules.
mod duplicates {
    use super::*;

    /// Everything up to `to` has come, in segments of 500 bytes, and is acknowledged.
    fn up_to(to: i64) -> Half {
        let mut inbound = inbound(100_000);
        for start in (0..to).step_by(500) {
            accept(&mut inbound, 1 + start, 500);
            inbound.acknowledge();
        }
        inbound
    }

    /// A segment comes from `from` up to `to`; the blocks that it is answered with.
    fn comes(inbound: &mut Half, from: i64, to: i64) -> Vec<(i64, i64)> {
        let (start, len) = (1 + from, (to - from) as u64);
        if inbound.acceptable(start, len) {
            inbound.take(start, len as u32, false);
        } else {
            inbound.came_again(start, len);
        }
        assert!(inbound.pure_ack_due());
        let blocks = inbound.blocks(4);
        assert!(!inbound.pure_ack_due(), "each is told once");
        blocks
            .iter()
            .map(|(left, right)| (left - 1, right - 1))
            .collect()
    }

    #[test]
    fn a_duplicate_segment_is_reported() {
        let mut inbound = up_to(4000);
        assert_eq!(comes(&mut inbound, 3000, 3500), [(3000, 3500)]);
    }

    #[test]
    fn a_duplicate_goes_before_what_is_held() {
        let mut inbound = up_to(4000);
        assert_eq!(comes(&mut inbound, 4500, 5000), [(4500, 5000)]);
        let expected = [(3000, 3500), (4500, 5000)];
        assert_eq!(comes(&mut inbound, 3000, 3500), expected);
    }

    #[test]
    fn the_range_that_holds_a_duplicate_follows_it() {
        let mut inbound = up_to(4000);
        comes(&mut inbound, 4500, 5000);
        assert_eq!(comes(&mut inbound, 5000, 5500), [(4500, 5500)]);
        comes(&mut inbound, 6000, 6500);
        let expected = [(5000, 5500), (4500, 5500), (6000, 6500)];
        assert_eq!(comes(&mut inbound, 5000, 5500), expected);
        // A range that came twice as a whole is named twice.
        let expected = [(6000, 6500), (6000, 6500), (4500, 5500)];
        assert_eq!(comes(&mut inbound, 6000, 6500), expected);
    }

    #[test]
    fn the_part_of_a_segment_that_had_come_is_reported() {
        let mut inbound = up_to(1000);
        comes(&mut inbound, 2000, 2500);
        accept(&mut inbound, 1001, 500);
        inbound.blocks(4);
        assert_eq!(comes(&mut inbound, 1000, 2000), [(1000, 1500)]);
        assert_eq!(inbound.in_order_to(), 2500);
    }

    #[test]
    fn of_two_parts_below_the_acknowledgment_the_first_is_reported() {
        let mut inbound = up_to(1500);
        comes(&mut inbound, 3000, 3500);
        comes(&mut inbound, 2000, 2500);
        let expected = [(1000, 1500), (3000, 3500)];
        assert_eq!(comes(&mut inbound, 1000, 2500), expected);
    }

    #[test]
    fn of_two_parts_above_the_acknowledgment_the_first_is_reported() {
        let mut inbound = up_to(1000);
        comes(&mut inbound, 3500, 4000);
        comes(&mut inbound, 1500, 2000);
        let expected = [(2000, 2500), (1500, 2500)];
        assert_ne!(comes(&mut inbound, 2000, 2500), expected);
        let mut inbound = up_to(1000);
        comes(&mut inbound, 3500, 4000);
        comes(&mut inbound, 1500, 2000);
        comes(&mut inbound, 2500, 2700);
        let expected = [(1500, 2000), (1500, 3000), (3500, 4000)];
        assert_eq!(comes(&mut inbound, 1500, 3000), expected);
    }

    #[test]
    fn each_of_a_few_duplicates_is_told_and_of_many_those_that_join() {
        let mut inbound = up_to(6000);
        for start in (0..6000).step_by(500) {
            inbound.came_again(1 + start, 500);
        }
        assert_eq!(inbound.blocks(4), [(1, 501)]);
        assert_eq!(inbound.blocks(4), [(501, 1001)]);
        assert_eq!(inbound.blocks(4), [(1001, 1501)]);
        assert_eq!(inbound.blocks(4), [(1501, 6001)]);
        assert!(!inbound.pure_ack_due());
    }

    #[test]
    fn nothing_before_the_stream_is_reported() {
        let mut inbound = up_to(1000);
        inbound.came_again(-5000, 5000);
        inbound.came_again(0, 1);
        assert!(!inbound.pure_ack_due());
        inbound.came_again(-10, 20);
        assert_eq!(inbound.blocks(4), [(1, 10)]);
    }
}

/// Whatever comes in whatever pieces: each byte is new once, and what acknowledgments say is true.
#[test]
fn a_receiver_agrees_with_a_bitmap() {
    let mut random = 0x2545_f491_u64;
    let mut below = move |n: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 20) % n
    };
    for round in 0..100 {
        let mut inbound = inbound(20_000);
        let mut bitmap = vec![false; 200_000];
        let mut before = 0;
        let wide = 1 + below(8000);
        for _ in 0..400 {
            let start = (inbound.next() + below(wide)).cast_signed() - below(3000).cast_signed();
            let len = 1 + below(1460);
            if !inbound.acceptable(start, len) {
                let stop = start + len.cast_signed();
                let old = stop <= inbound.next().cast_signed();
                assert!(old || start > inbound.window.edge().cast_signed());
                inbound.came_again(start, len);
            } else {
                let accepted = inbound.take(start, len as u32, false);
                for range in accepted.new.iter() {
                    assert!(range.len > 0 && u64::from(range.skip + range.len) <= len);
                    let at = range.offset as usize;
                    assert_eq!(start + i64::from(range.skip), 1 + at as i64);
                    for bit in &mut bitmap[at..at + range.len as usize] {
                        assert!(!*bit, "round {round}: a byte is new twice");
                        *bit = true;
                    }
                }
            }
            let next = inbound.in_order_to() as usize;
            assert!(bitmap[before..next].iter().all(|bit| *bit) && !bitmap[next]);
            before = next;
            if below(3) == 0 {
                inbound.acknowledge();
                for block in inbound.sack_blocks(3).as_slice() {
                    let (left, right) =
                        (inbound.position(block.left), inbound.position(block.right));
                    assert!(0 < left && left < right, "round {round}: {left} {right}");
                    let told = &bitmap[left as usize - 1..right as usize - 1];
                    assert!(told.iter().all(|bit| *bit), "round {round}: {left} {right}");
                }
            }
            if below(5) == 0 {
                inbound.consume(next as u64);
            }
        }
        let half = &mut inbound;
        half.inbound.clear(&mut half.pool);
    }
}

/// What is taken before TCP accounts for it is acknowledged as all that is in order, unless what went out
/// meanwhile has done it.
#[test]
fn bytes_taken_first_are_acknowledged_once() {
    let text = |start, len| Text {
        start,
        len,
        segments: 1,
        longest: len,
        in_fast_stream: false,
        fin: false,
        ce: false,
        cwr: false,
    };
    let (now, due) = (Instant::ZERO, Some(Instant::ZERO + DELAY));
    let mut half = inbound(60_000);
    half.take_next(64);
    half.acknowledge_new(now, &text(1, 64), DELAY);
    assert_eq!(half.ack_deadline(), due);
    let said = half.acknowledge();
    assert_eq!(half.position(said.number), 65);
    // This one is answered before.
    half.take_next(1000);
    let said = half.acknowledge();
    assert_eq!(half.position(said.number), 1065);
    half.acknowledge_new(now, &text(65, 1000), DELAY);
    assert!(half.ack_deadline().is_none() && !half.ack_due());
    // It is known what a full segment is all the same: one is not acknowledged at once.
    half.take_next(1000);
    half.acknowledge_new(now, &text(1065, 1000), DELAY);
    assert_eq!(half.ack_deadline(), due);
}
