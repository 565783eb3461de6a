//! The RDMA Reads and Atomic Operations that this end has outstanding, in order: at most ORD of
//! them together (RFC 5040 sections 5.2 and 6.1, RFC 7306 section 5.2). A response is only taken for
//! the oldest, byte after byte.

use std::collections::VecDeque;

use crate::ddp::DdpError;
use crate::rdmap::atomic::AtomicResponse;
use crate::rdmap::errors::{RdmapError, TerminateError};
use crate::rdmap::read_request::ReadRequest;
use crate::{Stag, TaggedOffset};

/// A bounded queue; its memory is allocated once.
#[derive(Debug)]
pub(super) struct OutstandingReads {
    reads: VecDeque<Outstanding>,
    ord: usize,
}

#[derive(Debug)]
struct Outstanding {
    token: u64,
    awaited: Awaited,
}

/// What answers a request.
#[derive(Debug)]
enum Awaited {
    /// An RDMA Read Response.
    Bytes(Sink),
    /// An Atomic Response with this identifier.
    Original { identifier: u32 },
}

#[derive(Debug)]
struct Sink {
    stag: Stag,
    /// Where the response's next byte goes.
    next_to: u64,
    /// Bytes that are still to come.
    left: u32,
}

impl OutstandingReads {
    pub(super) fn new(ord: u16) -> Self {
        let ord = usize::from(ord);
        Self {
            reads: VecDeque::with_capacity(ord),
            ord,
        }
    }

    pub(super) fn has_room(&self) -> bool {
        self.reads.len() < self.ord
    }

    pub(super) fn is_empty(&self) -> bool {
        self.reads.is_empty()
    }

    /// Adds a Read; false when ORD of them are outstanding.
    pub(super) fn begin(&mut self, token: u64, request: &ReadRequest) -> bool {
        let sink = Sink {
            stag: request.sink_stag,
            next_to: request.sink_to.0,
            left: request.size,
        };
        self.push(token, Awaited::Bytes(sink))
    }

    /// Adds an Atomic Operation; false when ORD requests are outstanding.
    pub(super) fn begin_atomic(&mut self, token: u64, identifier: u32) -> bool {
        self.push(token, Awaited::Original { identifier })
    }

    fn push(&mut self, token: u64, awaited: Awaited) -> bool {
        let room = self.has_room();
        if room {
            self.reads.push_back(Outstanding { token, awaited });
        }
        room
    }

    /// Takes a response segment and gives the token of its Read, which ends with `last`.
    pub(super) fn respond(
        &mut self,
        stag: Stag,
        to: TaggedOffset,
        len: u32,
        last: bool,
    ) -> Result<u64, TerminateError> {
        let Some(Outstanding {
            token,
            awaited: Awaited::Bytes(read),
        }) = self.reads.front_mut()
        else {
            return Err(RdmapError::UnexpectedOpcode.into());
        };
        let token = *token;
        if len > 0 && stag != read.stag {
            return Err(DdpError::InvalidStag.into());
        }
        if len > 0 && to.0 != read.next_to {
            return Err(DdpError::BaseOrBounds.into());
        }
        let left = read.left.checked_sub(len).ok_or(DdpError::BaseOrBounds)?;
        if last && left > 0 {
            return Err(DdpError::BaseOrBounds.into());
        }
        read.left = left;
        // Can't wrap where it matters: TO and length of a segment were checked before.
        read.next_to = read.next_to.wrapping_add(u64::from(len));
        if last {
            self.reads.pop_front();
        }
        Ok(token)
    }

    /// Takes an Atomic Response and gives the token of its operation.
    pub(super) fn respond_atomic(
        &mut self,
        response: &AtomicResponse,
    ) -> Result<u64, TerminateError> {
        // Responses come in the order of the requests (RFC 7306 section 7).
        let Some(&Outstanding {
            token,
            awaited: Awaited::Original { identifier },
        }) = self.reads.front()
        else {
            return Err(RdmapError::UnexpectedOpcode.into());
        };
        if identifier != response.identifier {
            return Err(RdmapError::OperationUnspecified.into());
        }
        self.reads.pop_front();
        Ok(token)
    }

    /// The tokens of Reads whose next byte goes where this request, or what was left of it, has its
    /// sink; oldest first.
    pub(super) fn with_sink(&self, request: ReadRequest) -> impl Iterator<Item = u64> + '_ {
        self.reads.iter().filter_map(move |outstanding| {
            let Awaited::Bytes(read) = &outstanding.awaited else {
                return None;
            };
            let into = read.next_to.checked_sub(request.sink_to.0);
            let within = into.is_some_and(|into| into < u64::from(request.size.max(1)));
            (read.stag == request.sink_stag && within).then_some(outstanding.token)
        })
    }

    /// Whether an outstanding Read still waits for all of these bytes, which don't wrap.
    pub(super) fn cover(&self, stag: Stag, to: TaggedOffset, len: u32) -> bool {
        self.reads.iter().any(|read| {
            let Awaited::Bytes(read) = &read.awaited else {
                return false;
            };
            let from = to.0.checked_sub(read.next_to);
            stag == read.stag
                && from.is_some_and(|from| from.saturating_add(u64::from(len)) <= read.left.into())
        })
    }

    pub(super) fn tokens(&self) -> impl Iterator<Item = u64> + '_ {
        self.reads.iter().map(|read| read.token)
    }
}
