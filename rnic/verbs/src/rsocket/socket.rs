//! What a program has by a descriptor, in one of its phases.

use std::ffi::{c_int, c_short};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use libc::{POLLERR, POLLHUP, POLLIN, POLLOUT};
use rustix::event::epoll;
use rustix::io::Errno;

use super::accept::Listening;
use super::bell::Bell;
use super::options::Options;
use super::stream::{End, LOOKS, Stream};
use super::wire::Hello;
use crate::ffi::{Fail, Outcome};
use crate::lock;

/// How long a thread waits at most until it looks again. One that was cancelled while it waited is
/// forgotten after this time.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(1);

pub(crate) struct Socket {
    epoll: OwnedFd,
    state: Mutex<State>,
}

pub(crate) struct State {
    pub(crate) options: Options,
    pub(crate) family: Family,
    pub(crate) local: Option<SocketAddr>,
    pub(crate) remote: Option<SocketAddr>,
    pub(crate) phase: Phase,
    /// For `SO_ERROR`.
    pub(crate) error: Option<Errno>,
    pub(crate) bell: Arc<Bell>,
    /// Until when those wait that wait now.
    waiters: Vec<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

pub(crate) enum Phase {
    /// Not connected; perhaps it could not be.
    Idle,
    Listening(Listening),
    /// The connection is being made. Who accepts knows already what the peer says.
    Opening(Box<Stream>, Option<Hello>),
    Open(Box<Stream>),
}

impl Socket {
    pub(crate) fn new(family: Family, options: Options) -> Outcome<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let bell = Arc::new(Bell::new()?);
        watch(&epoll, &bell.fd())?;
        let state = State {
            options,
            family,
            local: None,
            remote: None,
            phase: Phase::Idle,
            error: None,
            bell,
            waiters: Vec::new(),
        };
        Ok(Self {
            epoll,
            state: Mutex::new(state),
        })
    }

    pub(crate) fn fd(&self) -> c_int {
        self.epoll.as_raw_fd()
    }

    /// Gives it a number as if it was made now. The preload library of Debian 12 counts on that: its select(2)
    /// takes an rsocket with a lower number than its own for a descriptor of the kernel's.
    pub(super) fn renumber(&mut self) -> Outcome<()> {
        self.epoll = rustix::io::fcntl_dupfd_cloexec(&self.epoll, 0)?;
        Ok(())
    }

    /// Its state, for what neither waits nor is waited for.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut lock(&self.state))
    }

    /// Does what `act` can do now. With nothing to give, and `wait`, the caller is one of those who wait: it
    /// polls the descriptor for at most [`MAX_WAIT`] and then calls [`Self::end_wait`].
    pub(crate) fn attempt<T>(
        &self,
        wait: bool,
        mut act: impl FnMut(&mut State) -> Outcome<Option<T>>,
    ) -> Outcome<Option<T>> {
        let mut state = lock(&self.state);
        state.progress();
        let mut done = act(&mut state)?;
        let mut looks = 0;
        while wait && done.is_none() {
            state.arm();
            let news = state.progress();
            if !news || looks == LOOKS {
                if news {
                    // There may be more, of which nothing else wakes.
                    state.bell.ring();
                }
                state.waiters.push(Instant::now() + MAX_WAIT);
                break;
            }
            done = act(&mut state)?;
            looks += 1;
        }
        Ok(done)
    }

    pub(crate) fn end_wait(&self) {
        let mut state = lock(&self.state);
        let now = Instant::now();
        let keep_alive = state.options.keep_alive();
        if let (Phase::Open(stream), Some(idle)) = (&mut state.phase, keep_alive) {
            stream.keep_alive(idle, now);
        }
        // Any of them does: all have about the same time.
        state.waiters.pop();
        state.waiters.retain(|until| *until > now);
        if state.waiters.is_empty() {
            state.bell.silence();
        }
    }

    /// Ends everything. Those who wait find it gone. Waits for the end in order for as long as the options
    /// say; whatever is left is reset.
    pub(crate) fn close(&self) {
        let (phase, linger) = {
            let mut state = lock(&self.state);
            state.bell.ring();
            let phase = std::mem::replace(&mut state.phase, Phase::Idle);
            (phase, state.options.linger())
        };
        if let Phase::Open(mut stream) = phase
            && !linger.is_zero()
        {
            stream.close(linger);
        }
    }

    pub(crate) fn watch_stream(&self, stream: &Stream) -> Outcome<()> {
        watch(&self.epoll, &stream.cq().fd())
    }
}

