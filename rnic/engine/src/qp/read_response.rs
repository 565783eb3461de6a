//! RDMA Read Responses (RFC 5040 sections 5.2.2 and 5.5, rule 20) and Atomic Responses (RFC 7306
//! section 5.4): the answers to the peer's requests of both kinds, in the order of their delivery.

use rnic_proto::mpa::fpdu::Writer;
use rnic_proto::rdmap::{AtomicRequest, Offending, ReadRequest, Stream, segment};
use rnic_proto::{Msn, TaggedOffset};

use super::send::{Failed, Turn};
use super::terminate::{count_refusal, source_error};
use super::{Qp, QpContext};

/// A request that is to be answered.
#[derive(Clone, Copy, Debug)]
pub(super) enum Response {
    Read(ReadResponse),
    Atomic { msn: Msn, request: AtomicRequest },
}

impl Response {
    /// The peer may send another request of this kind.
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

    /// What is left to answer (RFC 5040 section 4.8). The source was checked not to wrap; the
    /// sink is the peer's business, and wraps as the peer's numbers do.
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

impl Qp {
    /// A segment of an RDMA Read Response. The source is checked for each: it may be revoked while
    /// the response is under way.
    pub(super) fn put_read_response(
        &mut self,
        ctx: &mut QpContext<'_>,
        response: ReadResponse,
        ulpdu: &mut Writer<'_>,
    ) -> Result<(), Failed> {
        let len = (ulpdu.ulpdu_len() - segment::READ_RESPONSE_LEN) as u32;
        let rest = response.rest();
        let last = len >= rest.size;
        let header = segment::read_response(rest.sink_stag, rest.sink_to, last);
        ulpdu.begin(header.to_words());
        if len > 0 {
            let (stag, to) = (rest.source_stag, rest.source_to);
            match ctx.stags.remote_read(stag, to, len, self.id.user()) {
                Ok(source) => {
                    let from = segment::READ_RESPONSE_LEN;
                    Self::copy_out(&source, ulpdu, from, len as usize)?;
                }
                Err(error) => {
                    count_refusal(ctx, error);
                    let mut bytes = [0; segment::READ_REQUEST_LEN];
                    segment::put_read_request(&mut bytes, response.msn, &rest);
                    let offending = Offending::of(&&bytes[..]);
                    self.fail(source_error(error), Some(&offending));
                    return Err(Failed);
                }
            }
            ctx.counters.bytes_gathered += u64::from(len);
        }
        if !last {
            if let Some(Response::Read(front)) = self.send.responses.front_mut() {
                front.sent = front.sent.saturating_add(len);
            }
            self.send.in_message = Some(Turn::Responses);
            return Ok(());
        }
        ctx.counters.read_responses_sent += 1;
        self.response_done(ctx);
        Ok(())
    }

    /// The oldest request is answered.
    pub(super) fn response_done(&mut self, ctx: &mut QpContext<'_>) {
        let answered = self.send.responses.pop_front();
        ctx.queue_pool.responses.settle(&mut self.send.responses);
        if let (Some(stream), Some(answered)) = (&mut self.stream, answered) {
            answered.done(stream);
        }
        self.message_done(Turn::Responses);
    }
}
