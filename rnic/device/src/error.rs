//! Why an interface could not be opened as an RNIC.

use std::io;
use std::path::PathBuf;

use rnic_steering::SteeringError;
use rnic_xsk::{KernelFeature, XskError};

use crate::host::privileges;

/// Why [`crate::Device::open`] failed: what was asked, what was found, what to do.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// No interface of that name.
    #[error(
        "interface {interface} asked, but this network namespace has no such interface, only {}: \
         name one of these, or start in the namespace that has it",
        known.join(", ")
    )]
    UnknownInterface {
        /// Its name.
        interface: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// The interface is administratively down.
    #[error("interface {interface} is down: `ip link set dev {interface} up` first")]
    InterfaceDown {
        /// Its name.
        interface: String,
    },
    /// The interface has no Ethernet address.
    #[error(
        "interface {interface} is no Ethernet interface (its link type is {found}): name one that \
         is, such as a NIC or one end of a veth pair"
    )]
    NotEthernet {
        /// Its name.
        interface: String,
        /// What it is.
        found: String,
    },
    /// The interface has no IP address.
    #[error(
        "interface {interface} has no IPv4 or IPv6 address, and an RNIC needs one: `ip address add \
         ADDRESS/PREFIX dev {interface}` first"
    )]
    NoAddress {
        /// Its name.
        interface: String,
    },
    /// The interface is a bond without a member that could be served.
    #[error(
        "interface {interface} is a bond with no member that is up: `ip link set dev MEMBER master {interface}`, \
         `ip link set dev MEMBER up` first"
    )]
    NoMember {
        /// Its name.
        interface: String,
    },
    /// The interface is a bond that sends as the RNIC can't.
    #[error("interface {interface} is a bond {found}: {advice}")]
    Bond {
        /// Its name.
        interface: String,
        /// What it is set to.
        found: String,
        /// What to do.
        advice: String,
    },
    /// Frames of the MTU don't fit UMEM frames.
    #[error(
        "interface {interface} has an MTU of {mtu} bytes, but at most {most} fit the packet \
         buffers of a frame: `ip link set dev {interface} mtu {most}` on both ends, or less"
    )]
    MtuTooLarge {
        /// Its name.
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
        /// Its name.
        interface: String,
        /// What was asked.
        asked: String,
        /// What that needs.
        feature: KernelFeature,
        /// The kernel's release.
        release: String,
        /// What to do.
        advice: String,
    },
    /// The number of queues is wrong.
    #[error(
        "{asked} queues of interface {interface} asked, but it has {found} RX queues and spreads \
         frames over all of them: ask for {found}, or set `ethtool -L {interface} combined {asked}` \
         (`rx {asked}` where the driver has it so)"
    )]
    BadQueues {
        /// Its name.
        interface: String,
        /// What was asked.
        asked: u32,
        /// What it has.
        found: u32,
    },
    /// The kernel asked for a privilege.
    #[error(
        "interface {interface}: {what} was refused for lack of privilege: {}",
        privileges::advice(
            "the capabilities CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF, CAP_PERFMON, and CAP_IPC_LOCK for more than \
             8 MiB of packet buffers"
        )
    )]
    NoPrivilege {
        /// Its name.
        interface: String,
        /// What was being done.
        what: String,
    },
    /// Capabilities that opening interfaces needs ([`crate::Devices::check`]).
    #[error(
        "interface {} asked, which needs capabilities that this process is without, {}: {}",
        interfaces.join(", "),
        missing.join(", "),
        privileges::advice("it these (AmbientCapabilities= in a systemd unit)")
    )]
    NoCapabilities {
        /// The interfaces' names.
        interfaces: Vec<String>,
        /// The capabilities' names.
        missing: Vec<String>,
    },
    /// Packet buffers are more than the limit of locked memory ([`crate::Devices::check`]).
    #[error(
        "{asked} bytes of packet buffers asked, but this process may lock {allowed} bytes of memory: ask for \
         fewer frames, raise `ulimit -l` (LimitMEMLOCK= in a systemd unit), or give CAP_IPC_LOCK"
    )]
    LockedMemory {
        /// Those of all interfaces.
        asked: u64,
        /// RLIMIT_MEMLOCK.
        allowed: u64,
    },
    /// XDP can't be had.
    #[error(transparent)]
    Steering {
        /// Why.
        source: SteeringError,
    },
    /// AF_XDP sockets can't be had.
    #[error(transparent)]
    Xsk {
        /// Why.
        source: XskError,
    },
    /// A value of the configuration is impossible.
    #[error("{what} of {asked} asked: {advice}")]
    BadConfig {
        /// Which value.
        what: &'static str,
        /// What it is.
        asked: String,
        /// What it may be.
        advice: String,
    },
    /// The capture can't be written.
    #[error(
        "capture file {path} can't be written: {cause}: name a file in a directory that exists \
         and may be written to"
    )]
    Capture {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// The kernel's netlink did not tell what is needed.
    #[error("the kernel can't give {asked}: {found}")]
    Netlink {
        /// What was asked.
        asked: String,
        /// What came.
        found: String,
    },
    /// Something else that the kernel refused.
    #[error("{what}: {cause}")]
    Host {
        /// What was being done.
        what: &'static str,
        /// Why not.
        cause: io::Error,
    },
}

impl DeviceError {
    /// Whether the interface is only not there yet, or not ready: it may be later, without anybody
    /// changing what was asked.
    pub fn is_absence(&self) -> bool {
        matches!(
            self,
            Self::UnknownInterface { .. }
                | Self::InterfaceDown { .. }
                | Self::NoAddress { .. }
                | Self::NoMember { .. }
        )
    }
}

/// The sentence, too: it is what `main` prints that returns the error.
impl std::fmt::Debug for DeviceError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}
