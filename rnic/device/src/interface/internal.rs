//! Connections between the interfaces of one process: they are joined by internal links ([`InternalEnd`]), one
//! for each two, whenever one is opened. What goes from an address of one to an address of another goes by
//! their link, and nothing of it over an interface or through the kernel.

use std::net::IpAddr;
use std::sync::{Arc, Weak};

use rnic_engine::command::Command;
use rnic_engine::shard::untagged_mtu;
use rnic_ipc::control::{Refusal, RefusalCode};
use rnic_net::{Path, PathDefaults};
use rnic_xsk::InternalEnd;

use super::paths::PathToPeer;
use super::{OpenInterface, Served};
use crate::runtime::{FIRST, To};
use crate::sync::lock;
use crate::{LoopbackUse, refuse};

/// The most devices that one is joined with.
const LINKS_MAX: usize = 7;
/// Frames that may be under way in each direction of a link. One connection's window has fewer.
const LINK_FRAMES: u32 = 1024;

/// The device that an internal link leads to.
#[derive(Debug)]
pub(super) struct Joined(Weak<OpenInterface>);

impl Joined {
    /// The device, if it is still open.
    fn device(&self) -> Option<Arc<OpenInterface>> {
        let device = self.0.upgrade();
        device.filter(|interface| !interface.is_gone() && !interface.is_closing())
    }
}

/// The number for one more link of a device: of the first that leads nowhere any more, or the next one. None when
/// there are as many as may be.
fn free_link(leads: impl ExactSizeIterator<Item = bool>) -> Option<usize> {
    let links = leads.len();
    let mut leads = leads;
    let over = leads.position(|leads| !leads);
    over.or_else(|| (links < LINKS_MAX).then_some(links))
}

/// Joins a device with others that are open, as far as they serve this host's addresses beside an interface's
/// peers. Only one thread at a time may join devices.
pub(crate) fn join(one: &Served, others: impl IntoIterator<Item = Served>) {
    let name = one.interface.name();
    let serves = |one: &Served| one.interface.config.loopback == LoopbackUse::Beside;
    let mut beyond = Vec::new();
    for other in others {
        if !serves(one) || !serves(&other) {
            continue;
        }
        match (one.interface.free_link(), other.interface.free_link()) {
            (Some(link), Some(others)) => {
                if let Err(refusal) = connect((one, link), (&other, others)) {
                    let other = other.interface.name();
                    log::warn!(
                        "interfaces {name} and {other}: addresses of one are not connected with those of the other, \
                         until one of them is opened again: {refusal}"
                    );
                }
            }
            _ => beyond.push(other.interface.name().to_owned()),
        }
    }
    if !beyond.is_empty() {
        log::warn!(
            "interface {name}: its addresses and those of {} are not connected with each other, because an interface \
             is joined with at most {LINKS_MAX} others",
            beyond.join(", ")
        );
    }
}

/// Joins two devices by a link that has this number at the first, and that one at the second.
fn connect((a, link_a): (&Served, usize), (b, link_b): (&Served, usize)) -> Result<(), Refusal> {
    let bytes = [a.interface.frame_bytes, b.interface.frame_bytes];
    let pair = InternalEnd::pair(bytes, LINK_FRAMES);
    let (end_a, end_b) = pair.map_err(|error| {
        let message = format!("an eventfd for an internal link asked: {error}");
        refuse::refusal(RefusalCode::Host, &message)
    })?;
    for (one, link, end) in [(a, link_a, end_a), (b, link_b, end_b)] {
        // The end of a link that leads nowhere any more comes back, and is dropped here.
        let set = Command::SetInternalLink { link, end };
        one.shards.run(To::Shard(FIRST), set)?;
    }
    // Only now: a connection needs both ends.
    for (one, link, other) in [(a, link_a, b), (b, link_b, a)] {
        let joined = Joined(Arc::downgrade(&other.interface));
        let mut links = lock(&one.interface.internal);
        match links.get_mut(link) {
            Some(before) => *before = joined,
            None => links.push(joined),
        }
    }
    Ok(())
}

impl OpenInterface {
    /// The path to an address of a device that this one is joined with, from `local` if that is asked for.
    /// `None` when `remote` is no such address.
    ///
    /// # Errors
    ///
    /// `AddressNotLocal` when `local` is not this device's, `Unreachable` when it has none of the family.
    pub(crate) fn internal_path(
        &self,
        remote: IpAddr,
        local: Option<IpAddr>,
    ) -> Option<Result<PathToPeer, Refusal>> {
        if is_of_one_link(remote) {
            return None;
        }
        let others: Vec<_> = lock(&self.internal).iter().map(Joined::device).collect();
        let mut others = others.into_iter().enumerate();
        let (link, other) = others
            .find_map(|(link, other)| Some((link, other.filter(|other| other.has(remote))?)))?;
        Some(self.path_by(link, &other, remote, local))
    }

    fn path_by(
        &self,
        link: usize,
        other: &OpenInterface,
        remote: IpAddr,
        local: Option<IpAddr>,
    ) -> Result<PathToPeer, Refusal> {
        let local = match local {
            Some(local) => local,
            None => self.address_toward(remote)?,
        };
        if local.is_loopback() || local.is_ipv4() != remote.is_ipv4() {
            return Err(self.no_path(remote, &format!("not from {local}")));
        }
        let scope = self.home(local)?;
        let mtu = untagged_mtu(self.frame_bytes.min(other.frame_bytes));
        Ok(PathToPeer {
            local,
            path: Path {
                src_mac: self.interface().mac,
                dst_mac: other.interface().mac,
                vlan: None,
                mtu,
                hop_limit: PathDefaults::new(mtu).hop_limit(remote),
            },
            internal_link: Some(link),
            scope,
        })
    }

    /// [`free_link`] of this device.
    fn free_link(&self) -> Option<usize> {
        free_link(
            lock(&self.internal)
                .iter()
                .map(|link| link.device().is_some()),
        )
    }

    /// Whether an interface of this device has the address.
    fn has(&self, address: IpAddr) -> bool {
        let addresses = self.interface_addresses();
        addresses.is_ok_and(|all| all.contains(&address))
    }

    /// An address of this device's that `remote` can answer.
    fn address_toward(&self, remote: IpAddr) -> Result<IpAddr, Refusal> {
        let all = self.interface_addresses().unwrap_or_default();
        let fits = |it: &IpAddr| it.is_ipv4() == remote.is_ipv4() && !is_of_one_link(*it);
        let found = all.into_iter().find(fits);
        found.ok_or_else(|| self.no_path(remote, "it has no address of that family"))
    }

    fn no_path(&self, remote: IpAddr, why: &str) -> Refusal {
        let name = &self.config.interface;
        refuse::refusal(
            RefusalCode::Unreachable,
            &format!(
                "a connection from interface {name} to {remote}, an address of another interface of this \
                 RNIC, asked, but {why}: use an address of {name} that is of the same family, or the \
                 device of {remote}"
            ),
        )
    }
}

/// Whether an address means something on one link only, where another host may have the same.
pub(super) fn is_of_one_link(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local() || address.is_loopback(),
        IpAddr::V6(address) => address.is_unicast_link_local() || address.is_loopback(),
    }
}

#[cfg(test)]
mod tests;
