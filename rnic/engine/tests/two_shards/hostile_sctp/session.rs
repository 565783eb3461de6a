//! What a session does not allow, in every state of it (RFC 5043 section 6).

use std::time::Duration;

use rnic_engine::command::Command;
use rnic_ipc::control::{DisconnectReason, Event, QpState};
use rnic_ipc::work::{WcStatus, WrOpcode};
use rnic_proto::Stag;
use userspace_sctp::chunk::{Chunk, Sack};

use super::scene::{OWN_READ, OWN_RECEIVE, Scene};
use crate::illegal::cases::*;
use crate::sctp_peer::{
    ACCEPT, CONTROL, ENHANCED_ACCEPT, ENHANCED_INITIATE, ENHANCED_REJECT, Heard, INITIATE, REJECT,
    SEGMENT, TERMINATE as END, control, segment,
};
use crate::sctp_raw::{HOSTILE, SctpDuel};
use crate::side::SideConfig;

/// Where the hostile peer writes what it may.
const OPEN: (usize, usize) = (0x20_0000, 0x10_0000);
/// Bytes of a Write of its.
const PART: usize = 1000;

fn small() -> SideConfig {
    SideConfig {
        frames: 600,
        ..SideConfig::default()
    }
}

/// Sends this many Writes, the first one with this DDP-SSN.
fn write_from(scene: &mut Scene, ssn: u16, count: u16) {
    for index in 0..count {
        let at = OPEN.0 + usize::from(index) * PART % OPEN.1;
        let write = scene.write(at, &[0xaa; PART]);
        scene
            .duel
            .send_segment(HOSTILE, ssn.wrapping_add(index), &write);
    }
}

/// What is wrong is told by the session's Terminate, and the association is shut down as soon as that is acknowledged,
/// however much more comes meanwhile.
#[test]
fn a_fault_with_more_than_a_window_behind_it_ends_in_a_shutdown() {
    let faults = [
        (CONTROL, control(1, INITIATE, b"")),
        (CONTROL, control(1, ACCEPT, b"")),
        (CONTROL, control(1, 99, b"")),
        (SEGMENT, vec![0]),
        (18, segment(1, b"what")),
        (SEGMENT, segment(0x8001, b"too far ahead")),
        (SEGMENT, segment(0, b"again")),
    ];
    for (protocol, fault) in faults {
        let name = format!("{protocol} {fault:02x?}");
        let mut scene = Scene::new();
        let hostile = &mut scene.duel.peers[HOSTILE];
        hostile.answers = false;
        scene.duel.send(HOSTILE, protocol, &fault);
        write_from(&mut scene, 2, 1500);
        let hostile = &scene.duel.peers[HOSTILE];
        assert_eq!(hostile.data, [(CONTROL, control(1, END, b""))], "{name}");
        let window = hostile.heard.iter().rev().find_map(|heard| match heard {
            Heard::Sack { cumulative, window } => Some((*cumulative, *window)),
            _ => None,
        });
        let (cumulative, window) = window.unwrap();
        assert_eq!(cumulative, hostile.tsn.previous(), "{name}");
        assert!(window > 1 << 19, "{name}: {window}");
        scene.assert_ended(DisconnectReason::BadSession, &name);
        scene.duel.peers[HOSTILE].answers = true;
        let sack = scene.duel.peers[HOSTILE].sack();
        scene.duel.give(&[sack]);
        let heard = &scene.duel.peers[HOSTILE].heard;
        assert!(heard.contains(&Heard::Shutdown), "{name}: {heard:?}");
        scene.assert_innocent_unharmed(&name, &[]);
    }
}

