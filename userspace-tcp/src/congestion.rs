//! How many bytes may be in the network (RFC 5681), by one of three algorithms: CUBIC, NewReno or DCTCP. Or by
//! BBR, which has a model of the path in their place, and only the phases in common. Which bytes are lost or in
//! the network, the send queue knows.
//!
//! A value without a clock: who calls it says what was acknowledged, lost or marked, and when.
//! However often congestion shows within one window of bytes, the window is reduced once.

mod bbr;
mod cubic;
mod dctcp;
mod hystart;
mod newreno;
mod prr;
#[cfg(test)]
mod tests;

use std::time::Duration;

use userspace_net::Instant;

use crate::config::{Config, CongestionControl};
use crate::pacing::Pace;
use crate::rate::Losses;
use crate::seq::Position;
pub(crate) use bbr::Ack as ModelAck;
use bbr::{Bbr, Setup};
use cubic::Cubic;
use dctcp::Dctcp;
use hystart::{Growth, HyStart};
use newreno::NewReno;
pub(crate) use prr::Delivery;
use prr::Prr;

/// RFC 9406 section 4.2: most segments by which one ACK lets the window grow in slow start, where
/// nothing paces what is sent.
const SLOW_START_LIMIT: u64 = 8;

/// Smoothed round trips of so many nanoseconds and more are paced, if pacing is wanted.
const PACED_RTT_MIN: u64 = 1_000_000;

/// What the sender is recovering from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nothing.
    Open,
    /// Congestion that was marked (RFC 3168 section 6.1.2): cwnd is being reduced.
    Cwr,
    /// Fast recovery (RFC 6582, RFC 6675 section 5).
    Recovery,
    /// A retransmission timeout.
    Loss,
}

/// cwnd, ssthresh and the recovery point. All sizes in bytes.
#[derive(Debug)]
pub(crate) struct Congestion {
    cwnd: u64,
    ssthresh: u64,
    smss: u64,
    limit: u64,
    /// The highest position sent when congestion was noticed.
    recover: Position,
    /// cwnd was the limit for everything before.
    limited_to: Position,
    phase: Phase,
    pacing: bool,
    cwr_due: bool,
    control: Control,
    hystart: HyStart,
    prr: Prr,
    /// What was before the last loss.
    undo: Option<Undo>,
}

/// What decides over cwnd.
#[derive(Debug)]
enum Control {
    /// A window that shrinks when congestion shows.
    Window(Algorithm),
    /// A model of the path, from the end of the handshake on.
    Model(Box<Bbr>),
}

#[derive(Debug, Clone, Copy)]
enum Algorithm {
    Cubic(Cubic),
    NewReno(NewReno),
    Dctcp(Dctcp),
}

#[derive(Debug)]
struct Undo {
    cwnd: u64,
    ssthresh: u64,
    algorithm: Algorithm,
}

/// An acknowledgment that moved SND.UNA.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Progress {
    pub(crate) now: Instant,
    /// Bytes newly acknowledged.
    pub(crate) bytes: u64,
    /// SND.UNA and SND.NXT after it.
    pub(crate) una: Position,
    pub(crate) next: Position,
    /// FlightSize before it.
    pub(crate) flight: u64,
    /// It carried ECE, from a peer that has agreed to ECN.
    pub(crate) ece: bool,
    /// The round trip that it measured.
    pub(crate) rtt: Option<Duration>,
    /// SRTT in nanoseconds.
    pub(crate) srtt: Option<u64>,
}

/// What is out when congestion is noticed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outstanding {
    /// FlightSize: SND.NXT - SND.UNA.
    pub(crate) flight: u64,
    /// RecoverFS of PRR: `flight` without what earlier ACKs have selectively acknowledged.
    pub(crate) undelivered: u64,
    /// SND.NXT.
    pub(crate) next: Position,
}

impl Congestion {
    /// `limit` is what the send queue could hold: a greater window would mean nothing.
    pub(crate) fn new(config: &Config, smss: u64, limit: u64) -> Self {
        let limit = limit.max(smss);
        Self {
            cwnd: initial_window(smss).min(limit),
            ssthresh: u64::MAX,
            smss,
            limit,
            recover: 0,
            limited_to: 0,
            phase: Phase::Open,
            pacing: config.pacing,
            cwr_due: false,
            control: Control::Window(match config.congestion {
                CongestionControl::Cubic | CongestionControl::Bbr => {
                    Algorithm::Cubic(Cubic::default())
                }
                CongestionControl::NewReno => Algorithm::NewReno(NewReno::default()),
                CongestionControl::Dctcp => Algorithm::Dctcp(Dctcp::new()),
            }),
            hystart: HyStart::new(),
            prr: Prr::default(),
            undo: None,
        }
    }