fn watch(epoll: &OwnedFd, source: &impl std::os::fd::AsFd) -> Outcome<()> {
    let data = epoll::EventData::new_u64(0);
    Ok(epoll::add(epoll, source, data, epoll::EventFlags::IN)?)
}

impl State {
    /// Takes up what has happened. Whether anything has; then waiting calls are woken.
    pub(super) fn progress(&mut self) -> bool {
        let news = self.bell.take_news();
        let any = match &mut self.phase {
            Phase::Idle => news,
            Phase::Listening(listening) => news && listening.look(self.family, &self.options),
            Phase::Opening(..) => news && self.opening_news(),
            Phase::Open(stream) => {
                if news {
                    stream.take_events();
                }
                stream.progress() | news
            }
        };
        if any && !self.waiters.is_empty() {
            self.bell.ring();
        }
        any
    }

    fn arm(&mut self) {
        if let Phase::Open(stream) = &self.phase {
            stream.cq().arm(false);
        }
    }

    /// What poll(2) would say of a socket.
    pub(crate) fn readiness(&self, events: c_short) -> c_short {
        let ready = match &self.phase {
            Phase::Idle if self.error.is_some() => POLLIN | POLLOUT | POLLERR,
            Phase::Idle | Phase::Opening(..) => 0,
            Phase::Listening(listening) if listening.is_over() => POLLIN | POLLERR,
            Phase::Listening(listening) if listening.has_request() => POLLIN,
            Phase::Listening(_) => 0,
            Phase::Open(stream) => readiness_of(stream),
        };
        ready & (events | POLLERR | POLLHUP)
    }

    /// The stream, when there is one.
    pub(crate) fn stream(&mut self) -> Outcome<Option<&mut Stream>> {
        match &mut self.phase {
            Phase::Open(stream) => Ok(Some(stream)),
            Phase::Opening(..) => Ok(None),
            Phase::Listening(_) => Err(Errno::NOTCONN.into()),
            Phase::Idle => Err(self.error.take().unwrap_or(Errno::NOTCONN).into()),
        }
    }

    pub(crate) fn bind(&mut self, local: SocketAddr) -> Outcome<()> {
        if !matches!(self.phase, Phase::Idle) || self.local.is_some() {
            return Err(Fail::of(Errno::INVAL, "the rsocket is bound already"));
        }
        self.local = Some(local);
        Ok(())
    }

    /// As a program sees its own address.
    pub(crate) fn local_as_seen(&self) -> SocketAddr {
        let nowhere: IpAddr = match self.family {
            Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
            Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
        };
        let connected = match &self.phase {
            Phase::Opening(stream, _) | Phase::Open(stream) => stream.qp().local_addr(),
            Phase::Idle | Phase::Listening(_) => None,
        };
        let local = connected.or(self.local);
        self.seen(local.unwrap_or(SocketAddr::new(nowhere, 0)))
    }

    pub(crate) fn remote_as_seen(&self) -> Outcome<SocketAddr> {
        let remote = self.remote.ok_or(Errno::NOTCONN)?;
        Ok(self.seen(remote))
    }

    /// IPv6 sockets see IPv4 addresses mapped.
    fn seen(&self, address: SocketAddr) -> SocketAddr {
        match (self.family, address) {
            (Family::V6, SocketAddr::V4(v4)) => {
                SocketAddr::new(v4.ip().to_ipv6_mapped().into(), v4.port())
            }
            (_, address) => address,
        }
    }

    pub(crate) fn shut_down(&mut self, how: c_int) -> Outcome<()> {
        let (reads, writes) = match how {
            libc::SHUT_RD => (true, false),
            libc::SHUT_WR => (false, true),
            libc::SHUT_RDWR => (true, true),
            _ => return Err(Errno::INVAL.into()),
        };
        match &mut self.phase {
            Phase::Open(stream) => stream.shut_down(reads, writes),
            Phase::Opening(..) => self.phase = Phase::Idle,
            Phase::Listening(_) | Phase::Idle => return Err(Errno::NOTCONN.into()),
        }
        if !self.waiters.is_empty() {
            self.bell.ring();
        }
        Ok(())
    }
}

fn readiness_of(stream: &Stream) -> c_short {
    let mut ready = 0;
    if stream.has_data() || stream.at_end() {
        ready |= POLLIN;
    }
    if stream.may_send() || stream.end().is_some() {
        ready |= POLLOUT;
    }
    match stream.end() {
        Some(End::Failed(_)) => ready | POLLERR,
        // What is there to be read comes first.
        Some(End::Closed) if !stream.has_data() => ready | POLLHUP,
        _ => ready,
    }
}
