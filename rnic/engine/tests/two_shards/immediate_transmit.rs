//! Immediate transmit: work posted to an idle shard leaves in the call that posts it, with the same
//! frames as after a doorbell; work that has company waits for the next poll.

use std::time::Duration;

use rnic_engine::command::{Answer, Command};
use rnic_ipc::control::Transport;
use rnic_ipc::id::{ClientId, QpNum};
use rnic_ipc::work::WrOpcode;
use userspace_net::Instant;

use crate::impairment::Impairment;
use crate::link::{Link, ROUGH};
use crate::random::Random;
use crate::side::{CLIENT, Side, pattern};
use crate::world::World;

const LEN: usize = 64;
/// The longest message: more segments than a turn has.
const LONGEST: u64 = 40_000;
/// Bytes of a piece: less than a segment has, and so many pieces that no work request has more.
const PIECE: usize = 1_300;
const PIECES: u32 = 32;

/// How the shard learns of what is posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Posting {
    Doorbell,
    AtOnce,
}

/// In which elements a message's bytes are posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Elements {
    One,
    /// In pieces of which none has a whole segment, and an empty one behind: so each FPDU is planned.
    Pieces,
}

/// Two polls of a host. What the first leaves to be done of a segment that a doorbell answers, the second does, if there
/// is no doorbell by then.
fn look(side: &mut Side, out: &mut Link, inward: &mut Link, now: Instant) {
    let wire = side.wire.as_ref().unwrap();
    inward.give(wire, now);
    side.shard.poll(now);
    side.shard.poll(now);
    out.take(wire, now);
    side.collect();
}

/// Everything that two hosts can be asked for.
fn state(side: &mut Side) -> String {
    let Answer::Counters(counters) = side
        .shard
        .execute(Command::QueryCounters, Instant::ZERO)
        .unwrap()
    else {
        panic!("no counters");
    };
    let levels = side.shard.levels();
    format!(
        "{counters:?} {levels:?} {:?} {:?}",
        side.completions, side.events
    )
}

/// Posts one of the seed's pieces of work; whether it left at once.
fn post(
    from: &mut Side,
    to: &Side,
    qp: QpNum,
    random: &mut Random,
    (posting, elements): (Posting, Elements),
    now: Instant,
) -> bool {
    let wr_id = random.next();
    let opcode = [WrOpcode::Write, WrOpcode::Send, WrOpcode::Read][random.below(3) as usize];
    let most = [200, 200, 200, 200, 200, 5000, 5000, LONGEST][random.below(8) as usize];
    let len = random.below(most) as usize;
    let at = random.below(1 << 16) as usize;
    // Work that does not pass the checks, too.
    let remote = if random.chance(5) {
        usize::MAX >> 8
    } else {
        at
    };
    from.fill(at, len, wr_id);
    let mut sges = vec![from.sge(at, len)];
    // A Read's elements are as many messages.
    if elements == Elements::Pieces && opcode != WrOpcode::Read {
        let pieces = (0..len).step_by(PIECE);
        sges = pieces
            .map(|begin| from.sge(at + begin, PIECE.min(len - begin)))
            .collect();
        sges.push(from.sge(at, 0));
    }
    // Memory that it has not got, too.
    if random.chance(5) {
        sges[0].lkey ^= 1;
    }
    from.push_elements(qp, opcode, wr_id, &sges, (to.stag, remote));
    if posting == Posting::AtOnce && from.shard.transmit_posted(CLIENT, qp, || now) {
        return true;
    }
    from.ring(qp);
    false
}

