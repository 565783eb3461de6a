//! The receive side of a stream: every check of RFC 5040 section 7.2, RFC 5041 section 7.1 and RFC
//! 7306 section 8.2 that needs no memory. DDP's come first, then RDMAP's.

use super::{Inbound, Stream};
use crate::ddp::DdpError;
use crate::ddp::header::{self, Header, Tagged, Untagged};
use crate::ddp::untagged::Progress;
use crate::rdmap::atomic::{self, AtomicRequest, AtomicResponse};
use crate::rdmap::control::{self, Opcode};
use crate::rdmap::errors::{RdmapError, TerminateError};
use crate::rdmap::read_request::{self, ReadRequest};
use crate::rdmap::segment::IMMEDIATE_DATA_LEN;
use crate::rdmap::{SendKind, SendWord, Terminate};
use crate::{Bytes, Msn, Qn};

impl Stream {
    /// Checks and classifies the next ULPDU in the LLP's order. On an error the stream is over:
    /// hand it with the same bytes to [`Stream::terminate`] and send what that gives.
    pub fn classify<'a>(&mut self, ulpdu: &impl Bytes<'a>) -> Result<Inbound, TerminateError> {
        if !self.receiving {
            return Ok(Inbound::Dropped);
        }
        let inbound = self.classify_open(ulpdu);
        match inbound {
            Err(_) => self.receiving = false,
            Ok(Inbound::Terminate(_)) => (self.receiving, self.transmitting) = (false, false),
            Ok(_) => {}
        }
        inbound
    }

    /// [`Stream::classify`] of a tagged segment with this header and so many bytes of payload.
    ///
    /// This and [`Stream::classify_send`] are for the many segments that have payload: inlined, what
    /// comes out is taken apart in registers. Through memory it would be read back in other pieces
    /// than it was written in, for which processors wait until everything stored before, such as
    /// the payload that was placed last, is in their caches.
    #[inline(always)]
    pub fn classify_tagged(
        &mut self,
        header: &Tagged,
        bytes: usize,
    ) -> Result<Inbound, TerminateError> {
        if !self.receiving {
            return Ok(Inbound::Dropped);
        }
        let inbound = self.tagged(header, bytes);
        self.receiving = inbound.is_ok();
        inbound
    }

    /// [`Stream::classify`] of a segment of a Write with this header and so many bytes of payload:
    /// whether it is the last of its message. None, and nothing has changed, when that is for
    /// [`Stream::classify`], whatever it is.
    #[inline(always)]
    pub fn classify_write(&mut self, header: &Tagged, bytes: usize) -> Option<bool> {
        if !self.receiving || !control::is_write(header.ulp) {
            return None;
        }
        // What is wrong with a Write changes nothing.
        match self.tagged(header, bytes) {
            Ok(Inbound::Write { last, .. }) => Some(last),
            _ => None,
        }
    }

    /// [`Stream::classify`] of a segment of a Send with this header and so many bytes of payload;
    /// none when that is for [`Stream::classify`], whatever it is.
    #[inline(always)]
    pub fn classify_send(&mut self, header: &Untagged, bytes: usize) -> Option<Inbound> {
        if !self.receiving {
            return None;
        }
        match self.untagged_opcode(header, bytes) {
            Ok((Opcode::Send(kind), len)) => self.send(kind, header, len).ok(),
            _ => None,
        }
    }

    /// Whether Sends with such a word may come.
    #[inline(always)]
    pub(super) fn takes(&self, kind: SendKind) -> bool {
        kind.word != SendWord::Immediate || self.sends_with_immediate
    }

    /// Takes back the segment that was classified last: it began the Send, or was the Immediate Data, of this number.
    /// Nothing of it was placed, and it is classified once more when its receive is there.
    pub fn take_back_send(&mut self, msn: Msn) {
        self.sends.go_back(msn);
        self.send_under_way = None;
    }

    fn classify_open<'a>(&mut self, ulpdu: &impl Bytes<'a>) -> Result<Inbound, TerminateError> {
        // DDP has no number for a segment that is shorter than its header.
        let header = Header::parse(ulpdu).ok_or(RdmapError::OperationUnspecified)?;
        let payload = ulpdu
            .tail(header.payload_offset())
            .ok_or(RdmapError::OperationUnspecified)?;
        match header {
            Header::Tagged(header) => self.tagged(&header, payload.len()),
            Header::Untagged(header) => self.untagged(&header, &payload),
        }
    }

    #[inline(always)]
    fn tagged(&mut self, header: &Tagged, bytes: usize) -> Result<Inbound, TerminateError> {
        if header.version != header::VERSION {
            return Err(DdpError::TaggedVersion.into());
        }
        let len = u32::try_from(bytes).map_err(|_| DdpError::BaseOrBounds)?;
        let &Tagged { stag, to, last, .. } = header;
        if len > 0 && to.checked_add(u64::from(len)).is_none() {
            return Err(DdpError::ToWrap.into());
        }
        match checked_opcode(header.ulp)? {
            Opcode::Write => {
                // The ULP Message Length is less than 2^32 (RFC 5041 section 5.2).
                let bytes = self
                    .write_bytes
                    .checked_add(len)
                    .ok_or(DdpError::BaseOrBounds)?;
                self.write_bytes = if last { 0 } else { bytes };
                Ok(Inbound::Write {
                    stag,
                    to,
                    len,
                    last,
                })
            }
            Opcode::ReadResponse => {
                let token = self.outbound_reads.respond(stag, to, len, last)?;
                Ok(Inbound::ReadResponse {
                    token,
                    stag,
                    to,
                    len,
                    last,
                })
            }
            _ => Err(RdmapError::UnexpectedOpcode.into()),
        }
    }

    fn untagged<'a>(
        &mut self,
        header: &Untagged,
        payload: &impl Bytes<'a>,
    ) -> Result<Inbound, TerminateError> {
        let (opcode, len) = self.untagged_opcode(header, payload.len())?;
        match opcode {
            Opcode::Send(kind) => self.send(kind, header, len),
            Opcode::ReadRequest => self.read_request(header, payload),
            Opcode::Immediate { solicited } => self.immediate(solicited, header, payload),
            Opcode::AtomicRequest => self.atomic_request(header, payload),
            Opcode::AtomicResponse => self.atomic_response(header, payload),
            _ => self.peer_terminate(header, payload),
        }
    }

    /// What all untagged segments are checked for; the opcode, and the bytes of payload.
    #[inline(always)]
    fn untagged_opcode(
        &self,
        header: &Untagged,
        bytes: usize,
    ) -> Result<(Opcode, u32), TerminateError> {
        if header.version != header::VERSION {
            return Err(DdpError::UntaggedVersion.into());
        }
        let queue = match header.qn {
            Qn::SEND => &self.sends,
            Qn::READ_REQUEST => &self.read_requests,
            Qn::TERMINATE => &self.terminates,
            Qn::ATOMIC_RESPONSE => &self.atomic_responses,
            _ => return Err(DdpError::InvalidQn.into()),
        };
        let len = u32::try_from(bytes).map_err(|_| DdpError::MessageTooLong)?;
        queue.check_placement(header.msn, header.mo, len)?;
        let opcode = checked_opcode(header.ulp)?;
        if opcode.queue() != Some(header.qn) {
            return Err(RdmapError::UnexpectedOpcode.into());
        }
        Ok((opcode, len))
    }

    /// Changes nothing when it is an error.
    #[inline(always)]
    fn send(
        &mut self,
        kind: SendKind,
        header: &Untagged,
        len: u32,
    ) -> Result<Inbound, TerminateError> {
        let &Untagged { msn, mo, last, .. } = header;
        let is_other = self.send_under_way.is_some_and(|first| first != kind);
        if is_other || !self.takes(kind) {
            return Err(RdmapError::UnexpectedOpcode.into());
        }
        let progress = self.sends.advance(len, last);
        self.send_under_way = (progress == Progress::Partial).then_some(kind);
        let opening = std::mem::take(&mut self.expect_rtr);
        if opening && progress == (Progress::Complete { length: 0 }) {
            return Ok(Inbound::Rtr);
        }
        Ok(Inbound::Send {
            kind,
            word: header.ulp_word,
            msn,
            mo,
            len,
            last,
        })
    }

    fn read_request<'a>(
        &mut self,
        header: &Untagged,
        payload: &impl Bytes<'a>,
    ) -> Result<Inbound, TerminateError> {
        if self.inbound_reads >= self.ird {
            return Err(DdpError::NoBuffer.into());
        }
        let bytes = whole::<{ read_request::LEN }>(header, payload)?;
        let request = ReadRequest::from_bytes(&bytes);
        self.read_requests.advance(read_request::LEN as u32, true);
        self.inbound_reads += 1;
        let msn = header.msn;
        Ok(Inbound::ReadRequest { msn, request })
    }

    /// One message of the row of the Sends, of one segment (RFC 7306 section 6.3). In the middle of
    /// a Send it is another opcode than the Send's.
    fn immediate<'a>(
        &mut self,
        solicited: bool,
        header: &Untagged,
        payload: &impl Bytes<'a>,
    ) -> Result<Inbound, TerminateError> {
        if self.send_under_way.is_some() {
            return Err(RdmapError::UnexpectedOpcode.into());
        }
        // Nothing is too long for a receive that no byte goes into: RDMAP checks the length.
        let sized = header.last && payload.len() == IMMEDIATE_DATA_LEN;
        let bytes = payload.array(0).filter(|_| sized);
        let bytes = bytes.ok_or(RdmapError::OperationUnspecified)?;
        self.sends.advance(IMMEDIATE_DATA_LEN as u32, true);
        self.expect_rtr = false;
        Ok(Inbound::Immediate {
            solicited,
            msn: header.msn,
            data: u64::from_be_bytes(bytes),
        })
    }

    /// Shares queue 1 with the Read Requests; its buffers are beside theirs (RFC 7306 section 5.2.2,
    /// rule 4).
    fn atomic_request<'a>(
        &mut self,
        header: &Untagged,
        payload: &impl Bytes<'a>,
    ) -> Result<Inbound, TerminateError> {
        if self.inbound_atomics >= self.ird {
            return Err(DdpError::NoBuffer.into());
        }
        let bytes = whole::<{ atomic::REQUEST_LEN }>(header, payload)?;
        // An operation that does not exist is surfaced as an error (RFC 7306 section 5.2.1, 4).
        let request = AtomicRequest::from_bytes(&bytes).ok_or(RdmapError::UnexpectedOpcode)?;
        self.read_requests.advance(atomic::REQUEST_LEN as u32, true);
        self.inbound_atomics += 1;
        let msn = header.msn;
        Ok(Inbound::AtomicRequest { msn, request })
    }

    /// Queue 3 has a buffer for each Atomic Operation that is outstanding (RFC 7306 section 5.2.2).
    fn atomic_response<'a>(
        &mut self,
        header: &Untagged,
        payload: &impl Bytes<'a>,
    ) -> Result<Inbound, TerminateError> {
        if self.outbound_reads.is_empty() {
            return Err(DdpError::NoBuffer.into());
        }
        let bytes = whole(header, payload)?;
        let response = AtomicResponse::from_bytes(&bytes);
        let token = self.outbound_reads.respond_atomic(&response)?;
        self.atomic_responses
            .advance(atomic::RESPONSE_LEN as u32, true);
        let original = response.original;
        Ok(Inbound::AtomicResponse { token, original })
    }

    fn peer_terminate<'a>(
        &mut self,
        header: &Untagged,
        payload: &impl Bytes<'a>,
    ) -> Result<Inbound, TerminateError> {
        let terminate = Terminate::parse(payload);
        let terminate = terminate.filter(|_| header.last);
        terminate
            .map(Inbound::Terminate)
            .ok_or(RdmapError::OperationUnspecified.into())
    }
}

/// The bytes of a message of fixed length: shorter than any MULPDU, so one segment, always.
fn whole<'a, const LEN: usize>(
    header: &Untagged,
    payload: &impl Bytes<'a>,
) -> Result<[u8; LEN], TerminateError> {
    if payload.len() > LEN {
        return Err(DdpError::MessageTooLong.into());
    }
    let bytes = payload.array(0).filter(|_| header.last);
    bytes.ok_or(RdmapError::OperationUnspecified.into())
}

/// The opcode of an RDMAP Control Field of our version.
#[inline]
fn checked_opcode(ulp: u8) -> Result<Opcode, RdmapError> {
    if control::version(ulp) != control::VERSION {
        return Err(RdmapError::InvalidVersion);
    }
    control::opcode(ulp).ok_or(RdmapError::UnexpectedOpcode)
}
