//! All connections and listeners of one shard: which one gets a segment, sends next, or is late.
//!
//! Idle connections cost nothing here: those with something to send stand in a queue, those with a
//! deadline in a timing wheel. What a segment, a request or a timeout costs does not depend on how
//! many connections there are.

mod delayed_acks;
mod moving;
mod no_connection;
mod posting;
mod segments;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::time::Duration;

use userspace_net::flow_table::FlowTable;
use userspace_net::keyed::Secret;
use userspace_net::links::{Links, Queue};
use userspace_net::locals::Locals;
use userspace_net::slab::{Named, Slab};
use userspace_net::wheel::Wheel;
use userspace_net::{Endpoint, FourTuple, Instant, earlier, may_be_a_host};

use crate::StreamOffset;
use crate::config::{Config, ConnOptions, KeepAlive};
use crate::connection::{Connection, Seed};
use crate::effects::{Effects, Env};
use crate::interface::{
    ConnCounters, ConnId, ConnectError, Counters, DeferredAck, Event, IcmpError, Info, ListenError,
    Outgoing, SegmentId, State,
};
use crate::isn;
use crate::outbound::Returned;
use crate::pools::Pools;
use crate::resource_usage::ResourceUsage;
use crate::seq::SeqNum;
use delayed_acks::DelayedAcks;
pub use moving::Detached;
pub use posting::Posting;

/// The TCP of one shard: listeners and connections. `B` is the caller's buffer handle.
#[derive(Debug)]
pub struct Stack<B> {
    config: Config,
    secret: Secret,
    connections: Slab<Connection<B>>,
    flows: FlowTable,
    locals: Locals,
    listeners: HashMap<Endpoint, Listener>,
    /// Connections that may have something to send.
    ready: Queue,
    ready_links: Links,
    /// The connection that sent last, if its turn is not over, or the only one that has something to
    /// send: it is the next, before all in `ready`. Its deadline may not be in the wheel yet. So a train
    /// of segments of one connection is settled once, at its end.
    sending: Option<u32>,
    /// Segments that it sent in this turn.
    turn: u32,
    deadlines: Wheel,
    delayed_acks: DelayedAcks,
    /// Those in TIME-WAIT, oldest first.
    time_waits: Queue,
    /// Of `time_waits` and of every listener's `half_open`: no connection is in two of them.
    state_links: Links,
    effects: Effects<B>,
    pools: Pools<B>,
    /// What connections did that are gone.
    gone: ConnCounters,
    /// The latest time that was given.
    now: Instant,
}

/// A passive open that waits.
#[derive(Debug)]
struct Listener {
    backlog: usize,
    /// The SYN queue: connections of it in SYN-RECEIVED, oldest first; at most `backlog`.
    half_open: Queue,
    /// Until then an ACK may bring back a SYN cookie.
    cookies_until: Instant,
}

impl<B> Stack<B> {
    /// Nothing listens, nothing is connected. `secret` must be random and stay secret: it makes
    /// initial sequence numbers (RFC 6528) and the flow table unpredictable.
    pub fn new(config: Config, secret: [u8; 16], now: Instant) -> Self {
        let connections = Slab::new(config.connections);
        let limit = connections.limit();
        Self {
            connections,
            flows: FlowTable::new(limit),
            locals: Locals::new(limit),
            listeners: HashMap::new(),
            ready: Queue::default(),
            ready_links: Links::new(limit),
            sending: None,
            turn: 0,
            deadlines: Wheel::new(now, limit),
            delayed_acks: DelayedAcks::new(config.delayed_acks),
            time_waits: Queue::default(),
            state_links: Links::new(limit),
            effects: Effects::new(&config),
            pools: Pools::new(&config),
            gone: ConnCounters::default(),
            secret: Secret::new(secret),
            config,
            now,
        }
    }

    /// The settings given to [`Stack::new`].
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The user timeout of all connections from now on, and the keep-alive of those that begin from now on.
    pub fn set_timeouts(&mut self, user_timeout: Duration, keepalive: Option<KeepAlive>) {
        self.config.user_timeout = user_timeout;
        self.config.keepalive = keepalive;
    }

