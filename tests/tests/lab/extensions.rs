//! Immediate Data and Atomic Operations (RFC 7306) between two RNICs over a cable, through daemons
//! and in the program's own process; and what tshark reads of them.

use std::net::SocketAddr;
use std::sync::mpsc;
use std::time::Duration;

use rnic::embedded::{Device, DeviceConfig};
use rnic::{
    AcceptOptions, ConnectOptions, Context, ListenOptions, QpConfig, RemoteMemory, WcStatus,
    WorkCompletion, WorkRequest, WrOpcode,
};
use rnic_tests::daemon::{Daemon, DaemonOptions};
use rnic_tests::lab::{Family, Host, INTERFACE, Lab, LinkOptions};
use rnic_tests::pair::Pair;
use rnic_tests::tshark::{self, Dissection};
use rnic_tests::verbs::{Endpoint, LIMIT};

const PORT: u16 = 18515;
const LEN: usize = 8192;
/// Where the responder's word is, and where Writes go.
const WORD: u64 = 64;
const SINK: u64 = 4096;
const FIRST: u64 = 0xfedc_ba98_7654_3210;

fn word(end: &Endpoint, offset: usize) -> u64 {
    let bytes = end
        .region
        .to_vec(offset..offset + 8)
        .expect("in the region");
    u64::from_ne_bytes(bytes.try_into().expect("eight bytes"))
}

/// The next completion, which is a success.
#[track_caller]
fn success(end: &Endpoint) -> WorkCompletion {
    let done = end.completion();
    assert_eq!(done.status, WcStatus::Success, "{done:?}");
    done
}

/// Posts an atomic and gives what the word was before.
fn original(end: &Endpoint, work: impl FnOnce(&rnic::Sge) -> WorkRequest<'_>) -> u64 {
    let place = end.element(0..8);
    end.post(work(&place));
    assert_eq!(success(end).byte_len, 8);
    word(end, 0)
}

/// What the requester does, in this order; the responder's word is [`FIRST`].
fn request_everything(end: &Endpoint, peer: RemoteMemory) {
    let at = peer.offset(WORD);
    let add = original(end, |place| WorkRequest::atomic_fetch_add(1, place, at, 1));
    assert_eq!(add, FIRST);
    let masked = original(end, |place| {
        WorkRequest::masked_fetch_add(2, place, at, 0xffff, 0x8000)
    });
    assert_eq!(masked, FIRST + 1);
    // 0x3211 + 0xffff in a field of 16 bits.
    let found = (FIRST & !0xffff) | 0x3210;
    let missed = original(end, |place| {
        WorkRequest::atomic_compare_swap(3, place, at, found + 1, 9)
    });
    assert_eq!(missed, found);
    let hit = original(end, |place| {
        WorkRequest::atomic_compare_swap(4, place, at, found, 9)
    });
    assert_eq!(hit, found);
    let swapped = original(end, |place| WorkRequest::atomic_swap(5, place, at, 10));
    assert_eq!(swapped, 9);
    end.region
        .write(100, b"before the immediate data")
        .expect("room");
    let bytes = [end.element(100..125)];
    let sink = peer.offset(SINK);
    end.post(WorkRequest::write_with_immediate(6, &bytes, sink, 77));
    assert_eq!(success(end).opcode, WrOpcode::WriteImmediate);
    end.post(WorkRequest::immediate(7, u64::MAX).solicited());
    assert_eq!(success(end).opcode, WrOpcode::Immediate);
}

/// What the responder sees of it, with two receives posted.
fn respond_to_everything(end: &Endpoint) {
    let first = success(end);
    assert_eq!((first.wr_id, first.opcode), (1, WrOpcode::Recv));
    assert_eq!((first.immediate, first.solicited), (Some(77), false));
    let sink = SINK as usize;
    let written = end.region.to_vec(sink..sink + 25).expect("in the region");
    assert_eq!(written, b"before the immediate data");
    assert_eq!(word(end, WORD as usize), 10);
    let second = success(end);
    assert_eq!((second.immediate, second.solicited), (Some(u64::MAX), true));
}

