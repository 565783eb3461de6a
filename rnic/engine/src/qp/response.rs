//! Requests of the peer that are to be answered.

use rnic_proto::rdmap::{AtomicRequest, ReadRequest, Stream};
use rnic_proto::{Msn, TaggedOffset};

/// A request that is to be answered.
#[derive(Clone, Copy, Debug)]
pub(super) enum Response {
    Read(ReadResponse),
    Atomic { msn: Msn, request: AtomicRequest },
}

impl Response {
    /// The peer may send another request of the same type.
    pub(super) fn done(&self, stream: &mut Stream) {
        match self {
            Self::Read(_) => stream.read_response_sent(),
            Self::Atomic { .. } => stream.atomic_response_sent(),
        }
    }
}

/// An RDMA Read Request that is being answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadResponse {
    pub msn: Msn,
    pub request: ReadRequest,
    /// Bytes sent.
    pub sent: u32,
}

impl ReadResponse {
    pub(super) fn new(msn: Msn, request: ReadRequest) -> Self {
        Self {
            msn,
            request,
            sent: 0,
        }
    }

    pub(super) fn left(&self) -> u32 {
        self.request.size.saturating_sub(self.sent)
    }

    /// The part of the request that is not answered yet (RFC 5040 section 4.8). The source was checked not to
    /// wrap. The sink is the peer's, and wraps as the peer's offsets do.
    pub(super) fn rest(&self) -> ReadRequest {
        let sent = u64::from(self.sent);
        ReadRequest {
            sink_to: TaggedOffset(self.request.sink_to.0.wrapping_add(sent)),
            source_to: TaggedOffset(self.request.source_to.0.wrapping_add(sent)),
            size: self.left(),
            ..self.request
        }
    }
}
