//! The rings between a client and the engine: work queues, completion queues, doorbells.
//!
//! Each is single-producer single-consumer in shared memory. An end keeps a private copy of its own
//! index and never believes the shared one; the other end's index is checked at every look. An
//! other side that breaks the rules is a [`RingFault`], never a panic and never an access outside
//! the ring.

mod completion;
mod doorbell;
mod raw;
mod work_queue;
mod work_request;

pub use completion::{CqConsumer, CqLook, CqMemory, CqProducer, CqPushError};
pub use doorbell::{DoorbellConsumer, DoorbellProducer};
pub use raw::{RING_SLOTS_MAX, RingError, RingFault, RingFull};
pub use work_queue::{
    Place, QpLayout, QpMemory, QpShard, SrqMemory, WorkQueueConsumer, WorkQueueProducer, slots_for,
};
pub use work_request::WorkRequest;

#[cfg(test)]
#[cfg(loom)]
mod models;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;
