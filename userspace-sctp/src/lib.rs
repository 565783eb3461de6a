//! Sans-I/O SCTP (RFC 9260) for layers that want each unordered message as soon as it is here, in
//! whatever order messages come.
//!
//! A [`Stack`] is a value: packets, requests and `now` go in; packets, events and the next deadline come out. There is
//! no socket, clock, thread or global in it. Bytes from the network become typed values once; a length that lies ends
//! the reading of what it belongs to. Time is a duration since a moment of the caller's choice.
//!
//! # The loop around it
//! 1. [`Stack::receive`] for each packet, then [`Stack::poll_event`] until empty.
//! 2. [`Stack::advance`] when [`Stack::next_deadline`] has come. Calling it earlier is harmless.
//! 3. [`Stack::post`] messages; [`Stack::consumed`] for those of the peer's that are done with.
//! 4. [`Stack::poll_transmit`] until it gives nothing, or until the link is full.
//! 5. [`Stack::poll_released`] until empty, for buffers that nobody needs any more.
//!
//! # Rules that the layer above can build on
//! - Each message of the peer's is shown exactly once, as soon as it is here. No order is kept. Ordered messages are a
//!   violation, and end the association.
//! - One [`Stack::post`] is exactly one DATA chunk. Its buffer is read when a packet is written, and again when it is
//!   sent again, until it comes back.
//! - After [`Event::Closed`], [`Event::Aborted`], [`Event::Failed`] or [`Stack::abort`] the [`AssocId`] is dead: calls
//!   with it do nothing and say so.
//! - After [`Event::Restarted`] the name stays, and everything else starts over. The packet that restarts it
//!   shows no message.
//!
//! # Memory
//! An association allocates when it begins, and a fragment of a message when it comes. Nothing else of a packet does.
//! `docs/sctp.md` lists all bounds.
//!
//! # Example
//!
//! ```
//! use userspace_net::Instant;
//! use userspace_sctp::{Config, Ends, Stack};
//!
//! // Buffers are the caller's: here they are vectors.
//! let mut stack = Stack::<Vec<u8>>::new(Config::default(), [7; 16], Instant::ZERO);
//! let ends = Ends {
//!     local: ([198, 18, 0, 1], 5000).into(),
//!     remote: ([198, 18, 0, 2], 5001).into(),
//! };
//! stack.connect(Instant::ZERO, ends)?;
//! let mut out = [0; 1500];
//! let init = stack.poll_transmit(Instant::ZERO, &mut out);
//! assert!(init.is_some_and(|init| init.ends == ends));
//! # Ok::<(), userspace_sctp::ConnectError>(())
//! ```
#![forbid(unsafe_code)]

mod addresses;
mod association;
pub mod cause;
pub mod chunk;
mod config;
pub mod cookie;
mod effects;
pub mod inbound;
mod interface;
pub mod outbound;
pub mod packet;
pub mod parameter;
pub mod path;
mod random;
mod stack;
pub mod stateless;
mod table;
mod tlv;
pub mod tsn;

pub use addresses::Others;
pub use config::{Config, MTU_MIN};
pub use interface::{
    AbortCause, Agreed, AssocCounters, AssocId, ConnectError, Counters, Ends, Event, Failure,
    IcmpError, IcmpQuote, InUse, Info, Message, Outgoing, PathInfo, PostError, REASON_MAX, Refused,
    Route, State, Transmit,
};
pub use stack::Stack;
pub use tsn::Tsn;
pub use userspace_net::UdpPorts;
