//! What sans-I/O transport protocols share: the time that they are told, the addresses of a connection, and the
//! Internet checksum.
//!
//! Nothing here knows a header of TCP or SCTP, and nothing has a socket, a clock, a thread or a global.
#![forbid(unsafe_code)]

pub mod checksum;
mod ecn;
mod time;
mod tuple;

pub use ecn::Ecn;
pub use time::{Instant, earlier};
pub use tuple::{Endpoint, FourTuple};
