//! One end of an RDMAP Stream (RFC 5040): checks and classifies each inbound DDP Segment, numbers
//! outbound messages, and keeps the RDMA Reads and Atomic Operations (RFC 7306) that are
//! outstanding in both directions. Placing bytes and judging STags is the engine's job, and so is
//! the order: segments come here in the LLP's order. After an error or a Terminate nothing more is
//! delivered (RFC 5041 section 7.1).

mod early;
mod inbound;
mod reads;
mod receive;
#[cfg(test)]
mod tests;

pub use early::{Early, SENDS_AHEAD_MAX};
pub use inbound::Inbound;

use self::reads::OutstandingReads;
use super::atomic::{AtomicOperation, AtomicRequest};
use super::control::SendKind;
use super::errors::TerminateError;
use super::read_request::ReadRequest;
use super::segment;
use super::terminate::{Offending, TerminateMessage};
use crate::ddp::untagged::InboundQueue;
use crate::enhanced::{MAX_READ_DEPTH, Rtr};
use crate::{MessageOffset, Msn, Stag, TaggedOffset};

/// What was agreed for a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamConfig {
    /// Inbound RDMA Read Requests that may be unanswered, at most [`MAX_READ_DEPTH`], and beside them
    /// as many Atomic Requests (RFC 7306 section 5.2.2, rule 4).
    pub ird: u16,
    /// Outbound RDMA Reads and Atomic Operations that may be outstanding, together at most
    /// [`MAX_READ_DEPTH`]: a peer that counts them together has room for them, too.
    pub ord: u16,
    /// The responder's side: the Ready-to-Receive message that the peer will open with. Only that
    /// by Send changes what is classified: it becomes [`Inbound::Rtr`].
    pub expect_rtr: Option<Rtr>,
    /// Sends may have Immediate Data.
    pub sends_with_immediate: bool,
}

/// One end of an RDMAP Stream.
#[derive(Debug)]
pub struct Stream {
    sends: InboundQueue,
    read_requests: InboundQueue,
    terminates: InboundQueue,
    atomic_responses: InboundQueue,
    /// The opcode of the Send under way: the same in all its segments.
    send_under_way: Option<SendKind>,
    /// Bytes so far of the RDMA Write under way.
    write_bytes: u32,
    inbound_reads: u16,
    inbound_atomics: u16,
    ird: u16,
    outbound_reads: OutstandingReads,
    next_send: Msn,
    /// Of Read Requests and Atomic Requests.
    next_read: Msn,
    next_atomic_response: Msn,
    expect_rtr: bool,
    sends_with_immediate: bool,
    receiving: bool,
    transmitting: bool,
}

impl Stream {
    /// A stream at its beginning. Depths over [`MAX_READ_DEPTH`] count as that.
    pub fn new(config: StreamConfig) -> Self {
        Self {
            sends: InboundQueue::default(),
            read_requests: InboundQueue::default(),
            terminates: InboundQueue::default(),
            atomic_responses: InboundQueue::default(),
            send_under_way: None,
            write_bytes: 0,
            inbound_reads: 0,
            inbound_atomics: 0,
            ird: config.ird.min(MAX_READ_DEPTH),
            outbound_reads: OutstandingReads::new(config.ord.min(MAX_READ_DEPTH)),
            next_send: Msn::FIRST,
            next_read: Msn::FIRST,
            next_atomic_response: Msn::FIRST,
            expect_rtr: config.expect_rtr == Some(Rtr::Send),
            sends_with_immediate: config.sends_with_immediate,
            receiving: true,
            transmitting: true,
        }
    }

    /// The response to the oldest inbound RDMA Read Request is handed to the LLP, all of it.
    pub fn read_response_sent(&mut self) {
        debug_assert!(self.inbound_reads > 0, "one call for each request");
        self.inbound_reads = self.inbound_reads.saturating_sub(1);
    }

    /// The response that took its number from [`Stream::begin_atomic_response`] is handed to the LLP.
    pub fn atomic_response_sent(&mut self) {
        debug_assert!(self.inbound_atomics > 0, "one call for each request");
        self.inbound_atomics = self.inbound_atomics.saturating_sub(1);
    }

    /// Inbound RDMA Read Requests that are unanswered.
    pub fn inbound_reads(&self) -> u16 {
        self.inbound_reads
    }

    /// Inbound Atomic Requests that are unanswered.
    pub fn inbound_atomics(&self) -> u16 {
        self.inbound_atomics
    }

