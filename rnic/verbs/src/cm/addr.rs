//! Socket addresses, as C has them.

use std::ffi::c_int;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV6};
use std::os::fd::OwnedFd;

use libc::{AF_INET, AF_INET6, sa_family_t, sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::ffi::{Fail, Outcome, Ptr, zeroable};

zeroable!(sockaddr_storage, sockaddr_in, sockaddr_in6);

/// The address at `place`, whose length is that of its family.
pub(crate) fn read_sockaddr(place: Ptr<sockaddr>) -> Outcome<SocketAddr> {
    match c_int::from(place.cast::<sa_family_t>().read()?) {
        AF_INET => {
            let found = place.cast::<sockaddr_in>().read()?;
            let address = Ipv4Addr::from(u32::from_be(found.sin_addr.s_addr));
            Ok((address, u16::from_be(found.sin_port)).into())
        }
        AF_INET6 => {
            let found = place.cast::<sockaddr_in6>().read()?;
            let port = u16::from_be(found.sin6_port);
            let (flow, scope) = (found.sin6_flowinfo, found.sin6_scope_id);
            let address = found.sin6_addr.s6_addr.into();
            Ok(SocketAddrV6::new(address, port, flow, scope).into())
        }
        other => Err(Fail::of(
            Errno::AFNOSUPPORT,
            format!("an address of family {other}: only IPv4 and IPv6 are there"),
        )),
    }
}

/// The same the other way round, and its length.
pub(crate) fn to_storage(address: SocketAddr) -> (sockaddr_storage, libc::socklen_t) {
    let mut storage: sockaddr_storage = crate::ffi::zeroed();
    let place = Ptr::to(&mut storage);
    let length = match address {
        SocketAddr::V4(address) => {
            let mut to: sockaddr_in = crate::ffi::zeroed();
            to.sin_family = AF_INET as sa_family_t;
            to.sin_port = address.port().to_be();
            to.sin_addr.s_addr = u32::from(*address.ip()).to_be();
            place.cast().write(to);
            size_of::<sockaddr_in>()
        }
        SocketAddr::V6(address) => {
            let mut to: sockaddr_in6 = crate::ffi::zeroed();
            to.sin6_family = AF_INET6 as sa_family_t;
            to.sin6_port = address.port().to_be();
            to.sin6_flowinfo = address.flowinfo();
            to.sin6_addr.s6_addr = address.ip().octets();
            to.sin6_scope_id = address.scope_id();
            place.cast().write(to);
            size_of::<sockaddr_in6>()
        }
    };
    (storage, length as libc::socklen_t)
}

/// A port of the host's choice for an address, kept from others as long as the descriptor is open.
pub(crate) fn reserve_port(local: SocketAddr) -> Outcome<(u16, OwnedFd)> {
    let family = match local {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    rustix::net::bind(&socket, &local)?;
    let bound = SocketAddr::try_from(rustix::net::getsockname(&socket)?)?;
    Ok((bound.port(), socket))
}
