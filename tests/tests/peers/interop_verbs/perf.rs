//! `rnic-perf` against `siw-verbs`, which speaks its protocol, both roles: large messages, many
//! small ones, several connections at once; whoever receives compares every byte.

use std::time::Duration;

use rnic_tests::cases::Cases;
use rnic_tests::lab::{Family, Process};
use rnic_tests::peer::Job;
use rnic_tests::tool;

use super::stand::{Initiator, Stand};

const OPERATIONS: [&str; 3] = ["write", "send", "read"];
/// The peer is emulated.
const LIMIT: Duration = Duration::from_secs(90);

/// Messages of a size, so many outstanding, so many in all.
#[derive(Clone, Copy)]
struct Load {
    size: u32,
    depth: u32,
    messages: u32,
}

const LARGE: Load = Load {
    size: 64 << 20,
    depth: 1,
    messages: 1,
};
const MANY: Load = Load {
    size: 16,
    depth: 64,
    messages: 10_000,
};
const EACH: Load = Load {
    size: 30_001,
    depth: 4,
    messages: 40,
};

/// Servers at both ends.
struct Servers {
    _ours: Process,
    siws: Job,
    /// Ours, and siw's.
    ports: [u16; 2],
}

impl Servers {
    fn new(stand: &Stand) -> Self {
        let ports = [stand.port(), stand.port()];
        let [ours, siws] = ports;
        let at = stand.interop.host.address(Family::V4, ours);
        let siw = stand.interop.peer.address(Family::V4, siws);
        let server = format!("siw-verbs server {} {siws}", siw.ip());
        Self {
            _ours: tool::server(&stand.interop.daemon, "rnic-perf", at, &[]),
            siws: stand.interop.peer.listen(siws, &server),
            ports,
        }
    }

    /// Where this one connects to.
    fn port(&self, initiator: Initiator) -> u16 {
        let [ours, siws] = self.ports;
        match initiator {
            Initiator::Us => siws,
            Initiator::Siw => ours,
        }
    }

    fn found_no_fault(self, cases: &mut Cases) {
        cases.run("siw-verbs found no fault with rnic-perf", || {
            assert_eq!(self.siws.stderr(), "");
        });
    }
}

/// Many messages, and several connections at once.
pub fn many(stand: &Stand, cases: &mut Cases) {
    let servers = Servers::new(stand);
    for initiator in Initiator::BOTH {
        let port = servers.port(initiator);
        for operation in OPERATIONS {
            let title = format!("10 000 of 16 bytes: {operation}, {initiator:?} connecting");
            cases.run(title, || moves(stand, initiator, port, MANY, &[operation]));
        }
        let title = format!("six connections at once, {initiator:?} connecting");
        cases.run(title, || {
            let twice = [OPERATIONS, OPERATIONS].concat();
            moves(stand, initiator, port, EACH, &twice);
        });
    }
    servers.found_no_fault(cases);
}

/// Large messages: emulated, siw takes its time.
pub fn large(stand: &Stand, cases: &mut Cases) {
    let servers = Servers::new(stand);
    for initiator in Initiator::BOTH {
        let port = servers.port(initiator);
        for operation in OPERATIONS {
            let title = format!("64 MiB: {operation}, {initiator:?} connecting");
            cases.run(title, || moves(stand, initiator, port, LARGE, &[operation]));
        }
    }
    servers.found_no_fault(cases);
}

/// Clients that run at once, one for each operation, and verify.
fn moves(stand: &Stand, initiator: Initiator, port: u16, load: Load, operations: &[&str]) {
    let Load {
        size,
        depth,
        messages,
    } = load;
    match initiator {
        Initiator::Us => {
            let at = stand.interop.peer.address(Family::V4, port);
            let client = |operation: &&str| {
                let options = format!(
                    "--op {operation} --size {size} --depth {depth} --iterations {messages} \
                     --verify --quiet --timeout 60s"
                );
                let options: Vec<&str> = options.split_whitespace().collect();
                tool::client(&stand.interop.daemon, "rnic-perf", at, &options).spawn()
            };
            let clients: Vec<_> = operations.iter().map(client).collect();
            for client in clients {
                let report = tool::report(&client.finish(LIMIT).success());
                let verified = u64::from(size) * u64::from(messages);
                assert_eq!(report["verified_bytes"], verified, "{report}");
            }
        }
        Initiator::Siw => {
            let ip = stand.interop.host.address(Family::V4, port).ip();
            let client = |operation: &&str| {
                let client =
                    format!("siw-verbs client {ip} {port} {operation} {size} {depth} {messages}");
                stand.interop.peer.start(&client)
            };
            let clients: Vec<_> = operations.iter().map(client).collect();
            for client in clients {
                let ran = client.finish(LIMIT).success();
                assert!(ran.stdout.contains("verified"), "{ran}");
            }
        }
    }
}
