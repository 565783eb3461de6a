//! What sans-I/O transport protocols share: the time that they are told ([`Instant`]), addresses ([`Endpoint`],
//! [`FourTuple`]), the Internet [`checksum`], and the tables of a stack.
//!
//! A connection here is what a stack has with a peer, by whatever name its protocol calls it. It stands in a table of
//! a bounded size ([`slab`]) and is found by its flow ([`flow_table`], whose hash is [`keyed`]). It stands in queues
//! ([`links`]), has one deadline ([`wheel`]), and counts for its local end ([`locals`]). How often unknown flows are
//! answered has a bound ([`limit`]).
//!
//! What it has received out of order is a set of [`ranges`]. Queues and such sets borrow their memory from a [`pool`].
//! Which packets its path takes is found out by [`pmtu`], and by what other connections to the host have seen
//! ([`mtu_evidence`]).
//!
//! Nothing here knows a header of TCP or SCTP, and nothing has a socket, a clock, a thread or a global.
#![forbid(unsafe_code)]

pub mod arrival_rate;
pub mod checksum;
mod conn_id;
mod ecn;
pub mod flow_table;
pub mod keyed;
pub mod limit;
pub mod links;
pub mod locals;
pub mod mtu_evidence;
pub mod pmtu;
pub mod pool;
pub mod ranges;
pub mod slab;
mod time;
mod tuple;
pub mod wheel;

pub use conn_id::ConnId;
pub use ecn::Ecn;
pub use time::{Instant, earlier};
pub use tuple::{Endpoint, FourTuple, UdpPorts, may_be_a_host};
