//! The next segment to send (RFC 9293 section 3.7, RFC 6675 section 5).

use crate::config::{Config, CongestionControl};
use crate::ecn::Ecn;
use crate::interface::{Payload, State, Transmit};
use crate::options::{Options, Timestamps};
use crate::outbound::Outgo;
use crate::resent::Cause;
use crate::segment::{Flags, TcpHeader};
use crate::seq::SeqNum;
use crate::time::Instant;

use super::Connection;
use super::timeout::Timer;

/// What to send next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Syn,
    /// An ACK with SACK blocks, if there is something to tell.
    Ack,
    /// A window probe, or a keep-alive.
    Probe,
    /// The next lost segment.
    Lost,
    /// The last segment that was sent, as a tail loss probe.
    Tail,
    Unsent,
    Fin,
}

impl<B> Connection<B> {
    /// Whether [`Connection::transmit`] has something to give.
    pub(crate) fn wants_transmit(&self) -> bool {
        self.next_action().is_some()
    }

    /// Gives the next segment.
    #[inline]
    pub(crate) fn transmit(&mut self, now: Instant, config: &Config) -> Option<Transmit<B>> {
        self.pacer.advance(now);
        match self.next_action()? {
            Action::Unsent => self.transmit_unsent(now, config),
            other => self.transmit_other(other, now, config),
        }
    }

    /// Gives the next segment that was never sent. Apart from all others, because nearly every
    /// segment is one: its header is made where it is to be, and not moved.
    #[inline]
    fn transmit_unsent(&mut self, now: Instant, config: &Config) -> Option<Transmit<B>> {
        let ecn = self.ecn_field(Action::Unsent, config);
        let idle = now.saturating_duration_since(self.last_data_at);
        if !self.outbound.outstanding() {
            self.congestion.resumed(now, idle > self.rtt.rto(config));
            self.restart_model(now);
        }
        self.probe_due = false;
        self.note_first_outstanding(now);
        let outgo = self.outbound.take_unsent(now)?;
        self.counters.octets_out += u64::from(outgo.payload.len);
        self.on_sent(now, u64::from(outgo.payload.len));
        self.frto.sent_new();
        if std::mem::take(&mut self.tail_probe_due) {
            self.on_probe_sent(false);
        } else {
            self.schedule_probe(now);
        }
        let cwr = self.ecn.sends_capable() && self.congestion.take_cwr();
        let (mut header, payload) = self.with_payload(now, outgo);
        if cwr {
            header.flags |= Flags::CWR;
        }
        Some(self.depart(now, config, ecn, header, payload))
    }

    #[inline(never)]
    fn transmit_other(
        &mut self,
        action: Action,
        now: Instant,
        config: &Config,
    ) -> Option<Transmit<B>> {
        let ecn = self.ecn_field(action, config);
        let (header, payload) = match action {
            Action::Unsent => return self.transmit_unsent(now, config),
            Action::Syn => (self.syn(now, config), None),
            Action::Ack => {
                let mut header = self.header(now, self.idle_seq(), Flags::ACK);
                header.options.sack = self.inbound.sack_blocks(header.options.sack_room());
                (header, None)
            }
            Action::Probe => {
                self.probe_due = false;
                self.keepalive.due = false;
                (
                    self.header(now, self.outbound.probe_seq(), Flags::ACK),
                    None,
                )
            }
            Action::Lost => {
                if !std::mem::take(&mut self.force_lost) {
                    self.frto.give_up();
                }
                let outgo = self.outbound.take_lost(now)?;
                self.on_resent(now, &outgo);
                self.with_payload(now, outgo)
            }
            Action::Tail => {
                self.tail_probe_due = false;
                let outgo = self.outbound.take_tail(now)?;
                self.resent.begin(self.outbound.una(), Cause::Probe);
                self.on_resent(now, &outgo);
                self.on_probe_sent(true);
                self.with_payload(now, outgo)
            }
            Action::Fin => {
                self.note_first_outstanding(now);
                let seq = self.outbound.take_fin(now);
                if std::mem::take(&mut self.tail_probe_due) {
                    self.on_probe_sent(true);
                } else {
                    self.schedule_probe(now);
                }
                (self.header(now, seq, Flags::ACK | Flags::FIN), None)
            }
        };
        Some(self.depart(now, config, ecn, header, payload))
    }

