//! A hostile peer beside an innocent one on the same shard. Each thing that is not allowed gets the RFC's error, compared
//! byte by byte with the headers that the Terminate must carry. Nothing of it is placed. The innocent peer's transfer
//! goes on undisturbed.

pub mod cases;
pub mod scene;

use std::sync::Mutex;
use std::time::Duration;

use log::{Level, LevelFilter, Log, Metadata, Record};
use rnic_engine::command::Command;
use rnic_ipc::control::{DisconnectReason, Event, QpState};
use rnic_ipc::work::{WcStatus, WrOpcode};
use rnic_proto::Stag;
use rnic_proto::crc::Crc32c;
use rnic_proto::mpa::marker::Markers;
use userspace_tcp::Event as TcpEvent;

use self::cases::*;
use self::scene::{OWN_READ, Scene, terminate};
use crate::raw::{fpdu, fpdu_at, request, write_fpdu};
use crate::side::BASE;

#[test]
fn each_illegal_segment_gets_its_terminate_and_the_other_stream_goes_on() {
    let count = cases(&Scene::new(false).duel.side).len();
    assert!(count > 100, "{count}");
    for index in 0..count {
        let mut scene = Scene::new(false);
        let case = cases(&scene.duel.side).swap_remove(index);
        let name = case.name;
        scene.open();
        scene.read_if(&case);
        let from = scene.heard();
        let mut bytes: Vec<u8> = case.before.iter().flat_map(|ulpdu| fpdu(ulpdu)).collect();
        bytes.extend(fpdu(&case.fault));
        if case.damaged {
            let at = bytes.len() - 10;
            bytes[at] ^= 4;
        }
        // A second thing that is wrong, right behind: only the first is told (RFC 5040 section 7.1).
        bytes.extend(fpdu(&untagged(UNTAGGED | LAST, SEND, [9, 1, 0], &[])));
        scene.send(&bytes);
        let expected = terminate(case.control, case.shown, &case.fault);
        let found = &scene.duel.peer.received[from..];
        assert!(
            found == expected,
            "{name}: {found:02x?} instead of {expected:02x?}"
        );
        assert!(
            scene.has_event(&TcpEvent::PeerClosed),
            "{name}: FIN follows"
        );
        let control = case.control;
        scene.assert_ended(DisconnectReason::TerminateSent { control }, name);
        scene.assert_innocent_unharmed(name);
    }
}

/// The same table, with Markers, before what was to come before: nothing of it is placed early, and
/// it is judged in its turn.
#[test]
fn each_illegal_segment_that_comes_too_early_is_judged_in_its_turn() {
    let count = cases(&Scene::new(false).duel.side).len();
    let mut early = 0;
    for index in 0..count {
        let mut scene = Scene::new(true);
        let case = cases(&scene.duel.side).swap_remove(index);
        let (name, stag) = (case.name, scene.duel.side.stag.0);
        let opening = fpdu_at(&tagged(0xc1, WRITE, stag, BASE, &[]), Markers::On, 0);
        scene.send(&opening);
        scene.read_if(&case);
        // What comes last ends where a Marker stands, so that what is behind it can be found.
        let mut at = opening.len() as u64;
        let filler = (600..1200).find_map(|len| {
            let write = tagged(0xc1, WRITE, stag, BASE, &vec![0; len]);
            let bytes = fpdu_at(&write, Markers::On, at);
            (at as usize + bytes.len())
                .is_multiple_of(512)
                .then_some(bytes)
        });
        let mut bytes = filler.expect("one of 512");
        let size = bytes.len();
        at += size as u64;
        let ulpdus = case.before.iter().chain([&case.fault]);
        for ulpdu in ulpdus {
            let next = fpdu_at(ulpdu, Markers::On, at);
            at += next.len() as u64;
            bytes.extend(next);
        }
        if case.damaged {
            let last = bytes.len() - 10;
            bytes[last] ^= 4;
        }
        let from = scene.heard();
        scene.duel.send_first_last(&bytes, size);
        scene.duel.run_for(Duration::from_millis(100));
        // FPDUPTR can't point as far back as the longest FPDUs are long.
        let (control, shown) = match case.fault.len() {
            65535 => (0x2003, Shown::Nothing),
            _ => (case.control, case.shown),
        };
        let expected = terminate(control, shown, &case.fault);
        let found = &scene.duel.peer.received[from..];
        assert!(
            found == expected,
            "{name}: {found:02x?} instead of {expected:02x?}"
        );
        early += scene.duel.side.counter("bytes_placed_early");
        scene.assert_ended(DisconnectReason::TerminateSent { control }, name);
        scene.assert_innocent_unharmed(name);
    }
    assert!(early > 0, "what is legal before it is placed early");
}