    /// The number of the next Atomic Response. Responses are to be transmitted in the order of the
    /// requests (RFC 7306 section 5.4, rule 8).
    pub fn begin_atomic_response(&mut self) -> Msn {
        let msn = self.next_atomic_response;
        self.next_atomic_response = msn.next();
        msn
    }

    /// The number that [`Self::begin_send`] would give.
    #[inline]
    pub fn next_send(&self) -> Msn {
        self.next_send
    }

    /// The number of the next Send or Immediate Data, to go into all its segments. Messages are to
    /// be transmitted in the order in which they are begun.
    pub fn begin_send(&mut self) -> Msn {
        let msn = self.next_send;
        self.next_send = msn.next();
        msn
    }

    /// The number of the next RDMA Read Request; none while ORD Reads and Atomic Operations are
    /// outstanding, or when the stream is over. `token` comes back with each segment of the response.
    pub fn begin_read(&mut self, token: u64, request: &ReadRequest) -> Option<Msn> {
        if !self.transmitting || !self.outbound_reads.begin(token, request) {
            return None;
        }
        let msn = self.next_read;
        self.next_read = msn.next();
        Some(msn)
    }

    /// The next Atomic Request and its number; none where [`Stream::begin_read`] gives none. `token`
    /// comes back with the response.
    pub fn begin_atomic(
        &mut self,
        token: u64,
        stag: Stag,
        to: TaggedOffset,
        operation: AtomicOperation,
    ) -> Option<(Msn, AtomicRequest)> {
        let msn = self.next_read;
        let identifier = msn.0;
        if !self.transmitting || !self.outbound_reads.begin_atomic(token, identifier) {
            return None;
        }
        self.next_read = msn.next();
        let request = AtomicRequest {
            identifier,
            stag,
            to,
            operation,
        };
        Some((msn, request))
    }

    /// Whether [`Stream::begin_read`] and [`Stream::begin_atomic`] would give a number now.
    pub fn can_begin_read(&self) -> bool {
        self.transmitting && self.outbound_reads.has_room()
    }

    /// The tokens of the Reads and Atomic Operations that are outstanding, oldest first.
    pub fn outstanding_reads(&self) -> impl Iterator<Item = u64> + '_ {
        self.outbound_reads.tokens()
    }

    /// The tokens of the outstanding Reads that a request in a peer's Terminate may be, by its sink;
    /// oldest first.
    pub fn reads_into(&self, request: ReadRequest) -> impl Iterator<Item = u64> + '_ {
        self.outbound_reads.with_sink(request)
    }

    /// Writes the ULPDU of the initiator's Ready-to-Receive message to the front of `out` and gives
    /// its length in bytes: a zero-length Write, Read or Send (RFC 6581 section 9.2). It must be
    /// the first ULPDU. None when it can't be sent: a Read with an ORD of zero. The Read's response
    /// comes with `token`.
    ///
    /// # Panics
    /// When `out` is shorter than [`segment::READ_REQUEST_LEN`].
    pub fn put_rtr(&mut self, rtr: Rtr, token: u64, out: &mut [u8]) -> Option<usize> {
        let (stag, to) = (Stag::default(), TaggedOffset::default());
        Some(match rtr {
            Rtr::Write => segment::put_write(out, stag, to, true),
            Rtr::Read => {
                let request = ReadRequest {
                    sink_stag: stag,
                    sink_to: to,
                    size: 0,
                    source_stag: stag,
                    source_to: to,
                };
                let msn = self.begin_read(token, &request)?;
                segment::put_read_request(out, msn, &request)
            }
            Rtr::Send => {
                let msn = self.begin_send();
                segment::put_send(out, SendKind::default(), 0, msn, MessageOffset(0), true)
            }
        })
    }

    /// Ends the stream for an error that [`Stream::classify`] gave, or that the engine found in
    /// what it classified (`offending` is of that ULPDU) or by itself. Gives the Terminate to send;
    /// none when one was sent or received before (RFC 5040 section 5.4). After it no message may
    /// be sent.
    ///
    /// An RDMA Read Request that fails later than it came is shown by its rebuilt segment: see
    /// [`TerminateMessage::new`].
    pub fn terminate(
        &mut self,
        error: TerminateError,
        offending: Option<&Offending>,
    ) -> Option<TerminateMessage> {
        self.receiving = false;
        let first = std::mem::replace(&mut self.transmitting, false);
        first.then(|| TerminateMessage::new(error, offending))
    }

    /// Whether messages may be sent: no Terminate was sent or received.
    pub fn may_transmit(&self) -> bool {
        self.transmitting
    }
}
