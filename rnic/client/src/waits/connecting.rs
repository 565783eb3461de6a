//! Connections that are being made, by either side, and connections that end.

use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::task::{Context as Task, Poll, Waker, ready};
use std::time::{Duration, Instant};

use rnic_ipc::control::{DisconnectReason, JoinSpec, Request, Response};

use super::EventWait;
use crate::error::Error;
use crate::events::{ConnectionEvent, Established};
use crate::queue_pair::{ConnectOptions, QueuePair};
use crate::reactor::Timer;
use crate::wait::Deadline;

/// A connection that is being made: [`QueuePair::connect`] and [`ConnectionRequest::accept`](crate::ConnectionRequest::accept)
/// have begun it. Await it, or [`wait`](Self::wait).
///
/// An error of beginning it is found by waiting too. Dropping this before the outcome aborts the attempt, which is one
/// request to the RNIC; a program that takes the outcome by [`QueuePair::take_event`] lets it go on by [`Self::detach`].
///
/// # Errors
/// [`Error::Rejected`], [`Error::ConnectFailed`], [`Error::Refused`] (nothing was tried), [`Error::WrongContext`],
/// [`Error::DaemonGone`].
#[derive(Debug)]
#[must_use = "dropping this aborts the connection: await it, call `wait`, or `detach` it"]
pub struct Connecting<'a> {
    qp: &'a QueuePair,
    wait: EventWait<'a>,
    state: State,
}

#[derive(Debug)]
enum State {
    /// The host looks for the peer's link address.
    Resolving(Box<Attempt>),
    Begun,
    /// It was not begun.
    Failed(Error),
    Over,
}

/// What is to be asked for.
#[derive(Debug)]
enum Goal {
    Connect(SocketAddr, ConnectOptions),
    Join(JoinSpec),
}

impl Goal {
    /// Both ends, as far as they are named.
    fn ends(&self) -> (SocketAddr, Option<IpAddr>) {
        match self {
            Self::Connect(remote, options) => (*remote, options.local),
            Self::Join(spec) => (spec.remote.port(), Some(spec.local)),
        }
    }

    fn begin(&self, qp: &QueuePair) -> Result<(), Error> {
        match self {
            Self::Connect(remote, options) => qp.begin_to_connect(*remote, options.clone()),
            Self::Join(spec) => qp.begin_to_join(*spec),
        }
    }
}

/// What is to be asked for when the peer's link address is known.
#[derive(Debug)]
struct Attempt {
    goal: Goal,
    since: Instant,
    /// When it may be asked for again, and how much later after that.
    next: Instant,
    nap: Duration,
    /// Of a future that waits.
    timer: Option<Timer>,
}

impl Attempt {
    fn nap_left(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }

    fn wake_again(&mut self, task: &Waker) -> Result<(), Error> {
        let timer = match self.timer.take() {
            Some(timer) => timer,
            None => Timer::new()?,
        };
        self.timer.insert(timer).wake_at(self.next, task);
        Ok(())
    }
}

/// How long until it is asked for again: at first, doubled each time up to the most. Each is a request to the RNIC, of
/// which a client has so many in a second.
const RESOLVE_NAP: Duration = Duration::from_millis(1);
const RESOLVE_NAP_MAX: Duration = Duration::from_millis(32);

impl<'a> Connecting<'a> {
    /// To a peer whose link address may have to be found first.
    pub(crate) fn to(qp: &'a QueuePair, remote: SocketAddr, options: ConnectOptions) -> Self {
        Self::toward(qp, Goal::Connect(remote, options))
    }

    /// To a queue pair by number.
    pub(crate) fn join(qp: &'a QueuePair, spec: JoinSpec) -> Self {
        Self::toward(qp, Goal::Join(spec))
    }

    fn toward(qp: &'a QueuePair, goal: Goal) -> Self {
        let now = Instant::now();
        let attempt = Attempt {
            goal,
            since: now,
            next: now,
            nap: RESOLVE_NAP,
            timer: None,
        };
        let mut connecting = Self::new(qp, Ok(()));
        connecting.state = State::Resolving(Box::new(attempt));
        connecting.resolve();
        connecting
    }

    /// Goes on when the peer's link address is known; while it is not yet, gives the attempt, which says when to call this
    /// again. An earlier call asks nothing. Never waits for a peer.
    fn resolve(&mut self) -> Option<&mut Attempt> {
        let State::Resolving(attempt) = &mut self.state else {
            return None;
        };
        let now = Instant::now();
        if now >= attempt.next {
            self.ask(now);
        }
        match &mut self.state {
            State::Resolving(attempt) => Some(attempt),
            _ => None,
        }
    }

    fn ask(&mut self, now: Instant) {
        let State::Resolving(attempt) = &mut self.state else {
            return;
        };
        let (remote, local) = attempt.goal.ends();
        let waited = now.saturating_duration_since(attempt.since).as_millis();
        let request = Request::Resolve {
            qp: self.qp.num(),
            remote,
            local,
            waited_ms: u32::try_from(waited).unwrap_or(u32::MAX),
        };
        let begun = match self.qp.context().request(&request, &[]) {
            Ok((Response::Resolving, _)) => {
                attempt.next = now + attempt.nap;
                attempt.nap = (attempt.nap * 2).min(RESOLVE_NAP_MAX);
                return;
            }
            Ok(_) => attempt.goal.begin(self.qp),
            Err(error) => Err(error),
        };
        self.state = begun.map_or_else(State::Failed, |()| State::Begun);
    }

