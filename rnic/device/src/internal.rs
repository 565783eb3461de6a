//! Connections between the interfaces of one process: those that are opened together are joined by internal
//! links ([`InternalPort`]), one for each two. What goes from an address of one to an address of another
//! goes by their link, and nothing of it over an interface or through the kernel.

use std::net::IpAddr;
use std::sync::{Arc, Weak};

use rnic_engine::shard::untagged_mtu;
use rnic_ipc::control::{Refusal, RefusalCode};
use rnic_net::{Path, PathDefaults};
use rnic_xsk::InternalPort;

use crate::core::Core;
use crate::open::{Opened, host};
use crate::vlan::Route;
use crate::{DeviceError, LoopbackUse, refuse};

/// The most devices that are joined, the first ones: 28 links.
const JOINED_MAX: usize = 8;
/// Frames that may be under way in each direction of a link. One connection's window has fewer.
const LINK_FRAMES: u32 = 1024;

/// A device that an internal link leads to.
#[derive(Debug)]
pub(crate) struct Joined(Weak<Core>);

/// Which of several devices are joined, by number: those that serve this host's addresses beside an
/// interface's peers. Then those that are too many.
fn joined(uses: impl Iterator<Item = LoopbackUse>) -> (Vec<usize>, Vec<usize>) {
    let serving = uses.enumerate();
    let serving = serving.filter(|(_, loopback)| *loopback == LoopbackUse::Beside);
    let mut all: Vec<usize> = serving.map(|(number, _)| number).collect();
    let beyond = all.split_off(all.len().min(JOINED_MAX));
    (all, beyond)
}

/// The ports by which each of the devices reaches the others that it is joined with, in their order.
pub(crate) fn links(devices: &[Opened]) -> Result<Vec<Vec<InternalPort>>, DeviceError> {
    let (joined, beyond) = joined(devices.iter().map(|device| device.config.loopback));
    for device in beyond {
        log::warn!(
            "interface {}: its addresses and those of other interfaces of this RNIC are not connected with \
             each other, because only {JOINED_MAX} interfaces are",
            devices[device].config.interface
        );
    }
    let mut ports: Vec<Vec<InternalPort>> = devices.iter().map(|_| Vec::new()).collect();
    for (at, &a) in joined.iter().enumerate() {
        for &b in &joined[at + 1..] {
            let (umem_a, umem_b) = (&devices[a].umem, &devices[b].umem);
            let (port_a, port_b) =
                InternalPort::pair(umem_a, umem_b, LINK_FRAMES).map_err(host("an eventfd"))?;
            ports[a].push(port_a);
            ports[b].push(port_b);
        }
    }
    Ok(ports)
}

/// Tells each device where its [`links`] lead.
pub(crate) fn join(cores: &[Arc<Core>]) {
    let (joined, _) = joined(cores.iter().map(|core| core.config.loopback));
    for &device in &joined {
        let others = joined.iter().filter(|other| **other != device);
        let others = others.map(|&other| Joined(Arc::downgrade(&cores[other])));
        // Nobody else sets it.
        let _ = cores[device].internal.set(others.collect());
    }
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
        let joined = self.internal.get()?;
        if is_of_one_link(remote) {
            return None;
        }
        let others = joined.iter().map(|Joined(other)| other.upgrade());
        let (link, other) = others
            .enumerate()
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

    /// Whether an interface of this device, which is still open, has the address.
    fn has(&self, address: IpAddr) -> bool {
        let addresses = self.interface_addresses();
        !self.is_gone() && !self.is_closing() && addresses.is_ok_and(|all| all.contains(&address))
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
