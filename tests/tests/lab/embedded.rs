//! The same API without a daemon: the RNIC in the program's own process.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rnic::embedded::{Device, DeviceConfig};
use rnic::{Context, DisconnectReason, WcStatus, WorkRequest};
use rnic_tests::daemon::{Daemon, DaemonOptions, assert_nothing_attached};
use rnic_tests::huge_pages::{self, HUGE_PAGE, HugePages};
use rnic_tests::lab::{Cable, Command, Family, Host, INTERFACE, Lab, LinkOptions, Process};
use rnic_tests::snmp::TcpCounters;
use rnic_tests::verbs::{Endpoint, FULL_ACCESS, connect};
use rnic_tests::{binary, tool, wait};

const PORT: u16 = 18515;
/// Within this a server is done behind its client.
const END_LIMIT: Duration = Duration::from_secs(20);

/// A tool that opens the host's interface itself.
fn embedded(host: &Host, program: &str, role: &str) -> Command {
    host.namespace
        .command(binary::path(program))
        .label(&format!("{program}-{role}-embedded"))
        .args([role, "--embedded", INTERFACE])
}

fn embedded_server(host: &Host, program: &str, at: SocketAddr, more: &[&str]) -> Process {
    let mut server = embedded(host, program, "server")
        .args(["--listen", &at.to_string()])
        .args(more)
        .spawn();
    wait::until("the embedded server listens", tool::LISTEN_LIMIT, || {
        assert!(server.running(), "it ended: {}", server.stderr());
        server.stdout().contains("listening").then_some(())
    });
    server
}

/// Every operation, verified, from an embedded client.
#[track_caller]
fn everything_works(a: &Host, at: SocketAddr) {
    everything_works_with(a, at, &[]);
}

#[track_caller]
fn everything_works_with(a: &Host, at: SocketAddr, options: &[&str]) {
    for op in ["write", "send", "read"] {
        let more = ["--op", op, "--size", "20000", "--iterations", "500"];
        let done = embedded(a, "rnic-perf", "client")
            .args(["--connect", &at.to_string(), "--json", "--verify"])
            .args(more)
            .args(options)
            .run()
            .success();
        let bytes = tool::report(&done)["verified_bytes"].as_u64();
        assert_eq!(bytes, Some(20_000 * 500), "{op}");
    }
    let _ = embedded(a, "rnic-perf", "client")
        .args(["--connect", &at.to_string(), "--op", "write", "--latency"])
        .args(["--size", "64", "--iterations", "200"])
        .args(options)
        .run()
        .success();
}

#[test]
fn two_embedded_rnics_transfer() {
    for family in [Family::V4, Family::V6] {
        let mut lab = Lab::new("embedded");
        let (a, b) = lab.pair(&LinkOptions::default());
        let at = b.address(family, PORT);
        let server = embedded_server(&b, "rnic-perf", at, &[]);
        everything_works(&a, at);
        drop(server);
        assert_nothing_attached(&a.namespace, INTERFACE);
        assert_nothing_attached(&b.namespace, INTERFACE);
    }
}

#[test]
fn two_embedded_rnics_transfer_over_sctp_in_udp() {
    let mut lab = Lab::new("embedded-udp");
    let (a, b) = lab.pair(&LinkOptions::default());
    let at = b.address(Family::V4, PORT);
    let ours = ["--sctp", "--sctp-udp-port", "9899"];
    let _server = embedded_server(&b, "rnic-perf", at, &ours);
    let theirs = ["--sctp-udp-peer-port", "9899"];
    everything_works_with(&a, at, &[&ours[..], &theirs].concat());
}

#[test]
fn embedded_rnics_transfer_in_frames_of_several_buffers() {
    let mut lab = Lab::new("embedded-jumbo");
    let link = LinkOptions {
        mtu: 9000,
        ..LinkOptions::default()
    };
    let (a, b) = lab.pair(&link);
    let at = b.address(Family::V4, PORT);
    let _server = embedded_server(&b, "rnic-perf", at, &[]);
    everything_works(&a, at);
}

#[test]
fn an_embedded_rnic_and_a_daemon_transfer() {
    let mut lab = Lab::new("embedded-daemon");
    let (a, b) = lab.pair(&LinkOptions::default());
    let daemon = Daemon::start(&lab, &b, &DaemonOptions::default());
    let at = b.address(Family::V4, PORT);
    let _server = tool::server(&daemon, "rnic-perf", at, &[]);
    everything_works(&a, at);
}

