//! DDP over SCTP: the same work over the second lower layer, and what its sessions have of their own.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rnic_engine::command::{Command, CommandError, ShardEvent};
use rnic_ipc::capture::Filter;
use rnic_ipc::control::{DisconnectReason, Event, MpaOptions, QpState, Transport};
use rnic_ipc::id::{ConnRequestId, QpNum};
use rnic_ipc::work::WrOpcode;
use rnic_net::{IcmpReport, Quoted};
use userspace_net::FourTuple;
use userspace_tcp::IcmpError;

use crate::hostile::Tape;
use crate::impairment::Impairment;
use crate::link::ROUGH;
use crate::random::seeds;
use crate::side::{SideConfig, pattern};
use crate::transfer::every_size;
use crate::world::World;

const PATIENCE: Duration = Duration::from_secs(120);

fn world(seed: u64, impairment: Impairment) -> World {
    World::new(seed, impairment).over_sctp()
}

#[test]
fn every_operation_of_every_size_arrives() {
    every_size(world(1, Impairment::NONE));
}

#[test]
fn every_operation_of_every_size_arrives_over_ipv6_and_other_mtus() {
    for (mtu, v6) in [(1280, true), (4096, false), (9000, true)] {
        let (a, b) = (SideConfig::of_mtu(mtu), SideConfig::of_mtu(mtu));
        every_size(World::with(1, Impairment::NONE, a, b, v6).over_sctp());
    }
}

/// What comes out of order is placed when it comes.
#[test]
fn every_operation_of_every_size_arrives_over_a_rough_link() {
    let mut early = 0;
    for seed in seeds(4) {
        let mut world = every_size(world(seed, ROUGH));
        early += world.b.counter("bytes_placed_early");
        early += world.a.counter("bytes_placed_early");
    }
    assert!(early > 100_000, "{early} bytes were placed early");
}

/// A connection's end is told to both, and nothing is left.
fn ends(world: &mut World, (qp_a, qp_b): (QpNum, QpNum)) -> [DisconnectReason; 2] {
    let ended = world.run_until(PATIENCE, |w| {
        w.a.disconnected(qp_a).is_some() && w.b.disconnected(qp_b).is_some()
    });
    assert!(ended, "{:?} {:?}", world.a.events, world.b.events);
    world.run_for(Duration::from_secs(20));
    for side in [&world.a, &world.b] {
        let levels = side.shard.levels();
        assert_eq!(levels.connections, 0, "{levels:?}");
    }
    world.assert_no_frame_lost();
    let reasons = [world.a.disconnected(qp_a), world.b.disconnected(qp_b)];
    reasons.map(Option::unwrap)
}

#[test]
fn either_side_ends_a_session_and_its_association_with_it() {
    for by_a in [true, false] {
        for seed in seeds(3) {
            let impairment = if seed == 0 { Impairment::NONE } else { ROUGH };
            let mut world = world(seed, impairment);
            let (qp_a, qp_b) = world.connect();
            let (side, qp) = if by_a {
                (&mut world.a, qp_a)
            } else {
                (&mut world.b, qp_b)
            };
            let command = Command::Disconnect { qp, abort: false };
            side.shard.execute(command, world.now).unwrap();
            let reasons = ends(&mut world, (qp_a, qp_b));
            assert_eq!(reasons, [DisconnectReason::Graceful; 2], "by a: {by_a}");
            let released = |event: &&ShardEvent| {
                matches!(
                    event,
                    ShardEvent::Released { transport: Transport::Sctp, local } if local.port() > 40_000
                )
            };
            assert_eq!(world.a.events.iter().filter(released).count(), 1);
        }
    }
}

#[test]
fn an_abort_is_told_to_the_peer() {
    let mut world = world(1, Impairment::NONE);
    let (qp_a, qp_b) = world.connect();
    let command = Command::Disconnect {
        qp: qp_b,
        abort: true,
    };
    world.b.shard.execute(command, world.now).unwrap();
    let reasons = ends(&mut world, (qp_a, qp_b));
    assert_eq!(
        reasons,
        [DisconnectReason::Reset, DisconnectReason::Aborted]
    );
}

#[test]
fn a_write_to_memory_that_is_not_registered_ends_in_a_terminate() {
    let mut world = world(1, Impairment::NONE);
    let (qp_a, qp_b) = world.connect();
    let nobodys = rnic_proto::Stag::from_parts(9, 9);
    world
        .a
        .post_work(qp_a, WrOpcode::Write, 1, 0, (nobodys, 0), 100);
    let reasons = ends(&mut world, (qp_a, qp_b));
    let control = 0x1100;
    assert_eq!(
        reasons,
        [
            DisconnectReason::TerminateReceived { control },
            DisconnectReason::TerminateSent { control }
        ]
    );
    assert_eq!(world.a.state(qp_a), QpState::Error);
}

