//! Packets of an association (RFC 9260 sections 6.1, 6.10): control chunks first, then data as far as the windows and
//! the packet's size allow.

use std::time::Duration;

use userspace_net::Instant;

use super::{Association, WindowProbe};
use crate::chunk::{Chunk, Data, GapBlock, Init, Sack};
use crate::effects::Env;
use crate::inbound::arrivals::{DUPLICATES_MAX, RANGES_MAX};
use crate::interface::Transmit;
use crate::outbound::Next;
use crate::packet::{HEADER_LEN, Writer};
use crate::parameter::{self, Parameter, Parameters};
use crate::path::Path;
use crate::tlv::NoRoom;
use crate::tsn::Tsn;

/// Bytes of a SACK without blocks and duplicates.
const SACK_LEN: usize = 16;

/// Bytes of a block, and of a duplicate.
const ENTRY_LEN: usize = 4;

/// Bytes of the parameters of our INIT: adaptation, cookie preservative, address types.
const INIT_PARAMETERS_MAX: usize = 32;

impl<B: AsRef<[u8]>> Association<B> {
    /// Whether there is something to send.
    pub(crate) fn wants_transmit(&self, now: Instant) -> bool {
        let sack_is_due = self.inbound.acks.due().is_some_and(|due| due <= now);
        !self.is_gone()
            && (self.pending.any()
                || sack_is_due
                || self.paths.iter().any(|path| path.heartbeat.is_pending)
                || self.may_send_data()
                || self.wanted_probe().is_some())
    }

    /// Writes the next packet to `out`.
    pub(crate) fn transmit(&mut self, out: &mut [u8], env: &mut Env<'_, B>) -> Option<Transmit> {
        if let Some(probe) = self.write_probe(out, env) {
            return Some(probe);
        }
        let at = self.packet_path(env.now);
        let packet_max = self.paths[at].packet_max();
        let oversize = self.oversize(at).filter(|_| !self.pending.any());
        let limit = oversize.unwrap_or(packet_max).min(out.len());
        let is_init = self.pending.init;
        let header = self.header(if is_init { 0 } else { self.tags.remote });
        let mut writer = Writer::new(&mut out[..limit], header).ok()?;
        // What does not fit stays where it is, for the next packet.
        let _ = match is_init {
            true => self.write_init(&mut writer, env),
            false => self.write_chunks(at, &mut writer, env),
        };
        let len = match writer.is_empty() {
            true => return None,
            false => writer.finish(),
        };
        let path = &self.paths[at];
        Some(Transmit {
            assoc: Some(self.id),
            ends: path.route(self.ends).ends,
            udp: path.udp_ports(env.config),
            len,
            fragment_to: path.mtu.fragment_to(len),
        })
    }

    /// The path of the next packet.
    fn packet_path(&self, now: Instant) -> usize {
        let is_pending = |path: &Path| path.heartbeat.is_pending;
        let is_due = |due: Instant| due <= now;
        if self.pending.init || self.pending.cookie_echo {
            0
        } else if self.pending.any() {
            self.control_path()
        } else if let Some(at) = self.paths.iter().position(is_pending) {
            at
        } else if self.inbound.acks.due().is_some_and(is_due) {
            self.sack_path()
        } else {
            self.next_chunk().map_or(0, |(at, _)| at)
        }
    }

    /// The path and the bytes of the next chunk.
    fn next_chunk(&self) -> Option<(usize, usize)> {
        let Next { bytes, lost } = self.outbound.peek(self.may_probe())?;
        let at = match lost {
            Some(lost) => self.path_again(lost),
            None => self.data_path(),
        };
        Some((at, bytes))
    }

    /// The bytes of the next chunk, if it goes on this path.
    fn next_bytes(&self, on: usize) -> Option<usize> {
        self.next_chunk()
            .and_then(|(at, bytes)| (at == on).then_some(bytes))
    }

    /// The size of a packet for a chunk that was posted when the path took larger ones.
    fn oversize(&self, at: usize) -> Option<usize> {
        let needed = HEADER_LEN + self.next_bytes(at)?;
        (needed > self.paths[at].packet_max()).then_some(needed)
    }

    fn write_init(&mut self, writer: &mut Writer<'_>, env: &Env<'_, B>) -> Result<(), NoRoom> {
        let offer = env.config.offer();
        let mut bytes = [0; INIT_PARAMETERS_MAX];
        let mut parameters = parameter::Writer::new(&mut bytes);
        if let Some(code) = offer.adaptation {
            parameters.put(&Parameter::Adaptation(code))?;
        }
        if let Some(time) = self.opening.preservative {
            parameters.put(&Parameter::CookiePreservative(time))?;
        }
        let v6 = self.ends.local.is_ipv6();
        parameters.put(&Parameter::AddressTypes { v4: !v6, v6 })?;
        let len = parameters.finish();
        writer.chunk(&Chunk::Init(Init {
            tag: self.tags.local,
            window: offer.window,
            outbound_streams: offer.outbound_streams,
            inbound_streams: offer.inbound_streams,
            initial_tsn: self.local_tsn,
            parameters: Parameters::new(&bytes[..len]),
        }))?;
        self.pending.init = false;
        Ok(())
    }

