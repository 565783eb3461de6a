//! What a hostile peer does on further streams of its association: its own session, and whoever else is there, go on.

use std::time::Duration;

use rnic_engine::command::{Command, ShardEvent};
use rnic_ipc::control::{DisconnectReason, Event};
use userspace_sctp::chunk::Chunk;

use super::scene::Scene;
use crate::illegal::cases::*;
use crate::sctp_peer::{
    ACCEPT, CONTROL, Heard, INITIATE, REJECT, SEGMENT, TERMINATE as END, control, segment,
};
use crate::sctp_raw::{HOSTILE, OTHER, SctpDuel};
use crate::side::{BASE, LISTENER, SideConfig};

/// Where the hostile peer writes what it may.
const OPEN: (usize, usize) = (0x20_0000, 0x1000);

/// A message on another stream than the session's.
fn send_on(scene: &mut Scene, stream: u16, protocol: u32, bytes: &[u8]) {
    let mut data = scene.duel.peers[HOSTILE].next_data(protocol, bytes);
    if let Chunk::Data(data) = &mut data {
        data.stream = stream;
    }
    scene.duel.send_chunks(HOSTILE, &[data]);
}

/// Its session takes a Write, and ends in order.
fn assert_session_goes_on(scene: &mut Scene, name: &str) {
    let write = scene.write(OPEN.0, &[0xcc; 100]);
    scene.send(HOSTILE, &write);
    assert_eq!(scene.duel.side.read(OPEN.0, 100), [0xcc; 100], "{name}");
    assert_eq!(scene.duel.side.disconnected(scene.hostile), None, "{name}");
    scene.end_session();
    scene.assert_ended(DisconnectReason::Graceful, name);
}

fn requests(scene: &mut Scene) -> usize {
    let before = scene.duel.side.events.len();
    scene.duel.side.events.retain(|event| {
        !matches!(
            event,
            ShardEvent::Client {
                event: Event::ConnectRequest { .. },
                ..
            }
        )
    });
    before - scene.duel.side.events.len()
}

/// RFC 5043 section 6.1: it is answered by a Terminate. The stream takes no session any more.
#[test]
fn what_begins_no_session_on_another_stream_is_dropped_and_ends_nothing() {
    let all: [(&str, u32, Vec<u8>); 7] = [
        ("a segment", SEGMENT, segment(0, b"what")),
        ("an Accept", CONTROL, control(0, ACCEPT, b"")),
        ("a Reject", CONTROL, control(0, REJECT, b"")),
        ("a Terminate", CONTROL, control(0, END, b"")),
        ("no function", CONTROL, control(0, 99, b"")),
        ("another protocol", 18, segment(0, b"what")),
        ("a place far ahead", SEGMENT, segment(0x8001, b"what")),
    ];
    for (name, protocol, message) in all {
        let mut scene = Scene::new();
        for stream in [1, 7] {
            scene.duel.peers[HOSTILE].data.clear();
            send_on(&mut scene, stream, protocol, &message);
            send_on(&mut scene, stream, CONTROL, &control(0, INITIATE, b""));
            let told = (CONTROL, control(0, END, b""));
            let expected = [told.clone(), told];
            assert_eq!(scene.duel.peers[HOSTILE].data, expected, "{name}");
            assert_eq!(requests(&mut scene), 0, "{name}");
        }
        assert_session_goes_on(&mut scene, name);
        scene.assert_innocent_unharmed(name, &[OPEN]);
    }
}

/// RFC 5043 section 6.4: an Initiate to a port where no program listens any more is answered by a Terminate, on an
/// association that others use. The peer does not wait for its own time limit.
#[test]
fn sessions_are_refused_once_the_listener_is_gone() {
    let mut scene = Scene::new();
    let (unlisten, now) = (Command::Unlisten { listener: LISTENER }, scene.duel.now);
    scene.duel.side.shard.execute(unlisten, now).unwrap();
    scene.duel.peers[HOSTILE].data.clear();
    for stream in [1, 7] {
        send_on(&mut scene, stream, CONTROL, &control(0, INITIATE, b""));
    }
    let told = (CONTROL, control(0, END, b""));
    assert_eq!(scene.duel.peers[HOSTILE].data, [told.clone(), told]);
    assert_eq!(requests(&mut scene), 0);
    assert_session_goes_on(&mut scene, "no listener");
    scene.duel.side.listen(4, scene.duel.now);
    scene.assert_innocent_unharmed("no listener", &[OPEN]);
}

