//! What a shard answers to a command.

use std::net::{IpAddr, SocketAddr};

use rnic_ipc::control::QpState;
use rnic_ipc::id::{ClientId, QpNum};
use rnic_ipc::inspect::ConnectionInfo;
use rnic_net::Path;
use rnic_xsk::InternalPort;

#[cfg(doc)]
use super::{Command, ShardEvent};
use crate::capture::Capture;
use crate::histogram::Histogram;
use crate::qp::{Qp, QpCounters, WorkTimes};
use crate::shard::MovedRequest;
use crate::stag::StagStatus;

/// The way that frames to a peer go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathInUse {
    pub local: IpAddr,
    pub remote: IpAddr,
    /// The way; none as long as it is not known. It is asked for by [`ShardEvent::PathDoubtful`].
    pub path: Option<Path>,
}

/// A shard's answer to a [`Command`] that was done.
#[derive(Debug)]
pub enum Answer {
    /// Nothing to tell.
    Done,
    /// To [`Command::Connect`].
    Connecting {
        /// Our address and port. When an association that was to be used goes in that moment, it is that of the command
        /// after all.
        local: SocketAddr,
    },
    /// To [`Command::TakeRequest`].
    Request(Box<MovedRequest>),
    /// To [`Command::TakeQp`].
    Qp(Box<Qp>),
    /// To [`Command::QueryQp`].
    QpState(QpState),
    /// To [`Command::QueryRequest`]: our address and the peer's. None where it stays within this host.
    RequestEnds(Option<(IpAddr, IpAddr)>),
    /// To [`Command::SetRejectedPaths`].
    Rejected {
        /// Whether connections are left that are to end: the same command ends them.
        more: bool,
    },
    /// To [`Command::QueryPaths`]: each once, however many connections use it.
    Paths(Vec<PathInUse>),
    /// To [`Command::QueryCounters`]: name and value, in a fixed order.
    Counters(Vec<(String, u64)>),
    /// To [`Command::QueryMetrics`].
    Metrics(Box<ShardMetrics>),
    /// To [`Command::InspectConnections`].
    Connections {
        /// What was found, by number.
        found: Vec<ConnectionInfo>,
        /// Where to go on; none at the end.
        next: Option<u32>,
    },
    /// To [`Command::InspectQueuePairs`]: those that are there.
    QueuePairs(Vec<QpStatus>),
    /// To [`Command::InspectStags`]: those that are there, by index.
    Stags(Vec<(u32, StagStatus)>),
    /// To [`Command::RemoveCapture`], if it was there: who asked drops it, and not the shard.
    Capture(Option<Box<dyn Capture>>),
    /// To [`Command::SetInternalLink`], the end that was there: who asked drops it, and not the shard.
    InternalLink(Option<Box<InternalPort>>),
}

/// All that a shard measures, at one moment.
#[derive(Clone, Debug)]
pub struct ShardMetrics {
    /// As [`Answer::Counters`].
    pub counters: Vec<(String, u64)>,
    /// What the queue pairs of each client that is there counted.
    pub clients: Vec<(ClientId, QpCounters)>,
    /// How long work that succeeded took.
    pub work: WorkTimes,
    /// How long connections that we opened took from the command to RDMA mode.
    pub connect: Histogram,
}

/// What a shard knows of a queue pair beside the Privileged Resource Manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpStatus {
    pub qp: QpNum,
    pub state: QpState,
    /// Its connection's ends, ours first.
    pub connection: Option<(SocketAddr, SocketAddr)>,
    /// Bytes that wait with a Send for which no receive is posted; none if none waits.
    pub held: Option<u64>,
}

/// Why a shard could not do a [`Command`].
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The named object does not exist (any more).
    #[error("no such {what}")]
    Unknown { what: &'static str },
    /// The object is in a state that does not allow this.
    #[error("the {what} is {found}, but must be {wanted}")]
    WrongState {
        what: &'static str,
        found: String,
        /// The state that is needed.
        wanted: &'static str,
    },
    /// A table of the shard is full.
    #[error("{what}: the shard's limit of {limit} is reached; close some or raise the limit")]
    Limit { what: &'static str, limit: usize },
    /// Another listener has this address and port.
    #[error("{local} is listened on already")]
    InUse { local: SocketAddr },
    /// The host forbids it.
    #[error("{0}")]
    NotPermitted(String),
    /// A value in the command can't be used.
    #[error("{0}")]
    Invalid(String),
}