#[test]
fn a_rejection_brings_its_private_data() {
    let mut world = world(1, Impairment::NONE);
    world.b.listen(4, world.now);
    let qp = world.start_connect(MpaOptions::default(), b"hello");
    let rejected = world.run_until(PATIENCE, |w| {
        if let Some((request, mpa, data)) = w.b.take_request() {
            assert_eq!(data, b"hello");
            assert_eq!((mpa.revision, mpa.ird, mpa.ord), (2, 16, 16));
            let private_data = b"no".to_vec();
            let command = Command::Reject {
                request,
                private_data,
            };
            w.b.shard.execute(command, w.now).unwrap();
        }
        w.a.client_events().any(|event| {
            matches!(event, Event::Rejected { qp: of, private_data, .. } if *of == qp && private_data == b"no")
        })
    });
    assert!(rejected, "{:?}", world.a.events);
    world.run_for(Duration::from_secs(20));
    assert_eq!(world.a.shard.levels().connections, 0);
    assert_eq!(world.b.shard.levels().connections, 0);
    world.assert_no_frame_lost();
}

fn refused(world: &World, qp: QpNum) -> bool {
    world.a.client_events().any(|event| {
        matches!(
            event,
            Event::ConnectFailed { qp: of, reason: DisconnectReason::Refused, .. } if *of == qp
        )
    })
}

/// RFC5043-6.4-4, RFC5043-6.3-3: what no application decides is no Reject.
#[test]
fn a_request_over_the_limit_or_refused_by_the_prm_gets_a_terminate() {
    let mut world = world(1, Impairment::NONE);
    world.b.listen(1, world.now);
    let first = world.start_connect(MpaOptions::default(), b"first");
    let mut waiting = None;
    assert!(world.run_until(PATIENCE, |w| {
        waiting = w.b.take_request();
        waiting.is_some()
    }));
    let second = world.start_connect(MpaOptions::default(), b"second");
    let is_refused = world.run_until(PATIENCE, |w| refused(w, second));
    assert!(is_refused, "{:?}", world.a.events);
    assert_eq!(world.b.counter("backlog_full"), 1);
    let (request, _, data) = waiting.unwrap();
    assert_eq!(data, b"first");
    let command = Command::Refuse { request };
    world.b.shard.execute(command, world.now).unwrap();
    let is_refused = world.run_until(PATIENCE, |w| refused(w, first));
    assert!(is_refused, "{:?}", world.a.events);
    world.run_for(Duration::from_secs(20));
    assert_eq!(world.a.shard.levels().connections, 0);
    assert_eq!(world.b.shard.levels().connections, 0);
    world.assert_no_frame_lost();
}

#[test]
fn nobody_listens_for_sctp_where_only_tcp_is_listened_to() {
    let mut world = World::new(1, Impairment::NONE);
    world.b.listen(4, world.now);
    world.a.transport = Transport::Sctp;
    let qp = world.start_connect(MpaOptions::default(), b"");
    let is_refused = world.run_until(PATIENCE, |w| refused(w, qp));
    assert!(is_refused, "{:?}", world.a.events);
}

/// A request that waits at b, and the queue pair that asks.
fn request(world: &mut World, transport: Transport) -> (ConnRequestId, QpNum) {
    world.a.transport = transport;
    world.b.transport = transport;
    world.b.listen(4, world.now);
    let qp = world.start_connect(MpaOptions::default(), b"");
    let mut waiting = None;
    assert!(world.run_until(PATIENCE, |w| {
        waiting = w.b.take_request().map(|(request, ..)| request);
        waiting.is_some()
    }));
    (waiting.unwrap(), qp)
}

fn accept(request: ConnRequestId, qp: QpNum) -> Command {
    Command::Accept {
        request,
        qp,
        mpa: MpaOptions::default(),
        private_data: Vec::new(),
    }
}

