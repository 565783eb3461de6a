//! Connections that are being made, by either side, and connections that end.

use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context as Task, Poll, ready};
use std::time::{Duration, Instant};

use rnic_ipc::control::{DisconnectReason, Refusal, RefusalCode, Request, Response};

use super::EventWait;
use crate::error::Error;
use crate::events::{ConnectionEvent, Established};
use crate::queue_pair::{ConnectOptions, QueuePair};
use crate::reactor::wake_after;
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

/// What is to be asked for when the peer's link address is known.
#[derive(Debug)]
struct Attempt {
    remote: SocketAddr,
    options: ConnectOptions,
    since: Instant,
}

/// How long a neighbour may take to answer, which is what the kernel gives it too.
const RESOLVE_LIMIT: Duration = Duration::from_secs(3);

/// How long until it is asked for again.
const RESOLVE_NAP: Duration = Duration::from_millis(2);

impl<'a> Connecting<'a> {
    /// To a peer whose link address may have to be found first.
    pub(crate) fn to(qp: &'a QueuePair, remote: SocketAddr, options: ConnectOptions) -> Self {
        let attempt = Attempt {
            remote,
            options,
            since: Instant::now(),
        };
        let mut connecting = Self::new(qp, Ok(()));
        connecting.state = State::Resolving(Box::new(attempt));
        connecting.is_resolving();
        connecting
    }

    /// Goes on when the peer's link address is known; says whether it is not yet. Never waits for a peer.
    fn is_resolving(&mut self) -> bool {
        let State::Resolving(attempt) = &mut self.state else {
            return false;
        };
        let (remote, local) = (attempt.remote.ip(), attempt.options.local);
        let request = Request::Resolve { remote, local };
        let begun = match self.qp.context().request(&request, &[]) {
            Ok((Response::Resolving, _)) if attempt.since.elapsed() < RESOLVE_LIMIT => return true,
            Ok((Response::Resolving, _)) => Err(Error::Refused(Refusal {
                code: RefusalCode::Unreachable,
                message: format!(
                    "the Ethernet address of the next hop to {remote} asked, but it did not answer in {} s: is \
                     the host there, up and on the same link? (`ip neighbour`)",
                    RESOLVE_LIMIT.as_secs()
                ),
            })),
            Ok(_) => {
                let options = std::mem::take(&mut attempt.options);
                self.qp.begin_to_connect(attempt.remote, options)
            }
            Err(error) => Err(error),
        };
        self.state = begun.map_or_else(State::Failed, |()| State::Begun);
        false
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
        while self.is_resolving() {
            let left = deadline
                .left()
                .ok_or_else(|| deadline.missed("the answer of a neighbour"))?;
            std::thread::sleep(left.min(RESOLVE_NAP));
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
        while self.is_resolving() {
            std::thread::sleep(RESOLVE_NAP);
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
        if this.is_resolving() {
            wake_after(RESOLVE_NAP, task.waker())?;
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
