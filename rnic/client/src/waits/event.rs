//! One wait for something among the events of a context.

use std::sync::Arc;
use std::task::{Context as Task, Poll};

use crate::context::Inner;
use crate::error::Error;
use crate::events::Inboxes;
use crate::reactor::WakerSlot;
use crate::wait::Deadline;

/// What a value that waits for an event has.
#[derive(Debug)]
pub(crate) struct EventWait<'a> {
    context: &'a Arc<Inner>,
    /// What is waited for, for the error when it does not come.
    what: &'static str,
    /// Taken by the first poll.
    slot: Option<WakerSlot<'a>>,
}

impl<'a> EventWait<'a> {
    pub(crate) fn new(context: &'a Arc<Inner>, what: &'static str) -> Self {
        Self {
            context,
            what,
            slot: None,
        }
    }

    /// Blocks until `take` finds what it looks for. With no time at all it looks once.
    pub(crate) fn block<T>(
        &self,
        deadline: Deadline,
        take: impl FnMut(&mut Inboxes) -> Option<T>,
    ) -> Result<T, Error> {
        self.context.wait_for_event(deadline, self.what, take)
    }

    /// One look of a future.
    pub(crate) fn poll<T>(
        &mut self,
        task: &Task<'_>,
        take: impl FnOnce(&mut Inboxes) -> Option<T>,
    ) -> Poll<Result<T, Error>> {
        let slot = match &self.slot {
            Some(slot) => slot,
            None => match self.context.events().watch() {
                Ok(watch) => self.slot.insert(watch.slot()),
                Err(error) => return Poll::Ready(Err(error)),
            },
        };
        self.context.poll_for_event(slot, task, take)
    }
}
