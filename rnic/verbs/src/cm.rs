//! The connection manager (librdmacm): identifiers, event channels, connections.

mod addr;
mod addrinfo;
mod channel;
mod connect;
mod endpoint;
mod event;
mod id;
mod identifiers;
mod listen;
pub(crate) mod net;
mod options;
mod ports;
mod resolve;

pub(crate) use addr::{read_sockaddr, to_storage};
pub(crate) use addrinfo::{free_addrinfo, get_addrinfo};
pub(crate) use channel::EventChannel;
pub(crate) use event::Event;
pub(crate) use id::CmId;
