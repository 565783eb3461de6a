use super::*;

const DELAY: Duration = Duration::from_millis(5);
const IRS: SeqNum = SeqNum(u32::MAX - 100);

fn inbound(window: u32) -> Inbound {
    let config = Config {
        receive_window: window,
        ..Config::default()
    };
    Inbound::new(IRS, WindowPlan::new(&config, 1460), 1448, true)
}

fn accept(inbound: &mut Inbound, start: i64, len: u32) -> Vec<(u64, u32, u32)> {
    assert!(inbound.acceptable(start, u64::from(len)), "{start} {len}");
    let accepted = inbound.accept(
        Instant::ZERO,
        start,
        len,
        false,
        DELAY,
        &mut RangePool::default(),
    );
    accepted
        .new
        .iter()
        .map(|range| (range.offset, range.skip, range.len))
        .collect()
}

#[test]
fn each_octet_is_new_once() {
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
fn small_segments_are_acknowledged_every_eighth() {
    let mut inbound = inbound(100_000);
    for i in 0..7 {
        accept(&mut inbound, 1 + i * 10, 10);
        assert!(!inbound.ack_due());
    }
    accept(&mut inbound, 71, 10);
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
    assert!(inbound.ack_due() && inbound.sack_due());
    inbound.acknowledge();
    inbound.sack_blocks();
    accept(&mut inbound, 1, 1000);
    assert!(inbound.ack_due() && !inbound.sack_due());
}

#[test]
fn sack_blocks_name_the_latest_first_and_no_range_twice() {
    let mut inbound = inbound(100_000);
    for start in [5001, 1001, 9001, 1101, 3001, 7001] {
        accept(&mut inbound, start, 100);
    }
    let blocks = inbound.sack_blocks();
    let lefts: Vec<i64> = blocks
        .as_slice()
        .iter()
        .map(|block| inbound.position(block.left))
        .collect();
    assert_eq!(lefts, [7001, 3001, 1001, 9001]);
    let first = blocks.as_slice()[2];
    assert_eq!(first.right.distance(first.left), 200);
}

#[test]
fn octets_beyond_the_window_are_cut_off() {
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
    assert_eq!(inbound.acknowledge(), 5000);
    inbound.consume(1000);
    // Less than a segment: not worth a step (silly window avoidance).
    assert!(!inbound.ack_due());
    assert_eq!(inbound.acknowledge(), 5000);
    inbound.consume(3000);
    assert_eq!(inbound.acknowledge(), 8000);
    inbound.consume(0);
    assert_eq!(inbound.acknowledge(), 8000);
}

#[test]
fn opening_a_nearly_closed_window_is_told_at_once() {
    let mut inbound = inbound(10_000);
    for i in 0..10 {
        accept(&mut inbound, 1 + i * 1000, 1000);
    }
    assert_eq!(inbound.acknowledge(), 0);
    inbound.consume(1000);
    assert!(!inbound.ack_due());
    inbound.consume(1448);
    assert!(inbound.ack_due());
    assert_eq!(inbound.acknowledge(), 1448);
}

#[test]
fn consuming_what_has_not_come_opens_nothing() {
    let mut inbound = inbound(10_000);
    inbound.consume(u64::MAX);
    assert_eq!(inbound.acknowledge(), 10_000);
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
    let mut inbound = Inbound::new(IRS, plan, 1448, true);
    assert_eq!(inbound.acknowledge(), 1 << 15);
}

#[test]
fn a_fin_counts_when_everything_before_it_is_here() {
    let mut inbound = inbound(10_000);
    let early = inbound.accept(
        Instant::ZERO,
        101,
        100,
        true,
        DELAY,
        &mut RangePool::default(),
    );
    assert!(!early.closed);
    assert!(
        inbound
            .accept(
                Instant::ZERO,
                1,
                100,
                false,
                DELAY,
                &mut RangePool::default()
            )
            .closed
    );
    assert_eq!((inbound.in_order_to(), inbound.next()), (200, 202));
    // Octets behind the FIN are no part of the stream.
    assert!(
        inbound
            .accept(
                Instant::ZERO,
                150,
                300,
                false,
                DELAY,
                &mut RangePool::default()
            )
            .new
            .is_empty()
    );
}

#[test]
fn a_fin_before_octets_that_came_already_is_ignored() {
    let mut inbound = inbound(10_000);
    accept(&mut inbound, 101, 100);
    assert!(
        !inbound
            .accept(Instant::ZERO, 1, 50, true, DELAY, &mut RangePool::default())
            .closed
    );
    accept(&mut inbound, 51, 50);
    assert_eq!(inbound.in_order_to(), 200);
}
