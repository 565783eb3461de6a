//! `rnic-ping` and an unmodified rping, in both roles. Either client compares what comes back with
//! what it sent.

use std::time::Duration;

use rnic_tests::cases::Cases;
use rnic_tests::daemon::DaemonOptions;
use rnic_tests::interop::Interop;
use rnic_tests::lab::{Family, Wiring};
use rnic_tests::peer::{PeerOptions, Ran};
use rnic_tests::tool;

/// Bytes of rping's buffer.
const SIZES: [u32; 4] = [4, 64, 1000, 65_000];
/// rping as a client takes no buffer that is too short for its text.
const RPING_SIZE_MIN: u32 = 23;
/// Rounds of each run.
const ROUNDS: usize = 5;
const LIMIT: Duration = Duration::from_secs(60);

/// What one end asks of CRCs: siw never asks for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Crc {
    Asked,
    NotAsked,
}

impl Crc {
    fn options(self) -> &'static [&'static str] {
        match self {
            Self::Asked => &[],
            Self::NotAsked => &["--no-crc"],
        }
    }
}

/// We connect to rping.
fn to_siw(stand: &Interop, family: Family, port: u16, size: u32, crc: Crc) {
    let at = stand.peer.address(family, port);
    let server = format!(
        "rping -s -v -a {} -p {port} -S {} -C {ROUNDS}",
        at.ip(),
        size.max(RPING_SIZE_MIN)
    );
    let server = stand.peer.listen(port, &server);
    let (size, rounds) = (size.to_string(), ROUNDS.to_string());
    let sizes = ["--size", &size, "--count", &rounds];
    let client = tool::client(
        &stand.daemon,
        "rnic-ping",
        at,
        &[&sizes[..], crc.options()].concat(),
    );
    let report = tool::report(&client.limit(LIMIT).run().success());
    assert_eq!(report["rounds"], ROUNDS, "{report}");
    let server = server.finish(LIMIT);
    // Of its text so much as fits, with a zero behind.
    let text = if size == "4" { "rdm" } else { "rdma-ping-" };
    let line = format!("server ping data: {text}");
    assert_eq!(server.stdout.matches(&line).count(), ROUNDS, "{server}");
    assert!(ended_well(&server), "{server}");
}

/// With 0, or as its thread for events found their descriptor closed by the thread that ends. All rounds are done.
fn ended_well(rping: &Ran) -> bool {
    let closed = "rdma_get_cm_event: Bad file descriptor";
    rping.code == 0 || rping.stderr.contains(closed)
}

/// rping connects to us.
fn from_siw(stand: &Interop, family: Family, port: u16, size: u32, crc: Crc) {
    let at = stand.host.address(family, port);
    let server = tool::server(&stand.daemon, "rnic-ping", at, crc.options());
    let client = format!(
        "rping -c -v -V -a {} -p {port} -S {size} -C {ROUNDS}",
        at.ip()
    );
    let client = stand.peer.start(&client).finish(LIMIT);
    if size < RPING_SIZE_MIN {
        let client = client.failure();
        let says = format!("Invalid size {size} (valid range is {RPING_SIZE_MIN} to ");
        assert!(client.stderr.contains(&says), "{client}");
        return;
    }
    all_rounds(&client);
    let server = server.finish(LIMIT).success();
    assert!(
        server.stdout.contains(&format!("{ROUNDS} rounds")),
        "{server}"
    );
}

/// rping as a client, which checks what comes back.
#[track_caller]
fn all_rounds(client: &Ran) {
    let rounds = client.stdout.matches("ping data: rdma-ping-").count();
    assert_eq!(rounds, ROUNDS, "{client}");
    assert!(ended_well(client), "{client}");
}

fn both_roles(stand: &Interop, cases: &mut Cases, sizes: &[u32], crcs: &[Crc]) {
    // Ports that no case before had: connections of siw's linger in TIME-WAIT.
    let mut port = 7000 + u16::try_from(2 * cases.count()).expect("few cases");
    for &crc in crcs {
        for family in Family::ALL {
            for &size in sizes {
                port += 2;
                let name = format!("{size} bytes, {family:?}, CRC {crc:?}");
                cases.run(format!("to siw, {name}"), || {
                    to_siw(stand, family, port, size, crc);
                });
                cases.run(format!("from siw, {name}"), || {
                    from_siw(stand, family, port + 1, size, crc);
                });
            }
        }
    }
}

#[test]
fn rping_and_we_verify_each_others_data_in_both_roles() {
    let stand = Interop::new("rping");
    let mut cases = Cases::new("rping over a bridge, XDP in native mode");
    both_roles(&stand, &mut cases, &SIZES, &[Crc::Asked, Crc::NotAsked]);
    cases.run(
        "siw rejects who asks for Markers, and is asked again",
        || {
            siw_refuses_markers(&stand, 7900);
        },
    );
    cases.run("siw as initiator is not asked for Markers", || {
        siw_is_not_asked_for_markers(&stand, 7901);
    });
    cases.finish();
}