    /// Accepts connections to `local`; an unspecified address means every address of its family
    /// that is not listened on by name. At most `backlog` may be half-open at a time; beyond that
    /// SYNs are answered by SYN cookies. Without [`Config::syn_cookies`] a SYN takes the place of
    /// the oldest whose SYN-ACK was left unanswered for one timeout, or is dropped, for the peer to
    /// try again (RFC 4987 section 3.4). Established connections count against
    /// [`Config::connections`] alone: the layer above hears of each at once and may abort what it
    /// does not want.
    ///
    /// # Errors
    /// Somebody listens there.
    pub fn listen(&mut self, local: Endpoint, backlog: usize) -> Result<(), ListenError> {
        if self.listeners.contains_key(&local) {
            return Err(ListenError::InUse { local });
        }
        self.listeners.insert(
            local,
            Listener {
                backlog,
                half_open: Queue::default(),
                cookies_until: Instant::ZERO,
            },
        );
        Ok(())
    }

    /// Accepts no more there and resets half-open connections; established ones stay. `false` when
    /// nobody listened.
    pub fn unlisten(&mut self, local: Endpoint) -> bool {
        let Some(mut listener) = self.listeners.remove(&local) else {
            return false;
        };
        while let Some(index) = listener.half_open.pop(&mut self.state_links) {
            if let Some(id) = self.connections.at(index).map(Named::id) {
                self.abort(id);
            }
        }
        true
    }

    /// Opens a connection. The SYN comes out of [`Stack::poll_transmit`].
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub fn connect(
        &mut self,
        now: Instant,
        tuple: FourTuple,
        options: ConnOptions,
    ) -> Result<ConnId, ConnectError> {
        let one_family = tuple.local.addr.is_ipv4() == tuple.remote.addr.is_ipv4();
        if !one_family || !is_unicast(tuple.local) || !is_unicast(tuple.remote) {
            return Err(ConnectError::DropReason { tuple });
        }
        if self.find(&tuple).is_some() {
            return Err(ConnectError::InUse { tuple });
        }
        let make = |seed: &Seed, config: &Config| Connection::active(seed, config, now);
        let limit = self.config.connections;
        self.add(now, tuple, options, make)
            .ok_or(ConnectError::TooMany { limit })
    }

    /// What happened, oldest first. Fetch until `None` after each [`Stack::receive`] and
    /// [`Stack::advance`].
    pub fn poll_event(&mut self) -> Option<(ConnId, Event)> {
        self.effects.events.pop_front()
    }

    /// The link is done with a payload buffer of [`Stack::poll_transmit`], whether it was sent or
    /// not. `Some`: nobody needs it any more.
    #[must_use = "a buffer that comes out is the caller's to free"]
    pub fn transmitted(&mut self, conn: ConnId, segment: SegmentId, buf: B) -> Option<B> {
        let Some(connection) = self.connections.get_mut(conn) else {
            return Some(buf);
        };
        match connection.transmitted(segment, buf) {
            Returned::Out(buf) => return Some(buf),
            Returned::Kept => {}
            // A retransmission has waited for it.
            Returned::Due => self.settle(conn),
        }
        None
    }

    /// A buffer that nobody needs any more: acknowledged, or its connection is gone. Fetch until
    /// `None`.
    pub fn poll_released(&mut self) -> Option<B> {
        self.effects.released.pop_front()
    }

    /// When [`Stack::advance`] has to be called at the latest.
    pub fn next_deadline(&self) -> Option<Instant> {
        let sending = self.sending.and_then(|index| self.connections.at(index));
        earlier(
            self.deadlines.next(),
            sending.and_then(Connection::deadline),
        )
    }

    /// Lets time pass: retransmissions, probes, delayed ACKs, ends of TIME-WAIT.
    pub fn advance(&mut self, now: Instant) {
        self.now = now;
        if let Some(index) = self.sending
            && let Some(connection) = self.connections.at(index)
        {
            self.deadlines.set(index, connection.deadline());
        }
        while let Some(index) = self.deadlines.pop(now) {
            let Some(connection) = self.connections.at_mut(index) else {
                continue;
            };
            connection.advance(&mut Env {
                now,
                config: &self.config,
                effects: &mut self.effects,
                pools: &mut self.pools,
            });
            let id = connection.id();
            self.settle(id);
        }
    }

    /// Bytes that congestion window, peer's window and queue would let go right now, minus what is queued unsent.
    /// It is a segment more than the congestion window says, so that a tail loss probe has new bytes to carry. At least one [`Stack::mss`] while nothing is queued or in flight, so that a
    /// closed window is probed with something in the queue. 0 when the queue is full or the
    /// connection can't send. [`Stack::send`] takes segments beyond it, up to the queue's bound.
    pub fn send_room(&self, conn: ConnId) -> usize {
        self.connections
            .get(conn)
            .map_or(0, |connection| connection.send_room(&self.config))
    }

