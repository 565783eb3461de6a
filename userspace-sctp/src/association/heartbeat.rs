//! Probes of a path that is idle, or that is not confirmed (RFC 9260 sections 5.4, 8.3).

use userspace_net::Instant;

use super::Association;
use crate::chunk::Chunk;
use crate::config::Config;
use crate::effects::Env;
use crate::interface::{Event, State};
use crate::packet::Writer;
use crate::parameter::{self, Parameter};
use crate::path::Heartbeat;
use crate::random::Random;
use crate::tlv::NoRoom;

/// Bytes of a heartbeat's parameter: head, nonce, time.
const PARAMETER_LEN: usize = 20;

impl<B> Association<B> {
    /// The states in which heartbeats are sent and, with COOKIE-ECHOED, answered.
    pub(super) const fn has_heartbeats(&self) -> bool {
        matches!(
            self.state,
            State::Established | State::ShutdownPending | State::ShutdownReceived
        )
    }

    /// The association is established. Paths that are not confirmed are probed at once.
    pub(super) fn begin_heartbeats(&mut self, now: Instant, config: &Config, random: &mut Random) {
        for at in 0..self.paths.len() {
            self.restart_heartbeat(at, now, config, random);
            let path = &mut self.paths[at];
            if !path.is_confirmed && !path.is_withdrawn {
                path.timers.heartbeat = Some(now);
            }
        }
    }

    /// The next one goes after `HB.interval` and one timeout, half of it more or less; after the timeout alone while
    /// the path is not confirmed, or is left for another one, up to `Path.Max.Retrans` times.
    fn restart_heartbeat(&mut self, at: usize, now: Instant, config: &Config, random: &mut Random) {
        let is_left = self.is_left(at);
        let is_busy = self.outbound.flight_on(at) > 0;
        let path = &mut self.paths[at];
        path.heartbeat.is_awaited = false;
        let rto = path.rto.get();
        if path.is_withdrawn {
            return;
        }
        if is_left || !path.is_confirmed && path.is_active {
            // What is under way there probes it.
            path.timers.heartbeat = Some(if is_busy { now + rto } else { now });
            return;
        }
        path.timers.heartbeat = config.heartbeat_interval.map(|interval| {
            // The jitter is a part of 2^16.
            let jitter = rto * (random.number() & 0xffff) as u32 / 0x1_0000;
            now + interval + rto / 2 + jitter
        });
    }

    pub(super) fn on_heartbeat_timer(&mut self, at: usize, env: &mut Env<'_, B>) {
        let path = &mut self.paths[at];
        if path.heartbeat.is_awaited {
            path.rto.back_off();
            // Elsewhere it says nothing of the association (section 8.1), and where data is under way its timeouts do.
            let counts = at == self.data_path() && !self.outbound.is_outstanding();
            if !self.count_error(at, counts, env) {
                return;
            }
            self.restart_heartbeat(at, env.now, env.config, env.random);
        } else if self.outbound.flight_on(at) > 0 {
            // Data probes the path.
            self.restart_heartbeat(at, env.now, env.config, env.random);
        } else {
            path.heartbeat.is_awaited = true;
            path.heartbeat.is_pending = true;
            path.timers.heartbeat = Some(env.now + path.rto.get());
        }
    }

    pub(super) fn write_heartbeat(
        &mut self,
        at: usize,
        writer: &mut Writer<'_>,
        env: &mut Env<'_, B>,
    ) -> Result<(), NoRoom> {
        let heartbeat = &mut self.paths[at].heartbeat;
        heartbeat.sent = Some(write_info(writer, env)?);
        heartbeat.is_pending = false;
        Ok(())
    }

    pub(super) fn on_heartbeat(&mut self, info: &[u8]) {
        if self.has_heartbeats() || self.state == State::CookieEchoed {
            self.pending.heartbeat_ack(info);
        }
    }

    /// An answer also counts when it comes after its timeout, until the next heartbeat goes.
    pub(super) fn on_heartbeat_ack(&mut self, found: &[u8], env: &mut Env<'_, B>) {
        let Some(Parameter::HeartbeatInfo(found)) = parameter::Parameters::new(found).iter().next()
        else {
            return;
        };
        if !self.has_heartbeats() || self.on_probe_ack(found, env) {
            return;
        }
        let is_sent = |(nonce, sent): &(u64, Instant)| info(*nonce, *sent) == *found;
        let is_its = |sent: Option<(u64, Instant)>| sent.as_ref().is_some_and(is_sent);
        let at = self
            .paths
            .iter()
            .position(|path| is_its(path.heartbeat.sent));
        let Some(at) = at else {
            return;
        };
        let path = &mut self.paths[at];
        if let Some((_, sent)) = path.heartbeat.sent.take() {
            path.measured(env.now, env.now.saturating_duration_since(sent));
        }
        let remote = path.remote;
        if !std::mem::replace(&mut path.is_confirmed, true) {
            self.event(env, Event::PathConfirmed { remote });
        }
        self.peer_answers(at, env);
        // A heartbeat is small: that it passes says nothing of data that did not, where data goes.
        if at != self.data_path() || !self.paths[at].mtu.is_doubted() {
            self.ask_mtu(at, env);
        }
        self.restart_heartbeat(at, env.now, env.config, env.random);
    }

    /// None is sent any more.
    pub(super) fn end_heartbeats(&mut self) {
        for path in &mut self.paths {
            path.heartbeat = Heartbeat::default();
            path.probe = None;
            (path.timers.heartbeat, path.timers.probe) = (None, None);
        }
    }
}

/// Writes a HEARTBEAT with a fresh nonce; gives what it says.
pub(super) fn write_info<B>(
    writer: &mut Writer<'_>,
    env: &mut Env<'_, B>,
) -> Result<(u64, Instant), NoRoom> {
    let nonce = env.random.number();
    let mut parameter = [0; PARAMETER_LEN];
    let info = Parameter::HeartbeatInfo(&info(nonce, env.now));
    parameter::Writer::new(&mut parameter).put(&info)?;
    writer.chunk(&Chunk::Heartbeat(&parameter))?;
    Ok((nonce, env.now))
}

pub(super) fn info(nonce: u64, sent: Instant) -> [u8; 16] {
    // Truncated after some 584 years.
    let sent = sent.as_nanos();
    (u128::from(nonce) << 64 | u128::from(sent)).to_be_bytes()
}
