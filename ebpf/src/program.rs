//! The steering program and its maps, as loaded into the kernel.

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use aya::maps::{HashMap, Map, MapData, PerCpuArray, XskMap};
use aya::{Ebpf, EbpfLoader};

use crate::claim::{self, KEY_LEN, MAX_CLAIMS, Protocol};
use crate::error::{SteeringError, find_errno};
use crate::flood::{HashKey, KnownFlows, Times};
use crate::icmp::IpVersion;
use crate::load::{self, Loadable, Variant};
use crate::steering::SteeringConfig;

mod ports;

use ports::Ports;

/// The most queues of one device (`QUEUES` in `steer.bpf.c`).
pub const MAX_QUEUES: u32 = 256;
/// The most devices of one interface (`DEVICES` in `steer.bpf.c`).
pub const MAX_DEVICES: usize = 8;

/// Names of the program's counters: `enum reason` in `steer.bpf.c`, in its order.
pub(crate) const REASONS: [&str; 15] = [
    "redirected",
    "redirected_fragment",
    "pass_not_ip",
    "pass_multicast",
    "pass_vlan_stack",
    "pass_fragment",
    "pass_extension_header",
    "pass_other_protocol",
    "pass_malformed",
    "pass_not_claimed",
    "pass_no_socket",
    "icmp_taken",
    "drop_syn",
    "drop_unknown_flow",
    "drop_fragment",
];

/// Both variants of the program, compiled by build.rs.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/steer.bpf.o"));

impl Loadable for Program {
    fn load(&mut self, variant: Variant) -> Result<BorrowedFd<'_>, SteeringError> {
        load::load(&mut self.ebpf, &self.interface, name(variant))
    }
}

/// The steering program's name in the object.
const fn name(variant: Variant) -> &'static str {
    match variant {
        Variant::Frags => "steer_frags",
        Variant::Plain => "steer",
    }
}

pub(crate) struct Program {
    ebpf: Ebpf,
    claims: HashMap<MapData, [u8; KEY_LEN], u32>,
    ports: Ports,
    sockets: XskMap<MapData>,
    counters: PerCpuArray<MapData, u64>,
    /// `FLOWS`, and the key of its hash.
    flows: Map,
    hash_key: HashKey,
    /// For messages.
    interface: String,
}

impl Program {
    /// Makes the maps and reads both variants; loads neither.
    ///
    /// `members`: the indexes of a bond's members, no more than [`MAX_DEVICES`]; none where all frames come by the
    /// interface itself.
    pub(crate) fn open(
        interface: &str,
        members: &[u32],
        config: &SteeringConfig,
    ) -> Result<Program, SteeringError> {
        Self::open_with(interface, members, config, Times::DEFAULT)
    }

