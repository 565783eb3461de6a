//! Probes of a path that is idle (RFC 9260 section 8.3).

use userspace_net::Instant;

use super::Association;
use crate::chunk::Chunk;
use crate::config::Config;
use crate::effects::Env;
use crate::interface::State;
use crate::packet::Writer;
use crate::parameter::{self, Parameter};
use crate::random::Random;
use crate::tlv::NoRoom;

/// Bytes of a heartbeat's parameter: head, nonce, time.
pub(super) const PARAMETER_LEN: usize = 20;

/// The last heartbeat.
#[derive(Debug, Default)]
pub(super) struct Heartbeat {
    /// What it says that nobody else can know, and when it was sent; until it is answered.
    sent: Option<(u64, Instant)>,
    /// Its timeout runs.
    is_awaited: bool,
}

impl<B> Association<B> {
    /// The states in which heartbeats are sent and, with COOKIE-ECHOED, answered.
    pub(super) const fn has_heartbeats(&self) -> bool {
        matches!(
            self.state,
            State::Established | State::ShutdownPending | State::ShutdownReceived
        )
    }

    /// The next one goes after `HB.interval` and one timeout, half of it more or less.
    pub(super) fn restart_heartbeat(&mut self, now: Instant, config: &Config, random: &mut Random) {
        self.heartbeat.is_awaited = false;
        self.timers.heartbeat = config.heartbeat_interval.map(|interval| {
            let rto = self.path.rto.get();
            // The jitter is a part of 2^16.
            let jitter = rto * (random.number() & 0xffff) as u32 / 0x1_0000;
            now + interval + rto / 2 + jitter
        });
    }

    pub(super) fn on_heartbeat_timer(&mut self, env: &mut Env<'_, B>) {
        if self.heartbeat.is_awaited {
            self.path.rto.back_off();
            if !self.count_error(env) {
                return;
            }
            self.restart_heartbeat(env.now, env.config, env.random);
        } else if self.outbound.is_outstanding() {
            // Data probes the path.
            self.restart_heartbeat(env.now, env.config, env.random);
        } else {
            self.heartbeat.is_awaited = true;
            self.pending.heartbeat = true;
            self.timers.heartbeat = Some(env.now + self.path.rto.get());
        }
    }

    pub(super) fn write_heartbeat(
        &mut self,
        writer: &mut Writer<'_>,
        env: &mut Env<'_, B>,
    ) -> Result<(), NoRoom> {
        self.heartbeat.sent = Some(write_info(writer, env)?);
        self.pending.heartbeat = false;
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
        let Some((_, sent)) = self
            .heartbeat
            .sent
            .take_if(|(nonce, sent)| info(*nonce, *sent) == *found)
        else {
            return;
        };
        self.path
            .measured(env.now, env.now.saturating_duration_since(sent));
        self.peer_answers(env);
        self.ask_mtu(env);
        self.restart_heartbeat(env.now, env.config, env.random);
    }

    /// None is sent any more.
    pub(super) fn end_heartbeats(&mut self) {
        self.timers.heartbeat = None;
        self.pending.heartbeat = false;
        self.heartbeat = Heartbeat::default();
        self.end_probing();
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

/// What a heartbeat says.
pub(super) fn info(nonce: u64, sent: Instant) -> [u8; 16] {
    // Truncated after some 584 years.
    let sent = sent.as_nanos();
    (u128::from(nonce) << 64 | u128::from(sent)).to_be_bytes()
}
