//! Connections come about, fail and end as the start-up's rules say.

use std::time::Duration;

use rnic_engine::command::{Command, ShardEvent};
use rnic_ipc::control::{
    DisconnectReason, Event, MarkerUse, MpaOptions, PeerDepths, QpState, RtrModes,
};
use rnic_ipc::work::{WcStatus, WrOpcode};
use rnic_proto::Stag;

use crate::impairment::Impairment;
use crate::link::ROUGH;
use crate::side::{CLIENT, LISTENER, SideConfig};
use crate::world::World;

const SOON: Duration = Duration::from_secs(5);

fn failure(world: &World) -> Option<(DisconnectReason, String)> {
    world.a.client_events().find_map(|event| match event {
        Event::ConnectFailed {
            reason, message, ..
        } => Some((*reason, message.clone())),
        _ => None,
    })
}

#[test]
fn both_revisions_carry_private_data_and_agree_on_depths() {
    for revision in [1, 2] {
        let mut world = World::new(1, Impairment::NONE);
        let ours = MpaOptions {
            revision,
            crc: true,
            markers: MarkerUse::Require,
            aligned: false,
            rtr: RtrModes::ALL,
            ird: 4,
            ord: 8,
        };
        let theirs = MpaOptions {
            revision: 2,
            crc: false,
            markers: MarkerUse::Off,
            aligned: true,
            rtr: RtrModes::ALL,
            ird: 6,
            ord: 3,
        };
        let (qp_a, qp_b) = world.connect_as(ours, theirs);
        let agreed = |side: &crate::side::Side| {
            side.client_events()
                .find_map(|event| match event {
                    Event::Established {
                        mpa, private_data, ..
                    } => Some((*mpa, private_data.clone())),
                    _ => None,
                })
                .unwrap()
        };
        let (mpa_a, data_a) = agreed(&world.a);
        let (mpa_b, data_b) = agreed(&world.b);
        assert_eq!(data_a, b"welcome");
        assert!(data_b.is_empty());
        assert_eq!((mpa_a.revision, mpa_b.revision), (revision, revision));
        assert!(mpa_a.crc && mpa_b.crc, "one side asked for CRCs");
        let markers = (mpa_a.markers, mpa_b.markers);
        assert_eq!(markers, (MarkerUse::Require, MarkerUse::Off));
        if revision == 2 {
            assert_eq!((mpa_a.ord, mpa_b.ird), (6, 6));
            assert_eq!((mpa_a.ird, mpa_b.ord), (3, 3));
        }
        assert_eq!(world.a.state(qp_a), QpState::Rts);
        assert_eq!(world.b.state(qp_b), QpState::Rts);
    }
}

/// RFC 6581 section 9.1: beside what was agreed, each application hears what the other side said.
#[test]
fn each_application_hears_what_the_other_side_said_of_its_depths() {
    for (revision, said_by_b, said_by_a) in [
        (2, Some((6, 3)), Some((4, 8))),
        // Revision 1 has no words for it.
        (1, None, None),
    ] {
        let mut world = World::new(1, Impairment::NONE);
        let options = |ird, ord| MpaOptions {
            revision,
            ird,
            ord,
            ..MpaOptions::default()
        };
        world.connect_as(options(4, 8), options(6, 3));
        let heard = |side: &crate::side::Side| {
            side.client_events().find_map(|event| match event {
                Event::Established { peer, .. } => Some(peer.map(|peer| (peer.ird, peer.ord))),
                _ => None,
            })
        };
        assert_eq!(heard(&world.a), Some(said_by_b), "revision {revision}");
        assert_eq!(heard(&world.b), Some(said_by_a), "revision {revision}");
    }
}

#[test]
fn a_responder_may_send_first_after_revision_2() {
    let mut world = World::new(1, Impairment::NONE);
    let (qp_a, qp_b) = world.connect();
    world.a.post_recv(qp_a, 1, 0, 100);
    let stag = world.a.stag;
    world.b.post_work(qp_b, WrOpcode::Send, 2, 0, (stag, 0), 50);
    assert!(world.run_until(SOON, |w| w.a.completion(1).is_some()));
}

