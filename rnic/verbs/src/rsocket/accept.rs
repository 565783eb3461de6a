//! Listening, and the peers that come.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rnic::{ConnectionRequest, ListenOptions, Listener};
use rustix::io::Errno;

use super::socket::{Phase, Socket, State};
use super::stream::Stream;
use super::wire::Hello;
use crate::cm::{backlog_within, listen_everywhere, unmapped};
use crate::ffi::Outcome;
use crate::process::Process;
use crate::session::Session;

/// Peers that a call to accept passes over. After so many in a row it fails, as accept(2) may.
const GONE_MAX: usize = 16;

/// Where it listens, and a peer that waits. Further peers wait at the RNIC, whose backlog bounds them.
pub(crate) struct Listening {
    listeners: Vec<(Arc<Session>, Listener)>,
    first: VecDeque<Waiting>,
}

/// A peer that waits.
struct Waiting {
    session: Arc<Session>,
    request: ConnectionRequest,
    hello: Hello,
}

impl Listening {
    pub(crate) fn has_request(&self) -> bool {
        !self.first.is_empty()
    }

    /// No peer comes any more: the RNIC is gone on each address where it listened.
    pub(crate) fn is_over(&self) -> bool {
        self.listeners.is_empty() && self.first.is_empty()
    }

    /// Looks for a peer, when none is known to wait. Whether there is something to tell now.
    pub(crate) fn look(&mut self) -> bool {
        let first = &mut self.first;
        self.listeners.retain(|(session, listener)| {
            if !first.is_empty() {
                return true;
            }
            match next_of(session, listener) {
                Ok(waiting) => first.extend(waiting),
                Err(error) => {
                    log::warn!("no peer can be accepted any more: {error}");
                    return false;
                }
            }
            true
        });
        self.has_request() || self.is_over()
    }
}

/// The next peer at a listener that speaks the protocol. Others are rejected, so many at one look.
fn next_of(session: &Arc<Session>, listener: &Listener) -> Result<Option<Waiting>, rnic::Error> {
    for _ in 0..GONE_MAX {
        let request = match listener.accept_request(Duration::ZERO) {
            Ok(request) => request,
            Err(rnic::Error::Timeout { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        match Hello::decode(request.private_data()) {
            Ok(hello) => {
                return Ok(Some(Waiting {
                    session: session.clone(),
                    request,
                    hello,
                }));
            }
            Err(why) => {
                log::warn!("{} is rejected: {why}", request.remote());
                if let Err(error) = request.reject(&[]) {
                    log::debug!("a peer that was to be rejected is gone: {error}");
                }
            }
        }
    }
    // Further ones are for the next look.
    for id in listener.ids() {
        session.rsockets.tell_listener(id);
    }
    Ok(None)
}

impl State {
    pub(crate) fn listen(&mut self, backlog: c_int) -> Outcome<()> {
        match self.phase {
            Phase::Idle => {}
            Phase::Listening(_) => return Ok(()),
            Phase::Opening(..) | Phase::Open(_) => return Err(Errno::INVAL.into()),
        }
        let local = match self.local_as_seen() {
            wildcard if wildcard.ip().is_unspecified() => wildcard,
            local => unmapped(local),
        };
        let bound = match local.ip().is_unspecified() {
            true => None,
            false => Some(Process::current().session_at(local.ip())?),
        };
        let mut listeners = Vec::new();
        let port = listen_everywhere(local, bound, self.options.only_own_family, |session, at| {
            let backlog = backlog_within(session, backlog)?;
            let options = ListenOptions::default()
                .backlog(backlog)
                .transport(Process::transport()?);
            let listener = Listener::bind_with(session.rnic(), at, options)?;
            for id in listener.ids() {
                session.rsockets.watch_listener(id, &self.bell);
            }
            let port = listener.local_addr().port();
            listeners.push((session.clone(), listener));
            Ok(port)
        })?;
        self.local = Some(SocketAddr::new(local.ip(), port));
        self.phase = Phase::Listening(Listening {
            listeners,
            first: VecDeque::new(),
        });
        Ok(())
    }

    /// Accepts the peer that waits, if there is one: its socket and its address. The connection may still
    /// be in the making. A peer that has gone meanwhile is passed over.
    pub(crate) fn accept(&mut self) -> Outcome<Option<(Socket, SocketAddr)>> {
        for _ in 0..GONE_MAX {
            match self.accept_first() {
                Err(fail) if fail.errno == Errno::CONNABORTED => log::debug!("a peer has gone"),
                accepted => return accepted,
            }
        }
        Err(Errno::CONNABORTED.into())
    }

    fn accept_first(&mut self) -> Outcome<Option<(Socket, SocketAddr)>> {
        let Phase::Listening(listening) = &mut self.phase else {
            return Err(Errno::INVAL.into());
        };
        let Some(Waiting {
            session,
            request,
            hello,
        }) = listening.first.pop_front()
        else {
            if listening.is_over() {
                return Err(Errno::IO.into());
            }
            return match self.options.nonblocking {
                true => Err(Errno::AGAIN.into()),
                false => Ok(None),
            };
        };
        // Another one may wait, of which nobody is told again.
        listening.look();
        let socket = Socket::new(self.family, self.options.clone())?;
        let stream = Stream::prepare(&session, self.options.sizes())?;
        let seen = socket.with(|state| {
            state.local = Some(request.local());
            state.remote = Some(request.remote());
            state.remote_as_seen()
        })?;
        socket.open(stream, Some(hello), |stream| stream.accept(request))?;
        Ok(Some((socket, seen)))
    }
}
