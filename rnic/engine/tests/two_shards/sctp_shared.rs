//! Many queue pairs of one client over one association: they share it, none disturbs the others, and it ends with the
//! last of them (RFC 5041 section 3, RFC 5043 section 6).

use std::time::Duration;

use rnic_engine::command::{Command, CommandError, ShardEvent};
use rnic_ipc::control::{DisconnectReason, Event, MpaOptions, Transport};
use rnic_ipc::id::QpNum;
use rnic_ipc::work::WrOpcode;
use rnic_net::{AllowList, ListOwner, PeerRules};
use rnic_proto::Stag;

use crate::impairment::Impairment;
use crate::link::ROUGH;
use crate::random::seeds;
use crate::sctp_raw::{HOSTILE, OTHER, SctpDuel};
use crate::side::{LISTENER, SideConfig, pattern};
use crate::world::World;

const PATIENCE: Duration = Duration::from_secs(120);
const STREAMS: usize = 32;

fn config() -> SideConfig {
    let mut config = SideConfig::default();
    config.shard.limits.queue_pairs = 128;
    config.shard.limits.connections = 128;
    config
}

fn world_of(seed: u64, impairment: Impairment, a: SideConfig, b: SideConfig) -> World {
    let mut world = World::with(seed, impairment, a, b, false).over_sctp();
    world.a.may_share = true;
    world
}

fn world(seed: u64, impairment: Impairment) -> World {
    world_of(seed, impairment, config(), config())
}

fn associations(world: &World) -> [usize; 2] {
    [&world.a, &world.b].map(|side| side.shard.levels().associations)
}

fn disconnect(world: &mut World, by_a: bool, qp: QpNum, abort: bool) {
    let side = if by_a { &mut world.a } else { &mut world.b };
    let command = Command::Disconnect { qp, abort };
    side.shard.execute(command, world.now).unwrap();
}

fn ended(world: &mut World, (qp_a, qp_b): (QpNum, QpNum)) -> [DisconnectReason; 2] {
    let ended = world.run_until(PATIENCE, |w| {
        w.a.disconnected(qp_a).is_some() && w.b.disconnected(qp_b).is_some()
    });
    assert!(ended, "{:?} {:?}", world.a.events, world.b.events);
    [world.a.disconnected(qp_a), world.b.disconnected(qp_b)].map(Option::unwrap)
}

/// Nothing is left, and each port was given back once.
fn assert_all_gone(world: &mut World, ports: usize) {
    world.run_for(Duration::from_secs(20));
    assert_eq!(associations(world), [0, 0]);
    for side in [&world.a, &world.b] {
        assert_eq!(side.shard.levels().connections, 0);
    }
    world.assert_no_frame_lost();
    let released = world.a.events.iter().filter_map(|event| match event {
        ShardEvent::Released {
            transport: Transport::Sctp,
            local,
        } => Some(local.port()),
        _ => None,
    });
    let released: Vec<_> = released.collect();
    let mut once = released.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!((released.len(), once.len()), (ports, ports), "{released:?}");
}

/// A Write and a Send of every pair, with bytes of its own.
fn transfer(world: &mut World, pairs: &[(QpNum, QpNum)], round: u64) {
    const LEN: usize = 100_000;
    let remote = world.b.stag;
    let id = |at: usize| 1000 * round + at as u64;
    for (at, (qp_a, qp_b)) in pairs.iter().enumerate() {
        world.a.fill(at * LEN, LEN, id(at));
        world.b.post_recv(*qp_b, 500 + id(at), 7 << 20, 64);
        let a = &mut world.a;
        a.push_work(
            *qp_a,
            WrOpcode::Write,
            id(at),
            at * LEN,
            (remote, at * LEN),
            LEN,
        );
        a.post_work(
            *qp_a,
            WrOpcode::Send,
            250 + id(at),
            at * LEN,
            (remote, 0),
            64,
        );
    }
    let arrived = world.run_until(PATIENCE, |w| {
        (0..pairs.len()).all(|at| w.b.completion(500 + id(at)).is_some())
    });
    assert!(arrived, "{:?} {:?}", world.a.events, world.b.events);
    for at in 0..pairs.len() {
        assert!(
            world.b.read(at * LEN, LEN) == pattern(LEN, id(at)),
            "of {at}"
        );
    }
}