    /// A segment leaves.
    #[inline]
    fn depart(
        &mut self,
        now: Instant,
        config: &Config,
        ecn: Ecn,
        header: TcpHeader,
        payload: Option<Payload<B>>,
    ) -> Transmit<B> {
        let fragment_to = payload
            .as_ref()
            .and_then(|payload| self.fragment_to(now, header.seq, payload));
        self.counters.segments_out += 1;
        if payload.is_some() {
            self.last_data_at = now;
        }
        self.refresh_timer(now, config);
        Transmit {
            conn: Some(self.id),
            tuple: self.tuple,
            header,
            payload,
            ecn,
            fragment_to,
        }
    }

    /// Only what is sent for the first time is ECN-capable (RFC 3168 sections 6.1.1, 6.1.4 to
    /// 6.1.6); with DCTCP the SYN is too (RFC 8257 section 3.6).
    fn ecn_field(&self, action: Action, config: &Config) -> Ecn {
        let capable = match action {
            Action::Unsent => self.ecn.sends_capable(),
            Action::Syn => {
                let dctcp = config.congestion == CongestionControl::Dctcp;
                dctcp && self.syn_timeouts == 0 && self.ecn.may_be_offered()
            }
            Action::Ack | Action::Probe | Action::Lost | Action::Tail | Action::Fin => false,
        };
        if capable { Ecn::Ect0 } else { Ecn::NotEct }
    }

    /// So many octets of payload go out.
    fn on_sent(&mut self, now: Instant, octets: u64) {
        self.congestion.sent(octets);
        let pace = self.congestion.pace(self.rtt.srtt_nanos());
        self.pacer.sent(now, octets, pace.as_ref());
    }

    /// A segment goes out again.
    fn on_resent(&mut self, now: Instant, outgo: &Outgo<B>) {
        self.counters.retransmits += 1;
        let len = u64::from(outgo.payload.len);
        self.resent.sent(outgo.start, outgo.start + len, now);
        self.on_sent(now, len);
        if outgo.start <= self.outbound.una() {
            // What the timeout is for has just left.
            self.timer = Timer::Idle;
        }
    }

    /// A tail loss probe has gone out.
    fn on_probe_sent(&mut self, is_retrans: bool) {
        self.counters.tail_probes += 1;
        self.tlp.sent(self.outbound.next(), is_retrans);
    }

    fn next_action(&self) -> Option<Action> {
        match self.state {
            State::SynSent | State::SynReceived if self.syn_due => return Some(Action::Syn),
            State::SynSent => return None,
            _ => {}
        }
        if self.inbound.pure_ack_due() {
            return Some(Action::Ack);
        }
        match self.state {
            State::Established
            | State::CloseWait
            | State::FinWait1
            | State::Closing
            | State::LastAck => self.next_of_queue(),
            State::FinWait2 => self.keepalive.due.then_some(Action::Probe),
            State::SynSent | State::SynReceived | State::TimeWait => None,
        }
        .or_else(|| self.inbound.ack_due().then_some(Action::Ack))
    }

