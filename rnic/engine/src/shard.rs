//! The polled shard loop: one core, its queues, its connections, no locks.
//!
//! A shard never blocks, and never panics because of a peer or a client. Its owner calls [`Shard::poll`]
//! again and again with the time, hands it [`Command`]s, and takes [`ShardEvent`]s. To sleep it calls
//! [`Shard::prepare_sleep`]. When that returns true, it waits for [`Shard::poll_fds`], the clients' kicks and
//! [`Shard::next_deadline`]; then it calls [`Shard::wake_up`].
//!
//! The order of a poll:
//!
//! 1. doorbells, produce, transmit;
//! 2. frames that the link is done with, timers, refill, wake-ups;
//! 3. receive, and wake-ups for what was received.
//!
//! So an owner that drives the shard in its own thread sees received data at once. Its reply leaves first in
//! the next poll and carries the ACK. Deferred work is done while the reply is on its way.

mod client_stats;
mod config;
#[cfg(test)]
mod conn_ids;
mod ctl;
mod datapath;
mod holds;
mod immediate;
mod joined;
mod llp;
mod loopback;
mod media;
mod receive;
mod request_ids;
mod rx;
mod sctp;
mod siblings;
mod tcp;
mod tx;

use std::os::fd::BorrowedFd;
use std::time::Duration;

use rnic_ipc::control::RefusalCode;
use rnic_ipc::id::QpNum;
use rnic_xsk::{FramePool, HandoverStatistics, Port, Umem};
use userspace_net::{Instant, earlier};
#[cfg(doc)]
use userspace_tcp::Stack;

use crate::command::{Answer, Command, CommandError, ShardEvent};
pub use crate::conn::{FlowSink, FlowState};
use crate::counters::{Levels, ShardCounters};
use crate::qp::QpCounters;

pub use config::{Rate, SctpUdp, ShardConfig, ShardLimits, UnknownFlowLimits};
use ctl::metrics::levels;
pub use ctl::move_request::MovedRequest;
use ctl::{Client, Ctl};
use datapath::Datapath;
pub use loopback::untagged_mtu;
pub use request_ids::shard_of;
pub use rnic_ipc::control::SHARDS_MAX;
use rx::Rx;
pub use siblings::Siblings;
use tx::Tx;

/// Doorbells taken from one client before the next gets its turn.
const DOORBELLS_PER_CLIENT: usize = 64;
/// While the link has frames of ours nothing wakes us when it is done with them, so a sleep is not
/// longer than this.
const LINK_PATIENCE: Duration = Duration::from_millis(1);

/// One core's share of the RNIC.
#[derive(Debug)]
pub struct Shard<P> {
    dp: Datapath<P>,
    tx: Tx,
    ctl: Ctl,
    /// Something came, or time passed, since what there was to transmit was transmitted.
    to_transmit: bool,
    /// The last poll found nothing to do: until then only what [`Self::is_quiet`] looks at brings
    /// anything. `None`: something was done since.
    quiet_until: Option<Instant>,
    rx: Rx,
    /// Doorbells of one client; empty between polls.
    rung: Vec<QpNum>,
}

impl<P: Port> Shard<P> {
    /// A shard over `ports`, the interface's queues, which all take frames of one UMEM. `pool` has the
    /// frames that are this shard's own. Internal links come by [`Command::SetInternalLink`].
    ///
    /// # Panics
    ///
    /// When `ports` is empty.
    pub fn new(config: ShardConfig, pool: FramePool, ports: Vec<P>, now: Instant) -> Self {
        let first = ports.first().expect("a shard over ports has one at least");
        let umem = first.umem().clone();
        Self::over(Datapath::new(config, umem, pool, ports, now))
    }

    /// A shard that reaches nothing but itself: all its connections are between addresses of this host.
    /// `pool` has frames of `umem`.
    pub fn loopback_only(config: ShardConfig, umem: Umem, pool: FramePool, now: Instant) -> Self {
        Self::over(Datapath::new(config, umem, pool, Vec::new(), now))
    }

    fn over(dp: Datapath<P>) -> Self {
        Self {
            ctl: Ctl::new(&dp.config),
            to_transmit: false,
            quiet_until: None,
            tx: Tx::new(&dp),
            rx: Rx::new(&dp),
            rung: Vec::with_capacity(DOORBELLS_PER_CLIENT),
            dp,
        }
    }

    /// Sets the sink that is told which flows are known. Called before the first command.
    pub fn set_flow_sink(&mut self, flows: Box<dyn FlowSink>) {
        self.dp.conns.set_flow_sink(flows);
    }

    /// Its interface has other shards, and this is its place among them. Called before the first command.
    pub fn join(&mut self, siblings: Siblings) {
        self.dp.conns.set_flow_owners(siblings.own_flows());
        self.dp.tables.stags.join(siblings.passes().clone());
        self.dp.siblings = Some(siblings);
    }