/// RFC 6581 section 9.2: of what the initiator can send and the responder takes one is agreed on, and
/// with it the responder may send first. A Send as the indication takes no receive.
#[test]
fn each_ready_to_receive_indication_can_be_agreed_on() {
    let of = |write, read, send| RtrModes { write, read, send };
    let (write, read, send) = (
        of(true, false, false),
        of(false, true, false),
        of(false, false, true),
    );
    for (offered, taken, agreed) in [
        (RtrModes::ALL, RtrModes::ALL, write),
        (write, RtrModes::ALL, write),
        (read, RtrModes::ALL, read),
        (send, RtrModes::ALL, send),
        (RtrModes::ALL, read, read),
        (RtrModes::ALL, send, send),
        (of(false, true, true), of(true, true, false), read),
    ] {
        let mut world = World::new(1, Impairment::NONE);
        let options = |rtr, ord| MpaOptions {
            rtr,
            ord,
            // An indication by Read needs an ORD; it is there for that.
            ird: 0,
            ..MpaOptions::default()
        };
        let (qp_a, qp_b) = world.connect_as(options(offered, 0), options(taken, 0));
        for side in [&world.a, &world.b] {
            let told = side.client_events().find_map(|event| match event {
                Event::Established { mpa, .. } => Some(mpa.rtr),
                _ => None,
            });
            assert_eq!(told, Some(agreed), "{offered:?} offered, {taken:?} taken");
        }
        world.a.post_recv(qp_a, 1, 0, 100);
        world.b.post_recv(qp_b, 2, 0, 100);
        let (stag_a, stag_b) = (world.a.stag, world.b.stag);
        let (to_a, to_b) = ((stag_a, 0), (stag_b, 0));
        world.b.post_work(qp_b, WrOpcode::Send, 3, 0, to_a, 50);
        assert!(world.run_until(SOON, |w| w.a.completion(1).is_some()));
        assert!(world.b.completion(2).is_none(), "an indication is no Send");
        world.a.post_work(qp_a, WrOpcode::Send, 4, 0, to_b, 50);
        assert!(world.run_until(SOON, |w| w.b.completion(2).is_some()));
        assert_eq!(world.b.completion(2).map(|done| done.byte_len), Some(50));
    }
}

#[test]
fn indications_of_which_none_is_common_end_the_connection() {
    let mut world = World::new(1, Impairment::NONE);
    world.b.listen(4, world.now);
    let rtr = |write, read| MpaOptions {
        rtr: RtrModes {
            write,
            read,
            send: false,
        },
        ..MpaOptions::default()
    };
    let _ = world.start_connect(rtr(true, false), b"");
    let qp = world.b.create_qp();
    assert!(world.run_until(SOON, |w| {
        if let Some((request, asked, _)) = w.b.take_request() {
            assert_eq!(asked.rtr, rtr(true, false).rtr, "what the initiator can");
            let command = Command::Accept {
                request,
                qp,
                mpa: rtr(false, true),
                private_data: Vec::new(),
            };
            w.b.shard.execute(command, w.now).unwrap();
        }
        failure(w).is_some() && w.b.disconnected(qp).is_some()
    }));
    let (reason, _) = failure(&world).unwrap();
    // RFC 6581 section 9.2: layer 2, type 0, code 7.
    assert_eq!(reason, DisconnectReason::TerminateSent { control: 0x2007 });
    let control = 0x2007;
    let told = DisconnectReason::TerminateReceived { control };
    assert_eq!(world.b.disconnected(qp), Some(told));
}

#[test]
fn a_reject_carries_private_data_and_leaves_nothing_behind() {
    let mut world = World::new(1, Impairment::NONE);
    world.b.listen(4, world.now);
    let qp = world.start_connect(MpaOptions::default(), b"please");
    assert!(world.run_until(SOON, |w| {
        if let Some((request, asked, _)) = w.b.take_request() {
            assert_eq!((asked.ird, asked.ord), (16, 16), "what the initiator said");
            let command = Command::Reject {
                request,
                private_data: b"no".to_vec(),
            };
            w.b.shard.execute(command, w.now).unwrap();
        }
        w.a.client_events().any(
            |event| matches!(event, Event::Rejected { private_data, .. } if private_data == b"no"),
        )
    }));
    let said = world.a.client_events().find_map(|event| match event {
        Event::Rejected { peer, .. } => *peer,
        _ => None,
    });
    // A rejection repeats what the initiator would need.
    assert_eq!(said, Some(PeerDepths { ird: 16, ord: 16 }));
    assert_eq!(world.a.state(qp), QpState::Error);
    // What stands above MPA closes on both sides, the responder first, and so it has the connection in
    // TIME-WAIT (RFC 5044 section 7.1.2).
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.b.shard.levels().connections, 1);
    world.run_for(Duration::from_secs(200));
    assert_eq!(world.a.shard.levels().connections, 0);
    world.assert_no_frame_lost();
}

