//! Why the host does not give what was asked.

use rnic_steering::SteeringError;
use rnic_xsk::{KernelFeature, XskError};

use crate::netlink::NetlinkError;
use crate::privileges;

/// Why not: what was asked, what was found, what to do.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// No interface of that name.
    #[error(
        "interface {interface} asked, but this network namespace has no such interface, only {}: \
         name one of these, or start in the namespace that has it",
        known.join(", ")
    )]
    UnknownInterface {
        interface: String,
        known: Vec<String>,
    },
    #[error("interface {interface} is down: `ip link set dev {interface} up` first")]
    InterfaceDown { interface: String },
    /// The interface has no Ethernet address.
    #[error(
        "interface {interface} is no Ethernet interface (its link type is {found}): name one that \
         is, such as a NIC or one end of a veth pair"
    )]
    NotEthernet { interface: String, found: String },
    /// The interface is a bond without a member that could be served.
    #[error(
        "interface {interface} is a bond with no member that is up: `ip link set dev MEMBER master {interface}`, \
         `ip link set dev MEMBER up` first"
    )]
    NoMember { interface: String },
    /// The interface is a bond that sends as the RNIC can't.
    #[error("interface {interface} is a bond {found}: {advice}")]
    Bond {
        interface: String,
        found: String,
        advice: String,
    },
    /// RX queues that the interface does not have.
    #[error(
        "an RX queue of {asked} asked: {device} has {found} RX queue(s), numbered from 0: see `ethtool -l`"
    )]
    NoQueue {
        asked: u32,
        /// The interface, or a member of the bond.
        device: String,
        found: u32,
    },
    /// Frames of the MTU don't fit UMEM frames.
    #[error(
        "interface {interface} has an MTU of {mtu} bytes, but at most {most} fit the packet \
         buffers of a frame: `ip link set dev {interface} mtu {most}` on both ends, or less"
    )]
    MtuTooLarge {
        interface: String,
        /// What it has, bytes.
        mtu: u32,
        /// What it may have, bytes.
        most: u32,
    },
    /// This kernel is too old for what is asked.
    #[error(
        "interface {interface}: {asked} needs {feature}, which this Linux {release} does not have: \
         {advice}"
    )]
    KernelLacks {
        interface: String,
        asked: String,
        feature: KernelFeature,
        release: String,
        advice: String,
    },
    /// The kernel asked for a privilege.
    #[error(
        "interface {interface}: {what} was refused for lack of privilege: {}",
        privileges::advice(
            "the capabilities CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF, CAP_PERFMON, and CAP_IPC_LOCK for more than \
             8 MiB of packet buffers"
        )
    )]
    NoPrivilege { interface: String, what: String },
    /// XDP can't be had.
    #[error(transparent)]
    Steering { source: SteeringError },
    /// AF_XDP sockets can't be had.
    #[error(transparent)]
    Xsk { source: XskError },
    /// The kernel's netlink did not tell what is needed.
    #[error("the kernel can't give {asked}: {found}")]
    Netlink { asked: String, found: String },
}

impl HostError {
    /// Whether the interface is only not there yet, or not ready: it may be later, without anybody
    /// changing what was asked.
    pub fn is_absence(&self) -> bool {
        matches!(
            self,
            Self::UnknownInterface { .. } | Self::InterfaceDown { .. } | Self::NoMember { .. }
        )
    }
}

// No program that opens a device sees one: the crate `rnic` does not name it.
#[doc(hidden)]
impl From<NetlinkError> for HostError {
    fn from(error: NetlinkError) -> Self {
        Self::Netlink {
            found: error.found.to_string(),
            asked: error.asked,
        }
    }
}

/// The sentence, too: it is what `main` prints that returns the error.
impl std::fmt::Debug for HostError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}
