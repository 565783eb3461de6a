//! All associations and listeners of one shard: which one gets a packet, sends next, or is late.
//!
//! Idle associations cost nothing here: those with something to send stand in a queue, those with a deadline in a timing
//! wheel.

mod receive;

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use userspace_net::Instant;
use userspace_net::limit::RateLimit;
use userspace_net::links::{Links, Queue};
use userspace_net::wheel::Wheel;

use crate::addresses::is_of_a_host;
use crate::association::{Association, Seed};
use crate::config::Config;
use crate::cookie::Secret;
use crate::effects::{Effects, Env};
use crate::interface::{
    AssocId, ConnectError, Counters, Ends, Event, IcmpError, IcmpQuote, InUse, Info, Outgoing,
    PathInfo, PostError, Refused, Route, State, Transmit,
};
use crate::parameter::Parameters;
use crate::path::ports;
use crate::random::{Keyed, Random};
use crate::table::Table;

/// The SCTP of one shard: listeners and associations. `B` is the caller's buffer of a message.
#[derive(Debug)]
pub struct Stack<B> {
    config: Config,
    random: Random,
    /// Of State Cookies.
    secret: Secret,
    associations: Table<Association<B>>,
    listeners: HashSet<SocketAddr>,
    /// Associations that may have something to send.
    ready: Queue,
    ready_links: Links,
    deadlines: Wheel,
    effects: Effects<B>,
    answers: RateLimit,
}

impl<B: AsRef<[u8]>> Stack<B> {
    /// Nothing listens, nothing is associated. `secret` must be random, stay secret, and be another one after each
    /// start: it makes tags, TSNs, nonces and State Cookies.
    pub fn new(config: Config, secret: [u8; 16], now: Instant) -> Self {
        let mut random = Random::new(secret);
        Self {
            secret: Secret::new(random.key()),
            associations: Table::new(config.associations, Keyed::new(random.key())),
            listeners: HashSet::new(),
            ready: Queue::default(),
            ready_links: Links::new(config.associations),
            deadlines: Wheel::new(now, config.associations),
            effects: Effects::new(),
            answers: RateLimit::new(config.answers_per_second),
            random,
            config,
        }
    }

    /// Makes State Cookies by a secret of its own. Stacks that have it in common, and the clock, take each other's
    /// cookies: a COOKIE ECHO may come to another one than its INIT. Tags and TSNs stay each stack's own.
    #[must_use]
    pub const fn with_cookies_of(mut self, secret: [u8; 16]) -> Self {
        self.secret = Secret::new(secret);
        self
    }

    /// The settings given to [`Stack::new`].
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Another [`Config::user_timeout`] from now on. One that runs keeps its length.
    pub const fn set_user_timeout(&mut self, timeout: Option<Duration>) {
        self.config.user_timeout = timeout;
    }

    /// Accepts associations to `local`; an unspecified address means every address of its family. An INIT costs no
    /// memory; the layer above hears of each association that is established, and aborts what it does not want.
    ///
    /// # Errors
    /// Somebody listens there.
    pub fn listen(&mut self, local: SocketAddr) -> Result<(), InUse> {
        match self.listeners.insert(local) {
            true => Ok(()),
            false => Err(InUse { local }),
        }
    }

    /// Accepts no more there; associations stay. `false` when nobody listened.
    pub fn unlisten(&mut self, local: SocketAddr) -> bool {
        self.listeners.remove(&local)
    }

    /// Begins an association, in UDP if the peer's port for that is given. The INIT comes out of [`Stack::poll_transmit`].
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub fn connect(
        &mut self,
        now: Instant,
        route: impl Into<Route>,
    ) -> Result<AssocId, ConnectError> {
        let route = route.into();
        let Route { ends, udp } = route;
        let one_family = ends.local.is_ipv4() == ends.remote.is_ipv4();
        if !one_family || !is_end(ends.local) || !is_end(ends.remote) {
            return Err(ConnectError::BadEnds { ends });
        }
        if udp.is_some() && self.config.udp_port.is_none() {
            return Err(ConnectError::NoUdpPort);
        }
        self.release_claim(now, &ends, Parameters::default());
        if self.associations.find(&ends).is_some() {
            return Err(ConnectError::InUse { ends });
        }
        let tag = self.fresh_tag();
        let tsn = self.random.tsn();
        let Self {
            associations,
            config,
            random,
            effects,
            ..
        } = self;
        let limit = associations.limit();
        let id = associations.insert(ends, tag, |id| {
            let mut env = Env {
                now,
                config,
                random,
                effects,
            };
            let seed = Seed {
                id,
                route,
                tag,
                tsn,
            };
            Association::active(seed, &mut env)
        });
        let id = id.ok_or(ConnectError::TooMany { limit })?;
        self.settle(id, now);
        Ok(id)
    }

