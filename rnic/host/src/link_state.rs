//! Whether an interface has a link, and how fast it is (RTM_GETLINK, `/sys/class/net`). Both change while it is open.

use std::fmt::{self, Display, Formatter};
use std::fs;

use netlink_packet_route::link::LinkFlags;

use super::interface::Interface;
use super::members::link;
use super::netlink::Netlink;

/// Whether frames can leave by an interface and come to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Link {
    /// It has a carrier; so has one of which the kernel does not say.
    #[default]
    Up,
    /// It is up and has no carrier: a cable is out, or the other end is down.
    NoCarrier,
    /// Somebody took it down.
    Down,
}

impl Link {
    /// Of an interface at this moment. The loopback alone has no netlink, and is never down.
    pub fn of(netlink: Option<&Netlink>, interface: &Interface) -> Self {
        let found = netlink.and_then(|netlink| link(netlink, interface).ok());
        match found.map(|link| link.header.flags) {
            Some(flags) if !flags.contains(LinkFlags::Up) => Self::Down,
            Some(flags) if !flags.contains(LinkFlags::LowerUp) => Self::NoCarrier,
            _ => Self::Up,
        }
    }

    /// What is wrong with it and what to do, if something is.
    pub fn trouble(self, interface: &str) -> Option<String> {
        match self {
            Self::Up => None,
            Self::NoCarrier => Some(format!(
                "interface {interface} has no carrier: see to its cable, switch or other end"
            )),
            Self::Down => Some(format!(
                "interface {interface} is down: `ip link set dev {interface} up`"
            )),
        }
    }
}

impl From<u8> for Link {
    fn from(number: u8) -> Self {
        [Self::Up, Self::NoCarrier, Self::Down]
            .into_iter()
            .find(|link| *link as u8 == number)
            .unwrap_or_default()
    }
}

/// Behind the interface's name in a line of the log.
impl Display for Link {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Up => "has its link again",
            Self::NoCarrier => "has no link (no carrier)",
            Self::Down => "is down",
        })
    }
}

/// In Mbit/s; 0 where the kernel does not say.
pub fn mbits(interface: &str) -> u32 {
    let text = fs::read_to_string(format!("/sys/class/net/{interface}/speed"));
    let told = text.ok().and_then(|text| text.trim().parse::<i64>().ok());
    // -1 is unknown.
    told.and_then(|speed| speed.try_into().ok()).unwrap_or(0)
}
