//! DDP: Direct Data Placement (RFC 5041). Segment headers, the order of messages and bytes within
//! an untagged queue, and DDP's error numbers. Which memory an STag or a queue's buffer is, and
//! whether a segment may go there, only the engine knows: it answers with [`DdpError`].

mod error;
pub mod header;
pub mod untagged;

pub use error::DdpError;
pub use header::Header;
