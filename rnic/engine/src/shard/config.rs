//! What a shard is made with.

use std::time::Duration;

use rnic_ipc::control::ReceiveWait;
use rnic_net::{PathDefaults, Vlans};

/// Settings of a shard. [`ShardConfig::default`] suits a host with a few hundred connections.
#[derive(Clone, Debug)]
pub struct ShardConfig {
    /// TCP's own settings. The MSS follows from each connection's path, and the number of
    /// connections from `limits`.
    pub tcp: userspace_tcp::Config,
    /// Key of SCTP's tags and of fragments' identifications: random, another for each shard.
    pub secret: [u8; 16],
    /// Key of TCP's initial sequence numbers (RFC 6528), SYN cookies and State Cookies: random, and the same in all
    /// shards of a device. A peer's answer may come to another shard than what it answers.
    pub common_secret: [u8; 16],
    /// The number of its device, and its own among the device's shards, below [`SHARDS_MAX`](super::SHARDS_MAX):
    /// both are in the names of its connection requests ([`shard_of`](super::shard_of)).
    pub number: (u8, u8),
    /// What the paths of passive connections begin with: the interface's MTU and hop limits.
    pub path_defaults: PathDefaults,
    /// The VLANs of local addresses: what comes to one of these with another tag, or without one, is
    /// dropped.
    pub vlans: Vlans,
    /// The bounds of the shard's tables.
    pub limits: ShardLimits,
    /// Free frames that sending leaves for receiving; at most half of those that are free at the
    /// start.
    pub receive_reserve: usize,
    /// Packets that may wait for the rest of their fragments, each with memory of a frame's size. One
    /// more takes the place of the oldest.
    pub reassembly: usize,
    /// How long the MPA start-up may take once TCP is established (RFC 5044 section 7.1.2).
    pub startup_timeout: Duration,
    /// How long an initiator may say nothing once TCP is established: its first byte, or the shard
    /// resets the connection. At most `startup_timeout`, which is for the whole Request. An initiator
    /// whose SYN or our answer to it was lost sends its first byte again only after 3 s (RFC 6298 section 5.7).
    pub first_byte_timeout: Duration,
    /// How long an application may take to accept or reject a request.
    pub answer_timeout: Duration,
    /// How long a closing connection may wait for the peer before it is reset.
    pub close_timeout: Duration,
    /// How long a Send waits for a receive, where its queue pair does not say.
    pub receive_wait: ReceiveWait,
    /// SCTP in UDP, if any packet is.
    pub sctp_udp: Option<SctpUdp>,
    /// What is looked at of packets of no association that come through the kernel.
    pub unknown_flows: UnknownFlowLimits,
    /// Nanoseconds since 1970 UTC at the shard's time zero; for captures.
    pub unix_time_at_zero: u64,
}

impl Default for ShardConfig {
    fn default() -> Self {
        Self {
            tcp: userspace_tcp::Config::default(),
            secret: [0; 16],
            common_secret: [0; 16],
            number: (0, 0),
            path_defaults: PathDefaults::new(1500),
            vlans: Vlans::default(),
            limits: ShardLimits::default(),
            receive_reserve: 1024,
            reassembly: 64,
            startup_timeout: Duration::from_secs(10),
            first_byte_timeout: Duration::from_secs(5),
            answer_timeout: Duration::from_secs(60),
            close_timeout: Duration::from_secs(10),
            receive_wait: ReceiveWait::Off,
            sctp_udp: None,
            unknown_flows: UnknownFlowLimits::default(),
            unix_time_at_zero: 0,
        }
    }
}

/// Packets of no association, by whether they may begin one. No limits by default, as behind a steering program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnknownFlowLimits {
    pub inits: Rate,
    pub others: Rate,
}

/// So many packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rate {
    /// In a second in the long run; 0: no limit.
    pub per_second: u32,
    /// At once after a while without any.
    pub burst: u32,
}

/// How SCTP goes in UDP (RFC 6951).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SctpUdp {
    /// The local UDP port, 9899 by its registration. Packets to it are taken, and packets in UDP come from it. An
    /// association that a peer begins goes as its packets came.
    pub port: u16,
    /// The UDP port of the peers to which associations are begun. `None`: those go without UDP.
    pub peer_port: Option<u16>,
}

/// The bounds of a shard's tables. What would pass one is refused with
/// [`crate::command::CommandError::Limit`], and a peer's connection with RST or silence and a
/// counter.
#[derive(Clone, Copy, Debug)]
pub struct ShardLimits {
    pub clients: usize,
    /// Valid STags.
    pub regions: usize,
    /// Completion queues.
    pub cqs: usize,
    /// Shared receive queues.
    pub srqs: usize,
    pub queue_pairs: usize,
    pub listeners: usize,
    /// TCP connections, those in MPA start-up and TIME-WAIT included.
    pub connections: usize,
    /// SCTP associations, and as many DDP Stream Sessions on them.
    pub associations: usize,
}

impl Default for ShardLimits {
    fn default() -> Self {
        Self {
            clients: 256,
            regions: 65_536,
            cqs: 4096,
            srqs: 1024,
            queue_pairs: 4096,
            listeners: 256,
            connections: 4096,
            associations: 1024,
        }
    }
}

impl ShardLimits {
    /// Places in the tables by connection: first those of TCP's, then those of associations and of sessions.
    pub(super) fn all_connections(&self) -> usize {
        self.connections + 2 * self.associations
    }
}
