//! What stays the kernel's: interfaces, addresses, routes, neighbours, ports, ICMP.
//!
//! Nothing here is on the data path. Waiting is done by the thread that asked, without any lock.

pub(crate) mod address;
pub(crate) mod icmp;
pub(crate) mod interface;
pub(crate) mod neighbour;
pub(crate) mod netlink;
pub(crate) mod ports;
pub(crate) mod route;

#[cfg(test)]
mod tests;
