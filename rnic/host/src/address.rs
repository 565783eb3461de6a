//! The IP addresses of an interface, and the broadcast addresses of its subnets (RTM_GETADDR).

use std::net::{IpAddr, Ipv4Addr};

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};

use super::netlink::{Netlink, NetlinkError};

/// All addresses of the interface with this index, as they are now.
pub fn addresses(netlink: &Netlink, index: u32) -> Result<Vec<IpAddr>, NetlinkError> {
    Ok(found(netlink, index)?.iter().filter_map(local).collect())
}

/// All addresses of the host.
pub fn all_addresses(netlink: &Netlink) -> Result<Vec<IpAddr>, NetlinkError> {
    Ok(all(netlink, "the host's addresses")?
        .iter()
        .filter_map(local)
        .collect())
}

/// The broadcast addresses of its IPv4 subnets: those that the kernel has, and the last address of each.
pub fn broadcasts(netlink: &Netlink, index: u32) -> Result<Vec<Ipv4Addr>, NetlinkError> {
    let found = found(netlink, index)?;
    let said = found.iter().flat_map(|message| &message.attributes);
    let said = said.filter_map(|attribute| match attribute {
        AddressAttribute::Broadcast(address) => Some(*address),
        _ => None,
    });
    let last = found.iter().filter_map(|message| {
        let Some(IpAddr::V4(address)) = local(message) else {
            return None;
        };
        // A subnet of two has none (RFC 3021).
        let len = u32::from(message.header.prefix_len);
        (len < 31).then(|| Ipv4Addr::from_bits(address.to_bits() | u32::MAX >> len))
    });
    Ok(said.chain(last).collect())
}

fn found(netlink: &Netlink, index: u32) -> Result<Vec<AddressMessage>, NetlinkError> {
    let mut found = all(netlink, &format!("the addresses of interface {index}"))?;
    found.retain(|address| address.header.index == index);
    Ok(found)
}

fn all(netlink: &Netlink, asked: &str) -> Result<Vec<AddressMessage>, NetlinkError> {
    let all = RouteNetlinkMessage::GetAddress(AddressMessage::default());
    let found = netlink.dump(asked, all)?;
    let found = found.into_iter().filter_map(|message| match message {
        RouteNetlinkMessage::NewAddress(address) => Some(address),
        _ => None,
    });
    Ok(found.collect())
}

/// An address of a point-to-point link has our end in `Local` and the peer's in `Address`; others
/// have `Address` alone, or both alike.
fn local(message: &AddressMessage) -> Option<IpAddr> {
    let mut found = None;
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(address) => return Some(*address),
            AddressAttribute::Address(address) => found = Some(*address),
            _ => {}
        }
    }
    found
}
