//! Completions of a queue, as they come.

use std::pin::Pin;
use std::task::{Context as Task, Poll};
use std::time::Duration;

use crate::completion::{CompletionQueue, WorkCompletion};
use crate::error::Error;
use crate::wait::Deadline;
use crate::watcher::Watcher;

/// A wait until there is a completion to poll: [`CompletionQueue::readable`]. Await it, or [`wait`](Self::wait).
///
/// # Errors
/// [`Error::CqOverflow`], [`Error::DaemonGone`].
#[derive(Debug)]
#[must_use = "this does nothing unless it is awaited or waited for"]
pub struct Readable<'a> {
    cq: &'a CompletionQueue,
    watcher: Watcher<'a>,
}

impl<'a> Readable<'a> {
    #[inline]
    fn new(cq: &'a CompletionQueue) -> Self {
        Self {
            cq,
            watcher: Watcher::of(cq),
        }
    }

    /// Blocks until there is a completion to poll. Where completions have come within microseconds it polls for as
    /// long before it sleeps.
    ///
    /// # Errors
    /// Those of [`Self`], and [`Error::Timeout`].
    #[inline]
    pub fn wait(&mut self, timeout: Duration) -> Result<(), Error> {
        self.cq.wait_readable(Deadline::after(timeout))
    }
}

impl Future for Readable<'_> {
    type Output = Result<(), Error>;

    fn poll(self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Self::Output> {
        let Self { cq, watcher } = self.get_mut();
        watcher.poll(task, || Ok(cq.has_completions()?.then_some(())))
    }
}

/// A wait for the next completion: [`CompletionQueue::next`]. Await it, or [`wait`](Self::wait).
///
/// # Errors
/// As for [`Readable`].
#[derive(Debug)]
#[must_use = "this does nothing unless it is awaited or waited for"]
pub struct NextCompletion<'a>(Readable<'a>);

impl NextCompletion<'_> {
    /// Blocks until there is a completion, and takes it. It polls first as [`Readable::wait`] does.
    ///
    /// # Errors
    /// Those of [`Self`], and [`Error::Timeout`].
    pub fn wait(&mut self, timeout: Duration) -> Result<WorkCompletion, Error> {
        let deadline = Deadline::after(timeout);
        loop {
            if let Some(done) = self.0.cq.take_one()? {
                return Ok(done);
            }
            self.0.cq.wait_readable(deadline)?;
        }
    }
}

impl Future for NextCompletion<'_> {
    type Output = Result<WorkCompletion, Error>;

    fn poll(self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Self::Output> {
        let Readable { cq, watcher } = &mut self.get_mut().0;
        watcher.poll(task, || cq.take_one())
    }
}

impl CompletionQueue {
    /// Waits until there is a completion to poll.
    #[inline]
    pub fn readable(&self) -> Readable<'_> {
        Readable::new(self)
    }

    /// Waits for the next completion.
    pub fn next(&self) -> NextCompletion<'_> {
        NextCompletion(self.readable())
    }
}
