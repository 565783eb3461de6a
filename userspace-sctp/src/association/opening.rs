//! Set-up (RFC 9260 section 5.1): INIT, INIT ACK, COOKIE ECHO, COOKIE ACK.

use std::net::IpAddr;
use std::time::Duration;

use userspace_net::Instant;

use super::{Association, Peer, Seed};
use crate::addresses::Others;
use crate::cause::Cause;
use crate::chunk::{Init, InitError};
use crate::config::Config;
use crate::cookie;
use crate::effects::Env;
use crate::interface::{Event, Failure, State};
use crate::packet::{HEADER_LEN, Packet};
use crate::parameter::Parameter;
use crate::random::Random;
use crate::tlv::{HEAD_LEN, padded};

/// The type of the State Cookie parameter, which an INIT ACK must have.
const STATE_COOKIE: [u8; 2] = [0, 7];

/// What an answer to an INIT without a State Cookie lacks.
const NO_COOKIE: &str = "it has no State Cookie";

/// A cookie is asked to live longer by the round trip and this (section 5.2.6).
const LIFE_MORE: Duration = Duration::from_secs(1);

/// What is only needed until the association is established.
#[derive(Debug, Default)]
pub(super) struct Opening {
    /// The peer's State Cookie.
    pub(super) cookie: Vec<u8>,
    /// How much longer the peer's next cookie should live.
    pub(super) preservative: Option<Duration>,
    /// INITs, or COOKIE ECHOs, that were not answered.
    pub(super) unanswered: u32,
    /// When the INIT or COOKIE ECHO was queued that is out.
    pub(super) asked: Instant,
}

/// An acceptable INIT ACK, apart from its fixed fields.
struct Answer<'a> {
    cookie: &'a [u8],
    adaptation: Option<u32>,
}

/// Why an association does not come of an INIT ACK: what the peer and what the layer above are told.
type Refusal<'a> = (Cause<'a>, &'static str);

impl<B> Association<B> {
    /// Asks for an association.
    pub(crate) fn active(seed: Seed, env: &mut Env<'_, B>) -> Self {
        let mut association = Self::new(seed, env.config, env.random, env.now);
        association.ask(env.now);
        association
    }

    /// Of a cookie of ours that came back; the COOKIE ACK waits to be sent.
    pub(crate) fn passive(
        seed: Seed,
        cookie: &cookie::State,
        config: &Config,
        random: &mut Random,
        now: Instant,
    ) -> Self {
        let mut association = Self::new(seed, config, random, now);
        association.adopt(&Peer::of(cookie), config);
        association.paths[0].is_confirmed = cookie.remote.ip() == association.ends.remote.ip();
        association.add_paths_of(cookie, config);
        association.enter_established(now, config, random);
        association.pending.cookie_ack = true;
        association
    }

    /// Sends an INIT.
    fn ask(&mut self, now: Instant) {
        self.state = State::CookieWait;
        self.pending.init = true;
        self.opening.asked = now;
        self.timers.t1 = Some(now + self.paths[0].rto.get());
    }

    /// Tells the layer above of an association of [`Association::passive`].
    pub(crate) fn announce(&self, env: &mut Env<'_, B>) {
        self.event(env, Event::Incoming(self.agreed()));
    }

    /// The handshake is over.
    pub(super) fn enter_established(&mut self, now: Instant, config: &Config, random: &mut Random) {
        self.state = State::Established;
        self.timers.t1 = None;
        (self.pending.init, self.pending.cookie_echo) = (false, false);
        self.opening = Opening::default();
        self.begin_heartbeats(now, config, random);
    }

    /// Establishes an association of [`Association::active`].
    pub(super) fn establish(&mut self, env: &mut Env<'_, B>) {
        self.enter_established(env.now, env.config, env.random);
        self.arm_t3(env);
        self.event(env, Event::Established(self.agreed()));
    }

    /// An INIT ACK from an address, with the association's tag: unexpected ones are discarded (section 5.2.3).
    pub(super) fn on_init_ack(
        &mut self,
        packet: &Packet<'_>,
        init: &Init<'_>,
        source: IpAddr,
        env: &mut Env<'_, B>,
    ) {
        if self.state != State::CookieWait || packet.chunks().count() != 1 {
            return;
        }
        match init.check() {
            Ok(()) => {}
            Err(InitError::TagZero) => {
                // Its own tag is not known: ours goes back.
                let cause = Cause::InvalidParameter;
                env.effects
                    .abort(self.route(), self.tags.local, true, &cause);
                return self.fail(env, Failure::BadAnswer("its Initiate Tag is 0"));
            }
            // It may not change anything (section 3.3.3).
            Err(InitError::WindowTooSmall { .. }) => {
                let cause = Cause::InvalidParameter;
                return env.effects.abort(self.route(), init.tag, false, &cause);
            }
            Err(InitError::NoStreams) => {
                return self.refuse(
                    env,
                    init.tag,
                    (Cause::InvalidParameter, "it has no streams"),
                );
            }
        }
        match self.read_answer(init, env.config.adaptation) {
            Ok(answer) => {
                let limit = env.config.other_addresses();
                let mut others = Others::of(init.parameters, self.ends, limit);
                others.add(source, self.ends, limit);
                self.add_paths(&others, env.config);
                self.echo(init, &answer, env);
            }
            Err(refusal) => self.refuse(env, init.tag, refusal),
        }
    }

