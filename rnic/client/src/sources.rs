//! For a program that waits for the events of many objects in one place: which of them has one.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::context::{Context, Inner};
use crate::error::Error;
use crate::events::EventSource;
use crate::wait::Deadline;

/// Sources of events that come from here on, oldest first and one for each event. One of a context: a
/// second one takes sources from the first.
#[derive(Debug)]
pub struct EventSources {
    context: Arc<Inner>,
}

impl EventSources {
    /// Begins to note sources. What nobody takes is kept until this is dropped.
    pub fn begin(context: &Context) -> Self {
        let context = context.inner().clone();
        context.events().boxes().sources = Some(VecDeque::new());
        Self { context }
    }

    /// Waits for the next event's source. The event itself may have been taken meanwhile.
    ///
    /// # Errors
    /// [`Error::Timeout`], [`Error::DaemonGone`].
    pub fn next(&self, timeout: Duration) -> Result<EventSource, Error> {
        self.context.events().wait(
            &self.context,
            Deadline::after(timeout),
            "an event",
            |boxes| boxes.sources.as_mut()?.pop_front(),
        )
    }
}

impl Drop for EventSources {
    fn drop(&mut self) {
        self.context.forget(|boxes| boxes.sources = None);
    }
}
