//! Listening, and the peers that come.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use rnic::{ConnectionRequest, ListenOptions, Listener};
use rustix::io::Errno;

use super::bell::Watchers;
use super::options::Options;
use super::socket::{Family, Phase, Socket, State};
use super::stream::{End, LOOKS, Stream};
use super::wire::Hello;
use crate::cm::net::{backlog_within, listen_everywhere, unmapped};
use crate::ffi::Outcome;
use crate::process::Process;
use crate::session::Session;

/// Peers that a call to accept passes over. After so many in a row it fails, as accept(2) may.
const GONE_MAX: usize = 16;

/// Connections that are accepted before the program asks for them, at most; its backlog may be less.
const AHEAD_MAX: u32 = 64;

/// Where it listens, and who has come. As with TCP's backlog peers are connected whether the program accepts them
/// or not. Those that are beyond it wait at the RNIC, whose backlog bounds them.
pub(crate) struct Listening {
    listeners: Vec<(Arc<Session>, Listener)>,
    /// As many peers may wait at each of them, or here.
    backlog: u32,
    /// Accepted, and not given to the program yet.
    ready: VecDeque<(Socket, SocketAddr)>,
    /// One for which there was no memory, or nothing else that it needs. The program's call tries again.
    unready: Option<Waiting>,
}

struct Waiting {
    session: Arc<Session>,
    request: ConnectionRequest,
    hello: Hello,
}

impl Listening {
    pub(crate) fn has_request(&self) -> bool {
        !self.ready.is_empty() || self.unready.is_some()
    }

    /// No peer comes any more: the RNIC is gone on each address where it listened.
    pub(crate) fn is_over(&self) -> bool {
        self.listeners.is_empty() && !self.has_request()
    }

    /// Accepts peers as far as there is a place for them. Whether there is something to tell now.
    pub(crate) fn look(&mut self, family: Family, options: &Options) -> bool {
        while self.unready.is_none() && self.ready.len() < self.backlog.min(AHEAD_MAX) as usize {
            let Some(waiting) = self.next() else {
                break;
            };
            match accept(&waiting.session, family, options) {
                Ok(prepared) => match prepared.begin(waiting) {
                    Ok(ready) => self.ready.push_back(ready),
                    Err(fail) => log::debug!("a peer can't be accepted: {fail}"),
                },
                Err(fail) => {
                    log::info!("a peer can't be accepted before raccept: {fail}");
                    self.unready = Some(waiting);
                }
            }
        }
        self.has_request() || self.is_over()
    }

    /// The next peer that speaks the protocol, at any of the listeners.
    fn next(&mut self) -> Option<Waiting> {
        let (mut found, most) = (None, self.backlog);
        self.listeners.retain(|(session, listener)| {
            if found.is_some() {
                return true;
            }
            match next_of(session, listener, most) {
                Ok(waiting) => found = waiting,
                Err(error) => {
                    log::warn!("no peer can be accepted any more: {error}");
                    return false;
                }
            }
            true
        });
        found
    }
}

/// The next peer at a listener that speaks the protocol. Others are rejected: those of now, which the backlog
/// bounds. Of later ones the session's thread tells.
fn next_of(
    session: &Arc<Session>,
    listener: &Listener,
    most: u32,
) -> Result<Option<Waiting>, rnic::Error> {
    for _ in 0..=most {
        let request = match listener.accept().wait(Duration::ZERO) {
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
                log::info!("{} is rejected: {why}", request.remote());
                if let Err(error) = request.reject(&[]) {
                    log::debug!("a peer that was to be rejected is gone: {error}");
                }
            }
        }
    }
    Ok(None)
}

struct Prepared {
    socket: Socket,
    stream: Stream,
}

fn accept(session: &Arc<Session>, family: Family, options: &Options) -> Outcome<Prepared> {
    Ok(Prepared {
        socket: Socket::new(family, options.clone())?,
        stream: Stream::prepare(session, options.sizes())?,
    })
}

