//! Completion queues.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rnic_ipc::control::{Request, Response};
use rnic_ipc::id::{CqId, QpNum};
use rnic_ipc::ring::CqMemory;
use rnic_ipc::wake::{Drained, WakeReceiver};
use rnic_ipc::work::{
    Completion, WC_SOLICITED, WC_WITH_IMMEDIATE, WC_WITH_INVALIDATE, WcStatus, WrOpcode,
};
use rustix::event::{PollFd, PollFlags};

mod rings;
mod tracked;

pub(crate) use tracked::WorkId;

use rings::Rings;

use crate::block_on::block_on_until;
use crate::context::{Context, Inner};
use crate::error::Error;
use crate::link::{descriptors, unexpected};
use crate::reactor::{LazyWatch, WakerSlot, Watch};
use crate::spin::Spin;
use crate::wait::Deadline;
use crate::work_error::WorkError;

/// Entries copied out of the ring at once.
const BATCH: usize = 16;

/// After so many polls in vain the daemon is looked for: a program that only polls learns of its
/// end too.
const IDLE_POLLS: u32 = 4096;

/// How a work request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkCompletion {
    /// From the work request.
    pub wr_id: u64,
    /// The queue pair.
    pub qp: QpNum,
    /// How it ended. The fields below mean something only after success.
    pub status: WcStatus,
    /// What completed.
    pub opcode: WrOpcode,
    /// Receives, Reads and atomics: bytes placed.
    pub byte_len: u32,
    /// Receives: the STag that the peer's Send invalidated.
    pub invalidated: Option<u32>,
    /// Receives: the peer asked for a solicited event.
    pub solicited: bool,
    /// Receives: the peer's Immediate Data, which took this receive instead of a Send.
    pub immediate: Option<u64>,
}

impl Default for WorkCompletion {
    fn default() -> Self {
        Self {
            wr_id: 0,
            qp: QpNum(0),
            status: WcStatus::Success,
            opcode: WrOpcode::Send,
            byte_len: 0,
            invalidated: None,
            solicited: false,
            immediate: None,
        }
    }
}

impl WorkCompletion {
    /// The completion when the work succeeded, and otherwise an error that says what failed and how.
    ///
    /// ```no_run
    /// # fn next(cq: &rnic::CompletionQueue) -> Result<(), rnic::Error> {
    /// let mut done = [rnic::WorkCompletion::default(); 16];
    /// let count = cq.poll(&mut done)?;
    /// for done in &done[..count] {
    ///     let bytes = done.ok()?.byte_len;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`WorkError`].
    pub fn ok(self) -> Result<Self, WorkError> {
        match self.status {
            WcStatus::Success => Ok(self),
            status => Err(WorkError {
                wr_id: self.wr_id,
                qp: self.qp,
                opcode: self.opcode,
                status,
            }),
        }
    }

    fn decode(raw: &Completion) -> Result<Self, Error> {
        let (Some(status), Some(opcode)) =
            (WcStatus::from_u8(raw.status), WrOpcode::from_u8(raw.opcode))
        else {
            return Err(Error::protocol(format!(
                "an undecodable completion {raw:?}"
            )));
        };
        Ok(Self {
            wr_id: raw.wr_id,
            qp: QpNum(raw.qp),
            status,
            opcode,
            byte_len: raw.byte_len,
            invalidated: (raw.flags & WC_WITH_INVALIDATE != 0).then_some(raw.invalidated),
            solicited: raw.flags & WC_SOLICITED != 0,
            immediate: (raw.flags & WC_WITH_IMMEDIATE != 0).then_some(raw.immediate),
        })
    }
}

/// Where completions of queue pairs come. Clones are the same one. `drop` of the last is one request to the RNIC, and
/// blocks until it is answered.
///
/// It must be at least as deep as all the work that may be outstanding on its queue pairs; if it
/// overflows, they go to Error and it can't be used any more.
///
/// Calls that wait for their own completions, such as [`crate::QueuePair::write`], may share it with a
/// program that polls it or waits by this crate's calls. Each gets its own, whichever call takes them out of
/// the ring. While only such calls look, completions are kept for polling: as many as the queue has entries.
/// But these calls take wake-ups off the descriptor, so a program that watches [`Self::fd`] itself should
/// have another queue for them.
#[derive(Clone, Debug)]
pub struct CompletionQueue {
    inner: Arc<CqInner>,
}

