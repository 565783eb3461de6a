//! Segments that go out for the first time, one behind the other (RFC 9293 section 3.7, RFC 6675
//! section 5), where nothing else is to be said or to be sent before them.
//!
//! It gives what [`Connection::transmit`] would give segment by segment, and leaves the connection as that
//! would: what is the same for all of them is decided, written down and timed once. And of a segment that
//! is posted when nothing else waits, nothing is written down before it has left.

use crate::burst::{BurstHead, BurstLink};
use crate::config::Config;
use crate::ecn::Ecn;
use crate::effects::Env;
use crate::interface::{Outgoing, Outlook, SendError, SendRefusal, State};
use crate::outbound::{Given, Limits};
use crate::segment::Flags;
use crate::time::Instant;

use super::Connection;

impl<B> Connection<B> {
    /// Gives up to `most` segments; how many it gave. 0: nothing was done, and
    /// [`Connection::transmit`] is the way.
    #[inline]
    pub(crate) fn transmit_burst(
        &mut self,
        now: Instant,
        config: &Config,
        most: usize,
        link: &mut impl BurstLink<B>,
    ) -> usize {
        if most == 0 || self.outbound.all_sent() {
            return 0;
        }
        self.pacer.advance(now);
        let mut limits = Limits {
            cwnd: self.congestion.cwnd(),
            len: self.path.passes().saturating_sub(self.overhead()),
        };
        if !self.sends_only_new() || !self.outbound.next_fits(&limits) || !link.takes(self.id) {
            return 0;
        }
        self.resume(now, config);
        limits.cwnd = self.congestion.cwnd();
        let head = self.burst_head(now);
        link.begin(&self.tuple, &head);
        let pace = self.congestion.pace(self.rtt.srtt_nanos());
        let mut left = most;
        let pacer = &mut self.pacer;
        let (sent, octets) = self.outbound.take_burst(now, &limits, |segment| {
            left -= 1;
            if pace.is_some() {
                pacer.sent(now, u64::from(segment.len), pace.as_ref());
            }
            Given {
                back: link.put(segment),
                goes_on: left > 0 && pacer.closed_until().is_none(),
            }
        });
        if pace.is_none() {
            self.pacer.sent(now, octets, None);
        }
        self.note_sent(now, config, sent as u64, octets);
        sent
    }

    /// Gives one segment that was never queued; see [`crate::Stack::send_alone`].
    #[inline(always)]
    pub(crate) fn transmit_alone(
        &mut self,
        env: &mut Env<'_, B>,
        link: &mut impl BurstLink<B>,
        fill: impl FnOnce(Outlook) -> Option<Outgoing<B>>,
    ) -> Result<bool, SendError<B>> {
        let (now, config) = (env.now, env.config);
        if !self.outbound.all_sent() || self.places(config) == 0 {
            return Ok(false);
        }
        self.pacer.advance(now);
        // What may be a probe of the path is queued.
        let longest = self.path.passes().saturating_sub(self.overhead());
        let fits = self.outbound.fits_now(self.congestion.cwnd());
        let most = fits.min(u64::from(longest.min(self.emss)));
        if most == 0 || !self.sends_only_new() || !link.takes(self.id) {
            return Ok(false);
        }
        let outlook = Outlook {
            queued: self.outbound.queued_segments(),
            mss: self.mss(),
            room: most as usize,
        };
        let Some(outgoing) = fill(outlook) else {
            return Ok(false);
        };
        let len = outgoing.len;
        if !(1..=most).contains(&u64::from(len)) {
            let (buf, mss) = (outgoing.buf, most as usize);
            let reason = SendRefusal::Length { len, mss };
            return Err(SendError { buf, reason });
        }
        self.begin_posting(env);
        self.resume(now, config);
        let head = self.burst_head(now);
        link.begin(&self.tuple, &head);
        let pace = self.congestion.pace(self.rtt.srtt_nanos());
        let give = |segment| link.put(segment);
        self.outbound
            .send_alone(now, outgoing, &mut env.pools.queues, give);
        self.pacer.sent(now, u64::from(len), pace.as_ref());
        self.note_sent(now, config, 1, u64::from(len));
        Ok(true)
    }

    /// New octets go out now. Where nothing was under way, that begins anew (RFC 5681 section 4.1).
    #[inline]
    fn resume(&mut self, now: Instant, config: &Config) {
        if !self.outbound.outstanding() {
            let idle = now.saturating_duration_since(self.last_data_at);
            self.congestion.resumed(now, idle > self.rtt.rto(config));
            self.restart_model(now);
            // From here on the peer owes an acknowledgment.
            self.progress_at = now;
        }
        self.probe_due = false;
    }

    /// So many segments of new octets went out.
    #[inline]
    fn note_sent(&mut self, now: Instant, config: &Config, segments: u64, octets: u64) {
        self.congestion.sent(octets);
        self.counters.octets_out += octets;
        self.counters.segments_out += segments;
        self.last_data_at = now;
        self.schedule_probe(now);
        self.refresh_timer(now, config);
    }

    /// Whether the next segment, if it is one that was never sent, goes before all else, and says
    /// nothing that those behind it don't.
    fn sends_only_new(&self) -> bool {
        let sends = matches!(
            self.state,
            State::Established
                | State::CloseWait
                | State::FinWait1
                | State::Closing
                | State::LastAck
        );
        let due = self.inbound.pure_ack_due() || self.tail_probe_due;
        let closed = self.pacer.closed_until().is_some();
        let repairs = !self.frto.is_off() || self.outbound.next_lost_len().is_some();
        let reduced = self.ecn.sends_capable() && self.congestion.owes_cwr();
        let tells = self.is_urgent() || reduced;
        sends && !(due || closed || repairs || tells)
    }

    /// It carries the ACK that may be due, and the window.
    // What it gives stays in registers.
    #[inline(always)]
    fn burst_head(&mut self, now: Instant) -> BurstHead {
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
            ecn: if self.ecn.sends_capable() {
                Ecn::Ect0
            } else {
                Ecn::NotEct
            },
        }
    }
}
