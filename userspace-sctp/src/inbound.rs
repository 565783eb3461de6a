//! What comes: which TSNs are here ([`arrivals`]), when that is acknowledged ([`acks`]), what there is room for
//! ([`window`]), and fragments of messages until they are whole ([`reassembly`]).

pub mod acks;
pub mod arrivals;
pub mod reassembly;
pub mod window;
