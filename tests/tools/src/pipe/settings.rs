//! What a run of `tcp-pipe` is asked to do.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use rnic::embedded::XdpMode;
use userspace_tcp::CongestionControl;

/// One connection, and how to make it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The interface, by name.
    pub interface: String,
    /// Which kind of XDP attachment to ask for.
    pub mode: XdpMode,
    /// Which end of the connection we are.
    pub role: Role,
    /// Which ways bytes go.
    pub direction: Direction,
    /// Receive window, in bytes.
    pub window: u32,
    /// Segments that may be in flight or wait to be; by the window when nothing is said.
    pub queue_segments: Option<usize>,
    /// Most bytes of TCP payload and options of a segment; by the MTU when nothing is said.
    pub mss: Option<u16>,
    pub congestion: CongestionControl,
    /// Offer explicit congestion notification.
    pub ecn: bool,
    /// Spread segments over the round trip.
    pub pacing: bool,
    /// Send small segments at once, against Nagle's rule.
    pub nodelay: bool,
    /// How long a connection attempt may take, and how long a listener waits for a peer's address.
    pub connect_timeout: Duration,
    /// How long the peer may acknowledge nothing.
    pub user_timeout: Duration,
    /// Ask a peer that was silent for this time whether it is still there, and as often again.
    pub keepalive: Option<Duration>,
    /// Never sleep: a core of its own for lower latency.
    pub busy: bool,
}

/// Which end of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Waits for one peer.
    Listen(SocketAddr),
    /// Goes to a peer.
    Connect {
        remote: SocketAddr,
        /// Our address; by the route when nothing is said.
        local: Option<IpAddr>,
    },
}

/// Which ways bytes go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    #[default]
    Both,
    /// From standard input only; what comes is thrown away.
    SendOnly,
    /// To standard output only; our direction ends when the peer's does.
    ReceiveOnly,
}
