//! A lone in-order segment: its payload is delivered in the poll that receives it, the reply leaves in
//! the next poll and carries the ACK, and ACK processing is deferred until after the reply.

use std::cell::Cell;
use std::time::Duration;

use rnic_engine::command::{Answer, Command};
use rnic_ipc::id::QpNum;
use rnic_ipc::work::WrOpcode;
use rnic_net::{PathDefaults, parse};
use userspace_net::Instant;
use userspace_tcp::Segment;

use crate::impairment::Impairment;
use crate::side::{Side, pattern};
use crate::world::World;

const LEN: usize = 64;

/// What a frame says: bytes of its payload, sequence and acknowledgment number.
struct Said {
    len: u32,
    seq: u32,
    ack: u32,
}

/// The only frame that a host has sent.
fn only_frame(side: &Side, frame: &mut Vec<u8>) -> Said {
    let wire = side.wire.as_ref().unwrap();
    assert!(wire.take(frame), "nothing was sent");
    assert!(!wire.take(&mut Vec::new()), "one frame is enough");
    let parsed = parse(frame, &PathDefaults::new(1500)).unwrap();
    let segment = Segment::parse(&frame[parsed.data]).unwrap();
    Said {
        len: u32::try_from(segment.payload.len()).unwrap(),
        seq: segment.header.seq.0,
        ack: segment.header.ack.0,
    }
}

fn write(from: &mut Side, to: &Side, qp: QpNum, round: u64) {
    from.fill(0, LEN, round);
    from.post_work(qp, WrOpcode::Write, round, 0, (to.stag, LEN), LEN);
}

#[test]
fn an_answer_goes_out_in_the_poll_behind_what_it_answers() {
    let mut world = World::new(1, Impairment::NONE);
    let (qp_a, qp_b) = world.connect();
    world.run_for(Duration::from_secs(1));
    let now = world.now;
    let mut frame = Vec::new();
    write(&mut world.a, &world.b, qp_a, 0);
    assert!(world.a.shard.poll(now));
    let mut last = only_frame(&world.a, &mut frame);
    // Long enough for the headers to be known.
    for round in 0..50 {
        let (to, back, qp) = match round % 2 {
            0 => (&mut world.b, &world.a, qp_b),
            _ => (&mut world.a, &world.b, qp_a),
        };
        assert!(to.wire.as_ref().unwrap().push(&frame));
        let free = to.shard.levels().frames_free;
        assert!(to.shard.poll(now));
        let waiting = free - to.shard.levels().frames_free;
        assert_eq!(waiting, 1, "its frame waits for the answer");
        assert_eq!(to.read(LEN, LEN), pattern(LEN, round), "round {round}");
        let mut nothing = Vec::new();
        assert!(!to.wire.as_ref().unwrap().take(&mut nothing));
        assert!(!to.shard.prepare_sleep(), "its rest is to be done");
        write(to, back, qp, round + 1);
        assert!(to.shard.poll(now));
        let answer = only_frame(to, &mut frame);
        assert_eq!(answer.ack, last.seq.wrapping_add(last.len));
        last = answer;
    }
    assert!(world.b.wire.as_ref().unwrap().push(&frame));
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.b.read(LEN, LEN), pattern(LEN, 50));
    world.assert_no_frame_lost();
    for side in [&mut world.a, &mut world.b] {
        assert!(side.shard.prepare_sleep());
        assert_eq!(side.counter("tcp_retransmits"), 0);
    }
}

/// A Write of `a`'s is all that `b`'s next poll finds.
fn with_a_segment_to_come() -> World {
    let mut world = World::new(1, Impairment::NONE);
    let (qp, _) = world.connect();
    world.run_for(Duration::from_secs(1));
    let mut frame = Vec::new();
    write(&mut world.a, &world.b, qp, 0);
    assert!(world.a.shard.poll(world.now));
    only_frame(&world.a, &mut frame);
    assert!(world.b.wire.as_ref().unwrap().push(&frame));
    world
}

