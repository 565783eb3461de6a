//! What an inbound DDP Segment turns out to be.

use crate::ddp::header;
use crate::rdmap::{AtomicRequest, ReadRequest, SendKind, Terminate};
use crate::{MessageOffset, Msn, Stag, TaggedOffset};

/// What an inbound DDP Segment is. Its payload is `len` bytes at [`Inbound::payload_offset`] of
/// the ULPDU. Where `len` is zero the STag and TO beside it must not be checked (RFC 5041 section
/// 5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inbound {
    /// Place the payload; nothing is delivered (RFC 5040 section 5.1).
    Write {
        /// The memory written.
        stag: Stag,
        /// The payload's place in it.
        to: TaggedOffset,
        /// Bytes of payload.
        len: u32,
        /// The message ends here.
        last: bool,
    },
    /// Place the payload; with `last`, the Read is complete.
    ReadResponse {
        /// What [`Stream::begin_read`](super::Stream::begin_read) was given for this Read.
        token: u64,
        /// The Read's sink.
        stag: Stag,
        /// The payload's place in it.
        to: TaggedOffset,
        /// Bytes of payload.
        len: u32,
        /// The Read ends here.
        last: bool,
    },
    /// Place the payload in the receive that the message consumes; with `last`, deliver.
    Send {
        /// Which of the Sends.
        kind: SendKind,
        /// The STag to invalidate on delivery, or the Immediate Data, when `kind` says so.
        word: u32,
        /// The message's number; [`Msn::FIRST`] consumes the first receive.
        msn: Msn,
        /// The payload's place in the message.
        mo: MessageOffset,
        /// Bytes of payload.
        len: u32,
        /// The message ends here, `mo` + `len` bytes long.
        last: bool,
    },
    /// Answer it, after those before it, then call
    /// [`Stream::read_response_sent`](super::Stream::read_response_sent).
    ReadRequest {
        /// The message's number, for a Terminate that names it.
        msn: Msn,
        /// What is wanted.
        request: ReadRequest,
    },
    /// Deliver it: it consumes a receive (RFC 7306 section 6.3).
    Immediate {
        /// Raise the solicited event.
        solicited: bool,
        /// The message's number, of the same row as the Sends'.
        msn: Msn,
        /// The eight bytes, the first of them the most significant.
        data: u64,
    },
    /// Do it and answer it, after the requests before it, under the number that
    /// [`Stream::begin_atomic_response`](super::Stream::begin_atomic_response) gives.
    AtomicRequest {
        /// The message's number, for a Terminate that names it.
        msn: Msn,
        /// What is wanted.
        request: AtomicRequest,
    },
    /// An Atomic Operation is complete.
    AtomicResponse {
        /// What [`Stream::begin_atomic`](super::Stream::begin_atomic) was given for it.
        token: u64,
        /// What the remote memory held before the operation.
        original: u64,
    },
    /// The peer ends the stream.
    Terminate(Terminate),
    /// The peer is ready to receive, said by a zero-length Send that consumes no receive
    /// (RFC 6581 section 9.2).
    Rtr,
    /// The stream is over: silently dropped.
    Dropped,
}

impl Inbound {
    /// Where the payload begins in the ULPDU, in bytes.
    pub const fn payload_offset(&self) -> usize {
        match self {
            Self::Write { .. } | Self::ReadResponse { .. } => header::TAGGED_LEN,
            _ => header::UNTAGGED_LEN,
        }
    }
}
