//! Work queues: the client produces, the engine consumes. Both of a queue pair lie in one memory.
//!
//! The flag word of the send queue's ring is the queue pair's `pending`: it has a doorbell in the
//! client's ring that the engine hasn't answered. No work is stranded: the client publishes its
//! work request and then swaps `pending` to 1, the engine swaps it to 0 and then drains. Both swaps
//! are read-modify-writes of one word, so they have an order. Client first: the engine's swap reads
//! the client's (or a later one) and, by acquire and release, the drain sees the work. Engine
//! first: the client reads 0 and rings.
//!
//! A queue pair that has no connection can be moved to another shard. A word of its memory says which shard has it
//! ([`QpShard`]): it is written before that shard swaps `pending` to 0 and drains, and the client reads it after its own
//! swap. So a client that reads an old value has swapped before that shard did, whose drain then sees the work.
//! A doorbell that comes to a shard without the queue pair means nothing there.

mod consumer;
mod memory;
mod producer;
mod slot;

pub use consumer::{Place, WorkQueueConsumer};
pub use memory::{QpLayout, QpMemory, QpShard, SrqMemory};
pub use producer::WorkQueueProducer;
pub use slot::slots_for;