/// A program that waits for bytes does not wait for the clock. The next poll reads it again, and what is measured of the
/// segment is measured then.
#[test]
fn bytes_alone_are_there_without_another_look_at_the_clock() {
    let mut world = with_a_segment_to_come();
    let looks = Cell::new(0);
    let now = world.now;
    world.b.shard.poll_by(|| {
        looks.set(looks.get() + 1);
        now
    });
    assert_eq!(looks.get(), 1);
    assert_eq!(world.b.read(LEN, LEN), pattern(LEN, 0));
}

/// What answers a segment later than at once, or never, leaves nothing of it undone.
#[test]
fn the_rest_of_a_segment_is_done_without_an_answer() {
    let mut world = with_a_segment_to_come();
    let free = world.b.shard.levels().frames_free;
    assert!(world.b.shard.poll(world.now));
    assert_eq!(world.b.shard.levels().frames_free, free - 1);
    assert_eq!(world.b.shard.next_deadline(), Some(world.now), "at once");
    world.b.shard.poll(world.now);
    assert_eq!(world.b.shard.levels().frames_free, free);
    let deadline = world.b.shard.next_deadline();
    assert!(deadline > Some(world.now), "the acknowledgment is delayed");
}

/// A host's smoothed round trip on its only connection, microseconds.
fn round_trip(side: &mut Side) -> u64 {
    let look = Command::InspectConnections { after: 0 };
    match side.shard.execute(look, Instant::ZERO) {
        Ok(Answer::Connections { found, .. }) => found[0].rtt_us.expect("it was measured"),
        other => panic!("{other:?}"),
    }
}

/// A program that drives the shard itself has its bytes, and may then be away for as long as it likes.
#[test]
fn who_stays_away_behind_bytes_has_measured_no_longer_round_trip() {
    let mut world = World::new(1, Impairment::NONE);
    let (qp_a, qp_b) = world.connect();
    world.run_for(Duration::from_secs(1));
    let mut frame = Vec::new();
    let mut acknowledged = 0;
    let before = round_trip(&mut world.a);
    for round in 0..50 {
        let now = world.now;
        write(&mut world.a, &world.b, qp_a, 2 * round);
        assert!(world.a.shard.poll(now));
        only_frame(&world.a, &mut frame);
        assert!(world.b.wire.as_ref().unwrap().push(&frame));
        assert!(world.b.shard.poll(now));
        write(&mut world.b, &world.a, qp_b, 2 * round + 1);
        assert!(world.b.shard.poll(now));
        let answer = only_frame(&world.b, &mut frame);
        assert_ne!(answer.ack, acknowledged, "it acknowledges the Write");
        acknowledged = answer.ack;
        assert!(world.a.wire.as_ref().unwrap().push(&frame));
        assert!(world.a.shard.poll(now));
        assert_eq!(world.a.read(LEN, LEN), pattern(LEN, 2 * round + 1));
        world.now += Duration::from_millis(100);
        world.a.shard.poll(world.now);
        let measured = round_trip(&mut world.a);
        assert!(
            measured <= before,
            "{before}, then {measured} us in round {round}"
        );
    }
}

/// Its clock says a millisecond, ten have passed when it looks at its ring, and the next poll says so.
#[test]
fn a_poll_that_is_interrupted_has_measured_no_shorter_round_trip() {
    let mut world = World::new(1, Impairment::NONE);
    let (qp_a, qp_b) = world.connect();
    world.run_for(Duration::from_secs(1));
    let mut frame = Vec::new();
    let before = round_trip(&mut world.a);
    for round in 0..10 {
        let sent = world.now;
        write(&mut world.a, &world.b, qp_a, 2 * round);
        assert!(world.a.shard.poll(sent));
        only_frame(&world.a, &mut frame);
        assert!(world.b.wire.as_ref().unwrap().push(&frame));
        assert!(world.b.shard.poll(sent));
        write(&mut world.b, &world.a, qp_b, 2 * round + 1);
        assert!(world.b.shard.poll(sent));
        only_frame(&world.b, &mut frame);
        assert!(world.a.wire.as_ref().unwrap().push(&frame));
        assert!(world.a.shard.poll(sent + Duration::from_millis(1)));
        world.now = sent + Duration::from_millis(10);
        world.a.shard.poll(world.now);
        assert!(round_trip(&mut world.a) >= before, "in round {round}");
    }
}
