//! Segments of no connection: SYNs to listeners, ACKs that bring a SYN cookie back, and the rest,
//! which is reset (RFC 9293 sections 3.10.7.1 and 3.10.7.2, RFC 4987).

use userspace_net::{Endpoint, FourTuple, Instant};

use crate::config::{Config, ConnOptions};
use crate::connection::{Connection, Seed, peer_mss};
use crate::interface::{ConnId, Received, State};
use crate::isn;
use crate::link::One;
use crate::segment::{Segment, TcpHeader};
use crate::syn_cookie::{self, Cookie};

use super::{Stack, is_unicast};

/// The name of what answers a SYN and is forgotten at once.
const NOBODY: ConnId = ConnId {
    index: u32::MAX,
    generation: 0,
};

impl<B> Stack<B> {
    pub(super) fn receive_stranger(
        &mut self,
        now: Instant,
        tuple: FourTuple,
        segment: &Segment<'_>,
        options: ConnOptions,
    ) -> Received {
        if !is_unicast(tuple.remote) || !is_unicast(tuple.local) {
            return Received::default();
        }
        let flags = segment.header.flags;
        match self.listener_for(tuple.local) {
            Some(local) if !flags.ack() => {
                let syn = flags.syn() && !flags.rst();
                let conn = syn.then(|| self.receive_syn(now, tuple, segment, options, local));
                Received {
                    conn: conn.flatten(),
                    ..Received::default()
                }
            }
            Some(local) if self.gave_cookies(local, now) && !flags.syn() && !flags.rst() => {
                self.receive_cookie(now, tuple, segment, options, local)
            }
            _ => {
                self.refuse(now, tuple, segment);
                Received::default()
            }
        }
    }

    /// A SYN to a listener: it makes a half-open connection, or gets a cookie.
    fn receive_syn(
        &mut self,
        now: Instant,
        tuple: FourTuple,
        segment: &Segment<'_>,
        options: ConnOptions,
        local: Endpoint,
    ) -> Option<ConnId> {
        let listener = self.listeners.get(&local)?;
        if listener.half_open.len() >= listener.backlog {
            if self.config.syn_cookies {
                self.answer_by_cookie(now, tuple, &segment.header, options, local);
                return None;
            }
            if !self.evict_half_open(self.overdue(listener)) {
                self.effects.counters.backlog_full += 1;
                return None;
            }
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

    /// Sends the SYN-ACK that a connection would send, without one.
    fn answer_by_cookie(
        &mut self,
        now: Instant,
        tuple: FourTuple,
        syn: &TcpHeader,
        options: ConnOptions,
        local: Endpoint,
    ) {
        let config = &self.config;
        let mss = peer_mss(&tuple, &syn.options);
        let cookie = Cookie::bake(&self.secret, config, now, &tuple, syn, mss);
        let seed = Seed {
            id: NOBODY,
            tuple,
            iss: cookie.sequence,
            timestamp_offset: isn::timestamp_offset(&self.secret, &tuple),
            options,
        };
        let segment = Segment::new(cookie.syn, &[]);
        let mut moment = Connection::<B>::passive(&seed, config, now, local, &segment);
        let mut syn_ack = One::default();
        moment.transmit(now, config, 1, &mut syn_ack);
        let Some(mut syn_ack) = syn_ack.segment.map(|syn_ack| syn_ack.header) else {
            return;
        };
        cookie.mark(&mut syn_ack);
        if !self.effects.cookie(tuple, syn_ack) {
            self.effects.counters.backlog_full += 1;
        } else if let Some(listener) = self.listeners.get_mut(&local) {
            listener.cookies_until = now + syn_cookie::LIFETIME;
        }
    }

    pub(super) fn gave_cookies(&self, local: Endpoint, now: Instant) -> bool {
        let listener = self.listeners.get(&local);
        listener.is_some_and(|listener| now < listener.cookies_until)
    }

    /// An ACK to a listener that gave cookies out: with a good one it completes a handshake.
    fn receive_cookie(
        &mut self,
        now: Instant,
        tuple: FourTuple,
        segment: &Segment<'_>,
        options: ConnOptions,
        local: Endpoint,
    ) -> Received {
        let header = &segment.header;
        let Some(syn) = syn_cookie::check(&self.secret, &self.config, now, &tuple, header) else {
            // No reset: it may be what an honest peer sends behind bytes that are lost or late,
            // or its ACK of a second SYN-ACK. It will send the first of them again, with the cookie.
            self.effects.counters.cookies_rejected += 1;
            return Received::default();
        };
        let syn = Segment::new(syn, &[]);
        let iss = header.ack.add(u32::MAX);
        let make = |seed: &Seed, config: &Config| {
            let seed = Seed { iss, ..*seed };
            Connection::from_cookie(&seed, config, now, local, &syn)
        };
        let Some(id) = self.add(now, tuple, options, make) else {
            self.effects.counters.table_full += 1;
            return Received::default();
        };
        let mut received = self.receive_for(now, id, segment);
        let connection = self.connections.get(id);
        if connection.is_some_and(|connection| connection.state() == State::SynReceived) {
            // It was not acceptable in some other way; no SYN queue bounds what is half-open here.
            self.remove(id);
            received.conn = None;
        } else {
            self.effects.counters.cookies_accepted += 1;
        }
        received
    }

    fn refuse(&mut self, now: Instant, tuple: FourTuple, segment: &Segment<'_>) {
        self.effects.counters.unknown_flow += 1;
        self.effects.reset_stranger(now, None, tuple, segment);
    }

    /// The listener by name, or the one for every address of the family.
    pub(super) fn listener_for(&self, local: Endpoint) -> Option<Endpoint> {
        let any = if local.addr.is_ipv4() {
            Endpoint::new(std::net::Ipv4Addr::UNSPECIFIED.into(), local.port)
        } else {
            Endpoint::new(std::net::Ipv6Addr::UNSPECIFIED.into(), local.port)
        };
        [local, any]
            .into_iter()
            .find(|end| self.listeners.contains_key(end))
    }

    pub(super) fn leave_backlog(&mut self, listener: Option<Endpoint>, index: u32) {
        if let Some(listener) = listener.and_then(|local| self.listeners.get_mut(&local)) {
            listener.half_open.remove(&mut self.state_links, index);
        }
    }
}