/// RFC5041-3-12.
#[test]
fn queue_pairs_share_an_association_that_ends_with_the_last_of_them() {
    for (seed, impairment) in [(1, Impairment::NONE), (2, ROUGH), (3, ROUGH)] {
        for by_a in [true, false] {
            let mut world = world(seed, impairment);
            let mut pairs: Vec<_> = (0..8).map(|_| world.connect()).collect();
            assert_eq!(associations(&world), [1, 1]);
            for round in 0.. {
                transfer(&mut world, &pairs, round);
                let Some((qp_a, qp_b)) = pairs.pop() else {
                    break;
                };
                disconnect(&mut world, by_a, if by_a { qp_a } else { qp_b }, false);
                let reasons = ended(&mut world, (qp_a, qp_b));
                assert_eq!(reasons, [DisconnectReason::Graceful; 2]);
                if !pairs.is_empty() {
                    assert_eq!(associations(&world), [1, 1]);
                }
            }
            assert_all_gone(&mut world, 8);
        }
    }
}

/// Connects so many queue pairs at once.
fn connect_at_once(world: &mut World, count: usize) -> Vec<QpNum> {
    world.b.listen(128, world.now);
    let qps: Vec<_> = (0..count)
        .map(|_| world.start_connect(MpaOptions::default(), b""))
        .collect();
    let all = world.run_until(PATIENCE, |w| {
        while let Some((request, ..)) = w.b.take_request() {
            let command = Command::Accept {
                request,
                qp: w.b.create_qp(),
                mpa: MpaOptions::default(),
                private_data: Vec::new(),
            };
            w.b.shard.execute(command, w.now).unwrap();
        }
        qps.iter().all(|qp| w.a.is_established(*qp))
    });
    assert!(all, "{:?} {:?}", world.a.events, world.b.events);
    qps
}

#[test]
fn those_that_connect_while_it_is_set_up_share_it_as_far_as_it_has_streams() {
    for (seed, impairment) in [(1, Impairment::NONE), (2, ROUGH)] {
        for (count, expected) in [(2, 1), (STREAMS, 1), (STREAMS + 1, 2), (2 * STREAMS + 3, 3)] {
            let mut world = world(seed, impairment);
            let qps = connect_at_once(&mut world, count);
            assert_eq!(associations(&world), [expected; 2]);
            for qp in qps {
                disconnect(&mut world, true, qp, false);
            }
            assert_all_gone(&mut world, count);
        }
    }
}

/// Its stream is free again when both sides have ended it (RFC 5043 section 6.6).
#[test]
fn streams_are_used_again_by_sessions_that_follow() {
    for impairment in [Impairment::NONE, ROUGH] {
        let mut world = world(7, impairment);
        let first = world.connect();
        for round in 0..3 * STREAMS {
            let next = world.connect();
            transfer(&mut world, &[first, next], round as u64);
            let by_a = round % 2 == 0;
            disconnect(&mut world, by_a, if by_a { next.0 } else { next.1 }, false);
            assert_eq!(ended(&mut world, next), [DisconnectReason::Graceful; 2]);
            assert_eq!(associations(&world), [1, 1]);
            let command = Command::RemoveQp { qp: next.0 };
            world.a.shard.execute(command, world.now).unwrap();
            let command = Command::RemoveQp { qp: next.1 };
            world.b.shard.execute(command, world.now).unwrap();
        }
        disconnect(&mut world, true, first.0, false);
        assert_all_gone(&mut world, 1 + 3 * STREAMS);
    }
}

#[test]
fn one_that_is_aborted_is_ended_by_a_terminate_and_the_others_go_on() {
    for impairment in [Impairment::NONE, ROUGH] {
        for by_a in [true, false] {
            let mut world = world(1, impairment);
            let pairs: Vec<_> = (0..3).map(|_| world.connect()).collect();
            let (remote, from) = (world.b.stag, 6 << 20);
            let of_it = pairs[1];
            let a = &mut world.a;
            a.post_work(of_it.0, WrOpcode::Write, 7, from, (remote, from), 1 << 20);
            world.run_for(Duration::from_micros(200));
            disconnect(&mut world, by_a, if by_a { of_it.0 } else { of_it.1 }, true);
            let reasons = ended(&mut world, of_it);
            assert_eq!(reasons[usize::from(!by_a)], DisconnectReason::Aborted);
            assert_eq!(associations(&world), [1, 1]);
            transfer(&mut world, &[pairs[0], pairs[2]], 1);
            // The last one has the association to itself.
            disconnect(
                &mut world,
                by_a,
                if by_a { pairs[0].0 } else { pairs[0].1 },
                true,
            );
            ended(&mut world, pairs[0]);
            transfer(&mut world, &[pairs[2]], 2);
            disconnect(
                &mut world,
                by_a,
                if by_a { pairs[2].0 } else { pairs[2].1 },
                true,
            );
            let reasons = ended(&mut world, pairs[2]);
            assert_eq!(reasons[usize::from(by_a)], DisconnectReason::Reset);
            assert_all_gone(&mut world, 3);
        }
    }
}

