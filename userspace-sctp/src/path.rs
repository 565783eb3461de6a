//! What is kept for each address of the peer: its retransmission timeout ([`rto`]) and its congestion window
//! ([`congestion`]).

pub mod congestion;
pub mod rto;