/// Two embedded RNICs on such a cable, of which the first ends the connection in order and leaves; the
/// second has to see an end in order. Gives the resets by which the first host's kernel answered it.
#[track_caller]
fn resets_behind_an_end_in_order(name: &str, cable: Cable) -> u64 {
    let mut lab = Lab::new(name);
    let link = LinkOptions {
        cable: Some(cable),
        ..LinkOptions::default()
    };
    let (a, b) = lab.pair(&link);
    let at = b.address(Family::V4, PORT).to_string();
    let mut server = embedded(&b, "rnic-perf", "server")
        .args(["--listen", &at, "--once"])
        .spawn();
    let listens = server.says("listening", tool::LISTEN_LIMIT);
    listens.unwrap_or_else(|error| panic!("{error}"));
    let _ = embedded(&a, "rnic-perf", "client")
        .args(["--connect", &at, "--iterations", "1", "--quiet"])
        .run()
        .success();
    let _ = server.finish(END_LIMIT).success();
    TcpCounters::read(&a.namespace).out_resets
}

/// RFC 9293 section 3.10.7.4: behind both FINs a reset ends a connection and is no error. Here it is all
/// that the peer's host says when our FIN comes again and again, after its program is gone.
#[test]
fn an_end_in_order_is_one_without_the_last_acknowledgment_too() {
    let resets = resets_behind_an_end_in_order("embedded-unheard", Cable::NoBareAcks);
    assert!(resets > 0, "the last acknowledgment was not missed");
}

/// RFC 9293 section 3.10.7.5: in TIME-WAIT a FIN that comes again is acknowledged. A program that is done
/// stays for it.
#[test]
fn a_program_that_leaves_acknowledges_its_peers_end_once_more() {
    let resets = resets_behind_an_end_in_order("embedded-asked-again", Cable::NoPlainAcks);
    assert_eq!(resets, 0, "the kernel had to answer");
}

#[test]
fn an_embedded_rnic_on_an_unknown_interface_is_a_named_error() {
    let mut lab = Lab::new("embedded-unknown");
    let (a, b) = lab.pair(&LinkOptions::default());
    let at = b.address(Family::V4, PORT).to_string();
    let error = a
        .namespace
        .command(binary::path("rnic-perf"))
        .args(["client", "--embedded", "nosuch0", "--connect", &at])
        .run()
        .failure();
    assert!(
        error.contains("nosuch0"),
        "the interface is not named:\n{error}"
    );
}

const BYTES: usize = 100_000;

/// An endpoint whose RNIC is in this process, connected to one of a daemon's client.
struct Own {
    device: Arc<Device>,
    a: Endpoint,
    b: Endpoint,
}

/// Runs a test of memory that a program shares with its own RNIC.
fn with_own_rnic(name: &str, test: impl FnOnce(Own) + Send) {
    let mut lab = Lab::new(name);
    let (here, there) = lab.pair(&LinkOptions::default());
    let daemon = Daemon::start(&lab, &there, &DaemonOptions::default());
    here.namespace.in_thread(|| {
        let device = Device::open(DeviceConfig::new(INTERFACE)).expect("the interface is there");
        let context = Context::embedded(&device).expect("an RNIC of our own");
        let a = Endpoint::of(context, BYTES);
        let b = Endpoint::new(&daemon, BYTES);
        connect(&a, &b, there.address(Family::V4, PORT));
        test(Own { device, a, b });
    });
}

/// Work of `from` that must succeed.
#[track_caller]
fn done(from: &Endpoint, work: WorkRequest<'_>) {
    from.post(work);
    let completion = from.completion();
    assert_eq!(completion.status, WcStatus::Success, "{completion:?}");
}

/// The line of `/proc/self/maps` that an address is in.
fn mapping(address: u64) -> String {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
    let holds = |line: &&str| {
        let range = line
            .split(' ')
            .next()
            .and_then(|range| range.split_once('-'));
        let (from, to) = range.expect("a range");
        let [from, to] = [from, to].map(|text| u64::from_str_radix(text, 16).expect("a number"));
        (from..to).contains(&address)
    };
    let line = maps.lines().find(holds).expect("the address is mapped");
    line.to_owned()
}

