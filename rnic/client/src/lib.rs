//! The RNIC's client API: verbs in the sense of the RDMA consortium, over a daemon or in-process.
//!
//! A [`Context`] is the way to one RNIC. [`Context::open`] goes through a daemon's socket, and [`Daemon`] says
//! where it is looked for. `Context::embedded` goes through a device in this process. Everything after that is the same.
//! A daemon with several interfaces has a device for each ([`Daemon::devices`], [`Daemon::open`]). A context and all
//! that comes from it is of one of them, as with the verbs.
//! From a context come a [`ProtectionDomain`] and in it [`MemoryRegion`]s, [`CompletionQueue`]s and
//! [`QueuePair`]s; connections are made by [`QueuePair::connect`] and by a [`Listener`]. Posting and
//! polling are memory operations on rings shared with the engine. Only a sleeping engine is woken by a system
//! call. An engine that is driven by this crate's calls sends in the call that posts, while nothing else is
//! under way.
//!
//! All types may be used from several threads. Objects hold what they need (a queue pair its
//! completion queues, a region its protection domain), so they may be dropped in any order.
//!
//! # The names of the verbs
//!
//! | verbs | here |
//! |---|---|
//! | `ibv_get_device_list` | [`Daemon::devices`] |
//! | `ibv_open_device` | [`Context::open`], [`Daemon::open`], `Context::embedded` |
//! | `ibv_alloc_pd`, `ibv_reg_mr`, `ibv_alloc_mw` | [`Context::alloc_pd`], [`ProtectionDomain::register`] or [`ProtectionDomain::register_memory`], [`ProtectionDomain::alloc_window`] |
//! | `ibv_mr`'s `lkey` and `rkey` | [`MemoryRegion::stag`]: one value |
//! | `ibv_bind_mw`, `IBV_WR_BIND_MW` | [`MemoryWindow::bind`] |
//! | `IBV_WR_REG_MR`, `IBV_WR_LOCAL_INV` | [`FastRegion::register`], [`MemoryRegion::reregister`], [`WorkRequest::local_invalidate`] |
//! | `ibv_create_cq`, `ibv_poll_cq`, `ibv_req_notify_cq` | [`Context::create_cq`], [`CompletionQueue::poll`], [`CompletionQueue::arm`] |
//! | `ibv_get_cq_event` | [`CompletionQueue::request_notification`], [`CompletionQueue::take_notification`] |
//! | `rdma_get_cm_event`, `ibv_get_async_event` | [`EventSources`], [`QueuePair::take_event`] and the like |
//! | `ibv_create_qp`, `ibv_create_srq` | [`ProtectionDomain::create_qp`], [`ProtectionDomain::create_srq`] |
//! | `ibv_post_send`, `ibv_post_recv` | [`QueuePair::post_send`], [`QueuePair::post_recv`] with a [`WorkRequest`] |
//! | `ibv_wc`, its `status` | [`WorkCompletion`], [`WorkCompletion::ok`] |
//! | `rdma_getaddrinfo` | [`address::peer_addresses`], [`address::local_addresses`] |
//! | `rdma_listen`, `rdma_get_request`, `rdma_accept` | [`Context::listen`], [`Listener::accept`], [`ConnectionRequest::accept`] |
//! | `rdma_connect`, `rdma_disconnect` | [`QueuePair::connect`], [`QueuePair::disconnect`] |
//!
//! # Features
//!
//! Without features this crate is a client of the daemon, of some twenty crates, that needs a Rust compiler only.
//! `embedded`: an RNIC in the program's own process (`embedded::Device`, `Context::embedded`). It builds libxdp, libbpf and
//! an XDP program, for which it needs clang and more.
//!
//! # Memory that the RNIC is writing
//!
//! A region's bytes are the RNIC's, and the peer's, as long as the region is registered: a peer with
//! the right to may write them at any moment. So there is no way to a `&[u8]` of them, and a program
//! needs no `unsafe`, but to register memory of its own ([`ProtectionDomain::register_memory`]).
//! [`MemoryRegion::write`] and [`MemoryRegion::read`] copy in and out. What is read while the RNIC writes is a
//! mixture of old and new bytes, no more. Work that is under way doesn't borrow its region
//! either. A region that is dropped waits in `drop` until the RNIC has let go of it; work that names it
//! afterwards completes with an error, and nobody touches memory that was given back.
//!
//! ```compile_fail
//! fn bytes(region: &rnic::MemoryRegion) -> &[u8] {
//!     region.as_ref()
//! }
//! ```
//!
//! # Polling, blocking, async
//!
//! - **Polling**: [`CompletionQueue::poll`], [`QueuePair::take_event`] and the like never block.
//! - **Waiting**: each call that waits gives a value ([`pending`]): [`CompletionQueue::readable`],
//!   [`CompletionQueue::next`], [`Listener::accept`], [`QueuePair::connect`], [`QueuePair::disconnect`],
//!   [`MemoryRegion::deregister`].
//!   - *Blocking*: its `wait` has a timeout. Where completions come within microseconds it polls before it sleeps.
//!   - *Async*: it is a future for any executor, and [`block_on`] is the smallest. A thread of this crate's, begun by
//!     the first that has to wait, waits for the descriptors. There is no timeout: drop it.
//! - **Streams** (`futures_core::Stream`): [`CompletionQueue::completions`], [`Listener::requests`].
//!
//! Calls that make, change and end objects are one request to the RNIC each, which does not wait for any peer.
//!
//! Work may be waited for where it is posted. [`QueuePair::write`], [`QueuePair::read`], [`QueuePair::send`],
//! [`QueuePair::receive`] and, for any [`WorkRequest`], [`QueuePair::submit`] post it and give an
//! [`PostedWork`](pending::PostedWork): await it, or [`wait`](pending::PostedWork::wait). Each gets its own completion, also beside a
//! program that polls the same queue, which gets all others.
//!
//! ```no_run
//! # async fn copy(qp: &rnic::QueuePair, region: &rnic::MemoryRegion, from: rnic::RemoteMemory,
//! #     to: rnic::RemoteMemory) -> Result<(), rnic::Error> {
//! qp.read(&[region.slice(0..4096)?], from).await?;
//! // Both are under way at once.
//! let first = qp.write(&[region.slice(0..2048)?], to);
//! let second = qp.write(&[region.slice(2048..4096)?], to.offset(2048));
//! first.await?;
//! second.await?;
//! # Ok(())
//! # }
//! ```
//!
//! ```no_run
//! # async fn echo(context: rnic::Context) -> Result<(), rnic::Error> {
//! use rnic::{AcceptOptions, ListenOptions, QpConfig};
//!
//! let listener = context.listen("192.0.2.2:18515", ListenOptions::default())?;
//! let pd = context.alloc_pd()?;
//! let region = pd.register(4096, rnic::Access::LOCAL_WRITE)?;
//! let cq = context.create_cq(64)?;
//! let qp = pd.create_qp(&cq, &cq, QpConfig::default())?;
//! let request = listener.accept().await?;
//! let message = qp.receive(&[region.slice(0..4096)?]);
//! request.accept(&qp, AcceptOptions::default()).await?;
//! let received = message.await?.byte_len as usize;
//! qp.send(&[region.slice(0..received)?]).await?;
//! qp.disconnected().await
//! # }
//! ```
//!
//! A program whose executor watches descriptors itself needs no thread of ours. With tokio:
//!
//! ```ignore
//! // CompletionQueue and Context are AsFd and AsRawFd; clones are the same queue.
//! let fd = tokio::io::unix::AsyncFd::with_interest(cq.clone(), Interest::READABLE)?;
//! loop {
//!     let count = cq.poll(&mut completions)?;
//!     if count > 0 {
//!         break &completions[..count];
//!     }
//!     cq.arm(false);
//!     // What came before the arming wakes nobody: look once more.
//!     let count = cq.poll(&mut completions)?;
//!     if count > 0 {
//!         break &completions[..count];
//!     }
//!     fd.readable().await?.clear_ready();
//! }
//! ```
//!
//! The same goes for [`Context::event_fd`] and [`QueuePair::take_event`] with connections. That a
//! completion queue overflowed is reported on the context's descriptor, and that the daemon is gone on
//! both.
//!
//! # Examples
//!
//! In `examples/`, each with both of its ends: `ping_pong` (Sends, blocking), `kv_store` (a table that
//! clients read by RDMA Read, past the server's processor), `file_copy` (RDMA Reads, async, with a
//! progress bar).

