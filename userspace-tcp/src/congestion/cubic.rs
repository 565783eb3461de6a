//! CUBIC (RFC 9438): the window is a cubic function of the time since congestion avoidance began,
//! with a plateau where congestion was met the last time, and never less than what Reno would have.
//!
//! Windows are bytes here and segments in the RFC; C is scaled by SMSS. Time in which the window
//! was not the limit does not count (RFC 9438 section 5.8).

#[cfg(test)]
mod tests;

use std::time::Duration;

use userspace_net::Instant;

/// beta_cubic (section 4.6): what is left of the window after congestion.
const BETA: f64 = 0.7;

/// C (section 5), in segments per cubic second.
const C: f64 = 0.4;

/// alpha_cubic (section 4.3): segments per round trip of an AIMD with [`BETA`] that is as fast as
/// Reno.
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// What of the window is left as W_max when congestion came earlier than the last time, to make
/// room for others (section 4.7, fast convergence).
const FAST_CONVERGENCE: f64 = (1.0 + BETA) / 2.0;

/// W_max, cwnd_prior and the present stage of congestion avoidance.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Cubic {
    /// W_max in bytes; 0: unknown.
    w_max: f64,
    /// cwnd before the last reduction, in bytes.
    cwnd_prior: f64,
    /// `None` outside of congestion avoidance.
    epoch: Option<Epoch>,
}

/// One stage of congestion avoidance.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Epoch {
    /// t, without the time in which the window was not the limit.
    elapsed: Duration,
    /// Until when `elapsed` was counted.
    counted_to: Instant,
    /// K in seconds.
    k: f32,
    /// Part of a byte by which cwnd should be greater.
    rest: f32,
    /// W_est in bytes.
    w_est: f64,
}

/// An acknowledgment in congestion avoidance, while the window is the limit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    pub(crate) now: Instant,
    /// Smoothed round trip time.
    pub(crate) srtt: Duration,
    /// Bytes newly acknowledged.
    pub(crate) bytes: u64,
    pub(crate) smss: u64,
}

impl Cubic {
    /// cwnd after an acknowledgment (sections 4.2 to 4.5).
    pub(crate) fn grow(&mut self, cwnd: u64, step: &Step) -> u64 {
        let smss = step.smss as f64;
        let w = cwnd as f64;
        let w_max = &mut self.w_max;
        let epoch = self
            .epoch
            .get_or_insert_with(|| Epoch::begin(w, w_max, smss, step.now));
        epoch.count(step.now);
        let share = step.bytes as f64 / w.max(1.0);

        let alpha = if epoch.w_est < self.cwnd_prior {
            ALPHA
        } else {
            1.0
        };
        epoch.w_est += alpha * share * smss;

        let t = epoch.elapsed.as_secs_f64();
        if epoch.w_cubic(t, self.w_max, smss) < epoch.w_est {
            epoch.rest = 0.0;
            return cwnd.max(epoch.w_est as u64);
        }
        let target = epoch
            .w_cubic(t + step.srtt.as_secs_f64(), self.w_max, smss)
            .clamp(w, 1.5 * w);
        let growth = (target - w) * share + f64::from(epoch.rest);
        epoch.rest = growth.fract() as f32;
        cwnd.saturating_add(growth as u64)
    }

    /// The window was not the limit up to `now`, or nothing was in the network.
    pub(crate) fn pause(&mut self, now: Instant) {
        if let Some(epoch) = &mut self.epoch {
            epoch.counted_to = now;
        }
    }

    /// Congestion with a window of `cwnd` bytes of which `flight` are used: ssthresh (sections 4.6
    /// and 4.7).
    pub(crate) fn reduce(&mut self, cwnd: u64, flight: u64) -> u64 {
        let w = cwnd as f64;
        self.cwnd_prior = w;
        self.w_max = if w < self.w_max {
            w * FAST_CONVERGENCE
        } else {
            w
        };
        self.epoch = None;
        (flight as f64 * BETA) as u64
    }

    /// A timeout (section 4.8): the next stage begins with its W_max where it starts.
    pub(crate) fn timed_out(&mut self) {
        self.w_max = 0.0;
        self.epoch = None;
    }

    /// Congestion avoidance is over; there may be another one later.
    pub(crate) fn leave_avoidance(&mut self) {
        self.epoch = None;
    }
}

impl Epoch {
    /// Sections 4.2, 4.8 and 4.10: K is the time until W_max is reached again; above W_max the
    /// window is its own plateau.
    fn begin(cwnd: f64, w_max: &mut f64, smss: f64, now: Instant) -> Self {
        *w_max = w_max.max(cwnd);
        Self {
            elapsed: Duration::ZERO,
            counted_to: now,
            k: ((*w_max - cwnd) / smss.max(1.0) / C).cbrt() as f32,
            rest: 0.0,
            w_est: cwnd,
        }
    }

    fn count(&mut self, now: Instant) {
        let more = now.saturating_duration_since(self.counted_to);
        self.elapsed = self.elapsed.saturating_add(more);
        self.counted_to = now;
    }

    /// W_cubic(t) of equation 1, in bytes.
    fn w_cubic(&self, t: f64, w_max: f64, smss: f64) -> f64 {
        C * (t - f64::from(self.k)).powi(3) * smss + w_max
    }
}
