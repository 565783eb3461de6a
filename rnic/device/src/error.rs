//! Why an interface could not be opened as an RNIC.

use std::io;
use std::path::PathBuf;

use rnic_host::{HostError, privileges};

use crate::UdpLink;

/// Why [`crate::Device::open`] failed: what was asked, what was found, what to do.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The host does not give what the interface needs.
    #[error(transparent)]
    Interface(#[from] HostError),
    /// The interface has no IP address.
    #[error(
        "interface {interface} has no IPv4 or IPv6 address, and an RNIC needs one: `ip address add \
         ADDRESS/PREFIX dev {interface}` first"
    )]
    NoAddress { interface: String },
    /// The number of queues is wrong.
    #[error(
        "{asked} queues of interface {interface} asked, but it has {found} RX queues and spreads \
         frames over all of them: ask for {found}, or set `ethtool -L {interface} combined {asked}` \
         (`rx {asked}` where the driver has it so)"
    )]
    BadQueues {
        interface: String,
        asked: u32,
        found: u32,
    },
    /// Capabilities that opening interfaces needs ([`crate::Devices::check`]).
    #[error(
        "interface {} asked, which needs capabilities that this process is without, {}: {}",
        interfaces.join(", "),
        missing.join(", "),
        privileges::advice("it these (AmbientCapabilities= in a systemd unit)")
    )]
    NoCapabilities {
        interfaces: Vec<String>,
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
    /// A value of the configuration is impossible.
    #[error("{what} of {asked} asked: {advice}")]
    BadConfig {
        what: &'static str,
        asked: String,
        advice: String,
    },
    #[error(
        "capture file {path} can't be written: {cause}: name a file in a directory that exists \
         and may be written to"
    )]
    Capture { path: PathBuf, cause: io::Error },
    /// The port of [`crate::DeviceConfig::udp`] can't be had.
    #[error(
        "UDP port {link} can't be bound: {cause}: name an address of this host, and a port that nobody has (`ss -uanp` \
         shows who has it); a peer at another port is named with --sctp-udp-peer-port"
    )]
    Udp { link: UdpLink, cause: io::Error },
    /// Something else that the kernel refused.
    #[error("{what}: {cause}")]
    Host {
        what: &'static str,
        cause: io::Error,
    },
}

impl DeviceError {
    /// Whether the interface is only not there yet, or not ready: it may be later, without anybody
    /// changing what was asked.
    pub fn is_absence(&self) -> bool {
        match self {
            Self::Interface(error) => error.is_absence(),
            Self::NoAddress { .. } => true,
            _ => false,
        }
    }
}

/// The sentence, too: it is what `main` prints that returns the error.
impl std::fmt::Debug for DeviceError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}