#[derive(Debug)]
struct CqInner {
    context: Arc<Inner>,
    id: CqId,
    rings: Rings,
    notify: WakeReceiver,
    /// Futures that wait for completions.
    watch: LazyWatch,
    spin: Spin,
    idle_polls: AtomicU32,
}

impl Context {
    /// Makes a completion queue of at least `depth` entries.
    ///
    /// # Errors
    /// [`Error::Refused`]: it is more than the RNIC allows. [`Error::DaemonGone`].
    pub fn create_cq(&self, depth: u32) -> Result<CompletionQueue, Error> {
        CompletionQueue::create(self, depth)
    }
}

impl CompletionQueue {
    fn create(context: &Context, depth: u32) -> Result<Self, Error> {
        let context = context.inner();
        let request = Request::CreateCq { depth };
        let (id, made) = context.request_rings(&request, |response, fds| {
            let Response::Cq { cq, depth } = response else {
                return Err(unexpected(&response));
            };
            let made = descriptors::<2>(fds).and_then(|[memory, notify]| {
                let rings = CqMemory::attach_fd(memory, depth, context.shards());
                Ok((
                    Rings::new(rings.map_err(Error::of_ring)?),
                    WakeReceiver::from_fd(notify),
                ))
            });
            Ok((cq, made))
        })?;
        let (rings, notify) = match made {
            Ok(made) => made,
            Err(error) => {
                context.give_back(&Request::DestroyCq { cq: id });
                return Err(error);
            }
        };
        context.events().inboxes().add_cq(id);
        let inner = CqInner {
            context: context.clone(),
            id,
            rings,
            notify,
            watch: LazyWatch::default(),
            spin: Spin::default(),
            idle_polls: AtomicU32::new(0),
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// Entries.
    pub fn depth(&self) -> u32 {
        self.inner.rings.depth()
    }

    /// Makes room for at least `depth` entries; one that has them stays as it is. Queue pairs may be at
    /// work on it meanwhile, and completions stay in order. Who polls meanwhile waits.
    ///
    /// # Errors
    /// As [`Context::create_cq`], and when the queue has overflowed. It is as it was then, but for one case: this
    /// process can't map the memory of the new ring. Completions then go where nobody reads them, and the
    /// queue counts as one that has overflowed.
    pub fn resize(&self, depth: u32) -> Result<(), Error> {
        let Self { inner } = self;
        let mut replaced = false;
        let grown = inner.rings.grow(depth, || {
            let request = Request::ResizeCq {
                cq: inner.id,
                depth,
            };
            inner.context.request_rings(&request, |response, fds| {
                let Response::Cq { depth, .. } = response else {
                    return Err(unexpected(&response));
                };
                replaced = true;
                let [memory] = descriptors::<1>(fds)?;
                let shards = inner.context.shards();
                CqMemory::attach_fd(memory, depth, shards).map_err(Error::of_ring)
            })
        });
        if grown.is_err() && replaced {
            inner.context.events().inboxes().lose_cq(inner.id);
        }
        grown
    }

    /// Its number, by which [`crate::EventSources`] names it.
    pub fn id(&self) -> CqId {
        self.inner.id
    }

    /// Moves completions into `out`, oldest first, and says how many. Never blocks.
    ///
    /// # Errors
    /// [`Error::CqOverflow`], [`Error::DaemonGone`]: found only when no completion is left, and
    /// after some polls in vain.
    pub fn poll(&self, out: &mut [WorkCompletion]) -> Result<usize, Error> {
        self.check_not_forked()?;
        let count = self.take(out)?;
        if count > 0 || out.is_empty() {
            return Ok(count);
        }
        if self.inner.context.drive() {
            return self.take(out);
        }
        // Counting wrongly when several threads poll does no harm, and needs no locked instruction.
        let idle = self.inner.idle_polls.load(Ordering::Relaxed);
        let looks = idle >= IDLE_POLLS;
        let next = if looks { 0 } else { idle + 1 };
        self.inner.idle_polls.store(next, Ordering::Relaxed);
        if looks {
            self.check_async_error()?;
        }
        Ok(0)
    }

    /// Whether a look at the ring finds no completion. It takes no lock, makes no progress and finds no
    /// asynchronous error: [`Self::poll`] does.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.inner.rings.is_empty()
    }

    /// Fails in a child of fork(2): completions are for its parent.
    #[inline]
    fn check_not_forked(&self) -> Result<(), Error> {
        match self.inner.context.is_forked_child() {
            true => Err(self.inner.context.closed_error()),
            false => Ok(()),
        }
    }

    /// One completion, if there is one.
    pub(crate) fn take_one(&self) -> Result<Option<WorkCompletion>, Error> {
        let mut done = [WorkCompletion::default()];
        Ok((self.poll(&mut done)? > 0).then(|| done[0]))
    }

    fn take(&self, out: &mut [WorkCompletion]) -> Result<usize, Error> {
        // Most looks find nothing, and cost no more than that.
        match self.is_empty() {
            true => Ok(0),
            false => self.take_some(out),
        }
    }

    #[inline(never)]
    fn take_some(&self, out: &mut [WorkCompletion]) -> Result<usize, Error> {
        let mut rings = self.inner.rings.lock();
        let mut raw = [Completion::default(); BATCH];
        let mut count = 0;
        for out in out.chunks_mut(BATCH) {
            let found = rings.poll(&mut raw[..out.len()]).map_err(Error::of_fault)?;
            for (out, raw) in out.iter_mut().zip(&raw[..found]) {
                *out = WorkCompletion::decode(raw)?;
            }
            count += found;
            if found < out.len() {
                break;
            }
        }
        Ok(count)
    }

    /// Asks for one wake-up on [`Self::fd`]: by the next completion, or by the next solicited one
    /// or error. Takes earlier wake-ups off. Poll again before blocking on the descriptor: a
    /// completion that came before this call wakes nobody.
    pub fn arm(&self, solicited_only: bool) {
        if self.check_not_forked().is_err() {
            return;
        }
        if self.inner.notify.drain() == Drained::Woken
            && let Some(watch) = self.inner.watch.get()
        {
            watch.wake_all();
        }
        self.inner.rings.lock().arm(solicited_only);
    }

    /// As [`Self::arm`], and wake-ups that wait on [`Self::fd`] stay there: each is one that
    /// [`Self::take_notification`] tells of.
    pub fn request_notification(&self, solicited_only: bool) {
        if self.check_not_forked().is_err() {
            return;
        }
        self.inner.rings.lock().arm(solicited_only);
    }

    /// Takes one wake-up off [`Self::fd`], if there is one. Never blocks.
    ///
    /// # Errors
    /// [`Error::DaemonGone`] when none is left and none will come any more.
    pub fn take_notification(&self) -> Result<bool, Error> {
        self.check_not_forked()?;
        self.inner.context.drive();
        match self.inner.notify.take() {
            Drained::Woken => Ok(true),
            Drained::Quiet => Ok(false),
            Drained::Gone => {
                self.inner.context.set_gone();
                Err(self.inner.context.closed_error())
            }
        }
    }

    /// As [`Self::arm`], for a future that waits in `slot`. A wake-up that it takes off the
    /// descriptor is meant for the others too.
    pub(crate) fn arm_for(&self, slot: &WakerSlot<'_>) {
        if self.inner.notify.drain() == Drained::Woken {
            slot.wake_others();
        }
        self.inner.rings.lock().arm(false);
    }

    /// Where futures wait for completions.
    pub(crate) fn watch(&self) -> Result<&Watch, Error> {
        self.inner.watch.get_or_make(self.fd())
    }

    pub(crate) fn context(&self) -> &Arc<Inner> {
        &self.inner.context
    }

    /// Becomes readable by an armed wake-up, and when the daemon is gone.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.inner.notify.as_fd()
    }

