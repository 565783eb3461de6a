//! Work that is waited for by the call that posted it.

use std::pin::Pin;
use std::task::{Context as Task, Poll};
use std::time::Duration;

use rnic_ipc::work::Sge;

use crate::block_on::block_on_until;
use crate::completion::{CompletionQueue, WorkCompletion, WorkId};
use crate::context::INLINE_NAP;
use crate::error::Error;
use crate::queue_pair::QueuePair;
use crate::remote_memory::RemoteMemory;
use crate::wait::Deadline;
use crate::watcher::Watcher;
use crate::work::WorkRequest;

/// A work request that was posted, and whose completion comes here: as a future, or by [`Self::wait`].
///
/// The call that made it posted the work; an error of posting, such as [`Error::QueueFull`], is found by
/// waiting too. Work that did not succeed is an error, [`Error::Work`].
///
/// Its completion is found by no other call: a program may poll the same completion queue for other work,
/// or wait there by [`CompletionQueue::next`] and the like. Only the descriptor of the queue
/// ([`CompletionQueue::fd`]) should not be watched beside this.
///
/// Dropping it, or giving up waiting, cancels nothing. The work goes on, so that its memory may still be read
/// or written, and its completion is dropped when it comes.
#[derive(Debug)]
#[must_use = "the work was posted; await this, or call `wait`, to learn how it ends"]
pub struct PostedWork<'a> {
    tracked: Tracked<'a>,
    watcher: Watcher<'a>,
}

/// A completion that is to come.
#[derive(Debug)]
struct Tracked<'a> {
    cq: &'a CompletionQueue,
    state: State,
    /// The program's number of the work.
    wr_id: u64,
}

#[derive(Debug)]
enum State {
    Posted(WorkId),
    /// It was not posted.
    Failed(Error),
    Over,
}

impl QueuePair {
    /// Writes `local` to the start of `remote` by an RDMA Write, and waits for its completion:
    /// `qp.write(&[slice], remote).await?`, or `.wait(timeout)?`. The completion says that the bytes are out
    /// of the RNIC's hands, not that the peer has them ([`WorkRequest::write`]).
    pub fn write(&self, local: &[Sge], remote: RemoteMemory) -> PostedWork<'_> {
        self.submit(WorkRequest::write(0, local, remote))
    }

    /// Reads from the start of `remote` into `local` by an RDMA Read, and waits for its completion.
    pub fn read(&self, local: &[Sge], remote: RemoteMemory) -> PostedWork<'_> {
        self.submit(WorkRequest::read(0, local, remote))
    }

    /// Sends `local`, and waits for the completion.
    pub fn send(&self, local: &[Sge]) -> PostedWork<'_> {
        self.submit(WorkRequest::send(0, local))
    }

    /// Posts a receive into `local`, and waits for the Send, or the Immediate Data, that takes it. It is
    /// posted by the call: make it before the peer sends, and await it later.
    pub fn receive(&self, local: &[Sge]) -> PostedWork<'_> {
        self.submit(WorkRequest::recv(0, local))
    }

    /// Posts any work request, a receive on the receive queue and others on the send queue, and waits for its
    /// completion. The work is signalled. Its completion has the number that `work` has, which need not be
    /// unique: also other work of the queue pair may have it.
    pub fn submit(&self, work: WorkRequest<'_>) -> PostedWork<'_> {
        let (send_cq, recv_cq) = self.completion_queues();
        let cq = if work.is_recv() { recv_cq } else { send_cq };
        let tracked = Tracked {
            cq,
            state: self.post_tracked(cq, work),
            wr_id: work.wr_id(),
        };
        let watcher = Watcher::of(cq);
        PostedWork { tracked, watcher }
    }

    fn post_tracked(&self, cq: &CompletionQueue, work: WorkRequest<'_>) -> State {
        // The locks of a context that is a parent's may be held for ever.
        if let Err(gone) = self.context().check() {
            return State::Failed(gone);
        }
        // Before posting: the completion may come at once.
        let id = cq.track(self.num());
        let work = work.tracked(id.1);
        let posted = match work.is_recv() {
            true => self.post_recv(work),
            false => self.post_send(work),
        };
        match posted {
            Ok(()) => State::Posted(id),
            Err(error) => {
                cq.untrack(id);
                State::Failed(error)
            }
        }
    }
}

impl PostedWork<'_> {
    /// Waits for the completion, in this thread. Where completions of the queue have come within
    /// microseconds it polls for as long before it sleeps.
    ///
    /// # Errors
    /// [`Error::Work`], [`Error::Timeout`] (the work is outstanding as before, and may be waited for again),
    /// [`Error::CqOverflow`], [`Error::DaemonGone`], and those of posting.
    pub fn wait(&mut self, timeout: Duration) -> Result<WorkCompletion, Error> {
        let deadline = Deadline::after(timeout);
        if self.tracked.cq.context().is_inline() {
            return self.tracked.drive(deadline);
        }
        let mut spell = self.tracked.cq.spin().begin();
        while !timeout.is_zero() && spell.goes_on() {
            if let Some(done) = self.tracked.take()? {
                return Ok(done);
            }
        }
        let found = spell.sleep(|| block_on_until(&mut *self, deadline));
        found.unwrap_or_else(|| Err(missed(deadline)))
    }
}

impl Tracked<'_> {
    /// The completion, if it has come. Never blocks.
    fn take(&mut self) -> Result<Option<WorkCompletion>, Error> {
        let State::Posted(id) = self.state else {
            return match std::mem::replace(&mut self.state, State::Over) {
                State::Failed(error) => Err(error),
                _ => Ok(None),
            };
        };
        let Some(done) = self.cq.take_tracked(id)? else {
            return Ok(None);
        };
        self.state = State::Over;
        let wr_id = self.wr_id;
        Ok(Some(WorkCompletion { wr_id, ..done }.ok()?))
    }

    /// Waits with an engine that lives on this crate's calls.
    fn drive(&mut self, deadline: Deadline) -> Result<WorkCompletion, Error> {
        loop {
            let worked = self.cq.context().drive();
            let error = self.cq.async_error();
            if let Some(done) = self.take()? {
                return Ok(done);
            }
            if let Some(error) = error {
                return Err(error);
            }
            let left = deadline.left().ok_or_else(|| missed(deadline))?;
            if !worked {
                std::thread::sleep(left.min(INLINE_NAP));
            }
        }
    }
}

impl Future for PostedWork<'_> {
    type Output = Result<WorkCompletion, Error>;

    fn poll(self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Self::Output> {
        let Self { tracked, watcher } = self.get_mut();
        watcher.poll(task, || tracked.take())
    }
}

impl Drop for Tracked<'_> {
    fn drop(&mut self) {
        if let State::Posted(id) = self.state
            && !self.cq.context().is_forked_child()
        {
            self.cq.abandon(id);
        }
    }
}

fn missed(deadline: Deadline) -> Error {
    deadline.missed("the work's completion")
}
