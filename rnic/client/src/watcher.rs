//! A future's wait for something that comes out of a completion queue.

use std::task::{Context as Task, Poll};

use crate::completion::CompletionQueue;
use crate::error::Error;
use crate::reactor::WakerSlot;

/// One future's wait on a completion queue.
#[derive(Debug)]
pub(crate) struct Watcher<'a> {
    cq: &'a CompletionQueue,
    /// Taken by the first poll in vain: where news of completions wakes, and where news of an overflow and of
    /// the daemon's end do, which are reported on the event socket.
    slots: Option<[WakerSlot<'a>; 2]>,
}

impl<'a> Watcher<'a> {
    pub(crate) fn of(cq: &'a CompletionQueue) -> Self {
        Self { cq, slots: None }
    }

    /// Ready with what `look` finds, or with the error that nothing will come any more.
    pub(crate) fn poll<T>(
        &mut self,
        task: &Task<'_>,
        mut look: impl FnMut() -> Result<Option<T>, Error>,
    ) -> Poll<Result<T, Error>> {
        self.try_poll(task, &mut look).map_or_else(
            |error| Poll::Ready(Err(error)),
            |found| found.map_or(Poll::Pending, |found| Poll::Ready(Ok(found))),
        )
    }

    fn try_poll<T>(
        &mut self,
        task: &Task<'_>,
        look: &mut impl FnMut() -> Result<Option<T>, Error>,
    ) -> Result<Option<T>, Error> {
        let context = self.cq.context();
        context.drive();
        if let Some(found) = look()? {
            return Ok(Some(found));
        }
        let slots = match &mut self.slots {
            Some(slots) => slots,
            none => none.insert([self.cq.watch()?.slot(), context.events().watch()?.slot()]),
        };
        for slot in &*slots {
            slot.take(task.waker());
        }
        self.cq.arm_for(&slots[0]);
        let error = self.cq.async_error();
        // What came between the first look and the arming, or before the error.
        match (look()?, error) {
            (Some(found), _) => Ok(Some(found)),
            (None, Some(error)) => Err(error),
            (None, None) => {
                context.come_back(task);
                Ok(None)
            }
        }
    }
}
