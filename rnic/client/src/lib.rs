//! The RNIC's client API: verbs in the sense of the RDMA consortium, over a daemon or in-process.
//!
//! A [`Context`] is the way to one RNIC: [`Context::open`] goes through the daemon's socket,
//! [`Context::embedded`] through a device in this process; everything after that is the same.
//! From a context come a [`ProtectionDomain`] and in it [`MemoryRegion`]s, [`CompletionQueue`]s and
//! [`QueuePair`]s; connections are made by [`QueuePair::connect`] and by a [`Listener`]. Posting and
//! polling are memory operations on rings shared with the engine; only a sleeping engine is woken by
//! a system call.
//!
//! All types may be used from several threads. Objects hold what they need (a queue pair its
//! completion queues, a region its protection domain), so they may be dropped in any order.

#![forbid(unsafe_code)]

mod completion;
mod context;
mod error;
mod events;
mod link;
mod listener;
mod memory;
mod queue_pair;
mod shared;
mod wait;
mod window;
mod work;

pub use completion::{CompletionQueue, WorkCompletion};
pub use context::Context;
pub use error::Error;
pub use events::ConnectionEvent;
pub use listener::{AcceptOptions, ConnectionRequest, Listener};
pub use memory::{MemoryRegion, ProtectionDomain, RemoteMemory};
pub use queue_pair::{ConnectOptions, Established, QpConfig, QueuePair};
pub use shared::{SharedReceiveQueue, SrqConfig};
pub use window::MemoryWindow;
pub use work::WorkRequest;

pub use rnic_device::{
    Device, DeviceConfig, DeviceError, Driving, Limits, PortRanges, Quota, Resource, UserLimits,
    Users, XdpMode,
};
pub use rnic_ipc::control::{
    Access, DeviceInfo, DisconnectReason, MpaOptions, PRIVATE_DATA_MAX, PeerDepths, QpState,
    Refusal, RefusalCode,
};
pub use rnic_ipc::id::QpNum;
pub use rnic_ipc::transport::DEFAULT_SOCKET;
pub use rnic_ipc::work::{MAX_INLINE, MAX_SGE, Sge, WcStatus, WrOpcode};

#[cfg(test)]
mod tests;
