//! An INIT or a State Cookie, when there is an association already (RFC 9260 section 5.2): both sides ask at the same
//! time, the peer has restarted, or the chunk is old.

use std::num::NonZeroU64;

use super::{Association, Peer, Seed};
use crate::cause::Cause;
use crate::cookie::{self, Returned};
use crate::effects::Env;
use crate::interface::{Event, State};
use crate::tsn::Tsn;

/// How an INIT is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answering {
    /// As without an association, but for these numbers; `None`: fresh ones.
    InitAck {
        /// Our tag and TSN.
        own: Option<(u32, Tsn)>,
        /// For the cookie.
        tie: Option<NonZeroU64>,
    },
    /// Not at all: the SHUTDOWN ACK goes again (section 9.2).
    Nothing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Collision {
    /// The rest of its packet is the association's.
    Accepted,
    /// The peer has restarted. The rest of its packet is dropped, and comes again: the layer above must hear of the
    /// restart before it is shown a message.
    Restarted,
    /// Dropped with its packet.
    Discarded,
    /// The same, and the peer is told that it came too late.
    Stale,
}

impl<B> Association<B> {
    /// Sections 5.2.1, 5.2.2: nothing changes but for what is to be sent.
    pub(crate) fn on_init(&mut self) -> Answering {
        let own = Some((self.tags.local, self.local_tsn));
        match self.state {
            State::CookieWait => Answering::InitAck { own, tie: None },
            State::CookieEchoed => Answering::InitAck {
                own,
                tie: Some(self.tie),
            },
            State::ShutdownAckSent => {
                self.pending.shutdown_ack = true;
                Answering::Nothing
            }
            _ => Answering::InitAck {
                own: None,
                tie: Some(self.tie),
            },
        }
    }

    /// A cookie of ours for these ends (table 12 of section 5.2.4).
    pub(crate) fn on_cookie(&mut self, returned: &Returned, env: &mut Env<'_, B>) -> Collision {
        let cookie = &returned.state;
        let local = cookie.tags.local == self.tags.local;
        // As long as the peer's tag is not known it is 0, and matches none.
        let remote = cookie.tags.remote == self.tags.remote;
        if returned.late.is_some() && !(local && remote) {
            return Collision::Stale;
        }
        match (local, remote, cookie.tie) {
            (false, false, Some(tie)) if tie == self.tie => self.on_restart(cookie, env),
            (true, false, _) => self.on_both_asked(cookie, env),
            (true, true, _) => self.on_repeated(env),
            // Action C, and what the table does not show.
            _ => Collision::Discarded,
        }
    }

    /// Action A: the peer has restarted.
    fn on_restart(&mut self, cookie: &cookie::State, env: &mut Env<'_, B>) -> Collision {
        if self.state == State::ShutdownAckSent {
            self.pending.shutdown_ack = true;
            self.pending.error(&Cause::CookieInShutdown);
            return Collision::Discarded;
        }
        let released = &mut env.effects.released;
        self.outbound
            .clear(|message| released.push_back(message.buffer));
        let seed = Seed {
            id: self.id,
            route: self.paths[0].route(self.ends),
            tag: cookie.tags.local,
            tsn: cookie.local_tsn,
        };
        let mut restarted = Self::passive(seed, cookie, env.config, env.random, env.now);
        restarted.keep_mtu(self, env.now);
        *self = restarted;
        self.event(env, Event::Restarted(self.agreed()));
        Collision::Restarted
    }

    /// Action B: both sides have asked, and the peer took another tag when it did.
    fn on_both_asked(&mut self, cookie: &cookie::State, env: &mut Env<'_, B>) -> Collision {
        match self.state {
            State::CookieWait | State::CookieEchoed => {
                // What went with a cookie had another tag of the peer's.
                self.outbound.timed_out(0);
                self.adopt(&Peer::of(cookie), env.config);
                self.add_paths_of(cookie, env.config);
                self.establish(env);
            }
            _ => self.tags.remote = cookie.tags.remote,
        }
        self.pending.cookie_ack = true;
        Collision::Accepted
    }

    /// Action D: the COOKIE ACK was lost, or both sides have asked.
    fn on_repeated(&mut self, env: &mut Env<'_, B>) -> Collision {
        if self.state == State::CookieEchoed {
            self.establish(env);
        }
        self.pending.cookie_ack = true;
        Collision::Accepted
    }
}
