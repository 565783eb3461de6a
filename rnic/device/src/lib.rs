//! One interface opened as an RNIC: steering, shard, capture, the host's routes and ports, all
//! behind the Privileged Resource Manager.
//!
//! The daemon and embedded programs share it: [`Device::open`], then [`Device::connect_client`]
//! for every client, then [`ClientSession::request`]. No request reaches a shard without a grant
//! of the PRM.

#![forbid(unsafe_code)]

mod capture;
mod client;
mod config;
mod core;
mod counters;
mod device;
mod driver;
mod error;
mod events;
mod follow;
pub mod host;
mod metrics;
mod open;
pub mod pcapng;
mod refuse;
mod session;

pub use config::{DeviceConfig, Driving, XdpMode};
pub use device::Device;
pub use error::DeviceError;
pub use metrics::{MetricKind, metric_names};
pub use rnic_prm::{
    Administrators, Credentials, Limits, PortRanges, Quota, Resource, UserLimits, Users,
};
pub use session::ClientSession;
