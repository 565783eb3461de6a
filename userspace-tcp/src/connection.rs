//! One connection: a value that takes segments, requests and time (RFC 9293 section 3.10).
//!
//! The states are those of the RFC; what a segment, a timeout or a request does in them is in the
//! modules below. It never touches another connection, and never fails for anything a peer sends.

mod ack;
mod arrival;
pub(crate) mod clock;
mod ecn;
mod handshake;
mod icmp;
mod keepalive;
mod model;
mod output;
mod path;
mod recovery;
mod request;
mod timeout;
mod urgent;

use std::time::Duration;

use userspace_net::pmtu::PathMtu;
use userspace_net::slab::{Key, Named};
use userspace_net::{Endpoint, FourTuple, Instant};

use crate::config::{Config, ConnOptions};
use crate::congestion::Congestion;
use crate::effects::Env;
use crate::frto::Frto;
use crate::inbound::{Inbound, WindowPlan};
use crate::interface::{ConnCounters, ConnId, Event, Info, SoftError, State};
use crate::options::TIMESTAMPS_LEN;
use crate::outbound::Outbound;
use crate::pacing::Pacer;
use crate::pools::Pools;
use crate::rack::Rack;
use crate::resent::Resent;
use crate::rtt::Rtt;
use crate::seq::SeqNum;
use crate::tlp::Tlp;
use clock::Clock;
use ecn::EcnAgreement;
pub(crate) use handshake::peer_mss;
use keepalive::Keepalive;
use timeout::Timer;
use urgent::Urgent;

/// The least MSS that is believed (with options): a peer that announces less gets segments of this
/// size, so that it can't make us send a packet per byte.
const MSS_MIN: u16 = 88;

/// A transmission control block, in whole cache lines.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Connection<B> {
    id: ConnId,
    tuple: FourTuple,
    state: State,
    /// Where it came from, if it is passive.
    listener: Option<Endpoint>,
    inbound: Inbound,
    outbound: Outbound<B>,
    rtt: Rtt,
    rack: Rack,
    tlp: Tlp,
    frto: Frto,
    resent: Resent,
    congestion: Congestion,
    pacer: Pacer,
    clock: Clock,
    plan: WindowPlan,
    /// What we announce as MSS.
    mss: u16,
    /// Payload bytes of a full segment.
    emss: u32,
    path: PathMtu,
    /// Both ends scale their windows; the peer's by `peer_shift`.
    scales: bool,
    peer_shift: u8,
    sack: bool,
    ecn: EcnAgreement,
    timer: Timer,
    /// The reordering timer and the probe timeout (RFC 8985 section 5.4).
    reorder_at: Option<Instant>,
    probe_at: Option<Instant>,
    keepalive: Keepalive,
    /// `None`: as configured, and an opening connection goes by its SYNs alone.
    user_timeout: Option<Duration>,
    urgent: Urgent,
    /// Timeouts since the peer was heard of.
    unanswered: u32,
    /// When the peer last moved something forward, or was first asked to.
    progress_at: Instant,
    syn_due: bool,
    /// Times our SYN went out, and times it did so because of a timeout.
    syns: u32,
    syn_timeouts: u32,
    syn_sent_at: Instant,
    /// When payload last went out: acknowledgments keep no window alive (RFC 5681 section 4.1).
    last_data_at: Instant,
    /// One lost segment may go whatever cwnd says.
    force_lost: bool,
    probe_due: bool,
    /// A tail loss probe has to go out, whatever cwnd says.
    tail_probe_due: bool,
    /// Window probes since the peer's window last let something through.
    probes: u32,
    /// [`Config::cuts_from`]; 0: none.
    cuts_from: u32,
    /// Duplicate ACKs in a row, without SACK blocks.
    duplicates: u32,
    /// The present recovery goes by duplicate ACKs, not by SACK blocks.
    recovery_by_duplicates: bool,
    /// Before this no other challenge is answered.
    quiet_until: Instant,
    gone: bool,
    counters: ConnCounters,
}

/// With what the tables of [`crate::Stack`] take for it, a connection that has nothing in flight
/// stays below 2 KiB.
const _: () = assert!(size_of::<Connection<u64>>() <= 1664);

/// What a new connection is made of.
pub(crate) struct Seed {
    pub(crate) id: ConnId,
    pub(crate) tuple: FourTuple,
    pub(crate) iss: SeqNum,
    pub(crate) timestamp_offset: u32,
    pub(crate) options: ConnOptions,
}

impl<B> Named for Connection<B> {
    type Name = ConnId;

    fn id(&self) -> ConnId {
        self.id
    }

    fn name(key: Key) -> ConnId {
        let Key { index, generation } = key;
        ConnId { index, generation }
    }

    fn key(id: ConnId) -> Key {
        let ConnId { index, generation } = id;
        Key { index, generation }
    }
}

