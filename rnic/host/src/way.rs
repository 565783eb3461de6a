//! The way to a peer: our address toward it and how frames get there, by the kernel's routes and
//! neighbours.

use std::net::IpAddr;
use std::time::Duration;

use rnic_ipc::control::{Refusal, RefusalCode};
use rnic_net::Path;

use super::address::addresses;
use super::interface::Interface;
use super::neighbour;
use super::netlink::Netlink;
use super::route::Route;

/// Our address toward `remote` (`local`, if that is asked for) and the path to it. Waits up to
/// `timeout` for an unknown neighbour to answer. `None`: the kernel is not even asked to find it.
///
/// # Errors
///
/// When `local` is not ours, no route leads there over the interface, or the neighbour is silent.
pub fn find_way(
    netlink: &Netlink,
    interface: &Interface,
    remote: IpAddr,
    local: Option<IpAddr>,
    timeout: Option<Duration>,
) -> Result<(IpAddr, Path), Refusal> {
    if let Some(local) = local {
        check_local(netlink, interface, local)?;
    }
    let route = Route::find(netlink, interface, remote, local)?;
    check_local(netlink, interface, route.source)?;
    let mac = neighbour::resolve(netlink, interface, route.next_hop, timeout)?;
    let path = Path {
        src_mac: interface.mac,
        dst_mac: mac,
        vlan: None,
        mtu: route.mtu,
        hop_limit: route.hop_limit,
    };
    Ok((route.source, path))
}

/// Whether the kernel knows the next hop on the way to `remote`. If not, it is asked to find it, which is not waited for.
/// `waited`: how long ago it was asked first, of `timeout` that it has.
///
/// # Errors
///
/// When `local` is not ours, no route leads there over the interface, or the neighbour is silent for too long.
pub fn is_resolved(
    netlink: &Netlink,
    interface: &Interface,
    remote: IpAddr,
    local: Option<IpAddr>,
    (waited, timeout): (Duration, Duration),
) -> Result<bool, Refusal> {
    if let Some(local) = local {
        check_local(netlink, interface, local)?;
    }
    let route = Route::find(netlink, interface, remote, local)?;
    check_local(netlink, interface, route.source)?;
    let hop = route.next_hop;
    let known = neighbour::known(netlink, interface, hop, true)
        .map_err(|error| refused("the Ethernet address of a neighbour", error))?;
    match known {
        Some(_) => Ok(true),
        None if waited < timeout => Ok(false),
        None => Err(neighbour::silent(interface, hop, waited)),
    }
}

/// The MTU of the route to `remote` from `local` (or an address of the kernel's choice), in bytes
/// of an IP packet.
///
/// # Errors
///
/// When no route leads there over the interface.
pub fn route_mtu(
    netlink: &Netlink,
    interface: &Interface,
    remote: IpAddr,
    local: Option<IpAddr>,
) -> Result<u32, Refusal> {
    Ok(Route::find(netlink, interface, remote, local)?.mtu)
}

/// Whether the kernel's route to `remote` goes over the interface.
pub fn leads_over(netlink: &Netlink, interface: &Interface, remote: IpAddr) -> bool {
    Route::find(netlink, interface, remote, None).is_ok()
}

/// That the address is one of the interface's.
///
/// # Errors
///
/// When it is not; the refusal names those that are.
pub fn check_local(
    netlink: &Netlink,
    interface: &Interface,
    address: IpAddr,
) -> Result<(), Refusal> {
    let found = addresses(netlink, interface.index)
        .map_err(|error| refused("the interface's addresses", error))?;
    if found.contains(&address) {
        return Ok(());
    }
    let found: Vec<_> = found.iter().map(IpAddr::to_string).collect();
    Err(Refusal {
        code: RefusalCode::AddressNotLocal,
        message: format!(
            "local address {address} asked, but interface {} has only {}: use one of these",
            interface.name,
            found.join(", ")
        ),
    })
}

/// Something that the kernel refused.
pub fn refused(what: &str, error: impl std::fmt::Display) -> Refusal {
    Refusal {
        code: RefusalCode::Host,
        message: format!(
            "the kernel can't give {what}: {error} (see the limits of the RNIC's host)"
        ),
    }
}