/// The peer's Terminate is its last word.
#[test]
fn what_comes_behind_the_peers_terminate_ends_the_session() {
    // The peer may write there: a segment that comes before its turn is placed.
    let write = Scene::new().write(OPEN.0, &[0xee; 8]);
    let behind: [(u32, Vec<u8>); 4] = [
        (SEGMENT, segment(2, &write)),
        (CONTROL, control(2, END, b"")),
        (CONTROL, control(2, INITIATE, b"raw")),
        (SEGMENT, segment(2, b"")),
    ];
    for (protocol, bytes) in behind {
        for together in [true, false] {
            let name = format!("{protocol} {bytes:02x?}, together: {together}");
            let mut scene = Scene::new();
            let end = control(1, END, b"");
            let hostile = &mut scene.duel.peers[HOSTILE];
            hostile.answers = false;
            let chunks = [
                hostile.next_data(CONTROL, &end),
                hostile.next_data(protocol, &bytes),
            ];
            match together {
                true => scene.duel.send_chunks(HOSTILE, &chunks),
                false => {
                    scene.duel.send_chunks(HOSTILE, &chunks[..1]);
                    scene.duel.send_chunks(HOSTILE, &chunks[1..]);
                }
            }
            let hostile = &scene.duel.peers[HOSTILE];
            assert_eq!(hostile.data, [(CONTROL, control(1, END, b""))], "{name}");
            scene.assert_ended(DisconnectReason::BadSession, &name);
            scene.duel.peers[HOSTILE].answers = true;
            let sack = scene.duel.peers[HOSTILE].sack();
            scene.duel.give(&[sack]);
            let heard = &scene.duel.peers[HOSTILE].heard;
            assert!(heard.contains(&Heard::Shutdown), "{name}: {heard:?}");
            scene.assert_innocent_unharmed(&name, &[OPEN]);
        }
    }
}

/// A peer that takes nothing, and breaks the rules while its session ends.
#[test]
fn a_fault_at_the_end_of_a_session_does_not_make_it_longer() {
    let mut scene = Scene::new();
    let hostile = &mut scene.duel.peers[HOSTILE];
    hostile.answers = false;
    // Each probe of its shut window is answered, and none is taken.
    let sack = Sack::new(hostile.cumulative, 0, &[], &[]);
    let shut = [hostile.packet(&[Chunk::Sack(sack)])];
    let end = control(1, END, b"");
    for message in [&end, &control(2, END, b"")] {
        scene.duel.give(&shut);
        scene.duel.send(HOSTILE, CONTROL, message);
    }
    scene.assert_ended(DisconnectReason::BadSession, "fault");
    for _ in 0..11 {
        scene.duel.run_for(Duration::from_secs(1));
        scene.duel.give(&shut);
    }
    let heard = &scene.duel.peers[HOSTILE].heard;
    let aborted = heard.iter().any(|one| matches!(one, Heard::Abort { .. }));
    assert!(aborted, "{heard:?}");
    scene.assert_innocent_unharmed("fault", &[]);
}

/// A DDP-SSN that never comes: what is behind it is placed if it is a Write, and nothing is delivered. The end is
/// bounded, too, when the peer's Terminate never has its turn.
#[test]
fn a_place_that_stays_empty_delivers_nothing_and_keeps_nobody() {
    for ahead in [1, 5, 0x7ffe] {
        let mut scene = Scene::new();
        let name = format!("{ahead} ahead");
        let send = untagged(UNTAGGED | LAST, SEND, [0, 1, 0], &[0x5e; 8]);
        let write = scene.write(OPEN.0, &[0xaa; PART]);
        scene.duel.send_segment(HOSTILE, 1 + ahead, &write);
        assert_eq!(scene.duel.side.read(OPEN.0, PART), [0xaa; PART], "{name}");
        if ahead < 0x7ffe {
            scene.duel.send_segment(HOSTILE, 2 + ahead, &send);
            scene
                .duel
                .send(HOSTILE, CONTROL, &control(3 + ahead, END, b""));
        }
        scene.duel.run_for(Duration::from_secs(60));
        assert!(scene.duel.side.completion(OWN_RECEIVE).is_none(), "{name}");
        assert_eq!(scene.duel.side.state(scene.hostile), QpState::Rts, "{name}");
        let (qp, abort) = (scene.hostile, false);
        let command = Command::Disconnect { qp, abort };
        let now = scene.duel.now;
        scene.duel.side.shard.execute(command, now).unwrap();
        scene.duel.run_for(Duration::from_secs(11));
        let heard = &scene.duel.peers[HOSTILE].heard;
        let aborted = heard.iter().any(|one| matches!(one, Heard::Abort { .. }));
        assert!(aborted, "{name}: {heard:?}");
        scene.assert_ended(DisconnectReason::TimedOut, &name);
        assert_eq!(scene.duel.side.counter("close_timeouts"), 1, "{name}");
        scene.assert_innocent_unharmed(&name, &[OPEN, RECEIVE]);
    }
}

