//! The RNIC engine: STag table, queue pairs, completion queues and the polled shard loop.
//!
//! Receiving: [`shard`] takes frames from a port, [`rnic_net`] parses them, and TCP says which bytes are new. `conn`
//! parks what is not in order yet, as its frame. [`qp`] finds whole FPDUs, asks [`stag`] for a grant and copies the
//! payload to its place in a [`region`]: the only copy. Sending: a queue pair writes an FPDU into a frame, which stays
//! with TCP until it is acknowledged.
//!
//! It has no socket, clock or thread of its own, and `unsafe` in [`region`] only.
//!
//! ```
//! use rnic_engine::shard::{Shard, ShardConfig};
//! use rnic_xsk::{ChunkSize, MemoryPort, Umem};
//! use userspace_net::Instant;
//!
//! let (umem, pool) = Umem::heap(64, ChunkSize::Bytes2048);
//! let (port, _far_end) = MemoryPort::pair(&umem, &umem, 16);
//! let mut shard = Shard::new(ShardConfig::default(), pool, vec![port], Instant::ZERO);
//! assert!(!shard.poll(Instant::ZERO), "nothing has come");
//! ```
#![deny(unsafe_code)]

pub mod capture;
pub mod command;
mod conn;
pub mod counters;
pub mod cq;
pub mod histogram;
pub mod idmap;
pub mod metrics;
mod prefetch;
pub mod qp;
#[cfg(test)]
#[path = "../tests/shared/random.rs"]
mod random;
pub mod region;
pub mod shard;
mod slot_table;
pub mod srq;
pub mod stag;
