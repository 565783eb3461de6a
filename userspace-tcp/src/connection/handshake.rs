//! Opening: SYN-SENT and SYN-RECEIVED (RFC 9293 sections 3.5 and 3.10.7).

use std::time::Duration;

use userspace_net::{Endpoint, FourTuple, Instant};

use crate::config::{Config, CongestionControl};
use crate::congestion::Congestion;
use crate::effects::Env;
use crate::inbound::{EchoMode, Inbound, WINDOW_SHIFT_MAX};
use crate::interface::{Event, Received, State};
use crate::link::One;
use crate::options::Options;
use crate::segment::Segment;
use crate::seq::SeqNum;

use super::timeout::Timer;
use super::{Connection, Seed};

/// Where the bytes begin that come with a SYN.
pub(super) const BEHIND_SYN: i64 = 1;

/// So long after a reset in SYN-SENT the first SYN is sent again.
const SYN_AFTER_RESET: Duration = Duration::from_millis(2);

/// The peer's MSS when it says nothing (RFC 9293 section 3.7.1).
const MSS_DEFAULT_V4: u16 = 536;
const MSS_DEFAULT_V6: u16 = 1220;

/// The MSS that the peer's SYN announces, or has by saying nothing.
pub(crate) fn peer_mss(tuple: &FourTuple, options: &Options) -> u16 {
    let default = if tuple.remote.addr.is_ipv4() {
        MSS_DEFAULT_V4
    } else {
        MSS_DEFAULT_V6
    };
    options.mss.unwrap_or(default)
}

impl<B> Connection<B> {
    /// In SYN-RECEIVED, for a listener, by the SYN `segment`.
    pub(crate) fn passive(
        seed: &Seed,
        config: &Config,
        now: Instant,
        listener: Endpoint,
        segment: &Segment<'_>,
    ) -> Self {
        let mut connection = Self::active(seed, config, now);
        connection.listener = Some(listener);
        connection.state = State::SynReceived;
        connection.counters.segments_in = 1;
        connection.learn(config, now, segment);
        connection
    }

    /// What answered the SYN `segment` when it came: its SYN-ACK is on its way, and when it left is
    /// not known (RFC 4987 section 3.6).
    pub(crate) fn from_cookie(
        seed: &Seed,
        config: &Config,
        now: Instant,
        listener: Endpoint,
        segment: &Segment<'_>,
    ) -> Self {
        let mut connection = Self::passive(seed, config, now, listener, segment);
        connection.transmit(now, config, 1, &mut One::default());
        // As if it was sent more than once: no round trip is measured by it.
        connection.syns = 0;
        connection
    }

    /// SYN-SENT (section 3.10.7.3). What comes with a SYN that does not establish the connection is
    /// left for the peer to send again.
    pub(super) fn on_segment_in_syn_sent(
        &mut self,
        env: &mut Env<'_, B>,
        segment: &Segment<'_>,
        received: &mut Received,
    ) {
        let header = &segment.header;
        let flags = header.flags;
        let acceptable = self.outbound.position(header.ack) == 1 && self.outbound.outstanding();
        if flags.ack() && !acceptable {
            env.effects
                .reset_stranger(env.now, Some(self.id), self.tuple, segment);
            if !flags.syn() && !flags.rst() && self.syns == 1 {
                // The peer has an older connection of these ends, which the reset ends (RFC 9293 section
                // 3.5.1). The SYN need not wait for its timeout to go again.
                self.timer = Timer::Retransmit(env.now + SYN_AFTER_RESET);
            }
            return;
        }
        if flags.rst() {
            if flags.ack() {
                self.die(env, Some(Event::Refused));
            }
            return;
        }
        if !flags.syn() {
            return;
        }
        self.learn(env.config, env.now, segment);
        if flags.ack() {
            let window = u64::from(header.window);
            self.outbound.syn_acknowledged();
            self.outbound.update_window(0, 1, window);
            self.establish(env);
            self.inbound.ack_at_once();
            self.on_text(env, segment, BEHIND_SYN, received);
        } else {
            // Simultaneous open.
            self.state = State::SynReceived;
            self.syn_due = true;
        }
    }

    /// An earlier connection of the same ends has sent up to `sent_to`: no number of it is used
    /// again (RFC 9293 section 3.6.1). Before the SYN goes out.
    pub(crate) fn begin_behind(&mut self, sent_to: SeqNum) {
        if !sent_to.before(self.outbound.iss()) {
            self.outbound.begin_at(sent_to.add(1 << 16));
        }
    }

    /// The acknowledgment that completes SYN-RECEIVED; `false` when it is not one.
    pub(super) fn complete_open(&mut self, env: &mut Env<'_, B>, segment: &Segment<'_>) -> bool {
        let header = &segment.header;
        if self.outbound.position(header.ack) != 1 || !self.outbound.outstanding() {
            env.effects
                .reset_stranger(env.now, Some(self.id), self.tuple, segment);
            return false;
        }
        self.outbound.syn_acknowledged();
        // The window of a SYN is never scaled (RFC 7323 section 2.2).
        let shift = if header.flags.syn() {
            0
        } else {
            self.peer_shift
        };
        let start = self.inbound.position(header.seq);
        self.outbound
            .update_window(start, 1, u64::from(header.window) << shift);
        self.establish(env);
        true
    }

    /// Takes what the peer's SYN says.
    fn learn(&mut self, config: &Config, now: Instant, segment: &Segment<'_>) {
        let header = &segment.header;
        let options = &header.options;
        self.ecn.peer_said(header.flags);
        match options.window_scale.filter(|_| config.window_scale) {
            Some(shift) => {
                self.scales = true;
                self.peer_shift = shift.min(WINDOW_SHIFT_MAX);
            }
            None => self.plan = self.plan.unscaled(),
        }
        if let Some(timestamps) = options.timestamps.filter(|_| config.timestamps) {
            self.clock.start(now, timestamps);
        }
        self.sack = options.sack_permitted && config.sack;
        self.emss = self.effective_mss(peer_mss(&self.tuple, options));
        self.begin_path(config);
        self.inbound = Inbound::new(header.seq, self.plan, self.emss, self.sack);
        let smss = u64::from(self.emss);
        let segments = match config.congestion {
            CongestionControl::Bbr => config.send_queue_segments,
            _ => config.window_segments.min(config.send_queue_segments),
        };
        let limit = smss.saturating_mul(segments as u64);
        self.congestion = Congestion::new(config, smss, limit);
        self.outbound.update_window(0, 0, u64::from(header.window));
    }

    fn establish(&mut self, env: &mut Env<'_, B>) {
        self.state = State::Established;
        self.timer = Timer::Idle;
        self.syn_due = false;
        self.unanswered = 0;
        if self.syns == 1 {
            let rtt = env.now.nanos_since(self.syn_sent_at);
            self.rtt.measured(rtt, env.config);
            self.rack.opened(env.now, rtt);
        }
        self.rtt.handshake_over(self.syn_timeouts > 0, env.config);
        if self.syn_timeouts > 1 {
            self.congestion.handshake_was_lossy();
        }
        if env.config.congestion == CongestionControl::Bbr {
            self.begin_model(env.now);
        }
        self.last_data_at = env.now;
        if self.ecn.echoes() {
            self.inbound.echo_marks(EchoMode::of(env.config.congestion));
        }
        let event = match self.listener {
            Some(listener) => Event::Incoming {
                listener,
                tuple: self.tuple,
            },
            None => Event::Established,
        };
        env.effects.events.push_back((self.id, event));
        if self.outbound.fin.wanted {
            self.state = State::FinWait1;
        }
    }
}
