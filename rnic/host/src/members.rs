//! The devices whose queues an interface has: the interface itself, or the members of a bond.
//!
//! The kernel gives a frame to an AF_XDP socket of the device where it came, never to one of the bond. So a bond is
//! served by sockets of its members, and the kernel says which of them carry frames. All other things are the
//! bond's: addresses, routes, neighbours, the Ethernet address, the MTU.

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    BondFailOverMac, BondMode, BondPortState, InfoBond, InfoBondPort, InfoData, InfoKind,
    InfoPortData, LinkAttribute, LinkFlags, LinkInfo, LinkMessage, MiiStatus,
};

use super::interface::Interface;
use super::netlink::{Netlink, other};
use super::sockets::steering_error;
use crate::HostError;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub name: String,
    /// Its number in its network namespace.
    pub index: u32,
    /// The RX queues that are served, or may be.
    pub queues: Vec<u32>,
    /// Frames may leave by it: it is active in its bond, and has a link.
    pub carries: bool,
}

impl Member {
    fn count(&self) -> u32 {
        self.queues.len() as u32
    }
}

/// All of them that are up: one at least.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Members {
    /// They are members of a bond.
    pub is_bond: bool,
    /// In the order of their indexes.
    pub all: Vec<Member>,
}

impl Members {
    /// Those of an interface, in the order of their indexes, in the calling thread's network namespace.
    ///
    /// # Errors
    ///
    /// For a bond with no member that is up, or of a mode that the RNIC can't follow.
    pub fn of(netlink: &Netlink, interface: &Interface) -> Result<Self, HostError> {
        let own = link(netlink, interface)?;
        let Some(bond) = bond(&own) else {
            let itself = Member {
                name: interface.name.clone(),
                index: interface.index,
                queues: queues(&interface.name, interface)?,
                carries: true,
            };
            return Ok(Self {
                is_bond: false,
                all: vec![itself],
            });
        };
        check(bond, interface)?;
        let mut all = Vec::new();
        for link in &links(netlink)? {
            let is_member = has(link, &LinkAttribute::Controller(interface.index));
            if is_member
                && link.header.flags.contains(LinkFlags::Up)
                && let Some(name) = name(link)
            {
                all.push(Member {
                    queues: queues(&name, interface)?,
                    name,
                    index: link.header.index,
                    carries: carries(link),
                });
            }
        }
        all.sort_by_key(|member| member.index);
        if all.is_empty() {
            let interface = interface.name.clone();
            return Err(HostError::NoMember { interface });
        }
        Ok(Self { is_bond: true, all })
    }

    /// Their RX queues together.
    pub fn queues(&self) -> u32 {
        self.all.iter().map(Member::count).sum()
    }

    /// With these RX queues alone, if there are any: the same of each.
    ///
    /// # Errors
    ///
    /// When one has no such queue.
    pub fn only(mut self, queues: Option<&[u32]>) -> Result<Self, HostError> {
        let Some(queues) = queues else {
            return Ok(self);
        };
        for member in &mut self.all {
            let there = |queue: &u32| member.queues.contains(queue);
            if let Some(queue) = queues.iter().find(|queue| !there(queue)) {
                return Err(HostError::NoQueue {
                    asked: *queue,
                    device: member.name.clone(),
                    found: member.count(),
                });
            }
            member.queues = queues.to_vec();
        }
        Ok(self)
    }

    pub fn indexes(&self) -> impl Iterator<Item = u32> {
        self.all.iter().map(|member| member.index)
    }

    /// The most shards, up to `most`, that each have a queue of every member, and as many of it as the others.
    pub fn shards(&self, most: u32) -> u32 {
        let suits = |shards: &u32| self.suit(*shards);
        (1..=most).rev().find(suits).unwrap_or(1)
    }

    /// Whether so many shards have queues of every member, each as many as the others. Without a bond they need a
    /// queue each, and no more.
    pub fn suit(&self, shards: u32) -> bool {
        match self.is_bond {
            false => shards <= self.queues(),
            true => self
                .all
                .iter()
                .map(Member::count)
                .all(|count| count >= shards && count.is_multiple_of(shards.max(1))),
        }
    }

    /// For each queue, whether its device carries frames according to `now`.
    pub fn all_exits(&self, now: &Self) -> Vec<bool> {
        self.exits(0, 1, now)
    }

    /// For each queue that one of several shards has, in the order in which it has them, whether its device carries
    /// frames according to `now`.
    pub fn exits(&self, shard: usize, shards: usize, now: &Self) -> Vec<bool> {
        let carries = |member: &Member| {
            let mut all = now.all.iter();
            all.any(|one| one.index == member.index && one.carries)
        };
        let of_queues = |member: &Member| std::iter::repeat_n(carries(member), member.queues.len());
        let all = self.all.iter().flat_map(of_queues);
        all.skip(shard).step_by(shards).collect()
    }

