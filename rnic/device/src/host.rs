//! What stays the kernel's: interfaces, addresses, routes, neighbours, ports, ICMP, signals. For the
//! device, and for other programs that speak TCP over a steered interface.
//!
//! Nothing here is on the data path. Waiting is done by the thread that asked, without any lock.

pub(crate) mod address;
pub(crate) mod cgroup;
pub(crate) mod changes;
pub mod files;
pub(crate) mod icmp;
pub(crate) mod interface;
pub(crate) mod joined_frames;
pub(crate) mod link_state;
pub(crate) mod members;
pub(crate) mod neighbour;
pub(crate) mod netlink;
pub(crate) mod ports;
pub mod privileges;
mod raw_message;
pub(crate) mod reservation;
pub(crate) mod route;
pub(crate) mod seccomp;
pub(crate) mod signals;
pub(crate) mod sockets;
pub(crate) mod unheeded;
pub(crate) mod way;
pub(crate) mod xfrm;

pub use icmp::IcmpSocket;
pub use interface::Interface;
pub use members::{Member, Members};
pub use netlink::Netlink;
pub use reservation::Reservation;
pub use rnic_ipc::control::{Refusal, RefusalCode};
pub use signals::{Signal, Signals};
pub use sockets::{Sockets, SocketsConfig, attach, missing_features};
pub(crate) use way::leads_over;
pub use way::{check_local, find_way, route_mtu};

#[cfg(test)]
mod tests;
