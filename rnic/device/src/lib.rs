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

mod capture;
mod clients;
mod config;
mod device;
mod devices;
mod error;
mod interface;
mod joins;
mod observe;
mod refuse;
mod requests;
mod runtime;
mod sync;

pub use capture::pcapng;
pub use clients::audit::TARGET as AUDIT;
pub use config::cores::{Cores, ParseCoresError};
pub use config::dedicated_queues::{DedicatedQueues, ParseDedicatedQueuesError};
pub use config::host_ipsec::{HostIpsec, ParseHostIpsecError};
pub use config::setting::{Change, Configured, Kind, Needs, Setting, Value};
pub use config::udp_link::{ParseUdpLinkError, UdpLink};
pub use config::vlan::VlanConfig;
pub use config::{
    DeviceConfig, LoopbackUse, OnMissing, ParseShardCountError, Polling, Runtime, ShardCount,
    XdpMode,
};
pub use device::Device;
pub use devices::Devices;
pub use devices::apply::ApplyOptions;
pub use error::DeviceError;
pub use observe::metrics::{MetricKind, metric_names};
pub use refuse::bounded;
pub use requests::ClientSession;
pub use rnic_engine::shard::SctpUdp;
pub use rnic_host::HostError;
pub use rnic_ipc::control::DeviceName;
pub use rnic_net::{AllowList, ParsePrefixError, Prefix, VlanId, Vlans};
pub use rnic_prm::{
    Administrators, Credentials, Limits, ListenerAddress, ListenerPeers, ParseListenerAddressError,
    PortRanges, Quota, Resource, UserLimits, Users,
};
pub use rnic_steering::{FloodLimits, Rate, SteeringError};
pub use rnic_xsk::{KernelFeature, Request as XskRequest, XskError};
pub use userspace_tcp::{CongestionControl, KeepAlive, ParseCongestionControlError};
