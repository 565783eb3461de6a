//! tshark, with a dissector of RFC 5043 in Lua, finds nothing wrong in what the RNIC puts on the wire with SCTP. Each
//! chunk, session control message and RDMAP operation is there, and is what it should be.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rnic::{
    ConnectOptions, DisconnectReason, Error, ListenOptions, MpaOptions, Transport, WcStatus,
    WorkRequest,
};
use rnic_tests::daemon::DaemonOptions;
use rnic_tests::lab::{Family, Lab, LinkOptions};
use rnic_tests::pair::Pair;
use rnic_tests::tshark::{Dissection, damaged_copy, field, values};
use rnic_tests::verbs::{Endpoint, FULL_ACCESS, LIMIT, connect_with};

const PORT: u16 = 18515;
const BYTES: usize = 64 * 1024;
/// Bytes of each Write and Read: 15 segments of a packet of 1500 bytes.
const BULK: usize = 20_000;
/// DDP Segments of a Send of 5000 bytes.
const SEGMENTS_OF_SEND: u64 = 4;
/// After so long an idle association sends a heartbeat: the interval is 30 s, and one RTO of a second, with half of it
/// more or less.
const IDLE: Duration = Duration::from_millis(32_500);

fn sctp(revision: u8) -> ConnectOptions {
    let mpa = MpaOptions {
        revision,
        ..MpaOptions::default()
    };
    ConnectOptions::default()
        .transport(Transport::Sctp)
        .mpa(mpa)
}

fn listen() -> ListenOptions {
    ListenOptions::default().transport(Transport::Sctp)
}

/// Two connected queue pairs.
fn connected(pair: &Pair, family: Family, port: u16, revision: u8) -> (Endpoint, Endpoint) {
    let [a, b] = [&pair.daemon_a, &pair.daemon_b].map(|daemon| Endpoint::new(daemon, BYTES));
    connect_with(
        &a,
        &b,
        pair.b.address(family, port),
        listen(),
        sctp(revision),
    );
    (a, b)
}

/// Each operation of RFC 5040 and RFC 7306 once, or twice.
fn operations(a: &Endpoint, b: &Endpoint) {
    let shared = [(); 2].map(|()| b.pd.register(4096, FULL_ACCESS).expect("within limits"));
    for id in 100..106 {
        b.post_recv(id, 0..8192);
    }
    let (bulk, some) = ([a.element(0..BULK)], [a.element(0..5000)]);
    let original = a.element(BYTES - 8..BYTES);
    let to = b.remote().offset(8192);
    a.post(WorkRequest::read(0, &bulk, to));
    a.post(WorkRequest::write(1, &bulk, to));
    a.post(WorkRequest::send(2, &some));
    a.post(WorkRequest::send(3, &some).solicited());
    a.post(WorkRequest::send_with_invalidate(
        4,
        &some,
        shared[0].stag(),
    ));
    a.post(WorkRequest::send_with_invalidate(5, &some, shared[1].stag()).solicited());
    a.post(WorkRequest::immediate(6, 1));
    a.post(WorkRequest::immediate(7, 2).solicited());
    a.post(WorkRequest::atomic_fetch_add(8, &original, to, 1));
    a.post(WorkRequest::atomic_compare_swap(9, &original, to, 0, 1));
    for _ in 0..10 {
        let done = a.completion();
        assert_eq!(done.status, WcStatus::Success, "{done:?}");
    }
    for id in 100..106 {
        let received = b.completion();
        assert_eq!((received.wr_id, received.status), (id, WcStatus::Success));
    }
}

fn rejected(pair: &Pair, family: Family, port: u16, revision: u8) {
    let [a, b] = [&pair.daemon_a, &pair.daemon_b].map(|daemon| Endpoint::new(daemon, BYTES));
    let at = pair.b.address(family, port);
    let listener = b.context.listen(at, listen()).expect("a free address");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let request = listener.accept().wait(LIMIT).expect("it asks");
            request.reject(b"no").expect("it waits");
        });
        let rejected = a.qp.connect(at, sctp(revision)).wait(LIMIT);
        assert!(
            matches!(rejected, Err(Error::Rejected { .. })),
            "{rejected:?}"
        );
    });
}

