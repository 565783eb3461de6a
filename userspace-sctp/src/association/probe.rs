//! The size of packets (RFC 9260 section 7.3): what ICMP errors, timeouts and the first link say of it, and probes
//! that find more (RFC 8899 section 6.2). A probe is a HEARTBEAT that a PAD chunk (RFC 4820) makes as large as what is
//! tried. So no data is lost with it, and its loss is neither a sign of congestion nor an error of the path.

use std::time::Duration;

use userspace_net::Instant;

use super::Association;
use super::heartbeat::{info, write_info};
use crate::chunk::Chunk;
use crate::config::pmdcs;
use crate::effects::Env;
use crate::interface::{Event, Transmit};
use crate::packet::{HEADER_LEN, Header, Writer};
use crate::tlv::{HEAD_LEN, NoRoom};
use crate::tsn::Tsn;

/// PROBE_TIMER is more than this (RFC 8899 section 5.1.1).
const PATIENCE: Duration = Duration::from_secs(15);

/// What is known of the last probe, and of the packet that waits for an acknowledgment.
#[derive(Debug, Default)]
pub(super) struct Probing {
    /// What the probe says that nobody else can know, and when it was sent; until it is answered or given up.
    sent: Option<(u64, Instant)>,
    /// The earliest TSN that is outstanding, and the bytes of the packet that carried it.
    carried: Option<(Tsn, usize)>,
}

impl Probing {
    /// A packet of `len` bytes carries the earliest TSN.
    pub(super) const fn carried(&mut self, earliest: Tsn, len: usize) {
        self.carried = Some((earliest, len));
    }
}

impl<B> Association<B> {
    /// Bytes of the SCTP packet that is wanted as a probe.
    pub(super) fn wanted_probe(&self) -> Option<usize> {
        let len = self.path.mtu.wanted_probe();
        len.filter(|_| self.has_heartbeats())
    }

    /// Writes a probe, if one is wanted and `out` has room for it.
    pub(super) fn write_probe(&mut self, out: &mut [u8], env: &mut Env<'_, B>) -> Option<Transmit> {
        let len = self.wanted_probe()?;
        let header = Header {
            source: self.ends.local.port(),
            destination: self.ends.remote.port(),
            tag: self.tags.remote,
        };
        let mut writer = Writer::new(out.get_mut(..len)?, header).ok()?;
        let written = write_info(&mut writer, env).and_then(|sent| {
            let len = writer.room().checked_sub(HEAD_LEN).ok_or(NoRoom {
                needed: HEAD_LEN,
                room: writer.room(),
            })?;
            writer.chunk(&Chunk::Pad { len })?;
            Ok(sent)
        });
        self.probing.sent = Some(written.ok()?);
        self.path.mtu.probe_sent();
        self.timers.probe = Some(env.now + PATIENCE + self.path.rto.get());
        env.effects.counters.mtu_probes += 1;
        Some(Transmit {
            ends: self.ends,
            udp: self.path.udp_ports(env.config),
            len: writer.finish(),
            fragment_to: None,
        })
    }

    /// Whether a HEARTBEAT ACK is the probe's.
    pub(super) fn on_probe_ack(&mut self, found: &[u8], env: &mut Env<'_, B>) -> bool {
        let is_ours = |(nonce, sent): &mut (u64, Instant)| info(*nonce, *sent) == *found;
        if self.probing.sent.take_if(is_ours).is_none() {
            return false;
        }
        self.timers.probe = None;
        self.peer_answers(env);
        if self.path.mtu.probe_arrived(env.now) {
            self.resize_packets(env);
        }
        self.ask_mtu(env);
        true
    }

    pub(super) fn on_probe_timer(&mut self, now: Instant) {
        self.probing.sent = None;
        let alone = self.is_calm();
        self.path.mtu.probe_lost(now, alone);
    }

    /// None is sent any more.
    pub(super) fn end_probing(&mut self) {
        self.timers.probe = None;
        self.probing.sent = None;
    }

    /// The peer has acknowledged something: a probe may be wanted now.
    pub(super) fn ask_mtu(&mut self, env: &mut Env<'_, B>) {
        let calm = self.is_calm();
        if self.path.mtu.progress(env.now, calm) {
            self.resize_packets(env);
        }
    }

    /// Nothing is lost.
    fn is_calm(&self) -> bool {
        let Self { path, outbound, .. } = self;
        path.errors == 0 && !path.congestion.is_in_fast_recovery() && !outbound.has_lost()
    }

    /// T3-rtx expired: large packets may get lost without an ICMP error (RFC 8899 section 4.3).
    pub(super) fn doubt_mtu(&mut self, env: &mut Env<'_, B>) {
        let earliest = self.outbound.earliest();
        let carried = self.probing.carried.filter(|(tsn, _)| *tsn == earliest);
        let least = HEADER_LEN + self.outbound.earliest_bytes();
        let len = carried.map_or(least, |(_, len)| len);
        if self.path.mtu.timed_out(len) {
            self.resize_packets(env);
        }
    }

    /// A router says that no IP packet of more than `mtu` bytes passes. `false`: that can't be so.
    pub(crate) fn on_too_big(&mut self, env: &mut Env<'_, B>, mtu: usize) -> bool {
        let Some(is_other) = self.path.mtu.too_big(env.now, mtu) else {
            return false;
        };
        if is_other {
            self.resize_packets(env);
            self.outbound.lose_larger(pmdcs(self.path.packet_max()));
            self.burst = env.config.max_burst;
        }
        true
    }

    /// The first link takes IP packets of `mtu` bytes.
    pub(crate) fn on_link_mtu(&mut self, env: &mut Env<'_, B>, mtu: usize) {
        if self.path.mtu.first_link(mtu) {
            self.resize_packets(env);
        }
    }

    /// Of the association before its restart, because the path is the same.
    pub(super) fn keep_mtu(&mut self, before: &mut Self, now: Instant) {
        std::mem::swap(&mut self.path.mtu, &mut before.path.mtu);
        self.path.mtu.probe_lost(now, false);
        self.path.resized();
        self.pending.resize(self.path.packet_max());
    }

    /// A packet with the right tag came in UDP from this port, or without UDP (RFC 6951 section 5.4).
    pub(super) fn heard_by(&mut self, udp: Option<u16>, env: &mut Env<'_, B>) {
        if self.path.udp == udp {
            return;
        }
        self.path.udp = udp;
        if self.path.mtu.encapsulate(udp.is_some()) {
            self.resize_packets(env);
        }
    }

    fn resize_packets(&mut self, env: &mut Env<'_, B>) {
        self.path.resized();
        self.pending.resize(self.path.packet_max());
        let message_max = self.message_max();
        self.event(env, Event::MtuChanged { message_max });
    }
}
