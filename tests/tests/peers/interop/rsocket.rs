//! rsockets of Debian's librdmacm over siw, and ours, by the same unmodified programs at both ends.

use rnic_tests::cases::Cases;
use rnic_tests::lab::Family;

use super::stand::{Client, Stand};

/// What the programs print when all went well: what the columns are, and a line of them.
const LINES: usize = 2;

/// The last one times the transfers is a multiple of half a ring of rstream's (512 KiB): so that no grant
/// is due shortly before the end, when siw resets its connection for it (docs/interop.md).
const SIZES: [u32; 3] = [1, 3000, 262_144];

fn run(stand: &Stand, client: Client, family: Family, port: u16, run: &str) {
    let at = stand.server(client, family);
    let server = format!("{run} -b {at} -p {port}");
    let both = stand.run(client, port, [&server, &format!("{run} -s {at} -p {port}")]);
    for end in [&both.client, &both.server] {
        assert_eq!(end.stdout.lines().count(), LINES, "{end:?}");
    }
}

#[test]
fn rsockets_of_librdmacm_and_ours_verify_each_others_data_in_both_roles() {
    let stand = Stand::new("rsocket");
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
            let program = format!("{program} {mode} -T v -S {size} -C 10 -I 3");
            port += 2;
            cases.run(format!("{program}, to siw"), || {
                run(&stand, Client::Us, Family::V4, port, &program);
            });
            // librdmacm's rpoll takes an end for an error when data comes with it, and so does rstream.
            if mode == "-T a" {
                continue;
            }
            cases.run(format!("{program}, from siw"), || {
                run(&stand, Client::Siw, Family::V4, port + 1, &program);
            });
        }
    }
    let program = "rstream -T b -T v -S 3000 -C 10 -I 3";
    cases.run("IPv6, to siw", || {
        run(&stand, Client::Us, Family::V6, 7500, program);
    });
    cases.run("IPv6, from siw", || {
        run(&stand, Client::Siw, Family::V6, 7501, program);
    });
    cases.finish();
}