#[test]
fn nobody_listening_is_refused_at_once() {
    let mut world = World::new(1, Impairment::NONE);
    let qp = world.start_connect(MpaOptions::default(), b"");
    assert!(world.run_until(SOON, |w| failure(w).is_some()));
    assert_eq!(failure(&world).unwrap().0, DisconnectReason::Refused);
    assert_eq!(world.a.state(qp), QpState::Error);
    assert!(
        world
            .a
            .events
            .iter()
            .any(|event| matches!(event, ShardEvent::Released { .. }))
    );
}

#[test]
fn a_peer_that_does_not_answer_times_out_with_a_reason() {
    let mut world = World::new(1, Impairment::NONE);
    world.a_to_b.cut = true;
    world.start_connect(MpaOptions::default(), b"");
    assert!(world.run_until(Duration::from_secs(1000), |w| failure(w).is_some()));
    assert_eq!(failure(&world).unwrap().0, DisconnectReason::TimedOut);
}

#[test]
fn an_application_that_does_not_answer_loses_the_request() {
    let mut world = World::new(1, Impairment::NONE);
    world.b.listen(4, world.now);
    world.start_connect(MpaOptions::default(), b"");
    assert!(world.run_until(Duration::from_secs(200), |w| failure(w).is_some()));
    let (reason, message) = failure(&world).unwrap();
    assert_eq!(reason, DisconnectReason::TimedOut, "{message}");
    world.run_for(Duration::from_secs(100));
    assert!(
        world
            .b
            .events
            .iter()
            .any(|event| matches!(event, ShardEvent::RequestGone { .. }))
    );
}

#[test]
fn beyond_the_backlog_connections_are_reset() {
    let mut world = World::new(1, Impairment::NONE);
    world.b.listen(2, world.now);
    for _ in 0..4 {
        world.start_connect(MpaOptions::default(), b"");
        world.run_for(Duration::from_millis(100));
    }
    let requests = std::iter::from_fn(|| world.b.take_request()).count();
    assert_eq!(requests, 2);
    assert!(failure(&world).is_some());
}

#[test]
fn a_request_outlives_its_listener() {
    let mut world = World::new(1, Impairment::NONE);
    world.b.listen(4, world.now);
    let qp_a = world.start_connect(MpaOptions::default(), b"");
    let mut request = None;
    assert!(world.run_until(SOON, |w| {
        request = w.b.take_request();
        request.is_some()
    }));
    let unlisten = Command::Unlisten { listener: LISTENER };
    world.b.shard.execute(unlisten, world.now).unwrap();
    let qp_b = world.b.create_qp();
    let accept = Command::Accept {
        request: request.unwrap().0,
        qp: qp_b,
        mpa: MpaOptions::default(),
        private_data: Vec::new(),
    };
    world.b.shard.execute(accept, world.now).unwrap();
    assert!(world.run_until(SOON, |w| {
        w.a.state(qp_a) == QpState::Rts && w.b.state(qp_b) == QpState::Rts
    }));
    // Nobody else is heard.
    world.start_connect(MpaOptions::default(), b"");
    assert!(world.run_until(SOON, |w| failure(w).is_some()));
}

#[test]
fn a_client_that_goes_resets_what_waits_and_releases_the_port() {
    let mut world = World::new(1, Impairment::NONE);
    world.b.listen(4, world.now);
    world.start_connect(MpaOptions::default(), b"");
    assert!(world.run_until(SOON, |w| w.b.take_request().is_some()));
    let unlisten = Command::Unlisten { listener: LISTENER };
    world.b.shard.execute(unlisten, world.now).unwrap();
    let goes = Command::RemoveClient { client: CLIENT };
    world.b.shard.execute(goes, world.now).unwrap();
    assert!(world.run_until(SOON, |w| failure(w).is_some()));
    assert_eq!(failure(&world).unwrap().0, DisconnectReason::Reset);
    let gone = world
        .b
        .events
        .iter()
        .filter(|event| matches!(event, ShardEvent::RequestGone { .. }));
    assert_eq!(gone.count(), 1);
    let released = |e: &ShardEvent| matches!(e, ShardEvent::Released { local, .. } if local.port() == crate::world::PORT);
    assert!(world.b.events.iter().any(released));
}