/// The same place again, before its turn.
#[test]
fn a_place_that_is_taken_twice_ends_the_session() {
    let mut scene = Scene::new();
    for byte in [1, 2] {
        let write = scene.write(OPEN.0, &[byte; PART]);
        scene.duel.send_segment(HOSTILE, 7, &write);
    }
    let told = (CONTROL, control(1, END, b""));
    assert_eq!(scene.duel.peers[HOSTILE].data, [told]);
    scene.assert_ended(DisconnectReason::BadSession, "twice");
    scene.assert_innocent_unharmed("twice", &[OPEN]);
}

/// RFC 5043 section 10: the order of a session is that of its DDP-SSNs, whatever TSNs they have.
#[test]
fn tsns_say_nothing_of_the_order() {
    let send = untagged(UNTAGGED | LAST, SEND, [0, 1, 0], &[0x5e; 8]);
    let all = |write: &[u8]| [segment(1, write), segment(2, &send)];
    for together in [true, false] {
        let name = format!("together: {together}");
        let mut scene = Scene::new();
        let [write, send] = all(&scene.write(OPEN.0, &[0xaa; PART]));
        let end = control(3, END, b"");
        let hostile = &mut scene.duel.peers[HOSTILE];
        // The last has the first TSN.
        let chunks = [
            hostile.next_data(CONTROL, &end),
            hostile.next_data(SEGMENT, &send),
            hostile.next_data(SEGMENT, &write),
        ];
        if !together {
            scene.duel.send_chunks(HOSTILE, &chunks[..2]);
            assert!(scene.duel.side.completion(OWN_RECEIVE).is_none());
            let state = scene.duel.side.state(scene.hostile);
            assert_eq!(state, QpState::Rts, "nothing has its turn");
            scene.duel.send_chunks(HOSTILE, &chunks[2..]);
        } else {
            scene.duel.send_chunks(HOSTILE, &chunks);
        }
        assert_eq!(scene.duel.side.read(OPEN.0, PART), [0xaa; PART], "{name}");
        let received = scene.duel.side.completion(OWN_RECEIVE).expect(&name);
        assert_eq!(received.status, WcStatus::Success as u8, "{name}");
        scene.assert_ended(DisconnectReason::Graceful, &name);
        scene.assert_innocent_unharmed(&name, &[OPEN, RECEIVE]);
    }
}

/// What comes behind an Initiate waits for the answer, up to the receive window.
#[test]
fn segments_behind_an_initiate_wait_within_the_window_and_have_their_turn() {
    for accepts in [true, false] {
        let mut scene = Scene::before_the_session(small());
        let name = format!("accepted: {accepts}");
        scene.duel.initiate(HOSTILE);
        write_from(&mut scene, 1, 1500);
        assert_eq!(scene.duel.side.read(OPEN.0, PART), [0; PART], "{name}");
        let levels = scene.duel.side.shard.levels();
        assert!(levels.frames_free > 500, "{name}: {levels:?}");
        let hostile = &scene.duel.peers[HOSTILE];
        let taken = hostile.heard.iter().rev().find_map(|heard| match heard {
            Heard::Sack { cumulative, window } => Some((*cumulative, *window)),
            _ => None,
        });
        let (cumulative, window) = taken.unwrap();
        // Of 1 MiB, in messages of 1016 bytes.
        let missing = hostile.tsn.previous().since(cumulative);
        assert_eq!((missing, window), (1500 - 1033, 0), "{name}");
        if accepts {
            scene.hostile = scene.duel.side.create_qp();
            scene.duel.accept(HOSTILE, scene.hostile);
            assert_eq!(scene.duel.side.read(OPEN.0, PART), [0xaa; PART], "{name}");
            let (qp, abort) = (scene.hostile, true);
            let command = Command::Disconnect { qp, abort };
            let now = scene.duel.now;
            scene.duel.side.shard.execute(command, now).unwrap();
            scene.duel.pump();
            scene.assert_ended(DisconnectReason::Aborted, &name);
        } else {
            let (request, ..) = scene.duel.side.take_request().unwrap();
            let private_data = b"no".to_vec();
            let command = Command::Reject {
                request,
                private_data,
            };
            let now = scene.duel.now;
            scene.duel.side.shard.execute(command, now).unwrap();
            scene.duel.pump();
            let rejected = (CONTROL, control(0, REJECT, b"no"));
            assert_eq!(scene.duel.peers[HOSTILE].data, [rejected], "{name}");
        }
        scene.duel.run_for(Duration::from_secs(11));
        scene.assert_innocent_unharmed(&name, &[OPEN]);
    }
}

