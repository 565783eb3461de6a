//! A hostile peer beside an innocent one on the same shard: each thing that is not allowed gets the
//! RFC's error, compared octet by octet with the headers that the Terminate must carry, nothing of
//! it is placed, and the innocent peer's transfer goes on as if nothing had been.

mod cases;

use std::time::Duration;

use rnic_engine::command::Command;
use rnic_ipc::control::{Access, DisconnectReason, MpaOptions, QpState};
use rnic_ipc::id::{PdId, QpNum};
use rnic_ipc::work::{WcStatus, WrOpcode};
use rnic_proto::Stag;
use rnic_proto::crc::Crc32c;
use rnic_proto::mpa::marker::Markers;
use userspace_tcp::Event as TcpEvent;

use self::cases::*;
use crate::raw::{Duel, fpdu, fpdu_at, request, write_fpdu};
use crate::side::{BASE, MEMORY, PD, SideConfig, pattern};

/// Where the innocent peer writes, how much, and where its Send goes.
const WRITTEN: (usize, usize) = (0x10_0000, 20_000);
const DELIVERED: (usize, usize) = (0x18_0000, 100);
const INNOCENT_RECEIVE: u64 = 900;
const OWN_READ: u64 = 901;

/// Two peers with a stream each.
struct Scene {
    duel: Duel,
    hostile: QpNum,
    innocent: QpNum,
    /// What the innocent peer still has to send.
    rest: Vec<u8>,
    innocent_heard: usize,
}

impl Scene {
    /// Both in RDMA mode; the innocent one is in the middle of an FPDU.
    fn new(markers: bool) -> Self {
        let config = SideConfig {
            frames: 600,
            ..SideConfig::default()
        };
        let mut duel = Duel::new(config);
        let all = Access {
            local_write: true,
            remote_read: true,
            remote_write: true,
        };
        let none = Access {
            local_write: false,
            remote_read: false,
            remote_write: false,
        };
        let grants = [
            (BARE, PD, none),
            (FOREIGN, PdId(PD.0 + 1), all),
            (NARROW, PD, all),
        ];
        for ((stag, pd, access), place) in grants.into_iter().zip(PLACES) {
            duel.side.register(Stag(stag), pd, access, place, SMALL);
        }
        duel.side.listen(4, duel.now);
        duel.connect_innocent();
        duel.send_innocent(&request(0, b""));
        let innocent = accept(&mut duel, false, INNOCENT_RECEIVE, DELIVERED);
        duel.connect();
        duel.send(&request(0, b""), 1448);
        let hostile = accept(&mut duel, markers, 1, RECEIVE);
        let stag = duel.side.stag.0;
        let data = pattern(WRITTEN.1, 7);
        let mut rest: Vec<u8> = data
            .chunks(1000)
            .enumerate()
            .flat_map(|(index, part)| {
                write_fpdu(stag, BASE + (WRITTEN.0 + 1000 * index) as u64, part)
            })
            .collect();
        rest.extend(fpdu(&untagged(
            UNTAGGED | LAST,
            SEND,
            [0, 1, 0],
            &data[..DELIVERED.1],
        )));
        let behind = rest.split_off(10_300);
        duel.send_innocent(&rest);
        let innocent_heard = duel.innocent.received.len();
        Self {
            duel,
            hostile,
            innocent,
            rest: behind,
            innocent_heard,
        }
    }

    fn send(&mut self, octets: &[u8]) {
        self.duel.send(octets, 1448);
    }

    /// The first FPDU, which allows the side to speak.
    fn open(&mut self) {
        let stag = self.duel.side.stag.0;
        self.send(&write_fpdu(stag, BASE, &[]));
    }

    /// What the hostile peer hears from now on.
    fn heard(&self) -> usize {
        self.duel.peer.received.len()
    }

    fn has_event(&self, event: &TcpEvent) -> bool {
        self.duel.peer.events.contains(event)
    }

    /// The hostile peer's stream has ended for this reason, and nothing more of it is placed.
    fn assert_ended(&mut self, reason: DisconnectReason, name: &str) {
        let stag = self.duel.side.stag.0;
        self.send(&write_fpdu(stag, BASE, &[0xee; 50]));
        if let Some(conn) = self.duel.peer.conn {
            self.duel.peer.stack.close(conn);
        }
        self.duel.run_for(Duration::from_secs(1));
        let side = &mut self.duel.side;
        assert_eq!(side.disconnected(self.hostile), Some(reason), "{name}");
        assert_eq!(side.state(self.hostile), QpState::Error, "{name}");
    }

