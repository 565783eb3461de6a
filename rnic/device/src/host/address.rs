//! The IP addresses of an interface (RTM_GETADDR).

use std::net::IpAddr;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};

use super::netlink::{Netlink, NetlinkError};

/// All addresses of the interface with this index, as they are now.
pub(crate) fn addresses(netlink: &Netlink, index: u32) -> Result<Vec<IpAddr>, NetlinkError> {
    let all = RouteNetlinkMessage::GetAddress(AddressMessage::default());
    let found = netlink.dump(&format!("the addresses of interface {index}"), all)?;
    let address = |message| match message {
        RouteNetlinkMessage::NewAddress(address) if address.header.index == index => {
            local(&address)
        }
        _ => None,
    };
    Ok(found.into_iter().filter_map(address).collect())
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
