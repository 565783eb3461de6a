//! The answers to the peer's requests, in the order of the requests' Delivery: RDMA Read Responses (RFC 5040
//! sections 5.2.2 and 5.5, rule 20) and Atomic Responses (RFC 7306 section 5.4).

use rnic_proto::rdmap::{Offending, segment};

use super::response::Response;
use super::segmenter::{Head, Message, Payload, Progress, Unreadable};
use super::source::{Failed, Source};
use super::terminate::{count_refusal, source_error};
use super::{Qp, QpContext};
use crate::stag::{StagError, StagTable};

impl Qp {
    /// The oldest response, if it is to a Read. The source is checked again whenever it goes on: it may be
    /// revoked while the response is under way.
    pub(super) fn response_message<'a>(
        &self,
        stags: &'a StagTable,
    ) -> Result<Option<Message<'a>>, StagError> {
        let Some(Response::Read(response)) = self.send.responses.front() else {
            return Ok(None);
        };
        let (request, rest) = (&response.request, response.rest());
        let payload = match rest.size {
            0 => Payload::Empty,
            size => {
                let (stag, to) = (rest.source_stag, rest.source_to);
                let source = stags.remote_read(stag, to, size, self.id.user())?;
                Payload::Range(source.mapped().map_err(|_| StagError::Invalid { stag })?)
            }
        };
        let head = segment::read_response(request.sink_stag, request.sink_to, false);
        Ok(Some(Message {
            head: Head::Tagged(head),
            payload,
            sent: response.sent,
            total: request.size,
        }))
    }

    pub(super) fn response_written(
        &mut self,
        ctx: &mut QpContext<'_>,
        progress: &Progress,
        ran: Result<(), Unreadable>,
    ) -> Result<(), Failed> {
        if let Some(Response::Read(front)) = self.send.responses.front_mut() {
            front.sent += progress.bytes;
        }
        ran.map_err(|_| Failed)?;
        if progress.is_whole {
            ctx.counters.read_responses_sent += 1;
            self.response_done(ctx);
        } else {
            self.message_goes_on(Source::Responses, progress);
        }
        Ok(())
    }

    /// The source of the oldest response may not be read any more: the stream ends.
    #[cold]
    pub(super) fn refuse_source(&mut self, ctx: &mut QpContext<'_>, error: StagError) -> Failed {
        count_refusal(ctx, error);
        let mut bytes = [0; segment::READ_REQUEST_LEN];
        if let Some(Response::Read(response)) = self.send.responses.front() {
            segment::put_read_request(&mut bytes, response.msn, &response.rest());
        }
        let offending = Offending::of(&&bytes[..]);
        self.fail(source_error(error), Some(&offending));
        Failed
    }

    /// The oldest request is answered.
    pub(super) fn response_done(&mut self, ctx: &mut QpContext<'_>) {
        let answered = self.send.responses.pop_front();
        ctx.queue_pool
            .responses
            .release_if_empty(&mut self.send.responses);
        if let (Some(stream), Some(answered)) = (&mut self.stream, answered) {
            answered.done(stream);
        }
        self.message_done(Source::Responses);
    }
}
