//! What stays the kernel's: interfaces, addresses, routes, neighbours, ports, ICMP, signals, and what a process of
//! this host may do. For devices, daemons, and other programs that speak TCP over a steered interface.
//!
//! It knows neither a resource manager nor a shard. Nothing here is on the data path. Waiting is done by the thread
//! that asked, without any lock. `unsafe` lives in [`heap`], `seccomp` and `cgroup_bpf` alone.

#![deny(unsafe_code)]

pub mod address;
pub mod cgroup;
mod cgroup_bpf;
pub mod changes;
mod end_process;
mod error;
pub mod files;
pub mod heap;
pub mod icmp;
pub mod interface;
pub mod joined_frames;
pub mod link_state;
mod members;
mod neighbour;
pub mod netlink;
pub mod ports;
pub mod privileges;
mod raw_message;
pub mod rejecting;
mod reservation;
mod route;
pub mod seccomp;
mod signals;
mod sockets;
pub mod super_packets;
pub mod unheeded;
mod way;
pub mod xfrm;

pub use end_process::EndProcess;
pub use error::HostError;
pub use icmp::IcmpSocket;
pub use interface::Interface;
pub use members::{Member, Members};
pub use netlink::Netlink;
pub use reservation::Reservation;
pub use rnic_ipc::control::{Refusal, RefusalCode};
pub use signals::{Signal, Signals};
pub use sockets::{Sockets, SocketsConfig, attach, missing_features, steering_error};
pub use way::{check_local, find_way, is_resolved, leads_over, refused, route_mtu};

#[cfg(test)]
mod tests;
