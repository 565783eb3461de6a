//! An interface: its index, Ethernet address, MTU and state (RTM_GETLINK).

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkLayerType, LinkMessage};
use rnic_net::PathDefaults;
use rustix::io::Errno;

use super::netlink::{Netlink, NetlinkError, other};
use crate::HostError;

/// An Ethernet interface that is up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    pub name: String,
    /// Its number in its network namespace.
    pub index: u32,
    pub mac: [u8; 6],
    /// Its MTU, and the hop limits that the kernel gives to what leaves over it.
    pub defaults: PathDefaults,
}

impl Interface {
    /// Looks up an interface by name in the network namespace of `netlink`.
    ///
    /// # Errors
    ///
    /// When there is none of that name, or it is down or no Ethernet interface.
    pub fn find(netlink: &Netlink, name: &str) -> Result<Self, HostError> {
        let asked = format!("interface {name}");
        let mut message = LinkMessage::default();
        message
            .attributes
            .push(LinkAttribute::IfName(name.to_owned()));
        let link = match netlink.get(&asked, RouteNetlinkMessage::GetLink(message)) {
            Ok(RouteNetlinkMessage::NewLink(link)) => link,
            Ok(_) => return Err(other(&asked, "an answer to another question").into()),
            // ERANGE and EINVAL: no name at all, or one that is too long for any interface.
            Err(error)
                if matches!(
                    error.errno(),
                    Some(Errno::NODEV | Errno::RANGE | Errno::INVAL | Errno::NOENT)
                ) =>
            {
                let interface = name.to_owned();
                return Err(HostError::UnknownInterface {
                    interface,
                    known: names(netlink),
                });
            }
            Err(error) => return Err(error.into()),
        };
        Self::from_link(name, &link)
    }

    /// The largest MTU of the interfaces that are up, but for the kernel's loopback, in bytes; none when there are no
    /// others.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn largest_mtu(netlink: &Netlink) -> Result<Option<u32>, NetlinkError> {
        let all = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let found = netlink.dump("all interfaces", all)?;
        let links = found.iter().filter_map(|message| match message {
            RouteNetlinkMessage::NewLink(link) => Some(link),
            _ => None,
        });
        let outward = links.filter(|link| {
            let flags = link.header.flags;
            flags.contains(LinkFlags::Up) && !flags.contains(LinkFlags::Loopback)
        });
        Ok(outward.filter_map(mtu_of).max())
    }

    fn from_link(name: &str, link: &LinkMessage) -> Result<Self, HostError> {
        let interface = name.to_owned();
        if !link.header.flags.contains(LinkFlags::Up) {
            return Err(HostError::InterfaceDown { interface });
        }
        let mac = link
            .attributes
            .iter()
            .find_map(|attribute| match attribute {
                LinkAttribute::Address(bytes) => <[u8; 6]>::try_from(bytes.as_slice()).ok(),
                _ => None,
            });
        let mtu = mtu_of(link);
        let common = PathDefaults::new(0);
        match (link.header.link_layer_type, mac, mtu) {
            (LinkLayerType::Ether, Some(mac), Some(mtu)) => Ok(Self {
                name: interface,
                index: link.header.index,
                mac,
                defaults: PathDefaults {
                    mtu,
                    hop_limit_v4: sysctl("ipv4/ip_default_ttl").unwrap_or(common.hop_limit_v4),
                    hop_limit_v6: sysctl(&format!("ipv6/conf/{name}/hop_limit"))
                        .unwrap_or(common.hop_limit_v6),
                },
            }),
            (found, ..) => Err(HostError::NotEthernet {
                interface,
                found: format!("{found:?}"),
            }),
        }
    }
}

fn mtu_of(link: &LinkMessage) -> Option<u32> {
    link.attributes
        .iter()
        .find_map(|attribute| match attribute {
            LinkAttribute::Mtu(mtu) => Some(*mtu),
            _ => None,
        })
}

/// One of the kernel's variables of this thread's network; nothing when the kernel is without that
/// protocol. 0, which no packet may leave with, is none either.
fn sysctl(name: &str) -> Option<u8> {
    let text = std::fs::read_to_string(format!("/proc/sys/net/{name}")).ok()?;
    text.trim().parse().ok().filter(|limit| *limit != 0)
}

/// The names of all interfaces, for advice; none when the kernel does not tell.
fn names(netlink: &Netlink) -> Vec<String> {
    let all = RouteNetlinkMessage::GetLink(LinkMessage::default());
    let found = netlink.dump("all interfaces", all).unwrap_or_default();
    let name = |message| match message {
        RouteNetlinkMessage::NewLink(link) => {
            link.attributes
                .into_iter()
                .find_map(|attribute| match attribute {
                    LinkAttribute::IfName(name) => Some(name),
                    _ => None,
                })
        }
        _ => None,
    };
    found.into_iter().filter_map(name).collect()
}
