//! The host's own addresses: connections between two of them go over the shard's loopback, and nothing of
//! them over an interface or through the kernel.
//!
//! Those of other devices of the process are reached by [internal links](crate::interface::internal).
//!
//! A device of an interface has them beside the peers that its interface leads to. One of the loopback alone
//! ([`LoopbackUse::Only`]) has no interface: it asks nothing of the kernel that needs a privilege, and its
//! ports are its own.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use rnic_engine::shard::untagged_mtu;
use rnic_host::Interface;
use rnic_ipc::control::{Refusal, RefusalCode};
use rnic_net::{Path, PathDefaults};
use rnic_xsk::{ChunkSize, Umem};

use super::open::{self, Opened, ShardParts};
use super::paths::{L2Interface, PathToPeer};
use super::{OpenInterface, udp};
use crate::{DeviceConfig, DeviceError, LoopbackUse, refuse};

/// Addresses that every host has (RFC 1122 section 3.2.1.3, RFC 4291 section 2.5.3).
pub(crate) const ADDRESSES: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::LOCALHOST),
    IpAddr::V6(Ipv6Addr::LOCALHOST),
];

/// What frames lie in that no kernel has to know.
const CHUNK: ChunkSize = ChunkSize::Bytes16384;
/// Fewer frames are too few for a window of each direction and what waits to be delivered.
const FRAMES_MIN: u32 = 256;

/// Opens a device of the loopback alone, or with UDP sockets beside, of a number of its own.
pub(crate) fn open(config: DeviceConfig, number: u8) -> Result<Opened, DeviceError> {
    let shards = udp::shards(&config);
    open::check_shards(&config, shards)?;
    if config.frames < FRAMES_MIN {
        return Err(DeviceError::BadConfig {
            what: "a number of frames",
            asked: config.frames.to_string(),
            advice: format!("the loopback needs at least {FRAMES_MIN}"),
        });
    }
    let cores = config.cores.of(shards, &config.interface, &[]);
    let cores = cores.map_err(open::host("the processors of this process"))?;
    let (umem, pool) = Umem::heap(config.frames, CHUNK);
    let interface = Interface {
        name: config.interface.clone(),
        index: 0,
        mac: udp::mac(&config),
        defaults: match config.udp {
            Some(_) => udp::path_defaults(&umem),
            None => PathDefaults::new(untagged_mtu(umem.frame_capacity())),
        },
    };
    let queues = match &config.udp {
        Some(link) => udp::bind(link, &umem, cores.len())?,
        None => Vec::new(),
    };
    log::info!(
        "{}: MTU {}, {} frames of {} bytes",
        config
            .udp
            .map_or_else(|| "loopback".to_owned(), |link| format!("UDP port {link}")),
        interface.defaults.mtu,
        config.frames,
        CHUNK.bytes()
    );
    let l2 = L2Interface {
        interface,
        vlan: None,
    };
    let interface = OpenInterface::new((config, number), vec![l2], umem.frame_capacity(), None)?;
    Ok(Opened {
        interface,
        parts: ShardParts {
            flows: Vec::new(),
            cores,
            umem,
            pool,
            queues,
        },
    })
}

impl OpenInterface {
    /// Whether connections to this address are this device's to make over the loopback.
    pub(crate) fn is_own(&self, address: IpAddr) -> bool {
        match self.config.loopback {
            LoopbackUse::Off => false,
            LoopbackUse::Only => {
                let bound = self.config.udp.and_then(|link| link.address);
                let is_served = address.is_loopback() || bound.is_none_or(|it| it == address);
                is_served && is_of_host(address)
            }
            LoopbackUse::Beside if address.is_loopback() => self.has_loopback_addresses(),
            LoopbackUse::Beside => self
                .interface_addresses()
                .is_ok_and(|all| all.contains(&address)),
        }
    }

    /// Those of [`ADDRESSES`] that are this device's.
    pub(crate) fn loopback_addresses(&self) -> &'static [IpAddr] {
        match self.config.loopback {
            LoopbackUse::Off => &[],
            LoopbackUse::Beside if !self.has_loopback_addresses() => &[],
            LoopbackUse::Beside | LoopbackUse::Only => &ADDRESSES,
        }
    }

    /// The path to an address that [is this host's](Self::is_own), from `local` if that is asked for.
    ///
    /// # Errors
    ///
    /// `AddressNotLocal` when `local` is not this host's, `Unreachable` when it is of the other family.
    pub(crate) fn own_path(
        &self,
        remote: IpAddr,
        local: Option<IpAddr>,
    ) -> Result<PathToPeer, Refusal> {
        // As the kernel has it: without a local address the connection is from the remote one.
        let local = local.unwrap_or(remote);
        if !self.is_own(local) {
            return Err(refuse::refusal(
                RefusalCode::AddressNotLocal,
                &format!(
                    "local address {local} asked toward {remote}, which is an address of this RNIC's host, \
                     but {local} is none of this device: use one that is, or none"
                ),
            ));
        }
        if local.is_ipv4() != remote.is_ipv4() {
            return Err(refuse::refusal(
                RefusalCode::Unreachable,
                &format!("a connection from {local} to {remote} asked: use two of one family"),
            ));
        }
        Ok(PathToPeer {
            local,
            path: Path::loopback(untagged_mtu(self.frame_bytes)),
            internal_link: None,
            scope: self.interface().index,
        })
    }
}

/// Whether the kernel has this address: it lets anybody bind to one that it has, and to no other.
fn is_of_host(address: IpAddr) -> bool {
    address.is_loopback()
        || !address.is_unspecified()
            && !address.is_multicast()
            && UdpSocket::bind(SocketAddr::new(address, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_of_the_loopback_alone_has_no_link_address_and_enough_frames() {
        let opened = open(DeviceConfig::loopback(), 0).unwrap();
        assert_eq!(opened.interface.interface().mac, [0; 6]);
        let few = |frames| DeviceConfig {
            frames,
            ..DeviceConfig::loopback()
        };
        assert!(open(few(FRAMES_MIN), 0).is_ok());
        let error = open(few(FRAMES_MIN - 1), 0).err().unwrap();
        assert!(error.to_string().contains("at least 256"), "{error}");
    }
}