/// Everything that can be on the wire, once over each family but for heartbeats. Gives the captures of both ends.
fn everything(name: &str) -> (Lab, [PathBuf; 2]) {
    let options = DaemonOptions {
        capture: true,
        ..DaemonOptions::default()
    };
    let pair = Pair::with(name, &LinkOptions::default(), &options);
    let begun = Instant::now();
    let (idle, _idle_too) = connected(&pair, Family::V4, PORT, 2);
    for (family, port) in [(Family::V4, PORT + 1), (Family::V6, PORT + 10)] {
        for revision in [1, 2] {
            let port = port + 2 * u16::from(revision);
            let (a, b) = connected(&pair, family, port, revision);
            operations(&a, &b);
            a.qp.disconnect().wait(LIMIT).expect("an end in peace");
            assert_eq!(b.ending(), DisconnectReason::Graceful);
            rejected(&pair, family, port + 1, revision);
        }
        // A Write that is refused is answered by a Terminate.
        let (a, b) = connected(&pair, family, port + 6, 2);
        let mut wrong = b.remote();
        wrong.stag ^= 0xff;
        a.post(WorkRequest::write(0, &[a.element(0..8)], wrong).unsignaled());
        assert!(matches!(
            a.ending(),
            DisconnectReason::TerminateReceived { .. }
        ));
        let (a, b) = connected(&pair, family, port + 7, 2);
        a.qp.abort().expect("it is connected");
        assert_eq!(b.ending(), DisconnectReason::Reset);
    }
    std::thread::sleep(IDLE.saturating_sub(begun.elapsed()));
    idle.qp.disconnect().wait(LIMIT).expect("an end in peace");
    drop(idle);
    pair.captures()
}

fn names(found: &BTreeMap<String, u64>) -> Vec<&str> {
    found.keys().map(String::as_str).collect()
}

#[track_caller]
fn nothing_is_wrong(found: &Dissection) {
    assert_eq!(found.errors, [], "malformed packets or errors");
    assert_eq!(
        found.good_checksums, found.frames,
        "frames without a right checksum: {found:?}"
    );
}

#[track_caller]
fn everything_is_decoded(capture: &Path) {
    let found = Dissection::of(capture);
    nothing_is_wrong(&found);
    let chunks = [
        "ABORT",
        "COOKIE_ACK",
        "COOKIE_ECHO",
        "DATA",
        "HEARTBEAT",
        "HEARTBEAT_ACK",
        "INIT",
        "INIT_ACK",
        "SACK",
        "SHUTDOWN",
        "SHUTDOWN_ACK",
        "SHUTDOWN_COMPLETE",
    ];
    assert_eq!(names(&found.chunks), chunks, "{found:?}");
    let control = [
        "Accept",
        "Enhanced Accept",
        "Enhanced Initiate",
        "Enhanced Reject",
        "Initiate",
        "Reject",
        "Terminate",
    ];
    assert_eq!(names(&found.session_control), control, "{found:?}");
    // Each of the seven sets of operations is four times on the wire: both families, both forms of a session. tshark
    // 4.0 does not know the opcodes of Immediate Data (8 and 9).
    for (opcode, count) in [
        ("Read Request", 4),
        ("Send", 4 * SEGMENTS_OF_SEND),
        ("Send with SE", 4 * SEGMENTS_OF_SEND),
        ("Send with Invalidate", 4 * SEGMENTS_OF_SEND),
        ("Send with SE and Invalidate", 4 * SEGMENTS_OF_SEND),
        ("Atomic Request", 8),
        ("Atomic Response", 8),
        ("Unknown", 8),
        ("Terminate", 2),
    ] {
        assert_eq!(found.opcode(opcode), count, "{opcode}: {found:?}");
    }
    // Also those of no bytes that a queue pair begins with.
    for opcode in ["Read Response", "Write"] {
        assert!(found.opcode(opcode) >= 4 * 14, "{opcode}: {found:?}");
    }
    let segments: u64 = found.opcodes.values().sum();
    assert_eq!(found.segment_chunks, segments, "{found:?}");
    let control: u64 = found.session_control.values().sum();
    assert_eq!(found.chunks["DATA"], segments + control, "{found:?}");
    let protocols = values(capture, "sctp.data_payload_proto_id");
    let of = |number| protocols.iter().filter(|found| *found == number).count() as u64;
    assert_eq!((of("16"), of("17")), (segments, control));
    let unordered = values(capture, "sctp.data_u_bit");
    assert!(unordered.iter().all(|bit| bit == "1"), "{unordered:?}");
    let adaptation = values(capture, "sctp.adaptation_layer_indication");
    let of_set_ups = found.chunks["INIT"] + found.chunks["INIT_ACK"];
    assert_eq!(adaptation.len() as u64, of_set_ups);
    assert!(adaptation.iter().all(|code| code == "0x00000001"));
}

/// A byte of the first message that is changed is found by SCTP's checksum.
#[track_caller]
fn damage_is_found(capture: &Path) {
    let damaged = capture.with_extension("damaged.pcapng");
    let kinds = field(capture, "sctp.data_u_bit");
    let with_data = kinds.iter().position(|kind| !kind.is_empty());
    let frame = with_data.expect("a frame with data") as u64 + 1;
    // Of the SCTP header's ports, behind Ethernet's and IPv4's.
    damaged_copy(capture, &damaged, frame, 14 + 20);
    let found = Dissection::of(&damaged);
    assert_eq!(found.good_checksums, found.frames - 1, "{found:?}");
}

#[test]
fn tshark_decodes_each_chunk_and_message_and_finds_nothing_wrong() {
    let (_lab, captures) = everything("sctp-capture");
    for capture in &captures {
        everything_is_decoded(capture);
    }
    damage_is_found(&captures[0]);
}
