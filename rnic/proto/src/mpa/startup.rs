//! The Startup Phase: MPA Request and Reply Frames and what both sides agree on by them (RFC 5044
//! section 7.1, enhanced by RFC 6581).
//!
//! [`Initiator`] sends the Request and waits for the Reply, [`Responder`] waits for the Request and
//! answers. Both take the connection's bytes in order and stop at the frame's end. The Responder sends no FPDU
//! before it has one (RFC 5044 section 7.1.2 rule 4), and the Initiator none before the Reply. So bytes after
//! either frame are an error.

mod error;
pub mod frame;
mod initiator;
mod negotiated;
mod responder;

pub use error::StartupError;
pub use frame::{FRAME_LEN_MAX, PRIVATE_DATA_MAX, Revision, StartupFrame};
pub use initiator::{Initiator, InitiatorOptions, InitiatorProgress};
pub use negotiated::Negotiated;
pub use responder::{Responder, ResponderOptions, ResponderProgress};
