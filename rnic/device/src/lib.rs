//! Interfaces opened as RNICs: of each its steering, shard, capture, the host's routes and ports, all
//! of them behind one Privileged Resource Manager.
//!
//! The daemon and embedded programs share it: [`Device::open`], or [`Devices::open_then`] for several
//! interfaces, then [`Device::connect_client`] for every client, then [`ClientSession::request`]. No request reaches a shard without a grant
//! of the PRM.
//!
//! ```
//! use rnic_device::{Device, DeviceConfig};
//!
//! // An RNIC of the loopback alone, which needs no privilege.
//! let device = Device::open(DeviceConfig::loopback())?;
//! assert_eq!(device.interface(), "loopback");
//! device.shutdown();
//! # Ok::<(), rnic_device::DeviceError>(())
//! ```

#![forbid(unsafe_code)]

mod audit;
mod capture;
mod check;
mod client;
mod config;
mod core;
mod cores;
mod counters;
mod dedicated_queues;
mod device;
mod devices;
mod driver;
mod error;
mod events;
mod flows;
mod internal;
mod ipsec;
mod loopback;
mod metrics;
mod number_list;
mod open;
pub mod pcapng;
mod peers;
mod port_choice;
mod reconfigure;
mod refuse;
mod room;
mod route_monitor;
mod session;
mod shards;
mod shared_prm;
mod vlan;

pub use audit::TARGET as AUDIT;
pub use config::{
    DeviceConfig, Driving, LoopbackUse, NoShardCount, Polling, Presence, ShardCount, XdpMode,
};
pub use cores::{Cores, NoProcessors};
pub use dedicated_queues::{DedicatedQueues, NoQueues};
pub use device::Device;
pub use devices::Devices;
pub use error::DeviceError;
pub use ipsec::{HostIpsec, NoHostIpsec};
pub use metrics::{MetricKind, metric_names};
pub use reconfigure::Reconfiguring;
pub use refuse::bounded;
pub use rnic_engine::shard::SctpUdp;
pub use rnic_host::HostError;
pub use rnic_ipc::control::DeviceName;
pub use rnic_net::{AllowList, NoPrefix, Prefix, VlanId, Vlans};
pub use rnic_prm::{
    Administrators, Credentials, Limits, ListenerAddress, ListenerPeers, NoListenerAddress,
    PortRanges, Quota, Resource, UserLimits, Users,
};
pub use rnic_steering::{FloodLimits, Rate, SteeringError};
pub use rnic_xsk::{KernelFeature, Request as XskRequest, XskError};
pub use session::ClientSession;
pub use userspace_tcp::{CongestionControl, KeepAlive, NoCongestionControl};
pub use vlan::VlanConfig;
