//! Debian's programs of the verbs, the same unmodified ones at both ends: over siw, and over the RNIC.

use rnic_tests::cases::Cases;
use rnic_tests::lab::Family;

use crate::stand::{Client, Stand};

/// Rounds of each rping.
const ROUNDS: usize = 5;

/// Bytes of rping's buffer.
const SIZES: [u32; 3] = [64, 1000, 65_000];

/// perftest's programs: bandwidth with several queue pairs and with events, both ways, and latency. No
/// atomics, which siw does not have.
const PERFTEST: [&str; 10] = [
    "ib_write_bw -n 100",
    "ib_write_bw -n 50 -q 4 -s 4096",
    "ib_write_bw -n 50 -b -s 4096",
    "ib_read_bw -n 100",
    "ib_read_bw -n 50 -e -s 4096",
    "ib_send_bw -n 100",
    "ib_write_lat -n 50",
    "ib_read_lat -n 50",
    "ib_send_lat -n 50",
    "ib_send_lat -n 50 -s 8192",
];

/// rping: the client compares what comes back with what it sent, and both ends print it.
fn rping(stand: &Stand, client: Client, family: Family, port: u16, size: u32) {
    let at = stand.server(client, family);
    let run = format!("rping -v -V -a {at} -p {port} -S {size} -C {ROUNDS}");
    let both = stand.run(client, port, [&format!("{run} -s"), &format!("{run} -c")]);
    for end in [&both.client, &both.server] {
        let rounds = end.stdout.matches("ping data: rdma-ping-").count();
        assert_eq!(rounds, ROUNDS, "{end:?}");
    }
}

#[test]
fn programs_of_debian_meet_over_siw_and_over_the_rnic() {
    let stand = Stand::new("programs");
    let mut cases = Cases::new("Debian's programs over a bridge, XDP in native mode");
    // Ports that no case before had: connections of siw's linger in TIME-WAIT.
    let mut port = 7600;
    for client in [Client::Us, Client::Siw] {
        for family in Family::ALL {
            for size in SIZES {
                cases.run(
                    format!("rping, {size} bytes, {family:?}, {client:?} connecting"),
                    || {
                        rping(&stand, client, family, port, size);
                    },
                );
                port += 1;
            }
        }
        for program in PERFTEST {
            // Both wait for the other before the first Write: docs/interop.md.
            if client == Client::Siw && program.starts_with("ib_write_lat") {
                continue;
            }
            cases.run(format!("{program}, {client:?} connecting"), || {
                let both = stand.run_perftest(client, port, &format!("{program} -R -F"));
                assert!(both.client.stdout.contains("#bytes"), "{both:?}");
            });
            port += 10;
        }
    }
    cases.finish();
}
