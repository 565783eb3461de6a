//! By what the host rejects packets that would go out: routes and rules of kinds `blackhole`, `unreachable` and
//! `prohibit`. The kernel says whether one of them is met by packets between two addresses. Which one it was is looked
//! for among all. What is not found there is no rejection: a lookup may fail for other reasons.

use std::fmt::Display;
use std::net::IpAddr;
use std::sync::Arc;

use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteType};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleFlags, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use rnic_net::Prefix;
use rustix::io::Errno;

use super::interface::Interface;
use super::netlink::{Netlink, NetlinkError, other};
use super::route;

/// What the kernel does with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Blackhole,
    Unreachable,
    Prohibit,
}

const KINDS: [(Kind, RouteType, RuleAction, &str); 3] = [
    (
        Kind::Blackhole,
        RouteType::BlackHole,
        RuleAction::Blackhole,
        "blackhole",
    ),
    (
        Kind::Unreachable,
        RouteType::Unreachable,
        RuleAction::Unreachable,
        "unreachable",
    ),
    (
        Kind::Prohibit,
        RouteType::Prohibit,
        RuleAction::Prohibit,
        "prohibit",
    ),
];

#[derive(Clone, Debug)]
struct Entry {
    kind: Kind,
    is_rule: bool,
    is_v6: bool,
    /// Whether it is for all but what it selects.
    is_inverted: bool,
    source: Option<Prefix>,
    destination: Option<Prefix>,
    len: u8,
    text: Arc<str>,
}

/// All routes and rules of these kinds that the host has.
#[derive(Debug, Default)]
pub struct Rejecting(Vec<Entry>);

impl Rejecting {
    /// Those of the calling thread's network namespace.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn find() -> Result<Self, NetlinkError> {
        let netlink = Netlink::open_strict();
        let netlink = netlink.map_err(|error| other("a netlink socket", &error.to_string()))?;
        let mut entries = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut request = RuleMessage::default();
            request.header.family = family;
            let rules = netlink.dump("the rules", RouteNetlinkMessage::GetRule(request))?;
            entries.extend(rules.iter().filter_map(rule));
            for (_, kind, ..) in KINDS {
                let mut request = RouteMessage::default();
                request.header.address_family = family;
                // The kernel sends those alone: a router has a million others.
                request.header.kind = kind;
                let routes = netlink.dump("the routes", RouteNetlinkMessage::GetRoute(request))?;
                entries.extend(routes.iter().filter_map(rejecting_route));
            }
        }
        Ok(Self(entries))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What of them packets meet that go from our address `local` to `remote`, for people. The kernel is asked.
    pub fn find_for(
        &self,
        (netlink, interface): (&Netlink, &Interface),
        (local, remote): (IpAddr, IpAddr),
    ) -> Option<Arc<str>> {
        if self.is_empty() {
            return None;
        }
        let request = route::request(interface, remote, Some(local));
        let request = RouteNetlinkMessage::GetRoute(request);
        let (kind, only_rules) = match netlink.get("a route", request) {
            Ok(RouteNetlinkMessage::NewRoute(message)) => (kind_of(message.header.kind)?, false),
            Ok(_) => return None,
            Err(error) => match error.errno()? {
                Errno::INVAL => (Kind::Blackhole, false),
                Errno::HOSTUNREACH => (Kind::Unreachable, false),
                Errno::ACCESS => (Kind::Prohibit, false),
                // Also where there is no route at all.
                Errno::NETUNREACH => (Kind::Unreachable, true),
                _ => return None,
            },
        };
        let met = self.0.iter().filter(|entry| {
            entry.kind == kind && (entry.is_rule || !only_rules) && entry.selects(local, remote)
        });
        // The longest prefix of routes; a rule comes before routes.
        let met = met.max_by_key(|entry| (entry.is_rule, entry.len))?;
        Some(met.text.clone())
    }
}

