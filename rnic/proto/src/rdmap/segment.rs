//! The headers that open each outbound DDP Segment, and writers of them (RFC 5040 section 4, Appendix A;
//! RFC 7306 Appendix A).
//! Each `put_` writes to the front of `out`, gives the header's length in bytes, and panics when `out` is
//! shorter: the buffer is our own. MSNs and Read Requests come from the [`Stream`](super::Stream).

#[cfg(test)]
mod tests;

use super::atomic::{self, AtomicRequest, AtomicResponse};
use super::control::{Opcode, SendKind, SendWord};
use super::read_request::{self, ReadRequest};
use crate::ddp::header::{self, Tagged, Untagged};
use crate::{MessageOffset, Msn, Qn, Stag, TaggedOffset};

/// Bytes ahead of the payload in each segment of an RDMA Write.
pub const WRITE_LEN: usize = header::TAGGED_LEN;
/// Bytes ahead of the payload in each segment of an RDMA Read Response.
pub const READ_RESPONSE_LEN: usize = header::TAGGED_LEN;
/// Bytes ahead of the payload in each segment of a Send.
pub const SEND_LEN: usize = header::UNTAGGED_LEN;
/// Bytes of an RDMA Read Request, all of it.
pub const READ_REQUEST_LEN: usize = header::UNTAGGED_LEN + read_request::LEN;
/// Bytes of an Immediate Data message, all of it.
pub const IMMEDIATE_LEN: usize = header::UNTAGGED_LEN + IMMEDIATE_DATA_LEN;
/// Bytes of an Atomic Request, all of it.
pub const ATOMIC_REQUEST_LEN: usize = header::UNTAGGED_LEN + atomic::REQUEST_LEN;
/// Bytes of an Atomic Response, all of it.
pub const ATOMIC_RESPONSE_LEN: usize = header::UNTAGGED_LEN + atomic::RESPONSE_LEN;
/// Bytes of Immediate Data (RFC 7306 section 6.2).
pub const IMMEDIATE_DATA_LEN: usize = 8;

/// The header of a segment of an RDMA Write; `to` is that of the segment's first byte.
#[inline]
pub fn write(stag: Stag, to: TaggedOffset, last: bool) -> Tagged {
    tagged(Opcode::Write, stag, to, last)
}

/// The header of a segment of an RDMA Read Response; `stag` is the request's sink STag, `to` that of
/// the segment's first byte.
#[inline]
pub fn read_response(stag: Stag, to: TaggedOffset, last: bool) -> Tagged {
    tagged(Opcode::ReadResponse, stag, to, last)
}

/// The header of a segment of a Send. `word`, the STag to invalidate or the Immediate Data, is not used unless `kind`
/// says so.
#[inline]
pub fn send(kind: SendKind, word: u32, msn: Msn, mo: MessageOffset, last: bool) -> Untagged {
    let ulp_word = match kind.word {
        SendWord::Unused => 0,
        SendWord::Invalidate | SendWord::Immediate => word,
    };
    untagged(Opcode::Send(kind), ulp_word, Qn::SEND, msn, mo, last)
}

/// The header that [`write()`] gives.
pub fn put_write(out: &mut [u8], stag: Stag, to: TaggedOffset, last: bool) -> usize {
    put(out, &write(stag, to, last).to_bytes())
}

/// The header that [`read_response`] gives.
pub fn put_read_response(out: &mut [u8], stag: Stag, to: TaggedOffset, last: bool) -> usize {
    put(out, &read_response(stag, to, last).to_bytes())
}

/// The header that [`send`] gives.
pub fn put_send(
    out: &mut [u8],
    kind: SendKind,
    word: u32,
    msn: Msn,
    mo: MessageOffset,
    last: bool,
) -> usize {
    put(out, &send(kind, word, msn, mo, last).to_bytes())
}

/// An RDMA Read Request, header and all.
pub fn put_read_request(out: &mut [u8], msn: Msn, request: &ReadRequest) -> usize {
    let (opcode, qn) = (Opcode::ReadRequest, Qn::READ_REQUEST);
    put_whole(out, opcode, qn, msn, &request.to_bytes())
}

/// An Immediate Data message, data and all (RFC 7306 section 6.2): it is numbered as a Send.
pub fn put_immediate(out: &mut [u8], solicited: bool, msn: Msn, data: u64) -> usize {
    let opcode = Opcode::Immediate { solicited };
    put_whole(out, opcode, Qn::SEND, msn, &data.to_be_bytes())
}

/// An Atomic Request, header and all (RFC 7306 section 5.2.1): it is numbered as a Read Request.
pub fn put_atomic_request(out: &mut [u8], msn: Msn, request: &AtomicRequest) -> usize {
    let (opcode, qn) = (Opcode::AtomicRequest, Qn::READ_REQUEST);
    put_whole(out, opcode, qn, msn, &request.to_bytes())
}

/// An Atomic Response, header and all (RFC 7306 section 5.2.2).
pub fn put_atomic_response(out: &mut [u8], msn: Msn, response: &AtomicResponse) -> usize {
    let (opcode, qn) = (Opcode::AtomicResponse, Qn::ATOMIC_RESPONSE);
    put_whole(out, opcode, qn, msn, &response.to_bytes())
}

/// An untagged message of one segment.
fn put_whole(out: &mut [u8], opcode: Opcode, qn: Qn, msn: Msn, payload: &[u8]) -> usize {
    let header = untagged(opcode, 0, qn, msn, MessageOffset(0), true);
    let from = put(out, &header.to_bytes());
    from + put(&mut out[from..], payload)
}

/// The headers ahead of a Terminate.
pub(super) fn put_terminate(out: &mut [u8]) -> usize {
    put_whole(out, Opcode::Terminate, Qn::TERMINATE, Msn::FIRST, &[])
}

fn put(out: &mut [u8], bytes: &[u8]) -> usize {
    out[..bytes.len()].copy_from_slice(bytes);
    bytes.len()
}

#[inline]
fn tagged(opcode: Opcode, stag: Stag, to: TaggedOffset, last: bool) -> Tagged {
    Tagged {
        last,
        version: header::VERSION,
        ulp: opcode.control_byte(),
        stag,
        to,
    }
}

#[inline]
fn untagged(
    opcode: Opcode,
    ulp_word: u32,
    qn: Qn,
    msn: Msn,
    mo: MessageOffset,
    last: bool,
) -> Untagged {
    Untagged {
        last,
        version: header::VERSION,
        ulp: opcode.control_byte(),
        ulp_word,
        qn,
        msn,
        mo,
    }
}