    fn write_chunks(
        &mut self,
        at: usize,
        writer: &mut Writer<'_>,
        env: &mut Env<'_, B>,
    ) -> Result<(), NoRoom> {
        if self.pending.cookie_echo {
            writer.chunk(&Chunk::CookieEcho(&self.opening.cookie))?;
            self.pending.cookie_echo = false;
            self.write_early(writer, env)?;
        }
        let is_control = at == self.control_path();
        if is_control {
            self.write_answers(writer)?;
        }
        if self.wants_sack(at, writer, env.now) {
            self.write_sack(writer)?;
        }
        if is_control {
            self.write_shutdown(writer)?;
        }
        if self.paths[at].heartbeat.is_pending {
            self.write_heartbeat(at, writer, env)?;
        }
        self.write_data(at, writer, env)
    }

    /// What answers control chunks of the peer's.
    fn write_answers(&mut self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        if self.pending.cookie_ack {
            writer.chunk(&Chunk::CookieAck)?;
            self.pending.cookie_ack = false;
        }
        if !self.pending.answers().is_empty() {
            writer.chunks(self.pending.answers())?;
            self.pending.answered();
        }
        Ok(())
    }

    fn write_shutdown(&mut self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        if self.pending.shutdown {
            let cumulative = self.inbound.arrivals.cumulative();
            writer.chunk(&Chunk::Shutdown { cumulative })?;
            self.pending.shutdown = false;
        }
        if self.pending.shutdown_ack {
            writer.chunk(&Chunk::ShutdownAck)?;
            self.pending.shutdown_ack = false;
        }
        Ok(())
    }

    /// A SACK is due on this path, or goes along with data that leaves room for it (section 6.1).
    fn wants_sack(&self, at: usize, writer: &Writer<'_>, now: Instant) -> bool {
        let Some(due) = self.inbound.acks.due() else {
            return false;
        };
        let fits = |next| SACK_LEN + next <= writer.room();
        let goes_along = || self.may_send_data() && self.next_bytes(at).is_some_and(fits);
        at == self.sack_path() && (due <= now || goes_along())
    }

    /// As many blocks as fit, then as many duplicates (section 6.7).
    fn write_sack(&mut self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        let arrivals = &self.inbound.arrivals;
        let entries = writer.room().saturating_sub(SACK_LEN) / ENTRY_LEN;
        let mut blocks = [[0; ENTRY_LEN]; RANGES_MAX];
        let mut count = 0;
        for (place, block) in blocks.iter_mut().zip(arrivals.blocks()).take(entries) {
            *place = GapBlock::bytes(block);
            count += 1;
        }
        let mut duplicates = [[0; ENTRY_LEN]; DUPLICATES_MAX];
        let mut named = 0;
        let places = duplicates.iter_mut().take(entries - count);
        for (place, tsn) in places.zip(arrivals.duplicates()) {
            *place = tsn.0.to_be_bytes();
            named += 1;
        }
        let sack = Sack::new(
            arrivals.cumulative(),
            self.inbound.window.offer(),
            blocks[..count].as_flattened(),
            duplicates[..named].as_flattened(),
        );
        writer.chunk(&Chunk::Sack(sack))?;
        self.inbound.arrivals.acknowledged();
        self.inbound.acks.sent();
        Ok(())
    }

    fn may_probe(&self) -> bool {
        self.window_probe == WindowProbe::Due
    }

    /// Whether a packet with data may go.
    fn may_send_data(&self) -> bool {
        let Some((at, _)) = self.next_chunk().filter(|_| self.sends_data()) else {
            return false;
        };
        self.is_allowed(at) || self.paths[at].fast && self.outbound.has_lost()
    }

    /// The congestion window of a path takes another packet, and the burst.
    fn is_allowed(&self, at: usize) -> bool {
        let flight = self.outbound.flight_on(at);
        self.paths[at].congestion.may_send(flight) && self.burst > 0
    }

