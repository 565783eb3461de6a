//! The size of packets (RFC 9260 section 7.3): what ICMP errors, timeouts and the first link say of it, and probes
//! that find more (RFC 8899 section 6.2). A probe is a HEARTBEAT that a PAD chunk (RFC 4820) makes as large as what is
//! tried. So no data is lost with it, and its loss is neither a sign of congestion nor an error of the path.

use std::net::IpAddr;
use std::time::Duration;

use userspace_net::Instant;

use super::Association;
use super::heartbeat::{info, write_info};
use crate::chunk::Chunk;
use crate::config::pmdcs;
use crate::effects::Env;
use crate::interface::{Event, Transmit};
use crate::packet::{HEADER_LEN, Writer};
use crate::tlv::{HEAD_LEN, NoRoom};

/// PROBE_TIMER is more than this (RFC 8899 section 5.1.1).
const PATIENCE: Duration = Duration::from_secs(15);

impl<B> Association<B> {
    /// A path that wants a probe, and the bytes of its SCTP packet.
    pub(super) fn wanted_probe(&self) -> Option<(usize, usize)> {
        let mut wanted = self.paths.iter().enumerate().filter_map(|(at, path)| {
            let len = path.mtu.wanted_probe()?;
            Some((at, len)).filter(|_| path.is_confirmed)
        });
        wanted.next().filter(|_| self.has_heartbeats())
    }

    /// Writes a probe, if one is wanted and `out` has room for it.
    pub(super) fn write_probe(&mut self, out: &mut [u8], env: &mut Env<'_, B>) -> Option<Transmit> {
        let (at, len) = self.wanted_probe()?;
        let header = self.header(self.tags.remote);
        let mut writer = Writer::new(out.get_mut(..len)?, header).ok()?;
        let written = write_info(&mut writer, env).and_then(|sent| {
            let len = writer.room().checked_sub(HEAD_LEN).ok_or(NoRoom {
                needed: HEAD_LEN,
                room: writer.room(),
            })?;
            writer.chunk(&Chunk::Pad { len })?;
            Ok(sent)
        });
        let path = &mut self.paths[at];
        path.probe = Some(written.ok()?);
        path.mtu.probe_sent();
        path.timers.probe = Some(env.now + PATIENCE + path.rto.get());
        env.effects.counters.mtu_probes += 1;
        Some(Transmit {
            assoc: Some(self.id),
            ends: path.route(self.ends).ends,
            udp: path.udp_ports(env.config),
            len: writer.finish(),
            fragment_to: None,
        })
    }

    /// Whether a HEARTBEAT ACK is a probe's.
    pub(super) fn on_probe_ack(&mut self, found: &[u8], env: &mut Env<'_, B>) -> bool {
        let is_sent = |(nonce, sent): &(u64, Instant)| info(*nonce, *sent) == *found;
        let is_its = |sent: Option<(u64, Instant)>| sent.as_ref().is_some_and(is_sent);
        let at = self.paths.iter().position(|path| is_its(path.probe));
        let Some(at) = at else {
            return false;
        };
        let path = &mut self.paths[at];
        (path.probe, path.timers.probe) = (None, None);
        let is_other = path.mtu.probe_arrived(env.now);
        self.peer_answers(at, env);
        if is_other {
            self.resize_packets(at, env);
        }
        self.ask_mtu(at, env);
        true
    }

    pub(super) fn on_probe_timer(&mut self, at: usize, now: Instant) {
        let alone = self.is_calm(at);
        let path = &mut self.paths[at];
        path.probe = None;
        path.mtu.probe_lost(now, alone);
    }

    /// The peer has acknowledged something of a path: a probe may be wanted now.
    pub(super) fn ask_mtu(&mut self, at: usize, env: &mut Env<'_, B>) {
        let calm = self.is_calm(at);
        if self.paths[at].mtu.progress(env.now, calm) {
            self.resize_packets(at, env);
        }
    }

    /// Nothing is lost.
    fn is_calm(&self, at: usize) -> bool {
        let path = &self.paths[at];
        path.errors == 0 && !path.congestion.is_in_fast_recovery() && !self.outbound.has_lost()
    }

    /// T3-rtx expired, and what is under way is not lost yet: large packets may get lost without an ICMP error
    /// (RFC 8899 section 4.3).
    pub(super) fn doubt_mtu(&mut self, at: usize, env: &mut Env<'_, B>) {
        let path = &mut self.paths[at];
        let Some((earliest, bytes)) = self.outbound.earliest_on(at) else {
            return;
        };
        let carried = path.carried.filter(|(tsn, _)| *tsn == earliest);
        let len = carried.map_or(HEADER_LEN + bytes, |(_, len)| len);
        if path.mtu.timed_out(len) {
            self.resize_packets(at, env);
        }
    }

    /// A router of a path says that no IP packet of more than `mtu` bytes passes. `false`: that can't be so.
    pub(crate) fn on_too_big(&mut self, remote: IpAddr, env: &mut Env<'_, B>, mtu: usize) -> bool {
        let Some(at) = self.path_to(remote) else {
            return false;
        };
        let Some(is_other) = self.paths[at].mtu.too_big(env.now, mtu) else {
            return false;
        };
        if is_other {
            self.resize_packets(at, env);
            let most = pmdcs(self.paths[at].packet_max());
            self.outbound.lose_larger(at, most);
            self.burst = env.config.max_burst;
        }
        true
    }

    /// The first link of all paths takes IP packets of `mtu` bytes.
    pub(crate) fn on_link_mtu(&mut self, env: &mut Env<'_, B>, mtu: usize) {
        self.link_mtu = Some(mtu.min(self.link_mtu.unwrap_or(mtu)));
        for at in 0..self.paths.len() {
            if self.paths[at].mtu.first_link(mtu) {
                self.resize_packets(at, env);
            }
        }
    }

    /// Of the association before its restart, because the paths are the same.
    pub(super) fn keep_mtu(&mut self, before: &mut Self, now: Instant) {
        self.link_mtu = before.link_mtu;
        for path in &mut self.paths {
            let same = before.paths.iter_mut().find(|of| of.remote == path.remote);
            if let Some(same) = same {
                std::mem::swap(&mut path.mtu, &mut same.mtu);
                path.mtu.probe_lost(now, false);
                path.resized();
            }
        }
        self.pending.resize(self.packet_max());
    }

    /// A packet with the right tag came in UDP from this port, or without UDP (RFC 6951 section 5.4).
    pub(super) fn heard_by(&mut self, at: usize, udp: Option<u16>, env: &mut Env<'_, B>) {
        let path = &mut self.paths[at];
        if path.udp == udp {
            return;
        }
        path.udp = udp;
        if path.mtu.encapsulate(udp.is_some()) {
            self.resize_packets(at, env);
        }
    }

    /// The packets of a path have another size.
    fn resize_packets(&mut self, at: usize, env: &mut Env<'_, B>) {
        self.paths[at].resized();
        self.pending.resize(self.packet_max());
        let message_max = self.message_max();
        self.event(env, Event::MtuChanged { message_max });
    }
}