    /// The same with other times of what comes again.
    fn open_with(
        interface: &str,
        members: &[u32],
        config: &SteeringConfig,
        times: Times,
    ) -> Result<Program, SteeringError> {
        let failed = |error: &(dyn std::error::Error + 'static)| {
            SteeringError::from_aya(interface, "make the maps of the steering program", error)
        };
        let hash_key = random_key().map_err(|cause| SteeringError::Kernel {
            interface: interface.to_owned(),
            asked: "random numbers",
            cause,
        })?;
        let rates = config.limits.words();
        let times = times.words();
        let sctp_udp_port = config.sctp_udp_port.unwrap_or(0);
        let mut indexes = [0; MAX_DEVICES];
        for (to, from) in indexes.iter_mut().zip(members) {
            *to = *from;
        }
        let mut ebpf = EbpfLoader::new()
            .override_global("HASH_KEY", &hash_key, true)
            .override_global("MEMBERS", &indexes, true)
            .override_global("RATES", &rates, true)
            .override_global("SCTP_UDP_PORT", &sctp_udp_port, true)
            .override_global("TIMES", &times, true)
            .load(OBJECT)
            .map_err(|error| failed(&error))?;
        let mut map = |name: &'static str| {
            ebpf.take_map(name).ok_or_else(|| SteeringError::Load {
                interface: interface.to_owned(),
                reason: format!("it has no map {name}"),
            })
        };
        let (claims, sockets, counters) = (map("CLAIMS")?, map("SOCKETS")?, map("COUNTERS")?);
        let flows = map("FLOWS")?;
        let ports = map("PORTS")?
            .try_into()
            .map_err(|error: aya::maps::MapError| failed(&error))?;
        Ok(Program {
            claims: claims
                .try_into()
                .map_err(|error: aya::maps::MapError| failed(&error))?,
            ports: Ports::new(ports),
            sockets: sockets
                .try_into()
                .map_err(|error: aya::maps::MapError| failed(&error))?,
            counters: counters
                .try_into()
                .map_err(|error: aya::maps::MapError| failed(&error))?,
            flows,
            hash_key,
            ebpf,
            interface: interface.to_owned(),
        })
    }

    /// The flows that are not limited: none so far.
    pub(crate) fn known_flows(&self) -> Result<KnownFlows, SteeringError> {
        let Map::Array(map) = &self.flows else {
            return Err(SteeringError::Load {
                interface: self.interface.clone(),
                reason: "its map FLOWS is no array".to_owned(),
            });
        };
        KnownFlows::new(map.fd().as_fd(), self.hash_key).map_err(|cause| SteeringError::Kernel {
            interface: self.interface.clone(),
            asked: "map the table of known flows",
            cause,
        })
    }

    /// Puts an AF_XDP socket in the place of a queue of the device with this number.
    pub(crate) fn set_queue(
        &mut self,
        device: usize,
        queue: u32,
        socket: BorrowedFd<'_>,
    ) -> Result<(), SteeringError> {
        if queue >= MAX_QUEUES {
            let interface = self.interface.clone();
            return Err(SteeringError::NoSuchQueue {
                interface,
                queue,
                most: MAX_QUEUES,
            });
        }
        let place = device as u32 * MAX_QUEUES + queue;
        self.sockets.set(place, socket, 0).map_err(|error| {
            SteeringError::from_aya(&self.interface, "steer a queue to an AF_XDP socket", &error)
        })
    }

    /// From now on frames for the triple are taken.
    pub(crate) fn claim(
        &mut self,
        protocol: Protocol,
        address: IpAddr,
        port: u16,
    ) -> Result<(), SteeringError> {
        let key = claim::key(protocol, address, port)?;
        self.claims
            .insert(key, 1, 0)
            .map_err(|error| match find_errno(&error) {
                Some(libc::E2BIG) => SteeringError::TooManyClaims {
                    interface: self.interface.clone(),
                    most: MAX_CLAIMS,
                },
                _ => SteeringError::from_aya(&self.interface, "claim an address and port", &error),
            })?;
        if protocol == Protocol::Tcp
            && let Err(error) = self.ports.enter(&key)
        {
            // It is found by the longer way.
            log::warn!("{}: table of claimed ports: {error}", self.interface);
        }
        Ok(())
    }

    /// From now on frames for the triple pass. Nothing happens when it was not claimed.
    pub(crate) fn release(
        &mut self,
        protocol: Protocol,
        address: IpAddr,
        port: u16,
    ) -> Result<(), SteeringError> {
        let key = claim::key(protocol, address, port)?;
        let shorter = match protocol {
            Protocol::Tcp => self.ports.remove(&key),
            Protocol::Sctp => Ok(()),
        };
        let removed = shorter.and_then(|()| self.claims.remove(&key));
        match removed {
            Ok(()) | Err(aya::maps::MapError::KeyNotFound) => Ok(()),
            Err(error) if find_errno(&error) == Some(libc::ENOENT) => Ok(()),
            Err(error) => Err(SteeringError::from_aya(
                &self.interface,
                "release an address and port",
                &error,
            )),
        }
    }

    /// Lets a raw ICMP or ICMPv6 socket get errors about claimed triples, and nothing else.
    pub(crate) fn filter_icmp(
        &mut self,
        version: IpVersion,
        socket: BorrowedFd<'_>,
    ) -> Result<(), SteeringError> {
        let name = match version {
            IpVersion::V4 => "icmp",
            IpVersion::V6 => "icmpv6",
        };
        let filter = load::load_filter(&mut self.ebpf, &self.interface, name)?;
        filter
            .attach(socket)
            .map_err(|error| SteeringError::from_aya(&self.interface, "filter ICMP errors", &error))
    }

    /// Every counter, summed over the processors.
    pub(crate) fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut all = Vec::with_capacity(REASONS.len());
        for (index, name) in (0..).zip(REASONS) {
            match self.counters.get(&index, 0) {
                Ok(values) => all.push((name, values.iter().sum())),
                Err(error) => {
                    log::warn!("{}: steering counter {name}: {error}", self.interface);
                }
            }
        }
        all
    }
}

fn random_key() -> std::io::Result<HashKey> {
    let mut key = HashKey::default();
    for word in &mut key {
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
        *word = u64::from_ne_bytes(bytes);
    }
    Ok(key)
}

#[cfg(test)]
mod tests;
