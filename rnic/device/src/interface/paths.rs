//! The ways to peers: by the interface itself, and by the interfaces that the kernel has for its VLANs
//! (IEEE 802.1Q). Frames all go over the one, with a tag or without; the kernel's interface of a VLAN is
//! only where its addresses, routes and neighbours are.

use std::net::IpAddr;
use std::time::Duration;

use rnic_host::Interface;
use rnic_host::address::addresses;
use rnic_host::netlink::NetlinkError;
use rnic_host::{check_local, find_way, leads_over};
use rnic_ipc::control::{Refusal, RefusalCode};
use rnic_net::{Path, Prefix, VlanId};

use crate::device::core::Core;
use crate::refuse;

/// A VLAN of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VlanConfig {
    /// Which.
    pub id: VlanId,
    /// Local addresses that are on it. What comes to them by another VLAN, or by none, is dropped.
    pub addresses: Vec<Prefix>,
    /// The kernel's interface for it, whose addresses, routes and neighbours are used. Without one they
    /// are those of the interface itself.
    pub interface: Option<String>,
}

/// One of the kernel's interfaces by which peers are found.
#[derive(Clone, Debug)]
pub(crate) struct Lan {
    pub(crate) interface: Interface,
    /// The VLAN that it is the kernel's interface for; none for the interface that frames go over.
    pub(crate) vlan: Option<VlanId>,
}

/// A way to a peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    /// Our address.
    pub(crate) local: IpAddr,
    pub(crate) path: Path,
    /// The internal link that leads there, if it is one.
    pub(crate) internal_link: Option<usize>,
    /// The index of the kernel's interface that has the address.
    pub(crate) scope: u32,
}

impl Core {
    /// The addresses that are this device's: those of the kernel's interfaces, and of the loopback.
    pub(crate) fn addresses(&self) -> Result<Vec<IpAddr>, NetlinkError> {
        let mut all = self.interface_addresses()?;
        all.extend(self.loopback_addresses());
        Ok(all)
    }

    /// The addresses of all of the kernel's interfaces that are this device's.
    pub(crate) fn interface_addresses(&self) -> Result<Vec<IpAddr>, NetlinkError> {
        let mut all = Vec::new();
        if let Some(netlink) = &self.netlink {
            for lan in self.lans() {
                all.extend(addresses(netlink, lan.interface.index)?);
            }
        }
        Ok(all)
    }

    /// Whether `remote` is an address of this device, or the kernel's route to it is one of this device's.
    pub(crate) fn leads_to(&self, remote: IpAddr) -> bool {
        let over = |netlink| move |lan: &Lan| leads_over(netlink, &lan.interface, remote);
        let routed = |netlink| self.lans().iter().any(over(netlink));
        self.is_own(remote) || self.netlink.as_ref().is_some_and(routed)
    }

    /// The index of the kernel's interface that has a local address.
    ///
    /// # Errors
    ///
    /// When none of this device has it.
    pub(crate) fn home(&self, local: IpAddr) -> Result<u32, Refusal> {
        let interface = self.lan_of(local).interface;
        match &self.netlink {
            // The kernel's loopback interface, or none: neither has a scope to tell from others.
            _ if local.is_loopback() && self.is_own(local) => {}
            Some(netlink) => check_local(netlink, &interface, local)?,
            None if self.is_own(local) => {}
            None => return Err(only_loopback(local)),
        }
        Ok(interface.index)
    }

    /// The way to `remote`, from `local` if that is asked for, when it is within this host; else there is
    /// only [`Core::outward_way`].
    pub(crate) fn inner_way(
        &self,
        remote: IpAddr,
        local: Option<IpAddr>,
    ) -> Option<Result<Route, Refusal>> {
        match self.is_own(remote) {
            true => Some(self.own_way(remote, local)),
            false => self.internal_way(remote, local),
        }
    }

    /// The way to `remote` over the interface. As [`find_way`], with its `timeout`.
    pub(crate) fn outward_way(
        &self,
        remote: IpAddr,
        local: Option<IpAddr>,
        timeout: Option<Duration>,
    ) -> Result<Route, Refusal> {
        let netlink = self.netlink.as_ref().ok_or_else(|| only_loopback(remote))?;
        let lan = match local {
            Some(local) => self.lan_of(local),
            None => self.lan_where(|lan| leads_over(netlink, &lan.interface, remote)),
        };
        let (local, path) = find_way(netlink, &lan.interface, remote, local, timeout)?;
        let vlan = lan.vlan.or_else(|| self.vlans.of(local));
        let path = Path {
            vlan: vlan.map(VlanId::tag),
            ..path
        };
        // Of an interface whose MTU was raised after it was opened, frames carry less.
        let most = self.frame_bytes.saturating_sub(path.link_len());
        Ok(Route {
            local,
            path: Path {
                mtu: path.mtu.min(u32::try_from(most).unwrap_or(u32::MAX)),
                ..path
            },
            internal_link: None,
            scope: lan.interface.index,
        })
    }

    pub(crate) fn lan_of(&self, local: IpAddr) -> Lan {
        let Some(netlink) = &self.netlink else {
            return self.lan_where(|_| true);
        };
        self.lan_where(|lan| {
            addresses(netlink, lan.interface.index).is_ok_and(|found| found.contains(&local))
        })
    }

    /// The LAN for which this holds; when there is none the interface itself, of which the kernel's
    /// answers will say what is wrong.
    fn lan_where(&self, holds: impl Fn(&Lan) -> bool) -> Lan {
        let mut lans = self.lans();
        let found = match lans.len() {
            1 => None,
            _ => lans.iter().position(holds),
        };
        lans.swap_remove(found.unwrap_or(0))
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
