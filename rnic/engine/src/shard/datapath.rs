//! What all sides of a shard borrow: ports and frames, TCP and SCTP, connections, queue pairs and what these work
//! with, counters, captures, the time.
//!
//! It decides nothing, and knows neither of the sides that use it ([`super::rx`], [`super::tx`],
//! [`super::ctl`]).

use std::collections::VecDeque;
use std::net::Ipv4Addr;

use rnic_ipc::id::{ClientId, QpNum};
use rnic_xsk::{Frame, FramePool, Port, Umem};
use userspace_net::Instant;
use userspace_tcp::{ConnId, SegmentId, Stack};

use super::client_stats::ClientStats;
use super::config::ShardConfig;
use super::holds::Holds;
use super::llp::EMSS_MIN;
use super::loopback::Loopback;
use super::sctp::Sctp;
use super::siblings::Siblings;
use crate::capture::Captures;
use crate::command::Timeouts;
use crate::conn::{ConnTable, Frames, ParkedFrames};
use crate::counters::ShardCounters;
use crate::cq::CqTable;
use crate::qp::{Qp, QpContext, QueuePool};
use crate::slot_table::SlotTable;
use crate::srq::SrqTable;
use crate::stag::StagTable;

/// What all sides of a shard work with.
#[derive(Debug)]
pub(super) struct Datapath<P> {
    pub config: ShardConfig,
    /// Those of the interface, then those of internal links.
    pub ports: Vec<P>,
    pub interface_ports: usize,
    /// One port more: this host's own addresses.
    pub loopback: Loopback,
    /// And one more, where the interface has several shards.
    pub siblings: Option<Siblings>,
    /// The broadcast addresses of the interface's subnets, in order.
    pub broadcasts: Vec<Ipv4Addr>,
    pub frames: Frames,
    pub stack: Stack<Frame>,
    pub sctp: Sctp,
    pub conns: ConnTable,
    pub qps: SlotTable<Box<QpSlot>>,
    pub served: ConnQpMap,
    /// Queue pairs that ask for something, by which they are ended or watched: [`super::ctl`] sees to it.
    pub pending_updates: VecDeque<QpNum>,
    /// Connections whose streams wait for a receive.
    pub holds: Holds,
    pub tables: Tables,
    pub counters: ShardCounters,
    pub captures: Captures,
    /// The time of the last poll or command.
    pub now: Instant,
}

/// What queue pairs work with.
#[derive(Debug)]
pub(super) struct Tables {
    pub stags: StagTable,
    pub cqs: CqTable,
    pub srqs: SrqTable,
    pub client_stats: ClientStats,
    pub queue_pool: QueuePool,
}

#[derive(Debug)]
#[repr(align(64))]
pub(super) struct QpSlot {
    pub qp: Qp,
    pub tally: usize,
    pub conn: Option<ConnId>,
    /// It is in [`Datapath::pending_updates`].
    update_pending: bool,
}

/// By connection, the queue pair that it serves or served, and the client that this is of: known without
/// a look at either.
#[derive(Debug)]
pub(super) struct ConnQpMap(Box<[(QpNum, ClientId)]>);

impl<P: Port> Datapath<P> {
    /// With frames in the ports to receive into. `pool` has frames of `umem`.
    pub fn new(
        mut config: ShardConfig,
        umem: Umem,
        mut pool: FramePool,
        mut ports: Vec<P>,
        now: Instant,
    ) -> Self {
        for port in &mut ports {
            port.refill(&mut pool);
        }
        // A reserve of everything would leave nothing to send with.
        config.receive_reserve = config.receive_reserve.min(pool.available() / 2);
        let limits = config.limits;
        let mut tcp = config.tcp.clone();
        tcp.connections = limits.connections;
        // What a connection's path allows is the limit, not a figure for all of them.
        tcp.mss = u16::MAX;
        // Linux tells siw of a FIN before the data of its segment: a rejection's private data, and a
        // Terminate, would be lost on it.
        tcp.fin_alone = true;
        // One FPDU is one segment, unless the peer's window takes no whole one.
        tcp.cuts_from = Some(EMSS_MIN as u32);
        Self {
            stack: Stack::new(tcp, config.common_secret, now),
            sctp: Sctp::new(&config, now),
            conns: ConnTable::new(limits.connections),
            qps: SlotTable::new(limits.queue_pairs),
            served: ConnQpMap::new(limits.all_connections()),
            pending_updates: VecDeque::with_capacity(limits.queue_pairs),
            holds: Holds::new(limits.connections, now),
            tables: Tables {
                stags: StagTable::new(limits.regions),
                cqs: CqTable::new(limits.cqs),
                srqs: SrqTable::new(limits.srqs),
                client_stats: ClientStats::new(limits.clients),
                queue_pool: QueuePool::default(),
            },
            loopback: Loopback::new(&umem),
            siblings: None,
            broadcasts: Vec::new(),
            counters: ShardCounters::default(),
            captures: Captures::new(umem.frame_capacity(), config.unix_time_at_zero),
            now,
            frames: Frames {
                held: ParkedFrames::new(umem.frames(), config.tcp.receive_window as usize),
                umem,
                pool,
            },
            interface_ports: ports.len(),
            config,
            ports,
        }
    }