/// RFC 5043 sections 6.1 and 6.4: what is no Initiate begins no session, and is answered by a Terminate. The association
/// ends with it.
#[test]
fn a_first_message_that_is_no_initiate_is_answered_by_a_terminate() {
    let long = [7; 600];
    let firsts: [(u32, Vec<u8>); 14] = [
        (SEGMENT, segment(0, b"what")),
        (SEGMENT, segment(3, b"before its turn")),
        (SEGMENT, vec![0]),
        (CONTROL, control(0, ACCEPT, b"")),
        (CONTROL, control(0, REJECT, b"")),
        (CONTROL, control(0, END, b"")),
        (CONTROL, control(0, ENHANCED_ACCEPT, &[0; 4])),
        (CONTROL, control(0, ENHANCED_REJECT, &[0; 4])),
        (CONTROL, control(0, 0, b"")),
        (CONTROL, control(0, 99, b"")),
        (CONTROL, control(0, INITIATE, &long)),
        (CONTROL, control(0, ENHANCED_INITIATE, &[0; 3])),
        (CONTROL, vec![0, 0, 0]),
        (18, segment(0, b"what")),
    ];
    for (protocol, bytes) in firsts {
        let name = format!("{protocol} {:02x?}", &bytes[..bytes.len().min(12)]);
        let mut scene = Scene::before_the_session(small());
        scene.duel.associate(HOSTILE);
        scene.duel.send(HOSTILE, protocol, &bytes);
        if bytes.starts_with(&[0, 3]) {
            // Nothing has its turn before the first.
            scene.duel.send(HOSTILE, CONTROL, &control(0, END, b""));
        }
        let hostile = &scene.duel.peers[HOSTILE];
        assert_eq!(hostile.data, [(CONTROL, control(0, END, b""))], "{name}");
        assert!(hostile.heard.contains(&Heard::Shutdown), "{name}");
        assert!(scene.duel.side.take_request().is_none(), "{name}");
        scene.assert_innocent_unharmed(&name, &[]);
    }
}

/// RFC 6581 sections 9.1 and 9.2, over SCTP as over TCP. An Accept with depths or an indication that nobody can live
/// with is answered by an RDMAP Terminate, which says why, and by the session's own. Any other that does not fit has
/// the session's alone.
#[test]
fn an_accept_that_we_cannot_live_with_is_answered_by_both_terminates() {
    let cases: [(u16, &[u8], Option<u16>); 4] = [
        // Flag A and a Write, but an ORD of 300; flag A and no indication.
        (ENHANCED_ACCEPT, &[0x80, 4, 0x81, 0x2c], Some(0x2006)),
        (ENHANCED_ACCEPT, &[0x80, 4, 0, 4], Some(0x2007)),
        (ACCEPT, b"", None),
        (INITIATE, b"", None),
    ];
    for (function, words, code) in cases {
        let name = format!("{function} {words:02x?}");
        let mut scene = Scene::before_the_session(small());
        let qp = scene.ask();
        let data = &mut scene.duel.peers[HOSTILE].data;
        assert!(
            matches!(&data[..], [(CONTROL, asked)] if asked[2..4] == [0, 5]),
            "{name}: {data:02x?}"
        );
        data.clear();
        scene
            .duel
            .send(HOSTILE, CONTROL, &control(0, function, words));
        let told = &scene.duel.peers[HOSTILE].data;
        let end = (
            CONTROL,
            control(if code.is_some() { 2 } else { 1 }, END, b""),
        );
        match code {
            Some(code) => {
                let [(SEGMENT, terminate), last] = &told[..] else {
                    panic!("{name}: {told:02x?}");
                };
                // The DDP-SSN, an untagged header for queue 2, and layer, type and code.
                assert_eq!(terminate[..4], [0, 1, 0x41, 0x47], "{name}");
                assert_eq!(terminate[20..22], u16::to_be_bytes(code), "{name}");
                assert_eq!(*last, end, "{name}");
            }
            None => assert_eq!(told[..], [end], "{name}"),
        }
        let reason = match code {
            Some(control) => DisconnectReason::TerminateSent { control },
            None => DisconnectReason::BadSession,
        };
        let failed =
            |event: &Event| matches!(event, Event::ConnectFailed { reason: r, .. } if *r == reason);
        assert!(
            scene.duel.side.client_events().any(failed),
            "{name}: {:?}",
            scene.duel.side.events
        );
        assert_eq!(scene.duel.side.state(qp), QpState::Error, "{name}");
        scene.assert_innocent_unharmed(&name, &[]);
    }
}

