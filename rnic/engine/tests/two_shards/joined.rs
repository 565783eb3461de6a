//! Queue pairs that are joined by number: what differs from a connection that a program asks for.

use std::time::Duration;

use rnic_engine::command::{Command, JoinEvent, ShardEvent};
use rnic_engine::shard::ShardConfig;
use rnic_ipc::control::{MpaOptions, QpState};
use rnic_ipc::id::QpNum;
use rnic_ipc::work::{Sge, WcStatus, WrOpcode};

use crate::impairment::Impairment;
use crate::link::ROUGH;
use crate::side::{Side, pattern};
use crate::world::World;

const SOON: Duration = Duration::from_secs(5);

fn set_joined(side: &mut Side, qp: QpNum, reply: Option<&[u8]>, world_now: userspace_net::Instant) {
    let reply = reply.map(Into::into);
    let command = Command::SetJoined { qp, reply };
    side.shard.execute(command, world_now).unwrap();
}

/// The next thing that was told of the join.
fn take_event(side: &mut Side) -> Option<JoinEvent> {
    let is_join = |event: &ShardEvent| matches!(event, ShardEvent::Join { .. });
    let at = side.events.iter().position(is_join)?;
    match side.events.remove(at) {
        ShardEvent::Join { event, .. } => Some(event),
        _ => None,
    }
}

/// Connects `qp` of `a` from another port than before.
fn connect(world: &mut World, qp: QpNum, port: u16) {
    let (path, remote) = (world.a.path_to(&world.b), world.b.address);
    let mpa = MpaOptions::default();
    let connected = world
        .a
        .connect(qp, port, remote, path, mpa, b"ask", world.now);
    connected.unwrap();
}

/// Answers what `a` asks, with this private data, and waits until `a` tells the result.
fn answer(world: &mut World, qp_b: QpNum, private_data: &[u8]) -> JoinEvent {
    let mut told = None;
    let done = world.run_until(SOON, |w| {
        if let Some((request, _, asked)) = w.b.take_request() {
            assert_eq!(asked, b"ask");
            let command = Command::Accept {
                request,
                qp: qp_b,
                mpa: MpaOptions::default(),
                private_data: private_data.to_vec(),
            };
            w.b.shard.execute(command, w.now).unwrap();
        }
        told = told.take().or_else(|| take_event(&mut w.a));
        told.is_some()
    });
    assert!(done);
    told.unwrap()
}

#[test]
fn an_attempt_that_fails_leaves_the_queue_pair_idle_with_its_work() {
    let mut world = World::new(1, Impairment::NONE);
    let now = world.now;
    let (qp, wrong, right) = (
        world.a.create_qp(),
        world.b.create_qp(),
        world.b.create_qp(),
    );
    set_joined(&mut world.a, qp, Some(b"answer"), now);
    world.a.post_recv(qp, 1, 0, 100);
    // Nobody listens.
    connect(&mut world, qp, 41_000);
    let failed = |event: JoinEvent| matches!(event, JoinEvent::Failed { .. });
    assert!(failed(answer(&mut world, wrong, b"")));
    assert_eq!(world.a.state(qp), QpState::Idle);
    // Somebody else answers.
    world.b.listen(4, world.now);
    connect(&mut world, qp, 41_001);
    assert!(failed(answer(&mut world, wrong, b"answer of another")));
    assert_eq!(world.a.state(qp), QpState::Idle);
    connect(&mut world, qp, 41_002);
    assert_eq!(answer(&mut world, right, b"answer"), JoinEvent::Established);
    assert_eq!(
        world.a.client_events().count(),
        1,
        "it is told of the last alone"
    );
    assert!(world.a.completion(1).is_none());

    let to_a = (world.a.stag, 0);
    world.b.post_work(right, WrOpcode::Send, 2, 0, to_a, 50);
    assert!(world.run_until(SOON, |w| w.a.completion(1).is_some()));

    let disconnect = Command::Disconnect {
        qp: right,
        abort: true,
    };
    world.b.shard.execute(disconnect, world.now).unwrap();
    assert!(world.run_until(SOON, |w| take_event(&mut w.a) == Some(JoinEvent::Ended)));
    // Nothing was being sent: the next that is to be sent fails.
    assert_eq!(world.a.state(qp), QpState::Rts);
    world.a.post_work(qp, WrOpcode::Send, 3, 0, to_a, 50);
    assert!(world.run_until(SOON, |w| w.a.completion(3).is_some()));
    let status = world.a.completion(3).map(|completion| completion.status);
    assert_eq!(status, Some(WcStatus::RetryExceeded as u8));
    assert_eq!(world.a.state(qp), QpState::Error);
}

