//! Sans-I/O, segment-preserving TCP (RFC 9293) that shows out-of-order segments to the layer above.
//!
//! A [`Stack`] is a value: segments, requests and `now` go in; segments, events and the next
//! deadline come out. There is no socket, clock, thread or global in it, and no byte of payload is
//! copied or kept: `B` is the caller's handle of a buffer.
//!
//! # The loop around it
//! 1. [`Stack::receive`] for each segment, then [`Stack::poll_event`] until empty, *then* act on
//!    [`Received::new`]: the segment that completes a passive open may carry bytes, and
//!    [`Event::Incoming`] introduces its connection.
//! 2. [`Stack::advance`] when [`Stack::next_deadline`] has come (it may come a little early for
//!    nothing; calling `advance` at any time is harmless).
//! 3. Give work to connections: [`Stack::send`] as [`Stack::send_room`] allows, or [`Stack::post`], by
//!    which several segments of one cost less. Room opens only in `receive`; look at the connection it
//!    names.
//! 4. [`Stack::transmit`] until it gives nothing (or until the link is full: what is not asked for waits
//!    without harm). Doing this after the layer above has answered lets ACKs ride on its segments.
//! 5. [`Stack::transmitted`] for each payload buffer that the link is done with, sent or not, and
//!    [`Stack::poll_released`] until empty, for buffers nobody needs any more.
//!
//! # Rules that the layer above can build on
//! - One [`Stack::send`] is exactly one TCP segment, in every transmission of it; never joined with another, and
//!   never split but by [`Stack::split`], before it is sent.
//! - The payload of a [`Transmit`] always has the same header length on one connection, whether it
//!   is a retransmission or not: 20 bytes, or 32 with timestamps.
//! - [`Received::new`] names each byte of the stream exactly once, as soon as it is here.
//! - A segment that has become too large for the path after it was taken goes out as IP fragments
//!   ([`Transmit::fragment_to`]). [`Stack::mss`] says what the next one may have.
//! - [`Stack::send_room`] is at least one [`Stack::mss`] when nothing is queued or in flight, even
//!   if the peer's window is closed: that one segment, queued, is what makes TCP probe the window.
//! - The window's right edge is the last [`Stack::consumed`] position plus
//!   [`Config::receive_window`] and never moves back.
//! - After [`Event::Reset`], [`Event::Refused`], [`Event::TimedOut`], [`Stack::abort`], or
//!   [`Event::Closed`] without TIME-WAIT, the [`ConnId`] is dead: calls with it do nothing, say so,
//!   and `transmitted` hands the buffer straight back.
//!
//! A layer above that has bytes instead of segments uses [`stream`]: a sender that puts small
//! writes together, and a reader that puts early bytes in order.
//!
//! # Bounds
//! Connections: [`Config::connections`] (then the oldest in TIME-WAIT gives way, then one that is
//! half-open and overdue, then SYNs are dropped and [`Stack::connect`] refuses). Half-open
//! connections: the listener's backlog (then SYNs are answered by SYN cookies; without them the
//! oldest gives way if its SYN-ACK has timed out, else SYNs are dropped). Send queue:
//! [`Config::send_queue_segments`] (then [`SendRefusal::QueueFull`]). Separate out-of-order ranges:
//! 1024 of each connection, but 64 when a thousand connections have more than that at the same time
//! (then the segment is dropped). Resets to unknown flows: [`Config::resets_per_second`]. Answers to
//! segments that only provoke: ten a second of each connection. Events: a few for each call.
//!
//! # Not done
//! Fast Open, and bytes on a SYN that does not establish the connection (the peer sends them
//! again). A reset in TIME-WAIT is ignored (RFC 1337), not obeyed.
//!
//! # Example
//!
//! ```
//! use userspace_net::{Endpoint, Instant};
//! use userspace_tcp::{Config, Stack};
//!
//! // Buffers are the caller's: here they are vectors.
//! let mut stack = Stack::<Vec<u8>>::new(Config::default(), [7; 16], Instant::ZERO);
//! let local = Endpoint { addr: [198, 18, 0, 1].into(), port: 7471 };
//! stack.listen(local, 16).expect("nobody listens there yet");
//! assert!(stack.listen(local, 16).is_err());
//! assert_eq!(stack.poll_event(), None);
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod config;
mod congestion;
mod connection;
mod effects;
mod frto;
mod inbound;
mod interface;
mod isn;
mod link;
mod min_rtt;
mod options;
mod outbound;
mod pacing;
mod pools;
mod rack;
mod rate;
mod resent;
mod resource_usage;
mod rtt;
pub mod segment;
pub mod seq;
mod stack;
pub mod stream;
mod syn_cookie;
mod tlp;

pub use config::{Config, CongestionControl, ConnOptions, KeepAlive, ParseCongestionControlError};
pub use interface::{
    ConnCounters, ConnId, ConnectError, Counters, DeferredAck, Event, FlowHint, IcmpError, InOrder,
    Info, ListenError, NEW_RANGES_MAX, NewRange, NewRanges, Outgoing, Payload, Received, SegmentId,
    SegmentRun, SendCapacity, SendError, SendRefusal, SoftError, State, Transmit,
};
pub use link::{BurstHead, BurstSegment, Link};
pub use options::{
    OPTIONS_MAX, Options, SACK_BLOCKS_MAX, SackBlock, SackBlocks, TIMESTAMPS_LEN, Timestamps,
};
pub use resource_usage::ResourceUsage;
pub use segment::{CoalescedInfo, Flags, ParseError, Segment, TcpHeader};
pub use seq::{SeqNum, StreamOffset};
pub use stack::{Detached, Posting, Stack};