impl<B> Connection<B> {
    /// In SYN-SENT, with a SYN to send.
    pub(crate) fn active(seed: &Seed, config: &Config, now: Instant) -> Self {
        let mss = seed.options.mss.min(config.mss).max(MSS_MIN);
        let plan = WindowPlan::new(config, mss);
        let emss = u32::from(mss);
        Self {
            id: seed.id,
            tuple: seed.tuple,
            state: State::SynSent,
            listener: None,
            // Replaced when the peer's SYN is here.
            inbound: Inbound::new(SeqNum(0), plan, emss, false),
            outbound: Outbound::new(seed.iss),
            rtt: Rtt::new(config),
            rack: Rack::new(),
            tlp: Tlp::default(),
            frto: Frto::default(),
            resent: Resent::default(),
            congestion: Congestion::new(config, u64::from(emss), 0),
            pacer: Pacer::default(),
            clock: Clock::new(seed.timestamp_offset),
            plan,
            mss,
            emss,
            path: PathMtu::new(config.path_mtu(), emss, true),
            scales: false,
            peer_shift: 0,
            sack: false,
            ecn: EcnAgreement::default(),
            timer: Timer::Idle,
            reorder_at: None,
            probe_at: None,
            keepalive: Keepalive::new(config.keepalive, now),
            user_timeout: None,
            urgent: Urgent::default(),
            unanswered: 0,
            progress_at: now,
            syn_due: true,
            syns: 0,
            syn_timeouts: 0,
            syn_sent_at: now,
            last_data_at: now,
            force_lost: false,
            probe_due: false,
            tail_probe_due: false,
            probes: 0,
            cuts_from: config.cuts_from.unwrap_or(0),
            duplicates: 0,
            recovery_by_duplicates: false,
            quiet_until: Instant::ZERO,
            gone: false,
            counters: ConnCounters::default(),
        }
    }

    pub(crate) fn tuple(&self) -> FourTuple {
        self.tuple
    }

    pub(crate) fn state(&self) -> State {
        self.state
    }

    /// The listener whose backlog it counts against.
    pub(crate) fn half_open_of(&self) -> Option<Endpoint> {
        self.listener.filter(|_| self.state == State::SynReceived)
    }

    /// The peer has let our SYN or SYN-ACK time out.
    pub(crate) fn is_overdue(&self) -> bool {
        self.syn_timeouts > 0
    }

    /// To be taken out of the table.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone
    }

    pub(crate) fn queued_segments(&self) -> usize {
        self.outbound.queued_segments()
    }

    /// In TIME-WAIT, how much longer the peer is likely to ask for our last acknowledgment if it was
    /// lost: twice the time after which we would have asked, from when its FIN last came.
    pub(crate) fn linger(&self, now: Instant, config: &Config) -> Duration {
        let Timer::TimeWait(over) = self.timer else {
            return Duration::ZERO;
        };
        let left = over.saturating_duration_since(now);
        let since = config.time_wait.saturating_sub(left);
        left.min((2 * self.rtt.rto(config)).saturating_sub(since))
    }

    /// Both sides have closed, and each has every byte of the other's: what may still be said changes
    /// nothing for either.
    fn lacks_only_ack_of_fin(&self) -> bool {
        matches!(self.state, State::Closing | State::LastAck) && self.queued_segments() == 0
    }

    pub(crate) fn info(&self, config: &Config) -> Info {
        Info {
            tuple: self.tuple,
            state: self.state,
            mss: self.emss as usize,
            path_mtu: self.path.plpmtu(),
            timestamps: self.clock.in_use(),
            ecn: self.ecn.sends_capable(),
            srtt: self.rtt.srtt(),
            rttvar: self.rtt.rttvar(),
            rto: self.rtt.rto(config),
            cwnd: self.congestion.cwnd(),
            ssthresh: self.congestion.ssthresh(),
            pipe: self.outbound.pipe(),
            peer_window: self.outbound.window(),
            urgent_to: self.urgent_to(),
            queued_segments: self.queued_segments(),
            awaits_ack: self.outbound.outstanding() || self.outbound.unsent_bytes() > 0,
            heard_at: self.keepalive.heard_at(),
            counters: self.counters,
        }
    }

    /// What it did so far.
    pub(crate) fn counters(&self) -> ConnCounters {
        self.counters
    }

    /// Payload bytes of a full segment, when the peer announces `peer_mss` (RFC 6691).
    fn effective_mss(&self, peer_mss: u16) -> u32 {
        let options = if self.clock.in_use() {
            TIMESTAMPS_LEN as u32
        } else {
            0
        };
        u32::from(self.mss.min(peer_mss).max(MSS_MIN)) - options
    }

    /// Whether it can go to another stack: it is established, and everything that was sent is acknowledged. Then it has
    /// given back what it had borrowed, and what came out of order is to come again.
    pub(crate) fn begin_move(&mut self, pools: &mut Pools<B>) -> bool {
        let idle = self.queued_segments() == 0 && !self.outbound.outstanding();
        let moves = self.state == State::Established && idle;
        if moves {
            self.outbound.clear(&mut pools.queues, drop);
            self.inbound.clear(&mut pools.ranges);
        }
        moves
    }

    /// Another stack has it by this name.
    pub(crate) fn rename(&mut self, id: ConnId) {
        self.id = id;
    }

    /// What it is to have counted so far.
    pub(crate) fn set_counters(&mut self, counters: ConnCounters) {
        self.counters = counters;
    }

    /// The connection ends here; every buffer that is not with the link is released.
    fn die(&mut self, env: &mut Env<'_, B>, event: Option<Event>) {
        self.gone = true;
        self.stop_timers(Timer::Idle);
        let released = &mut env.effects.released;
        let queues = &mut env.pools.queues;
        self.outbound.clear(queues, |buf| released.push_back(buf));
        self.inbound.clear(&mut env.pools.ranges);
        if let Some(event) = event.filter(|_| self.is_shown()) {
            env.effects.events.push_back((self.id, event));
        }
    }

    /// Tells the layer above of trouble.
    fn report(&self, env: &mut Env<'_, B>, error: SoftError) {
        if self.is_shown() {
            let event = Event::SoftError(error);
            env.effects.events.push_back((self.id, event));
        }
    }

    /// The layer above knows of it: a passive connection is not shown before it is established.
    fn is_shown(&self) -> bool {
        self.listener.is_none() || self.state != State::SynReceived
    }
}
