//! A device whose link is a UDP socket: it reaches the peers that the kernel's routes lead to, by SCTP in UDP, and its
//! own host by the loopback. It needs no privilege, no interface and no neighbour (`docs/architecture/udp.md`).

use std::net::IpAddr;

use rnic_engine::shard::untagged_mtu;
use rnic_host::address::all_addresses;
use rnic_host::netlink::NetlinkError;
use rnic_host::{Interface, Netlink};
use rnic_ipc::control::{Refusal, RefusalCode, Transport};
use rnic_net::{Path, PathDefaults};
use rnic_xsk::{DevicePort, LINK_ADDRESS, UdpPort, Umem, XskPort};

use super::OpenInterface;
use super::internal::is_of_one_link;
use super::open::RING;
use super::paths::PathToPeer;
use crate::{DeviceConfig, DeviceError, UdpLink, refuse};

/// The MTU where the kernel tells of no interface.
const COMMON_MTU: u32 = 1500;

/// The sockets, one for each shard. The kernel gives each flow to one of them.
pub(super) fn bind(
    link: &UdpLink,
    umem: &Umem,
    shards: usize,
) -> Result<Vec<DevicePort<XskPort>>, DeviceError> {
    let bind = |shared| {
        UdpPort::bind(umem, link.address, link.port, RING as usize, shared)
            .map_err(|cause| DeviceError::Udp { link: *link, cause })
    };
    if shards > 1 {
        // No other process has it, not even one that shares it.
        bind(false)?;
    }
    let ports = (0..shards).map(|_| bind(shards > 1).map(DevicePort::Udp));
    ports.collect()
}

/// What paths begin with whose way the kernel was not asked about: those of peers who ask.
pub(super) fn path_defaults(umem: &Umem) -> PathDefaults {
    let found = Netlink::open()
        .ok()
        .and_then(|netlink| Interface::largest_mtu(&netlink).ok());
    let mtu = match found {
        Some(Some(largest)) => largest,
        // The kernel's loopback takes more than a frame has.
        Some(None) => u32::MAX,
        None => COMMON_MTU,
    };
    PathDefaults::new(mtu.min(untagged_mtu(umem.frame_capacity())))
}

impl OpenInterface {
    /// What DDP goes over where a client asks for this. By a UDP socket nothing goes over TCP.
    pub(crate) fn transport(&self, asked: Transport) -> Transport {
        match self.config.udp {
            Some(_) => Transport::Sctp,
            None => asked,
        }
    }

    /// The host's addresses that the socket has.
    pub(super) fn udp_addresses(&self, link: &UdpLink) -> Result<Vec<IpAddr>, NetlinkError> {
        if let Some(address) = link.address {
            return Ok(vec![address]);
        }
        // One is asked for so seldom that no socket stays open for it.
        let Ok(netlink) = Netlink::open() else {
            return Ok(Vec::new());
        };
        let mut all = all_addresses(&netlink)?;
        // Those that mean something on one link only would need its number beside.
        all.retain(|address| !address.is_loopback() && !is_of_one_link(*address));
        Ok(all)
    }

    /// The path to another host, from `local` if that is asked for.
    ///
    /// # Errors
    ///
    /// `Unreachable` when no route leads there, `AddressNotLocal` when the socket has not the local address.
    pub(crate) fn udp_path(
        &self,
        link: &UdpLink,
        remote: IpAddr,
        local: Option<IpAddr>,
    ) -> Result<PathToPeer, Refusal> {
        if let (Some(own), Some(local)) = (link.address, local)
            && own != local
        {
            return Err(refuse::refusal(
                RefusalCode::AddressNotLocal,
                &format!(
                    "local address {local} asked, but this RNIC's UDP socket has only {own}: use that, or none"
                ),
            ));
        }
        let found = UdpPort::path(remote, local.or(link.address));
        let (local, mtu) = found.map_err(|error| {
            refuse::refusal(
                RefusalCode::Unreachable,
                &format!(
                    "a path to {remote} asked, but the kernel has none ({error}): see `ip route get {remote}`"
                ),
            )
        })?;
        let mtu = mtu.min(untagged_mtu(self.frame_bytes));
        Ok(PathToPeer {
            local,
            path: Path {
                src_mac: LINK_ADDRESS,
                dst_mac: LINK_ADDRESS,
                vlan: None,
                mtu,
                hop_limit: PathDefaults::new(mtu).hop_limit(remote),
            },
            internal_link: None,
            scope: self.interface().index,
        })
    }
}

/// How many shards there are.
pub(super) fn shards(config: &DeviceConfig) -> u32 {
    match config.udp {
        Some(_) => config.shards.most(),
        None => config.shards.of(1),
    }
}

/// The link address of the device.
pub(super) fn mac(config: &DeviceConfig) -> [u8; 6] {
    match config.udp {
        Some(_) => LINK_ADDRESS,
        None => [0; 6],
    }
}
