//! Debian's programs of the verbs, the same unmodified ones at both ends: over siw, and over the RNIC.

use rnic_tests::cases::Cases;
use rnic_tests::daemon::DaemonOptions;
use rnic_tests::interop::Interop;
use rnic_tests::lab::{Family, Wiring};
use rnic_tests::peer::PeerOptions;

use super::stand::{Client, Stand};

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
            // Its server sends first, which a responder may not (RFC 5044 section 7.1.2): see below.
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

/// In the client-server model a responder sends nothing before the initiator's first FPDU, and the server of
/// `ib_write_lat` is the first to write. In peer-to-peer mode the initiator sends an indication.
#[test]
fn a_server_that_writes_first_works_with_a_siw_in_peer_to_peer_mode() {
    let siw = PeerOptions {
        siw: "siw_tunable,peer_to_peer=1".into(),
        ..PeerOptions::default()
    };
    let native = DaemonOptions {
        mode: Some("native"),
        ..DaemonOptions::default()
    };
    let interop = Interop::with("programs-rtr", Wiring::Bridged, &native, &siw);
    let stand = Stand::over(interop);
    let mut cases = Cases::new("perftest, siw in peer-to-peer mode");
    for (number, client) in [Client::Siw, Client::Us].into_iter().enumerate() {
        let port = 7600 + 10 * number as u16;
        cases.run(format!("ib_write_lat -n 50, {client:?} connecting"), || {
            let both = stand.run_perftest(client, port, "ib_write_lat -n 50 -R -F");
            assert!(both.client.stdout.contains("#bytes"), "{both:?}");
        });
    }
    cases.finish();
}
