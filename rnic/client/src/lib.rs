//! The RNIC's client API: verbs in the sense of the RDMA consortium, over a daemon or in-process.
//!
//! A [`Context`] is the way to one RNIC. [`Context::open_default`] and [`Context::open`] go through a daemon's
//! socket; [`Daemon::find`] says where it is looked for. [`Context::embedded`] goes through a device in this
//! process. Everything after that is the same. A daemon with several interfaces has a device for each ([`Context::devices`], [`Context::open_device`]); a
//! context and all that comes from it is of one of them, as with the verbs.
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
//! | `ibv_get_device_list` | [`Context::devices`] |
//! | `ibv_open_device` | [`Context::open`], [`Context::open_device`], [`Context::embedded`] of a [`Device`] |
//! | `ibv_alloc_pd`, `ibv_reg_mr`, `ibv_alloc_mw` | [`ProtectionDomain::alloc`], [`ProtectionDomain::register`] or [`ProtectionDomain::register_memory`], [`MemoryWindow::alloc`] |
//! | `ibv_bind_mw`, `IBV_WR_BIND_MW` | [`MemoryWindow::bind`] |
//! | `IBV_WR_REG_MR`, `IBV_WR_LOCAL_INV` | [`FastRegion::register`], [`MemoryRegion::reregister`], [`WorkRequest::local_invalidate`] |
//! | `ibv_create_cq`, `ibv_poll_cq`, `ibv_req_notify_cq` | [`CompletionQueue::create`], [`CompletionQueue::poll`], [`CompletionQueue::arm`] |
//! | `ibv_get_cq_event` | [`CompletionQueue::request_notification`], [`CompletionQueue::take_notification`] |
//! | `rdma_get_cm_event`, `ibv_get_async_event` | [`EventSources`], [`QueuePair::take_event`] and the like |
//! | `ibv_create_qp`, `ibv_create_srq` | [`QueuePair::create`], [`SharedReceiveQueue::create`] |
//! | `ibv_post_send`, `ibv_post_recv` | [`QueuePair::post_send`], [`QueuePair::post_recv`] with a [`WorkRequest`] |
//! | `ibv_wc`, its `status` | [`WorkCompletion`], [`WorkCompletion::ok`] |
//! | `rdma_getaddrinfo` | [`peer_addresses`], [`local_addresses`] |
//! | `rdma_listen`, `rdma_get_request`, `rdma_accept` | [`Listener::bind`], [`Listener::accept_request`], [`ConnectionRequest::accept`] |
//! | `rdma_connect`, `rdma_disconnect` | [`QueuePair::connect`], [`QueuePair::disconnect`] |
//!
//! # Features
//!
//! Without features this crate is a client of the daemon, of some twenty crates, that needs a Rust compiler only.
//! `embedded`: an RNIC in the program's own process (`Device`, `Context::embedded`). It builds libxdp, libbpf and
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
//! - **Blocking**: [`CompletionQueue::wait`], [`QueuePair::connect`], [`Listener::accept_request`] have
//!   a timeout, and [`Listener::incoming`] is an iterator. Where completions come within microseconds a wait polls before it sleeps.
//! - **Async**: [`CompletionQueue::next`], [`CompletionQueue::readable`], [`Listener::next_request`],
//!   [`QueuePair::connect_async`] and the like are futures for any executor, and [`block_on`] is the
//!   smallest. A thread of this crate's own, begun by the first of them, waits for the descriptors.
//!   They have no timeout: drop them. [`CompletionQueue::completions`] and [`Listener::requests`] are streams
//!   (`futures_core::Stream`).
//!
//! Work may be waited for where it is posted. [`QueuePair::write`], [`QueuePair::read`], [`QueuePair::send`],
//! [`QueuePair::receive`] and, for any [`WorkRequest`], [`QueuePair::submit`] post it and give an
//! [`Outstanding`]: await it, or [`wait`](Outstanding::wait). Each gets its own completion, also beside a
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
//! use rnic::{CompletionQueue, Listener, ProtectionDomain, QpConfig, QueuePair};
//!
//! let listener = Listener::bind(&context, "192.0.2.2:18515", 8)?;
//! let pd = ProtectionDomain::alloc(&context)?;
//! let region = pd.register(4096, rnic::Access::LOCAL_WRITE)?;
//! let cq = CompletionQueue::create(&context, 64)?;
//! let qp = QueuePair::create(&pd, &cq, &cq, QpConfig::default())?;
//! let request = listener.next_request().await?;
//! let message = qp.receive(&[region.slice(0..4096)?]);
//! request.accept_async(&qp, Default::default()).await?;
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
//! completion queue overflowed is told on the context's descriptor, and that the daemon is gone on
//! both.
//!
//! # Examples
//!
//! In `examples/`, each with both of its ends: `ping_pong` (Sends, blocking), `kv_store` (a table that
//! clients read by RDMA Read, past the server's processor), `file_copy` (RDMA Reads, async, with a
//! progress bar).