#[test]
fn memory_that_a_program_shares_with_its_own_rnic_is_placed_into_as_it_is() {
    with_own_rnic("own-memory", |Own { a, b, .. }| {
        let line = mapping(a.region.addr());
        assert!(line.contains(" rw-p ") && !line.contains('/'), "{line}");
        let line = mapping(b.region.addr());
        assert!(line.contains(" rw-s ") && line.contains("memfd:"), "{line}");

        let all = 0..BYTES;
        a.fill(1);
        done(
            &a,
            WorkRequest::write(1, &[a.element(all.clone())], b.remote()),
        );
        done(
            &a,
            WorkRequest::read(2, &[a.element(all.clone())], b.remote()),
        );
        assert!(a.holds(1) && b.holds(1), "written and read back");
        b.fill(3);
        done(
            &a,
            WorkRequest::read(3, &[a.element(all.clone())], b.remote()),
        );
        assert!(a.holds(3), "read");
        a.fill(4);
        done(
            &b,
            WorkRequest::read(4, &[b.element(all.clone())], a.remote()),
        );
        assert!(b.holds(4), "read by the peer");
        b.fill(5);
        a.post_recv(5, 0..16);
        b.post(WorkRequest::write(6, &[b.element(all.clone())], a.remote()).unsignaled());
        b.post(WorkRequest::send(7, &[b.element(0..16)]));
        assert_eq!((a.completion().wr_id, b.completion().wr_id), (5, 7));
        assert!(a.holds(5), "written by the peer");

        a.region.write(4096, &7_u64.to_ne_bytes()).expect("inside");
        let original = b.element(0..8);
        let word = a.remote().offset(4096);
        done(&b, WorkRequest::atomic_fetch_add(8, &original, word, 3));
        assert_eq!(b.content()[..8], 7_u64.to_ne_bytes());
        assert_eq!(a.content()[4096..4104], 10_u64.to_ne_bytes());
    });
}

#[test]
fn a_peer_that_leaves_a_programs_own_memory_changes_nothing() {
    with_own_rnic("own-bounds", |Own { a, b, .. }| {
        a.fill(1);
        b.fill(2);
        let beyond = a.remote().offset(BYTES as u64 - 99);
        b.post(WorkRequest::write(1, &[b.element(0..100)], beyond));
        // RFC 5041 section 8.1: tagged buffer, base or bounds violation.
        let control = 0x1101;
        assert_eq!(a.ending(), DisconnectReason::TerminateSent { control });
        assert_eq!(b.ending(), DisconnectReason::TerminateReceived { control });
        assert!(a.holds(1), "a byte was changed");
        let outside = a.region.write(BYTES - 99, &[0; 100]);
        assert!(outside.is_err() && a.holds(1), "by the program itself");
    });
}

#[test]
fn a_programs_own_memory_is_out_of_a_peers_reach_once_it_is_deregistered() {
    with_own_rnic("own-revoked", |Own { device, a, b }| {
        let kept = a.pd.register(BYTES, FULL_ACCESS).expect("a region");
        let gone = a.pd.register(BYTES, FULL_ACCESS).expect("a region");
        let remote = gone.remote(0..100).expect("inside");
        done(&b, WorkRequest::write(1, &[b.element(0..100)], remote));
        let address = gone.addr();
        drop(gone);
        let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
        let start = format!("{address:x}-");
        assert!(!maps.lines().any(|line| line.starts_with(&start)), "{maps}");
        b.post(WorkRequest::write(2, &[b.element(0..100)], remote));
        // RFC 5041 section 8.1: tagged buffer, invalid STag.
        let control = 0x1100;
        assert_eq!(a.ending(), DisconnectReason::TerminateSent { control });

        // The RNIC may end before the memory that it had.
        kept.write(0, b"still there").expect("inside");
        device.shutdown();
        assert_eq!(kept.to_vec(0..11).expect("inside"), b"still there");
    });
}

#[test]
fn a_programs_own_memory_may_be_of_huge_pages() {
    with_own_rnic("own-huge", |Own { a, b, .. }| {
        // The RNICs have theirs already.
        let _more = HugePages::more(4);
        let len = HUGE_PAGE + BYTES;
        let huge =
            a.pd.register_huge(len, FULL_ACCESS)
                .expect("there are pages");
        assert_eq!((huge.len(), huge.addr() % HUGE_PAGE as u64), (len, 0));
        b.fill(1);
        let remote = huge.remote(HUGE_PAGE..len).expect("inside");
        done(&b, WorkRequest::write(1, &[b.element(0..BYTES)], remote));
        done(&b, WorkRequest::read(2, &[b.element(0..1)], remote));
        assert_eq!(huge.to_vec(HUGE_PAGE..len).expect("inside"), b.content());
        drop(huge);
        let _taken = huge_pages::take_all();
        let error =
            a.pd.register_huge(1, FULL_ACCESS)
                .expect_err("no page is left");
        let error = error.to_string();
        assert!(error.contains("vm.nr_hugepages"), "{error}");
    });
}