/// Random work of both hosts by two queue pairs, looked for now and then. Gives all frames with their
/// times, what both can be asked for in the end, and how many messages left at once.
fn run(
    seed: u64,
    impairment: Impairment,
    markers: bool,
    way: (Posting, Elements),
) -> ([u64; 2], [String; 2], usize) {
    let mut world = World::new(seed, impairment);
    world.markers = [markers; 2];
    for side in [&mut world.a, &mut world.b] {
        side.max_sge = PIECES;
    }
    let pairs = [world.connect(), world.connect()];
    for side in [&mut world.a, &mut world.b] {
        for pair in pairs {
            for wr_id in 0..60 {
                side.post_recv(QpNum(pair.0.0), wr_id, 2 << 20, LONGEST as usize);
            }
        }
    }
    world.run_for(Duration::from_secs(1));
    let mut random = Random::new(seed);
    let mut at_once = 0;
    for _ in 0..400 {
        let (a, b, now) = (&mut world.a, &mut world.b, world.now);
        let pair = pairs[usize::from(random.chance(100))];
        if random.chance(400) {
            at_once += usize::from(post(a, b, pair.0, &mut random, way, now));
        }
        look(a, &mut world.a_to_b, &mut world.b_to_a, now);
        if random.chance(400) {
            at_once += usize::from(post(b, a, pair.1, &mut random, way, now));
        }
        look(b, &mut world.b_to_a, &mut world.a_to_b, now);
        match random.below(4) {
            0 => world.run_for(Duration::from_millis(random.below(300))),
            1 => world.now += Duration::from_micros(random.below(150)),
            _ => world.now += Duration::from_micros(random.below(20)),
        }
    }
    world.run_for(Duration::from_secs(120));
    world.assert_no_frame_lost();
    let digests = [world.a_to_b.digest, world.b_to_a.digest];
    let states = [state(&mut world.a), state(&mut world.b)];
    (digests, states, at_once)
}

/// The same work each way: the same frames at the same times, the same completions, and the same state
/// behind it.
#[test]
fn what_leaves_at_once_is_what_a_doorbell_brings() {
    let mut left_at_once = 0;
    for seed in crate::random::seeds(24) {
        let impairment = match seed % 2 {
            0 => Impairment::NONE,
            _ => ROUGH,
        };
        let markers = seed % 3 == 0;
        let of = |posting, elements| run(seed, impairment, markers, (posting, elements));
        let (by_doorbell, states, none) = of(Posting::Doorbell, Elements::One);
        let (at_once, states_at_once, some) = of(Posting::AtOnce, Elements::One);
        let (planned, states_planned, as_many) = of(Posting::AtOnce, Elements::Pieces);
        assert_eq!((none, as_many), (0, some));
        left_at_once += some;
        assert_eq!(states, states_at_once, "seed {seed}");
        assert_eq!(by_doorbell, at_once, "seed {seed}");
        assert_eq!(states, states_planned, "planned, seed {seed}");
        assert_eq!(by_doorbell, planned, "planned, seed {seed}");
    }
    assert!(left_at_once > 100, "{left_at_once}");
}

fn connected(transport: Transport) -> (World, QpNum, QpNum) {
    let mut world = World::new(1, Impairment::NONE);
    if transport == Transport::Sctp {
        world = world.over_sctp();
    }
    let (qp_a, qp_b) = world.connect();
    world.run_for(Duration::from_secs(1));
    (world, qp_a, qp_b)
}

fn push(from: &mut Side, to: &Side, qp: QpNum, round: u64) {
    from.fill(0, LEN, round);
    from.push_work(qp, WrOpcode::Write, round, 0, (to.stag, LEN), LEN);
}

/// Frames that the host has sent, which are with the other one now.
fn frames_sent(side: &Side, to: &Side) -> usize {
    let (wire, other) = (side.wire.as_ref().unwrap(), to.wire.as_ref().unwrap());
    let mut frame = Vec::new();
    let mut frames = 0;
    while wire.take(&mut frame) {
        assert!(other.push(&frame));
        frames += 1;
    }
    frames
}

/// The answer leaves without a poll, while what it acknowledges has its rest still to be done.
#[test]
fn a_ping_pong_needs_no_poll_to_send() {
    for transport in [Transport::Tcp, Transport::Sctp] {
        ping_pong(transport);
    }
}