/// Two queue pairs that are joined, in RDMA mode.
fn joined(world: &mut World) -> (QpNum, QpNum) {
    let now = world.now;
    let (qp_a, qp_b) = (world.a.create_qp(), world.b.create_qp());
    set_joined(&mut world.a, qp_a, Some(b"answer"), now);
    set_joined(&mut world.b, qp_b, Some(b""), now);
    world.b.listen(4, now);
    connect(world, qp_a, 41_000);
    assert_eq!(answer(world, qp_b, b"answer"), JoinEvent::Established);
    (qp_a, qp_b)
}

#[test]
fn a_write_completes_when_the_peer_has_its_bytes() {
    for seed in 0..20 {
        let mut world = World::new(seed, ROUGH);
        let (qp, _) = joined(&mut world);
        let sink = (world.b.stag, 0);
        for wr_id in 0..10 {
            let len = 1 + (wr_id as usize * 2311 + seed as usize * 7) % 20_000;
            world.a.fill(0, len, seed * 100 + wr_id);
            world.a.post_work(qp, WrOpcode::Write, wr_id, 0, sink, len);
            assert!(world.run_until(SOON, |w| w.a.completion(wr_id).is_some()));
            let there = world.b.read(0, len);
            assert_eq!(
                there,
                pattern(len, seed * 100 + wr_id),
                "seed {seed}, {wr_id}"
            );
        }
    }
}

/// Nobody waits for an acknowledgment that is delayed.
#[test]
fn a_message_alone_completes_within_a_round_trip() {
    let mut world = World::new(1, Impairment::NONE);
    let (qp, _) = joined(&mut world);
    world.run_for(Duration::from_secs(1));
    let sink = (world.b.stag, 0);
    let ack_delay = ShardConfig::default().tcp.ack_delay;
    for wr_id in 0..5 {
        let begun = world.now;
        world.a.post_work(qp, WrOpcode::Write, wr_id, 0, sink, 8);
        assert!(world.run_until(SOON, |w| w.a.completion(wr_id).is_some()));
        let took = world.now.saturating_duration_since(begun);
        assert!(took < ack_delay / 2, "{took:?}");
    }
}

#[test]
fn a_send_to_a_joined_queue_pair_waits_for_its_receive_over_a_rough_link() {
    let mut world = World::new(7, ROUGH);
    let (qp_a, qp_b) = joined(&mut world);
    let to_b = (world.b.stag, 0);
    world.a.post_work(qp_a, WrOpcode::Send, 1, 0, to_b, 50);
    world.run_for(Duration::from_secs(30));
    assert_eq!(world.b.state(qp_b), QpState::Rts);
    world.b.post_recv(qp_b, 2, 0, 100);
    assert!(world.run_until(SOON, |w| w.b.completion(2).is_some()));
    // As it was made it ends the stream.
    let fail = |qp, state| Command::ModifyQp { qp, state };
    for (qp, state) in [(qp_b, QpState::Error), (qp_b, QpState::Idle)] {
        let done = world.b.shard.execute(fail(qp, state), world.now);
        done.unwrap();
    }
    let qp_a = world.a.create_qp();
    connect(&mut world, qp_a, 41_001);
    assert!(world.run_until(SOON, |w| {
        if let Some((request, ..)) = w.b.take_request() {
            let command = Command::Accept {
                request,
                qp: qp_b,
                mpa: MpaOptions::default(),
                private_data: Vec::new(),
            };
            w.b.shard.execute(command, w.now).unwrap();
        }
        w.a.is_established(qp_a)
    }));
    world.a.post_work(qp_a, WrOpcode::Send, 3, 0, to_b, 50);
    assert!(world.run_until(SOON, |w| w.a.disconnected(qp_a).is_some()));
}

/// The peer's acknowledgment of the message comes after its Terminate.
#[test]
fn a_send_that_the_peer_can_not_place_is_named() {
    let mut world = World::new(1, Impairment::NONE);
    let (qp_a, qp_b) = joined(&mut world);
    world.run_for(Duration::from_secs(1));
    let to_b = (world.b.stag, 0);
    let sge = Sge {
        lkey: world.b.stag.0 ^ 0xff,
        ..world.b.sge(0, 100)
    };
    world.b.post_recv_into(qp_b, 1, sge);
    world.a.post_work(qp_a, WrOpcode::Send, 2, 0, to_b, 50);
    assert!(world.run_until(SOON, |w| w.a.completion(2).is_some()));
    let status = world.a.completion(2).map(|completion| completion.status);
    assert_eq!(status, Some(WcStatus::RemoteOperation as u8));
}