    /// Queues that there are `now` beside these.
    pub fn missing(&self, now: &Self) -> u32 {
        let missing = |one: &Member| {
            let mut all = self.all.iter();
            let known = all.find(|member| member.index == one.index);
            let served = |queue: &&u32| known.is_some_and(|member| member.queues.contains(queue));
            one.queues.iter().filter(|queue| !served(queue)).count() as u32
        };
        now.all.iter().map(missing).sum()
    }

    /// The names of those that carry frames, for people.
    pub fn carrying(&self) -> String {
        let all = self.all.iter().filter(|member| member.carries);
        let names: Vec<_> = all.map(|member| member.name.as_str()).collect();
        match names.is_empty() {
            true => "none".to_owned(),
            false => names.join(", "),
        }
    }
}

/// Whether a member of a bond is used by it: active, which in active-backup is one alone, and with a link.
fn carries(link: &LinkMessage) -> bool {
    let infos = infos(link);
    let mut told = infos.filter_map(|info| match info {
        LinkInfo::PortData(InfoPortData::BondPort(told)) => Some(told),
        _ => None,
    });
    told.next().is_some_and(|told| {
        told.contains(&InfoBondPort::BondPortState(BondPortState::Active))
            && told.contains(&InfoBondPort::MiiStatus(MiiStatus::Up))
    })
}

/// What the kernel tells of a bond as such, if it is one.
fn bond(link: &LinkMessage) -> Option<&[InfoBond]> {
    (kind(link) == Some(&InfoKind::Bond)).then_some(())?;
    let data = infos(link).find_map(|info| match info {
        LinkInfo::Data(InfoData::Bond(told)) => Some(told.as_slice()),
        _ => None,
    });
    Some(data.unwrap_or_default())
}

/// That all members send with the bond's Ethernet address, and a frame leaves by one of them.
fn check(bond: &[InfoBond], interface: &Interface) -> Result<(), HostError> {
    let refused = |found: String, advice: &str| HostError::Bond {
        interface: interface.name.clone(),
        found,
        advice: advice.to_owned(),
    };
    let modes = "use active-backup, 802.3ad, balance-xor or balance-rr";
    for told in bond {
        match told {
            InfoBond::Mode(
                mode @ (BondMode::Broadcast | BondMode::BalanceTlb | BondMode::BalanceAlb),
            ) => return Err(refused(format!("of mode {mode}"), modes)),
            InfoBond::FailOverMac(policy @ (BondFailOverMac::Active | BondFailOverMac::Follow)) => {
                return Err(refused(
                    format!("with fail_over_mac {policy}"),
                    "its members must have one Ethernet address: set fail_over_mac none",
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

/// What kind of virtual interface the kernel says that this is, if it is one.
pub(super) fn kind(link: &LinkMessage) -> Option<&InfoKind> {
    infos(link).find_map(|info| match info {
        LinkInfo::Kind(kind) => Some(kind),
        _ => None,
    })
}

/// The RX queues that a device of the interface has.
fn queues(device: &str, interface: &Interface) -> Result<Vec<u32>, HostError> {
    let found = rnic_steering::number_of_rx_queues(device);
    let found = found.map_err(|error| steering_error(interface, error))?;
    Ok((0..found).collect())
}

/// What the kernel tells of an interface.
pub(super) fn link(netlink: &Netlink, interface: &Interface) -> Result<LinkMessage, HostError> {
    let asked = format!("interface {}", interface.name);
    let mut message = LinkMessage::default();
    message.header.index = interface.index;
    match netlink.get(&asked, RouteNetlinkMessage::GetLink(message))? {
        RouteNetlinkMessage::NewLink(link) => Ok(link),
        _ => Err(other(&asked, "an answer to another question").into()),
    }
}

pub(super) fn links(netlink: &Netlink) -> Result<Vec<LinkMessage>, HostError> {
    let all = RouteNetlinkMessage::GetLink(LinkMessage::default());
    let link = |message| match message {
        RouteNetlinkMessage::NewLink(link) => Some(link),
        _ => None,
    };
    let found = netlink.dump("all interfaces", all)?;
    Ok(found.into_iter().filter_map(link).collect())
}

fn infos(link: &LinkMessage) -> impl Iterator<Item = &LinkInfo> {
    let attributes = link.attributes.iter();
    attributes
        .filter_map(|attribute| match attribute {
            LinkAttribute::LinkInfo(infos) => Some(infos),
            _ => None,
        })
        .flatten()
}

pub(super) fn has(link: &LinkMessage, attribute: &LinkAttribute) -> bool {
    link.attributes.contains(attribute)
}

pub(super) fn name(link: &LinkMessage) -> Option<String> {
    link.attributes
        .iter()
        .find_map(|attribute| match attribute {
            LinkAttribute::IfName(name) => Some(name.clone()),
            _ => None,
        })
}

#[cfg(test)]
mod tests;
