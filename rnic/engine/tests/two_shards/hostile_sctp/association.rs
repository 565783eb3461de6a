//! What SCTP does not allow, or allows at a bad moment, in the middle of a session.

use std::time::Duration;

use rnic_ipc::control::DisconnectReason;
use rnic_ipc::work::{WcStatus, WrOpcode};
use userspace_sctp::chunk::{Chunk, Sack};

use super::scene::Scene;
use crate::illegal::cases::*;
use crate::sctp_peer::{
    CONTROL, Heard, INITIATE, SEGMENT, TERMINATE as END, control, data, segment,
};
use crate::sctp_raw::HOSTILE;
use crate::side::SideConfig;

/// Where the side's own work lies.
const OWN: (usize, usize) = (0x20_0000, 1 << 20);
const OWN_WRITE: u64 = 55;
/// Causes of RFC 9260 section 3.3.10.
const NO_USER_DATA: u16 = 9;
const VIOLATION: u16 = 13;

/// The side writes a lot to the hostile peer, whose STag is not looked at.
fn write_to_it(scene: &mut Scene) {
    let (hostile, stag) = (scene.hostile, scene.duel.side.stag);
    let side = &mut scene.duel.side;
    side.post_work(hostile, WrOpcode::Write, OWN_WRITE, OWN.0, (stag, 0), OWN.1);
    scene.duel.pump();
}

#[track_caller]
fn assert_aborted(scene: &Scene, cause: u16, name: &str) {
    let heard = &scene.duel.peers[HOSTILE].heard;
    let cause = Some(cause);
    assert!(heard.contains(&Heard::Abort { cause }), "{name}: {heard:?}");
}

/// Each ends the association by an ABORT with its cause.
#[test]
fn what_sctp_does_not_allow_ends_the_association_with_a_cause() {
    let next = |scene: &Scene| scene.duel.peers[HOSTILE].cumulative.plus(40_000);
    type Send = fn(&mut Scene, u32);
    let all: [(&str, u16, Send); 6] = [
        (
            "a cumulative TSN that was never sent",
            VIOLATION,
            |scene, far| {
                let sack = Sack::new(userspace_sctp::Tsn(far), 1000, &[], &[]);
                scene.duel.send_chunks(HOSTILE, &[Chunk::Sack(sack)]);
            },
        ),
        (
            "a gap with TSNs that were never sent",
            VIOLATION,
            |scene, _| {
                let cumulative = scene.duel.peers[HOSTILE].cumulative;
                let sack = Sack::new(cumulative, 1000, &[0x7f, 0, 0x7f, 9], &[]);
                scene.duel.send_chunks(HOSTILE, &[Chunk::Sack(sack)]);
            },
        ),
        (
            "a SHUTDOWN for TSNs that were never sent",
            VIOLATION,
            |scene, far| {
                let cumulative = userspace_sctp::Tsn(far);
                scene
                    .duel
                    .send_chunks(HOSTILE, &[Chunk::Shutdown { cumulative }]);
            },
        ),
        ("no user data", NO_USER_DATA, |scene, _| {
            scene.duel.send(HOSTILE, SEGMENT, b"");
        }),
        ("a SACK that is too short", VIOLATION, |scene, _| {
            let whole = &[3, 0, 0, 8, 1, 2, 3, 4];
            scene
                .duel
                .send_chunks(HOSTILE, &[Chunk::Malformed { kind: 3, whole }]);
        }),
        ("a DATA chunk that is too short", VIOLATION, |scene, _| {
            let whole = &[0, 7, 0, 12, 0, 0, 0, 9, 0, 0, 0, 0];
            scene
                .duel
                .send_chunks(HOSTILE, &[Chunk::Malformed { kind: 0, whole }]);
        }),
    ];
    for (name, cause, send) in all {
        let mut scene = Scene::new();
        let far = next(&scene).0;
        send(&mut scene, far);
        assert_aborted(&scene, cause, name);
        scene.assert_ended(DisconnectReason::BadSession, name);
        scene.assert_innocent_unharmed(name, &[]);
    }
}