    /// Blocks until there is a completion to poll. Where completions have come within microseconds it
    /// polls for as long before it sleeps.
    pub(crate) fn wait_readable(&self, deadline: Deadline) -> Result<(), Error> {
        let context = &self.inner.context;
        if !context.is_inline() && deadline.left().is_some() {
            let mut spell = self.inner.spin.begin();
            while spell.goes_on() {
                if self.has_completions()? {
                    return Ok(());
                }
            }
            return spell.sleep(|| self.block(deadline));
        }
        self.block(deadline)
    }

    fn block(&self, deadline: Deadline) -> Result<(), Error> {
        let context = &self.inner.context;
        loop {
            context.drive();
            if self.has_completions()? {
                return Ok(());
            }
            self.arm(false);
            // What came between the first look and the arming.
            if self.has_completions()? {
                return Ok(());
            }
            self.check_async_error()?;
            // A call that waits for its own completion may take this thread's wake-up off the descriptor.
            if self.inner.rings.lock().tracked.was_used() {
                return match block_on_until(self.readable(), deadline) {
                    Some(readable) => readable,
                    None => Err(deadline.missed("a completion")),
                };
            }
            let left = deadline
                .left()
                .ok_or_else(|| deadline.missed("a completion"))?;
            let mut fds = [
                PollFd::new(&self.inner.notify, PollFlags::IN),
                PollFd::from_borrowed_fd(context.events().fd(), PollFlags::IN),
            ];
            context.block(&mut fds, left)?;
        }
    }