impl Prepared {
    /// Accepts a peer: its socket and its address. The connection may still be in the making.
    fn begin(self, waiting: Waiting) -> Outcome<(Socket, SocketAddr)> {
        let Waiting { request, hello, .. } = waiting;
        let seen = self.socket.with(|state| {
            state.local = Some(request.local());
            state.remote = Some(request.remote());
            state.remote_as_seen()
        })?;
        let Self { socket, stream } = self;
        socket.open(stream, Some(hello), |stream| stream.accept(request))?;
        Ok((socket, seen))
    }
}

impl Socket {
    pub(crate) fn listen(self: &Arc<Self>, backlog: c_int) -> Outcome<()> {
        self.with(|state| state.listen(Arc::downgrade(self), backlog))
    }

    /// Takes in who has come, while the program is elsewhere. The session's thread calls it.
    pub(super) fn take_peers(&self) {
        self.with(State::take_peers);
    }
}

impl State {
    fn take_peers(&mut self) {
        self.bell.ring_for_news();
        self.progress();
    }

    fn listen(&mut self, own: Weak<Socket>, backlog: c_int) -> Outcome<()> {
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
        let mut most = 1;
        let port = listen_everywhere(local, bound, self.options.only_own_family, |session, at| {
            let backlog = backlog_within(session, backlog)?;
            most = most.max(backlog);
            let options = ListenOptions::default()
                .backlog(backlog)
                .transport(Process::transport()?);
            let listener = session.rnic().listen(at, options)?;
            for id in listener.ids() {
                session
                    .part::<Watchers>()
                    .watch_listener(id, &self.bell, &own);
            }
            let port = listener.local_addr().port();
            listeners.push((session.clone(), listener));
            Ok(port)
        })?;
        self.local = Some(SocketAddr::new(local.ip(), port));
        self.phase = Phase::Listening(Listening {
            listeners,
            backlog: most,
            ready: VecDeque::new(),
            unready: None,
        });
        // Peers that came meanwhile are not reported again.
        self.take_peers();
        Ok(())
    }

    /// Gives the program a peer that waits, if there is one: its socket and its address. The connection may
    /// still be in the making. A peer that has gone meanwhile is passed over.
    pub(crate) fn accept(&mut self) -> Outcome<Option<(Socket, SocketAddr)>> {
        for _ in 0..GONE_MAX {
            let Some((mut socket, seen)) = self.accept_first()? else {
                return Ok(None);
            };
            let options = self.options.clone();
            if !socket.with(|state| state.is_there(options)) {
                log::debug!("{seen} has gone");
                continue;
            }
            let numbered = socket.renumber();
            if let (Err(_), Phase::Listening(listening)) = (&numbered, &mut self.phase) {
                listening.ready.push_front((socket, seen));
                return numbered.map(|()| None);
            }
            return numbered.map(|()| Some((socket, seen)));
        }
        Err(Errno::CONNABORTED.into())
    }

    fn accept_first(&mut self) -> Outcome<Option<(Socket, SocketAddr)>> {
        let Phase::Listening(listening) = &mut self.phase else {
            return Err(Errno::INVAL.into());
        };
        if let Some(ready) = listening.ready.pop_front() {
            // Another one may wait at the RNIC, which is not reported again.
            listening.look(self.family, &self.options);
            return Ok(Some(ready));
        }
        if let Some(waiting) = listening.unready.take() {
            let accepted = accept(&waiting.session, self.family, &self.options)
                .and_then(|prepared| prepared.begin(waiting));
            listening.look(self.family, &self.options);
            return accepted.map(Some);
        }
        if listening.is_over() {
            return Err(Errno::IO.into());
        }
        match self.options.nonblocking {
            true => Err(Errno::AGAIN.into()),
            false => Ok(None),
        }
    }

    /// Of one that was accepted before: whether its connection is there, or in the making, or has left something
    /// to read. It has the options of its listening rsocket, as they are now.
    fn is_there(&mut self, options: Options) -> bool {
        self.options = options;
        for _ in 0..LOOKS {
            if !self.progress() {
                break;
            }
        }
        match &self.phase {
            Phase::Idle => false,
            Phase::Open(stream) => {
                stream.has_data() || !matches!(stream.end(), Some(End::Failed(_)))
            }
            Phase::Opening(..) | Phase::Listening(_) => true,
        }
    }
}