    /// The innocent peer does the rest of what it wanted, and reads back.
    fn assert_innocent_unharmed(&mut self, name: &str) {
        let (duel, data) = (&mut self.duel, pattern(WRITTEN.1, 7));
        assert_eq!(duel.side.disconnected(self.innocent), None, "{name}");
        duel.send_innocent(&std::mem::take(&mut self.rest));
        let stag = duel.side.stag.0;
        let source = (stag, BASE + WRITTEN.0 as u64);
        let read = read_header((0x77, 0x1234), 300, source);
        duel.send_innocent(&fpdu(&untagged(
            UNTAGGED | LAST,
            READ_REQUEST,
            [1, 1, 0],
            &read,
        )));
        let answer = fpdu(&tagged(
            TAGGED | LAST,
            READ_RESPONSE,
            0x77,
            0x1234,
            &data[..300],
        ));
        assert!(
            duel.innocent.received[self.innocent_heard..] == answer,
            "{name}"
        );
        let received = duel.side.completion(INNOCENT_RECEIVE).expect(name);
        assert_eq!(received.status, WcStatus::Success as u8, "{name}");
        assert_eq!(duel.side.state(self.innocent), QpState::Rts, "{name}");
        // All of the memory: what the innocent peer sent, and in what the hostile one was given for
        // its own anything.
        let mut found = duel.side.read(0, MEMORY);
        let mut expected = vec![0; MEMORY];
        expected[WRITTEN.0..][..WRITTEN.1].copy_from_slice(&data);
        expected[DELIVERED.0..][..DELIVERED.1].copy_from_slice(&data[..DELIVERED.1]);
        for (at, len) in [RECEIVE, SINK] {
            found[at..at + len].fill(0);
        }
        assert!(
            found == expected,
            "{name}: memory that was not given has changed"
        );
        // The answer is acknowledged by then.
        duel.run_for(Duration::from_secs(1));
        let levels = duel.side.shard.levels();
        assert_eq!(levels.frames_free, duel.side.frames, "{name}: {levels:?}");
    }
}

/// Accepts the request that waits, with a receive posted.
fn accept(duel: &mut Duel, markers: bool, wr_id: u64, receive: (usize, usize)) -> QpNum {
    let (request, mpa, _) = duel.side.take_request().expect("a request");
    let mpa = MpaOptions {
        markers,
        ird: IRD,
        ord: 4,
        ..mpa
    };
    let qp = duel.side.create_qp();
    duel.side.post_recv(qp, wr_id, receive.0, receive.1);
    let command = Command::Accept {
        request,
        qp,
        mpa,
        private_data: Vec::new(),
    };
    duel.side.shard.execute(command, duel.now).unwrap();
    duel.pump();
    qp
}

/// The Terminate, as RFC 5040 section 4.8 has it.
fn terminate(control: u16, shown: Shown, fault: &[u8]) -> Vec<u8> {
    let flags = match shown {
        Shown::Nothing => 0,
        Shown::Header => 0xc0,
        Shown::HeaderAndRead => 0xe0,
    };
    let mut payload = control.to_be_bytes().to_vec();
    payload.extend([flags, 0]);
    if shown != Shown::Nothing {
        let header = if fault[0] & 0x80 != 0 { 14 } else { 18 };
        payload.extend((fault.len() as u16).to_be_bytes());
        payload.extend(&fault[..header]);
        if shown == Shown::HeaderAndRead {
            payload.extend(&fault[header..header + 28]);
        }
    }
    fpdu(&untagged(UNTAGGED | LAST, TERMINATE, [2, 1, 0], &payload))
}

