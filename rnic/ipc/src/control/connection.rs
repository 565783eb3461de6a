//! What a client listens for, and whom it connects to.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use super::{MpaOptions, Transport};

/// A listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListenSpec {
    /// A local address (not a wildcard) and port; port 0 lets the kernel choose.
    pub local: SocketAddr,
    /// How many requests may wait for accept or reject.
    pub backlog: u32,
    /// What DDP goes over.
    pub transport: Transport,
}

/// A connection that a client opens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectSpec {
    /// The peer.
    pub remote: SocketAddr,
    /// The local address, when the route's own choice isn't wanted.
    pub local: Option<IpAddr>,
    /// The local port, which nothing may use yet; 0 lets the kernel choose.
    pub local_port: u16,
    /// What DDP goes over.
    pub transport: Transport,
    /// What to ask of the peer.
    pub mpa: MpaOptions,
    /// For the peer's application: at most [`PRIVATE_DATA_MAX`](super::PRIVATE_DATA_MAX) bytes, less 4 with revision
    /// 2.
    pub private_data: Vec<u8>,
}
