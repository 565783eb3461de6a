//! The paths to peers: by the interface itself, and by the interfaces that the kernel has for its VLANs
//! (IEEE 802.1Q). Frames all go over the one, with a tag or without; the kernel's interface of a VLAN is
//! only where its addresses, routes and neighbours are.

use std::net::IpAddr;
use std::time::Duration;

use rnic_host::Interface;
use rnic_host::address::addresses;
use rnic_host::netlink::{Netlink, NetlinkError};
use rnic_host::{check_local, find_way, is_resolved, leads_over};
use rnic_ipc::control::{Refusal, RefusalCode};
use rnic_net::{Path, VlanId};

use super::OpenInterface;
use crate::refuse;

/// One of the kernel's interfaces by which peers are found.
#[derive(Clone, Debug)]
pub(crate) struct L2Interface {
    pub(crate) interface: Interface,
    /// The VLAN that it is the kernel's interface for; none for the interface that frames go over.
    pub(crate) vlan: Option<VlanId>,
}

/// How frames get to a peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathToPeer {
    pub(crate) local: IpAddr,
    pub(crate) path: Path,
    /// The internal link that leads there, if it is one.
    pub(crate) internal_link: Option<usize>,
    /// The index of the kernel's interface that has the address.
    pub(crate) scope: u32,
}

impl OpenInterface {
    /// The addresses that are this device's: those of the kernel's interfaces, and of the loopback.
    pub(crate) fn addresses(&self) -> Result<Vec<IpAddr>, NetlinkError> {
        let mut all = self.interface_addresses()?;
        all.extend(self.loopback_addresses());
        Ok(all)
    }

    /// The addresses of all of the kernel's interfaces that are this device's.
    pub(crate) fn interface_addresses(&self) -> Result<Vec<IpAddr>, NetlinkError> {
        if let Some(link) = &self.config.udp {
            return self.udp_addresses(link);
        }
        let mut all = Vec::new();
        if let Some(netlink) = &self.netlink {
            for l2 in self.l2_interfaces() {
                all.extend(addresses(netlink, l2.interface.index)?);
            }
        }
        Ok(all)
    }

    /// Whether `remote` is an address of this device, or the kernel's route to it is one of this device's.
    pub(crate) fn leads_to(&self, remote: IpAddr) -> bool {
        let by_udp = |link| self.udp_path(link, remote, None).is_ok();
        let over = |netlink| move |l2: &L2Interface| leads_over(netlink, &l2.interface, remote);
        let routed = |netlink| self.l2_interfaces().iter().any(over(netlink));
        self.is_own(remote)
            || self.config.udp.as_ref().is_some_and(by_udp)
            || self.netlink.as_ref().is_some_and(routed)
    }

    /// The index of the kernel's interface that has a local address.
    ///
    /// # Errors
    ///
    /// When none of this device has it.
    pub(crate) fn home(&self, local: IpAddr) -> Result<u32, Refusal> {
        let interface = self.l2_of(local).interface;
        match &self.netlink {
            // The kernel's loopback interface, or none: neither has a scope to tell from others.
            _ if local.is_loopback() && self.is_own(local) => {}
            Some(netlink) => check_local(netlink, &interface, local)?,
            None if self.is_own(local) => {}
            None => return Err(only_loopback(local)),
        }
        Ok(interface.index)
    }

    /// The path to `remote`, from `local` if that is asked for, when it is within this host; else there is
    /// only [`OpenInterface::outward_path`].
    pub(crate) fn inner_path(
        &self,
        remote: IpAddr,
        local: Option<IpAddr>,
    ) -> Option<Result<PathToPeer, Refusal>> {
        match self.is_own(remote) {
            true => Some(self.own_path(remote, local)),
            false => self.internal_path(remote, local),
        }
    }

    /// The path to `remote` over the interface. As [`find_way`], with its `timeout`.
    pub(crate) fn outward_path(
        &self,
        remote: IpAddr,
        local: Option<IpAddr>,
        timeout: Option<Duration>,
    ) -> Result<PathToPeer, Refusal> {
        if let Some(link) = &self.config.udp {
            return self.udp_path(link, remote, local);
        }
        let (netlink, l2) = self.l2_toward(remote, local)?;
        let (local, path) = find_way(netlink, &l2.interface, remote, local, timeout)?;
        let vlan = l2.vlan.or_else(|| self.vlans.of(local));
        let path = Path {
            vlan: vlan.map(VlanId::tag),
            ..path
        };
        // Of an interface whose MTU was raised after it was opened, frames carry less.
        let most = self.frame_bytes.saturating_sub(path.link_len());
        Ok(PathToPeer {
            local,
            path: Path {
                mtu: path.mtu.min(u32::try_from(most).unwrap_or(u32::MAX)),
                ..path
            },
            internal_link: None,
            scope: l2.interface.index,
        })
    }

    /// Whether the next hop to `remote` is known, by [`is_resolved`].
    pub(crate) fn is_resolved(
        &self,
        remote: IpAddr,
        local: Option<IpAddr>,
        waited: Duration,
    ) -> Result<bool, Refusal> {
        if let Some(link) = &self.config.udp {
            return self.udp_path(link, remote, local).map(|_| true);
        }
        let (netlink, l2) = self.l2_toward(remote, local)?;
        let time = (waited, self.config.resolve_timeout);
        is_resolved(netlink, &l2.interface, remote, local, time)
    }

    /// Which of the kernel's interfaces a path to `remote` goes over.
    fn l2_toward(
        &self,
        remote: IpAddr,
        local: Option<IpAddr>,
    ) -> Result<(&Netlink, L2Interface), Refusal> {
        let netlink = self.netlink.as_ref().ok_or_else(|| only_loopback(remote))?;
        let l2 = match local {
            Some(local) => self.l2_of(local),
            None => self.l2_where(|l2| leads_over(netlink, &l2.interface, remote)),
        };
        Ok((netlink, l2))
    }

    pub(super) fn l2_of(&self, local: IpAddr) -> L2Interface {
        let Some(netlink) = &self.netlink else {
            return self.l2_where(|_| true);
        };
        self.l2_where(|l2| {
            addresses(netlink, l2.interface.index).is_ok_and(|found| found.contains(&local))
        })
    }

    /// The kernel's interface for which this holds; when there is none the first, of which the kernel's
    /// answers will say what is wrong.
    fn l2_where(&self, holds: impl Fn(&L2Interface) -> bool) -> L2Interface {
        let mut l2_interfaces = self.l2_interfaces();
        let found = match l2_interfaces.len() {
            1 => None,
            _ => l2_interfaces.iter().position(holds),
        };
        l2_interfaces.swap_remove(found.unwrap_or(0))
    }
}

/// A device without an interface was asked for an address that is not this host's.
fn only_loopback(address: IpAddr) -> Refusal {
    refuse::refusal(
        RefusalCode::Unreachable,
        &format!(
            "{address} asked, but this RNIC has no interface, only the loopback, and that is no address of \
             this host (see `ip address`): use 127.0.0.1 or ::1, or a daemon with an interface"
        ),
    )
}
