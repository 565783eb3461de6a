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

use crate::device::core::Core;
use crate::interface::paths::Route;
use crate::runtime::FIRST;
use crate::sync::lock;
use crate::{LoopbackUse, refuse};

/// The most devices that one is joined with.
const LINKS_MAX: usize = 7;
/// Frames that may be under way in each direction of a link. One connection's window has fewer.
const LINK_FRAMES: u32 = 1024;

/// The device that an internal link leads to.
#[derive(Debug)]
pub(crate) struct Joined(Weak<Core>);

impl Joined {
    /// The device, if it is still open.
    fn device(&self) -> Option<Arc<Core>> {
        let device = self.0.upgrade();
        device.filter(|core| !core.is_gone() && !core.is_closing())
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
pub(crate) fn join<'o>(core: &Arc<Core>, others: impl IntoIterator<Item = &'o Arc<Core>>) {
    let name = &core.config.interface;
    let serves = |core: &Core| core.config.loopback == LoopbackUse::Beside;
    let mut beyond = Vec::new();
    for other in others {
        if !serves(core) || !serves(other) {
            continue;
        }
        match (core.free_link(), other.free_link()) {
            (Some(link), Some(others)) => {
                if let Err(refusal) = connect(core, link, other, others) {
                    let other = &other.config.interface;
                    log::warn!(
                        "interfaces {name} and {other}: addresses of one are not connected with those of the other, \
                         until one of them is opened again: {refusal}"
                    );
                }
            }
            _ => beyond.push(other.config.interface.as_str()),
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
fn connect(a: &Arc<Core>, link_a: usize, b: &Arc<Core>, link_b: usize) -> Result<(), Refusal> {
    let pair = InternalEnd::pair([a.frame_bytes, b.frame_bytes], LINK_FRAMES);
    let (end_a, end_b) = pair.map_err(|error| {
        let message = format!("an eventfd for an internal link asked: {error}");
        refuse::refusal(RefusalCode::Host, &message)
    })?;
    for (core, link, end) in [(a, link_a, end_a), (b, link_b, end_b)] {
        // The end of a link that leads nowhere any more comes back, and is dropped here.
        core.shards
            .execute(FIRST, Command::SetInternalLink { link, end })?;
    }
    // Only now: a connection needs both ends.
    for (core, link, other) in [(a, link_a, b), (b, link_b, a)] {
        let joined = Joined(Arc::downgrade(other));
        let mut links = lock(&core.internal);
        match links.get_mut(link) {
            Some(before) => *before = joined,
            None => links.push(joined),
        }
    }
    Ok(())
}

impl Core {
    /// The way to an address of a device that this one is joined with, from `local` if that is asked for.
    /// `None` when `remote` is no such address.
    ///
    /// # Errors
    ///
    /// `AddressNotLocal` when `local` is not this device's, `Unreachable` when it has none of the family.
    pub(crate) fn internal_way(
        &self,
        remote: IpAddr,
        local: Option<IpAddr>,
    ) -> Option<Result<Route, Refusal>> {
        if is_of_one_link(remote) {
            return None;
        }
        let others: Vec<_> = lock(&self.internal).iter().map(Joined::device).collect();
        let mut others = others.into_iter().enumerate();
        let (link, other) = others
            .find_map(|(link, other)| Some((link, other.filter(|other| other.has(remote))?)))?;
        Some(self.way_by(link, &other, remote, local))
    }

    fn way_by(
        &self,
        link: usize,
        other: &Core,
        remote: IpAddr,
        local: Option<IpAddr>,
    ) -> Result<Route, Refusal> {
        let local = match local {
            Some(local) => local,
            None => self.address_toward(remote)?,
        };
        if local.is_loopback() || local.is_ipv4() != remote.is_ipv4() {
            return Err(self.no_way(remote, &format!("not from {local}")));
        }
        let scope = self.home(local)?;
        let mtu = untagged_mtu(self.frame_bytes.min(other.frame_bytes));
        Ok(Route {
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
        found.ok_or_else(|| self.no_way(remote, "it has no address of that family"))
    }

    fn no_way(&self, remote: IpAddr, why: &str) -> Refusal {
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
fn is_of_one_link(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local() || address.is_loopback(),
        IpAddr::V6(address) => address.is_unicast_link_local() || address.is_loopback(),
    }
}

#[cfg(test)]
mod tests;
