//! Sans-I/O SCTP (RFC 9260) for layers that want each unordered message as soon as it is here, in
//! whatever order messages come.
//!
//! What is here so far: the wire ([`packet`], [`chunk`], [`parameter`], [`cause`]), the State
//! [`cookie`] by which a listener remembers nothing of an INIT, its [`stateless`] answers, and parts of an
//! association ([`inbound`], [`outbound`], [`path`]). `docs/sctp.md` says how associations will be built
//! on it.
//!
//! Nothing here has a socket, a clock, a thread or a global. Bytes from the network become typed
//! values once; a length that lies ends the reading of what it belongs to.
#![forbid(unsafe_code)]

pub mod cause;
pub mod chunk;
pub mod cookie;
pub mod inbound;
pub mod outbound;
pub mod packet;
pub mod parameter;
pub mod path;
pub mod stateless;
mod tlv;
pub mod tsn;

pub use tsn::Tsn;