#![deny(unsafe_code)]
#![warn(missing_docs)]

mod addresses;
mod block_on;
mod capture;
mod completion;
mod context;
mod error;
mod events;
mod key;
mod link;
mod listener;
mod memory;
mod open;
mod posted_work;
mod queue_pair;
mod reactor;
mod remote_memory;
mod session;
mod setters;
mod shared;
mod sources;
mod spin;
mod streams;
mod wait;
mod waits;
mod watcher;
mod window;
mod work;
mod work_error;

pub use block_on::block_on;
pub use completion::{CompletionQueue, WorkCompletion};
pub use context::Context;
pub use error::Error;
pub use events::{ConnectionEvent, Established, EventSource};
pub use listener::{AcceptOptions, ConnectionRequest, ListenOptions, Listener};
pub use memory::{MemoryRegion, ProtectionDomain};
pub use open::Daemon;
pub use queue_pair::{ConnectOptions, QpConfig, QueuePair};
pub use remote_memory::RemoteMemory;
pub use shared::{SharedReceiveQueue, SrqConfig};
pub use sources::EventSources;
pub use window::{FastRegion, MemoryWindow, WindowType};
pub use work::WorkRequest;
pub use work_error::WorkError;

pub use rnic_ipc::control::{
    Access, ClientLimits, DeviceInfo, DeviceName, DisconnectReason, MarkerUse, MpaOptions,
    PRIVATE_DATA_MAX, PeerDepths, QpState, RECEIVE_WAIT_MAX, ReceiveWait, Refusal, RefusalCode,
    RtrModes, Transport,
};
pub use rnic_ipc::id::{ClientId, CqId, ListenerId, QpNum, SrqId};
pub use rnic_ipc::work::{MAX_INLINE, MAX_SGE, Sge, WcStatus, WrOpcode};

