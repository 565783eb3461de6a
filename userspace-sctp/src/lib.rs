//! Sans-I/O SCTP (RFC 9260) for layers that want each unordered message as soon as it is here, in
//! whatever order messages come.
//!
//! What is here so far is the wire: [`packet`], [`chunk`], [`parameter`], [`cause`], and the State
//! [`cookie`] by which a listener remembers nothing of an INIT. `docs/sctp.md` says how associations
//! will be built on it.
//!
//! Nothing here has a socket, a clock, a thread or a global. Bytes from the network become typed
//! values once; a length that lies ends the reading of what it belongs to.
#![forbid(unsafe_code)]

pub mod cause;
pub mod chunk;
pub mod cookie;
pub mod packet;
pub mod parameter;
mod tlv;
pub mod tsn;

pub use tsn::Tsn;
