//! Addresses: one end of a connection, and both.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// An IP address and a port. Unlike [`SocketAddr`] it has no flow label and no scope, which
/// would make equal flows unequal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    pub addr: IpAddr,
    /// The port, in host order.
    pub port: u16,
}

/// Whether a host may have an address, as far as it says itself. Not so are multicast and broadcast addresses,
/// 0.0.0.0/8 and 240.0.0.0/4 (RFC 1122 section 3.2.1.3), the unspecified address, and IPv4 in IPv6. What says
/// it comes from there is not answered.
pub const fn may_be_a_host(addr: IpAddr) -> bool {
    match addr {
        IpAddr::V4(addr) => matches!(addr.octets()[0], 1..=223),
        IpAddr::V6(addr) => {
            !addr.is_unspecified() && !addr.is_multicast() && addr.to_ipv4_mapped().is_none()
        }
    }
}

impl Endpoint {
    #[inline]
    pub const fn new(addr: IpAddr, port: u16) -> Self {
        Self { addr, port }
    }
}

impl From<SocketAddr> for Endpoint {
    fn from(address: SocketAddr) -> Self {
        Self {
            addr: address.ip(),
            port: address.port(),
        }
    }
}

impl From<(IpAddr, u16)> for Endpoint {
    fn from((addr, port): (IpAddr, u16)) -> Self {
        Self { addr, port }
    }
}

impl From<Endpoint> for SocketAddr {
    fn from(endpoint: Endpoint) -> Self {
        Self::new(endpoint.addr, endpoint.port)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SocketAddr::from(*self).fmt(f)
    }
}

/// Both ends of a connection, as seen from here. For a packet that came in, `local` is its
/// destination and `remote` its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FourTuple {
    /// Our address and port.
    pub local: Endpoint,
    /// The peer's address and port.
    pub remote: Endpoint,
}

/// The ports of a UDP header around a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UdpPorts {
    pub source: u16,
    pub destination: u16,
}

/// Both addresses of IPv6 and both ports.
const BYTES_MAX: usize = 2 * 16 + 2 * 2;

impl FourTuple {
    /// From anything that is an [`Endpoint`].
    #[inline]
    pub fn new(local: impl Into<Endpoint>, remote: impl Into<Endpoint>) -> Self {
        Self {
            local: local.into(),
            remote: remote.into(),
        }
    }

    /// All that tells one flow from another, in one piece, and its length.
    #[inline]
    pub fn bytes(&self) -> ([u8; BYTES_MAX], usize) {
        let mut out = [0; BYTES_MAX];
        let mut len = 0;
        let mut put = |part: &[u8]| {
            out[len..len + part.len()].copy_from_slice(part);
            len += part.len();
        };
        for end in [&self.local, &self.remote] {
            match end.addr {
                IpAddr::V4(addr) => put(&addr.octets()),
                IpAddr::V6(addr) => put(&addr.octets()),
            }
            put(&end.port.to_be_bytes());
        }
        (out, len)
    }
}

impl fmt::Display for FourTuple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} <-> {}", self.local, self.remote)
    }
}
