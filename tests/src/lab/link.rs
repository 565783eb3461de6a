//! Veth pairs: the cables of the lab.

use super::cable::{Cable, ENDS};
use super::namespace::Namespace;

/// The name that a veth has in its namespace.
pub const INTERFACE: &str = "rnic0";

/// How two hosts are joined.
#[derive(Clone, Debug)]
pub struct LinkOptions {
    /// IP MTU in bytes. Above 3506, native XDP on veth needs a program that takes frames of several
    /// buffers.
    pub mtu: u32,
    /// RX and TX queues of each end, at least 1.
    pub queues: u32,
    /// Leaves checksum and segmentation offloads on, as a veth has them. Daemons then choose super-packets where
    /// there is one queue, and what a kernel sends has no checksum.
    pub offloads: bool,
    /// Something between the hosts that changes frames; a plain cable when `None`.
    pub cable: Option<Cable>,
}

impl Default for LinkOptions {
    fn default() -> Self {
        Self {
            mtu: 1500,
            queues: default_queues(),
            offloads: default_offloads(),
            cable: None,
        }
    }
}

/// Queues of a link where a test does not say: 1, or what `RNIC_TEST_QUEUES` says. Daemons then have a shard for each,
/// as far as there are processors, so that any test can be run over several shards.
#[must_use]
pub fn default_queues() -> u32 {
    let said = std::env::var("RNIC_TEST_QUEUES").ok();
    said.map_or(1, |said| {
        said.parse().expect("RNIC_TEST_QUEUES is a number")
    })
}

/// Whether links have offloads where a test does not say: not, or what `RNIC_TEST_OFFLOADS` says (0 or 1), so that any
/// test can be run over super-packets.
fn default_offloads() -> bool {
    match std::env::var("RNIC_TEST_OFFLOADS").as_deref() {
        Ok("1") => true,
        Ok("0") | Err(_) => false,
        Ok(other) => panic!("RNIC_TEST_OFFLOADS is {other}, neither 0 nor 1"),
    }
}

/// Joins two hosts by a veth pair; both ends are [`INTERFACE`] and up.
pub(super) fn join(a: &Namespace, b: &Namespace, options: &LinkOptions) {
    veth((a, INTERFACE), (b, INTERFACE), options);
}

/// Joins two hosts by way of a third namespace, which has the cable's ends.
pub(super) fn join_over(a: &Namespace, middle: &Namespace, b: &Namespace, options: &LinkOptions) {
    veth((a, INTERFACE), (middle, ENDS[0]), options);
    veth((middle, ENDS[1]), (b, INTERFACE), options);
}

/// Joins two interfaces of these names; both are up.
pub(super) fn veth(a: (&Namespace, &str), b: (&Namespace, &str), options: &LinkOptions) {
    let queues = options.queues.to_string();
    let mtu = options.mtu.to_string();
    let parts = ["mtu", &mtu, "numrxqueues", &queues, "numtxqueues", &queues];
    let mut arguments = vec!["link", "add", a.1];
    arguments.extend(parts);
    arguments.extend(["type", "veth", "peer", "name", b.1, "netns", b.0.name()]);
    arguments.extend(parts);
    a.0.ip(&arguments);
    for (namespace, interface) in [a, b] {
        if !options.offloads {
            namespace.exec(&["ethtool", "-K", interface, "tx", "off"]);
        }
        namespace.ip(&["link", "set", "dev", interface, "up"]);
    }
}