#[test]
fn a_graceful_disconnect_sends_what_was_posted_and_ends_on_both_sides() {
    let mut world = World::new(3, ROUGH);
    let (qp_a, qp_b) = world.connect();
    world.b.post_recv(qp_b, 1, 0, 1 << 20);
    let stag = world.b.stag;
    world
        .a
        .post_work(qp_a, WrOpcode::Send, 2, 0, (stag, 0), 1 << 20);
    let command = Command::Disconnect {
        qp: qp_a,
        abort: false,
    };
    world.a.shard.execute(command, world.now).unwrap();
    assert!(
        world.run_until(Duration::from_secs(60), |w| {
            w.a.disconnected(qp_a).is_some() && w.b.disconnected(qp_b).is_some()
        }),
        "{:?} {:?}",
        world.a.events,
        world.b.events
    );
    assert_eq!(world.a.disconnected(qp_a), Some(DisconnectReason::Graceful));
    assert_eq!(world.b.disconnected(qp_b), Some(DisconnectReason::Graceful));
    assert_eq!(world.b.completion(1).unwrap().byte_len, 1 << 20);
    world.run_for(Duration::from_secs(300));
    assert_eq!(world.a.shard.levels().connections, 0, "TIME-WAIT is over");
    let released = world
        .a
        .events
        .iter()
        .filter(|event| matches!(event, ShardEvent::Released { .. }));
    assert_eq!(released.count(), 1);
    world.assert_no_frame_lost();
}

#[test]
fn an_abort_resets_and_flushes_on_both_sides() {
    let mut world = World::new(1, Impairment::NONE);
    let (qp_a, qp_b) = world.connect();
    world.b.post_recv(qp_b, 1, 0, 100);
    world.a.post_recv(qp_a, 2, 0, 100);
    let command = Command::Disconnect {
        qp: qp_a,
        abort: true,
    };
    world.a.shard.execute(command, world.now).unwrap();
    assert!(world.run_until(SOON, |w| w.b.disconnected(qp_b).is_some()));
    assert_eq!(world.a.disconnected(qp_a), Some(DisconnectReason::Aborted));
    assert_eq!(world.b.disconnected(qp_b), Some(DisconnectReason::Reset));
    for (side, id) in [(&world.b, 1), (&world.a, 2)] {
        let status = side.completion(id).unwrap().status;
        assert_eq!(
            WcStatus::from_u8(status),
            Some(WcStatus::WorkRequestFlushed)
        );
    }
}

#[test]
fn a_write_to_a_wrong_stag_ends_the_stream_with_a_terminate_and_touches_nothing() {
    let mut world = World::new(1, Impairment::NONE);
    let (qp_a, qp_b) = world.connect();
    world.a.fill(0, 100, 9);
    let before = world.b.read(0, 4096);
    world.a.post_work(
        qp_a,
        WrOpcode::Write,
        1,
        0,
        (Stag::from_parts(99, 1), 0),
        100,
    );
    assert!(
        world.run_until(Duration::from_secs(60), |w| {
            w.a.disconnected(qp_a).is_some() && w.b.disconnected(qp_b).is_some()
        }),
        "{:?} {:?}",
        world.a.events,
        world.b.events
    );
    let Some(DisconnectReason::TerminateSent { control }) = world.b.disconnected(qp_b) else {
        panic!("{:?}", world.b.events)
    };
    assert_eq!(
        world.a.disconnected(qp_a),
        Some(DisconnectReason::TerminateReceived { control })
    );
    assert_eq!(world.b.read(0, 4096), before);
    assert_eq!(world.b.counter("refused_invalid_stag"), 1);
}