fn ping_pong(transport: Transport) {
    let (mut world, qp_a, qp_b) = connected(transport);
    let now = world.now;
    for round in 0..50 {
        let (from, to, qp) = match round % 2 {
            0 => (&mut world.a, &mut world.b, qp_a),
            _ => (&mut world.b, &mut world.a, qp_b),
        };
        push(from, to, qp, round);
        assert!(from.shard.transmit_posted(CLIENT, qp, || now));
        assert_eq!(frames_sent(from, to), 1, "round {round}");
        // What there is to be done besides, as a program that waits has it done.
        from.shard.poll(now);
        to.shard.poll(now);
        assert_eq!(to.read(LEN, LEN), pattern(LEN, round), "round {round}");
    }
    world.run_for(Duration::from_secs(1));
    world.assert_no_frame_lost();
    assert_eq!(world.a.completions.len() + world.b.completions.len(), 50);
}

/// Nothing is done then, and a doorbell sends it.
fn assert_waits(world: &mut World, client: ClientId, qp: QpNum, why: &str) {
    let now = world.now;
    assert!(
        !world.a.shard.transmit_posted(client, qp, || now),
        "{why}: it is not alone"
    );
    assert_eq!(frames_sent(&world.a, &world.b), 0, "{why}: nothing is done");
}

#[test]
fn what_has_company_waits_for_the_next_poll() {
    let (mut world, first, _) = connected(Transport::Tcp);
    let (second, _) = world.connect();
    world.run_for(Duration::from_secs(1));
    assert_waits(&mut world, CLIENT, first, "nothing is posted");
    push(&mut world.a, &world.b, first, 1);
    assert_waits(&mut world, ClientId(9), first, "another client's");
    assert_waits(&mut world, CLIENT, QpNum(99), "no queue pair");
    push(&mut world.a, &world.b, second, 2);
    world.a.ring(second);
    assert_waits(&mut world, CLIENT, first, "another doorbell");
    let now = world.now;
    world.a.shard.poll(now);
    assert_eq!(frames_sent(&world.a, &world.b), 1);
    assert_waits(&mut world, CLIENT, first, "another's segment is under way");
    world.run_for(Duration::from_secs(1));
    assert!(world.a.shard.transmit_posted(CLIENT, first, || now));
    push(&mut world.a, &world.b, first, 3);
    assert_eq!(frames_sent(&world.a, &world.b), 1);
    assert_waits(&mut world, CLIENT, first, "its own segment is under way");
    world.a.ring(first);
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.a.completions.len(), 3);
}

/// The rest of what came waits for an answer no longer than for a poll that comes late.
#[test]
fn what_came_long_ago_is_done_before_an_answer_to_it() {
    let (mut world, qp_a, qp_b) = connected(Transport::Tcp);
    let now = world.now;
    push(&mut world.a, &world.b, qp_a, 1);
    assert!(world.a.shard.transmit_posted(CLIENT, qp_a, || now));
    assert_eq!(frames_sent(&world.a, &world.b), 1);
    world.b.shard.poll(now);
    push(&mut world.b, &world.a, qp_b, 1);
    let later = now + Duration::from_millis(1);
    assert!(!world.b.shard.transmit_posted(CLIENT, qp_b, || later));
    assert_eq!(frames_sent(&world.b, &world.a), 0);
    world.b.ring(qp_b);
    world.b.shard.poll(later);
    assert_eq!(frames_sent(&world.b, &world.a), 1);
}

/// A queue pair that can't send flushes what is posted, by its doorbell.
#[test]
fn a_queue_pair_in_error_flushes_by_its_doorbell() {
    let (mut world, qp, _) = connected(Transport::Tcp);
    let abort = Command::Disconnect { qp, abort: true };
    world.a.shard.execute(abort, world.now).unwrap();
    world.run_for(Duration::from_secs(1));
    push(&mut world.a, &world.b, qp, 1);
    assert_waits(&mut world, CLIENT, qp, "in Error");
    world.a.ring(qp);
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.a.completions.len(), 1);
}