    /// Segments in the send queue, if the peer has acknowledged all of them, by `deferred` at the latest.
    pub fn acknowledged(&self, conn: ConnId, deferred: Option<&DeferredAck>) -> Option<usize> {
        let connection = self.connections.get(conn)?;
        let deferred = deferred.map(|deferred| &deferred.in_order);
        let ack = deferred.filter(|of| of.conn == conn).map(|of| of.ack);
        connection.acknowledged(ack)
    }

    /// Bytes in the send queue that the peer has not acknowledged, sent and unsent. 0 when the connection is gone.
    pub fn unacknowledged(&self, conn: ConnId) -> u64 {
        self.connections
            .get(conn)
            .map_or(0, Connection::unacknowledged)
    }

    /// If an acknowledgment is owed, it is not delayed any more ([`Config::ack_delay`]): it leaves with the next
    /// transmission, alone if nothing else does. `false` when the connection is gone.
    pub fn acknowledge_at_once(&mut self, conn: ConnId) -> bool {
        self.end(conn, |connection, _| connection.acknowledge_at_once())
    }

    /// Segments in the send queue, sent and unsent: as many buffers of the layer above. 0 when the
    /// connection is gone.
    pub fn queued_segments(&self, conn: ConnId) -> usize {
        self.connections
            .get(conn)
            .map_or(0, Connection::queued_segments)
    }

    /// The most bytes that the next [`Stack::send`] may take; 0 when the connection is gone. It
    /// follows the path (RFC 8899): ask before each segment. While a probe of a larger size is
    /// wanted it is that size, until one segment of more than the proven size was taken. That
    /// segment is the probe; if it is lost it goes out again as IP fragments, and nothing else
    /// happens. [`Event::MssChanged`] tells of changes that last.
    pub fn mss(&self, conn: ConnId) -> usize {
        self.connections.get(conn).map_or(0, Connection::mss)
    }

    /// How many bytes the next segment should have for a layer above that may cut where it likes. That is
    /// [`Stack::mss`], or half of the greatest window that the peer ever offered, where that is less (RFC 9293
    /// section 3.8.6.2.1). 0 when the connection is gone.
    pub fn cut(&self, conn: ConnId) -> usize {
        self.connections.get(conn).map_or(0, Connection::cut)
    }

    /// Whether the next segment may be a probe of the path, larger than those behind it.
    pub(crate) fn wants_probe(&self, conn: ConnId) -> bool {
        self.connections
            .get(conn)
            .is_some_and(Connection::wants_probe)
    }

    /// The layer above needs nothing before `to`: the window's right edge moves to `to` plus
    /// [`Config::receive_window`]. Going back, or beyond what has come in order, does nothing.
    pub fn consumed(&mut self, conn: ConnId, to: StreamOffset) {
        if let Some(connection) = self.connections.get_mut(conn) {
            connection.consumed(to);
            self.settle(conn);
        }
    }

    /// What is queued so far is urgent, up to its last byte (RFC 9293 section 3.8.5): the peer is
    /// told at once, even if its window is closed. The bytes keep their place in the stream.
    /// `false` when nothing is queued or in flight, or the connection is closed for sending or gone.
    pub fn urge(&mut self, conn: ConnId) -> bool {
        let mut urged = false;
        self.end(conn, |connection, _| urged = connection.urge());
        urged
    }

    /// Asks the peer of this connection whether it is still there when it is idle, or no more.
    /// [`Config::keepalive`] is what a connection begins with. `false` when it is gone.
    pub fn set_keepalive(&mut self, conn: ConnId, now: Instant, wanted: Option<KeepAlive>) -> bool {
        self.now = now;
        self.end(conn, |connection, env| {
            connection.set_keepalive(env, wanted)
        })
    }

    /// This connection is given up when the peer has acknowledged nothing for `timeout` although it
    /// should have, also while it is being opened; instead of [`Config::user_timeout`]. `false`
    /// when it is gone.
    pub fn set_user_timeout(&mut self, conn: ConnId, now: Instant, timeout: Duration) -> bool {
        self.now = now;
        self.end(conn, |connection, env| {
            connection.set_user_timeout(env, timeout)
        })
    }

    /// Sends FIN behind everything queued; receiving goes on (half-close). In SYN-SENT the
    /// connection is gone at once, without an event. `false` when it was gone already.
    pub fn close(&mut self, conn: ConnId) -> bool {
        self.end(conn, |connection, env| connection.close(env, false))
    }