/// Of sessions that it asks for on all streams as many wait as the listener's backlog takes, and it is told that there
/// is no place for the others. They end with its association.
#[test]
fn sessions_on_all_streams_wait_as_far_as_there_is_place() {
    const STREAMS: u16 = 32;
    const BACKLOG: usize = 4;
    let mut scene = Scene::new();
    scene.duel.peers[HOSTILE].data.clear();
    for stream in 1..STREAMS {
        send_on(&mut scene, stream, CONTROL, &control(0, INITIATE, b""));
    }
    let told = (CONTROL, control(0, END, b""));
    let refused = scene.duel.peers[HOSTILE]
        .data
        .iter()
        .filter(|data| **data == told);
    assert_eq!(refused.count(), usize::from(STREAMS) - 1 - BACKLOG);
    assert_eq!(requests(&mut scene), BACKLOG);
    let levels = scene.duel.side.shard.levels();
    assert!(levels.connections <= 2 + BACKLOG, "{levels:?}");
    let whole = &[6, 0, 0, 4];
    let abort = Chunk::Malformed { kind: 6, whole };
    scene.duel.send_chunks(HOSTILE, &[abort]);
    scene.assert_ended(DisconnectReason::Reset, "aborted");
    scene.assert_innocent_unharmed("all streams", &[OPEN]);
}

/// One session after the other on a stream, each ended at once.
#[test]
fn sessions_without_end_leave_nothing() {
    let mut scene = Scene::new();
    for _ in 0..500 {
        send_on(&mut scene, 3, CONTROL, &control(0, INITIATE, b""));
        send_on(&mut scene, 3, CONTROL, &control(1, END, b""));
        let levels = scene.duel.side.shard.levels();
        assert!(levels.connections <= 3, "{levels:?}");
    }
    assert_eq!(requests(&mut scene), 500);
    scene.duel.run_for(Duration::from_secs(1));
    assert_session_goes_on(&mut scene, "sessions without end");
    scene.assert_innocent_unharmed("sessions without end", &[OPEN]);
}

/// Sessions that nobody on this host has do not keep each other: their association gives way to a new one, when most
/// places are taken.
#[test]
fn an_association_with_nobodys_sessions_gives_way() {
    let mut config = SideConfig::default();
    config.shard.limits.associations = 16;
    let mut scene = Scene::with(config);
    // Its second association.
    let peer = &mut scene.duel.peers[HOSTILE];
    peer.restart(peer.tag + 1);
    peer.move_to(6000);
    scene.duel.associate(HOSTILE);
    // It does not acknowledge that it is told no.
    scene.duel.peers[HOSTILE].answers = false;
    for stream in 0..14 {
        send_on(&mut scene, stream, CONTROL, &control(0, INITIATE, b""));
        if let Some((request, ..)) = scene.duel.side.take_request() {
            let now = scene.duel.now;
            let refuse = Command::Refuse { request };
            scene.duel.side.shard.execute(refuse, now).unwrap();
        }
    }
    assert_eq!(scene.duel.side.counter("backlog_evicted"), 1);
    let levels = scene.duel.side.shard.levels();
    assert_eq!(
        (levels.connections, levels.associations),
        (2, 2),
        "{levels:?}"
    );
}

/// A session that the peer does not end is gone after some time, and its stream is not used again. If the peer does not
/// even acknowledge, the association goes with it.
#[test]
fn one_that_the_peer_does_not_end_is_not_kept() {
    for acknowledges in [true, false] {
        let mut scene = Scene::new();
        send_on(&mut scene, 3, CONTROL, &control(0, INITIATE, b""));
        let (request, mpa, _) = scene.duel.side.take_request().expect("it asks");
        let qp = scene.duel.side.create_qp();
        let private_data = Vec::new();
        let now = scene.duel.now;
        let accept = Command::Accept {
            request,
            qp,
            mpa,
            private_data,
        };
        scene.duel.side.shard.execute(accept, now).unwrap();
        scene.duel.pump();
        scene.duel.peers[HOSTILE].data.clear();
        scene.duel.peers[HOSTILE].answers = acknowledges;
        let abort = Command::Disconnect { qp, abort: true };
        scene.duel.side.shard.execute(abort, now).unwrap();
        scene.duel.pump();
        let told = scene.duel.side.disconnected(qp);
        assert_eq!(told, Some(DisconnectReason::Aborted));
        assert_eq!(scene.duel.side.shard.levels().connections, 3);
        let last = scene.duel.peers[HOSTILE].data.last();
        assert_eq!(last, Some(&(CONTROL, control(2, END, b""))));
        scene.duel.run_for(Duration::from_secs(15));
        let name = format!("acknowledges: {acknowledges}");
        if acknowledges {
            assert_eq!(scene.duel.side.shard.levels().connections, 2);
            send_on(&mut scene, 3, CONTROL, &control(0, INITIATE, b""));
            assert_eq!(requests(&mut scene), 0);
            assert_session_goes_on(&mut scene, &name);
        } else {
            scene.assert_ended(DisconnectReason::TimedOut, &name);
        }
        scene.assert_innocent_unharmed(&name, &[OPEN]);
    }
}