    /// Takes a message to send in one chunk. Before the association is established it has stream 0 only; what is posted
    /// then goes with the first State Cookie, as far as its packet has room (section 5.1). Its buffer comes back by
    /// [`Stack::poll_released`], when the peer has acknowledged it and all that was posted before, or the association
    /// is gone.
    ///
    /// # Errors
    /// The buffer, and why it was not taken.
    pub fn post(
        &mut self,
        now: Instant,
        id: AssocId,
        message: Outgoing<B>,
    ) -> Result<(), Refused<B>> {
        let Some((association, env)) = self.at(id, now) else {
            return Err(Refused {
                buffer: message.buffer,
                error: PostError::Gone,
            });
        };
        association.post(&env, message)?;
        self.settle(id, now);
        Ok(())
    }

    /// Bytes of the longest message that [`Stack::post`] takes; 0 when the association is gone. A message of that size
    /// leaves no room for a SACK, which then goes in a packet of its own.
    pub fn message_max(&self, id: AssocId) -> usize {
        let association = self.associations.get(id);
        association.map_or(0, Association::message_max)
    }

    /// Whether [`Stack::post`] takes messages at all: the association is established, and neither side shuts it down.
    pub fn takes_messages(&self, id: AssocId) -> bool {
        let association = self.associations.get(id);
        association.is_some_and(|association| association.state() == State::Established)
    }

    /// Chunks that can be posted; 0 when the association is gone.
    pub fn room(&self, id: AssocId) -> usize {
        self.associations.get(id).map_or(0, Association::room)
    }

    /// The layer above needs so many bytes of messages no more: the receive window opens by them.
    pub fn consumed(&mut self, now: Instant, id: AssocId, bytes: usize) {
        if let Some(association) = self.associations.get_mut(id) {
            association.consumed(now, bytes);
            self.settle(id, now);
        }
    }

    /// Shuts the association down: what was posted is sent, nothing more is taken, and messages of the peer come until
    /// it has sent all of its own. [`Event::Closed`] is the end. One that is not established yet is gone at once,
    /// without an event. `false` when it was gone already.
    pub fn close(&mut self, now: Instant, id: AssocId) -> bool {
        self.change(now, id, |association, env| association.close(env))
    }

    /// Aborts the association, which is gone at once, without an event. `reason` is shown to the peer's user. `false`
    /// when it was gone already.
    pub fn abort(&mut self, now: Instant, id: AssocId, reason: &[u8]) -> bool {
        self.change(now, id, |association, env| association.abort(reason, env))
    }

    /// An ICMP error quotes a packet of ours. `false` when no association can have sent it, so that off-path senders can't
    /// forge one blindly, or when it may not be heeded (section 10).
    pub fn icmp(&mut self, now: Instant, quote: &IcmpQuote, error: IcmpError) -> bool {
        let Some(id) = self.associations.find(&quote.ends) else {
            return false;
        };
        let Some(association) = self.associations.get(id) else {
            return false;
        };
        let tags = association.tags();
        let is_valid = match quote.init_tag {
            // Only an INIT goes without tag, and only as long as it is not answered.
            Some(init_tag) => {
                quote.tag == 0 && init_tag == tags.local && association.state() == State::CookieWait
            }
            None => quote.tag != 0 && quote.tag == tags.remote,
        };
        is_valid
            && match error {
                // An address that the peer is not known to have says nothing of it.
                IcmpError::NoProtocol if !association.is_confirmed(quote.ends.remote.ip()) => false,
                IcmpError::NoProtocol => {
                    self.change(now, id, |association, env| association.has_no_protocol(env))
                }
                IcmpError::PacketTooBig { mtu } => {
                    let mut is_believed = false;
                    self.change(now, id, |association, env| {
                        is_believed = association.on_too_big(quote.ends.remote.ip(), env, mtu);
                    });
                    is_believed
                }
            }
    }

    /// What happened, oldest first. Fetch until `None` after each [`Stack::receive`] and [`Stack::advance`].
    pub fn poll_event(&mut self) -> Option<(AssocId, Event)> {
        self.effects.events.pop_front()
    }

    /// Whether [`Stack::poll_event`] has one.
    pub fn has_events(&self) -> bool {
        !self.effects.events.is_empty()
    }

    /// A buffer that nobody needs any more. Fetch until `None`.
    pub fn poll_released(&mut self) -> Option<B> {
        self.effects.released.pop_front()
    }