/// Listens, says what the requester may use, and responds.
fn responder(end: &Endpoint, at: SocketAddr, told: &mpsc::Sender<RemoteMemory>) {
    end.region
        .write(WORD as usize, &FIRST.to_ne_bytes())
        .expect("in the region");
    end.post_recv(1, 0..8);
    end.post_recv(2, 0..8);
    let listener = end
        .context
        .listen(at, ListenOptions::default().backlog(4))
        .expect("a free address");
    told.send(end.remote()).expect("the requester waits");
    let request = listener.accept().wait(LIMIT).expect("a request");
    request
        .accept(&end.qp, AcceptOptions::default())
        .wait(LIMIT)
        .expect("RDMA mode");
    respond_to_everything(end);
    end.qp.disconnected().wait(LIMIT).expect("an end in order");
}

fn requester(end: &Endpoint, at: SocketAddr, told: &mpsc::Receiver<RemoteMemory>) {
    let peer = told.recv_timeout(LIMIT).expect("the responder listens");
    end.qp
        .connect(at, ConnectOptions::default())
        .wait(Duration::from_secs(10))
        .expect("RDMA mode");
    request_everything(end, peer);
    end.qp.disconnect().wait(LIMIT).expect("an end in order");
}

/// Both, through daemons.
fn everything(daemon_a: &Daemon, daemon_b: &Daemon, at: SocketAddr) {
    let (tell, told) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| responder(&Endpoint::new(daemon_b, LEN), at, &tell));
        requester(&Endpoint::new(daemon_a, LEN), at, &told);
    });
}

#[test]
fn immediate_data_and_atomics_work_through_daemons() {
    let pair = Pair::new("extensions");
    for family in Family::ALL {
        everything(&pair.daemon_a, &pair.daemon_b, pair.b.address(family, PORT));
    }
    let counter = |name| (pair.daemon_a.counter(name), pair.daemon_b.counter(name));
    assert_eq!(counter("atomic_requests_sent"), (10, 0));
    assert_eq!(counter("atomic_responses_sent"), (0, 10));
    assert_eq!(counter("atomic_responses_received"), (10, 0));
    assert_eq!(counter("immediates_sent"), (4, 0));
    assert_eq!(counter("immediates_received"), (0, 4));
}

/// A client of an RNIC in this process.
fn embedded(bytes: usize) -> Endpoint {
    let device = Device::open(DeviceConfig::new(INTERFACE)).expect("the interface");
    Endpoint::of(Context::embedded(&device).expect("a client"), bytes)
}

#[test]
fn immediate_data_and_atomics_work_embedded() {
    let mut lab = Lab::new("extensions-embedded");
    let (a, b): (Host, Host) = lab.pair(&LinkOptions::default());
    let at = b.address(Family::V4, PORT);
    let (tell, told) = mpsc::channel();
    std::thread::scope(|scope| {
        let b = b.namespace.clone();
        scope.spawn(move || b.in_thread(move || responder(&embedded(LEN), at, &tell)));
        let told = std::sync::Mutex::new(told);
        a.namespace.in_thread(|| {
            let told = told.lock().expect("nobody panicked with it");
            requester(&embedded(LEN), at, &told);
        });
    });
}

