//! Bonds, which this host's kernel may lack: two network namespaces of the machine's, joined by two veth pairs, with an
//! RNIC on each end's bond.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;

use super::end::{End, LIMIT, Tool};
use super::machine::{Machine, Running};
use super::{Case, PLAIN, boot};
use crate::peer::PeerKernel;
use crate::wait;

/// Queues of each member.
const QUEUES: u32 = 2;
/// How long one transfer goes on while members fail.
const TRANSFER: Duration = Duration::from_secs(6);

/// A machine whose network namespaces n1 and n2 have a bond each: of the members m1a and m1b, and m2a and m2b. Those of
/// the same letter are the ends of a veth pair.
#[derive(Debug)]
pub struct Bonds(Machine);

impl Bonds {
    #[must_use]
    pub fn boot() -> Self {
        Self(boot(PeerKernel::Stable, PLAIN.mtu, ""))
    }

    /// Makes both bonds anew, with these options of `ip link add type bond`, and waits until they carry frames.
    fn make(&self, options: &str) {
        let made = self.0.peer.run(&format!(
            "set -e
            for end in 1 2; do
                ip netns delete n$end 2>/dev/null || true
                ip netns add n$end
                ip -n n$end link set lo up
                ip -n n$end link add bond0 type bond {options}
            done
            queues='numrxqueues {QUEUES} numtxqueues {QUEUES}'
            for pair in a b; do
                ip -n n1 link add m1$pair $queues type veth peer name m2$pair netns n2 $queues
            done
            for end in 1 2; do
                for pair in a b; do
                    ip netns exec n$end ethtool -K m$end$pair tx off
                    ip -n n$end link set m$end$pair master bond0
                    ip -n n$end link set m$end$pair up
                done
                ip -n n$end addr add 198.18.100.$end/24 dev bond0
                ip -n n$end link set bond0 up
            done"
        ));
        assert_eq!(made.code, 0, "{made}");
        wait::until("the bonds carry packets", LIMIT, || {
            let ping = "ip netns exec n1 ping -c 1 -W 1 198.18.100.2 >/dev/null";
            (self.0.peer.run(ping).code == 0).then_some(())
        });
    }

    fn daemon(&self, end: usize, more: &'static str) -> Result<Running, String> {
        let namespace = ["n1", "n2"][end];
        let case = Case { more, ..PLAIN };
        self.0
            .daemon(namespace, "bond0", &format!("bond{end}"), &case)
    }

    fn ends(&self) -> [End<'_>; 2] {
        [("n1", "bond0", 0), ("n2", "bond1", 1)]
            .map(|(namespace, daemon, end)| self.0.end(namespace, daemon, end))
    }

    fn set(&self, namespace: &str, member: &str, state: &str) {
        let command = format!("ip -n {namespace} link set dev {member} {state}");
        let _ = self.0.peer.run(&command).success();
    }

    /// A transfer over bonds of this mode survives that either member loses its link in turn, and another goes the other
    /// way then. Bytes that are placed wrongly fail them.
    pub fn survive(&self, options: &str, more: &'static str) {
        self.make(options);
        let near = self.daemon(0, more).expect("the near daemon comes up");
        let _far = self.daemon(1, more).expect("the far daemon comes up");
        let [a, b] = self.ends();
        for member in ["m1a", "m1b"] {
            assert!(
                near.log().contains(&format!("AF_XDP on {member} queue 1")),
                "{}",
                near.log()
            );
        }

        let serving = b.serve("rnic-perf", 21_000).expect("it listens");
        let to = SocketAddr::new(b.ip(), 21_000);
        let transfer = |rest: &str| {
            let line = format!("--connect {to} --json --quiet --verify --size 65536 {rest}");
            a.start("rnic-perf", "client", &line)
        };
        let whole = |client: Tool| {
            let report = client.finish();
            let report =
                report.unwrap_or_else(|why| panic!("bond {options}: {why}\n{}", near.log()));
            let report: Value = serde_json::from_str(&report).expect("it is JSON");
            let messages = report["goodput"]["messages"].as_u64();
            assert!(messages > Some(0), "{report}");
        };
        let client = transfer(&format!("--op write --duration {}s", TRANSFER.as_secs()));
        let step = TRANSFER / 4;
        for (member, state) in [("m1a", "down"), ("m1a", "up"), ("m1b", "down")] {
            std::thread::sleep(step);
            self.set("n1", member, state);
        }
        whole(client);
        whole(transfer("--op read --iterations 50"));
        drop(serving);
        let log = near.log();
        for carrying in ["m1b", "m1a"] {
            let told = format!("bond bond0: frames leave by {carrying}\n");
            assert!(log.contains(&told), "{told}{log}");
        }
    }

    /// What the daemon says about such a bond, which it does not serve.
    pub fn refused(&self, options: &str) -> String {
        let made = self.0.peer.run(&format!(
            "ip netns delete n1 2>/dev/null; set -e
            ip netns add n1
            ip -n n1 link add bond0 type bond {options}
            ip -n n1 link add m1a type veth peer name m2a
            ip -n n1 link set m1a master bond0
            ip -n n1 addr add 198.18.100.1/24 dev bond0
            ip -n n1 link set bond0 up"
        ));
        assert_eq!(made.code, 0, "{made}");
        match self.daemon(0, "") {
            Ok(running) => panic!("it is served: {}", running.log()),
            Err(why) => why,
        }
    }
}