    /// Chunks until the packet is full. The congestion window was looked at for the packet, which may exceed it (rule
    /// B of section 6.1); a fast retransmission without room in it takes lost chunks alone.
    fn write_data(
        &mut self,
        at: usize,
        writer: &mut Writer<'_>,
        env: &mut Env<'_, B>,
    ) -> Result<(), NoRoom> {
        let now = env.now;
        if !self.may_send_data() || self.next_bytes(at).is_none() {
            return Ok(());
        }
        let is_allowed = self.is_allowed(at);
        let is_idle = self.outbound.outstanding_on(at) == 0;
        self.paths[at].sends(now, is_idle);
        let (mut first, mut has_earliest) = (None, is_idle);
        while let Some(bytes) = self.next_bytes(at) {
            let is_lost = self.outbound.has_lost();
            if bytes > writer.room() || !(is_allowed || is_lost) {
                break;
            }
            let Some(tsn) = self.write_next(at, writer, env)? else {
                break;
            };
            has_earliest |= tsn == self.outbound.earliest();
            first = first.or(Some(tsn));
        }
        if let Some(first) = first {
            let path = &mut self.paths[at];
            path.fast = false;
            if has_earliest {
                path.carried = Some((first, writer.len()));
            }
            self.burst = self.burst.saturating_sub(1);
            self.arm_t3(env);
        }
        Ok(())
    }

    /// Data in the packet of a COOKIE ECHO (section 5.1, C). It is the only packet with data until the COOKIE ACK comes.
    /// One that was not answered may have been too large for the path: the next one is as small as can be.
    fn write_early(&mut self, writer: &mut Writer<'_>, env: &mut Env<'_, B>) -> Result<(), NoRoom> {
        while self.opening.unanswered == 0
            && let Some(next) = self.outbound.peek(false)
            && next.bytes <= writer.room()
        {
            self.write_next(0, writer, env)?;
        }
        Ok(())
    }

    /// Writes the next chunk, which fits; gives its TSN.
    fn write_next(
        &mut self,
        at: usize,
        writer: &mut Writer<'_>,
        env: &mut Env<'_, B>,
    ) -> Result<Option<Tsn>, NoRoom> {
        let now = env.now;
        let is_probe = self.may_probe() && self.outbound.needs_probe();
        let Some(transmission) = self.outbound.transmit(now, is_probe, at) else {
            return Ok(None);
        };
        if is_probe {
            self.window_probe = WindowProbe::Sent;
        } else if !transmission.again {
            self.probes = 0;
        }
        env.effects.counters.chunks_out += 1;
        if transmission.again {
            env.effects.counters.retransmits += 1;
            self.counters.retransmits += 1;
            self.paths[at].sent_again(now);
            if transmission.tsn == self.outbound.earliest() {
                self.paths[at].timers.t3 = None;
            }
        }
        let Some(message) = self.outbound.buffer(transmission.tsn) else {
            return Ok(None);
        };
        let payload = message.buffer.as_ref();
        if !transmission.again {
            self.counters.bytes_out += payload.len() as u64;
        }
        writer.chunk(&Chunk::Data(Data {
            tsn: transmission.tsn,
            stream: message.stream,
            sequence: 0,
            protocol: message.protocol,
            unordered: true,
            begin: true,
            end: true,
            immediate: false,
            payload,
        }))?;
        Ok(Some(transmission.tsn))
    }
}

impl<B> Association<B> {
    /// T3-rtx of a path runs as long as something is outstanding there, or a closed window is to be probed. So does the
    /// user timeout as long as anything is.
    pub(super) fn arm_t3(&mut self, env: &Env<'_, B>) {
        let now = env.now;
        let waits_for_window =
            self.outbound.needs_probe() && self.window_probe == WindowProbe::None;
        let data_path = self.data_path();
        // Each probe of a closed window doubles the interval (section 6.1, rule A), whether its data is taken or not.
        let doublings = self.probes.saturating_sub(u32::from(!waits_for_window));
        let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
        let probing = |rto: Duration| rto.saturating_mul(factor).min(env.config.rto.max);
        for at in 0..self.paths.len() {
            let is_outstanding = self.outbound.flight_on(at) > 0
                || self.outbound.outstanding_on(at) > 0 && self.outbound.flight() == 0;
            let is_wanted =
                self.sends_data() && (is_outstanding || waits_for_window && at == data_path);
            let path = &mut self.paths[at];
            path.timers.t3 = match (is_wanted, path.timers.t3) {
                (false, _) => None,
                (true, Some(at)) => Some(at),
                (true, None) => Some(now + probing(path.rto.get())),
            };
        }
        let is_awaited = self.sends_data() && self.outbound.is_outstanding();
        self.timers.user = match (is_awaited, self.timers.user) {
            (false, _) => None,
            (true, Some(at)) => Some(at),
            (true, None) => env.config.user_timeout.map(|timeout| now + timeout),
        };
    }
}