/// RFC5043-11.3-2, RFC5041-3-9: an error of one stream is the others' no more than another association's.
#[test]
fn an_error_ends_the_stream_that_it_is_of() {
    let mut world = world(1, Impairment::NONE);
    let pairs: Vec<_> = (0..3).map(|_| world.connect()).collect();
    let nobodys = Stag::from_parts(9, 9);
    world
        .a
        .post_work(pairs[1].0, WrOpcode::Write, 1, 0, (nobodys, 0), 100);
    let control = 0x1100;
    let reasons = ended(&mut world, pairs[1]);
    let expected = [
        DisconnectReason::TerminateReceived { control },
        DisconnectReason::TerminateSent { control },
    ];
    assert_eq!(reasons, expected);
    assert_eq!(associations(&world), [1, 1]);
    transfer(&mut world, &[pairs[0], pairs[2]], 1);
    for (qp, _) in [pairs[0], pairs[2]] {
        disconnect(&mut world, true, qp, false);
    }
    assert_all_gone(&mut world, 3);
}

/// The peer ends the last session, and the association with it, while another joins. How often that began again.
fn joins_late(seed: u64) -> u64 {
    let impairment = if seed.is_multiple_of(2) {
        Impairment::NONE
    } else {
        ROUGH
    };
    let mut world = world(seed, impairment);
    let first = world.connect();
    disconnect(&mut world, false, first.1, false);
    world.run_for(Duration::from_micros(10 * (seed % 30)));
    let second = world.connect();
    transfer(&mut world, &[second], 1);
    let again = world.a.counter("sessions_begun_again");
    disconnect(&mut world, true, second.0, false);
    assert_all_gone(&mut world, 2);
    again
}

#[test]
fn one_that_joins_too_late_begins_again_on_an_association_of_its_own() {
    // In very few of them it is too late: it goes on until one was.
    let mut all = 100..400;
    assert!(all.any(|seed| joins_late(seed) > 0));
    for seed in (1..=10).chain(seeds(0)) {
        joins_late(seed);
    }
}

#[test]
fn one_that_the_peer_has_no_place_for_is_refused_and_the_others_go_on() {
    // By the listener's backlog, and by the peer's table.
    for table in [false, true] {
        let mut of_b = config();
        if table {
            of_b.shard.limits.associations = 2;
        }
        let mut world = world_of(1, Impairment::NONE, config(), of_b);
        world.b.listen(if table { 16 } else { 1 }, world.now);
        world.start_connect(MpaOptions::default(), b"");
        if table {
            world.start_connect(MpaOptions::default(), b"");
        }
        world.run_for(Duration::from_secs(1));
        let refused = world.start_connect(MpaOptions::default(), b"");
        let is_refused = world.run_until(PATIENCE, |w| {
            w.a.client_events().any(|event| {
                matches!(
                    event,
                    Event::ConnectFailed { qp, reason: DisconnectReason::Refused, .. } if *qp == refused
                )
            })
        });
        assert!(is_refused, "{:?} {:?}", world.a.events, world.b.events);
        assert_eq!(world.a.counter("sessions_begun_again"), 1);
        let (request, ..) = world.b.take_request().expect("it waits");
        let qp = world.b.create_qp();
        let command = Command::Accept {
            request,
            qp,
            mpa: MpaOptions::default(),
            private_data: Vec::new(),
        };
        world.b.shard.execute(command, world.now).unwrap();
        let there = world.run_until(PATIENCE, |w| {
            w.a.client_events()
                .any(|e| matches!(e, Event::Established { .. }))
        });
        assert!(there, "{:?}", world.a.events);
    }
}

