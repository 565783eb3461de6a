//! Everything that is not data path:
//!
//! - commands ([`control`]), with those about connections ([`connect`]);
//! - start-up and end of a connection ([`startup`], [`lifecycle`], with [`markers`], [`rtr_retry`],
//!   [`peer_timeout`] and [`deadlines`]), and what associations and DDP Stream Sessions have of
//!   their own ([`associations`], [`session`]);
//! - bounds for peers ([`backlog`], [`unowned`], [`unknown_flows`], [`stag_scan_limit`]), and which may connect ([`peer_rules`]); what the host's
//!   IPsec forbids ([`ipsec`]);
//! - memory that a client took away ([`memory_fault`]);
//! - ends of internal links that come ([`internal_link`]);
//! - queue pairs and connection requests that go to another shard ([`move_qp`], [`move_request`]);
//! - snapshots for operators ([`inspect`]).

pub(super) mod addresses;
mod association_events;
mod associations;
mod backlog;
mod connect;
pub(super) mod control;
pub(super) mod deadlines;
mod host_policy;
pub(super) mod inspect;
mod internal_link;
pub(super) mod lifecycle;
pub(super) mod markers;
pub(super) mod memory_fault;
pub(super) mod metrics;
pub(super) mod modify;
mod move_qp;
pub(super) mod move_request;
pub(super) mod mpa_options;
pub(super) mod notifications;
pub(super) mod path;
pub(super) mod peer_rules;
pub(super) mod peer_timeout;
pub(super) mod rtr_retry;
pub(super) mod session;
pub(super) mod stag_scan_limit;
pub(super) mod startup;
pub(super) mod timers;
mod unknown_flows;
pub(super) mod unowned;
pub(super) mod update;

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

use rnic_ipc::control::Transport;
use rnic_ipc::id::{ClientId, ListenerId};
use rnic_ipc::ring::DoorbellConsumer;
use rnic_net::PeerRules;
use userspace_tcp::{ConnId, Event as TcpEvent};

use super::config::ShardConfig;
use crate::command::ShardEvent;
use crate::histogram::Histogram;
use crate::idmap::IdMap;
use backlog::Backlog;
use deadlines::Deadlines;
use host_policy::HostPolicy;
use peer_rules::Told;
use stag_scan_limit::StagScanLimit;
use unknown_flows::UnknownFlows;
use unowned::Unowned;

/// Events that are reported without asking for memory, if their owner looks after each poll.
const EVENTS: usize = 64;

#[derive(Debug)]
pub(super) struct Ctl {
    pub clients: Vec<Client>,
    listeners: IdMap<u32, Listener>,
    listening: HashMap<(Transport, SocketAddr), ListenerId>,
    /// Requests that wait for the application's answer.
    requests: IdMap<u32, ConnId>,
    /// The count in the name of the last one.
    last_request: u32,
    pub deadlines: Deadlines,
    /// Events for the owner of the shard.
    pub events: VecDeque<ShardEvent>,
    /// Peers that try STags.
    stag_scan_limit: StagScanLimit,
    /// Peers that may not connect.
    refused_peers: Told,
    guesses_told: Told,
    /// How much is looked at that is of no association.
    pub unknown_flows: UnknownFlows,
    /// What may not go in clear.
    host_policy: HostPolicy,
    /// Connections that only their peers have, over TCP and over SCTP.
    unowned: [Unowned; 2],
    /// From the command to connect to RDMA mode.
    connect_times: Histogram,
    /// TCP's events that wait until the bytes before them are delivered; empty between polls.
    endings: VecDeque<(ConnId, TcpEvent)>,
    /// Faults of shared memory in this process that were looked into.
    faults_seen: u64,
}

#[derive(Debug)]
pub(super) struct Client {
    pub id: ClientId,
    pub doorbells: DoorbellConsumer,
    /// It broke the rules of its rings: nothing of it is read any more.
    pub faulted: bool,
}

#[derive(Debug)]
pub(super) struct Listener {
    client: ClientId,
    transport: Transport,
    local: SocketAddr,
    backlog: Backlog,
    peers: PeerRules,
}

impl Ctl {
    pub fn new(config: &ShardConfig) -> Self {
        let limits = config.limits;
        Self {
            clients: Vec::with_capacity(limits.clients),
            listeners: IdMap::default(),
            listening: HashMap::new(),
            requests: IdMap::default(),
            last_request: 0,
            deadlines: Deadlines::new(limits.all_connections()),
            events: VecDeque::with_capacity(EVENTS),
            stag_scan_limit: StagScanLimit::new(),
            refused_peers: Told::default(),
            guesses_told: Told::default(),
            unknown_flows: UnknownFlows::new(config.unknown_flows),
            host_policy: HostPolicy::default(),
            unowned: [limits.connections, limits.associations].map(Unowned::new),
            connect_times: Histogram::default(),
            endings: VecDeque::new(),
            faults_seen: 0,
        }
    }
}