#[test]
fn each_illegal_segment_gets_its_terminate_and_the_other_stream_goes_on() {
    let count = cases(&Scene::new(false).duel.side).len();
    assert!(count > 75, "{count}");
    for index in 0..count {
        let mut scene = Scene::new(false);
        let case = cases(&scene.duel.side).swap_remove(index);
        let name = case.name;
        scene.open();
        if case.reads {
            let (sink, len) = SINK;
            let remote = (Stag(9), 0);
            let hostile = scene.hostile;
            let side = &mut scene.duel.side;
            side.post_work(hostile, WrOpcode::Read, OWN_READ, sink, remote, len);
            scene.duel.pump();
        }
        let from = scene.heard();
        let mut octets: Vec<u8> = case.before.iter().flat_map(|ulpdu| fpdu(ulpdu)).collect();
        octets.extend(fpdu(&case.fault));
        if case.damaged {
            let at = octets.len() - 10;
            octets[at] ^= 4;
        }
        // A second thing that is wrong, right behind: only the first is told (RFC 5040 section 7.1).
        octets.extend(fpdu(&untagged(UNTAGGED | LAST, SEND, [9, 1, 0], &[])));
        scene.send(&octets);
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

/// RFC 5044 section 7.1.2: a responder says nothing before it has a valid FPDU, not even what is
/// wrong with the first one as an FPDU; with its ULPDU, it does.
#[test]
fn an_illegal_first_fpdu_ends_its_stream_and_the_other_goes_on() {
    let wrong_crc = {
        let mut octets = write_fpdu(NARROW, BASE + PLACES[2] as u64, &[0xee; 9]);
        octets[12] ^= 1;
        octets
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
    for (name, octets, heard, event, reason) in [
        (
            "a wrong CRC",
            wrong_crc,
            vec![],
            TcpEvent::Reset,
            DisconnectReason::LocalError,
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
        scene.send(&octets);
        assert!(scene.duel.peer.received[from..] == heard, "{name}");
        assert!(scene.has_event(&event), "{name}");
        scene.assert_ended(reason, name);
        scene.assert_innocent_unharmed(name);
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
        let mut octets = fpdu_at(&write, Markers::On, opening.len() as u64);
        let marker = 512 - opening.len();
        let right = u16::from_be_bytes([octets[marker + 2], octets[marker + 3]]);
        assert_eq!(usize::from(right), marker, "it is the FPDU's first one");
        let pointer = right.wrapping_add(wrong).to_be_bytes();
        octets[marker + 2..marker + 4].copy_from_slice(&pointer);
        let end = octets.len() - 4;
        let crc = Crc32c::new().over(&octets[..end]).octets();
        octets[end..].copy_from_slice(&crc);
        let from = scene.heard();
        scene.send(&octets);
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
    // Three octets of pad behind a ULPDU of 15.
    padded[end - 3..end].fill(0xff);
    let crc = Crc32c::new().over(&padded[..end]).octets();
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
            "a Write without octets, anywhere",
            fpdu(&tagged(0xc1, WRITE, 0, u64::MAX, &[])),
        ),
    ];
    for (name, octets) in legal {
        let mut scene = Scene::new(false);
        scene.open();
        let from = scene.heard();
        scene.send(&octets);
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
    let mut octets = fpdu_at(&tagged(0xc1, WRITE, stag, BASE, &[0; 40]), Markers::On, 0);
    octets[..4].copy_from_slice(&[0xff, 0xff, 0, 3]);
    let end = octets.len() - 4;
    let crc = Crc32c::new().over(&octets[..end]).octets();
    octets[end..].copy_from_slice(&crc);
    let from = scene.heard();
    scene.send(&octets);
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
    // Name, whether the stream was opened before, octets, what is heard, the reason.
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
    for (name, opened, octets, heard, reason) in cases {
        let mut scene = Scene::new(false);
        if opened {
            scene.open();
        }
        let from = scene.heard();
        scene.send(&octets);
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
            "513 octets of private data",
            frame(ours, 0x40, 1, 513, &[0; 513]),
        ),
        ("S without its octets", frame(ours, 0x50, 2, 3, &[0; 3])),
        (
            "more octets than announced",
            frame(ours, 0x40, 1, 3, &[0; 4]),
        ),
        (
            "an FPDU behind",
            [request(0, b""), write_fpdu(1, 0, &[])].concat(),
        ),
    ];
    for (name, octets) in cases {
        // Beside a hostile peer that behaves, a third connection.
        let mut scene = Scene::new(false);
        let conn = scene.duel.peer.conn.unwrap();
        scene.duel.peer.stack.abort(conn);
        scene.duel.run_for(Duration::from_secs(1));
        scene.duel.peer.received.clear();
        scene.duel.peer.events.clear();
        scene.duel.connect();
        scene.send(&octets);
        assert!(scene.has_event(&TcpEvent::Reset), "{name}");
        assert!(scene.duel.peer.received.is_empty(), "{name}");
        assert_eq!(scene.duel.side.counter("startup_failed"), 1, "{name}");
        scene.assert_innocent_unharmed(name);
    }
}
