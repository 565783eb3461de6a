//! The clients of a device: what is kept of each beside the PRM, their events, and the PRM itself with the memory that
//! it takes.

pub(crate) mod audit;
pub(crate) mod client;
pub(crate) mod events;
mod memory_budget;
pub(crate) mod shared_prm;