/// What is not to be delivered does not shut the window for the other sessions.
#[test]
fn what_is_dropped_opens_the_window_again() {
    let mut scene = Scene::new();
    let window = |scene: &Scene| {
        let mut heard = scene.duel.peers[HOSTILE].heard.iter().rev();
        heard.find_map(|heard| match heard {
            Heard::Sack { window, .. } => Some(*window),
            _ => None,
        })
    };
    send_on(&mut scene, 3, CONTROL, &control(0, INITIATE, b""));
    let before = window(&scene).expect("a SACK");
    // Behind an Initiate that nobody has answered yet, and far too many.
    for ssn in 1..200 {
        send_on(&mut scene, 3, SEGMENT, &segment(ssn, &[0; 1000]));
    }
    assert!(window(&scene).expect("a SACK") < before - 100_000);
    let (request, ..) = scene.duel.side.take_request().expect("it asks");
    let now = scene.duel.now;
    let refuse = Command::Refuse { request };
    scene.duel.side.shard.execute(refuse, now).unwrap();
    scene.duel.pump();
    for ssn in 200..210 {
        send_on(&mut scene, 3, SEGMENT, &segment(ssn, &[0; 1000]));
    }
    scene.duel.run_for(Duration::from_secs(15));
    send_on(&mut scene, 5, CONTROL, &control(0, INITIATE, b""));
    let after = window(&scene).expect("a SACK");
    assert!(after + 100 > before, "{after} of {before}");
    requests(&mut scene);
    assert_session_goes_on(&mut scene, "a window");
}

/// The same from a peer that acknowledges nothing: only so many are kept.
#[test]
fn sessions_whose_end_is_not_acknowledged_are_bounded() {
    const STREAMS: usize = 32;
    let mut scene = Scene::new();
    scene.duel.peers[HOSTILE].answers = false;
    for _ in 0..500 {
        send_on(&mut scene, 3, CONTROL, &control(0, INITIATE, b""));
        send_on(&mut scene, 3, CONTROL, &control(1, END, b""));
        let levels = scene.duel.side.shard.levels();
        assert!(levels.connections <= 3 + STREAMS, "{levels:?}");
    }
    assert!(requests(&mut scene) > STREAMS / 2);
    scene.duel.run_for(Duration::from_secs(15));
    scene.assert_ended(DisconnectReason::TimedOut, "nothing is acknowledged");
    scene.assert_innocent_unharmed("nothing is acknowledged", &[OPEN]);
}

/// RFC 5043 section 8: as many in as out, whoever asks.
#[test]
fn an_association_has_as_many_streams_in_as_out() {
    let mut scene = Scene::new();
    assert_eq!(scene.duel.peers[HOSTILE].streams, [(32, 32)]);
    scene.end_session();
    scene.assert_ended(DisconnectReason::Graceful, "asked by the peer");
    scene.duel.peers[HOSTILE].streams.clear();
    scene.hostile = scene.ask();
    assert_eq!(scene.duel.peers[HOSTILE].streams, [(32, 32)]);
}

/// RFC 5040 section 8.1.2: one that has as many as it may, and takes no response, leaves the other's places alone.
#[test]
fn reads_of_one_session_take_no_place_of_another() {
    const IRD: u32 = 4;
    let mut duel = SctpDuel::new(SideConfig::default());
    duel.open(HOSTILE);
    duel.open(OTHER);
    duel.peers[HOSTILE].window = 0;
    let shut = duel.peers[HOSTILE].sack();
    duel.give(&[shut]);
    let stag = duel.side.stag.0;
    let read = |msn: u32| {
        let request = read_header((0x77, u64::from(msn)), 8, (stag, BASE));
        untagged(UNTAGGED | LAST, READ_REQUEST, [1, msn, 0], &request)
    };
    for who in [HOSTILE, OTHER] {
        for msn in 1..=IRD {
            duel.send_segment(who, msn as u16, &read(msn));
        }
    }
    let all: Vec<_> = (1..=IRD)
        .map(|msn| {
            let answer = tagged(TAGGED | LAST, READ_RESPONSE, 0x77, msn.into(), &[0; 8]);
            (SEGMENT, segment(msn as u16, &answer))
        })
        .collect();
    assert!(duel.peers[HOSTILE].data.is_empty());
    assert_eq!(duel.peers[OTHER].data, all);
    duel.peers[HOSTILE].window = 100_000;
    let open = duel.peers[HOSTILE].sack();
    duel.give(&[open]);
    assert_eq!(duel.peers[HOSTILE].data, all);
    let levels = duel.side.shard.levels();
    assert_eq!(levels.connections, 2, "{levels:?}");
}
