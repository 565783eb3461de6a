//! The devices of a daemon: one for each interface.

use std::convert::Infallible;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

#[cfg(doc)]
use super::{ADDRESSES_MAX, Request};

/// Which of a daemon's devices is meant.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DeviceName {
    /// That of the interface with this name.
    Interface(String),
    /// That of the interface which has this address.
    Address(IpAddr),
    /// That of the interface over which the kernel's route to this address leads.
    Toward(IpAddr),
}

/// An address, or else the name of an interface.
impl FromStr for DeviceName {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text.parse() {
            Ok(address) => Self::Address(address),
            Err(_) => Self::Interface(text.to_owned()),
        })
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interface(name) => write!(f, "interface {name}"),
            Self::Address(address) => write!(f, "the interface that has {address}"),
            Self::Toward(address) => write!(f, "the interface toward {address}"),
        }
    }
}

/// What [`Request::QueryDevice`] tells.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceInfo {
    /// The interface's name.
    pub interface: String,
    /// `native` or `generic`.
    pub xdp_mode: String,
    /// Its IP addresses, at most [`ADDRESSES_MAX`] of them.
    pub addresses: Vec<IpAddr>,
    /// Its IP MTU in bytes.
    pub mtu: u32,
    /// RX queues served.
    pub queues: u32,
    /// Most scatter/gather elements of a work request.
    pub max_sge: u32,
    /// Most bytes that a work request may carry itself.
    pub max_inline: u32,
    /// Deepest work queue, in work requests of few elements. Of those that may have many, or much
    /// inline data, a queue holds fewer; the refusal of a deeper one says how many.
    pub max_queue_depth: u32,
    /// Its interface's link address.
    pub mac: [u8; 6],
    /// Whether the interface has a link.
    pub link_up: bool,
    /// The link's speed in Mbit/s; 0 where the kernel does not tell it.
    pub link_mbits: u32,
    /// How much of everything one client may have.
    pub limits: ClientLimits,
}

/// How much of everything one client may have, when others leave as much.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientLimits {
    pub protection_domains: u32,
    /// Memory regions and windows.
    pub regions: u32,
    /// Bytes in all memory regions.
    pub registered_bytes: u64,
    pub completion_queues: u32,
    /// Entries of a completion queue.
    pub cq_depth: u32,
    pub shared_receive_queues: u32,
    pub queue_pairs: u32,
    /// Connection requests that may wait at a listener.
    pub backlog: u32,
}