#[test]
fn a_send_without_a_receive_ends_the_stream_with_a_terminate() {
    let mut world = World::new(1, Impairment::NONE);
    let (qp_a, qp_b) = world.connect();
    let stag = world.b.stag;
    world.a.post_work(qp_a, WrOpcode::Send, 1, 0, (stag, 0), 10);
    assert!(world.run_until(Duration::from_secs(60), |w| {
        w.a.disconnected(qp_a).is_some() && w.b.disconnected(qp_b).is_some()
    }));
    assert!(matches!(
        world.b.disconnected(qp_b),
        Some(DisconnectReason::TerminateSent { .. })
    ));
    assert_eq!(world.b.counter("refused_no_receive"), 1);
}

#[test]
fn removing_a_queue_pair_in_mid_transfer_breaks_nothing_else() {
    let mut world = World::new(1, Impairment::NONE);
    let (qp_a, qp_b) = world.connect();
    let (qp_c, qp_d) = world.connect();
    let stag = world.b.stag;
    world
        .a
        .post_work(qp_a, WrOpcode::Write, 1, 0, (stag, 0), 4 << 20);
    for _ in 0..20 {
        world.step();
    }
    world
        .b
        .shard
        .execute(Command::RemoveQp { qp: qp_b }, world.now)
        .unwrap();
    assert!(world.run_until(SOON, |w| w.a.disconnected(qp_a).is_some()));
    assert_eq!(world.a.disconnected(qp_a), Some(DisconnectReason::Reset));
    world.b.post_recv(qp_d, 2, 0, 100);
    world
        .a
        .post_work(qp_c, WrOpcode::Send, 3, 0, (stag, 0), 100);
    assert!(world.run_until(SOON, |w| w.b.completion(2).is_some()));
    world.run_for(SOON);
    world.assert_no_frame_lost();
}

#[test]
fn a_peer_that_vanishes_is_noticed() {
    let mut world = World::new(1, Impairment::NONE);
    let (qp_a, _) = world.connect();
    world.a_to_b.cut = true;
    world.b_to_a.cut = true;
    let stag = world.b.stag;
    world
        .a
        .post_work(qp_a, WrOpcode::Write, 1, 0, (stag, 0), 1 << 20);
    assert!(world.run_until(Duration::from_secs(1000), |w| {
        w.a.disconnected(qp_a).is_some()
    }));
    assert_eq!(world.a.disconnected(qp_a), Some(DisconnectReason::TimedOut));
    world.run_for(SOON);
    let levels = world.a.shard.levels();
    assert_eq!(levels.frames_free, world.a.frames, "{levels:?}");
}

#[test]
fn a_port_whose_time_wait_gives_way_to_a_new_connection_is_released() {
    let mut config = SideConfig::default();
    config.shard.limits.connections = 1;
    let mut world = World::with(1, Impairment::NONE, config, SideConfig::default(), false);
    let (qp_a, _) = world.connect();
    let disconnect = Command::Disconnect {
        qp: qp_a,
        abort: false,
    };
    world.a.shard.execute(disconnect, world.now).unwrap();
    assert!(world.run_until(SOON, |w| w.a.disconnected(qp_a).is_some()));
    assert_eq!(world.a.shard.levels().connections, 1, "TIME-WAIT");
    world.connect();
    assert_eq!(world.a.counter("tcp_time_wait_evicted"), 1);
    let released =
        |e: &ShardEvent| matches!(e, ShardEvent::Released { local, .. } if local.port() == 40_001);
    assert!(world.a.events.iter().any(released));
}

/// RFC 5040 section 6.2.1: a Terminate may still come after our FIN, and is the reason then.
#[test]
fn a_terminate_that_crosses_a_graceful_disconnect_is_told() {
    let mut world = World::new(1, Impairment::NONE);
    let (qp_a, qp_b) = world.connect();
    let stag = world.b.stag;
    world.a.post_work(qp_a, WrOpcode::Send, 1, 0, (stag, 0), 10);
    let disconnect = Command::Disconnect {
        qp: qp_a,
        abort: false,
    };
    world.a.shard.execute(disconnect, world.now).unwrap();
    assert!(world.run_until(SOON, |w| {
        w.a.disconnected(qp_a).is_some() && w.b.disconnected(qp_b).is_some()
    }));
    let Some(DisconnectReason::TerminateSent { control }) = world.b.disconnected(qp_b) else {
        panic!("{:?}", world.b.events)
    };
    assert_eq!(
        world.a.disconnected(qp_a),
        Some(DisconnectReason::TerminateReceived { control })
    );
}