    /// Deadlines that are set already stay.
    pub fn set_timeouts(&mut self, timeouts: Timeouts) {
        let Timeouts {
            user_timeout,
            keepalive,
            first_byte_timeout,
            answer_timeout,
            receive_wait,
        } = timeouts;
        self.stack.set_timeouts(user_timeout, keepalive);
        self.sctp.stack.set_user_timeout(Some(user_timeout));
        self.config.tcp.user_timeout = user_timeout;
        self.config.tcp.keepalive = keepalive;
        self.config.first_byte_timeout = first_byte_timeout;
        self.config.answer_timeout = answer_timeout;
        self.config.receive_wait = receive_wait;
    }

    /// Gives the ports frames to receive into.
    pub fn refill(&mut self) {
        for port in &mut self.ports {
            port.refill(&mut self.frames.pool);
        }
    }

    /// Whether frames of the loopback wait to be received, or were and wait for their senders.
    pub fn loops(&self) -> bool {
        !self.loopback.is_empty() || self.frames.pool.has_returned()
    }

    /// The next queue pair that asks for something.
    pub fn next_pending_update(&mut self) -> Option<QpNum> {
        let num = self.pending_updates.pop_front()?;
        if let Some(slot) = self.qps.get_mut(num.0) {
            slot.update_pending = false;
        }
        Some(num)
    }

    /// It is so late now, unless it was later before.
    pub fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    /// Frees frames whose bytes were acknowledged, or whose connection is gone.
    pub fn take_released(&mut self) {
        while let Some(frame) = self.stack.poll_released() {
            self.frames.pool.free(frame);
        }
    }

    /// The same of chunks, after whatever may have SCTP give some back; their sessions are notified.
    pub fn take_released_chunks(&mut self) {
        self.sctp.take_released(&mut self.frames.pool);
    }

    /// A frame that the link is done with, or did not take.
    #[inline]
    pub fn give_back(&mut self, frame: Frame, owner: Option<(ConnId, SegmentId)>) {
        let unneeded = match owner {
            Some((conn, segment)) => self.stack.transmitted(conn, segment, frame),
            None => Some(frame),
        };
        if let Some(frame) = unneeded {
            self.frames.pool.free(frame);
        }
    }
}

impl Tables {
    /// Whether there may be something to tell of completion queues and shared receive queues.
    pub fn has_notifications(&self) -> bool {
        self.cqs.has_notifications() || self.srqs.has_notifications()
    }

    /// What a queue pair that counts at this place works with at this time.
    pub fn context(&mut self, tally: usize, now: Instant) -> QpContext<'_> {
        let (counters, times) = self.client_stats.at(tally);
        QpContext {
            stags: &mut self.stags,
            cqs: &mut self.cqs,
            srqs: &mut self.srqs,
            counters,
            times,
            queue_pool: &mut self.queue_pool,
            now,
        }
    }
}

impl QpSlot {
    /// Has a queue pair that asks for something among those that do.
    #[inline]
    pub fn queue_update(&mut self, pending: &mut VecDeque<QpNum>) {
        if !self.update_pending && self.qp.needs_update() {
            self.update_pending = true;
            pending.push_back(self.qp.num());
        }
    }

    pub fn new(qp: Qp, tally: usize) -> Self {
        Self {
            qp,
            tally,
            conn: None,
            update_pending: false,
        }
    }
}

impl ConnQpMap {
    fn new(connections: usize) -> Self {
        Self(vec![(QpNum(0), ClientId(0)); connections].into_boxed_slice())
    }

    /// The connection serves this queue pair from now on.
    pub fn note(&mut self, id: ConnId, qp: QpNum, client: ClientId) {
        if let Some(place) = self.0.get_mut(id.index()) {
            *place = (qp, client);
        }
    }

    /// The client that the queue pair is of which this connection serves, while it is in
    /// [`Phase::Rdma`](crate::conn::Phase); else it is another's.
    pub fn client(&self, id: ConnId) -> Option<ClientId> {
        self.0.get(id.index()).map(|(_, client)| *client)
    }

    /// The queue pair of the connection at this place of the tables.
    pub fn qp(&self, place: usize) -> Option<QpNum> {
        self.0.get(place).map(|(qp, _)| *qp)
    }
}