/// Small messages of all at once: there are far more than chunks.
#[test]
fn none_waits_for_ever_while_others_have_all_chunks() {
    for (seed, impairment) in [(1, Impairment::NONE), (2, ROUGH)] {
        let mut world = world(seed, impairment);
        let qps = connect_at_once(&mut world, STREAMS);
        let remote = world.b.stag;
        for (at, qp) in qps.iter().enumerate() {
            for write in 0..100 {
                let id = (1000 * at + write) as u64;
                let a = &mut world.a;
                a.push_work(*qp, WrOpcode::Write, id, 0, (remote, 0), 32);
            }
            world.a.ring(*qp);
        }
        let done = world.run_until(PATIENCE, |w| {
            (0..qps.len()).all(|at| w.a.completion((1000 * at + 99) as u64).is_some())
        });
        assert!(done);
        // An idle one is not held up by those that are busy.
        for qp in &qps[1..] {
            world
                .a
                .post_work(*qp, WrOpcode::Write, 1, 0, (remote, 0), 4 << 20);
        }
        world.run_for(Duration::from_millis(1));
        let before = world.now;
        world
            .a
            .post_work(qps[0], WrOpcode::Write, 77_777, 0, (remote, 0), 32);
        let done = world.run_until(PATIENCE, |w| w.a.completion(77_777).is_some());
        assert!(done);
        let took = world.now.saturating_duration_since(before);
        assert!(took < Duration::from_secs(5), "{took:?}");
    }
}

#[test]
fn a_port_that_was_chosen_has_an_association_of_its_own() {
    let mut world = world(1, Impairment::NONE);
    let first = world.connect();
    world.a.may_share = false;
    let second = world.connect();
    assert_eq!(associations(&world), [2, 2]);
    transfer(&mut world, &[first, second], 1);
}

/// Whatever ends an association ends all on it.
#[test]
fn with_the_peers_host_all_sessions_end() {
    let mut world = world(1, Impairment::NONE);
    let pairs: Vec<_> = (0..4).map(|_| world.connect()).collect();
    let interface = "eth0".to_owned();
    let command = Command::InterfaceGone { interface };
    world.b.shard.execute(command, world.now).unwrap();
    for (qp_a, qp_b) in &pairs {
        let reasons = ended(&mut world, (*qp_a, *qp_b));
        let expected = [DisconnectReason::Reset, DisconnectReason::InterfaceGone];
        assert_eq!(reasons, expected);
    }
    assert_all_gone(&mut world, 4);
}

#[test]
fn sessions_are_as_many_as_there_may_be() {
    let mut of_a = config();
    of_a.shard.limits.associations = 2;
    let mut world = world_of(1, Impairment::NONE, of_a, config());
    world.connect();
    world.connect();
    let qp = world.a.create_qp();
    let path = world.a.path_to(&world.b);
    let (remote, now) = (world.b.address, world.now);
    let refused = world
        .a
        .connect(qp, 50_000, remote, path, MpaOptions::default(), b"", now);
    let is_limit = matches!(refused, Err(CommandError::Limit { limit: 2, .. }));
    assert!(is_limit, "{refused:?}");
}

/// Its port is free again, however it ends before it is answered.
#[test]
fn one_that_is_not_answered_gives_its_port_back() {
    for removes in [false, true] {
        for (seed, wait) in [0, 100, 250, 1000].into_iter().enumerate() {
            let mut world = world(seed as u64, Impairment::NONE);
            let first = world.connect();
            let qp = world.start_connect(MpaOptions::default(), b"");
            world.run_for(Duration::from_micros(wait));
            let command = match removes {
                true => Command::RemoveQp { qp },
                false => Command::Disconnect { qp, abort: true },
            };
            world.a.shard.execute(command, world.now).unwrap();
            transfer(&mut world, &[first], 1);
            assert_eq!(associations(&world), [1, 1]);
            disconnect(&mut world, true, first.0, false);
            assert_all_gone(&mut world, 2);
        }
    }
    // While the association is set up.
    let mut world = world(1, Impairment::NONE);
    world.b.listen(16, world.now);
    for _ in 0..3 {
        let qp = world.start_connect(MpaOptions::default(), b"");
        disconnect(&mut world, true, qp, true);
    }
    assert_all_gone(&mut world, 3);
}