    /// The same, but FIN goes when everything before it is acknowledged. An end in the kernel may learn of a FIN before
    /// the data ahead of it, when these were lost and come later, and never look at them.
    pub fn close_once_acknowledged(&mut self, conn: ConnId) -> bool {
        self.end(conn, |connection, env| connection.close(env, true))
    }

    /// Resets the connection, which is gone at once, without an event. `false` when it was gone
    /// already.
    pub fn abort(&mut self, conn: ConnId) -> bool {
        self.end(conn, Connection::abort)
    }

    /// Has `cut` make two segments of the next one of a connection, the first of so many bytes as it is told: as
    /// many as the peer's window takes. The first goes out. `cut` may refuse, and give the buffer back. Says
    /// whether it was cut: not if the window takes all by now, or nothing. It is for
    /// [`Event::WindowTooSmall`](crate::Event::WindowTooSmall).
    pub fn split(
        &mut self,
        conn: ConnId,
        now: Instant,
        cut: impl FnOnce(B, usize) -> Result<[Outgoing<B>; 2], B>,
    ) -> bool {
        self.now = now;
        let mut split = false;
        self.end(conn, |connection, env| split = connection.split(env, cut));
        split
    }

    /// An ICMP error quotes a segment from `tuple.local` to `tuple.remote` that began at `seq`.
    /// `false` when no such segment is in the network, so that off-path senders can't forge one blindly
    /// (RFC 5927 section 4.1), or it can't be true. An established connection is never given up
    /// because of one. What was dropped for its size goes out again at once, as IP fragments.
    pub fn icmp(&mut self, now: Instant, tuple: FourTuple, seq: SeqNum, error: IcmpError) -> bool {
        self.now = now;
        let mut valid = false;
        if let Some(id) = self.find(&tuple) {
            self.end(id, |connection, env| {
                valid = connection.on_icmp(env, seq, error)
            });
        }
        self.effects.counters.icmp_ignored += u64::from(!valid);
        valid
    }

    /// Packets to the connection's peer begin their way over a link that takes `mtu` bytes of IP
    /// packet at most. When that is less than before, what was posted goes out as IP fragments, and
    /// what is posted next is smaller ([`Event::MssChanged`]). `false` when the connection is gone.
    pub fn link_mtu(&mut self, conn: ConnId, now: Instant, mtu: u32) -> bool {
        self.now = now;
        self.end(conn, |connection, env| connection.on_link_mtu(env, mtu))
    }

    /// A look at a connection; `None` when it is gone.
    pub fn info(&self, conn: ConnId) -> Option<Info> {
        self.connections
            .get(conn)
            .map(|connection| connection.info(&self.config))
    }

    /// What is kept of the connection whose [`ConnId::index`] this is, and goes with each of its
    /// segments: for who fetches that memory into the cache ahead of its use.
    pub fn memory_at(
        &self,
        index: usize,
    ) -> (
        Option<&impl Sized>,
        Option<&impl Sized>,
        Option<&impl Sized>,
    ) {
        (
            self.connections.memory_at(index),
            self.ready_links.memory_at(index),
            self.deadlines.memory_at(index),
        )
    }

    /// What was done with segments that belong to no connection.
    pub fn counters(&self) -> Counters {
        self.effects.counters
    }

    /// What all connections did so far, those that are gone included. It looks at every
    /// connection: not for the data path.
    pub fn totals(&self) -> ConnCounters {
        let mut totals = self.gone;
        for connection in self.connections.iter() {
            totals += connection.counters();
        }
        totals
    }

    /// What the stack holds at this moment, for tests that look for leaks. It walks through all
    /// tables: not for the data path.
    pub fn resource_usage(&self) -> ResourceUsage {
        ResourceUsage {
            connections: self.connections.iter().count(),
            flows: self.flows.marks(),
            local_ends: self.locals.marks(),
            ready: self.ready.len() + usize::from(self.sending.is_some()),
            half_open: self.listeners.values().map(|l| l.half_open.len()).sum(),
            time_waits: self.time_waits.len(),
            deadlines: self.deadlines.count(),
            send_queues: self.pools.queues.lent(),
            range_sets: self.pools.ranges.lent(),
            unfetched: self.effects.unfetched(),
        }
    }

    /// How much longer a program that is about to end should take and answer segments. When the last ACK was lost,
    /// a peer's FIN is to be acknowledged once more. Otherwise that peer would meet a host that knows nothing of the
    /// connection, and resets it. Two retransmission timeouts from when a FIN last came; zero
    /// when nothing stands in TIME-WAIT, or for longer. It looks at every connection.
    pub fn linger(&self, now: Instant) -> Duration {
        let lingers = |connection: &Connection<B>| connection.linger(now, &self.config);
        let longest = self.connections.iter().map(lingers).max();
        longest.unwrap_or_default()
    }

