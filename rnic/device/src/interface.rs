//! An open interface: its opening, its addresses, paths and ports, and how it follows the host.

mod flows;
pub(crate) mod internal;
pub(crate) mod ipsec;
mod loopback;
pub(crate) mod open;
pub(crate) mod paths;
mod port_choice;
pub(crate) mod route_monitor;