    pub(crate) fn new(qp: &'a QueuePair, begun: Result<(), Error>) -> Self {
        Self {
            qp,
            wait: EventWait::new(qp.context(), "the connection's establishment"),
            state: begun.map_or_else(State::Failed, |()| State::Begun),
        }
    }

    /// Blocks until the connection is there, or failed.
    ///
    /// # Errors
    /// Those of [`Self`], and [`Error::Timeout`]: the attempt goes on, and may be waited for again.
    pub fn wait(&mut self, timeout: Duration) -> Result<Established, Error> {
        let deadline = Deadline::after(timeout);
        while let Some(attempt) = self.resolve() {
            let left = deadline
                .left()
                .ok_or_else(|| deadline.missed("the answer of a neighbour"))?;
            std::thread::sleep(left.min(attempt.nap_left()));
        }
        self.check()?;
        let qp = self.qp.num();
        let event = self.wait.block(deadline, |inboxes| {
            inboxes.qps.get_mut(&qp)?.events.pop_front()
        })?;
        self.state = State::Over;
        event.into_result()
    }

    /// Lets the attempt go on: the outcome comes by [`QueuePair::take_event`]. It blocks until the link address of the peer is
    /// known, for some seconds at most.
    ///
    /// # Errors
    /// Why it was not begun.
    pub fn detach(mut self) -> Result<(), Error> {
        while let Some(attempt) = self.resolve() {
            std::thread::sleep(attempt.nap_left());
        }
        self.check()?;
        self.state = State::Over;
        Ok(())
    }

    /// Fails when there is nothing to wait for.
    fn check(&mut self) -> Result<(), Error> {
        match &self.state {
            State::Begun | State::Resolving(_) => Ok(()),
            State::Over => Err(Error::NotConnected),
            State::Failed(_) => match std::mem::replace(&mut self.state, State::Over) {
                State::Failed(error) => Err(error),
                _ => Ok(()),
            },
        }
    }
}

impl Future for Connecting<'_> {
    type Output = Result<Established, Error>;

    fn poll(self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if let Some(attempt) = this.resolve() {
            attempt.wake_again(task.waker())?;
            return Poll::Pending;
        }
        this.check()?;
        let qp = this.qp.num();
        let event = ready!(this.wait.poll(task, |inboxes| {
            inboxes.qps.get_mut(&qp)?.events.pop_front()
        }))?;
        this.state = State::Over;
        Poll::Ready(event.into_result())
    }
}

impl Drop for Connecting<'_> {
    fn drop(&mut self) {
        if let State::Begun = self.state {
            self.qp.give_up_connecting();
        }
    }
}

/// A connection that ends: [`QueuePair::disconnect`], [`QueuePair::disconnected`]. Await it, or [`wait`](Self::wait).
///
/// An error of asking for the end is found by waiting too. Dropping this takes nothing back.
///
/// # Errors
/// [`Error::Disconnected`] when it ended in another way than in order, [`Error::Refused`], [`Error::DaemonGone`].
#[derive(Debug)]
#[must_use = "await this, call `wait`, or `detach` it to learn of errors"]
pub struct Disconnecting<'a> {
    qp: &'a QueuePair,
    wait: EventWait<'a>,
    failed: Option<Error>,
}

impl<'a> Disconnecting<'a> {
    pub(crate) fn new(qp: &'a QueuePair, asked: Result<(), Error>) -> Self {
        Self {
            qp,
            wait: EventWait::new(qp.context(), "the connection's end"),
            failed: asked.err(),
        }
    }

    /// Blocks until the connection is gone.
    ///
    /// # Errors
    /// Those of [`Self`], and [`Error::Timeout`] when the peer doesn't close its side; [`QueuePair::abort`] then.
    pub fn wait(&mut self, timeout: Duration) -> Result<(), Error> {
        self.check()?;
        let qp = self.qp.num();
        let ended = self.wait.block(Deadline::after(timeout), |inboxes| {
            inboxes.qps.get(&qp)?.ended.clone()
        })?;
        in_order(ended)
    }

    /// Does not wait: the outcome comes by [`QueuePair::take_event`].
    ///
    /// # Errors
    /// Why the end was not asked for.
    pub fn detach(mut self) -> Result<(), Error> {
        self.check()
    }

    fn check(&mut self) -> Result<(), Error> {
        self.failed.take().map_or(Ok(()), Err)
    }
}

impl Future for Disconnecting<'_> {
    type Output = Result<(), Error>;

    fn poll(self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        this.check()?;
        let qp = this.qp.num();
        let ended = ready!(
            this.wait
                .poll(task, |inboxes| inboxes.qps.get(&qp)?.ended.clone())
        )?;
        Poll::Ready(in_order(ended))
    }
}

/// An end in order, or the error that any other end is.
fn in_order(ended: ConnectionEvent) -> Result<(), Error> {
    match ended {
        ConnectionEvent::Disconnected {
            reason: DisconnectReason::Graceful,
            ..
        } => Ok(()),
        ended => ended.into_result().map(|_| ()),
    }
}