/// What is dropped, or told by an ERROR, ends nothing.
#[test]
fn what_is_dropped_ends_nothing() {
    let mut scene = Scene::new();
    let write = scene.write(0, &[0xee; 8]);
    let message = segment(1, &write);
    let next = scene.duel.peers[HOSTILE].tsn;
    // A stream that there is not; its TSN is used up.
    let mut other = data(next, SEGMENT, &message);
    if let Chunk::Data(data) = &mut other {
        data.stream = 300;
    }
    scene.duel.peers[HOSTILE].tsn = next.next();
    scene.duel.send_chunks(HOSTILE, &[other]);
    let told = Heard::Error { cause: Some(1) };
    assert!(scene.duel.peers[HOSTILE].heard.contains(&told));
    // Far beyond what a SACK can name, and long ago.
    for tsn in [
        next.plus(70_000),
        next.plus(u32::MAX / 2),
        next.plus(u32::MAX - 9),
    ] {
        scene
            .duel
            .send_chunks(HOSTILE, &[data(tsn, SEGMENT, &message)]);
    }
    // Another tag, and a chunk that nobody knows.
    let hostile = &scene.duel.peers[HOSTILE];
    let packet = hostile.packet_with(
        hostile.nodes_tag ^ 1,
        &[data(hostile.tsn, SEGMENT, &message)],
    );
    scene.duel.give(&[packet]);
    let (report, whole) = (userspace_sctp::chunk::Report::Skip, &[0xbf, 0, 0, 4]);
    scene
        .duel
        .send_chunks(HOSTILE, &[Chunk::Unknown { report, whole }]);
    assert_eq!(scene.duel.side.read(0, 8), [0; 8]);
    assert_eq!(scene.duel.side.disconnected(scene.hostile), None);
    // Its session goes on.
    let write = scene.write(0x20_0000, &[0xaa; 8]);
    scene.send(HOSTILE, &write);
    assert_eq!(scene.duel.side.read(0x20_0000, 8), [0xaa; 8]);
    scene.end_session();
    scene.duel.run_for(Duration::from_secs(1));
    scene.assert_ended(DisconnectReason::Graceful, "the end");
    scene.assert_innocent_unharmed("the end", &[(0x20_0000, 8)]);
}

/// A new association begins behind the old one's back (RFC 9260 section 5.2.4, action A). What comes with its cookie is
/// for no session of the old one. The new one serves as any other.
#[test]
fn a_restart_in_the_middle_of_a_session_ends_it_and_places_nothing() {
    for initiates in [true, false] {
        let mut scene = Scene::new();
        let name = format!("initiates: {initiates}");
        scene.duel.peers[HOSTILE].answers = false;
        write_to_it(&mut scene);
        let write = scene.write(0, &[0xee; 8]);
        let hostile = &mut scene.duel.peers[HOSTILE];
        hostile.restart(0x7777_0001);
        let init = hostile.init();
        scene.duel.give(&[init]);
        let hostile = &mut scene.duel.peers[HOSTILE];
        // As the old session would have it next, or as a new one.
        let message = match initiates {
            true => (CONTROL, control(0, INITIATE, b"raw")),
            false => (SEGMENT, segment(1, &write)),
        };
        let chunk = hostile.next_data(message.0, &message.1);
        let echo = hostile.cookie_echo(&[chunk]);
        scene.duel.give(&[echo]);
        assert_eq!(scene.duel.side.read(0, 8), [0; 8], "{name}");
        scene.assert_ended(DisconnectReason::Reset, &name);
        let told = scene.duel.told(scene.hostile).unwrap();
        assert!(told.contains("started anew"), "{name}: {told}");
        let heard = &scene.duel.peers[HOSTILE].heard;
        assert_eq!(heard[..], [Heard::InitAck, Heard::CookieAck], "{name}");
        let write = scene.duel.side.completion(OWN_WRITE);
        let flushed = WcStatus::WorkRequestFlushed as u8;
        assert!(write.is_none_or(|write| write.status == flushed), "{name}");
        assert_eq!(scene.duel.peers[HOSTILE].data, [], "{name}");
        serve_again(&mut scene);
        scene.assert_innocent_unharmed(&name, &[(0x20_0000, 8)]);
    }
}

/// The restarted peer has a session on its new association, and is served.
fn serve_again(scene: &mut Scene) {
    let hostile = &mut scene.duel.peers[HOSTILE];
    hostile.answers = true;
    hostile.tsn = userspace_sctp::Tsn(hostile.tag);
    scene
        .duel
        .send(HOSTILE, CONTROL, &control(0, INITIATE, b"raw"));
    let qp = scene.duel.side.create_qp();
    scene.duel.accept(HOSTILE, qp);
    let write = scene.write(0x20_0000, &[0xaa; 8]);
    scene.duel.send_segment(HOSTILE, 1, &write);
    assert_eq!(scene.duel.side.read(0x20_0000, 8), [0xaa; 8]);
    scene.hostile = qp;
    scene.duel.send(HOSTILE, CONTROL, &control(2, END, b""));
    scene.duel.run_for(Duration::from_secs(1));
}

/// The same before anybody has answered the request.
#[test]
fn a_restart_while_a_request_waits_ends_the_request() {
    let mut scene = Scene::before_the_session(SideConfig {
        frames: 600,
        ..SideConfig::default()
    });
    scene.duel.initiate(HOSTILE);
    let hostile = &mut scene.duel.peers[HOSTILE];
    hostile.restart(0x7777_0001);
    let init = hostile.init();
    scene.duel.give(&[init]);
    let echo = scene.duel.peers[HOSTILE].cookie_echo(&[]);
    scene.duel.give(&[echo]);
    assert!(scene.duel.request_is_gone());
    scene
        .duel
        .side
        .take_request()
        .expect("what was asked first");
    serve_again(&mut scene);
    scene.assert_innocent_unharmed("restart", &[(0x20_0000, 8)]);
}