/// The peer's word that the session before is over comes with the next one's first.
#[test]
fn a_stream_may_be_used_again_as_soon_as_its_session_is_over() {
    let mut world = world(5, Impairment::NONE);
    let first = world.connect();
    let mut count = 1;
    // All streams.
    for _ in 1..STREAMS {
        let next = world.connect();
        disconnect(&mut world, true, next.0, false);
        ended(&mut world, next);
        count += 1;
    }
    for _ in 0..20 {
        let next = world.connect();
        disconnect(&mut world, true, next.0, false);
        let over = world.run_until(PATIENCE, |w| w.a.disconnected(next.0).is_some());
        assert!(over);
        let command = Command::RemoveQp { qp: next.0 };
        world.a.shard.execute(command, world.now).unwrap();
        let after = world.connect();
        assert_eq!(ended(&mut world, next), [DisconnectReason::Graceful; 2]);
        disconnect(&mut world, true, after.0, false);
        assert_eq!(ended(&mut world, after), [DisconnectReason::Graceful; 2]);
        for (qp_a, qp_b) in [next, after] {
            let (a, b) = (&mut world.a.shard, &mut world.b.shard);
            let _ = a.execute(Command::RemoveQp { qp: qp_a }, world.now);
            b.execute(Command::RemoveQp { qp: qp_b }, world.now)
                .unwrap();
        }
        count += 2;
    }
    assert_eq!(world.a.counter("sessions_begun_again"), 0);
    disconnect(&mut world, true, first.0, false);
    assert_all_gone(&mut world, count);
}

/// A peer that may not connect any more begins no session on the association that it has.
#[test]
fn peers_are_judged_with_each_session() {
    let mut world = world(1, Impairment::NONE);
    let first = world.connect();
    let mut peers = PeerRules::default();
    peers.add(ListOwner::Listener, AllowList::new(Vec::new()).unwrap());
    let command = Command::SetPeerRules {
        listener: LISTENER,
        peers,
    };
    world.b.shard.execute(command, world.now).unwrap();
    let qp = world.start_connect(MpaOptions::default(), b"");
    let failed = world.run_until(8 * PATIENCE, |w| {
        w.a.client_events()
            .any(|event| matches!(event, Event::ConnectFailed { qp: of, .. } if *of == qp))
    });
    assert!(failed, "{:?}", world.a.events);
    assert!(world.b.counter("peers_refused_listener") > 1);
    transfer(&mut world, &[first], 1);
}

/// Another association has no place: the program is told so, and the port is free again.
#[test]
fn one_that_has_no_place_to_begin_again_ends() {
    let mut of_a = config();
    of_a.shard.limits.associations = 2;
    let mut world = world_of(1, Impairment::NONE, of_a, config());
    // Its backlog takes the first one.
    world.b.listen(1, world.now);
    let first = world.start_connect(MpaOptions::default(), b"");
    world.run_for(Duration::from_secs(1));
    let second = world.start_connect(MpaOptions::default(), b"");
    world.run_for(Duration::from_secs(1));
    let failed = world.a.client_events().find_map(|event| match event {
        Event::ConnectFailed {
            qp,
            reason,
            message,
        } => Some((*qp, *reason, message.clone())),
        _ => None,
    });
    let (qp, reason, message) = failed.expect("a failure");
    assert_eq!((qp, reason), (second, DisconnectReason::LocalError));
    assert!(message.contains("again: "), "{message}");
    assert_eq!(world.a.counter("sessions_begun_again"), 1);
    assert_eq!(world.a.counter("startup_failed"), 1);
    disconnect(&mut world, true, first, true);
    assert_all_gone(&mut world, 2);
}

/// Only by those that go to the same address and port.
#[test]
fn no_association_is_shared_on_the_way_to_another_peer() {
    let mut duel = SctpDuel::new(config());
    duel.side.may_share = true;
    for (at, (who, expected)) in [(HOSTILE, 1), (OTHER, 2), (HOSTILE, 2)]
        .into_iter()
        .enumerate()
    {
        let SctpDuel { side, peers, now } = &mut duel;
        let (qp, port) = (side.create_qp(), 7000 + at as u16);
        let (remote, path) = (peers[who].address(), peers[who].way_to_it());
        if at < 2 {
            peers[who].listen_for(side.address.ip(), port);
        }
        let mpa = MpaOptions::default();
        side.connect(qp, port, remote, path, mpa, b"", *now)
            .unwrap();
        duel.pump();
        let levels = duel.side.shard.levels();
        assert_eq!(levels.associations, expected, "{levels:?}");
    }
    let asked = duel.peers.map(|peer| peer.data.len());
    assert_eq!(asked, [2, 1], "sessions");
}
