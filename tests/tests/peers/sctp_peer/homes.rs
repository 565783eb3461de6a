//! A peer with two addresses, whose first one is taken away in the middle of a session: the session goes on at the
//! second (RFC 9260 sections 5.1.2, 5.4, 6.4).

use std::net::IpAddr;

use rnic::Context;
use rnic::admin::{AddressState, Kind, Object, PeerAddress};
use rnic_tests::lab::{Family, Host, INTERFACE};
use rnic_tests::wait;

use super::LIMIT;

/// The peer's host, and ours.
pub struct Homes<'a> {
    pub ours: &'a Host,
    /// The peer's first address.
    pub first: IpAddr,
    pub device: &'a str,
    /// Runs `ip` with these words on the peer's host.
    pub ip: &'a dyn Fn(&str),
}

impl Homes<'_> {
    /// The wildcard that the peer is bound to, so that it lists all its addresses.
    pub fn any(family: Family) -> &'static str {
        match family {
            Family::V4 => "0.0.0.0",
            Family::V6 => "::",
        }
    }

    fn second(&self) -> IpAddr {
        let text = if self.first.is_ipv4() {
            "198.18.77.2"
        } else {
            "2001:db8:77::2"
        };
        text.parse().expect("an address")
    }

    /// With the length of its network's prefix.
    fn in_network(address: IpAddr) -> String {
        let bits = if address.is_ipv4() { 24 } else { 64 };
        format!("{address}/{bits}")
    }

    fn own_network(&self) -> String {
        let family = match self.first {
            IpAddr::V4(_) => Family::V4,
            IpAddr::V6(_) => Family::V6,
        };
        match self.ours.address(family, 0).ip() {
            IpAddr::V4(ip) => {
                let [a, b, c, _] = ip.octets();
                format!("{a}.{b}.{c}.0/24")
            }
            IpAddr::V6(ip) => {
                let [a, b, c, d, ..] = ip.segments();
                format!("{a:x}:{b:x}:{c:x}:{d:x}::/64")
            }
        }
    }

    fn add(&self, address: IpAddr) {
        let nodad = if address.is_ipv6() { " nodad" } else { "" };
        let at = Self::in_network(address);
        (self.ip)(&format!("addr add {at} dev {}{nodad}", self.device));
    }

    fn take(&self, address: IpAddr) {
        let at = Self::in_network(address);
        (self.ip)(&format!("addr del {at} dev {}", self.device));
    }

    /// The peer has the second address, and our host knows the way there.
    pub fn add_second(&self) {
        self.add(self.second());
        let second = self.second().to_string();
        let route = ["route", "replace", &second, "dev", INTERFACE];
        self.ours.namespace.ip(&route);
    }

    /// Once the peer has answered at the second address, the first one goes.
    pub fn take_first(&self, context: &Context) {
        let active = PeerAddress {
            address: self.second(),
            state: AddressState::Active,
        };
        wait::until("the peer answers at its second address", LIMIT, || {
            let all = context.inspect(Kind::Connections).expect("it is ours");
            let is_it = |object: &Object| match object {
                Object::Connection(one) => one.peer_addresses.contains(&active),
                _ => false,
            };
            all.iter().any(is_it).then_some(())
        });
        self.take(self.first);
        let (net, device, second) = (self.own_network(), self.device, self.second());
        let v6 = if self.first.is_ipv6() { "-6 " } else { "" };
        (self.ip)(&format!(
            "{v6}route replace {net} dev {device} src {second}"
        ));
    }

    /// All is as it was before.
    pub fn restore(&self) {
        self.take(self.second());
        self.add(self.first);
    }
}
