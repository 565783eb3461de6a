//! MPA, DDP and RDMAP: codecs and state machines, sans-I/O (RFC 5044, 6581, 5041, 5040,
//! 7306).
//!
//! Bytes and requests go in; headers, placements, deliveries and errors come out. There is no
//! socket, clock or thread in here, no memory of the application, and after start-up no
//! allocation. Bytes from a peer are hostile: no sequence of them may make this crate panic.
//!
//! - [`enhanced`] is what RFC 6581 has both sides agree on, over either lower layer.
//! - [`mpa::startup`] agrees on the connection's parameters, [`mpa::fpdu`] frames ULPDUs.
//! - [`ddp`] has the segment headers, the order within untagged queues, and DDP's errors.
//! - [`sctp`] has the chunks and sessions of DDP over SCTP.
//! - [`rdmap::Stream`] checks and classifies inbound segments and numbers outbound messages.
//!
//! ```
//! use rnic_proto::enhanced::{ReadDepths, RtrSet};
//! use rnic_proto::mpa::startup::{
//!     Initiator, InitiatorOptions, Responder, ResponderProgress, Revision,
//! };
//!
//! let options = InitiatorOptions {
//!     revision: Revision::Two,
//!     crc: true,
//!     markers: false,
//!     aligned: false,
//!     depths: ReadDepths { ird: 4, ord: 4 },
//!     peer_to_peer: RtrSet::NONE,
//! };
//! let initiator = Initiator::new(options, b"hello").unwrap();
//! let mut responder = Responder::new();
//! let progress = responder.on_bytes(initiator.request().bytes()).unwrap();
//! assert!(matches!(
//!     progress,
//!     ResponderProgress::Request { crc_wanted: true, markers_wanted: false, .. }
//! ));
//! ```
#![forbid(unsafe_code)]

pub mod crc;
pub mod ddp;
pub mod enhanced;
pub mod mpa;
pub mod rdmap;
pub mod sctp;

mod bytes;
mod gather;
mod names;
mod numbers;

pub use gather::{Bytes, Gather};
pub use names::{MessageOffset, Msn, Qn, Stag, TaggedOffset};