/// A responder has to send Markers to an initiator that asks for them (RFC 5044 section 4.3). siw does not have
/// them and rejects.
fn siw_refuses_markers(stand: &Interop, port: u16) {
    let at = stand.peer.address(Family::V4, port);
    let _server = stand
        .peer
        .listen(port, &format!("rping -s -a {} -p {port}", at.ip()));
    let client = |more| tool::client(&stand.daemon, "rnic-ping", at, &[more]).run();
    let refused = || stand.daemon.counter("markers_refused");
    let before = refused();
    let error = client("--markers=require").failure();
    assert!(error.contains("rejected"), "{error}");
    assert_eq!(refused(), before, "it was not asked again");
    let client = client("--markers").success();
    assert!(client.stderr.contains("without Markers"), "{client}");
    assert_eq!(refused(), before + 1);
}

/// Nor does it take a reply that asks for them, and there is no second try for a responder.
fn siw_is_not_asked_for_markers(stand: &Interop, port: u16) {
    let at = stand.host.address(Family::V4, port);
    let client = format!("rping -c -v -V -a {} -p {port} -C {ROUNDS}", at.ip());
    let server = tool::server(&stand.daemon, "rnic-ping", at, &["--markers=require"]);
    let _ = stand.peer.start(&client).finish(LIMIT).failure();
    drop(server);
    let server = tool::server(&stand.daemon, "rnic-ping", at, &["--markers"]);
    all_rounds(&stand.peer.start(&client).finish(LIMIT));
    let _ = server.finish(LIMIT).success();
}

#[test]
fn rping_holds_with_a_siw_that_asks_for_crcs_and_a_ready_to_receive() {
    let siw = PeerOptions {
        siw: "siw_tunable,peer_to_peer=1,mpa_crc_required=1".into(),
        ..PeerOptions::default()
    };
    let stand = Interop::with(
        "rping-rtr",
        Wiring::Bridged,
        &DaemonOptions::default(),
        &siw,
    );
    let set = "grep -qx Y /sys/module/siw_tunable/parameters/";
    let set = format!("{set}peer_to_peer && {set}mpa_crc_required");
    let _ = stand.peer.run(&set).success();
    let mut cases = Cases::new("rping, siw asking for CRCs and in peer-to-peer mode");
    both_roles(&stand, &mut cases, &[64, 65_000], &[Crc::NotAsked]);
    cases.finish();
}

#[test]
fn rping_holds_with_the_rnic_on_the_tap_itself() {
    let generic = DaemonOptions {
        mode: Some("generic"),
        ..DaemonOptions::default()
    };
    let stand = Interop::with(
        "rping-tap",
        Wiring::Direct,
        &generic,
        &PeerOptions::default(),
    );
    let mut cases = Cases::new("rping over the tap itself, XDP in generic mode");
    both_roles(&stand, &mut cases, &[64, 65_000], &[Crc::Asked]);
    cases.finish();
}

#[test]
fn rping_holds_over_links_that_lose_reorder_and_cut() {
    let mut stand = Interop::over("rping-link");
    let mut cases = Cases::new("rping over a link");
    let sizes = [64, 65_000];
    stand.link(&["--loss=1%", "--reorder=2%"]);
    cases.group("1 % lost, 2 % reordered");
    both_roles(&stand, &mut cases, &sizes, &[Crc::Asked, Crc::NotAsked]);

    // Not toward siw: when a segment ends within the last bytes of an untagged header, it takes what follows for a
    // part of the header (docs/interop.md).
    stand.link(&["--loss=1%", "--reorder=2%", "--to-left=split=20%,join=20%"]);
    cases.group("the same, 20 % cut, 20 % joined and cut toward us");
    both_roles(&stand, &mut cases, &sizes, &[Crc::NotAsked]);

    stand.link(&["--to-left=split=50%,pieces=4,join=20%"]);
    cases.group("most boundaries moved, toward us");
    both_roles(&stand, &mut cases, &sizes, &[Crc::Asked]);

    stand.link(&["--to-right=split=50%,pieces=4"]);
    cases.group("half of all cut, toward siw");
    cases.run(
        "with CRC asked siw takes a cut CRC for a wrong one, or all is well",
        || {
            siw_takes_a_cut_crc_for_a_wrong_one(&stand, 7900);
        },
    );
    cases.finish();
}

/// siw copies the second part of a CRC that comes in two segments over the first part, and ends the
/// stream as if the CRC were wrong (0x2002). Nothing else may come of it.
fn siw_takes_a_cut_crc_for_a_wrong_one(stand: &Interop, port: u16) {
    let at = stand.peer.address(Family::V4, port);
    let server = format!("rping -s -a {} -p {port} -S 65000 -C 20", at.ip());
    let _server = stand.peer.listen(port, &server);
    let options = ["--size", "65000", "--count", "20"];
    let client = tool::client(&stand.daemon, "rnic-ping", at, &options);
    let client = client.limit(LIMIT).run();
    assert!(
        client.status.success() || client.stderr.contains("sent Terminate 0x2002"),
        "{client}"
    );
}