#![deny(unsafe_code)]

mod address;
mod block_on;
mod capture;
mod completion;
mod context;
mod error;
mod events;
mod futures;
mod key;
mod link;
mod listener;
mod memory;
mod open;
mod outstanding;
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
mod watcher;
mod window;
mod work;

pub use address::{
    AddressError, DEFAULT_PORT, device_of, device_toward, local_addresses, peer_addresses,
};
pub use block_on::block_on;
pub use capture::{Capture, CapturedFrame};
pub use completion::{CompletionQueue, WorkCompletion, WorkError};
pub use context::Context;
pub use error::Error;
pub use events::{ConnectionEvent, Established, EventSource};
pub use listener::{AcceptOptions, ConnectionRequest, ListenOptions, Listener};
pub use memory::{MemoryRegion, ProtectionDomain};
pub use open::Daemon;
pub use outstanding::Outstanding;
pub use queue_pair::{ConnectOptions, QpConfig, QueuePair};
pub use remote_memory::RemoteMemory;
pub use shared::{SharedReceiveQueue, SrqConfig};
pub use sources::EventSources;
pub use streams::{Completions, Incoming, Requests};
pub use window::{FastRegion, MemoryWindow, WindowType};
pub use work::WorkRequest;

pub use rnic_adopt::{forks, watch_forks};
#[cfg(feature = "embedded")]
pub use rnic_device::{
    Administrators, AllowList, CongestionControl, Cores, Credentials, DedicatedQueues, Device,
    DeviceConfig, DeviceError, FloodLimits, HostError, HostIpsec, KeepAlive, KernelFeature, Limits,
    ListenerAddress, ListenerPeers, LoopbackUse, ParseCongestionControlError, ParseCoresError,
    ParseDedicatedQueuesError, ParseHostIpsecError, ParseListenerAddressError, ParsePrefixError,
    ParseShardCountError, Polling, PortRanges, Prefix, Quota, Rate, Resource, Runtime, SctpUdp,
    ShardCount, SteeringError, UserLimits, Users, VlanConfig, VlanId, Vlans, XdpMode, XskError,
    XskRequest,
};
pub use rnic_ipc::capture::{Direction, Filter};
pub use rnic_ipc::control::{
    Access, ClientLimits, DeviceInfo, DeviceName, DisconnectReason, MarkerUse, MemoryKind,
    MpaOptions, PRIVATE_DATA_MAX, ParseReceiveWaitError, PeerDepths, QpState, RECEIVE_WAIT_MAX,
    ReceiveWait, Refusal, RefusalCode, RtrModes, Transport,
};
pub use rnic_ipc::find::{DEFAULT_SOCKET, NotFound, SOCKET_NAME, SOCKET_VARIABLE, runtime_socket};
pub use rnic_ipc::id::{ClientId, CqId, ListenerId, PdId, QpNum, SrqId};
pub use rnic_ipc::shm::ShmError;
#[doc(hidden)]
pub use rnic_ipc::threads::spawn as spawn_thread;
pub use rnic_ipc::transport::TransportError;
pub use rnic_ipc::work::{MAX_INLINE, MAX_SGE, Sge, WcStatus, WrOpcode};

/// Where a daemon was looked for, and why it was not found there: what [`NotFound`] has.
pub mod find {
    pub use rnic_ipc::find::{Fault, Origin, Place, RUNTIME_VARIABLE, Tried, directory, variable};
}

/// Looking at the RNIC's objects, and an operator's orders: [`Context::inspect`], [`Context::order`] and
/// [`Daemon::order`].
pub mod inspect {
    pub use rnic_ipc::inspect::{
        AddressState, ClientInfo, ConnectionInfo, CqInfo, DaemonOrder, Holding, Kind, LimitInfo,
        ListenerInfo, LogLevel, Object, Order, PeerAddress, QpInfo, RegionInfo, Scope, Stage,
    };
}

#[cfg(test)]
mod tests;

/// The page that the package shows: its program compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