/// RFC 5044 section 7.1.2: a responder says nothing before it has a valid FPDU, not even what is
/// wrong with the first one as an FPDU; with its ULPDU, it does.
#[test]
fn an_illegal_first_fpdu_ends_its_stream_and_the_other_goes_on() {
    let wrong_crc = {
        let mut bytes = write_fpdu(NARROW, BASE + PLACES[2] as u64, &[0xee; 9]);
        bytes[12] ^= 1;
        bytes
    };
    let version = fpdu(&tagged(
        0xc0,
        WRITE,
        NARROW,
        BASE + PLACES[2] as u64,
        &[0xee; 9],
    ));
    let queue = fpdu(&untagged(0x41, SEND, [4, 1, 0], &[0xee; 9]));
    // What is valid as an FPDU allows a Terminate, whatever is in it.
    let said = terminate(0x1201, Shown::Header, &queue[2..29]);
    let told = |control| DisconnectReason::TerminateSent { control };
    let said_too = terminate(0x1104, Shown::Header, &version[2..25]);
    for (name, bytes, heard, event, reason) in [
        (
            "a wrong CRC",
            wrong_crc,
            vec![],
            TcpEvent::Reset,
            DisconnectReason::PeerFault { control: 0x2002 },
        ),
        (
            "a wrong queue",
            queue,
            said,
            TcpEvent::PeerClosed,
            told(0x1201),
        ),
        (
            "a wrong version",
            version,
            said_too,
            TcpEvent::PeerClosed,
            told(0x1104),
        ),
    ] {
        let mut scene = Scene::new(false);
        let from = scene.heard();
        scene.send(&bytes);
        assert!(scene.duel.peer.received[from..] == heard, "{name}");
        assert!(scene.has_event(&event), "{name}");
        scene.assert_ended(reason, name);
        scene.assert_innocent_unharmed(name);
    }
}

/// What the passive program is told names the peer's mistake, where no Terminate does.
#[test]
fn a_wrong_crc_or_marker_in_the_first_fpdu_is_reported_as_the_peers() {
    for markers in [false, true] {
        let mut scene = Scene::new(markers);
        let stag = scene.duel.side.stag.0;
        let write = tagged(0xc1, WRITE, stag, BASE, &[0xee; 9]);
        let (mut bytes, named) = match markers {
            false => (fpdu(&write), "CRC"),
            true => (fpdu_at(&write, Markers::On, 0), "Marker"),
        };
        match markers {
            false => bytes[12] ^= 1,
            true => {
                // The Marker of the first byte, and a CRC that is right for it.
                bytes[3] ^= 4;
                let end = bytes.len() - 4;
                let crc = Crc32c::new().over(&bytes[..end]).bytes();
                bytes[end..].copy_from_slice(&crc);
            }
        }
        let from = scene.heard();
        scene.send(&bytes);
        assert!(scene.duel.peer.received[from..].is_empty(), "{named}");
        let told = scene
            .duel
            .side
            .client_events()
            .find_map(|event| match event {
                Event::Disconnected {
                    qp,
                    reason,
                    message,
                } if *qp == scene.hostile => Some((*reason, message.clone())),
                _ => None,
            });
        let (reason, message) = told.expect("the connection has ended");
        let theirs = matches!(reason, DisconnectReason::PeerFault { .. });
        assert!(theirs, "{named}: {reason:?}");
        assert!(message.contains(named), "{message}");
        assert!(message.contains("sent an FPDU in error"), "{message}");
    }
}

