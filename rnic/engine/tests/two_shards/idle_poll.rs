//! A poll after one that found nothing to do skips most of its work; nothing is delayed by that.

use std::time::Duration;

use rnic_engine::command::{Answer, Command};
use rnic_ipc::id::QpNum;
use rnic_ipc::work::WrOpcode;
use userspace_net::Instant;

use crate::impairment::Impairment;
use crate::link::{Link, ROUGH};
use crate::random::Random;
use crate::side::{Side, SideConfig};
use crate::world::World;

const LONGEST: u64 = 20_000;

/// Whether the shard may keep to the few things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Looks {
    AtFew,
    AtEverything,
}

/// One look of a host at its link and its work; says whether there was any.
fn look(
    side: &mut Side,
    (out, inward): (&mut Link, &mut Link),
    now: Instant,
    looks: Looks,
    found: &mut bool,
) {
    let wire = side.wire.as_ref().unwrap();
    inward.give(wire, now);
    if looks == Looks::AtEverything && !*found {
        // A command that does nothing, but may have done anything as far as the next poll knows.
        counters(side, now);
    }
    *found = side.shard.poll(now);
    let wire = side.wire.as_ref().unwrap();
    out.take(wire, now);
    side.collect();
}

fn counters(side: &mut Side, now: Instant) -> Answer {
    side.shard.execute(Command::QueryCounters, now).unwrap()
}

/// Random work of both hosts, polled at random moments. Gives all frames with their times, what both can
/// be asked for in the end, and how many polls found nothing.
fn run(seed: u64, impairment: Impairment, looks: Looks) -> ([u64; 2], [String; 2], usize) {
    let mut world = World::new(seed, impairment);
    world.markers = [seed.is_multiple_of(3); 2];
    let pairs = [world.connect(), world.connect()];
    for side in [&mut world.a, &mut world.b] {
        for pair in pairs {
            for wr_id in 0..200 {
                side.post_recv(QpNum(pair.0.0), wr_id, 2 << 20, LONGEST as usize);
            }
        }
    }
    world.run_for(Duration::from_secs(1));
    let mut random = Random::new(seed);
    let (mut found, mut nothing) = ([true; 2], 0);
    for _ in 0..3000 {
        let World {
            a,
            b,
            a_to_b,
            b_to_a,
            now,
            ..
        } = &mut world;
        if random.chance(30) {
            let (qp_a, qp_b) = pairs[usize::from(random.chance(300))];
            let (from, to, qp) = match random.chance(500) {
                true => (&mut *a, &*b, qp_a),
                false => (&mut *b, &*a, qp_b),
            };
            let opcode = [WrOpcode::Write, WrOpcode::Send, WrOpcode::Read];
            let opcode = opcode[random.below(3) as usize];
            let most = [200, 200, 5000, LONGEST][random.below(4) as usize];
            let at = random.below(1 << 16) as usize;
            let wr_id = random.next();
            from.push_work(
                qp,
                opcode,
                wr_id,
                at,
                (to.stag, at),
                random.below(most) as usize,
            );
            from.ring(qp);
        }
        let [found_a, found_b] = &mut found;
        look(a, (a_to_b, b_to_a), *now, looks, found_a);
        look(b, (b_to_a, a_to_b), *now, looks, found_b);
        nothing += found.iter().filter(|found| !**found).count();
        *now += match random.below(40) {
            0 => Duration::from_millis(random.below(300)),
            1..20 => Duration::from_micros(random.below(50)),
            _ => Duration::from_nanos(random.below(2000)),
        };
    }
    world.run_for(Duration::from_secs(120));
    world.assert_no_frame_lost();
    let digests = [world.a_to_b.digest, world.b_to_a.digest];
    let now = world.now;
    let states = [&mut world.a, &mut world.b].map(|side| {
        let levels = side.shard.levels();
        let told = (&side.completions, &side.events);
        let told = format!("{levels:?} {told:?}");
        format!("{:?} {told}", counters(side, now))
    });
    (digests, states, nothing)
}

/// The same frames at the same times, the same completions, and the same state behind it.
#[test]
fn what_comes_to_a_quiet_shard_is_found_by_the_next_poll() {
    let mut nothing_found = 0;
    for seed in crate::random::seeds(24) {
        let impairment = match seed % 2 {
            0 => Impairment::NONE,
            _ => ROUGH,
        };
        let (frames, states, nothing) = run(seed, impairment, Looks::AtFew);
        let everything = run(seed, impairment, Looks::AtEverything);
        assert_eq!(
            (states, nothing),
            (everything.1, everything.2),
            "seed {seed}"
        );
        assert_eq!(frames, everything.0, "seed {seed}");
        nothing_found += nothing;
    }
    assert!(nothing_found > 24 * 2000, "{nothing_found}");
}

/// A shard whose frames wait in a port for a link that is full is not quiet.
#[test]
fn what_waits_in_a_port_leaves_as_soon_as_the_link_has_room() {
    const DEPTH: usize = 8;
    // More segments than the link takes, and no more than a new connection sends at once.
    const BYTES: usize = 10 * 1400;
    let narrow = SideConfig {
        wire_depth: DEPTH,
        ..SideConfig::default()
    };
    let mut world = World::with(1, Impairment::NONE, narrow, SideConfig::default(), false);
    let (qp, _) = world.connect();
    world.run_for(Duration::from_secs(1));
    let (a, now) = (&mut world.a, world.now);
    a.push_work(qp, WrOpcode::Write, 1, 0, (world.b.stag, 0), BYTES);
    a.ring(qp);
    while a.shard.poll(now) {}
    let wire = a.wire.as_ref().unwrap();
    assert_eq!(wire.waiting(), DEPTH);
    assert!(!a.shard.poll(now));
    let mut frame = Vec::new();
    while wire.take(&mut frame) {}
    a.shard.poll(now);
    let left = a.wire.as_ref().unwrap().waiting();
    assert!((1..DEPTH).contains(&left), "{left} frames");
}