    fn read_answer<'a>(
        &mut self,
        init: &Init<'a>,
        wanted: Option<u32>,
    ) -> Result<Answer<'a>, Refusal<'a>> {
        let (mut cookie, mut adaptation) = (None, None);
        for parameter in init.parameters.iter() {
            match parameter {
                Parameter::StateCookie(found) => cookie = Some(found),
                Parameter::Adaptation(code) => adaptation = Some(code),
                Parameter::HostName(address) => {
                    let cause = Cause::UnresolvableAddress(address);
                    return Err((cause, "an address is a host name"));
                }
                Parameter::Malformed => {
                    let cause = Cause::ProtocolViolation(b"malformed parameter");
                    return Err((cause, "a parameter is malformed"));
                }
                _ => {}
            }
        }
        let cookie = cookie.ok_or((Cause::MissingParameters(&STATE_COOKIE), NO_COOKIE))?;
        if wanted.is_some() && adaptation != wanted {
            let cause = Cause::UserInitiated(b"another adaptation layer");
            return Err((cause, "it speaks for another adaptation layer"));
        }
        // With its chunk's head it must fit a packet.
        if HEADER_LEN + HEAD_LEN + padded(cookie.len()) > self.paths[0].packet_max() {
            return Err((
                Cause::OutOfResource,
                "its State Cookie does not fit a packet",
            ));
        }
        Ok(Answer { cookie, adaptation })
    }

    /// Sends the State Cookie back.
    fn echo(&mut self, init: &Init<'_>, answer: &Answer<'_>, env: &mut Env<'_, B>) {
        let (now, offer) = (env.now, env.config.offer());
        self.adopt(
            &Peer {
                tag: init.tag,
                initial_tsn: init.initial_tsn,
                window: init.window,
                // What one side can't receive the other does not send (section 5.1.1).
                outbound_streams: offer.outbound_streams.min(init.inbound_streams),
                inbound_streams: offer.inbound_streams.min(init.outbound_streams),
                adaptation: answer.adaptation,
            },
            env.config,
        );
        for parameter in init.parameters.iter() {
            if let Parameter::Unknown { report, whole } = parameter
                && report.is_told()
            {
                self.pending.error(&Cause::UnrecognizedParameters(whole));
            }
        }
        // Reports that don't fit beside the cookie would have to wait for the COOKIE ACK (section 3.2.2).
        let cookie_len = HEAD_LEN + padded(answer.cookie.len());
        if HEADER_LEN + cookie_len + self.pending.answers().len() > self.paths[0].packet_max() {
            self.pending.answered();
        }
        if self.opening.unanswered == 0 {
            self.paths[0].measured(now, now.saturating_duration_since(self.opening.asked));
        }
        self.opening.cookie = answer.cookie.to_vec();
        // A peer that finds each cookie stale would else be asked for ever.
        if self.opening.preservative.is_none() {
            self.opening.unanswered = 0;
        }
        self.opening.asked = now;
        self.state = State::CookieEchoed;
        self.pending.init = false;
        self.pending.cookie_echo = true;
        self.timers.t1 = Some(now + self.paths[0].rto.get());
    }

    fn refuse(&mut self, env: &mut Env<'_, B>, tag: u32, (cause, why): Refusal<'_>) {
        env.effects.abort(self.route(), tag, false, &cause);
        self.fail(env, Failure::BadAnswer(why));
    }

    /// COOKIE ACK; elsewhere it is discarded (section 5.2.5).
    pub(super) fn on_cookie_ack(&mut self, env: &mut Env<'_, B>) {
        if self.state == State::CookieEchoed {
            if self.opening.unanswered == 0 {
                let rtt = env.now.saturating_duration_since(self.opening.asked);
                self.paths[0].measured(env.now, rtt);
            }
            self.establish(env);
        }
    }

    /// The State Cookie came too late: a new one is asked for, that lives longer (section 5.2.6, alternative 3).
    pub(super) fn on_stale_cookie(&mut self, env: &mut Env<'_, B>) {
        if self.state != State::CookieEchoed {
            return;
        }
        let rtt = env.now.saturating_duration_since(self.opening.asked);
        self.opening.preservative = Some(rtt + LIFE_MORE);
        self.pending.cookie_echo = false;
        self.outbound.timed_out(0);
        self.tags.remote = 0;
        if self.count_unanswered(env) {
            self.ask(env.now);
        }
    }

    /// An INIT or a COOKIE ECHO brought nothing. `false`: it was the last one.
    pub(super) fn count_unanswered(&mut self, env: &mut Env<'_, B>) -> bool {
        self.opening.unanswered += 1;
        let goes_on = self.opening.unanswered <= env.config.max_init_retransmits;
        if !goes_on {
            self.fail(env, Failure::SetupTimedOut);
        }
        goes_on
    }
}

impl Peer {
    pub(super) const fn of(cookie: &cookie::State) -> Self {
        Self {
            tag: cookie.tags.remote,
            initial_tsn: cookie.remote_tsn,
            window: cookie.window,
            outbound_streams: cookie.outbound_streams,
            inbound_streams: cookie.inbound_streams,
            adaptation: cookie.adaptation,
        }
    }
}
