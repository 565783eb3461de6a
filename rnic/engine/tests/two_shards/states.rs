//! Queue pairs' states as a client changes them, and what becomes of the connection.

use std::time::Duration;

use rnic_engine::command::{Command, CommandError};
use rnic_ipc::control::{DisconnectReason, Event, MpaOptions, QpState};
use rnic_ipc::id::{CqId, QpNum};
use rnic_ipc::work::{WcStatus, WrOpcode};

use crate::impairment::Impairment;
use crate::side::{CQ, Side};
use crate::world::World;

const PATIENCE: Duration = Duration::from_secs(30);

fn modify(world: &mut World, qp: QpNum, state: QpState) -> Result<(), CommandError> {
    let command = Command::ModifyQp { qp, state };
    world.a.shard.execute(command, world.now).map(|_| ())
}

#[track_caller]
fn refused(result: Result<(), CommandError>, found: &str, sentence: &str) {
    let error = result.unwrap_err();
    assert!(matches!(error, CommandError::WrongState { .. }), "{error}");
    for part in [found, sentence] {
        assert!(error.to_string().contains(part), "{error}");
    }
}

fn status(side: &Side, wr_id: u64) -> Option<WcStatus> {
    let completion = side.completion(wr_id)?;
    WcStatus::from_u8(completion.status)
}

#[test]
fn what_the_states_do_not_allow_is_refused_with_what_they_do() {
    let mut world = World::new(1, Impairment::NONE);
    let idle = world.a.create_qp();
    refused(modify(&mut world, idle, QpState::Idle), "Idle", "in Error");
    refused(modify(&mut world, idle, QpState::Rts), "Idle", "Connect");
    let rts = "Rts to be made";
    refused(modify(&mut world, idle, QpState::Terminate), "Idle", rts);
    refused(modify(&mut world, idle, QpState::Closing), "Idle", rts);
    let (qp, _) = world.connect();
    refused(modify(&mut world, qp, QpState::Idle), "Rts", "in Error");
    refused(modify(&mut world, qp, QpState::Rts), "Rts", "Connect");
    let none = modify(&mut world, QpNum(99), QpState::Error);
    assert!(matches!(none, Err(CommandError::Unknown { .. })));
    assert_eq!(world.a.state(qp), QpState::Rts);
}

#[test]
fn an_idle_queue_pair_fails_without_a_connection() {
    let mut world = World::new(1, Impairment::NONE);
    let qp = world.a.create_qp();
    world.a.post_recv(qp, 1, 0, 8);
    modify(&mut world, qp, QpState::Error).unwrap();
    world.settle();
    assert_eq!(world.a.state(qp), QpState::Error);
    assert_eq!(status(&world.a, 1), Some(WcStatus::WorkRequestFlushed));
    modify(&mut world, qp, QpState::Error).unwrap();
}

#[test]
fn a_closing_that_is_asked_for_ends_in_order() {
    let mut world = World::new(1, Impairment::NONE);
    let (qp_a, qp_b) = world.connect();
    modify(&mut world, qp_a, QpState::Closing).unwrap();
    assert!(world.run_until(PATIENCE, |w| {
        w.a.disconnected(qp_a).is_some() && w.b.disconnected(qp_b).is_some()
    }));
    let graceful = Some(DisconnectReason::Graceful);
    assert_eq!(world.a.disconnected(qp_a), graceful);
    assert_eq!(world.b.disconnected(qp_b), graceful);
    assert_eq!(world.a.state(qp_a), QpState::Error);
}

#[test]
fn a_terminate_that_is_asked_for_reaches_the_peer() {
    let mut world = World::new(1, Impairment::NONE);
    let (qp_a, qp_b) = world.connect();
    world.a.post_recv(qp_a, 1, 0, 8);
    modify(&mut world, qp_a, QpState::Terminate).unwrap();
    assert_eq!(world.a.state(qp_a), QpState::Terminate);
    refused(
        modify(&mut world, qp_a, QpState::Terminate),
        "Terminate",
        "Rts",
    );
    assert!(world.run_until(PATIENCE, |w| {
        w.a.disconnected(qp_a).is_some() && w.b.disconnected(qp_b).is_some()
    }));
    assert_eq!(
        world.a.disconnected(qp_a),
        Some(DisconnectReason::Aborted),
        "as asked"
    );
    assert_eq!(
        world.b.disconnected(qp_b),
        Some(DisconnectReason::TerminateReceived { control: 0 })
    );
    assert_eq!(status(&world.a, 1), Some(WcStatus::WorkRequestFlushed));
}

#[test]
fn an_error_that_is_asked_for_resets_the_connection_whatever_its_state() {
    for closing in [false, true] {
        let mut world = World::new(1, Impairment::NONE);
        let (qp_a, qp_b) = world.connect();
        if closing {
            modify(&mut world, qp_a, QpState::Closing).unwrap();
            assert_eq!(world.a.state(qp_a), QpState::Closing);
        }
        modify(&mut world, qp_a, QpState::Error).unwrap();
        assert_eq!(world.a.state(qp_a), QpState::Error);
        assert!(world.run_until(PATIENCE, |w| w.b.disconnected(qp_b).is_some()));
        assert_eq!(world.a.disconnected(qp_a), Some(DisconnectReason::Aborted));
    }
    let mut world = World::new(1, Impairment::NONE);
    let connecting = world.start_connect(MpaOptions::default(), b"");
    modify(&mut world, connecting, QpState::Error).unwrap();
    assert_eq!(world.a.state(connecting), QpState::Error);
}