    /// Does what there is to do now, within bounds, and says whether there was anything: then poll
    /// again soon.
    pub fn poll(&mut self, now: Instant) -> bool {
        self.poll_by(|| now)
    }

    /// As [`Self::poll`], with a clock, which is read first and after each batch of received frames.
    /// Otherwise frames would seem to arrive earlier than they did, when the thread has worked or waited for
    /// its core since the last reading. Measured round trips would then be shorter than the path's.
    pub fn poll_by(&mut self, clock: impl Fn() -> Instant) -> bool {
        self.dp.begin_pass();
        self.dp.advance(clock());
        let quiet = self.is_quiet();
        let worked = !quiet && self.work();
        let received = self.receive(&clock, !worked && !self.to_transmit);
        if quiet && !received {
            // What comes may be nothing that is received, and takes frames all the same.
            self.dp.refill();
            return false;
        }
        self.to_transmit |= received;
        self.flush_notifications();
        let worked = worked | self.to_transmit;
        self.quiet_until = (!worked).then(|| self.stays_quiet_until()).flatten();
        worked
    }

    /// Does all that there is to do but to receive; says whether there was anything that has been
    /// done.
    // By itself, so that what a poll takes that finds nothing lies together.
    #[inline(never)]
    fn work(&mut self) -> bool {
        let mut rested = self.rx.deferred().is_late(self.dp.now) && self.run_deferred();
        let mut worked = self.take_doorbells();
        if !worked {
            // Nothing answers what came, or not yet.
            rested |= self.run_deferred();
        }
        if !self.dp.holds.is_empty() {
            worked |= self.rx.run_holds(&mut self.dp, &mut self.tx, &mut self.ctl);
        }
        worked |= self.produce();
        worked |= self.tx.transmit(&mut self.dp);
        self.to_transmit = self.run_deferred();
        worked |= self.tx.take_completed(&mut self.dp) | rested;
        self.to_transmit |= self.ctl.run_timers(&mut self.dp, &mut self.tx);
        self.dp.refill();
        // Before the wake-ups: a program that waits for a frame must not wait for these.
        self.flush_notifications();
        worked
    }

    /// Handles CQs that failed, SRQ limit events, and memory that is gone, if there are
    /// any.
    #[inline]
    fn flush_notifications(&mut self) {
        if self.dp.tables.has_notifications() || self.ctl.has_new_faults() {
            self.flush_all_notifications();
        }
    }

    #[inline(never)]
    fn flush_all_notifications(&mut self) {
        self.ctl
            .fail_queue_pairs_of_dead_cqs(&mut self.dp, &mut self.tx);
        self.ctl.check_memory_faults(&mut self.dp);
        self.ctl.report_srq_limits(&mut self.dp);
        self.dp.tables.cqs.flush_wakeups();
    }

    /// Whether nothing but frames can have come since the last poll, which found nothing to do.
    #[inline]
    fn is_quiet(&self) -> bool {
        let silent = |client: &Client| client.faulted || client.doorbells.is_empty();
        self.quiet_until.is_some_and(|until| self.dp.now < until)
            && self.ctl.clients.iter().all(silent)
            && !self.ctl.has_new_faults()
    }

    /// How long an idle shard may skip the full poll: until its next deadline, if no frame is left with the
    /// link.
    fn stays_quiet_until(&mut self) -> Option<Instant> {
        let waits = self.tx.link.count() > 0 || self.tx.link.waiting.is_some() || self.dp.loops();
        let idle = self.tx.is_idle();
        let left = self.rx.deferred().is_waiting()
            || self.dp.stack.wants_transmit()
            || self.dp.sctp.stack.wants_transmit()
            || self.dp.tables.has_notifications()
            || !self.dp.holds.is_empty();
        if waits || !idle || left {
            return None;
        }
        let never = Instant::from_nanos(u64::MAX);
        Some(self.next_deadline().unwrap_or(never))
    }

    pub fn execute(&mut self, command: Command, now: Instant) -> Result<Answer, CommandError> {
        self.dp.begin_pass();
        self.dp.advance(now);
        self.quiet_until = None;
        self.run_deferred();
        let fragments = self.rx.fragments();
        self.ctl
            .execute(&mut self.dp, &mut self.tx, fragments, command)
    }

    /// The next thing to tell. The owner takes all of them after each poll and command.
    pub fn poll_event(&mut self) -> Option<ShardEvent> {
        self.ctl.events.pop_front()
    }

    /// Whether [`Self::poll_event`] has something to tell.
    pub fn has_events(&self) -> bool {
        !self.ctl.events.is_empty()
    }

