//! The machine: its interfaces, and daemons on them.

use std::fs;
use std::net::IpAddr;

use super::end::{End, LIMIT, in_namespace, says, transfers};
use super::{Case, Other};
use crate::binary;
use crate::daemon::{Daemon, DaemonOptions};
use crate::lab::{Family, Host, Lab};
use crate::peer::{Job, Peer};

/// Addresses of the two ends of the veth.
const ENDS: [&str; 2] = ["198.18.100.1", "198.18.100.2"];

/// A machine and a host at the other end of its cable. Fields are dropped in this order.
#[derive(Debug)]
pub(super) struct Machine {
    /// What `uname -r` says.
    pub(super) release: String,
    pub(super) peer: Peer,
    host: Host,
    lab: Lab,
}

/// A daemon of the machine's that came up.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) log: String,
    pub(super) zero_copy: bool,
}

/// A daemon in the machine.
pub(super) struct Running {
    job: Job,
    opened: Opened,
}

impl Running {
    pub(super) fn log(&self) -> String {
        self.job.stderr()
    }
}

impl Machine {
    /// Puts this build's programs where the machine finds them, without what a debugger needs.
    pub(super) fn new(lab: Lab, host: Host, peer: Peer) -> Self {
        for program in ["rnicd", "rnic-ping", "rnic-perf"] {
            let to = peer.share().join(program);
            let stripped = std::process::Command::new("strip")
                .arg("-o")
                .args([&to, &binary::path(program)])
                .status();
            assert!(
                stripped.is_ok_and(|status| status.success()) && fs::exists(&to).unwrap_or(false),
                "strip of binutils makes no {}",
                to.display()
            );
        }
        let release = peer.run("uname -r").success().stdout.trim().to_owned();
        Self {
            release,
            peer,
            host,
            lab,
        }
    }

    /// Starts a daemon in the machine, whose socket has this name; the error is what it said when it ended.
    pub(super) fn daemon(
        &self,
        namespace: &str,
        interface: &str,
        name: &str,
        case: &Case,
    ) -> Result<Running, String> {
        let Case { mode, more, .. } = case;
        let line = format!(
            "/host/rnicd --interface {interface} --mode {mode} --no-wait --socket {} {more}",
            socket(name)
        );
        let job = self.peer.start(&in_namespace(namespace, &line));
        says(&job, "ready: listening")?;
        let log = job.stderr();
        let zero_copy = log.contains("zero-copy mode");
        Ok(Running {
            job,
            opened: Opened { log, zero_copy },
        })
    }

    /// The machine's network card, against an RNIC of the host's.
    pub(super) fn over_tap(&self, case: &Case) -> Result<Opened, String> {
        let Case { queues, mtu, .. } = case;
        let set = format!("ethtool -L eth0 combined {queues} || exit; ip link set eth0 mtu {mtu}");
        // ethtool's exit code 80: nothing to change.
        let _ = self.peer.run(&set);
        let running = self.daemon("", "eth0", "eth0", case)?;
        let daemon = Daemon::start(&self.lab, &self.host, &DaemonOptions::default());
        let here = End::Here {
            daemon: &daemon,
            ip: self.host.address(Family::V4, 0).ip(),
        };
        let there = End::There {
            peer: &self.peer,
            namespace: "",
            socket: socket("eth0"),
            ip: self.peer.address(Family::V4, 0).ip(),
        };
        transfers(&here, &there)?;
        Ok(running.opened)
    }

    /// One end of a veth pair of the machine's, against what is at its other end.
    pub(super) fn over_veth(&self, case: &Case) -> Result<Opened, String> {
        let made = self.peer.run(&format!(
            "set -e
            for end in 1 2; do
                ip netns delete n$end 2>/dev/null || true
                ip netns add n$end
                ip -n n$end link set lo up
            done
            queues='mtu {mtu} numrxqueues {queues} numtxqueues {queues}'
            ip -n n1 link add veth1 $queues type veth peer name veth2 netns n2 $queues
            for end in 1 2; do
                ip netns exec n$end ethtool -K veth$end tx off
                ip -n n$end addr add 198.18.100.$end/24 dev veth$end
                ip -n n$end link set veth$end up
            done",
            mtu = case.mtu,
            queues = case.queues
        ));
        if made.code != 0 {
            return Err(made.to_string());
        }
        let running = self.daemon("n1", "veth1", "veth1", case)?;
        let near = self.veth_end(0);
        if case.other == Other::Siw {
            self.against_siw("veth2")?;
        } else {
            let _other = self.daemon("n2", "veth2", "veth2", case)?;
            transfers(&near, &self.veth_end(1))?;
        }
        Ok(running.opened)
    }

    fn veth_end(&self, end: usize) -> End<'_> {
        let (namespace, daemon) = [("n1", "veth1"), ("n2", "veth2")][end];
        self.end(namespace, daemon, end)
    }

    /// The end with this number, of the machine's own two, where a daemon of this name runs.
    pub(super) fn end(&self, namespace: &'static str, daemon: &str, end: usize) -> End<'_> {
        End::There {
            peer: &self.peer,
            namespace,
            socket: socket(daemon),
            ip: address(end),
        }
    }

    /// rping over siw on this interface of the far end's, in both roles.
    pub(super) fn against_siw(&self, far: &str) -> Result<(), String> {
        let [ours, theirs] = ENDS;
        let socket = socket("veth1");
        let ran = self
            .peer
            .start(&format!(
                "set -e
                ip netns exec n2 rdma link add siw2 type siw netdev {far}
                trap 'rdma link delete siw2' EXIT
                far='ip netns exec n2' near='ip netns exec n1'
                port=21000
                for size in 64 65000; do
                    port=$((port + 1))
                    $far rping -s -a {theirs} -p $port -S $size -C 20 & server=$!
                    until $far grep -qiE \" [0-9A-F]+:$(printf %04x $port) [0-9A-F:]+ 0A \" /proc/net/tcp
                    do sleep 0.1; done
                    $near /host/rnic-ping client --socket {socket} --connect {theirs}:$port \\
                        --size $size --count 20
                    wait $server
                    port=$((port + 1))
                    $near /host/rnic-ping server --socket {socket} --listen {ours}:$port \\
                        >/tmp/ping.log 2>&1 & server=$!
                    until grep -q listening /tmp/ping.log; do sleep 0.1; done
                    $far rping -c -v -V -a {ours} -p $port -S $size -C 20 >/dev/null
                    wait $server
                done"
            ))
            .finish(LIMIT);
        match ran.code {
            0 => Ok(()),
            _ => Err(ran.to_string()),
        }
    }
}

fn address(end: usize) -> IpAddr {
    ENDS[end].parse().expect("a literal address")
}

/// The socket of the daemon on an interface of the machine's.
fn socket(interface: &str) -> String {
    format!("/run/rnicd-{interface}.sock")
}
