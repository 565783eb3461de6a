//! An open interface: its opening, its addresses, paths and ports, and how it follows the host.

mod flows;
pub(crate) mod internal;
mod ipsec;
mod loopback;
pub(crate) mod open;
pub(crate) mod paths;
mod port_choice;
mod ports;
pub(crate) mod route_monitor;
mod udp;

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use rnic_engine::command::Command;
use rnic_host::icmp::{IcmpCounts, IcmpReader, IcmpSocket};
use rnic_host::ports::Ports;
use rnic_host::rejecting::Rejecting;
use rnic_host::{Interface, Members, Netlink, Sockets};
use rnic_net::{IcmpReport, Vlans};
use rnic_steering::{ModePreference, Steering};

use crate::runtime::{Shards, log_refusal};
use crate::sync::lock;
use crate::{DeviceConfig, DeviceError};
use internal::Joined;
use paths::L2Interface;
use ports::{Claimed, port_space};
use route_monitor::StaleNeighbors;

/// An interface that is open, or the loopback alone: what is known of the host, and what was taken from it.
#[derive(Debug)]
pub(crate) struct OpenInterface {
    pub(crate) config: DeviceConfig,
    pub(crate) number: u8,
    /// The interface itself, and those that the kernel has for its VLANs.
    l2: Mutex<Vec<L2Interface>>,
    /// The VLANs of local addresses.
    vlans: Vlans,
    /// `native` or `generic`, for people.
    pub(crate) xdp_mode: String,
    /// What was asked of the kernel.
    mode: ModePreference,
    /// Whose queues are served; none on the loopback.
    pub(crate) members: Option<Members>,
    /// RX queues that the interface has beside these.
    unserved_queues: AtomicU32,
    /// The interface's [`Link`](rnic_host::link_state::Link), as it was when it last changed.
    link: AtomicU8,
    /// None where there is no interface.
    pub(crate) netlink: Option<Netlink>,
    pub(crate) ports: Ports<Claimed>,
    pub(crate) icmp: Arc<IcmpCounts>,
    /// Until the thread that reads them takes them.
    icmp_sockets: Mutex<Vec<IcmpSocket>>,
    /// Peers that don't answer, for the [`RouteMonitor`](route_monitor::RouteMonitor).
    pub(crate) stale_neighbors: StaleNeighbors,
    /// By what the host rejects packets, as it was read last.
    rejecting: Mutex<Arc<Rejecting>>,
    /// The devices that internal links lead to, by the links' numbers.
    internal: Mutex<Vec<Joined>>,
    /// The most bytes that a frame can have.
    pub(crate) frame_bytes: usize,
    /// 127.0.0.0/8 and ::1 are this device's, and no other's of this process.
    has_loopback_addresses: AtomicBool,
    closing: AtomicBool,
    /// The host has the interface no more.
    gone: AtomicBool,
}

/// An open interface and the shards that serve it.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    pub(crate) interface: Arc<OpenInterface>,
    pub(crate) shards: Arc<Shards>,
}

impl OpenInterface {
    /// The first of `l2` is what frames go over. `steering`: what takes frames away from the kernel, if anything.
    pub(crate) fn new(
        (config, number): (DeviceConfig, u8),
        l2: Vec<L2Interface>,
        frame_bytes: usize,
        steering: Option<Steering>,
    ) -> Result<Self, DeviceError> {
        let ports = Ports::new(Claimed(steering), port_space(&config));
        Ok(Self {
            config,
            number,
            l2: Mutex::new(l2),
            vlans: Vlans::default(),
            xdp_mode: "none".to_owned(),
            mode: ModePreference::default(),
            members: None,
            unserved_queues: AtomicU32::new(0),
            link: AtomicU8::default(),
            netlink: None,
            ports,
            icmp: Arc::default(),
            icmp_sockets: Mutex::default(),
            stale_neighbors: StaleNeighbors::new().map_err(open::host("an eventfd"))?,
            rejecting: Mutex::default(),
            internal: Mutex::default(),
            frame_bytes,
            has_loopback_addresses: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            gone: AtomicBool::new(false),
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.config.interface
    }

    /// The interface as it was last found.
    pub(crate) fn interface(&self) -> Interface {
        lock(&self.l2)[0].interface.clone()
    }

    /// The same of all of the kernel's interfaces that are this device's; the first is the one that
    /// frames go over.
    fn l2_interfaces(&self) -> Vec<L2Interface> {
        lock(&self.l2).clone()
    }

    fn set_interface(&self, interface: Interface) {
        let mut all = lock(&self.l2);
        let known = all.iter_mut();
        for l2 in known.filter(|l2| l2.interface.index == interface.index) {
            l2.interface = interface.clone();
        }
    }

    /// Whether 127.0.0.0/8 and ::1 are this device's.
    pub(crate) fn has_loopback_addresses(&self) -> bool {
        self.has_loopback_addresses.load(Ordering::Acquire)
    }

    /// 127.0.0.0/8 and ::1 are this device's from now on, and no other's of this process.
    pub(crate) fn take_loopback_addresses(&self) {
        self.has_loopback_addresses.store(true, Ordering::Release);
    }

    /// RX queues that are not served.
    pub(crate) fn unserved_queues(&self) -> u32 {
        self.unserved_queues.load(Ordering::Acquire)
    }

    /// Whether the host has the interface no more.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Whether the device takes no more requests.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// The device takes no more requests from now on; `false` when it did not before.
    pub(crate) fn begin_closing(&self) -> bool {
        !self.closing.swap(true, Ordering::AcqRel)
    }

    /// The RX queues that are served.
    pub(crate) fn queues(&self) -> u32 {
        self.members.as_ref().map_or(0, Members::queues)
    }

    /// Whether its interface, as it was found now, sends larger frames than this device has memory for.
    pub(crate) fn outgrown_by(&self, found: &Interface) -> bool {
        Sockets::chunk(found, self.mode)
            .is_ok_and(|chunk| chunk.frame_capacity() > self.frame_bytes)
    }
}

impl Served {
    /// Reads ICMP errors from now on, if there is anything to read them from.
    pub(crate) fn read_icmp(&self) -> std::io::Result<Option<IcmpReader>> {
        let sockets = std::mem::take(&mut *lock(&self.interface.icmp_sockets));
        if sockets.is_empty() {
            return Ok(None);
        }
        let shards = self.shards.clone();
        let deliver = move |reports: Vec<IcmpReport>| {
            // Each shard knows whether it sent the segment.
            shards.try_post_all(|| Command::IcmpErrors {
                reports: reports.clone(),
            })
        };
        IcmpReader::start(sockets, self.interface.icmp.clone(), deliver).map(Some)
    }

    /// The host has the interface no more: connections end, and nothing begins there. Once.
    pub(crate) fn interface_gone(&self) {
        if self.interface.gone.swap(true, Ordering::AcqRel) {
            return;
        }
        let interface = self.interface.config.interface.clone();
        log::error!("interface {interface} was taken away from the host: its connections end");
        let ended = self.shards.all_do(|| Command::InterfaceGone {
            interface: interface.clone(),
        });
        log_refusal("connections", ended);
    }
}