impl Entry {
    fn selects(&self, local: IpAddr, remote: IpAddr) -> bool {
        let within = |prefix: Option<Prefix>, address| prefix.is_none_or(|it| it.contains(address));
        self.is_v6 == remote.is_ipv6()
            && (self.is_inverted || within(self.source, local) && within(self.destination, remote))
    }
}

/// Whether what the kernel tells of a route, or of a rule, is about one of these kinds.
pub(crate) fn rejects(told: &RouteNetlinkMessage) -> bool {
    use RouteNetlinkMessage as Told;
    match told {
        Told::NewRoute(it) | Told::DelRoute(it) => kind_of(it.header.kind).is_some(),
        Told::NewRule(it) | Told::DelRule(it) => kind_of_rule(it.header.action).is_some(),
        _ => false,
    }
}

fn kind_of(found: RouteType) -> Option<Kind> {
    let mut kinds = KINDS.iter();
    kinds.find_map(|(kind, of_route, ..)| (*of_route == found).then_some(*kind))
}

fn kind_of_rule(found: RuleAction) -> Option<Kind> {
    let mut kinds = KINDS.iter();
    kinds.find_map(|(kind, _, of_rule, _)| (*of_rule == found).then_some(*kind))
}

/// As `ip route` and `ip rule` call it.
fn name(kind: Kind) -> &'static str {
    let mut kinds = KINDS.iter();
    let found = kinds.find(|(known, ..)| *known == kind);
    found.map_or("", |(.., name)| name)
}

/// A prefix as `ip` has it.
fn words(prefix: Option<Prefix>, all: &str) -> String {
    prefix.map_or_else(|| all.to_owned(), |prefix| prefix.to_string())
}

fn rejecting_route(message: &RouteNetlinkMessage) -> Option<Entry> {
    let RouteNetlinkMessage::NewRoute(message) = message else {
        return None;
    };
    let header = &message.header;
    let kind = kind_of(header.kind)?;
    let found = message.attributes.iter().find_map(|it| match it {
        RouteAttribute::Destination(RouteAddress::Inet(address)) => Some((*address).into()),
        RouteAttribute::Destination(RouteAddress::Inet6(address)) => Some((*address).into()),
        _ => None,
    });
    let len = header.destination_prefix_length;
    let destination = found.and_then(|address| Prefix::new(address, len.into()));
    let (name, to) = (name(kind), words(destination, "default"));
    Some(Entry {
        kind,
        is_rule: false,
        is_v6: header.address_family == AddressFamily::Inet6,
        is_inverted: false,
        source: None,
        destination,
        len,
        text: format!("route `{name} {to}`").into(),
    })
}

fn rule(message: &RouteNetlinkMessage) -> Option<Entry> {
    let RouteNetlinkMessage::NewRule(message) = message else {
        return None;
    };
    let header = &message.header;
    let kind = kind_of_rule(header.action)?;
    let (mut source, mut destination, mut priority) = (None, None, 0);
    for attribute in &message.attributes {
        match attribute {
            RuleAttribute::Source(address) => {
                source = Prefix::new(*address, header.src_len.into());
            }
            RuleAttribute::Destination(address) => {
                destination = Prefix::new(*address, header.dst_len.into());
            }
            RuleAttribute::Priority(found) => priority = *found,
            _ => {}
        }
    }
    let is_inverted = header.flags.contains(RuleFlags::Invert);
    let not: &dyn Display = if is_inverted { &"not " } else { &"" };
    let (from, name) = (words(source, "all"), name(kind));
    let to = destination.map_or_else(String::new, |to| format!(" to {to}"));
    Some(Entry {
        kind,
        is_rule: true,
        is_v6: header.family == AddressFamily::Inet6,
        is_inverted,
        source,
        destination,
        len: header.dst_len,
        text: format!("rule `{priority}: {not}from {from}{to} {name}`").into(),
    })
}
