//! A peer that vanishes is given up after the user timeout, whatever it was waited for; one that owes
//! nothing may be silent.

use std::time::Duration;

use rnic_engine::command::Command;
use rnic_ipc::control::{DisconnectReason, Event, QpState};
use rnic_ipc::id::QpNum;
use rnic_ipc::work::{WcStatus, WrOpcode};
use userspace_tcp::KeepAlive;

use crate::impairment::Impairment;
use crate::raw::{Duel, write_fpdu};
use crate::rtr_retry::opened_with;
use crate::sctp_raw::{HOSTILE, SctpDuel};
use crate::side::{Side, SideConfig};
use crate::world::World;

const USER_TIMEOUT: Duration = Duration::from_secs(3);

fn config() -> SideConfig {
    let mut config = SideConfig::default();
    config.shard.tcp.user_timeout = USER_TIMEOUT;
    config
}

fn world() -> (World, QpNum) {
    let mut world = World::with(1, Impairment::NONE, config(), SideConfig::default(), false);
    let (qp, _) = world.connect();
    // It may be repeated in the meantime that we are ready to receive.
    world.run_for(Duration::from_secs(2));
    (world, qp)
}

pub fn vanish(world: &mut World) {
    world.a_to_b.cut = true;
    world.b_to_a.cut = true;
}

/// What the client learns when its connection ends.
pub fn told(side: &Side) -> Option<(DisconnectReason, String)> {
    side.client_events().find_map(|event| match event {
        Event::Disconnected {
            reason, message, ..
        } => Some((*reason, message.clone())),
        _ => None,
    })
}

/// The client is notified of a timeout when the user timeout is over, and not before.
#[track_caller]
fn given_up(world: &mut World) {
    let early = USER_TIMEOUT - Duration::from_millis(100);
    assert!(!world.run_until(early, |w| told(&w.a).is_some()), "early");
    let late = Duration::from_millis(101);
    assert!(world.run_until(late, |w| told(&w.a).is_some()), "late");
    let (reason, message) = told(&world.a).unwrap();
    assert_eq!(reason, DisconnectReason::TimedOut, "{message}");
    let peer = world.b.address.to_string();
    for words in [&*peer, "3s", "user_timeout", "connect again"] {
        assert!(message.contains(words), "no {words:?} in {message:?}");
    }
    assert_eq!(world.a.shard.levels().connections, 0);
    assert_eq!(world.a.counter("ended_timed_out"), 1);
}

#[test]
fn a_peer_that_vanishes_in_mid_transfer_is_given_up_after_the_user_timeout() {
    for opcode in [WrOpcode::Write, WrOpcode::Read] {
        let (mut world, qp) = world();
        let stag = world.b.stag;
        world.a.post_work(qp, opcode, 1, 0, (stag, 0), 1 << 20);
        world.run_for(Duration::from_micros(300));
        assert!(
            world.a.completion(1).is_none(),
            "{opcode:?} is done already"
        );
        vanish(&mut world);
        given_up(&mut world);
        // A Write completes when TCP has all of it, and may have.
        if let Some(completion) = world.a.completion(1) {
            let flushed = WcStatus::WorkRequestFlushed as u8;
            assert_eq!(completion.status, flushed, "{opcode:?}");
        }
        assert_eq!(world.a.state(qp), QpState::Error);
        let waited = u64::from(opcode == WrOpcode::Read);
        assert_eq!(world.a.counter("silence_timeouts"), waited, "{opcode:?}");
    }
}

#[test]
fn a_disconnect_that_waits_for_a_read_ends_when_the_peer_has_vanished() {
    let (mut world, qp) = world();
    let stag = world.b.stag;
    world
        .a
        .post_work(qp, WrOpcode::Read, 1, 0, (stag, 0), 1 << 20);
    world.run_for(Duration::from_micros(300));
    let disconnect = Command::Disconnect { qp, abort: false };
    world.a.shard.execute(disconnect, world.now).unwrap();
    assert_eq!(world.a.state(qp), QpState::Rts, "the Read is waited for");
    vanish(&mut world);
    given_up(&mut world);
}

#[test]
fn a_peer_that_vanishes_before_it_closes_too_is_given_up_after_the_user_timeout() {
    let (mut duel, qp, _) = opened_with(config());
    // So that the indication is not repeated.
    duel.send(&write_fpdu(0, 0, b""), 1448);
    let disconnect = Command::Disconnect { qp, abort: false };
    duel.side.shard.execute(disconnect, duel.now).unwrap();
    duel.run_for(USER_TIMEOUT - Duration::from_millis(100));
    assert_eq!(told(&duel.side), None);
    duel.run_for(Duration::from_millis(110));
    let (reason, message) = told(&duel.side).unwrap();
    assert_eq!(reason, DisconnectReason::TimedOut);
    assert!(message.contains("user_timeout"), "{message}");
    assert_eq!(duel.side.counter("close_timeouts"), 1);
}