    /// When [`Self::poll`] must be called next even if nothing comes; none when nothing is waited
    /// for.
    pub fn next_deadline(&mut self) -> Option<Instant> {
        if self.rx.deferred().is_waiting() {
            // By the time of the next poll: the last one's may be before the segment came.
            return Some(self.dp.now);
        }
        let link = (self.tx.link.count() > 0).then(|| self.dp.now + LINK_PATIENCE);
        let first = [
            self.dp.stack.next_deadline(),
            self.ctl.deadlines.next(),
            link,
            self.dp.holds.next_look(self.dp.now),
        ];
        let first = first.into_iter().flatten().min();
        match self.dp.sctp.next_deadline() {
            None => first,
            deadline => earlier(first, deadline),
        }
    }

    /// Asks clients to kick when they post. False: there is work, poll again instead
    /// of sleeping.
    pub fn prepare_sleep(&mut self) -> bool {
        let mut clients = self.ctl.clients.iter_mut().filter(|client| !client.faulted);
        let done = self.tx.is_idle();
        let idle = (done || self.tx.starved)
            && !self.to_transmit
            && !self.dp.loops()
            && clients.all(|client| client.doorbells.prepare_sleep());
        if idle {
            for port in &mut self.dp.ports {
                port.prepare_sleep(&mut self.dp.frames.pool);
            }
            if let Some(siblings) = &mut self.dp.siblings {
                siblings.handover().prepare_sleep();
                siblings.passes().sleep();
            }
        } else {
            self.wake_up();
        }
        idle
    }

    /// Tells clients that no kick is needed, until the next [`Self::prepare_sleep`].
    pub fn wake_up(&mut self) {
        for client in &mut self.ctl.clients {
            client.doorbells.wake_up();
        }
    }

    /// The descriptors of the ports and of what siblings hand over: readable when frames came.
    pub fn poll_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let siblings = self.dp.siblings.iter();
        let ports = self.dp.ports.iter().filter_map(Port::poll_fd);
        ports.chain(siblings.filter_map(Siblings::poll_fd))
    }

    /// Whether a port has no descriptor: then it must be polled.
    pub fn has_blind_port(&self) -> bool {
        let mut ports = self.dp.ports.iter();
        ports.any(|port| port.poll_fd().is_none())
    }

    /// The ports, for their statistics.
    pub fn ports(&self) -> &[P] {
        &self.dp.ports
    }

    /// What it handed over to other shards of its interface, and they to it.
    pub fn handover(&self) -> HandoverStatistics {
        let siblings = self.dp.siblings.as_ref();
        siblings.map(Siblings::statistics).unwrap_or_default()
    }

    /// How much longer the owner should poll before it lets go of the link for good, so that no peer is
    /// left without the last acknowledgment of its end ([`Stack::linger`]).
    pub fn linger(&self, now: Instant) -> Duration {
        self.dp.stack.linger(now)
    }

    /// How much of the shard's tables and frames is in use.
    pub fn levels(&self) -> Levels {
        levels(&self.dp, &self.tx)
    }

    pub fn qp_counters(&self) -> QpCounters {
        self.dp.tables.client_stats.total()
    }

    pub fn counters(&self) -> &ShardCounters {
        &self.dp.counters
    }

    /// Runs the deferred work of received segments; says whether there was any.
    #[inline]
    fn run_deferred(&mut self) -> bool {
        self.rx
            .run_deferred(&mut self.dp, &mut self.tx, &mut self.ctl)
    }

    /// Queue pairs produce, and what they ask for is seen to.
    fn produce(&mut self) -> bool {
        let worked = self.tx.produce(&mut self.dp);
        self.ctl.run_pending_updates(&mut self.dp, &mut self.tx);
        worked
    }

    fn take_doorbells(&mut self) -> bool {
        let mut worked = false;
        for index in 0..self.ctl.clients.len() {
            let client = &self.ctl.clients[index];
            // Most looks find none, and cost no more than that.
            if !client.faulted && !client.doorbells.is_empty() {
                worked = true;
                self.take_doorbells_of(index);
            }
        }
        worked
    }

    fn take_doorbells_of(&mut self, index: usize) {
        let client = &mut self.ctl.clients[index];
        let id = client.id;
        let mut rung = std::mem::take(&mut self.rung);
        let taken = client.doorbells.take(DOORBELLS_PER_CLIENT, &mut rung);
        self.tx.doorbells(&mut self.dp, id, &rung);
        self.ctl.run_pending_updates(&mut self.dp, &mut self.tx);
        rung.clear();
        self.rung = rung;
        if let Err(fault) = taken {
            let message = format!("its doorbell ring: {fault}");
            self.ctl
                .client_fault(&mut self.dp, id, RefusalCode::Malformed, message);
        }
    }
}
