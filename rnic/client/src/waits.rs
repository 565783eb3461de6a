//! Calls that wait give a value each: await it, or wait for it with a timeout.
//!
//! As futures they need no certain executor. What they wait for is a descriptor, which the reactor watches, and it
//! runs any task again by its waker. Dropping one takes nothing from anybody: what it waited for stays there for
//! the next call.

mod accepting;
mod completions;
mod connecting;
mod deregistering;
mod event;
mod events;

pub use accepting::Accepting;
pub use completions::{NextCompletion, Readable};
pub use connecting::{Connecting, Disconnecting};
pub use deregistering::Deregistering;
pub use events::{LimitReached, NextSource};

pub(crate) use event::EventWait;
