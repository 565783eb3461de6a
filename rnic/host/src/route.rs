//! The way to a destination, as the kernel's routes have it (RTM_GETROUTE).

use std::net::IpAddr;

use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteMetric, RouteType, RouteVia,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use rnic_ipc::control::{Refusal, RefusalCode};

use super::interface::Interface;
use super::netlink::Netlink;

/// The way to a destination over our interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    /// Whose Ethernet address frames go to: the gateway, or the destination itself.
    pub(crate) next_hop: IpAddr,
    /// Our address, unless another was asked for.
    pub(crate) source: IpAddr,
    /// Largest IP packet, bytes.
    pub(crate) mtu: u32,
    /// How many routers may be on it: the route's own, or else the interface's.
    pub(crate) hop_limit: u8,
}

impl Route {
    /// Asks the kernel for the way from `source` (or an address of its choice) to `destination`.
    ///
    /// # Errors
    ///
    /// `Unreachable` when there is none, or it goes over another interface.
    pub(crate) fn find(
        netlink: &Netlink,
        interface: &Interface,
        destination: IpAddr,
        source: Option<IpAddr>,
    ) -> Result<Self, Refusal> {
        let unreachable = |found: String| Refusal {
            code: RefusalCode::Unreachable,
            message: format!(
                "a route to {destination} over interface {name} asked, but {found}: see `ip route \
                 get {destination}`, and add an address or a route on {name}",
                name = interface.name
            ),
        };
        let request = request(interface, destination, source);
        let asked = format!("the route to {destination}");
        let message = match netlink.get(&asked, RouteNetlinkMessage::GetRoute(request)) {
            Ok(RouteNetlinkMessage::NewRoute(message)) => message,
            Ok(_) => {
                return Err(unreachable(
                    "the kernel answered another question".to_owned(),
                ));
            }
            Err(error) => {
                return Err(unreachable(format!(
                    "the kernel has no route to it ({error})"
                )));
            }
        };
        Self::read(interface, destination, source, &message).map_err(unreachable)
    }

    fn read(
        interface: &Interface,
        destination: IpAddr,
        source: Option<IpAddr>,
        message: &RouteMessage,
    ) -> Result<Self, String> {
        match message.header.kind {
            RouteType::Unicast => {}
            RouteType::Local => {
                return Err(
                    "it is an address of this host itself that this device does not serve: use the \
                     device whose interface has it, and no local address of another's"
                        .to_owned(),
                );
            }
            kind => return Err(format!("the kernel's route to it is of kind {kind:?}")),
        }
        let mut next_hop = destination;
        let mut source = source;
        let mut mtu = interface.defaults.mtu;
        let mut hop_limit = interface.defaults.hop_limit(destination);
        let mut out = None;
        for attribute in &message.attributes {
            match attribute {
                RouteAttribute::Gateway(address) => {
                    next_hop = ip(address).unwrap_or(next_hop);
                }
                RouteAttribute::Via(RouteVia::Inet6(gateway)) => next_hop = (*gateway).into(),
                RouteAttribute::Via(RouteVia::Inet(gateway)) => next_hop = (*gateway).into(),
                RouteAttribute::PrefSource(address) => source = source.or_else(|| ip(address)),
                RouteAttribute::Oif(index) => out = Some(*index),
                RouteAttribute::Metrics(metrics) => {
                    for metric in metrics {
                        match metric {
                            RouteMetric::Mtu(limit) => mtu = mtu.min(*limit),
                            RouteMetric::Hoplimit(limit @ 1..=255) => hop_limit = *limit as u8,
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        if out != Some(interface.index) {
            let found = out.map_or_else(|| "none".to_owned(), |index| index.to_string());
            return Err(format!(
                "the kernel's route to it goes over the interface with index {found}, not {}",
                interface.index
            ));
        }
        let source = source.ok_or("the kernel names no source address for it")?;
        Ok(Self {
            next_hop,
            source,
            mtu,
            hop_limit,
        })
    }
}

/// The question for the way from `source` (or an address of the kernel's choice) to `destination`.
pub(super) fn request(
    interface: &Interface,
    destination: IpAddr,
    source: Option<IpAddr>,
) -> RouteMessage {
    let (family, prefix) = match destination {
        IpAddr::V4(_) => (AddressFamily::Inet, 32),
        IpAddr::V6(_) => (AddressFamily::Inet6, 128),
    };
    let mut request = RouteMessage::default();
    request.header.address_family = family;
    request.header.destination_prefix_length = prefix;
    request
        .attributes
        .push(RouteAttribute::Destination(destination.into()));
    if let Some(source) = source {
        request.header.source_prefix_length = prefix;
        request
            .attributes
            .push(RouteAttribute::Source(source.into()));
    }
    // Asked with an interface, the kernel calls every IPv4 address on-link when it has no route;
    // only a link-local destination means nothing without one.
    if matches!(destination, IpAddr::V6(address) if address.is_unicast_link_local()) {
        request
            .attributes
            .push(RouteAttribute::Oif(interface.index));
    }
    request
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use rnic_net::PathDefaults;

    use super::*;

    /// The kernel refuses another length when it checks strictly (`NETLINK_GET_STRICT_CHK`).
    #[test]
    fn a_question_is_about_whole_addresses() {
        let interface = Interface {
            name: "eth0".to_owned(),
            index: 7,
            mac: [2, 0, 0, 0, 0, 1],
            defaults: PathDefaults::new(1500),
        };
        for (local, remote, bits, out) in [
            ("198.18.0.1", "198.18.0.2", 32, false),
            ("2001:db8::1", "2001:db8::2", 128, false),
            ("fe80::1", "fe80::2", 128, true),
        ] {
            let (local, remote) = (local.parse().unwrap(), remote.parse().unwrap());
            let asked = request(&interface, remote, Some(local));
            assert_eq!(asked.header.destination_prefix_length, bits);
            assert_eq!(asked.header.source_prefix_length, bits);
            let has = |attribute| asked.attributes.contains(&attribute);
            assert!(has(RouteAttribute::Destination(remote.into())));
            assert!(has(RouteAttribute::Source(local.into())));
            assert_eq!(has(RouteAttribute::Oif(7)), out);
        }
    }
}