#[test]
fn a_queue_pair_that_was_reset_connects_again() {
    let mut world = World::new(1, Impairment::NONE);
    let (qp_a, qp_b) = world.connect();
    modify(&mut world, qp_a, QpState::Error).unwrap();
    assert!(world.run_until(PATIENCE, |w| w.b.disconnected(qp_b).is_some()));
    modify(&mut world, qp_a, QpState::Idle).unwrap();
    let reset = Command::ModifyQp {
        qp: qp_b,
        state: QpState::Idle,
    };
    world.b.shard.execute(reset, world.now).unwrap();
    world.a.events.clear();
    world.b.events.clear();
    let (path, remote) = (world.a.path_to(&world.b), world.b.address);
    let (mpa, now) = (MpaOptions::default(), world.now);
    world
        .a
        .connect(qp_a, 50_000, remote, path, mpa, b"again", now)
        .unwrap();
    assert!(world.run_until(PATIENCE, |w| {
        if let Some((request, ..)) = w.b.take_request() {
            let command = Command::Accept {
                request,
                qp: qp_b,
                mpa,
                private_data: Vec::new(),
            };
            w.b.shard.execute(command, w.now).unwrap();
        }
        w.a.is_established(qp_a) && w.b.is_established(qp_b)
    }));
    let stag = world.b.stag;
    world.a.fill(0, 5000, 3);
    world
        .a
        .post_work(qp_a, WrOpcode::Write, 7, 0, (stag, 0), 5000);
    world
        .a
        .post_work(qp_a, WrOpcode::Read, 8, 8192, (stag, 0), 5000);
    assert!(world.run_until(PATIENCE, |w| w.a.completion(8).is_some()));
    assert_eq!(status(&world.a, 7), Some(WcStatus::Success));
    assert_eq!(world.a.read(8192, 5000), world.a.read(0, 5000));
}

/// A completion that nobody could ever see must not be made (RFC 5040 section 8.1.1,
/// requirement 10).
#[test]
fn no_queue_pair_is_made_or_reset_on_a_completion_queue_that_overflowed() {
    let mut world = World::new(1, Impairment::NONE);
    let (qp_a, _) = world.connect();
    let stag = world.b.stag;
    world.a.collecting = false;
    let failed = |w: &mut World| {
        let mut events = w.a.client_events();
        events.any(|event| matches!(event, Event::CqError { .. }))
    };
    for round in 0..20 {
        for id in 0..100 {
            let wr_id = round * 100 + id;
            world
                .a
                .post_work(qp_a, WrOpcode::Write, wr_id, 0, (stag, 0), 8);
        }
        if world.run_until(Duration::from_millis(50), failed) {
            break;
        }
    }
    assert!(failed(&mut world));
    assert_eq!(world.a.state(qp_a), QpState::Error);
    let CqId(number) = CQ;
    let named = format!("number {number}");
    refused(modify(&mut world, qp_a, QpState::Idle), &named, "sound");
    refused(world.a.try_create_qp().map(|_| ()), &named, "sound");
}

/// An operator's question after a night: which of them ended, and why.
#[test]
fn each_end_is_counted_by_how_it_came_at_both_sides() {
    type End = fn(&mut World, QpNum);
    let ends: [(End, &str, &str); 6] = [
        (
            |world, qp| modify(world, qp, QpState::Closing).unwrap(),
            "ended_closed_here",
            "ended_closed_by_peer",
        ),
        (
            |world, qp| modify(world, qp, QpState::Error).unwrap(),
            "ended_aborted",
            "ended_reset_by_peer",
        ),
        (
            |world, qp| {
                let removal = Command::RemoveQp { qp };
                world.a.shard.execute(removal, world.now).unwrap();
            },
            "ended_owner_gone",
            "ended_reset_by_peer",
        ),
        (
            // To an STag that the peer does not have.
            |world, qp| {
                let missing = (rnic_proto::Stag(0x7777_7700), 0);
                world.a.post_work(qp, WrOpcode::Write, 1, 0, missing, 8);
            },
            "ended_terminate_received",
            "ended_terminate_sent",
        ),
        (
            |world, _| {
                let interface = "rnic0".to_owned();
                let gone = Command::InterfaceGone { interface };
                world.a.shard.execute(gone, world.now).unwrap();
            },
            "ended_interface_gone",
            "ended_reset_by_peer",
        ),
        (
            |world, _| {
                let address = world.a.address.ip();
                let gone = Command::AddressGone { address };
                world.a.shard.execute(gone, world.now).unwrap();
            },
            "ended_address_gone",
            "ended_reset_by_peer",
        ),
    ];
    for (end, at_a, at_b) in ends {
        let mut world = World::new(1, Impairment::NONE);
        let (qp, _) = world.connect();
        end(&mut world, qp);
        world.run_for(PATIENCE);
        for (side, wanted) in [(&mut world.a, at_a), (&mut world.b, at_b)] {
            let names = side.counter_names().into_iter();
            let counted: Vec<_> = names
                .filter(|name| name.starts_with("ended_"))
                .filter_map(|name| {
                    Some((side.counter(&name), name)).filter(|(count, _)| *count > 0)
                })
                .collect();
            assert_eq!(counted, [(1, wanted.to_owned())], "{at_a}");
        }
    }
}
