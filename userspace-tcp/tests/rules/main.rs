//! What the scripts (`tests/scripts`) can't say: calls that they do not have, floods, links that take a part, and numbers
//! that only the state shows. One rule at a time, against a peer played by hand.
#![allow(clippy::unwrap_used)]

mod close;
mod cookies;
mod hostile;
mod open;
mod pacing;
mod path_mtu;
mod retransmit;
mod script;
mod spurious;
mod urgent;