/// RFC 7306 section 5.3: one step for the atomics of all other streams of the RNIC.
#[test]
fn atomics_of_two_streams_on_one_word_are_never_lost() {
    const ROUNDS: u64 = 500;
    let pair = Pair::new("extensions-streams");
    let b = Endpoint::new(&pair.daemon_b, LEN);
    let peer = b.remote().offset(WORD);
    let queue_pairs = [PORT, PORT + 1].map(|port| {
        let qp = b.pd.create_qp(&b.cq, &b.cq, QpConfig::default());
        let at = pair.b.address(Family::V4, port);
        let listener = b
            .context
            .listen(at, ListenOptions::default().backlog(4))
            .expect("a free address");
        (qp.expect("a queue pair"), listener, at)
    });
    std::thread::scope(|scope| {
        for (qp, listener, at) in &queue_pairs {
            scope.spawn(move || {
                let request = listener.accept().wait(LIMIT).expect("a request");
                request
                    .accept(qp, AcceptOptions::default())
                    .wait(LIMIT)
                    .expect("RDMA mode");
            });
            let daemon = &pair.daemon_a;
            scope.spawn(move || {
                let end = Endpoint::new(daemon, LEN);
                end.qp
                    .connect(*at, ConnectOptions::default())
                    .wait(Duration::from_secs(10))
                    .expect("RDMA mode");
                let place = end.element(0..8);
                for wr_id in 0..ROUNDS {
                    end.post(WorkRequest::atomic_fetch_add(wr_id, &place, peer, 1));
                    if wr_id >= 8 {
                        let _ = success(&end);
                    }
                }
                for _ in 0..8 {
                    let _ = success(&end);
                }
            });
        }
    });
    assert_eq!(word(&b, WORD as usize), 2 * ROUNDS);
}

/// tshark 4.0 knows Atomic Requests and Responses with every field. Of Immediate Data it knows neither
/// the name nor the eight bytes: only the opcode's number and the queue are checked here.
#[test]
fn tshark_reads_every_field_of_the_extensions_as_it_was_sent() {
    let options = DaemonOptions {
        capture: true,
        ..DaemonOptions::default()
    };
    let pair = Pair::with("extensions-tshark", &LinkOptions::default(), &options);
    everything(
        &pair.daemon_a,
        &pair.daemon_b,
        pair.b.address(Family::V4, PORT),
    );
    let capture = pair.daemon_a.capture().to_path_buf();
    let _ = pair.daemon_a.stop();
    let found = Dissection::of(&capture);
    assert_eq!(found.errors, [], "{found:?}");
    assert_eq!((found.bad_crcs, found.good_crcs), (0, found.fpdus));
    assert_eq!(found.opcode("Atomic Request"), 5, "{found:?}");
    assert_eq!(found.opcode("Atomic Response"), 5, "{found:?}");
    assert_eq!(found.opcode("Unknown"), 2, "{found:?}");
    let opcodes = tshark::values(&capture, "iwarp_rdma.opcode");
    let immediate = opcodes.iter().filter(|opcode| opcode.as_str() >= "0x08");
    let immediate = immediate.filter(|opcode| opcode.as_str() < "0x0a");
    assert!(immediate.eq(["0x08", "0x09"]), "{opcodes:?}");
    let queues = tshark::values(&capture, "iwarp_ddp.qn");
    let expected = [["1", "3"].repeat(5), vec!["0", "0"]].concat();
    assert_eq!(queues, expected);
    let field = |name: &str| tshark::values(&capture, &format!("iwarp_rdma.atomic.{name}"));
    let found = (FIRST & !0xffff) | 0x3210;
    let numbers = |values: &[u64]| values.iter().map(u64::to_string).collect::<Vec<_>>();
    let masks = |values: &[u64]| {
        let hex = values.iter().map(|value| format!("0x{value:016x}"));
        hex.collect::<Vec<_>>()
    };
    assert_eq!(field("opcode"), numbers(&[0, 0, 2, 2, 2]));
    assert_eq!(field("add_data"), numbers(&[1, 0xffff]));
    assert_eq!(field("add_mask"), masks(&[0, 0x8000]));
    assert_eq!(field("swap_data"), numbers(&[9, 9, 10]));
    assert_eq!(field("swap_mask"), masks(&[u64::MAX; 3]));
    assert_eq!(field("compare_data"), numbers(&[0, 0, found + 1, found, 0]));
    let compare_masks = [u64::MAX, u64::MAX, u64::MAX, u64::MAX, 0];
    assert_eq!(field("compare_mask"), masks(&compare_masks));
    let originals = [FIRST, FIRST + 1, found, found, 9];
    assert_eq!(field("original_remote_data_value"), numbers(&originals));
    let identifiers = field("request_identifier");
    assert_eq!(identifiers.len(), 5);
    assert_eq!(field("original_request_identifier"), identifiers);
}
