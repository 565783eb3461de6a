//! Segments in and out: to whom one belongs, and whose turn it is to send.

use crate::config::{Config, ConnOptions};
use crate::connection::{Connection, Seed};
use crate::ecn::Ecn;
use crate::effects::Env;
use crate::interface::{ConnId, Received, State, Transmit};
use crate::segment::Segment;
use crate::slab::Named;
use crate::time::Instant;
use crate::tuple::{Endpoint, FourTuple};

use super::{Stack, is_unicast};

impl<B> Stack<B> {
    /// Takes a segment whose checksum is right. `options` are for the connection that it may open.
    pub fn receive(
        &mut self,
        now: Instant,
        tuple: FourTuple,
        segment: &Segment<'_>,
        options: ConnOptions,
    ) -> Received {
        self.now = now;
        if let Some(id) = self.find(&tuple) {
            if !self.reopens(&tuple, id, segment) {
                return self.receive_for(now, id, segment);
            }
            self.end_time_wait(id);
        }
        let conn = self.receive_stranger(now, tuple, segment, options);
        Received {
            conn,
            ..Received::default()
        }
    }

    /// The next segment to put on the link now; fetch until `None`.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Transmit<B>> {
        while let Some(index) = self.ready.pop(&mut self.ready_links) {
            let Some(connection) = self.connections.at_mut(index) else {
                continue;
            };
            let id = connection.id();
            let transmit = connection.transmit(now, &self.config);
            if transmit.is_some() {
                self.settle(id);
                return transmit;
            }
        }
        let (tuple, header) = self.effects.take_reset()?;
        Some(Transmit {
            conn: None,
            tuple,
            header,
            payload: None,
            ecn: Ecn::NotEct,
            fragment_to: None,
        })
    }

    /// The connection of a flow.
    pub(super) fn find(&self, tuple: &FourTuple) -> Option<ConnId> {
        let is_it = |connection: &&Connection<B>| connection.tuple() == *tuple;
        let of = |index| self.connections.at(index).filter(is_it);
        let hash = self.secret.flow(tuple);
        let index = self.flows.find(hash, |index| of(index).is_some())?;
        of(index).map(Named::id)
    }

    fn receive_for(&mut self, now: Instant, id: ConnId, segment: &Segment<'_>) -> Received {
        let Some(connection) = self.connections.get_mut(id) else {
            return Received::default();
        };
        let half_open_of = connection.half_open_of();
        let state = connection.state();
        let mut env = Env {
            now,
            config: &self.config,
            effects: &mut self.effects,
            pools: &mut self.pools,
        };
        let mut received = connection.on_segment(&mut env, segment);
        if connection.is_gone() {
            received.conn = None;
        }
        let left_backlog = half_open_of.is_some() && connection.half_open_of().is_none();
        let in_time_wait = connection.state() == State::TimeWait && state != State::TimeWait;
        if left_backlog {
            self.leave_backlog(half_open_of, id.index);
        }
        if in_time_wait {
            self.time_waits.push(&mut self.state_links, id.index);
        }
        self.settle(id);
        received
    }

    fn receive_stranger(
        &mut self,
        now: Instant,
        tuple: FourTuple,
        segment: &Segment<'_>,
        options: ConnOptions,
    ) -> Option<ConnId> {
        if !is_unicast(tuple.remote) || !is_unicast(tuple.local) {
            return None;
        }
        let flags = segment.header.flags;
        let Some(local) = self.listener_for(tuple.local).filter(|_| !flags.ack()) else {
            self.effects.counters.unknown_flow += 1;
            self.effects.reset_stranger(now, tuple, segment);
            return None;
        };
        if flags.rst() || !flags.syn() || flags.fin() {
            return None;
        }
        let listener = self.listeners.get(&local)?;
        let full = listener.half_open.len() >= listener.backlog;
        if full && !self.evict_half_open(self.overdue(listener)) {
            self.effects.counters.backlog_full += 1;
            return None;
        }
        let make =
            |seed: &Seed, config: &Config| Connection::passive(seed, config, now, local, segment);
        let id = self.add(now, tuple, options, make);
        match id {
            Some(id) => {
                if let Some(listener) = self.listeners.get_mut(&local) {
                    listener.half_open.push(&mut self.state_links, id.index);
                }
            }
            None => self.effects.counters.table_full += 1,
        }
        id
    }

    /// The listener by name, or the one for every address of the family.
    fn listener_for(&self, local: Endpoint) -> Option<Endpoint> {
        let any = if local.addr.is_ipv4() {
            Endpoint::new(std::net::Ipv4Addr::UNSPECIFIED.into(), local.port)
        } else {
            Endpoint::new(std::net::Ipv6Addr::UNSPECIFIED.into(), local.port)
        };
        [local, any]
            .into_iter()
            .find(|end| self.listeners.contains_key(end))
    }

    fn reopens(&self, tuple: &FourTuple, id: ConnId, segment: &Segment<'_>) -> bool {
        self.connections
            .get(id)
            .is_some_and(|connection| connection.gives_way_to(segment))
            && self.listener_for(tuple.local).is_some()
    }

    pub(super) fn leave_backlog(&mut self, listener: Option<Endpoint>, index: u32) {
        if let Some(listener) = listener.and_then(|local| self.listeners.get_mut(&local)) {
            listener.half_open.remove(&mut self.state_links, index);
        }
    }
}
