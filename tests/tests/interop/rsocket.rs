//! rsockets of Debian's librdmacm over siw, and ours, by the same unmodified programs at both ends.

use std::time::Duration;

use rnic_tests::cases::Cases;
use rnic_tests::interop::Interop;
use rnic_tests::lab::Family;
use rnic_tests::programs::{self, Library};

const LIMIT: Duration = Duration::from_secs(60);

/// What the programs print when all went well: what the columns are, and a line of them.
const LINES: usize = 2;

/// The last one times the transfers is a multiple of half a ring of rstream's (512 KiB): so that no grant
/// is due shortly before the end, when siw resets its connection for it (docs/interop.md).
const SIZES: [u32; 3] = [1, 3000, 262_144];

struct Stand {
    interop: Interop,
    library: Library,
}

/// Our end connects.
fn to_siw(stand: &Stand, family: Family, port: u16, run: &str) {
    let at = stand.interop.peer.address(family, port).ip();
    let server = format!("{run} -b {at} -p {port}");
    let server = stand.interop.peer.listen(port, &server);
    let client = format!("{run} -s {at} -p {port}");
    let client = stand.library.command(&stand.interop.daemon, &client);
    let client = client.limit(LIMIT).run().success();
    let server = server.finish(LIMIT).success();
    let complete = [&client.stdout, &server.stdout].map(|told| told.lines().count() == LINES);
    assert_eq!(complete, [true; 2], "{client}\n{server}");
}

/// siw's end connects.
fn from_siw(stand: &Stand, family: Family, port: u16, run: &str) {
    let at = stand.interop.host.address(family, port).ip();
    let server = format!("{run} -b {at} -p {port}");
    let server = stand
        .library
        .command(&stand.interop.daemon, &server)
        .spawn();
    programs::wait_for_listener(&stand.interop.daemon);
    let client = format!("{run} -s {at} -p {port}");
    let client = stand.interop.peer.start(&client).finish(LIMIT).success();
    let server = server.finish(LIMIT).success();
    let complete = [&client.stdout, &server.stdout].map(|told| told.lines().count() == LINES);
    assert_eq!(complete, [true; 2], "{client}\n{server}");
}

#[test]
fn rsockets_of_librdmacm_and_ours_verify_each_others_data_in_both_roles() {
    let interop = Interop::new("rsocket");
    let library = Library::new(&interop.lab);
    let stand = Stand { interop, library };
    let mut cases = Cases::new("rsockets over a bridge, XDP in native mode");
    // Ports that no case before had: connections of siw's linger in TIME-WAIT.
    let mut port = 7400;
    for (program, mode) in [
        ("rstream", "-T b"),
        ("rstream", "-T n"),
        ("rstream", "-T a"),
        ("riostream", "-T b"),
    ] {
        for size in SIZES {
            let run = format!("{program} {mode} -T v -S {size} -C 10 -I 3");
            port += 2;
            cases.run(format!("{run}, to siw"), || {
                to_siw(&stand, Family::V4, port, &run);
            });
            // librdmacm's rpoll takes an end for an error when data comes with it, and so does rstream.
            if mode == "-T a" {
                continue;
            }
            cases.run(format!("{run}, from siw"), || {
                from_siw(&stand, Family::V4, port + 1, &run);
            });
        }
    }
    let run = "rstream -T b -T v -S 3000 -C 10 -I 3";
    cases.run("IPv6, to siw", || to_siw(&stand, Family::V6, 7500, run));
    cases.run("IPv6, from siw", || from_siw(&stand, Family::V6, 7501, run));
    cases.finish();
}
