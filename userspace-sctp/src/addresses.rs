//! Further addresses of the peer, as its INIT or INIT ACK lists them (RFC 9260 section 5.1.2).

use std::net::IpAddr;

use crate::interface::Ends;
use crate::parameter::{Parameter, Parameters};
use crate::path::PATHS_MAX;

/// Most addresses beside the first.
pub(crate) const OTHERS_MAX: usize = PATHS_MAX - 1;

/// Addresses of the peer beside the first one, of its family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Others {
    list: [Option<IpAddr>; OTHERS_MAX],
}

impl Others {
    /// Those that parameters list, beside the first and beside ours: the first so many that can be an address of one
    /// host. Others are ignored.
    pub(crate) fn of(parameters: Parameters<'_>, ends: Ends, limit: usize) -> Self {
        let mut others = Self::default();
        for parameter in parameters.iter() {
            if let Parameter::Address(address) = parameter {
                others.add(address, ends, limit);
            }
        }
        others
    }

    /// Adds one, if there is room and it is another one.
    pub(crate) fn add(&mut self, address: IpAddr, ends: Ends, limit: usize) {
        let first = ends.remote.ip();
        let is_usable = address.is_ipv4() == first.is_ipv4()
            && is_of_a_host(address)
            && address.is_loopback() == first.is_loopback();
        let is_known = [first, ends.local.ip()].contains(&address) || self.contains(address);
        let mut vacant = self.list.iter_mut().take(limit);
        if is_usable
            && !is_known
            && let Some(place) = vacant.find(|place| place.is_none())
        {
            *place = Some(address);
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = IpAddr> + use<> {
        self.list.into_iter().flatten()
    }

    /// Whether it is one of them.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.list.contains(&Some(address))
    }
}

/// Whether it can be the address of one host. An IPv4-mapped IPv6 address is none (RFC 9260 section 3.3.2.1.2).
pub(crate) fn is_of_a_host(address: IpAddr) -> bool {
    let is_none = match address {
        IpAddr::V4(addr) => addr.is_broadcast(),
        IpAddr::V6(addr) => addr.to_ipv4_mapped().is_some(),
    };
    !(is_none || address.is_unspecified() || address.is_multicast())
}
