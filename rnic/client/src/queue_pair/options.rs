//! What a queue pair is made with, and how it connects.

use std::net::IpAddr;

use rnic_ipc::control::{MpaOptions, ReceiveWait, Transport};

use crate::setters::setters;
use crate::shared::SharedReceiveQueue;

/// How large a queue pair is to be.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct QpConfig {
    /// Work requests that may be outstanding on the send queue.
    pub sq_depth: u32,
    /// Work requests that may be outstanding on the receive queue.
    pub rq_depth: u32,
    /// Elements that a work request may have, at most [`MAX_SGE`](crate::MAX_SGE).
    pub max_sge: u32,
    /// Bytes that a Send or RDMA Write may carry itself ([`WorkRequest::inline`](crate::WorkRequest::inline)), at most the
    /// device's `max_inline`; 0 for none.
    pub max_inline: u32,
    /// Completions for every send-queue work request, not only the signalled ones.
    pub signal_all: bool,
    /// How long a Send of the peer for which no receive is posted waits for one; `None`: as long as the interface's
    /// setting `receive_wait` says. Over SCTP none waits.
    pub receive_wait: Option<ReceiveWait>,
    /// Sends may be posted before a connection is begun, and wait for it. Without it they are refused
    /// ([`Error::NotConnected`](crate::Error::NotConnected)): most often they are a mistake.
    pub early_sends: bool,
    /// Where its receives come from, instead of a receive queue of its own: a shared receive queue of the same protection
    /// domain. `rq_depth` is not used then, and [`QueuePair::post_recv`](crate::QueuePair::post_recv) is refused.
    pub srq: Option<SharedReceiveQueue>,
}

impl Default for QpConfig {
    fn default() -> Self {
        Self {
            sq_depth: 128,
            rq_depth: 128,
            max_sge: 4,
            max_inline: 64,
            signal_all: false,
            receive_wait: None,
            early_sends: false,
            srq: None,
        }
    }
}

setters! {
    QpConfig {
        sq_depth: u32,
        rq_depth: u32,
        max_sge: u32,
        max_inline: u32,
        signal_all: bool,
        receive_wait: Option<ReceiveWait>,
        early_sends: bool,
        srq: impl Into<Option<SharedReceiveQueue>>,
    }
}

/// How to connect.
///
/// ```
/// use rnic::ConnectOptions;
///
/// let options = ConnectOptions::default().private_data(b"hello").local_port(7000);
/// assert_eq!((&options.private_data[..], options.local_port), (&b"hello"[..], 7000));
/// ```
///
/// Versions to come may have more fields, so no other crate writes one as a literal:
///
/// ```compile_fail,E0639
/// let options = rnic::ConnectOptions { local_port: 7000, ..Default::default() };
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectOptions {
    /// For the peer: at most 512 bytes, 4 less with MPA revision 2.
    pub private_data: Vec<u8>,
    /// What DDP goes over: that of the peer's listener.
    pub transport: Transport,
    /// What to ask of the peer in the start-up.
    pub mpa: MpaOptions,
    /// The local address, when the route's own choice isn't wanted.
    pub local: Option<IpAddr>,
    /// The local port, which nothing may use yet, not even the last state of an earlier connection
    /// (TIME-WAIT); 0 for one of the kernel's choice.
    pub local_port: u16,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            private_data: Vec::new(),
            transport: Transport::Tcp,
            mpa: MpaOptions::default(),
            local: None,
            local_port: 0,
        }
    }
}

setters! {
    ConnectOptions {
        private_data: impl Into<Vec<u8>>,
        transport: Transport,
        mpa: MpaOptions,
        local: impl Into<Option<IpAddr>>,
        local_port: u16,
    }
}
