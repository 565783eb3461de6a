//! A packet for an association: its Verification Tag (RFC 9260 section 8.5), and its chunks in their order.

use super::Association;
use super::data::Brought;
use crate::cause::{Cause, Causes};
use crate::chunk::Chunk;
use crate::effects::Env;
use crate::interface::{Message, Route, State};
use crate::packet::Packet;

/// What becomes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Taken,
    /// Its tag is not the association's: dropped.
    WrongTag,
    /// It is answered as if there were no association (section 8.5.1, E).
    Stranger,
}

impl<B> Association<B> {
    /// Takes a packet that is no INIT, and came this way. A COOKIE ECHO at its front was taken by [`Association::on_cookie`].
    pub(crate) fn receive(
        &mut self,
        packet: &Packet<'_>,
        from: Route,
        env: &mut Env<'_, B>,
        mut deliver: impl FnMut(Message<'_>),
    ) -> Verdict {
        let is_opening = matches!(self.state, State::CookieWait | State::CookieEchoed);
        if is_opening && packet.chunks().any(|chunk| chunk == Chunk::ShutdownAck) {
            return Verdict::Stranger;
        }
        if packet.header.tag != self.tags.local {
            return self.receive_reflected(packet, env);
        }
        self.heard_at = env.now;
        // An INIT ACK may come from an address that is not known yet.
        let known = self.path_to(from.ends.remote.ip());
        self.heard_from = known.unwrap_or(0);
        self.heard_by(self.heard_from, from.udp, env);
        self.heard_in_shutdown(env);
        let mut brought = Brought::new(&self.inbound.arrivals);
        for chunk in packet.chunks() {
            // An INIT ends the reading: it must be alone (section 12.3).
            if matches!(chunk, Chunk::Init(_)) {
                break;
            }
            match &chunk {
                Chunk::Data(data) => self.on_data(data, &mut brought, env, &mut deliver),
                Chunk::InitAck(init) => self.on_init_ack(packet, init, from.ends.remote.ip(), env),
                chunk => self.on_control(chunk, env),
            }
            if self.is_gone() {
                return Verdict::Taken;
            }
        }
        self.acknowledge(&brought, env);
        Verdict::Taken
    }

    /// A packet with another tag than ours: only what sends the peer's own one back is taken (section 8.5.1, B and C).
    fn receive_reflected(&mut self, packet: &Packet<'_>, env: &mut Env<'_, B>) -> Verdict {
        if self.tags.remote == 0 || packet.header.tag != self.tags.remote {
            return Verdict::WrongTag;
        }
        let is_end = |chunk: &Chunk<'_>| {
            matches!(
                chunk,
                Chunk::Abort {
                    reflected: true,
                    ..
                } | Chunk::ShutdownComplete { reflected: true }
            )
        };
        // Other chunks may stand before an ABORT (section 3.3.7).
        match packet.chunks().find(is_end) {
            Some(Chunk::Abort { causes, .. }) => self.on_reflected_abort(&causes, env),
            Some(_) => self.on_shutdown_complete(env),
            None => return Verdict::WrongTag,
        }
        Verdict::Taken
    }

    fn on_control(&mut self, chunk: &Chunk<'_>, env: &mut Env<'_, B>) {
        match chunk {
            Chunk::Sack(sack) => self.on_sack(sack, env),
            Chunk::CookieAck => self.on_cookie_ack(env),
            Chunk::Heartbeat(info) => self.on_heartbeat(info),
            Chunk::HeartbeatAck(info) => self.on_heartbeat_ack(info, env),
            Chunk::Abort {
                reflected: false,
                causes,
            } => self.on_abort(causes, env),
            Chunk::Shutdown { cumulative } => self.on_shutdown(*cumulative, env),
            Chunk::ShutdownAck => self.on_shutdown_ack(env),
            Chunk::ShutdownComplete { reflected: false } => self.on_shutdown_complete(env),
            Chunk::Error(causes) => self.on_error(causes, env),
            Chunk::Unknown { report, whole } => {
                // As long as the peer's tag is not known nothing can be told.
                if report.is_told() && self.state != State::CookieWait {
                    self.pending.error(&Cause::UnrecognizedChunk(whole));
                }
            }
            Chunk::Malformed { .. } => self.violated("a chunk is too short for its type", env),
            // Padding, reflected ones under our own tag, a cookie that is not in front, and what `receive` has taken.
            Chunk::Abort { .. }
            | Chunk::ShutdownComplete { .. }
            | Chunk::CookieEcho(_)
            | Chunk::Pad { .. }
            | Chunk::Data(_)
            | Chunk::Init(_)
            | Chunk::InitAck(_) => {}
        }
    }

    fn on_error(&mut self, causes: &Causes<'_>, env: &mut Env<'_, B>) {
        let is_stale = |cause| matches!(cause, Cause::StaleCookie(_));
        if causes.iter().any(is_stale) {
            self.on_stale_cookie(env);
        }
    }
}