struct Line {
    level: Level,
    /// Module and line.
    place: Option<(&'static str, u32)>,
    said: String,
}

static LOGGED: Mutex<Vec<Line>> = Mutex::new(Vec::new());

struct Logger;

impl Log for Logger {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        LOGGED.lock().unwrap().push(Line {
            level: record.level(),
            place: record.module_path_static().zip(record.line()),
            said: record.args().to_string(),
        });
    }

    fn flush(&self) {}
}

/// The daemon bounds the lines of one place in the code (`rnicd`, `log_limit`): all of these come from one.
#[test]
fn peers_that_send_wrong_fpdus_in_a_loop_are_one_cause_in_the_log() {
    log::set_logger(&Logger).expect("no other test of this process sets one");
    log::set_max_level(LevelFilter::Info);
    const PEERS: usize = 100;
    for _ in 0..PEERS {
        let mut scene = Scene::new(false);
        let mut bytes = fpdu(&tagged(
            0xc1,
            WRITE,
            scene.duel.side.stag.0,
            BASE,
            &[0xee; 9],
        ));
        bytes[12] ^= 1;
        scene.send(&bytes);
    }
    let mut logged = LOGGED.lock().unwrap();
    logged.retain(|line| line.said.contains("sent an FPDU in error"));
    assert_eq!(logged.len(), PEERS, "one line each");
    assert!(logged[0].place.is_some());
    for Line { level, place, said } in &*logged {
        assert_eq!((*level, *place), (Level::Info, logged[0].place), "{said}");
    }
}

/// RFC 5044 section 8, error 3: the CRC is right, and the Marker leads elsewhere.
#[test]
fn a_marker_that_points_astray_gets_its_terminate_and_the_other_stream_goes_on() {
    for wrong in [4, 8, 512, 0xfffc] {
        let mut scene = Scene::new(true);
        let stag = scene.duel.side.stag.0;
        let opening = fpdu_at(&tagged(0xc1, WRITE, stag, BASE, &[]), Markers::On, 0);
        scene.send(&opening);
        let write = tagged(0xc1, WRITE, NARROW, BASE + PLACES[2] as u64, &[0xee; 700]);
        let mut bytes = fpdu_at(&write, Markers::On, opening.len() as u64);
        let marker = 512 - opening.len();
        let right = u16::from_be_bytes([bytes[marker + 2], bytes[marker + 3]]);
        assert_eq!(usize::from(right), marker, "it is the FPDU's first one");
        let pointer = right.wrapping_add(wrong).to_be_bytes();
        bytes[marker + 2..marker + 4].copy_from_slice(&pointer);
        let end = bytes.len() - 4;
        let crc = Crc32c::new().over(&bytes[..end]).bytes();
        bytes[end..].copy_from_slice(&crc);
        let from = scene.heard();
        scene.send(&bytes);
        let found = &scene.duel.peer.received[from..];
        assert_eq!(found, terminate(0x2003, Shown::Nothing, &[]), "{wrong}");
        let reason = DisconnectReason::TerminateSent { control: 0x2003 };
        scene.duel.peer.stack.abort(scene.duel.peer.conn.unwrap());
        scene.duel.run_for(Duration::from_secs(1));
        assert_eq!(scene.duel.side.disconnected(scene.hostile), Some(reason));
        scene.assert_innocent_unharmed("a Marker astray");
    }
}

