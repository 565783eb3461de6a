//! ProbeRTT (section 5.3.4): the round trip without queues, and how it is found out when nothing else
//! shows it for five seconds.

use std::time::Duration;

use userspace_net::Instant;

use super::{Ack, Bbr, INFINITY, State};

/// BBR.MinRTTFilterLen
const MIN_RTT_FILTER_LEN: u64 = Duration::from_secs(10).as_nanos() as u64;

/// BBR.ProbeRTTInterval
const PROBE_RTT_INTERVAL: u64 = Duration::from_secs(5).as_nanos() as u64;

/// BBR.ProbeRTTDuration
const PROBE_RTT_DURATION: Duration = Duration::from_millis(200);

/// BBR.ProbeRTTCwndGain
pub(super) const PROBE_RTT_CWND_GAIN: u64 = 50;

/// The state of section 2.16; times in nanoseconds.
#[derive(Debug)]
pub(super) struct RoundTrips {
    /// BBR.min_rtt; Infinity: none was measured.
    pub(super) min: u64,
    /// BBR.min_rtt_stamp
    min_stamp: Instant,
    /// BBR.probe_rtt_min_delay
    probe_min: u64,
    /// BBR.probe_rtt_min_stamp
    probe_stamp: Instant,
    /// BBR.probe_rtt_expired
    expired: bool,
    /// BBR.probe_rtt_done_stamp
    done_at: Option<Instant>,
    /// BBR.probe_rtt_round_done
    round_done: bool,
}

impl RoundTrips {
    pub(super) fn new(now: Instant, srtt: Option<u64>) -> Self {
        let min = srtt.unwrap_or(INFINITY);
        Self {
            min,
            min_stamp: now,
            probe_min: min,
            probe_stamp: now,
            expired: false,
            done_at: None,
            round_done: false,
        }
    }
}

impl Bbr {
    /// UpdateMinRTT()
    pub(super) fn update_min_rtt(&mut self, ack: &Ack<'_>) {
        let own = &mut self.round_trips;
        own.expired = ack.now.nanos_since(own.probe_stamp) > PROBE_RTT_INTERVAL;
        if let Some(rtt) = ack.sample.rtt
            && (rtt < own.probe_min || own.expired)
        {
            own.probe_min = rtt;
            own.probe_stamp = ack.now;
        }
        let expired = ack.now.nanos_since(own.min_stamp) > MIN_RTT_FILTER_LEN;
        if own.probe_min < own.min || expired {
            own.min = own.probe_min;
            own.min_stamp = own.probe_stamp;
        }
    }

    /// CheckProbeRTT(); whether samples are too low to count.
    pub(super) fn check_probe_rtt(&mut self, ack: &Ack<'_>) -> bool {
        if self.state != State::ProbeRtt && self.round_trips.expired && !self.idle_restart {
            self.save_cwnd();
            self.state = State::ProbeRtt;
            self.round_trips.done_at = None;
            self.stop_probing();
            self.start_round();
        }
        let probing = self.state == State::ProbeRtt;
        if probing {
            self.handle_probe_rtt(ack);
        }
        if ack.sample.delivered > 0 {
            self.idle_restart = false;
        }
        probing
    }

    /// HandleProbeRTT(): for a round and 200 ms from when little enough is in flight.
    fn handle_probe_rtt(&mut self, ack: &Ack<'_>) {
        if self.round_trips.done_at.is_some() {
            self.round_trips.round_done |= self.round.start;
            if self.round_trips.round_done {
                self.check_probe_rtt_done(ack.now);
            }
        } else if ack.inflight <= self.probe_rtt_cwnd() {
            self.round_trips.done_at = Some(ack.now + PROBE_RTT_DURATION);
            self.round_trips.round_done = false;
            self.start_round();
        }
    }

    /// CheckProbeRTTDone() and ExitProbeRTT()
    pub(super) fn check_probe_rtt_done(&mut self, now: Instant) {
        if self
            .round_trips
            .done_at
            .is_none_or(|done_at| now <= done_at)
        {
            return;
        }
        self.round_trips.probe_stamp = now;
        self.restore_cwnd();
        self.reset_short_term_model();
        if self.full_pipe.reached {
            self.start_probe_bw_down(now);
            self.start_probe_bw_cruise();
        } else {
            self.state = State::Startup;
        }
    }
}
