//! Connections that are being made, by either side, and connections that end.

use std::pin::Pin;
use std::task::{Context as Task, Poll, ready};
use std::time::Duration;

use rnic_ipc::control::DisconnectReason;

use super::EventWait;
use crate::error::Error;
use crate::events::{ConnectionEvent, Established};
use crate::queue_pair::QueuePair;

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
    Begun,
    /// It was not begun.
    Failed(Error),
    Over,
}

impl<'a> Connecting<'a> {
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
        self.check()?;
        let qp = self.qp.num();
        let event = self.wait.block(timeout, |inboxes| {
            inboxes.qps.get_mut(&qp)?.events.pop_front()
        })?;
        self.state = State::Over;
        event.into_result()
    }

    /// Lets the attempt go on: the outcome comes by [`QueuePair::take_event`].
    ///
    /// # Errors
    /// Why it was not begun.
    pub fn detach(mut self) -> Result<(), Error> {
        self.check()?;
        self.state = State::Over;
        Ok(())
    }

    /// Fails when there is nothing to wait for.
    fn check(&mut self) -> Result<(), Error> {
        match &self.state {
            State::Begun => Ok(()),
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
        let ended = self
            .wait
            .block(timeout, |inboxes| inboxes.qps.get(&qp)?.ended.clone())?;
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