/// Reserved bits, pad, and fields that mean nothing in their message: whatever is in them is taken.
#[test]
fn what_the_rfcs_say_to_ignore_is_ignored() {
    let place = BASE + PLACES[2] as u64;
    let mut padded = fpdu(&tagged(0xc1, WRITE, NARROW, place, &[1; 1]));
    let end = padded.len() - 4;
    // Three bytes of pad behind a ULPDU of 15.
    padded[end - 3..end].fill(0xff);
    let crc = Crc32c::new().over(&padded[..end]).bytes();
    padded[end..].copy_from_slice(&crc);
    let word = [
        &[0x41, SEND, 0xde, 0xad, 0xbe, 0xef][..],
        &[0; 4],
        &[0, 0, 0, 1],
        &[0; 4],
    ];
    let legal = [
        ("pad that is not zero", padded),
        (
            "reserved bits of DDP, tagged",
            fpdu(&tagged(0xfd, WRITE, NARROW, place, &[0; 4])),
        ),
        (
            "reserved bits of RDMAP",
            fpdu(&tagged(0xc1, 0x70, NARROW, place, &[0; 4])),
        ),
        (
            "reserved bits of DDP, untagged",
            fpdu(&untagged(0x7d, SEND, [0, 1, 0], &[])),
        ),
        ("an STag where none is invalidated", fpdu(&word.concat())),
        (
            "a Write without bytes, anywhere",
            fpdu(&tagged(0xc1, WRITE, 0, u64::MAX, &[])),
        ),
    ];
    for (name, bytes) in legal {
        let mut scene = Scene::new(false);
        scene.open();
        let from = scene.heard();
        scene.send(&bytes);
        assert_eq!(scene.heard(), from, "{name}");
        let hostile = scene.hostile;
        assert_eq!(scene.duel.side.state(hostile), QpState::Rts, "{name}");
        assert_eq!(scene.duel.side.counter("fpdus_received"), 12, "{name}");
    }
}

/// The reserved bits of a Marker, and the two of its pointer that are always zero (RFC 5044 section
/// 4.3).
#[test]
fn reserved_bits_of_a_marker_are_ignored() {
    let mut scene = Scene::new(true);
    let stag = scene.duel.side.stag.0;
    let mut bytes = fpdu_at(&tagged(0xc1, WRITE, stag, BASE, &[0; 40]), Markers::On, 0);
    bytes[..4].copy_from_slice(&[0xff, 0xff, 0, 3]);
    let end = bytes.len() - 4;
    let crc = Crc32c::new().over(&bytes[..end]).bytes();
    bytes[end..].copy_from_slice(&crc);
    let from = scene.heard();
    scene.send(&bytes);
    assert_eq!(scene.heard(), from);
    let hostile = scene.hostile;
    assert_eq!(scene.duel.side.state(hostile), QpState::Rts);
    assert_eq!(scene.duel.side.counter("marker_errors"), 0);
}

/// What a peer says in its Terminate: a local catastrophic error.
fn peers_terminate(msn: u32) -> Vec<u8> {
    fpdu(&untagged(0x41, TERMINATE, [2, msn, 0], &[0, 0, 0, 0]))
}

/// RFC 5040 section 5.4: it is delivered once, whenever it comes, ends the stream and is answered by
/// no message.
#[test]
fn a_terminate_in_every_state_ends_its_stream_only() {
    let received = DisconnectReason::TerminateReceived { control: 0 };
    let with_terminate = |before: Vec<u8>| [before, peers_terminate(1)].concat();
    let part = fpdu(&untagged(UNTAGGED, SEND, [0, 1, 0], &[1; 8]));
    let twice = [peers_terminate(1), peers_terminate(2)].concat();
    let wrong = untagged(0x41, SEND, [4, 1, 0], &[]);
    let after_ours = with_terminate(fpdu(&wrong));
    let ours = DisconnectReason::TerminateSent { control: 0x1201 };
    // Name, whether the stream was opened before, bytes, what is heard, the reason.
    let cases = [
        (
            "as the first message",
            false,
            peers_terminate(1),
            vec![],
            received,
        ),
        (
            "between messages",
            true,
            peers_terminate(1),
            vec![],
            received,
        ),
        (
            "within a message",
            true,
            with_terminate(part),
            vec![],
            received,
        ),
        ("twice", true, twice, vec![], received),
        (
            "after ours",
            true,
            after_ours,
            terminate(0x1201, Shown::Header, &wrong),
            ours,
        ),
    ];
    for (name, opened, bytes, heard, reason) in cases {
        let mut scene = Scene::new(false);
        if opened {
            scene.open();
        }
        let from = scene.heard();
        scene.send(&bytes);
        assert!(scene.duel.peer.received[from..] == heard, "{name}");
        assert!(
            scene.has_event(&TcpEvent::PeerClosed),
            "{name}: FIN follows"
        );
        scene.assert_ended(reason, name);
        scene.assert_innocent_unharmed(name);
    }
}

