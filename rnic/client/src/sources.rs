//! For a program that waits for the events of many objects in one place: which of them has one.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::context::{Context, Inner};

/// Sources of events that come from here on, oldest first and one for each event. One of a context: a
/// second one takes sources from the first.
#[derive(Debug)]
pub struct EventSources {
    context: Arc<Inner>,
}

impl Context {
    /// Begins to note the sources of events. What nobody takes is kept until this is dropped.
    pub fn event_sources(&self) -> EventSources {
        let context = self.inner().clone();
        context.events().inboxes().sources = Some(VecDeque::new());
        EventSources { context }
    }
}

impl EventSources {
    pub(crate) fn context(&self) -> &Arc<Inner> {
        &self.context
    }
}

impl Drop for EventSources {
    fn drop(&mut self) {
        self.context.forget(|inboxes| inboxes.sources = None);
    }
}
