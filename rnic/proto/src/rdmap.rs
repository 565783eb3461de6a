//! RDMAP: Remote Direct Memory Access Protocol (RFC 5040), with Immediate Data and Atomic
//! Operations (RFC 7306). [`Stream`] is one end of an RDMAP Stream; the other modules are its
//! codecs. Memory rights are the engine's: nothing in here knows what an STag names.

pub mod atomic;
pub mod control;
pub mod errors;
pub mod read_request;
pub mod segment;
pub mod stream;
pub mod terminate;

pub use atomic::{AtomicOperation, AtomicRequest, AtomicResponse};
pub use control::{Opcode, SendKind, SendWord};
pub use errors::{RdmapError, TerminateError};
pub use read_request::ReadRequest;
pub use stream::{Inbound, Stream};
pub use terminate::{Offending, Terminate, TerminateMessage};