/// What may not come behind an Initiate ends the request, which nobody can answer any more.
#[test]
fn a_request_ends_with_its_session() {
    let ends: [(u32, Vec<u8>); 4] = [
        (CONTROL, control(1, INITIATE, b"raw")),
        (CONTROL, control(1, ACCEPT, b"")),
        (CONTROL, control(1, END, b"")),
        (CONTROL, vec![0, 1, 0]),
    ];
    for (protocol, bytes) in ends {
        let name = format!("{bytes:02x?}");
        let mut scene = Scene::before_the_session(small());
        scene.duel.initiate(HOSTILE);
        let (request, ..) = scene.duel.side.take_request().unwrap();
        scene.duel.send(HOSTILE, protocol, &bytes);
        assert!(scene.duel.request_is_gone(), "{name}");
        let qp = scene.duel.side.create_qp();
        let accept = Command::Accept {
            request,
            qp,
            mpa: rnic_ipc::control::MpaOptions::default(),
            private_data: Vec::new(),
        };
        let now = scene.duel.now;
        assert!(
            scene.duel.side.shard.execute(accept, now).is_err(),
            "{name}"
        );
        assert_eq!(scene.duel.side.state(qp), QpState::Idle, "{name}");
        scene.assert_innocent_unharmed(&name, &[]);
    }
}

/// RFC 5043 section 6.6: the peer takes messages as they come, and has lost the Accept. What ends the session, of our own
/// or by the peer's Terminate, comes after it.
#[test]
fn a_terminate_does_not_overtake_the_accept() {
    for peer_ends in [false, true] {
        let name = format!("the peer ends it: {peer_ends}");
        let mut scene = Scene::before_the_session(small());
        scene.duel.initiate(HOSTILE);
        let (request, asked, _) = scene.duel.side.take_request().unwrap();
        let qp = scene.duel.side.create_qp();
        scene.hostile = qp;
        let home = scene.duel.peers[HOSTILE].address().ip();
        scene.duel.peers[HOSTILE].deaf_at = vec![home];
        let mpa = asked;
        let private_data = Vec::new();
        let command = Command::Accept {
            request,
            qp,
            mpa,
            private_data,
        };
        let now = scene.duel.now;
        scene.duel.side.shard.execute(command, now).unwrap();
        scene.duel.pump();
        scene.duel.peers[HOSTILE].deaf_at.clear();
        match peer_ends {
            true => scene.duel.send(HOSTILE, CONTROL, &control(1, END, b"")),
            false => {
                let abort = false;
                let command = Command::Disconnect { qp, abort };
                scene.duel.side.shard.execute(command, now).unwrap();
                scene.duel.pump();
            }
        }
        assert!(scene.duel.peers[HOSTILE].data.is_empty(), "{name}");
        // The Accept is sent again, and acknowledged.
        scene.duel.run_for(Duration::from_secs(2));
        let expected = [
            (CONTROL, control(0, ACCEPT, b"")),
            (CONTROL, control(1, END, b"")),
        ];
        assert_eq!(scene.duel.peers[HOSTILE].data, expected, "{name}");
        if !peer_ends {
            scene.duel.send(HOSTILE, CONTROL, &control(1, END, b""));
        }
        scene.assert_ended(DisconnectReason::Graceful, &name);
        scene.assert_innocent_unharmed(&name, &[]);
    }
}

