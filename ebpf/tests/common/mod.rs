//! Two network namespaces joined by a veth pair, removed when dropped, also by a panic.

#![allow(dead_code, reason = "each test binary uses a part")]

use std::fs::File;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// The left end: its interface, address, and hardware address.
pub const LEFT: &str = "left";
/// The right end's interface.
pub const RIGHT: &str = "right";
pub const LEFT_V4: &str = "198.18.0.1";
pub const RIGHT_V4: &str = "198.18.0.2";
pub const LEFT_V6: &str = "2001:db8::1";
pub const RIGHT_V6: &str = "2001:db8::2";
pub const LEFT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub const RIGHT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

static PAIRS: AtomicU32 = AtomicU32::new(0);

/// Interface `left` in one namespace, `right` in another.
pub struct VethPair {
    left: String,
    right: String,
}

impl VethPair {
    /// Both ends up, with addresses, and with this many receive and transmit queues each.
    pub fn new(left_queues: u32, right_queues: u32) -> VethPair {
        assert!(
            rustix::process::geteuid().is_root(),
            "this test makes network namespaces: run it as root"
        );
        let number = PAIRS.fetch_add(1, Ordering::Relaxed);
        let name = |side: &str| format!("rnic-{side}-{}-{number}", std::process::id());
        let pair = VethPair {
            left: name("l"),
            right: name("r"),
        };
        run(&["netns", "add", &pair.left]);
        run(&["netns", "add", &pair.right]);
        let (l, r) = (left_queues.to_string(), right_queues.to_string());
        run(&[
            "link",
            "add",
            "name",
            LEFT,
            "netns",
            &pair.left,
            "address",
            "02:00:00:00:00:01",
            "numrxqueues",
            &l,
            "numtxqueues",
            &l,
            "type",
            "veth",
            "peer",
            "name",
            RIGHT,
            "netns",
            &pair.right,
            "address",
            "02:00:00:00:00:02",
            "numrxqueues",
            &r,
            "numtxqueues",
            &r,
        ]);
        for (ns, dev, v4, v6) in [
            (&pair.left, LEFT, LEFT_V4, LEFT_V6),
            (&pair.right, RIGHT, RIGHT_V4, RIGHT_V6),
        ] {
            run(&["-n", ns, "addr", "add", &format!("{v4}/30"), "dev", dev]);
            run(&[
                "-n",
                ns,
                "addr",
                "add",
                &format!("{v6}/64"),
                "dev",
                dev,
                "nodad",
            ]);
            run(&["-n", ns, "link", "set", "dev", "lo", "up"]);
            run(&["-n", ns, "link", "set", "dev", dev, "up"]);
        }
        pair
    }

    /// Moves the calling thread into the left namespace.
    pub fn enter_left(&self) {
        enter(&self.left);
    }

    /// Moves the calling thread into the right namespace.
    pub fn enter_right(&self) {
        enter(&self.right);
    }

    /// Name of the right namespace.
    pub fn right(&self) -> &str {
        &self.right
    }

    /// `ip` in the left namespace.
    pub fn ip_left(&self, args: &[&str]) -> String {
        run(&[&["-n", &self.left], args].concat())
    }

    /// `ip` in the right namespace.
    pub fn ip_right(&self, args: &[&str]) -> String {
        run(&[&["-n", &self.right], args].concat())
    }
}

impl Drop for VethPair {
    fn drop(&mut self) {
        for ns in [&self.left, &self.right] {
            // A namespace that could not be made can't be removed.
            let _ = Command::new("ip").args(["netns", "delete", ns]).output();
        }
    }
}

/// Moves the calling thread into a namespace made by `ip netns`.
pub fn enter(ns: &str) {
    let file = File::open(format!("/run/netns/{ns}")).unwrap();
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
}

/// Runs `work` in a thread that has no capability.
pub fn without_privilege<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        scope
            .spawn(|| {
                rustix::thread::set_capabilities(
                    None,
                    rustix::thread::CapabilitySets {
                        effective: rustix::thread::CapabilitySet::empty(),
                        permitted: rustix::thread::CapabilitySet::empty(),
                        inheritable: rustix::thread::CapabilitySet::empty(),
                    },
                )
                .unwrap();
                work()
            })
            .join()
            .unwrap()
    })
}

/// Runs `ip`; panics with what it says when it fails.
fn run(args: &[&str]) -> String {
    let output = Command::new("ip")
        .args(args)
        .output()
        .expect("ip of iproute2 is installed");
    assert!(
        output.status.success(),
        "ip {}: {}",
        args.join(" "),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}