    /// The handshake is over, and BBR takes over; `srtt` in nanoseconds, if it was measured, and any
    /// number.
    pub(crate) fn model_path(&mut self, now: Instant, srtt: Option<u64>, seed: u32) {
        let setup = Setup {
            smss: self.smss,
            limit: self.limit,
            cwnd: self.cwnd,
            srtt,
            seed,
        };
        self.control = Control::Model(Box::new(Bbr::new(now, &setup)));
    }

    /// What was found lost, when so much was delivered in all. For BBR.
    pub(crate) fn lost(&mut self, now: Instant, losses: &Losses, delivered: u64) {
        self.with_bbr(|bbr| bbr.lost(now, losses, delivered));
    }

    /// An ACK that samples the path. For BBR; whether samples are too low to count from now on.
    pub(crate) fn sampled(&mut self, ack: &ModelAck<'_>) -> bool {
        self.with_bbr(|bbr| bbr.acknowledged(ack)).unwrap_or(false)
    }

    /// Something is sent while nothing is in the network, after the application had nothing to send.
    /// For BBR.
    pub(crate) fn restarts_from_idle(&mut self, now: Instant) {
        self.with_bbr(|bbr| bbr.restarts_from_idle(now));
    }

    fn is_bbr(&self) -> bool {
        matches!(self.control, Control::Model(_))
    }

    /// Lets BBR do something, if it is BBR. `None`: it isn't.
    fn with_bbr<R>(&mut self, change: impl FnOnce(&mut Bbr) -> R) -> Option<R> {
        let Control::Model(bbr) = &mut self.control else {
            return None;
        };
        let result = change(bbr);
        self.cwnd = bbr.cwnd();
        Some(result)
    }

    /// In [`Phase::Cwr`] and [`Phase::Recovery`] it is what PRR lets out.
    pub(crate) fn cwnd(&self) -> u64 {
        self.cwnd
    }

