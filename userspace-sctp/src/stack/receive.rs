//! A packet from the network: whose it is, and what answers one of no association (RFC 9260 sections 5.1, 5.2, 8.4).

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU64;

use userspace_net::Instant;

use super::{Stack, is_end};
use crate::addresses::Others;
use crate::association::{Answering, Association, Collision, Seed, Verdict};
use crate::cause::Cause;
use crate::cause::{self, Causes};
use crate::chunk::{Chunk, Init};
use crate::cookie::Returned;
use crate::effects::Env;
use crate::interface::{AssocId, Ends, Message, Route, State};
use crate::packet::{Packet, verify};
use crate::parameter::{Parameter, Parameters};
use crate::stateless::{Listening, answer_init, answer_stranger, is_alone};
use crate::tsn::Tsn;

impl<B: AsRef<[u8]>> Stack<B> {
    /// Takes a packet from the address `remote` to the address `local`. `deliver` is shown each of its messages at once,
    /// in whatever order they were sent. The association may be a new one, whose [`crate::Event::Incoming`] is
    /// fetched afterwards. `udp`: the source port, when the packet came in UDP to [`crate::Config::udp_port`].
    pub fn receive(
        &mut self,
        now: Instant,
        local: IpAddr,
        remote: IpAddr,
        udp: Option<u16>,
        bytes: &[u8],
        deliver: impl FnMut(AssocId, Message<'_>),
    ) {
        let packet = verify(bytes).and_then(|()| Packet::parse(bytes));
        let Ok(packet) = packet else {
            self.effects.counters.malformed += 1;
            return;
        };
        self.effects.counters.packets_in += 1;
        let ends = Ends {
            local: SocketAddr::new(local, packet.header.destination),
            remote: SocketAddr::new(remote, packet.header.source),
        };
        // Port 0 of UDP can't be answered.
        let is_in_vain = udp.is_some_and(|port| port == 0 || self.config.udp_port.is_none());
        if !is_end(ends.local) || !is_end(ends.remote) || is_in_vain {
            self.effects.counters.malformed += 1;
            return;
        }
        let route = Route { ends, udp };
        match packet.chunks().next() {
            Some(Chunk::Init(init)) => self.receive_init(now, route, &packet, &init),
            Some(Chunk::CookieEcho(cookie)) => {
                self.receive_cookie(now, route, &packet, cookie, deliver);
            }
            first => {
                let id = match self.associations.find(&ends) {
                    None => self.named_by(&ends, first),
                    found => found,
                };
                match id {
                    Some(id) => self.receive_for(now, id, route, &packet, deliver),
                    None => self.receive_stranger(now, route, &packet),
                }
            }
        }
    }

    /// The association is found by all addresses of its peer, but for those that another one has.
    pub(super) fn learn_addresses(&mut self, id: AssocId) {
        let Some(association) = self.associations.get_mut(id) else {
            return;
        };
        let Some(aliases) = association.new_aliases() else {
            return;
        };
        self.associations.set_aliases(id, aliases.clone());
        let is_its = |ends: &Ends| self.associations.find(ends) == Some(id);
        let its: Vec<Ends> = aliases.into_iter().filter(is_its).collect();
        if let Some(association) = self.associations.get_mut(id) {
            association.keep_paths(|ends| its.contains(ends));
        }
    }

    /// Takes an address from an association whose peer claims it and was not found there, for somebody else, who does not
    /// list that peer's first address.
    pub(super) fn release_claim(&mut self, now: Instant, ends: &Ends, listed: Parameters<'_>) {
        let Some(id) = self.associations.find(ends) else {
            return;
        };
        let association = self.associations.get_mut(id);
        let association = association.filter(|association| {
            let first = association.ends().remote.ip();
            let mut listed = listed.iter();
            !listed.any(|parameter| parameter == Parameter::Address(first))
        });
        if association.is_some_and(|association| association.withdraw(ends.remote.ip())) {
            self.learn_addresses(id);
            self.settle(id, now);
        }
    }

    /// A packet of an association's ends.
    fn receive_for(
        &mut self,
        now: Instant,
        id: AssocId,
        route: Route,
        packet: &Packet<'_>,
        mut deliver: impl FnMut(AssocId, Message<'_>),
    ) {
        let Some((association, mut env)) = self.at(id, now) else {
            return;
        };
        let verdict = association.receive(packet, route, &mut env, |message| deliver(id, message));
        self.learn_addresses(id);
        self.settle(id, now);
        match verdict {
            Verdict::Taken => {}
            Verdict::WrongTag => self.effects.counters.wrong_tags += 1,
            Verdict::Stranger => self.receive_stranger(now, route, packet),
        }
    }

    /// An INIT ACK may come from another address of the peer, and then names the one that we know (section 5.1.2).
    fn named_by(&self, ends: &Ends, first: Option<Chunk<'_>>) -> Option<AssocId> {
        match first {
            Some(Chunk::InitAck(init)) => self.named_in(ends, init.parameters),
            _ => None,
        }
    }

    /// An association with one of the addresses that an INIT or INIT ACK lists.
    fn named_in(&self, ends: &Ends, parameters: Parameters<'_>) -> Option<AssocId> {
        let addresses = parameters.iter().filter_map(|parameter| match parameter {
            Parameter::Address(address) => Some(address),
            _ => None,
        });
        let mut listed = addresses.map(|address| Ends {
            local: ends.local,
            remote: SocketAddr::new(address, ends.remote.port()),
        });
        listed.find_map(|ends| self.associations.find(&ends))
    }

    /// Nothing is kept of an INIT, whatever there is already.
    fn receive_init(&mut self, now: Instant, route: Route, packet: &Packet<'_>, init: &Init<'_>) {
        let ends = route.ends;
        if !is_alone(packet) {
            self.effects.counters.inits_refused += 1;
            return;
        }
        self.release_claim(now, &ends, init.parameters);
        let mut numbers = (None, None);
        if let Some(id) = self.associations.find(&ends) {
            let Some(association) = self.associations.get_mut(id) else {
                return;
            };
            let remote = ends.remote.ip();
            let current = association.route_to(remote).and_then(|to| to.udp);
            if current != route.udp {
                let cause = Cause::RestartWithNewPort {
                    current: current.unwrap_or(0),
                    new: route.udp.unwrap_or(0),
                };
                return self.refuse_restart(now, route, init, &cause);
            }
            let others = Others::of(init.parameters, ends, self.config.other_addresses());
            let mut new = others.iter();
            let new = new.find(|address| !association.has_listed(*address));
            // Before the INIT ACK only one address of the peer is known.
            if let Some(new) = new.filter(|_| association.state() != State::CookieWait) {
                return self.refuse_address(now, route, new, init);
            }
            match association.on_init() {
                Answering::InitAck { own, tie } => numbers = (own, tie),
                Answering::Nothing => return self.settle(id, now),
            }
        } else if let Some(id) = self.named_in(&ends, init.parameters) {
            return self.receive_init_for(now, id, route, packet, init);
        } else if !self.is_listening(ends.local) {
            return self.receive_stranger(now, route, packet);
        }
        self.answer(now, route, packet, init, numbers);
    }

    /// An INIT from an address that is new to the association that it names (section 5.1.2).
    fn receive_init_for(
        &mut self,
        now: Instant,
        id: AssocId,
        route: Route,
        packet: &Packet<'_>,
        init: &Init<'_>,
    ) {
        let new = route.ends.remote.ip();
        let association = self.associations.get_mut(id);
        let asking = association.filter(|of| of.state() == State::CookieWait);
        let Some(association) = asking.filter(|_| self.config.other_addresses() > 0) else {
            return self.refuse_address(now, route, new, init);
        };
        // Both have asked. The answer goes to the address that the layer above has named (section 5.2.1).
        let first = association.route();
        if let Answering::InitAck { own, tie } = association.on_init() {
            self.answer(now, first, packet, init, (own, tie));
        }
    }

    /// An association would get another address (sections 5.2.1, 5.2.2).
    fn refuse_address(&mut self, now: Instant, route: Route, new: IpAddr, init: &Init<'_>) {
        let mut bytes = [0; 20];
        let mut writer = crate::parameter::Writer::new(&mut bytes);
        // It fits.
        let _ = writer.put(&Parameter::Address(new));
        let len = writer.finish();
        let cause = Cause::RestartWithNewAddresses(&bytes[..len]);
        self.refuse_restart(now, route, init, &cause);
    }

    /// An INIT that would change what an association has with its peer.
    fn refuse_restart(&mut self, now: Instant, route: Route, init: &Init<'_>, cause: &Cause<'_>) {
        self.effects.counters.inits_refused += 1;
        if init.tag != 0 && self.answers.permit(now) {
            self.effects.abort(route, init.tag, false, cause);
        }
    }

    /// `numbers`: our tag and TSN if an association has them already, and its tie tags.
    fn answer(
        &mut self,
        now: Instant,
        route: Route,
        packet: &Packet<'_>,
        init: &Init<'_>,
        numbers: (Option<(u32, Tsn)>, Option<NonZeroU64>),
    ) {
        let ends = route.ends;
        let (own, tie) = numbers;
        let (tag, initial_tsn) = match own {
            Some(own) => own,
            None => (self.fresh_tag(), self.random.tsn()),
        };
        let listening = Listening {
            offer: self.config.offer(),
            secret: &self.secret,
            local: ends.local,
            remote: ends.remote,
            other_addresses: self.config.other_addresses(),
            now,
            tag,
            initial_tsn,
            tie,
        };
        let mut is_refused = false;
        self.effects.answer(route, |out| {
            answer_init(packet, init, &listening, out).map_or(0, |answer| {
                is_refused = answer.refusal.is_some();
                answer.len
            })
        });
        self.effects.counters.inits_refused += u64::from(is_refused);
    }

    fn receive_cookie(
        &mut self,
        now: Instant,
        route: Route,
        packet: &Packet<'_>,
        cookie: &[u8],
        deliver: impl FnMut(AssocId, Message<'_>),
    ) {
        let ends = route.ends;
        let returned = self.secret.check(cookie, now, ends.local, ends.remote);
        // The packet's tag is the cookie's (section 5.1.5, step 3).
        let tag = packet.header.tag;
        let returned = returned.ok().filter(|of| of.state.tags.local == tag);
        let Some(returned) = returned else {
            self.effects.counters.foreign_cookies += 1;
            return;
        };
        // The cookie may come from another address of the peer than its INIT.
        let first = Ends {
            remote: returned.state.remote,
            ..ends
        };
        let found = self.associations.find(&first);
        let id = match found.or_else(|| self.associations.find(&ends)) {
            Some(id) => self.collide(now, id, route, &returned),
            None => self.accept(now, route, first, packet, &returned),
        };
        if let Some(id) = id {
            self.receive_for(now, id, route, packet, deliver);
        }
    }

    /// A cookie for ends that have an association.
    fn collide(
        &mut self,
        now: Instant,
        id: AssocId,
        route: Route,
        returned: &Returned,
    ) -> Option<AssocId> {
        let tag = returned.state.tags.local;
        let is_others = self.associations.find_tag(tag).is_some_and(|of| of != id);
        if is_others {
            return None;
        }
        let (association, mut env) = self.at(id, now)?;
        let collision = association.on_cookie(returned, &mut env);
        let tag = association.tags().local;
        self.associations.set_tag(id, tag);
        self.settle(id, now);
        match collision {
            Collision::Accepted => Some(id),
            Collision::Restarted | Collision::Discarded => None,
            Collision::Stale => {
                self.tell_stale(now, route, returned);
                None
            }
        }
    }

    /// A cookie for ends that have none: here an association begins.
    fn accept(
        &mut self,
        now: Instant,
        route: Route,
        first: Ends,
        packet: &Packet<'_>,
        returned: &Returned,
    ) -> Option<AssocId> {
        if returned.late.is_some() {
            self.tell_stale(now, route, returned);
            return None;
        }
        if !self.is_listening(route.ends.local) {
            self.receive_stranger(now, route, packet);
            return None;
        }
        let state = &returned.state;
        let (tag, tsn) = (state.tags.local, state.local_tsn);
        if self.associations.find_tag(tag).is_some() {
            return None;
        }
        let Self {
            associations,
            config,
            random,
            effects,
            ..
        } = self;
        let id = associations.insert(first, tag, |id| {
            let seed = Seed {
                id,
                route: Route {
                    ends: first,
                    udp: route.udp,
                },
                tag,
                tsn,
            };
            let association = Association::passive(seed, state, config, random, now);
            association.announce(&mut Env {
                now,
                config,
                random,
                effects,
            });
            association
        });
        if id.is_none() {
            self.effects.counters.associations_refused += 1;
            if self.answers.permit(now) {
                let tag = state.tags.remote;
                self.effects.abort(route, tag, false, &Cause::OutOfResource);
            }
        }
        id
    }

    /// Section 5.1.5.
    fn tell_stale(&mut self, now: Instant, route: Route, returned: &Returned) {
        self.effects.counters.stale_cookies += 1;
        if self.answers.permit(now) {
            let mut causes = [0; 8];
            let mut writer = cause::Writer::new(&mut causes);
            // It fits.
            let _ = writer.put(&Cause::StaleCookie(returned.late.unwrap_or_default()));
            let len = writer.finish();
            let error = Chunk::Error(Causes::new(&causes[..len]));
            self.effects
                .farewell(route, returned.state.tags.remote, &error);
        }
    }

    /// A packet out of the blue (section 8.4). One from an address that an association's peer did not tell us of gets
    /// no answer: an ABORT with its tag would end that association.
    fn receive_stranger(&mut self, now: Instant, route: Route, packet: &Packet<'_>) {
        let ends = route.ends;
        self.effects.counters.strangers += 1;
        let known = self.associations.find_tag(packet.header.tag);
        let known = known.and_then(|id| self.associations.get(id));
        let is_peers = known.is_some_and(|association| {
            let of = association.ends();
            of != ends
                && (of.local.port(), of.remote.port()) == (ends.local.port(), ends.remote.port())
        });
        if is_peers || !self.answers.permit(now) {
            return;
        }
        // Silence is an answer of no bytes.
        self.effects
            .answer(route, |out| answer_stranger(packet, out).unwrap_or(0));
    }
}
