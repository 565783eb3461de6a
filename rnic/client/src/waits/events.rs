//! Other events that are waited for.

use std::pin::Pin;
use std::task::{Context as Task, Poll};
use std::time::Duration;

use rnic_ipc::id::SrqId;

use super::EventWait;
use crate::error::Error;
use crate::events::EventSource;
use crate::shared::SharedReceiveQueue;
use crate::sources::EventSources;
use crate::wait::Deadline;

/// A wait until fewer receives are left than the armed limit: [`SharedReceiveQueue::limit_reached`]. Await it, or
/// [`wait`](Self::wait).
///
/// # Errors
/// [`Error::DaemonGone`].
#[derive(Debug)]
#[must_use = "this does nothing unless it is awaited or waited for"]
pub struct LimitReached<'a> {
    srq: SrqId,
    wait: EventWait<'a>,
}

impl LimitReached<'_> {
    /// Blocks until the limit is reached.
    ///
    /// # Errors
    /// Those of [`Self`], and [`Error::Timeout`].
    pub fn wait(&mut self, timeout: Duration) -> Result<(), Error> {
        let srq = self.srq;
        self.wait.block(Deadline::after(timeout), |inboxes| {
            inboxes.low_srqs.remove(&srq).then_some(())
        })
    }
}

impl Future for LimitReached<'_> {
    type Output = Result<(), Error>;

    fn poll(self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Self::Output> {
        let Self { srq, wait } = self.get_mut();
        wait.poll(task, |inboxes| inboxes.low_srqs.remove(srq).then_some(()))
    }
}

impl SharedReceiveQueue {
    /// Waits until the limit of [`Self::arm_limit`] is reached.
    pub fn limit_reached(&self) -> LimitReached<'_> {
        LimitReached {
            srq: self.id(),
            wait: EventWait::new(self.context(), "the shared receive queue's limit"),
        }
    }
}

/// A wait for the next event's source: [`EventSources::next`]. Await it, or [`wait`](Self::wait).
///
/// # Errors
/// [`Error::DaemonGone`].
#[derive(Debug)]
#[must_use = "this does nothing unless it is awaited or waited for"]
pub struct NextSource<'a>(EventWait<'a>);

impl NextSource<'_> {
    /// Blocks until there is an event, and takes its source.
    ///
    /// # Errors
    /// Those of [`Self`], and [`Error::Timeout`].
    pub fn wait(&mut self, timeout: Duration) -> Result<EventSource, Error> {
        self.0.block(Deadline::after(timeout), |inboxes| {
            inboxes.sources.as_mut()?.pop_front()
        })
    }
}

impl Future for NextSource<'_> {
    type Output = Result<EventSource, Error>;

    fn poll(self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Self::Output> {
        let wait = &mut self.get_mut().0;
        wait.poll(task, |inboxes| inboxes.sources.as_mut()?.pop_front())
    }
}

impl EventSources {
    /// Waits for the next event's source. The event itself may have been taken meanwhile.
    pub fn next(&self) -> NextSource<'_> {
        NextSource(EventWait::new(self.context(), "an event"))
    }
}
