//! One rule of the RFCs at a time, against a peer played by hand.
#![allow(clippy::unwrap_used)]

mod close;
mod cookies;
mod ecn;
mod hostile;
mod keepalive;
mod open;
mod pacing;
mod path_mtu;
mod rack;
mod receive;
mod reset;
mod retransmit;
mod script;
mod spurious;
mod syn;
mod tail_probe;
mod urgent;
mod window;