    /// Writes the next packet to `out`, which should have room for [`Config::mtu`] bytes. `None`: there is nothing to
    /// send.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut [u8]) -> Option<Transmit> {
        if let Some((route, len)) = self.effects.answers.pop(out) {
            self.effects.counters.packets_out += 1;
            return Some(Transmit {
                assoc: None,
                ends: route.ends,
                udp: ports(&self.config, route.udp),
                len,
                fragment_to: None,
            });
        }
        while let Some(index) = self.ready.pop(&mut self.ready_links) {
            let Some(id) = self.associations.id_at(index) else {
                continue;
            };
            let Some((association, mut env)) = self.at(id, now) else {
                continue;
            };
            let transmit = association.transmit(out, &mut env);
            // What has sent stands at the end again, if there is more.
            if transmit.is_some() {
                self.effects.counters.packets_out += 1;
                self.settle(id, now);
                return transmit;
            }
            let deadline = association.deadline(now);
            self.deadlines.set(id.index, deadline);
        }
        None
    }

    /// Whether [`Stack::poll_transmit`] may have a packet.
    #[inline]
    pub fn wants_transmit(&self) -> bool {
        self.ready.first().is_some() || !self.effects.answers.is_empty()
    }

    pub fn find(&self, ends: &Ends) -> Option<AssocId> {
        self.associations.find(ends)
    }

    /// The first link of its path takes IP packets of at most so many bytes, from here on.
    pub fn limit_mtu(&mut self, now: Instant, id: AssocId, mtu: usize) {
        self.change(now, id, |association, env| {
            association.on_link_mtu(env, mtu);
        });
    }

    /// Its packets to an address of the peer go another way from here on: what is known of congestion was of the old one
    /// (section 7.2.5.2).
    pub fn path_moved(&mut self, now: Instant, id: AssocId, remote: IpAddr) {
        self.change(now, id, |association, _| association.path_moved(remote));
    }

    /// Of the peer's addresses beside the first, only those are used for which this holds. To be called with
    /// [`Event::Incoming`] or [`Event::Established`], when nothing was sent to any of them yet.
    pub fn keep_addresses(&mut self, now: Instant, id: AssocId, is_kept: impl Fn(IpAddr) -> bool) {
        if let Some(association) = self.associations.get_mut(id) {
            association.keep_paths(|ends| is_kept(ends.remote.ip()));
        }
        self.learn_addresses(id);
        self.settle(id, now);
    }

    /// When [`Stack::advance`] has to be called at the latest.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.next()
    }

    /// Lets time pass: retransmissions, delayed SACKs, heartbeats, ends of waiting.
    pub fn advance(&mut self, now: Instant) {
        while let Some(index) = self.deadlines.pop(now) {
            if let Some(id) = self.associations.id_at(index) {
                self.change(now, id, |association, env| association.advance(env));
            }
        }
    }

    /// A look at an association; `None` when it is gone.
    pub fn info(&self, id: AssocId) -> Option<Info> {
        self.associations.get(id).map(Association::info)
    }

    /// A look at its paths, the primary one first; none when it is gone.
    pub fn paths(&self, id: AssocId) -> impl Iterator<Item = PathInfo> + '_ {
        let association = self.associations.get(id);
        association.into_iter().flat_map(Association::path_infos)
    }

    /// The associations that there are. Not for the data path.
    pub fn associations(&self) -> impl Iterator<Item = AssocId> + '_ {
        self.associations.ids()
    }

    /// What it has sent and received, and what was done with the rest.
    pub const fn counters(&self) -> Counters {
        self.effects.counters
    }

    fn at(&mut self, id: AssocId, now: Instant) -> Option<(&mut Association<B>, Env<'_, B>)> {
        let association = self.associations.get_mut(id)?;
        let env = Env {
            now,
            config: &self.config,
            random: &mut self.random,
            effects: &mut self.effects,
        };
        Some((association, env))
    }

    /// `false` when the association is gone already.
    fn change(
        &mut self,
        now: Instant,
        id: AssocId,
        how: impl FnOnce(&mut Association<B>, &mut Env<'_, B>),
    ) -> bool {
        let Some((association, mut env)) = self.at(id, now) else {
            return false;
        };
        how(association, &mut env);
        self.settle(id, now);
        true
    }

    /// After anything that may have changed an association: takes it away, or puts it where it belongs.
    fn settle(&mut self, id: AssocId, now: Instant) {
        let Some(association) = self.associations.get(id) else {
            return;
        };
        if association.is_gone() {
            self.deadlines.set(id.index, None);
            self.ready.remove(&mut self.ready_links, id.index);
            self.associations.remove(id);
            return;
        }
        self.deadlines.set(id.index, association.deadline(now));
        if !self.ready_links.contains(id.index) && association.wants_transmit(now) {
            self.ready.push(&mut self.ready_links, id.index);
        }
    }

    /// A Verification Tag that no association of ours has.
    fn fresh_tag(&mut self) -> u32 {
        loop {
            let tag = self.random.tag();
            if self.associations.find_tag(tag).is_none() {
                return tag;
            }
        }
    }

    /// Whether somebody listens on an address and port.
    fn is_listening(&self, local: SocketAddr) -> bool {
        let any: IpAddr = match local {
            SocketAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
        };
        let any = SocketAddr::new(any, local.port());
        self.listeners.contains(&local) || self.listeners.contains(&any)
    }
}

/// Whether it can be an end of an association.
fn is_end(end: SocketAddr) -> bool {
    end.port() != 0 && is_of_a_host(end.ip())
}
