//! The Ethernet address of a neighbour, from the kernel's table (RTM_GETNEIGH); when it is not
//! there, the kernel is asked to find it (RFC 826, RFC 4861) and the table is watched.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use netlink_packet_core::NLM_F_CREATE;
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use rnic_ipc::control::{Refusal, RefusalCode};
use rustix::io::Errno;

use super::interface::Interface;
use super::netlink::{Netlink, NetlinkError};

/// How long to wait between two looks at the table.
const PAUSE: Duration = Duration::from_millis(2);

/// What the kernel's table says of a neighbour.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Entry {
    /// Its address, confirmed or set by hand.
    Known([u8; 6]),
    /// Its address, not confirmed for a while.
    Stale([u8; 6]),
    /// No address (yet).
    Missing(NeighbourState),
}

/// The Ethernet address of `neighbour`. Waits up to `timeout` in the calling thread; with no time, the kernel
/// is asked to find an unknown neighbour, which is not waited for. `None`: it is not even asked.
///
/// # Errors
///
/// `Unreachable` when no answer comes.
pub(crate) fn resolve(
    netlink: &Netlink,
    interface: &Interface,
    neighbour: IpAddr,
    timeout: Option<Duration>,
) -> Result<[u8; 6], Refusal> {
    let unreachable = |found: &str| unreachable(interface, neighbour, found);
    let failed = |error: NetlinkError| unreachable(&error.to_string());
    let not_yet = || unreachable("it is not known yet");
    let asks = timeout.is_some();
    if let Some(mac) = known(netlink, interface, neighbour, asks).map_err(failed)? {
        return Ok(mac);
    }
    let Some(timeout) = timeout.filter(|timeout| !timeout.is_zero()) else {
        return Err(not_yet());
    };
    let deadline = Instant::now() + timeout;
    loop {
        std::thread::sleep(PAUSE);
        match look(netlink, interface, neighbour).map_err(failed)? {
            Entry::Known(mac) | Entry::Stale(mac) => return Ok(mac),
            Entry::Missing(NeighbourState::Failed) => {
                return Err(unreachable("it did not answer (the entry is FAILED)"));
            }
            Entry::Missing(state) if Instant::now() >= deadline => {
                let waited = timeout.as_millis();
                let found = format!("it did not answer in {waited} ms (the entry is {state:?})");
                return Err(unreachable(&found));
            }
            Entry::Missing(_) => {}
        }
    }
}

/// A neighbour that no request waits for any longer.
pub(crate) fn silent(interface: &Interface, neighbour: IpAddr, waited: Duration) -> Refusal {
    let found = format!("it did not answer in {} ms", waited.as_millis());
    unreachable(interface, neighbour, &found)
}

fn unreachable(interface: &Interface, neighbour: IpAddr, found: &str) -> Refusal {
    Refusal {
        code: RefusalCode::Unreachable,
        message: format!(
            "the Ethernet address of {neighbour} on interface {name} asked, but {found}: is the \
             host there, up and on the same link? (`ip neighbour show dev {name}`)",
            name = interface.name
        ),
    }
}

/// The Ethernet address of a neighbour, if the kernel knows it. Else, with `asks`, the kernel is asked to find it.
pub(crate) fn known(
    netlink: &Netlink,
    interface: &Interface,
    neighbour: IpAddr,
    asks: bool,
) -> Result<Option<[u8; 6]>, NetlinkError> {
    match look(netlink, interface, neighbour)? {
        Entry::Known(mac) => Ok(Some(mac)),
        Entry::Stale(mac) => {
            // Good enough to begin with; the kernel confirms it in the meantime. Our own traffic
            // does not show it that the neighbour is alive.
            if let Err(error) = solicit(netlink, interface, neighbour) {
                log::debug!("{error}");
            }
            Ok(Some(mac))
        }
        Entry::Missing(_) => {
            if asks {
                solicit(netlink, interface, neighbour)?;
            }
            Ok(None)
        }
    }
}

fn look(
    netlink: &Netlink,
    interface: &Interface,
    neighbour: IpAddr,
) -> Result<Entry, NetlinkError> {
    let asked = format!("the neighbour {neighbour}");
    let request = RouteNetlinkMessage::GetNeighbour(message(interface, neighbour));
    match netlink.get(&asked, request) {
        Ok(RouteNetlinkMessage::NewNeighbour(found)) => Ok(read(&found)),
        Ok(_) => Ok(Entry::Missing(NeighbourState::None)),
        Err(error) if error.errno() == Some(Errno::NOENT) => {
            Ok(Entry::Missing(NeighbourState::None))
        }
        Err(error) => Err(error),
    }
}

fn read(found: &NeighbourMessage) -> Entry {
    let mac = found
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            NeighbourAttribute::LinkLayerAddress(bytes) => {
                <[u8; 6]>::try_from(bytes.as_slice()).ok()
            }
            _ => None,
        });
    match (found.header.state, mac) {
        (
            NeighbourState::Reachable
            | NeighbourState::Permanent
            | NeighbourState::Noarp
            | NeighbourState::Delay
            | NeighbourState::Probe,
            Some(mac),
        ) => Entry::Known(mac),
        (NeighbourState::Stale, Some(mac)) => Entry::Stale(mac),
        (state, _) => Entry::Missing(state),
    }
}

/// Makes the kernel look for the neighbour, as if it had a packet for it (`ip neighbour ... use`).
fn solicit(
    netlink: &Netlink,
    interface: &Interface,
    neighbour: IpAddr,
) -> Result<(), NetlinkError> {
    let mut message = message(interface, neighbour);
    message.header.flags = NeighbourFlags::Use;
    let asked = format!("to look for the neighbour {neighbour}");
    netlink.change(
        &asked,
        RouteNetlinkMessage::NewNeighbour(message),
        NLM_F_CREATE,
    )
}

fn message(interface: &Interface, neighbour: IpAddr) -> NeighbourMessage {
    let (family, address) = match neighbour {
        IpAddr::V4(address) => (AddressFamily::Inet, NeighbourAddress::Inet(address)),
        IpAddr::V6(address) => (AddressFamily::Inet6, NeighbourAddress::Inet6(address)),
    };
    let mut message = NeighbourMessage::default();
    message.header.family = family;
    message.header.ifindex = interface.index;
    message
        .attributes
        .push(NeighbourAttribute::Destination(address));
    message
}