/// A peer that takes nothing is asked again and again, and holds no more frames than it may.
#[test]
fn a_window_that_stays_shut_holds_up_nobody_else() {
    let mut scene = Scene::new();
    scene.duel.peers[HOSTILE].window = 0;
    let sack = scene.duel.peers[HOSTILE].sack();
    scene.duel.give(&[sack]);
    write_to_it(&mut scene);
    scene.duel.run_for(Duration::from_secs(600));
    let levels = scene.duel.side.shard.levels();
    assert!(levels.frames_free > 500, "{levels:?}");
    assert_eq!(scene.duel.side.disconnected(scene.hostile), None);
    let command = rnic_engine::command::Command::Disconnect {
        qp: scene.hostile,
        abort: false,
    };
    let now = scene.duel.now;
    scene.duel.side.shard.execute(command, now).unwrap();
    // It takes a chunk with each probe, of which there is one a minute.
    scene.duel.run_for(Duration::from_secs(50_000));
    scene.assert_ended(DisconnectReason::TimedOut, "shut");
    scene.assert_innocent_unharmed("shut", &[OWN]);
}

/// The peer shuts down: what was posted may be acknowledged or not, nothing more is posted, and the end is bounded.
#[test]
fn a_shutdown_in_mid_transfer_ends_the_session() {
    for acknowledges in [true, false] {
        for bundled in [true, false] {
            let mut scene = Scene::new();
            let name = format!("acknowledges: {acknowledges}, bundled: {bundled}");
            scene.duel.peers[HOSTILE].answers = acknowledges;
            scene.duel.peers[HOSTILE].window = 4000;
            let sack = scene.duel.peers[HOSTILE].sack();
            scene.duel.give(&[sack]);
            scene.duel.peers[HOSTILE].answers = false;
            write_to_it(&mut scene);
            let send = untagged(UNTAGGED | LAST, SEND, [0, 1, 0], &[0x5e; 8]);
            let message = scene.next_segment(&send);
            let hostile = &mut scene.duel.peers[HOSTILE];
            hostile.answers = acknowledges;
            let cumulative = hostile.cumulative;
            let mut chunks = vec![Chunk::Shutdown { cumulative }];
            if bundled {
                chunks.insert(0, hostile.next_data(SEGMENT, &message));
            }
            scene.duel.send_chunks(HOSTILE, &chunks);
            scene.duel.run_for(Duration::from_secs(700));
            let reason = match acknowledges {
                true => DisconnectReason::PeerClosed,
                false => DisconnectReason::TimedOut,
            };
            scene.assert_ended(reason, &name);
            scene.assert_innocent_unharmed(&name, &[OWN, RECEIVE]);
        }
    }
}

/// Without a session, and before its request is answered.
#[test]
fn a_shutdown_before_the_session_leaves_nothing() {
    for asks in [true, false] {
        let mut scene = Scene::before_the_session(SideConfig {
            frames: 600,
            ..SideConfig::default()
        });
        let name = format!("asks: {asks}");
        match asks {
            true => scene.duel.initiate(HOSTILE),
            false => scene.duel.associate(HOSTILE),
        }
        let cumulative = scene.duel.peers[HOSTILE].cumulative;
        scene
            .duel
            .send_chunks(HOSTILE, &[Chunk::Shutdown { cumulative }]);
        let heard = &scene.duel.peers[HOSTILE].heard;
        assert!(heard.contains(&Heard::ShutdownAck), "{name}: {heard:?}");
        assert_eq!(scene.duel.request_is_gone(), asks, "{name}");
        scene.assert_innocent_unharmed(&name, &[]);
    }
}

/// RFC 9260 section 9.2: until the peer has answered the SHUTDOWN the association is there, and its port nobody else's.
/// That is bounded.
#[test]
fn a_shutdown_that_is_not_answered_keeps_the_association_for_a_time() {
    let mut scene = Scene::new();
    scene.duel.peers[HOSTILE].ignores_shutdown = true;
    scene.end_session();
    scene.assert_ended(DisconnectReason::Graceful, "ended");
    let associations = |scene: &Scene| scene.duel.side.shard.levels().associations;
    assert!(scene.duel.peers[HOSTILE].heard.contains(&Heard::Shutdown));
    assert_eq!(associations(&scene), 2);
    scene.duel.run_for(Duration::from_secs(5));
    assert_eq!(associations(&scene), 2);
    scene.duel.run_for(Duration::from_secs(10));
    let is_abort = |heard: &Heard| matches!(heard, Heard::Abort { .. });
    assert!(scene.duel.peers[HOSTILE].heard.iter().any(is_abort));
    scene.assert_innocent_unharmed("a shutdown that is not answered", &[]);
}
