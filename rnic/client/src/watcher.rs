//! A future's wait for something that comes out of a completion queue.

use std::task::{Context as Task, Poll};

use crate::completion::CompletionQueue;
use crate::error::Error;
use crate::reactor::Place;

/// One future's wait on a completion queue.
#[derive(Debug)]
pub(crate) struct Watcher<'a> {
    cq: &'a CompletionQueue,
    /// Taken by the first poll in vain: where news of completions wakes, and where news of an overflow and of
    /// the daemon's end do, which are told on the event socket.
    places: Option<[Place<'a>; 2]>,
}

impl<'a> Watcher<'a> {
    pub(crate) fn of(cq: &'a CompletionQueue) -> Self {
        Self { cq, places: None }
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
        let places = match &mut self.places {
            Some(places) => places,
            none => none.insert([self.cq.watch()?.place(), context.events().watch()?.place()]),
        };
        for place in &*places {
            place.take(task.waker());
        }
        self.cq.arm_for(&places[0]);
        let trouble = self.cq.trouble();
        // What came between the first look and the arming, or before the trouble.
        match (look()?, trouble) {
            (Some(found), _) => Ok(Some(found)),
            (None, Some(trouble)) => Err(trouble),
            (None, None) => {
                context.come_back(task);
                Ok(None)
            }
        }
    }
}
