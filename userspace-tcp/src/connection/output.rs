//! The next segments to send (RFC 9293 section 3.7, RFC 6675 section 5).

use userspace_net::{Ecn, Instant};

use crate::config::{Config, CongestionControl};
use crate::interface::{Payload, State, Transmit};
use crate::link::{BurstHead, Link};
use crate::options::Timestamps;
use crate::outbound::{Given, Limits, Outgo};
use crate::resent::Cause;
use crate::segment::{Flags, TcpHeader};
use crate::seq::SeqNum;

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

    /// Gives the next segment, and those behind it that say as little, up to `most`; how many it gave.
    #[inline]
    pub(crate) fn transmit(
        &mut self,
        now: Instant,
        config: &Config,
        most: usize,
        link: &mut impl Link<B>,
    ) -> usize {
        self.pacer.advance(now);
        match self.next_action() {
            Some(Action::Unsent) => self.transmit_unsent(now, config, most, link),
            Some(other) => match self.transmit_other(other, now, config) {
                Some(segment) => {
                    link.send(segment);
                    1
                }
                None => 0,
            },
            None => 0,
        }
    }

    /// Gives segments that were never sent: what is the same for all of them is decided, written down and
    /// timed once. One that says more than its data goes alone.
    #[inline]
    fn transmit_unsent(
        &mut self,
        now: Instant,
        config: &Config,
        most: usize,
        link: &mut impl Link<B>,
    ) -> usize {
        if !self.outbound.outstanding() {
            // RFC 5681 section 4.1.
            let idle = now.saturating_duration_since(self.last_data_at);
            self.congestion.resumed(now, idle > self.rtt.rto(config));
            self.restart_model(now);
            // From here on the peer owes an acknowledgment.
            self.progress_at = now;
        }
        self.probe_due = false;
        let limits = Limits {
            cwnd: self.congestion.cwnd(),
            len: self.path.passes().saturating_sub(self.overhead()),
        };
        let tail_probe = std::mem::take(&mut self.tail_probe_due);
        let cwr = self.ecn.sends_capable() && self.congestion.take_cwr();
        // The last one may have FIN with it, and then goes alone.
        let before_fin = match self.outbound.fin.due() && self.outbound.fin.may_ride() {
            true => self.outbound.unsent_segments().saturating_sub(1),
            false => most,
        };
        let says_more =
            tail_probe || cwr || !self.frto.is_off() || self.is_urgent() || before_fin == 0;
        let (segments, bytes) = match says_more || !self.outbound.next_fits(&limits) {
            true => self.transmit_one_unsent(now, cwr, link),
            false => self.transmit_burst(now, &limits, most.min(before_fin), link),
        };
        self.congestion.sent(bytes);
        self.counters.bytes_out += bytes;
        self.counters.segments_out += segments as u64;
        self.last_data_at = now;
        self.frto.sent_new();
        self.note_pace();
        if tail_probe {
            self.on_probe_sent(false);
        } else {
            self.schedule_probe(now);
        }
        self.refresh_timer(now, config);
        segments
    }

    /// Gives unsent segments as long as the next fits all windows; how many, and how many bytes.
    #[inline]
    fn transmit_burst(
        &mut self,
        now: Instant,
        limits: &Limits,
        most: usize,
        link: &mut impl Link<B>,
    ) -> (usize, u64) {
        let head = self.head(now, self.first_time_ecn());
        link.begin(&self.tuple, &head);
        let pace = self.congestion.pace(self.rtt.srtt_nanos());
        let mut left = most;
        let pacer = &mut self.pacer;
        let (sent, bytes) = self.outbound.take_burst(now, limits, |segment| {
            left = left.saturating_sub(1);
            if pace.is_some() {
                pacer.sent(now, u64::from(segment.len), pace.as_ref());
            }
            Given {
                back: link.put(segment),
                goes_on: left > 0 && pacer.closed_until().is_none(),
            }
        });
        if pace.is_none() {
            self.pacer.sent(now, bytes, None);
        }
        (sent, bytes)
    }

    /// Gives an unsent segment that says more than its data, or is too long for the path by now.
    #[cold]
    fn transmit_one_unsent(
        &mut self,
        now: Instant,
        cwr: bool,
        link: &mut impl Link<B>,
    ) -> (usize, u64) {
        let mut taken = None;
        let (sent, bytes) = self.outbound.take_burst(now, &Limits::NONE, |segment| {
            taken = Some(segment);
            Given {
                back: None,
                goes_on: false,
            }
        });
        if let Some(segment) = taken {
            let pace = self.congestion.pace(self.rtt.srtt_nanos());
            self.pacer.sent(now, bytes, pace.as_ref());
            let mut head = self.head(now, self.first_time_ecn());
            if cwr {
                head.flags |= Flags::CWR;
            }
            let last = self.outbound.unsent_segments() == 0;
            if self.outbound.take_riding_fin(last, now) {
                head.flags |= Flags::FIN;
            }
            let mut transmit = segment.with(&self.tuple, &head);
            self.mark_urgent(&mut transmit.header);
            let payload = transmit.payload.as_ref();
            let seq = transmit.header.seq;
            transmit.fragment_to = payload.and_then(|payload| self.fragment_to(now, seq, payload));
            link.send(transmit);
        }
        (sent, bytes)
    }

    #[inline(never)]
    fn transmit_other(
        &mut self,
        action: Action,
        now: Instant,
        config: &Config,
    ) -> Option<Transmit<B>> {
        let ecn = match action {
            Action::Syn => self.syn_ecn(config),
            _ => Ecn::NotEct,
        };
        let (header, payload) = match action {
            // See above.
            Action::Unsent => return None,
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
                let fin = self.outbound.take_riding_fin(outgo.last, now);
                self.with_payload(now, outgo, fin)
            }
            Action::Tail => {
                self.tail_probe_due = false;
                let outgo = self.outbound.take_tail(now)?;
                self.resent.begin(self.outbound.una(), Cause::Probe);
                self.on_resent(now, &outgo);
                let fin = self.outbound.take_riding_fin(outgo.last, now);
                self.on_probe_sent(true);
                self.with_payload(now, outgo, fin)
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
            self.note_pace();
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

    /// Only what is sent for the first time is ECN-capable (RFC 3168 sections 6.1.1, 6.1.4 to 6.1.6).
    fn first_time_ecn(&self) -> Ecn {
        if self.ecn.sends_capable() {
            Ecn::Ect0
        } else {
            Ecn::NotEct
        }
    }

    /// With DCTCP the SYN is ECN-capable too (RFC 8257 section 3.6).
    fn syn_ecn(&self, config: &Config) -> Ecn {
        let dctcp = config.congestion == CongestionControl::Dctcp;
        if dctcp && self.syn_timeouts == 0 && self.ecn.may_be_offered() {
            Ecn::Ect0
        } else {
            Ecn::NotEct
        }
    }

    /// So many bytes of payload go out.
    fn on_sent(&mut self, now: Instant, bytes: u64) {
        self.congestion.sent(bytes);
        let pace = self.congestion.pace(self.rtt.srtt_nanos());
        self.pacer.sent(now, bytes, pace.as_ref());
    }

    /// After something was sent: whether it is the pace that holds back what is next. Only then is the
    /// time lost by which that is let go too late.
    #[inline]
    fn note_pace(&mut self) {
        if self.pacer.closed_until().is_some() {
            let cwnd = self.congestion.cwnd();
            let held = match self.outbound.next_lost_len() {
                Some(len) => self.outbound.fits_cwnd(len, cwnd) && !self.frto.holds_lost(),
                None => {
                    self.outbound.unsent_fits_window() == Some(true)
                        && self.outbound.unsent_fits_cwnd(cwnd)
                }
            };
            self.pacer.holds(held);
        }
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
            None if self.outbound.fin.due_behind(self.outbound.outstanding()) => Some(Action::Fin),
            None => self.keepalive.due.then_some(Action::Probe),
        }
    }

    /// The last segment that was sent, again.
    fn tail(&self) -> Option<Action> {
        if self.outbound.fin_out_alone() {
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
    fn with_payload(
        &mut self,
        now: Instant,
        outgo: Outgo<B>,
        fin: bool,
    ) -> (TcpHeader, Option<Payload<B>>) {
        let mut flags = Flags::ACK;
        if outgo.last {
            flags |= Flags::PSH;
        }
        if fin {
            flags |= Flags::FIN;
        }
        (self.header(now, outgo.seq, flags), Some(outgo.payload))
    }

    pub(super) fn idle_seq(&self) -> SeqNum {
        // The window field may have been rounded down by less than this (RFC 7323 section 2.4).
        self.outbound.idle_seq((1 << self.peer_shift) - 1)
    }

    /// What segments behind the handshake say: the ACK that may be due, and the window.
    // What it gives stays in registers.
    #[inline(always)]
    fn head(&mut self, now: Instant, ecn: Ecn) -> BurstHead {
        let acknowledgment = self.inbound.acknowledge();
        let echo = if acknowledgment.ece {
            Flags::ECE
        } else {
            Flags::default()
        };
        BurstHead {
            conn: self.id,
            ack: acknowledgment.number,
            flags: Flags::ACK | echo,
            window: acknowledgment.window,
            timestamps: self.clock.option(now),
            ecn,
        }
    }

    /// The header of a segment behind the handshake.
    fn header(&mut self, now: Instant, seq: SeqNum, flags: Flags) -> TcpHeader {
        let head = self.head(now, Ecn::NotEct);
        let mut header = head.header(&self.tuple, seq, flags);
        self.mark_urgent(&mut header);
        header
    }

    fn mark_urgent(&self, header: &mut TcpHeader) {
        let (flag, pointer) = self.urgent_mark(header.seq);
        header.flags |= flag;
        header.urgent = pointer;
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
