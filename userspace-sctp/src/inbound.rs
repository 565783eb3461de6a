//! What comes: which TSNs are here ([`arrivals`]), when that is acknowledged ([`acks`]), and fragments of messages
//! until they are whole ([`reassembly`]).

pub mod acks;
pub mod arrivals;
pub mod reassembly;
