//! Addresses as people write them, and as `rdma_getaddrinfo` finds them: names, default port, scope.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6, ToSocketAddrs};

use rnic_ipc::control::DeviceName;
use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with};

use crate::error::Error;

/// The port where none is named.
pub const DEFAULT_PORT: u16 = 18515;

/// The addresses of a peer: `HOST`, `HOST:PORT`, `ADDRESS`, `ADDRESS:PORT`, `[ADDRESS]:PORT`, and IPv6
/// addresses with a scope (RFC 4007), as `[fe80::1%eth0]:PORT`. Without a port it is [`DEFAULT_PORT`]. A
/// name may have several addresses: they are in the order in which to try them (getaddrinfo(3), RFC 6724),
/// which has those without a route last.
///
/// # Errors
/// [`AddressError`]: what was written is no address, or the name is not known.
pub fn peer_addresses(text: &str) -> Result<Vec<SocketAddr>, AddressError> {
    let (host, port) = split(text)?;
    if host.is_empty() {
        return Err(AddressError::malformed(text, "names no host"));
    }
    match port {
        Some(0) => Err(AddressError::malformed(text, "names port 0")),
        port => addresses(text, host, port.unwrap_or(DEFAULT_PORT)),
    }
}

/// The addresses to listen on, of which one is to be taken: as [`peer_addresses`], but for text without a host,
/// such as `:PORT` or nothing at all. That is the wildcard `[::]`: all addresses of both families. Port 0 lets
/// the kernel choose.
///
/// # Errors
/// As for [`peer_addresses`].
pub fn local_addresses(text: &str) -> Result<Vec<SocketAddr>, AddressError> {
    let (host, port) = split(text)?;
    let port = port.unwrap_or(DEFAULT_PORT);
    match host {
        "" => Ok(vec![SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port)]),
        host => addresses(text, host, port),
    }
}

/// What names the addresses for a call, which takes the first of them that is not refused: as
/// `std::net::TcpStream` does, but when the RNIC has begun with one it stays with it.
///
/// # Errors
/// The last refusal, and [`Error::Address`].
pub(crate) fn first_of<T>(
    addresses: impl ToSocketAddrs,
    mut call: impl FnMut(SocketAddr) -> Result<T, Error>,
) -> Result<T, Error> {
    let mut refused = Error::Address(io::Error::other("it has no address"));
    for address in addresses.to_socket_addrs().map_err(Error::Address)? {
        match call(address) {
            Err(error @ Error::Refused(_)) => refused = error,
            done => return done,
        }
    }
    Err(refused)
}

/// The device to connect to a peer from: that of the interface which is the address's scope, or else that
/// of the kernel's route.
pub fn device_toward(peer: SocketAddr) -> DeviceName {
    scope_of(peer).unwrap_or(DeviceName::Toward(peer.ip()))
}

/// The device that has a local address; none for a wildcard, which every device has.
pub fn device_of(local: SocketAddr) -> Option<DeviceName> {
    match local.ip() {
        address if address.is_unspecified() => None,
        address => Some(scope_of(local).unwrap_or(DeviceName::Address(address))),
    }
}

fn scope_of(address: SocketAddr) -> Option<DeviceName> {
    match address {
        SocketAddr::V6(v6) if v6.scope_id() != 0 => {
            Some(DeviceName::Interface(interface_name(v6.scope_id()).ok()?))
        }
        _ => None,
    }
}

/// Host and port, as they are written. An IPv6 address without brackets has no port.
fn split(text: &str) -> Result<(&str, Option<u16>), AddressError> {
    let (host, rest) = match text.strip_prefix('[') {
        Some(bracketed) => bracketed
            .split_once(']')
            .ok_or_else(|| AddressError::malformed(text, "has a bracket that does not end"))?,
        None if text.matches(':').count() > 1 => (text, ""),
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    let is_v6 = || {
        host.split('%')
            .next()
            .is_some_and(|ip| ip.parse::<Ipv6Addr>().is_ok())
    };
    if (text.starts_with('[') || host.contains(':')) && !is_v6() {
        return Err(AddressError::malformed(text, "is no IPv6 address"));
    }
    if rest.is_empty() {
        return Ok((host, None));
    }
    let port = rest.strip_prefix(':').and_then(|port| port.parse().ok());
    match port {
        Some(port) => Ok((host, Some(port))),
        None => Err(AddressError::malformed(
            text,
            "has no port of 0 to 65535 at its end",
        )),
    }
}

fn addresses(text: &str, host: &str, port: u16) -> Result<Vec<SocketAddr>, AddressError> {
    if let Some((address, scope)) = host.split_once('%') {
        let Ok(address) = address.parse() else {
            return Err(AddressError::malformed(
                text,
                "has a scope, but no IPv6 address",
            ));
        };
        let scope = interface_index(scope)?;
        return Ok(vec![SocketAddrV6::new(address, port, 0, scope).into()]);
    }
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let unknown = |source: io::Error| AddressError::Unknown {
        host: host.to_owned(),
        found: source.to_string(),
    };
    let mut all = Vec::new();
    for address in (host, port).to_socket_addrs().map_err(unknown)? {
        if !all.contains(&address) {
            all.push(address);
        }
    }
    match all.is_empty() {
        true => Err(unknown(io::Error::other("it has no address"))),
        false => Ok(all),
    }
}

fn interface_index(scope: &str) -> Result<u32, AddressError> {
    let found = match scope.parse() {
        // A scope may be a number (RFC 4007 section 11.2), that of an interface that exists.
        Ok(index) => interface_name(index).map(|_| index),
        Err(_) => with_socket(|socket| netdevice::name_to_index(socket, scope)),
    };
    found.map_err(|_| AddressError::NoInterface {
        scope: scope.to_owned(),
    })
}

fn interface_name(index: u32) -> rustix::io::Result<String> {
    with_socket(|socket| netdevice::index_to_name(socket, index))
}

/// Interfaces are asked for by any socket (netdevice(7)).
fn with_socket<T>(
    ask: impl FnOnce(&std::os::fd::OwnedFd) -> rustix::io::Result<T>,
) -> rustix::io::Result<T> {
    let flags = SocketFlags::CLOEXEC;
    ask(&socket_with(
        AddressFamily::UNIX,
        SocketType::DGRAM,
        flags,
        None,
    )?)
}

/// An address that nothing can be done with.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// What was written is no address.
    #[error("\"{text}\" {fault}: write HOST, HOST:PORT, ADDRESS:PORT or [IPV6]:PORT")]
    Malformed {
        /// What was written.
        text: String,
        /// What is wrong with it.
        fault: &'static str,
    },
    /// The name does not resolve.
    #[error("the name {host} does not resolve ({found}): is it spelt right?")]
    Unknown {
        /// The name.
        host: String,
        /// What the resolver said.
        found: String,
    },
    /// The scope of an address names no interface of this host.
    #[error("the scope %{scope} is no interface of this host: `ip link` shows which there are")]
    NoInterface {
        /// The scope.
        scope: String,
    },
}

crate::error::debug_is_display!(AddressError);

impl AddressError {
    fn malformed(text: &str, fault: &'static str) -> Self {
        let text = text.to_owned();
        Self::Malformed { text, fault }
    }
}

#[cfg(test)]
mod tests;