#[test]
fn a_peer_that_talks_on_and_does_not_close_is_given_up_after_the_close_timeout() {
    let (mut duel, qp, _) = opened_with(config());
    let disconnect = Command::Disconnect { qp, abort: false };
    duel.side.shard.execute(disconnect, duel.now).unwrap();
    for _ in 0..9 {
        assert_eq!(told(&duel.side), None);
        duel.send(&write_fpdu(0, 0, b""), 1448);
        duel.run_for(Duration::from_secs(1));
    }
    duel.run_for(Duration::from_millis(1001));
    let (reason, message) = told(&duel.side).unwrap();
    assert_eq!(reason, DisconnectReason::TimedOut);
    assert!(message.contains("within 10s"), "{message}");
}

#[test]
fn a_peer_that_is_heard_of_may_take_its_time_to_answer() {
    let (mut duel, qp, _) = opened_with(config());
    let stag = duel.side.stag;
    duel.side
        .post_work(qp, WrOpcode::Read, 1, 0, (stag, 0), 100);
    for _ in 0..10 {
        duel.send(&write_fpdu(0, 0, b""), 1448);
        duel.run_for(Duration::from_secs(2));
        assert_eq!(told(&duel.side), None);
    }
    duel.run_for(Duration::from_secs(2));
    let (reason, _) = told(&duel.side).unwrap();
    assert_eq!(reason, DisconnectReason::TimedOut);
}

/// What it acknowledges is something heard, as over TCP.
#[test]
fn a_peer_over_sctp_that_only_acknowledges_is_heard_of() {
    let mut duel = SctpDuel::new(config());
    let qp = duel.open(HOSTILE);
    let stag = duel.side.stag;
    duel.side
        .post_work(qp, WrOpcode::Read, 1, 0, (stag, 0), 100);
    for wr_id in 2..12 {
        duel.side
            .post_work(qp, WrOpcode::Write, wr_id, 0, (stag, 0), 100);
        duel.run_for(Duration::from_secs(2));
        assert_eq!(told(&duel.side), None);
    }
    duel.run_for(USER_TIMEOUT - Duration::from_millis(2100));
    assert_eq!(told(&duel.side), None);
    duel.run_for(Duration::from_millis(200));
    let (reason, message) = told(&duel.side).unwrap();
    assert_eq!(reason, DisconnectReason::TimedOut, "{message}");
    assert_eq!(duel.side.counter("silence_timeouts"), 1);
}

#[test]
fn a_peer_that_owes_nothing_may_be_silent() {
    let (mut world, qp) = world();
    let stag = world.b.stag;
    for (wr_id, opcode) in [(1, WrOpcode::Read), (2, WrOpcode::Write)] {
        world.a.post_work(qp, opcode, wr_id, 0, (stag, 0), 1000);
    }
    world.run_for(Duration::from_secs(3600));
    assert!(world.a.completion(1).is_some());
    assert_eq!(told(&world.a), None);
    let stats = |w: &mut World| w.a.counter("tcp_segments_out");
    let before = stats(&mut world);
    world.a.post_work(qp, WrOpcode::Read, 3, 0, (stag, 0), 1000);
    assert!(world.run_until(Duration::from_secs(1), |w| w.a.completion(3).is_some()));
    assert!(stats(&mut world) > before);
}

#[test]
fn an_idle_peer_that_vanished_is_found_by_keep_alive_where_that_is_wanted() {
    let mut wanting = config();
    wanting.shard.tcp.keepalive = Some(KeepAlive {
        idle: Duration::from_secs(5),
        interval: Duration::from_secs(2),
        probes: 3,
    });
    let mut world = World::with(1, Impairment::NONE, wanting, SideConfig::default(), false);
    world.connect();
    world.run_for(Duration::from_secs(100));
    assert_eq!(told(&world.a), None, "it answers");
    vanish(&mut world);
    assert!(world.run_until(Duration::from_secs(5 + 3 * 2), |w| told(&w.a).is_some()));
    let (reason, message) = told(&world.a).unwrap();
    assert_eq!(reason, DisconnectReason::TimedOut);
    assert!(message.contains("none of 3 keep-alive probes"), "{message}");
}

#[test]
fn an_initiator_that_vanishes_before_its_indication_is_given_up() {
    for ready in [true, false] {
        let mut duel = Duel::new(config());
        duel.side.listen(4, duel.now);
        duel.connect();
        // Peer-to-peer, with a zero-length RDMA Write as the indication.
        duel.send(b"MPA ID Req Frame\x50\x02\x00\x04\x80\x10\x80\x10", 1448);
        let qp = duel.side.create_qp();
        let _ = duel.accept(qp, |asked| asked);
        assert_eq!(duel.side.state(qp), QpState::Rts);
        if ready {
            duel.send(&write_fpdu(0, 0, b""), 1448);
        }
        duel.run_for(USER_TIMEOUT - Duration::from_millis(100));
        assert_eq!(told(&duel.side), None);
        duel.run_for(Duration::from_millis(300));
        let reason = told(&duel.side).map(|(reason, _)| reason);
        let expected = (!ready).then_some(DisconnectReason::TimedOut);
        assert_eq!(reason, expected, "ready: {ready}");
    }
}
