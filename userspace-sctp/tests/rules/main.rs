//! Rules of RFC 9260, one by one: a stack and a peer whose packets a test writes. Comments name the requirements.
#![allow(clippy::unwrap_used)]

mod collision;
mod congestion;
mod ending;
mod failover;
mod heartbeat;
mod icmp;
mod link_mtu;
mod mtu;
mod opening;
mod paths;
mod receiving;
mod reflected;
mod script;
mod sending;
mod strangers;
mod told;
mod udp;
mod wire;
