//! What passes between two threads without either waiting for the other: a bounded queue, and a bell that wakes
//! who sleeps.

mod bell;
#[cfg_attr(loom, path = "channel/modelled.rs")]
mod event_fd;
mod queue;

pub(crate) use bell::Bell;
pub(crate) use queue::Queue;