    pub(crate) fn ssthresh(&self) -> u64 {
        self.ssthresh
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    /// The highest position sent when congestion was noticed the last time.
    pub(crate) fn recover(&self) -> Position {
        self.recover
    }

    pub(crate) fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// RFC 6928 section 2: after more than one lost SYN the window begins with one segment.
    pub(crate) fn handshake_was_lossy(&mut self) {
        self.cwnd = self.smss;
    }

    /// Something is sent while nothing is in the network. `idle`: nothing was for longer than one
    /// RTO (RFC 5681 section 4.1).
    pub(crate) fn resumed(&mut self, now: Instant, idle: bool) {
        let Control::Window(algorithm) = &mut self.control else {
            return;
        };
        algorithm.pause(now);
        if idle && self.phase == Phase::Open && self.cwnd > initial_window(self.smss) {
            // Slow start leads back near to what the path has taken (RFC 7661 section 4.3).
            if self.ssthresh != u64::MAX {
                self.ssthresh = self.ssthresh.max(self.cwnd / 4 * 3);
            }
            self.cwnd = initial_window(self.smss);
            algorithm.leave_avoidance();
        }
    }

    /// How fast bytes may go out; `None`: as fast as they can. Faster than the window goes round, so
    /// that it is the window that decides how many: twice in slow start, six fifths otherwise. `srtt` in
    /// nanoseconds.
    pub(crate) fn pace(&self, srtt: Option<u64>) -> Option<Pace> {
        if let Control::Model(bbr) = &self.control {
            return Some(bbr.pace());
        }
        let per = srtt.filter(|srtt| self.pacing && *srtt >= PACED_RTT_MIN)?;
        let per = Duration::from_nanos(per);
        let bytes = match self.phase {
            // cwnd is only what one ACK lets out.
            Phase::Cwr | Phase::Recovery => self.cwnd.max(self.ssthresh) / 5 * 6,
            Phase::Open | Phase::Loss if self.in_slow_start() => self.cwnd.saturating_mul(2),
            Phase::Open | Phase::Loss => self.cwnd / 5 * 6,
        };
        Some(Pace::of_window(bytes, per, self.smss))
    }

    /// SND.UNA moved.
    pub(crate) fn acknowledged(&mut self, ack: &Progress) {
        if let Control::Window(Algorithm::Dctcp(dctcp)) = &mut self.control {
            dctcp.observe(ack.bytes, ack.ece, ack.una, ack.next);
        }
        if self.is_limiting(ack.flight) {
            self.limited_to = ack.next;
        }
        if self.phase != Phase::Open && ack.una >= self.recover {
            self.end_phase();
            if let Control::Window(algorithm) = &mut self.control {
                algorithm.pause(ack.now);
            }
            return;
        }
        let in_slow_start = self.in_slow_start();
        let Control::Window(algorithm) = &mut self.control else {
            return;
        };
        // RFC 3168 section 6.1.2: an ACK with ECE is no reason to grow.
        let marked = ack.ece && self.phase == Phase::Open;
        let reducing = matches!(self.phase, Phase::Cwr | Phase::Recovery);
        if reducing || marked || ack.una > self.limited_to {
            algorithm.pause(ack.now);
            return;
        }
        let grown = if in_slow_start {
            self.slow_start(ack)
        } else {
            algorithm.grow(self.cwnd, self.smss, ack)
        };
        self.cwnd = grown.min(self.limit);
    }

    /// An ACK in [`Phase::Cwr`] or [`Phase::Recovery`], or something found lost without one: cwnd
    /// becomes what may be sent in answer.
    pub(crate) fn delivered(&mut self, delivery: &Delivery) {
        if matches!(self.phase, Phase::Cwr | Phase::Recovery) && !self.is_bbr() {
            let sndcnt = self.prr.on_ack(delivery, self.ssthresh, self.smss);
            self.cwnd = delivery.pipe.saturating_add(sndcnt).min(self.limit);
        }
    }

    /// Segments have another size from now on. cwnd stays: it is in bytes.
    pub(crate) fn mss_changed(&mut self, smss: u64) {
        self.smss = smss;
        self.cwnd = self.cwnd.max(smss).min(self.limit.max(smss));
        self.with_bbr(|bbr| bbr.mss_changed(smss));
    }

    /// So many bytes were sent, for the first time or again.
    pub(crate) fn sent(&mut self, bytes: u64) {
        self.prr.sent(bytes);
    }

    /// Fast retransmit (RFC 5681 section 3.2). [`Congestion::delivered`] has to follow.
    pub(crate) fn enter_recovery(&mut self, out: &Outstanding) {
        // After a mark in this window the loss is the same congestion, but DCTCP has answered a
        // share of it only.
        let partial = matches!(self.control, Control::Window(Algorithm::Dctcp(_)));
        if self.with_bbr(Bbr::enter_recovery).is_some() {
            // The model says what it means.
        } else if self.phase == Phase::Open || (self.phase == Phase::Cwr && partial) {
            self.remember();
            self.reduce(out.flight.min(self.cwnd));
        }
        self.phase = Phase::Recovery;
        self.recover = out.next;
        self.prr = Prr::begin(out.undelivered);
    }

    /// An ACK carried ECE (RFC 3168 section 6.1.2). Returns whether this is a new congestion
    /// event; then [`Congestion::delivered`] has to follow.
    pub(crate) fn marked(&mut self, out: &Outstanding) -> bool {
        // Until the peer has our CWR, which goes with what is sent behind `recover`, it repeats what
        // was answered already.
        let una = out.next.saturating_sub(out.flight);
        if self.phase != Phase::Open || una <= self.recover {
            return false;
        }
        let Control::Window(algorithm) = &self.control else {
            return false;
        };
        // What was marked was no mistake.
        self.undo = None;
        match algorithm {
            Algorithm::Dctcp(dctcp) => {
                let ssthresh = dctcp.marked(self.cwnd);
                self.set_ssthresh(ssthresh);
            }
            Algorithm::Cubic(_) | Algorithm::NewReno(_) => {
                // What was out before this ACK, which may have taken all of it.
                self.reduce(out.undelivered.min(self.cwnd));
            }
        }
        self.phase = Phase::Cwr;
        self.recover = out.next;
        self.prr = Prr::begin(out.undelivered);
        true
    }

    /// A retransmission timeout (RFC 5681 section 3.1). When the same segment times out again
    /// ssthresh stays.
    pub(crate) fn timed_out(&mut self, out: &Outstanding) {
        if self.with_bbr(Bbr::timed_out).is_some() {
            self.phase = Phase::Loss;
            self.recover = out.next;
            return;
        }
        match self.phase {
            Phase::Open => {
                self.remember();
                self.reduce(out.flight.min(self.cwnd));
            }
            Phase::Cwr | Phase::Recovery => {
                // Whatever becomes of the timeout, the congestion before it was there.
                self.undo = None;
                let before = self.ssthresh;
                self.reduce(out.flight);
                self.ssthresh = self.ssthresh.min(before);
            }
            Phase::Loss => {}
        }
        if let Control::Window(Algorithm::Cubic(cubic)) = &mut self.control {
            cubic.timed_out();
        }
        self.cwnd = self.smss;
        self.phase = Phase::Loss;
        self.recover = out.next;
    }

    /// The loss was none: as before it (RFC 5682, RFC 9438 section 4.9). Does nothing, and says
    /// `false`, when there is nothing to take back. Three duplicate ACKs from `una` on are a new loss.
    pub(crate) fn undo(&mut self, una: Position) -> bool {
        match self.with_bbr(Bbr::undo) {
            Some(true) => {}
            Some(false) => return false,
            None => {
                let Some(undo) = self.undo.take() else {
                    return false;
                };
                self.cwnd = self.cwnd.max(undo.cwnd);
                self.ssthresh = self.ssthresh.max(undo.ssthresh);
                self.control = Control::Window(undo.algorithm);
            }
        }
        self.phase = Phase::Open;
        self.recover = self.recover.min(una.saturating_sub(1));
        self.cwr_due = false;
        true
    }

    /// Whether the next segment of new bytes has to carry CWR, because cwnd was reduced (RFC 3168
    /// section 6.1.2). Asks once for each reduction.
    pub(crate) fn take_cwr(&mut self) -> bool {
        std::mem::take(&mut self.cwr_due)
    }

    /// Whether `flight` bytes out show that cwnd holds the sender back: what was not used must not
    /// grow (RFC 5681 section 3.1, RFC 9438 section 5.8). In slow start half of it is enough.
    fn is_limiting(&self, flight: u64) -> bool {
        if self.in_slow_start() {
            flight.saturating_mul(2) >= self.cwnd
        } else {
            flight.saturating_add(self.smss) > self.cwnd
        }
    }

    /// RFC 3465 sections 2.2 and 2.3, RFC 9406.
    fn slow_start(&mut self, ack: &Progress) -> u64 {
        let segments = match self.phase {
            Phase::Loss => 1,
            _ if self.pace(ack.srtt).is_some() => u64::MAX,
            _ => SLOW_START_LIMIT,
        };
        let growth = ack.bytes.min(segments.saturating_mul(self.smss));
        if self.ssthresh != u64::MAX {
            // Up to ssthresh: what is beyond is congestion avoidance's.
            return self.cwnd.saturating_add(growth).min(self.ssthresh);
        }
        let growth = self
            .hystart
            .acknowledged(growth, ack.rtt, ack.una, ack.next);
        match growth {
            Growth::By(bytes) => self.cwnd.saturating_add(bytes),
            Growth::Last(bytes) => {
                let cwnd = self.cwnd.saturating_add(bytes);
                self.ssthresh = cwnd;
                cwnd
            }
        }
    }

    /// What was sent when congestion was noticed is acknowledged.
    fn end_phase(&mut self) {
        if self.with_bbr(Bbr::recovered).is_some() {
            // It goes on where it was.
        } else if self.phase != Phase::Loss {
            self.cwnd = self.ssthresh.min(self.limit);
        }
        self.phase = Phase::Open;
    }

    fn remember(&mut self) {
        if let Control::Window(algorithm) = self.control {
            self.undo = Some(Undo {
                cwnd: self.cwnd,
                ssthresh: self.ssthresh,
                algorithm,
            });
        }
    }

    fn reduce(&mut self, flight: u64) {
        let Control::Window(algorithm) = &mut self.control else {
            return;
        };
        let ssthresh = match algorithm {
            Algorithm::Cubic(cubic) => cubic.reduce(self.cwnd, flight),
            Algorithm::NewReno(reno) => reno.reduce(flight),
            Algorithm::Dctcp(dctcp) => dctcp.reno.reduce(flight),
        };
        self.set_ssthresh(ssthresh);
    }

    fn set_ssthresh(&mut self, bytes: u64) {
        self.ssthresh = bytes.max(2 * self.smss);
        self.cwr_due = true;
    }
}

impl Algorithm {
    /// cwnd after an acknowledgment in congestion avoidance.
    fn grow(&mut self, cwnd: u64, smss: u64, ack: &Progress) -> u64 {
        match self {
            Self::Cubic(cubic) => cubic.grow(
                cwnd,
                &cubic::Step {
                    now: ack.now,
                    srtt: Duration::from_nanos(ack.srtt.unwrap_or_default()),
                    bytes: ack.bytes,
                    smss,
                },
            ),
            Self::NewReno(reno) => reno.grow(cwnd, smss, ack.bytes),
            Self::Dctcp(dctcp) => dctcp.reno.grow(cwnd, smss, ack.bytes),
        }
    }

    /// Until `now` the window did not grow for want of bytes to send.
    fn pause(&mut self, now: Instant) {
        if let Self::Cubic(cubic) = self {
            cubic.pause(now);
        }
    }

    fn leave_avoidance(&mut self) {
        if let Self::Cubic(cubic) = self {
            cubic.leave_avoidance();
        }
    }
}

/// RFC 6928 section 2.
fn initial_window(smss: u64) -> u64 {
    (10 * smss).min((2 * smss).max(14_600))
}
