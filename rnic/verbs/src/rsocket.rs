//! Sockets over RDMA (rsocket(7)): streams by the calls of sockets, as librdmacm has them, and by its
//! protocol, so that the other end may be librdmacm's on another RNIC.
//!
//! [`flow`] and [`wire`] are the protocol, without any memory or queue pair; a [`stream::Stream`] is a
//! connection; a [`Socket`] what a program has. Its descriptor is an epoll instance: it becomes readable
//! when something may have changed. Progress is made in the program's own calls only, but for accepting: the
//! session's thread does that for a program that is elsewhere.
//!
//! No call waits in here. [`Socket::attempt`] does what can be done; waiting is done in `exports::rsockets`,
//! where a thread may be cancelled.

mod accept;
mod bell;
mod connect;
mod flow;
mod iomap;
mod mapping;
mod options;
mod socket;
mod stream;
mod table;
mod transfer;
mod wire;

pub(crate) use options::Options;
pub(crate) use socket::{Family, MAX_WAIT, Socket, State};
pub(crate) use table::table;
pub(crate) use transfer::Transfer;