    /// Whether there is a completion to poll. Never blocks, and gives an engine that lives on this crate's
    /// calls no turn.
    pub fn has_completions(&self) -> Result<bool, Error> {
        Ok(!self.is_empty()
            && self
                .inner
                .rings
                .lock()
                .available()
                .map_err(Error::of_fault)?)
    }

    /// Tracks work that is about to be posted to a queue pair, under the number in what it returns: polling won't find
    /// its completion, [`Self::take_tracked`] does.
    pub(crate) fn track(&self, qp: QpNum) -> WorkId {
        self.inner.rings.lock().tracked.add(qp)
    }

    /// The tracked work was not posted.
    pub(crate) fn untrack(&self, id: WorkId) {
        self.inner.rings.lock().tracked.remove(id);
    }

    /// Nobody waits for the completion of tracked work any more.
    pub(crate) fn abandon(&self, id: WorkId) {
        self.inner.rings.lock().tracked.abandon(id);
    }

    /// Forgets the tracked work of a queue pair that is gone.
    pub(crate) fn forget_tracked(&self, qp: QpNum) {
        let mut rings = self.inner.rings.lock();
        if rings.tracked.has_any_of(qp) {
            // A fault is found again by the next call that looks.
            let _ = rings.sort();
            rings.tracked.forget(qp);
        }
    }

    /// The completion of tracked work, if it has come. Never blocks.
    ///
    /// # Errors
    /// [`Error::CqOverflow`] when it can't be reached, because nobody polls the queue's other completions.
    pub(crate) fn take_tracked(&self, id: WorkId) -> Result<Option<WorkCompletion>, Error> {
        self.check_not_forked()?;
        let mut rings = self.inner.rings.lock();
        let reached = rings.sort().map_err(Error::of_fault)?;
        match rings.tracked.take(id) {
            Some(raw) => Ok(Some(WorkCompletion::decode(&raw)?)),
            None if !reached => Err(Error::CqOverflow),
            None => Ok(None),
        }
    }

    /// How long waits for completions have taken.
    pub(crate) fn spin(&self) -> &Spin {
        &self.inner.spin
    }

    /// Whether something is kept for calls that wait for their own completions, or because of them.
    #[cfg(test)]
    pub(crate) fn has_tracked(&self) -> bool {
        !self.inner.rings.lock().tracked.is_none()
    }

    /// What a resize holds.
    #[cfg(test)]
    pub(crate) fn hold_rings(&self) -> impl Sized + '_ {
        self.inner.rings.lock()
    }

    /// Fails when the CQ overflowed or the daemon is gone, and nothing is left to be polled.
    pub(crate) fn check_async_error(&self) -> Result<(), Error> {
        match self.async_error() {
            // Completions that were put before the error are still to be taken.
            Some(error) if !self.has_completions()? => Err(error),
            _ => Ok(()),
        }
    }

    /// Whether the CQ overflowed or the daemon is gone.
    pub(crate) fn async_error(&self) -> Option<Error> {
        let context = &self.inner.context;
        // The inboxes are not held when the rings are asked: a resize holds the rings while it asks the daemon,
        // and looks into the inboxes when that is gone.
        let (failed, gone) = {
            let inboxes = context.events().inboxes();
            let failed = inboxes.failed_cqs.contains(&self.inner.id);
            (failed, inboxes.is_closed().then(|| inboxes.closed_error()))
        };
        if gone.is_some() {
            context.set_gone();
        }
        match failed {
            true => Some(Error::CqOverflow),
            false => gone,
        }
    }
}

impl AsFd for CompletionQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd()
    }
}

impl AsRawFd for CompletionQueue {
    fn as_raw_fd(&self) -> RawFd {
        self.fd().as_raw_fd()
    }
}

impl Drop for CqInner {
    fn drop(&mut self) {
        self.context.give_back(&Request::DestroyCq { cq: self.id });
        self.context.forget(|inboxes| inboxes.remove_cq(self.id));
    }
}
