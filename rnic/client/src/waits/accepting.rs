//! Peers' requests to connect, as they come.

use std::pin::Pin;
use std::task::{Context as Task, Poll};
use std::time::Duration;

use super::EventWait;
use crate::error::Error;
use crate::listener::{ConnectionRequest, Listener};
use crate::wait::Deadline;

/// A wait for a peer's request: [`Listener::accept`]. Await it, or [`wait`](Self::wait).
///
/// # Errors
/// [`Error::DaemonGone`].
#[derive(Debug)]
#[must_use = "this does nothing unless it is awaited or waited for"]
pub struct Accepting<'a> {
    listener: &'a Listener,
    wait: EventWait<'a>,
}

impl<'a> Accepting<'a> {
    pub(crate) fn new(listener: &'a Listener) -> Self {
        Self {
            listener,
            wait: EventWait::new(listener.context(), "a connection request"),
        }
    }

    /// Blocks until a peer asks. With no time at all it takes a request that is there.
    ///
    /// # Errors
    /// Those of [`Self`], and [`Error::Timeout`].
    pub fn wait(&mut self, timeout: Duration) -> Result<ConnectionRequest, Error> {
        let listener = self.listener;
        let asked = self
            .wait
            .block(Deadline::after(timeout), |inboxes| listener.take(inboxes));
        Ok(listener.request(asked?))
    }
}

impl Future for Accepting<'_> {
    type Output = Result<ConnectionRequest, Error>;

    fn poll(self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Self::Output> {
        let Self { listener, wait } = self.get_mut();
        let asked = wait.poll(task, |inboxes| listener.take(inboxes));
        asked.map_ok(|asked| listener.request(asked))
    }
}