/// What the client gets wrong is told, and the request is still there to be answered.
#[test]
fn a_request_outlives_an_accept_by_a_queue_pair_that_is_not_idle() {
    for transport in [Transport::Sctp, Transport::Tcp] {
        for accepts in [true, false] {
            let mut world = World::new(1, Impairment::NONE);
            let (first, _) = request(&mut world, transport);
            let used = world.b.create_qp();
            world
                .b
                .shard
                .execute(accept(first, used), world.now)
                .unwrap();
            let qp_a = world.start_connect(MpaOptions::default(), b"second");
            let mut waiting = None;
            assert!(world.run_until(PATIENCE, |w| {
                waiting = w.b.take_request().map(|(request, ..)| request);
                waiting.is_some()
            }));
            let second = waiting.unwrap();
            let refused = world.b.shard.execute(accept(second, used), world.now);
            let is_refused = matches!(refused, Err(CommandError::WrongState { .. }));
            assert!(is_refused, "{refused:?}");
            let unknown = world.b.shard.execute(accept(second, QpNum(999)), world.now);
            let is_unknown = matches!(unknown, Err(CommandError::Unknown { .. }));
            assert!(is_unknown, "{unknown:?}");
            let qp_b = world.b.create_qp();
            let command = match accepts {
                true => accept(second, qp_b),
                false => Command::Reject {
                    request: second,
                    private_data: b"no".to_vec(),
                },
            };
            world.b.shard.execute(command, world.now).unwrap();
            let is_answered = world.run_until(PATIENCE, |w| match accepts {
                true => w.a.is_established(qp_a) && w.b.is_established(qp_b),
                false => {
                    w.a.client_events()
                        .any(|event| matches!(event, Event::Rejected { qp, .. } if *qp == qp_a))
                }
            });
            assert!(is_answered, "{transport:?}: {:?}", world.a.events);
        }
    }
}

/// RFC9260-10-2 to RFC9260-10-5, RFC9260-10-10.
#[test]
fn of_unreachables_only_a_host_without_sctp_ends_an_association() {
    let mut world = world(1, Impairment::NONE);
    let (qp_a, _) = world.connect();
    let frames = Arc::new(Mutex::new(Vec::new()));
    let capture = Command::AddCapture {
        number: 0,
        filter: Filter::default(),
        sink: Box::new(Tape(Arc::clone(&frames))),
    };
    world.a.shard.execute(capture, world.now).unwrap();
    let remote = world.b.stag;
    let opcode = WrOpcode::Write;
    world.a.post_work(qp_a, opcode, 1, 0, (remote, 0), 64);
    world.a.shard.poll(world.now);
    let (_, sent) = frames.lock().unwrap().pop().expect("a packet is under way");
    // Behind the headers of Ethernet and IPv4: ports and tag.
    let port = u16::from_be_bytes([sent[34], sent[35]]);
    let tag = u32::from_be_bytes([sent[38], sent[39], sent[40], sent[41]]);
    let own = SocketAddr::new(world.a.address.ip(), port);
    let report = |hard, no_protocol| IcmpReport {
        tuple: FourTuple::new(own, world.b.address),
        quoted: Quoted::Packet {
            tag,
            init_tag: None,
            no_protocol,
        },
        error: IcmpError::Unreachable { hard },
    };
    let reports = vec![report(false, false), report(true, false)];
    let gone = vec![report(true, true)];
    let now = world.now;
    let shard = &mut world.a.shard;
    shard.execute(Command::IcmpErrors { reports }, now).unwrap();
    assert_eq!(world.a.counter("icmp_ignored"), 2);
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.a.disconnected(qp_a), None);
    let command = Command::IcmpErrors { reports: gone };
    world.a.shard.execute(command, world.now).unwrap();
    let ended = world.run_until(PATIENCE, |w| w.a.disconnected(qp_a).is_some());
    assert!(ended, "{:?}", world.a.events);
}

/// Many sessions at once, each with its bytes.
#[test]
fn sessions_of_one_client_move_their_own_bytes() {
    for impairment in [Impairment::NONE, ROUGH] {
        let mut world = world(3, impairment);
        let pairs: Vec<_> = (0..8).map(|_| world.connect()).collect();
        let remote = world.b.stag;
        const LEN: usize = 300_000;
        for (at, (qp_a, qp_b)) in pairs.iter().enumerate() {
            let (from, to) = (at * LEN, at * LEN);
            world.a.fill(from, LEN, at as u64);
            world.b.post_recv(*qp_b, 100 + at as u64, 4 << 20, 64);
            let a = &mut world.a;
            a.push_work(*qp_a, WrOpcode::Write, at as u64, from, (remote, to), LEN);
            a.post_work(*qp_a, WrOpcode::Send, 50 + at as u64, from, (remote, 0), 64);
        }
        let arrived = world.run_until(PATIENCE, |w| {
            (0..8).all(|at| w.b.completion(100 + at).is_some())
        });
        assert!(arrived, "{:?}", world.b.events);
        for at in 0..8 {
            assert!(world.b.read(at * LEN, LEN) == pattern(LEN, at as u64));
        }
    }
}
