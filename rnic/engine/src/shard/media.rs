//! What a connection's frames go over: the interface, the loopback, or an internal link to another shard of
//! this process. The device's path lookup decides when the connection begins. Segments that arrive over one
//! of these are never for a connection of another. So no host on a network can pass for an address of this
//! host.
//!
//! The ports of internal links are the shard's last ones. They carry frames as an interface does, with
//! checksums, and with CRCs where these are agreed on. But both ends are this host's: there are no routes and
//! neighbours to follow, and no VLANs.

use std::net::{IpAddr, Ipv4Addr};

use rnic_net::{Path, PathDefaults};
use rnic_xsk::Port;
use userspace_net::{Endpoint, FourTuple};

use super::datapath::Datapath;
use super::loopback::{LOOPBACK, untagged_mtu};
use crate::command::CommandError;
use crate::conn::Conn;

impl<P: Port> Datapath<P> {
    #[inline]
    pub fn is_of_interface(&self, port: usize) -> bool {
        port < self.interface_ports
    }

    /// Whether what comes by a port came through the kernel's IP and UDP ([`Port::is_of_kernel`]).
    #[inline]
    pub fn is_of_kernel(&self, port: usize) -> bool {
        self.ports.get(port).is_some_and(Port::is_of_kernel)
    }

    /// Whether a connection's frames go over the interface: so its path may move, and its peer be doubted.
    pub fn goes_over_interface(&self, conn: &Conn) -> bool {
        self.is_of_interface(conn.port())
    }

    /// The address by which limits on a peer's requests are counted. All programs of this host share one,
    /// since each may use any of the host's addresses.
    pub fn peer_host(&self, conn: &Conn) -> IpAddr {
        match self.goes_over_interface(conn) {
            true => conn.tuple.remote.addr,
            false => IpAddr::V4(Ipv4Addr::LOCALHOST),
        }
    }

    /// Whether what comes from one port may be for a connection that uses the other: the same one, or
    /// another queue of the interface.
    #[inline]
    pub fn are_of_one_medium(&self, a: usize, b: usize) -> bool {
        a == b || self.is_of_interface(a) && self.is_of_interface(b)
    }

    /// Whether a segment of no connection comes from another host than this one, as far as its addresses tell: not
    /// from or to the broadcast address of a subnet (RFC 9293 section 3.9.2.3). Other addresses that are no
    /// host's are dropped when a packet is parsed.
    pub fn comes_from_a_host(&self, port: usize, tuple: &FourTuple) -> bool {
        let is_broadcast = |end: &Endpoint| match end.addr {
            IpAddr::V4(addr) => self.broadcasts.binary_search(&addr).is_ok(),
            IpAddr::V6(_) => false,
        };
        port == LOOPBACK
            || tuple.local.addr != tuple.remote.addr
                && !is_broadcast(&tuple.local)
                && !is_broadcast(&tuple.remote)
    }

    /// The port of a new connection's first frames: which queue of the interface, the peer's answer tells.
    pub fn first_port(
        &self,
        path: &Path,
        internal_link: Option<usize>,
    ) -> Result<usize, CommandError> {
        match internal_link {
            None if path.is_loopback() => Ok(LOOPBACK),
            None => Ok(0),
            Some(link) => {
                let port = self.interface_ports.saturating_add(link);
                let there = self.ports.get(port).map(|_| port);
                there.ok_or_else(|| CommandError::Invalid(format!("no internal link {link}")))
            }
        }
    }

    /// What the path of a passive connection begins with whose SYN comes from this port.
    pub fn path_defaults(&self, port: usize) -> PathDefaults {
        match self.ports.get(port) {
            _ if self.is_of_interface(port) => self.config.path_defaults,
            Some(link) => PathDefaults::new(untagged_mtu(link.frame_capacity())),
            None => self.loopback.defaults(),
        }
    }

    /// The most bytes of a frame that goes by this port.
    pub fn frame_capacity(&self, port: usize) -> usize {
        let ports = match port {
            LOOPBACK => return self.frames.umem.frame_capacity(),
            // By whichever queue.
            _ if self.is_of_interface(port) => self.ports.get(..self.interface_ports),
            _ => self.ports.get(port..=port),
        };
        let capacities = ports.unwrap_or(&[]).iter().map(Port::frame_capacity);
        capacities.min().unwrap_or(0)
    }
}