    /// Connections, those in TIME-WAIT included, whose local end is `local`.
    pub fn connections_at(&self, local: Endpoint) -> usize {
        self.locals.count(&self.secret, local)
    }

    fn end(&mut self, conn: ConnId, how: impl FnOnce(&mut Connection<B>, &mut Env<'_, B>)) -> bool {
        let Some(connection) = self.connections.get_mut(conn) else {
            return false;
        };
        let mut env = Env {
            now: self.now,
            config: &self.config,
            effects: &mut self.effects,
            pools: &mut self.pools,
        };
        how(connection, &mut env);
        self.settle(conn);
        true
    }

    /// Makes a connection, in place of one that matters less if there is no room.
    fn add(
        &mut self,
        now: Instant,
        tuple: FourTuple,
        options: ConnOptions,
        make: impl FnOnce(&Seed, &Config) -> Connection<B>,
    ) -> Option<ConnId> {
        if self.connections.is_full() && !self.evict_time_wait() {
            let overdue = self.listeners.values().find_map(|l| self.overdue(l));
            self.evict_half_open(overdue);
        }
        let (secret, config) = (&self.secret, &self.config);
        let id = self.connections.insert(|id| {
            let iss = isn::initial_sequence(secret, &tuple, now);
            let timestamp_offset = isn::timestamp_offset(secret, &tuple);
            make(
                &Seed {
                    id,
                    tuple,
                    iss,
                    timestamp_offset,
                    options,
                },
                config,
            )
        })?;
        self.flows.insert(self.secret.flow(&tuple), id.index);
        self.locals.add(&self.secret, tuple.local);
        self.settle(id);
        Some(id)
    }

    fn end_time_wait(&mut self, id: ConnId) {
        self.effects.events.push_back((id, Event::TimeWaitOver));
        self.remove(id);
    }

    /// The oldest half-open connection of a listener, if its peer has let a SYN-ACK time out.
    fn overdue(&self, listener: &Listener) -> Option<ConnId> {
        let connection = self.connections.at(listener.half_open.first()?)?;
        connection.is_overdue().then_some(connection.id())
    }

    /// Forgets a half-open connection and sends nothing, as its timeout would in the end. False
    /// when there is none.
    fn evict_half_open(&mut self, id: Option<ConnId>) -> bool {
        if let Some(id) = id {
            self.effects.counters.half_open_evicted += 1;
            self.remove(id);
        }
        id.is_some()
    }

    /// False when none is in TIME-WAIT.
    fn evict_time_wait(&mut self) -> bool {
        let oldest = self.time_waits.first();
        let Some(connection) = oldest.and_then(|index| self.connections.at(index)) else {
            return false;
        };
        let id = connection.id();
        self.effects.counters.time_wait_evicted += 1;
        self.end_time_wait(id);
        true
    }

    /// After anything that may have changed a connection: takes it away, or puts it where it
    /// belongs.
    fn settle(&mut self, id: ConnId) {
        let Some(connection) = self.connections.get_mut(id) else {
            return;
        };
        if connection.is_gone() {
            self.remove(id);
            return;
        }
        self.deadlines.set(id.index, connection.deadline());
        let stands = self.sending == Some(id.index) || self.ready_links.contains(id.index);
        if !stands && connection.wants_transmit() {
            self.ready.push(&mut self.ready_links, id.index);
        }
    }

    fn remove(&mut self, id: ConnId) -> Option<Connection<B>> {
        let connection = self.connections.remove(id.index)?;
        self.leave_backlog(connection.half_open_of(), id.index);
        if connection.state() == State::TimeWait {
            self.time_waits.remove(&mut self.state_links, id.index);
        }
        self.ready.remove(&mut self.ready_links, id.index);
        self.sending = self.sending.filter(|index| *index != id.index);
        self.deadlines.set(id.index, None);
        let tuple = connection.tuple();
        self.flows.remove(self.secret.flow(&tuple), id.index);
        self.locals.remove(&self.secret, tuple.local);
        self.gone += connection.counters();
        Some(connection)
    }
}

/// Whether an end can be one of a TCP connection (RFC 9293 section 3.9.2.3). Broadcast addresses of subnets are
/// for the caller to know.
fn is_unicast(end: Endpoint) -> bool {
    end.port != 0 && may_be_a_host(end.addr)
}