/// What calls that wait give: await it, or call its `wait` with a timeout. And streams.
pub mod pending {
    pub use crate::posted_work::PostedWork;
    pub use crate::streams::{Completions, Requests};
    pub use crate::waits::{
        Accepting, Connecting, Deregistering, Disconnecting, LimitReached, NextCompletion,
        NextSource, Readable,
    };
}

/// Addresses as people write them, and as `rdma_getaddrinfo` finds them: names, default port, scope.
pub mod address {
    pub use crate::addresses::{
        AddressError, DEFAULT_PORT, device_of, device_toward, local_addresses, peer_addresses,
    };
}

/// Where a daemon is looked for, and why it was not found there.
pub mod find {
    pub use crate::open::default_device;
    pub use rnic_ipc::find::{
        DEFAULT_SOCKET, Fault, NotFound, Origin, Place, RUNTIME_VARIABLE, SOCKET_NAME,
        SOCKET_VARIABLE, Tried, directory, runtime_socket, variable,
    };
}

/// For operators: the RNIC's objects, orders, and captures of its frames. [`Context::inspect`], [`Context::order`],
/// [`Context::capture`], [`Daemon::order`].
pub mod admin {
    pub use crate::capture::{Capture, CapturedFrame};
    pub use rnic_ipc::capture::{Direction, Filter};
    pub use rnic_ipc::control::MemoryKind;
    pub use rnic_ipc::id::PdId;
    pub use rnic_ipc::inspect::{
        AddressState, ClientInfo, ConnectionInfo, CqInfo, DaemonOrder, Holding, Kind, LimitInfo,
        ListenerInfo, LogLevel, Object, Order, PeerAddress, QpInfo, RegionInfo, Scope, Stage,
    };
}

/// An RNIC in this process: [`Context::embedded`].
#[cfg(feature = "embedded")]
pub mod embedded {
    pub use rnic_device::{
        Administrators, AllowList, CongestionControl, Cores, Credentials, DedicatedQueues, Device,
        DeviceConfig, DeviceError, FloodLimits, HostError, HostIpsec, KeepAlive, KernelFeature,
        Limits, ListenerAddress, ListenerPeers, LoopbackUse, ParseCongestionControlError,
        ParseCoresError, ParseDedicatedQueuesError, ParseHostIpsecError, ParseListenerAddressError,
        ParsePrefixError, ParseShardCountError, ParseUdpLinkError, Polling, PortRanges, Prefix,
        Quota, Rate, Resource, Runtime, SctpUdp, ShardCount, SteeringError, UdpLink, UserLimits,
        Users, VlanConfig, VlanId, Vlans, XdpMode, XskError, XskRequest,
    };

    /// The settings of [`DeviceConfig`] as a command line or a configuration file gives them.
    pub mod settings {
        pub use rnic_device::{Change, Configured, Kind, Needs, Setting, Value};
    }
}

/// What errors of the host's side consist of, and those of text that says a setting.
pub mod errors {
    pub use rnic_ipc::control::ParseReceiveWaitError;
    pub use rnic_ipc::shm::ShmError;
    pub use rnic_ipc::transport::TransportError;
}

/// For libraries upon this one that have a state of their own in each process.
#[doc(hidden)]
pub mod process {
    pub use rnic_adopt::{forks, watch_forks};
    pub use rnic_ipc::threads::spawn;
}

#[cfg(test)]
mod tests;

/// The page that the package shows: its program compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