/// A peer that ends the session while we wait for it, and one that says nothing more.
#[test]
fn a_terminate_in_the_middle_of_a_read_flushes_it() {
    let mut scene = Scene::new();
    let ((sink, len), hostile) = (SINK, scene.hostile);
    let side = &mut scene.duel.side;
    side.post_work(hostile, WrOpcode::Read, OWN_READ, sink, (Stag(9), 0), len);
    scene.duel.pump();
    scene.end_session();
    scene.duel.run_for(Duration::from_secs(11));
    scene.assert_ended(DisconnectReason::Graceful, "terminate");
    let read = scene.duel.side.completion(OWN_READ).unwrap();
    assert_eq!(read.status, WcStatus::WorkRequestFlushed as u8);
    scene.assert_innocent_unharmed("terminate", &[]);
}

/// RFC 5040 section 4.8: a Terminate that came before its turn ends the stream when it has its turn, and the session
/// with it, whoever else is on the association.
#[test]
fn a_terminate_that_came_early_ends_the_session_in_its_turn() {
    let mut scene = Scene::new();
    let terminate = untagged(UNTAGGED | LAST, TERMINATE, [2, 1, 0], &[0x11, 0, 0, 0]);
    let write = scene.write(OPEN.0, &[0xaa; PART]);
    scene.duel.send_segment(HOSTILE, 2, &terminate);
    assert_eq!(scene.duel.peers[HOSTILE].data, []);
    scene.duel.send_segment(HOSTILE, 1, &write);
    let ends = (CONTROL, control(1, END, b""));
    assert_eq!(scene.duel.peers[HOSTILE].data, [ends]);
    scene.duel.send(HOSTILE, CONTROL, &control(3, END, b""));
    let reason = DisconnectReason::TerminateReceived { control: 0x1100 };
    scene.assert_ended(reason, "terminate");
    scene.assert_innocent_unharmed("terminate", &[OPEN]);
}

/// The peer would wait for a Terminate that can't be sent for as long as the association is there.
#[test]
fn a_session_whose_terminate_finds_no_frame_ends_with_its_association() {
    let mut config = SideConfig {
        frames: 100,
        ..SideConfig::default()
    };
    config.shard.receive_reserve = 0;
    let mut duel = SctpDuel::new(config);
    let qp = duel.open(HOSTILE);
    let mut others = Vec::new();
    for stream in 1..10 {
        let initiate = control(0, INITIATE, b"raw");
        let mut asks = duel.peers[HOSTILE].next_data(CONTROL, &initiate);
        if let Chunk::Data(data) = &mut asks {
            data.stream = stream;
        }
        duel.send_chunks(HOSTILE, &[asks]);
        let more = duel.side.create_qp();
        duel.accept(HOSTILE, more);
        others.push(more);
    }
    // What the peer does not acknowledge has all frames: each session takes half of what there are.
    duel.peers[HOSTILE].answers = false;
    for of in others {
        for id in 0..60 {
            let remote = (Stag(9), 0);
            duel.side.push_work(of, WrOpcode::Write, id, 0, remote, 8);
        }
        duel.side.ring(of);
        duel.pump();
    }
    assert_eq!(duel.side.shard.levels().frames_free, 0);
    let command = Command::Disconnect { qp, abort: false };
    duel.side.shard.execute(command, duel.now).unwrap();
    duel.pump();
    let told = duel.side.disconnected(qp);
    assert_eq!(told, Some(DisconnectReason::LocalError));
    let levels = duel.side.shard.levels();
    assert_eq!((levels.associations, levels.frames_free), (0, 100));
    let aborted = Heard::Abort { cause: Some(12) };
    assert!(duel.peers[HOSTILE].heard.contains(&aborted));
}
