//! tshark, a dissector that is not ours, finds nothing wrong in what the RNIC puts on the wire.

use std::path::Path;

use rnic_tests::daemon::DaemonOptions;
use rnic_tests::lab::{Family, LinkOptions};
use rnic_tests::pair::Pair;
use rnic_tests::tool;
use rnic_tests::tshark::{Dissection, damaged_copy};

const PORT: u16 = 18515;
const ROUNDS: u64 = 5;

/// Captures an `rnic-ping` of [`ROUNDS`] rounds at both ends.
fn capture_ping(family: Family, mpa: &[&str], check: impl Fn(&Path)) {
    let options = DaemonOptions {
        capture: true,
        ..DaemonOptions::default()
    };
    let pair = Pair::with("capture", &LinkOptions::default(), &options);
    let at = pair.b.address(family, PORT);
    let server = tool::server(&pair.daemon_b, "rnic-ping", at, mpa);
    let rounds = ROUNDS.to_string();
    let more = [&["--size", "4096", "--count", &rounds], mpa].concat();
    let _ = tool::client(&pair.daemon_a, "rnic-ping", at, &more)
        .run()
        .success();
    drop(server);
    let captures = [pair.daemon_a.capture(), pair.daemon_b.capture()].map(Path::to_path_buf);
    let _ = pair.daemon_a.stop();
    let _ = pair.daemon_b.stop();
    for capture in captures {
        check(&capture);
    }
}

#[track_caller]
fn nothing_is_wrong(found: &Dissection) {
    assert_eq!(found.errors, [], "malformed packets or errors: {found:?}");
    assert_eq!(
        found.good_crcs, found.fpdus,
        "an FPDU without a right CRC: {found:?}"
    );
    assert_eq!(found.bad_crcs, 0, "{found:?}");
    assert_eq!(
        found.good_checksums, found.tcp,
        "a wrong TCP checksum: {found:?}"
    );
    assert_eq!(
        found.frames, found.tcp,
        "a frame that is not TCP: {found:?}"
    );
}

fn every_message_of_a_ping_is_dissected(family: Family, mpa: &[&str]) {
    capture_ping(family, mpa, |capture| {
        let found = Dissection::of(capture);
        nothing_is_wrong(&found);
        assert_eq!((found.requests, found.replies), (1, 1), "{found:?}");
        assert_eq!(found.opcode("Read Request"), ROUNDS, "{found:?}");
        // 4096 bytes are three DDP segments at an MTU of 1500.
        assert_eq!(found.opcode("Read Response"), 3 * ROUNDS, "{found:?}");
        assert!(found.opcode("Write") >= 3 * ROUNDS, "{found:?}");
        assert!(found.opcode("Send") >= 2 * ROUNDS, "{found:?}");
        assert_eq!(
            found.opcodes.len(),
            4,
            "an opcode that a ping has no use for: {found:?}"
        );
        assert_eq!(
            found.opcodes.values().sum::<u64>(),
            found.fpdus,
            "{found:?}"
        );
    });
}

#[test]
fn tshark_dissects_every_message_of_a_ping_with_markers() {
    every_message_of_a_ping_is_dissected(Family::V4, &["--markers"]);
}

#[test]
fn tshark_dissects_every_message_of_a_ping_over_ipv4() {
    every_message_of_a_ping_is_dissected(Family::V4, &[]);
}

#[test]
fn tshark_dissects_every_message_of_a_ping_over_ipv6() {
    every_message_of_a_ping_is_dissected(Family::V6, &[]);
}

#[test]
fn a_byte_changed_in_the_capture_is_found() {
    capture_ping(Family::V4, &[], |capture| {
        let whole = Dissection::of(capture);
        // The byte before the CRC of an FPDU in the middle: payload or pad, covered by the CRC.
        let (frame, crc) = whole.crc_positions[whole.crc_positions.len() / 2];
        let damaged = capture.with_extension("damaged.pcapng");
        damaged_copy(capture, &damaged, frame, crc - 1);
        let found = Dissection::of(&damaged);
        assert_eq!(found.frames, whole.frames);
        assert_eq!(found.good_checksums, whole.good_checksums - 1, "{found:?}");
        assert_eq!(
            (found.good_crcs, found.bad_crcs),
            (whole.good_crcs - 1, 1),
            "{found:?}"
        );
    });
}
