//! The connection manager (librdmacm): identifiers, event channels, connections.

mod addr;
mod addrinfo;
mod channel;
mod connect;
mod endpoint;
mod event;
mod id;
mod listen;
mod options;
mod ports;
mod resolve;

pub(crate) use addr::{read_sockaddr, to_storage, unmapped};
pub(crate) use addrinfo::{free_addrinfo, get_addrinfo};
pub(crate) use channel::EventChannel;
pub(crate) use connect::{errno_of, log_end};
pub(crate) use event::Event;
pub(crate) use id::CmId;
pub(crate) use listen::{backlog_within, listen_everywhere};
pub(crate) use ports::Ports;
pub(crate) use resolve::way_toward;