    fn next_of_queue(&self) -> Option<Action> {
        let cwnd = self.congestion.cwnd();
        let paced = self.pacer.closed_until().is_none();
        let unsent_fits_window = self.outbound.unsent_fits_window();
        if self.tail_probe_due {
            if unsent_fits_window == Some(true) {
                return Some(Action::Unsent);
            }
            if let Some(tail) = self.tail() {
                return Some(tail);
            }
        }
        let new_first = self.frto.prefers_new() && unsent_fits_window == Some(true);
        if let Some(len) = self.outbound.next_lost_len()
            && !new_first
        {
            // What is lost goes before what is new, also when it has to wait.
            let fits = self.outbound.fits_cwnd(len, cwnd) && !self.frto.holds_lost();
            return ((fits && paced) || self.force_lost).then_some(Action::Lost);
        }
        match unsent_fits_window {
            Some(true) if paced && self.outbound.unsent_fits_cwnd(cwnd) => Some(Action::Unsent),
            Some(_) => self.probe_due.then_some(Action::Probe),
            None if self.outbound.fin.due() => Some(Action::Fin),
            None => self.keepalive.due.then_some(Action::Probe),
        }
    }

    /// The last segment that was sent, again.
    fn tail(&self) -> Option<Action> {
        if self.outbound.fin_out() {
            Some(Action::Fin)
        } else {
            self.outbound.tail_here().then_some(Action::Tail)
        }
    }

    /// From here on the peer owes an acknowledgment.
    fn note_first_outstanding(&mut self, now: Instant) {
        if !self.outbound.outstanding() {
            self.progress_at = now;
        }
    }

    #[inline]
    fn with_payload(&mut self, now: Instant, outgo: Outgo<B>) -> (TcpHeader, Option<Payload<B>>) {
        let push = if outgo.last {
            Flags::ACK | Flags::PSH
        } else {
            Flags::ACK
        };
        (self.header(now, outgo.seq, push), Some(outgo.payload))
    }

    pub(super) fn idle_seq(&self) -> SeqNum {
        // The window field may have been rounded down by less than this (RFC 7323 section 2.4).
        self.outbound.idle_seq((1 << self.peer_shift) - 1)
    }

    /// A segment behind the handshake: it carries the ACK that may be due, and the window.
    #[inline]
    fn header(&mut self, now: Instant, seq: SeqNum, flags: Flags) -> TcpHeader {
        let acknowledgment = self.inbound.acknowledge();
        let echo = if acknowledgment.ece {
            Flags::ECE
        } else {
            Flags::default()
        };
        let (urg, urgent) = self.urgent_mark(seq);
        TcpHeader {
            source_port: self.tuple.local.port,
            destination_port: self.tuple.remote.port,
            seq,
            ack: acknowledgment.number,
            flags: flags | echo | urg,
            window: acknowledgment.window,
            urgent,
            options: Options {
                timestamps: self.clock.option(now),
                ..Options::default()
            },
        }
    }

    /// Our SYN, with the ACK of the peer's if that is here.
    fn syn(&mut self, now: Instant, config: &Config) -> TcpHeader {
        self.note_first_outstanding(now);
        self.outbound.syn_sent();
        self.syn_due = false;
        self.syns = self.syns.saturating_add(1);
        self.syn_sent_at = now;
        let mut header = TcpHeader {
            source_port: self.tuple.local.port,
            destination_port: self.tuple.remote.port,
            seq: self.outbound.iss(),
            flags: Flags::SYN,
            window: self.plan.syn_field(),
            ..TcpHeader::default()
        };
        header.options.mss = Some(self.mss);
        if self.state == State::SynSent {
            header.flags |= self.ecn.syn(config.wants_ecn(), self.syn_timeouts == 0);
            header.options.window_scale = config.window_scale.then_some(self.plan.shift());
            header.options.sack_permitted = config.sack;
            header.options.timestamps = config.timestamps.then(|| Timestamps {
                value: self.clock.value(now),
                echo: 0,
            });
        } else {
            // Only what the peer has offered (RFC 7323 sections 2.2 and 3.2).
            header.flags |= Flags::ACK | self.ecn.syn_ack(config.wants_ecn());
            header.ack = self.inbound.next_wire();
            header.options.window_scale = self.scales.then_some(self.plan.shift());
            header.options.sack_permitted = self.sack;
            header.options.timestamps = self.clock.option(now);
        }
        header
    }
}