#[test]
fn a_terminate_while_closing_or_while_a_read_is_outstanding_ends_its_stream_only() {
    let received = DisconnectReason::TerminateReceived { control: 0 };
    let mut scene = Scene::new(false);
    scene.open();
    let qp = scene.hostile;
    let now = scene.duel.now;
    let command = Command::Disconnect { qp, abort: false };
    scene.duel.side.shard.execute(command, now).unwrap();
    scene.duel.pump();
    assert!(scene.has_event(&TcpEvent::PeerClosed));
    assert_eq!(scene.duel.side.state(qp), QpState::Closing);
    scene.send(&peers_terminate(1));
    scene.assert_ended(received, "while closing");
    scene.assert_innocent_unharmed("while closing");

    let mut scene = Scene::new(false);
    scene.open();
    let (qp, (sink, len)) = (scene.hostile, SINK);
    let side = &mut scene.duel.side;
    side.post_work(qp, WrOpcode::Read, OWN_READ, sink, (Stag(9), 0), len);
    scene.duel.pump();
    scene.send(&peers_terminate(1));
    scene.assert_ended(received, "while reading");
    let read = scene.duel.side.completion(OWN_READ).expect("it ends");
    assert_eq!(read.status, WcStatus::WorkRequestFlushed as u8);
    scene.assert_innocent_unharmed("while reading");
}

/// RFC 5044 sections 7.1 and 8, error 4: an invalid start-up frame closes the connection at once.
#[test]
fn each_illegal_start_up_is_reset_and_the_other_stream_goes_on() {
    let frame = |key: &[u8; 16], flags: u8, revision: u8, pd_length: u16, data: &[u8]| {
        let mut out = key.to_vec();
        out.extend([flags, revision]);
        out.extend(pd_length.to_be_bytes());
        out.extend(data);
        out
    };
    let ours = b"MPA ID Req Frame";
    let cases: [(&str, Vec<u8>); 8] = [
        ("another key", frame(b"MPA ID Req frame", 0x40, 1, 0, b"")),
        ("a Reply's key", frame(b"MPA ID Rep Frame", 0x40, 1, 0, b"")),
        ("revision 0", frame(ours, 0x40, 0, 0, b"")),
        ("revision 3", frame(ours, 0x40, 3, 0, b"")),
        (
            "513 bytes of private data",
            frame(ours, 0x40, 1, 513, &[0; 513]),
        ),
        ("S without its bytes", frame(ours, 0x50, 2, 3, &[0; 3])),
        (
            "more bytes than announced",
            frame(ours, 0x40, 1, 3, &[0; 4]),
        ),
        (
            "an FPDU behind",
            [request(0, b""), write_fpdu(1, 0, &[])].concat(),
        ),
    ];
    for (name, bytes) in cases {
        // Beside a hostile peer that behaves, a third connection.
        let mut scene = Scene::new(false);
        let conn = scene.duel.peer.conn.unwrap();
        scene.duel.peer.stack.abort(conn);
        scene.duel.run_for(Duration::from_secs(1));
        scene.duel.peer.received.clear();
        scene.duel.peer.events.clear();
        scene.duel.connect();
        scene.send(&bytes);
        assert!(scene.has_event(&TcpEvent::Reset), "{name}");
        assert!(scene.duel.peer.received.is_empty(), "{name}");
        assert_eq!(scene.duel.side.counter("startup_failed"), 1, "{name}");
        scene.assert_innocent_unharmed(name);
    }
}
