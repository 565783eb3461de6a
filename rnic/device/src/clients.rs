//! The clients of a device: what is kept of each beside the PRM, and their events. Also what all devices of a process
//! share: the PRM, and the budget of memory for clients' objects.

pub(crate) mod audit;
pub(crate) mod client;
pub(crate) mod events;
mod memory_budget;
pub(crate) mod registry;
pub(crate) mod request_metrics;
pub(crate) mod shared_prm;
