//! Packets of an association (RFC 9260 sections 6.1, 6.10): control chunks first, then data as far as the windows and
//! the packet's size allow.

use userspace_net::Instant;

use super::{Association, WindowProbe};
use crate::chunk::{Chunk, Data, GapBlock, Init, Sack};
use crate::effects::Env;
use crate::inbound::arrivals::{DUPLICATES_MAX, RANGES_MAX};
use crate::interface::Transmit;
use crate::packet::{HEADER_LEN, Header, Writer};
use crate::parameter::{self, Parameter, Parameters};
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
                || self.may_send_data()
                || self.wanted_probe().is_some())
    }

    /// Writes the next packet to `out`.
    pub(crate) fn transmit(&mut self, out: &mut [u8], env: &mut Env<'_, B>) -> Option<Transmit> {
        if let Some(probe) = self.write_probe(out, env) {
            return Some(probe);
        }
        let packet_max = self.path.packet_max();
        let oversize = self.oversize().filter(|_| !self.pending.any());
        let limit = oversize.unwrap_or(packet_max).min(out.len());
        let header = Header {
            source: self.ends.local.port(),
            destination: self.ends.remote.port(),
            tag: if self.pending.init {
                0
            } else {
                self.tags.remote
            },
        };
        let mut writer = Writer::new(&mut out[..limit], header).ok()?;
        // What does not fit stays where it is, for the next packet.
        let _ = match self.pending.init {
            true => self.write_init(&mut writer, env),
            false => self.write_chunks(&mut writer, env),
        };
        let len = match writer.is_empty() {
            true => return None,
            false => writer.finish(),
        };
        Some(Transmit {
            ends: self.ends,
            udp: self.path.udp_ports(env.config),
            len,
            fragment_to: self.path.mtu.fragment_to(len),
        })
    }

    /// The size of a packet for a chunk that was posted when the path took larger ones.
    fn oversize(&self) -> Option<usize> {
        let next = self.outbound.next_bytes(self.may_probe())?;
        let needed = HEADER_LEN + next;
        (needed > self.path.packet_max()).then_some(needed)
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
        writer: &mut Writer<'_>,
        env: &mut Env<'_, B>,
    ) -> Result<(), NoRoom> {
        if self.pending.cookie_echo {
            writer.chunk(&Chunk::CookieEcho(&self.opening.cookie))?;
            self.pending.cookie_echo = false;
            self.write_early(writer, env)?;
        }
        if self.pending.cookie_ack {
            writer.chunk(&Chunk::CookieAck)?;
            self.pending.cookie_ack = false;
        }
        if !self.pending.answers().is_empty() {
            writer.chunks(self.pending.answers())?;
            self.pending.answered();
        }
        if self.wants_sack(writer, env.now) {
            self.write_sack(writer)?;
        }
        if self.pending.shutdown {
            let cumulative = self.inbound.arrivals.cumulative();
            writer.chunk(&Chunk::Shutdown { cumulative })?;
            self.pending.shutdown = false;
        }
        if self.pending.shutdown_ack {
            writer.chunk(&Chunk::ShutdownAck)?;
            self.pending.shutdown_ack = false;
        }
        if self.pending.heartbeat {
            self.write_heartbeat(writer, env)?;
        }
        self.write_data(writer, env)
    }

    /// A SACK is due, or goes along with data that leaves room for it (section 6.1).
    fn wants_sack(&self, writer: &Writer<'_>, now: Instant) -> bool {
        let Some(due) = self.inbound.acks.due() else {
            return false;
        };
        let next = || self.outbound.next_bytes(self.may_probe());
        let fits = |next| SACK_LEN + next <= writer.room();
        due <= now || self.may_send_data() && next().is_some_and(fits)
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
        if !self.sends_data() || self.outbound.next_bytes(self.may_probe()).is_none() {
            return false;
        }
        let allowed = self.path.congestion.may_send(self.outbound.flight()) && self.burst > 0;
        allowed || self.fast && self.outbound.has_lost()
    }

    /// Chunks until the packet is full. The congestion window was looked at for the packet, which may exceed it (rule
    /// B of section 6.1); a fast retransmission without room in it takes lost chunks alone.
    fn write_data(&mut self, writer: &mut Writer<'_>, env: &mut Env<'_, B>) -> Result<(), NoRoom> {
        let now = env.now;
        if !self.may_send_data() {
            return Ok(());
        }
        let flight = self.outbound.flight();
        let is_allowed = self.path.congestion.may_send(flight) && self.burst > 0;
        self.path.sends(now, !self.outbound.is_outstanding());
        let (mut is_any, mut has_earliest) = (false, false);
        while let Some(bytes) = self.outbound.next_bytes(self.may_probe()) {
            let is_lost = self.outbound.has_lost();
            if bytes > writer.room() || !(is_allowed || is_lost) {
                break;
            }
            has_earliest |= self.write_next(writer, env)? == Some(self.outbound.earliest());
            is_any = true;
        }
        if has_earliest {
            self.probing.carried(self.outbound.earliest(), writer.len());
        }
        if is_any {
            self.fast = false;
            self.burst = self.burst.saturating_sub(1);
            self.arm_t3(now);
        }
        Ok(())
    }

    /// Data in the packet of a COOKIE ECHO (section 5.1, C). It is the only packet with data until the COOKIE ACK comes.
    /// One that was not answered may have been too large for the path: the next one is as small as can be.
    fn write_early(&mut self, writer: &mut Writer<'_>, env: &mut Env<'_, B>) -> Result<(), NoRoom> {
        while self.opening.unanswered == 0
            && let Some(bytes) = self.outbound.next_bytes(false)
            && bytes <= writer.room()
        {
            self.write_next(writer, env)?;
        }
        Ok(())
    }

    /// Writes the next chunk, which fits; gives its TSN.
    fn write_next(
        &mut self,
        writer: &mut Writer<'_>,
        env: &mut Env<'_, B>,
    ) -> Result<Option<Tsn>, NoRoom> {
        let now = env.now;
        let is_probe = self.may_probe() && self.outbound.needs_probe();
        let Some(transmission) = self.outbound.transmit(now, is_probe) else {
            return Ok(None);
        };
        if is_probe {
            self.window_probe = WindowProbe::Sent;
        }
        env.effects.counters.chunks_out += 1;
        if transmission.again {
            env.effects.counters.retransmits += 1;
            self.path.sent_again(now);
            if transmission.tsn == self.outbound.earliest() {
                self.timers.t3 = None;
            }
        }
        let Some(message) = self.outbound.buffer(transmission.tsn) else {
            return Ok(None);
        };
        writer.chunk(&Chunk::Data(Data {
            tsn: transmission.tsn,
            stream: message.stream,
            sequence: 0,
            protocol: message.protocol,
            unordered: true,
            begin: true,
            end: true,
            immediate: false,
            payload: message.buffer.as_ref(),
        }))?;
        Ok(Some(transmission.tsn))
    }
}

impl<B> Association<B> {
    /// T3-rtx runs as long as something is outstanding, or a closed window is to be probed.
    pub(super) fn arm_t3(&mut self, now: Instant) {
        let is_wanted = self.sends_data()
            && (self.outbound.is_outstanding()
                || self.outbound.needs_probe() && self.window_probe == WindowProbe::None);
        self.timers.t3 = match (is_wanted, self.timers.t3) {
            (false, _) => None,
            (true, Some(at)) => Some(at),
            (true, None) => Some(now + self.path.rto.get()),
        };
    }
}
