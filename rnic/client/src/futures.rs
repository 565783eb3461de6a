//! The async forms of the calls that wait.
//!
//! They need no certain executor: what they wait for is a descriptor, which the reactor watches,
//! and it runs any task again by its waker. Dropping a future takes nothing from anybody: what it
//! waited for stays there for the next call.

use std::future::poll_fn;
use std::net::ToSocketAddrs;

use crate::completion::{CompletionQueue, WorkCompletion};
use crate::error::Error;
use crate::events::Established;
use crate::listener::{AcceptOptions, ConnectionRequest, Listener};
use crate::queue_pair::{ConnectOptions, QueuePair, judge_end};
use crate::shared::SharedReceiveQueue;
use crate::watcher::Watcher;

impl CompletionQueue {
    /// Waits, as a future, until there is a completion to poll.
    ///
    /// # Errors
    /// [`Error::CqOverflow`], [`Error::DaemonGone`].
    pub async fn readable(&self) -> Result<(), Error> {
        let mut watcher = Watcher::of(self);
        poll_fn(|task| watcher.poll(task, || Ok(self.has_completions()?.then_some(())))).await
    }

    /// The next completion, as a future.
    ///
    /// # Errors
    /// As for [`Self::readable`].
    pub async fn next(&self) -> Result<WorkCompletion, Error> {
        let mut completion = [WorkCompletion::default()];
        self.next_batch(&mut completion).await?;
        let [completion] = completion;
        Ok(completion)
    }

    /// As [`Self::poll`], but waits as a future until there is at least one completion; none at once
    /// when `out` has no room.
    ///
    /// # Errors
    /// As for [`Self::readable`].
    pub async fn next_batch(&self, out: &mut [WorkCompletion]) -> Result<usize, Error> {
        loop {
            let count = self.poll(out)?;
            if count > 0 || out.is_empty() {
                return Ok(count);
            }
            self.readable().await?;
        }
    }
}

impl Listener {
    /// A peer's request, as a future.
    ///
    /// # Errors
    /// [`Error::DaemonGone`].
    pub async fn next_request(&self) -> Result<ConnectionRequest, Error> {
        let context = self.context();
        let asked = context.events().next(context, |boxes| self.take(boxes));
        Ok(self.request(asked.await?))
    }
}

impl ConnectionRequest {
    /// As [`Self::accept_with`], as a future; `timeout` is not used. Dropping it aborts the attempt.
    ///
    /// # Errors
    /// As for [`QueuePair::connect_async`].
    pub async fn accept_async(
        self,
        qp: &QueuePair,
        options: AcceptOptions,
    ) -> Result<Established, Error> {
        self.start_accept(qp, options)?;
        qp.established().await
    }
}

impl QueuePair {
    /// As [`Self::connect`], as a future; `timeout` is not used. Dropping it aborts the attempt. The
    /// request itself is a call, in which the RNIC may ask the network for the peer's link address. A name is
    /// resolved in a call too, which may take long: where nothing may block, give an address.
    ///
    /// # Errors
    /// [`Error::Rejected`], [`Error::ConnectFailed`], [`Error::Refused`] (nothing was tried),
    /// [`Error::Address`].
    pub async fn connect_async(
        &self,
        remote: impl ToSocketAddrs,
        options: ConnectOptions,
    ) -> Result<Established, Error> {
        self.start_connect(remote, options)?;
        self.established().await
    }

    async fn established(&self) -> Result<Established, Error> {
        let num = self.num();
        let attempt = Attempt(Some(self));
        let event = self.context().events().next(self.context(), |boxes| {
            boxes.qps.get_mut(&num)?.events.pop_front()
        });
        let event = event.await;
        attempt.end();
        event?.into_result()
    }

    /// As [`Self::disconnect`], as a future.
    ///
    /// # Errors
    /// As for [`Self::disconnect`], without the timeout.
    pub async fn disconnect_async(&self) -> Result<(), Error> {
        self.ask_for_end()?;
        self.disconnected().await
    }

    /// Waits, as a future, until the connection is gone.
    ///
    /// # Errors
    /// [`Error::Disconnected`] when it did not end in order.
    pub async fn disconnected(&self) -> Result<(), Error> {
        let num = self.num();
        let ended = self
            .context()
            .events()
            .next(self.context(), |boxes| boxes.qps.get(&num)?.ended.clone());
        judge_end(ended.await?)
    }
}

impl SharedReceiveQueue {
    /// As [`Self::wait_limit`], as a future.
    ///
    /// # Errors
    /// [`Error::DaemonGone`].
    pub async fn limit_reached(&self) -> Result<(), Error> {
        let (context, id) = (self.context(), self.id());
        let low = context
            .events()
            .next(context, |boxes| boxes.low_srqs.remove(&id).then_some(()));
        low.await
    }
}

/// An attempt to connect, which is aborted when nobody waits for its outcome any more.
struct Attempt<'a>(Option<&'a QueuePair>);

impl Attempt<'_> {
    fn end(mut self) {
        self.0 = None;
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if let Some(qp) = self.0 {
            qp.give_up_connecting();
        }
    }
}
