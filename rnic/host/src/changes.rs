//! That something changed at the host, as the kernel tells it without being asked: interfaces,
//! addresses, neighbours, routes (rtnetlink(7), multicast groups).
//!
//! What is told is taken for a hint only. Who is interested asks for the present state, which also
//! serves when so much changed at once that the kernel dropped some of it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::protocols::{NETLINK_ROUTE, NETLINK_XFRM};
use netlink_sys::{Socket, SocketAddr};

use super::rejecting::rejects;

/// RTNLGRP_LINK, _NEIGH, _IPV4_IFADDR, _IPV4_ROUTE, _IPV4_RULE, _IPV6_IFADDR, _IPV6_ROUTE, _IPV6_RULE of
/// linux/rtnetlink.h.
const GROUPS: [u32; 8] = [1, 3, 5, 7, 8, 9, 11, 19];
/// Of these _LINK, _IPV4_IFADDR and _IPV6_IFADDR.
const OF_INTERFACES: [u32; 3] = [1, 5, 9];
/// XFRMNLGRP_POLICY of linux/xfrm.h.
const OF_IPSEC: [u32; 1] = [4];
/// Most messages of one look; those behind them wait for the next.
const BATCH: usize = 1024;

/// A socket on which the kernel tells what changes in the network namespace of the thread that
/// opened it.
#[derive(Debug)]
pub struct Changes {
    socket: Socket,
}

impl Changes {
    /// Changes from now on.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn open() -> io::Result<Self> {
        Self::of(NETLINK_ROUTE, &GROUPS)
    }

    /// Those of interfaces and their addresses.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn of_interfaces() -> io::Result<Self> {
        Self::of(NETLINK_ROUTE, &OF_INTERFACES)
    }

    /// Those of IPsec policies. Needs CAP_NET_ADMIN.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn of_ipsec() -> io::Result<Self> {
        Self::of(NETLINK_XFRM, &OF_IPSEC)
    }

    fn of(protocol: isize, groups: &[u32]) -> io::Result<Self> {
        let mut socket = Socket::new(protocol)?;
        socket.bind(&SocketAddr::new(0, 0))?;
        for group in groups {
            socket.add_membership(*group)?;
        }
        socket.set_non_blocking(true)?;
        Ok(Self { socket })
    }

    /// Takes what the kernel has told, and says what of it can matter to the interfaces with these indexes.
    pub fn take(&self, interfaces: &[u32]) -> Hint {
        self.take_where(|bytes| concerns(bytes, interfaces))
    }

    /// Takes what the kernel has told, and says whether that was anything.
    pub fn take_any(&self) -> bool {
        self.take_where(|_| Hint::ANYTHING).changed
    }

    fn take_where(&self, concerns: impl Fn(&[u8]) -> Hint) -> Hint {
        let mut found = Hint::default();
        for _ in 0..BATCH {
            let told = match self.socket.recv_from_full() {
                Ok((bytes, _)) => concerns(&bytes),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // ENOBUFS: more changed than there was room for.
                Err(_) => Hint::ANYTHING,
            };
            found.changed |= told.changed;
            found.rejecting |= told.rejecting;
        }
        found
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hint {
    /// Something that can matter.
    pub changed: bool,
    /// Routes or rules that [reject](super::rejecting).
    pub rejecting: bool,
}

impl Hint {
    const ANYTHING: Self = Self {
        changed: true,
        rejecting: true,
    };
}

impl AsFd for Changes {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// What of a message can matter to interfaces. One that can't be read may.
fn concerns(bytes: &[u8], interfaces: &[u32]) -> Hint {
    use RouteNetlinkMessage as Told;
    let Ok(message) = NetlinkMessage::<Told>::deserialize(bytes) else {
        return Hint::ANYTHING;
    };
    let NetlinkPayload::InnerMessage(told) = message.payload else {
        return Hint::default();
    };
    let rejecting = rejects(&told);
    let changed = match told {
        Told::NewLink(it) | Told::DelLink(it) => interfaces.contains(&it.header.index),
        Told::NewAddress(it) | Told::DelAddress(it) => interfaces.contains(&it.header.index),
        Told::NewNeighbour(it) | Told::DelNeighbour(it) => interfaces.contains(&it.header.ifindex),
        // A route over another interface may be one that was ours.
        _ => true,
    };
    Hint { changed, rejecting }
}
