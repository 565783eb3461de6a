//! The Terminate message (RFC 5040 section 4.8).
//!
//! ```text
//! | Layer 4 bits | EType 4 bits | Error Code 8 bits | M | D | R | Reserved 13 bits |
//! | DDP Segment Length 2 | Terminated DDP Header 14 or 18 | Terminated RDMA Header 28 |
//! ```
//!
//! Linux siw on little-endian machines sends the control word with the bits of each field group
//! reversed: EType ahead of Layer, and M, D, R as the three lowest bits. Both forms are read, only
//! the RFC's is sent.

#[cfg(test)]
mod tests;

use super::control::{self, Opcode};
use super::errors::TerminateError;
use super::read_request::{self, ReadRequest};
use super::segment;
use crate::Bytes;
use crate::ddp::header::{Header, UNTAGGED_LEN};

/// M, D and R in the third byte of the control word.
const SEGMENT_LENGTH: u8 = 0x80;
const DDP_HEADER: u8 = 0x40;
const RDMA_HEADER: u8 = 0x20;
/// Where siw has them.
const SWAPPED_FLAGS: u8 = 0x07;

const CONTROL_LEN: usize = 4;
const SEGMENT_LENGTH_LEN: usize = 2;

/// The longest Terminate as a ULPDU, in bytes.
pub const ULPDU_LEN_MAX: usize =
    UNTAGGED_LEN + CONTROL_LEN + SEGMENT_LENGTH_LEN + UNTAGGED_LEN + read_request::LEN;

/// A Terminate that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terminate {
    /// What the peer found.
    pub error: TerminateError,
    /// DDP Segment Length, in bytes; siw counts the payload only.
    pub segment_length: Option<u16>,
    /// The header of our segment that the peer found at fault.
    pub ddp_header: Option<Header>,
    /// Our RDMA Read Request that the peer found at fault, or what is left of it.
    pub read_request: Option<ReadRequest>,
}

impl Terminate {
    /// The Terminate in a message's payload; none when that is shorter than the control word.
    /// Headers that it announces but does not carry are left out.
    pub fn parse<'a>(payload: &impl Bytes<'a>) -> Option<Self> {
        let [nibbles, code, flags, _] = payload.array::<CONTROL_LEN>(0)?;
        let (nibbles, flags) = rfc_form(nibbles, code, flags);
        let error = TerminateError::from_control(u16::from_be_bytes([nibbles, code]));
        let mut terminate = Self {
            error,
            segment_length: None,
            ddp_header: None,
            read_request: None,
        };
        if flags & (SEGMENT_LENGTH | DDP_HEADER) == 0 {
            return Some(terminate);
        }
        let Some(length) = payload.array(CONTROL_LEN) else {
            return Some(terminate);
        };
        // Present when D is set, valid when M is set.
        terminate.segment_length =
            (flags & SEGMENT_LENGTH != 0).then_some(u16::from_be_bytes(length));
        if flags & DDP_HEADER == 0 {
            return Some(terminate);
        }
        let headers = payload.tail(CONTROL_LEN + SEGMENT_LENGTH_LEN);
        terminate.ddp_header = headers.and_then(|headers| Header::parse(&headers));
        if flags & RDMA_HEADER != 0
            && let (Some(headers), Some(ddp_header)) = (headers, terminate.ddp_header)
        {
            let bytes = headers.array(ddp_header.payload_offset());
            terminate.read_request = bytes.as_ref().map(ReadRequest::from_bytes);
        }
        Some(terminate)
    }
}

/// The first and third byte in the RFC's form, whichever they came in.
fn rfc_form(nibbles: u8, code: u8, flags: u8) -> (u8, u8) {
    let known = |nibbles| {
        let control = u16::from_be_bytes([nibbles, code]);
        !matches!(
            TerminateError::from_control(control),
            TerminateError::Unknown { .. }
        )
    };
    let turned = nibbles.rotate_left(4);
    let rfc_flags = flags & !SWAPPED_FLAGS != 0;
    let swapped_flags = flags & SWAPPED_FLAGS != 0;
    // The RFC's reserved bits are zero, so the flags tell; without flags the numbers do.
    if !rfc_flags && (swapped_flags || !known(nibbles) && known(turned)) {
        (turned, flags.reverse_bits())
    } else {
        (nibbles, flags)
    }
}

/// What a Terminate may show of the segment (the ULPDU) that an error was found in.
#[derive(Clone, Copy, Debug)]
pub struct Offending {
    /// Bytes of the segment.
    len: usize,
    /// Its first ones, as many as there are.
    front: [u8; OFFENDING_LEN],
}

/// Bytes of the longest headers that are shown.
const OFFENDING_LEN: usize = UNTAGGED_LEN + read_request::LEN;

impl Offending {
    /// What may be shown of this segment.
    pub fn of<'a>(segment: &impl Bytes<'a>) -> Self {
        let (len, mut front) = (segment.len(), [0; OFFENDING_LEN]);
        let known = len.min(front.len());
        // There are as many.
        let _ = segment.copy_to(0, &mut front[..known]);
        Self { len, front }
    }

    fn front(&self) -> &[u8] {
        &self.front[..self.len.min(OFFENDING_LEN)]
    }
}

/// A Terminate to send: one ULPDU, whole.
#[derive(Clone, Copy, Debug)]
pub struct TerminateMessage {
    bytes: [u8; ULPDU_LEN_MAX],
    len: usize,
}

impl TerminateMessage {
    /// The Terminate for an error. `offending` is of the segment that it was found in; which of its
    /// headers are shown is up to the error (Figure 10). An RDMA Read Request that
    /// was partly answered is shown as what is left of it (section 4.8): rebuild its segment with
    /// [`segment::put_read_request`] and give that.
    pub fn new(error: TerminateError, offending: Option<&Offending>) -> Self {
        let mut message = Self {
            bytes: [0; ULPDU_LEN_MAX],
            len: 0,
        };
        message.len = segment::put_terminate(&mut message.bytes);
        let flags_at = message.len + 2;
        message.put(&error.control().to_be_bytes());
        message.put(&[0, 0]);
        if !error.shows_ddp_header() {
            return message;
        }
        let Some(segment) = offending else {
            return message;
        };
        let front = segment.front();
        let cut = |header: Header| Some((header, front.split_at_checked(header.payload_offset())?));
        let Some((header, (shown, behind))) = Header::parse(&front).and_then(cut) else {
            return message;
        };
        let mut flags = SEGMENT_LENGTH | DDP_HEADER;
        // A ULPDU is at most 65535 bytes long: its length came in 16 bits.
        let length = u16::try_from(segment.len).unwrap_or(u16::MAX);
        message.put(&length.to_be_bytes());
        message.put(shown);
        let of_read = control::opcode(header.ulp()) == Some(Opcode::ReadRequest);
        if error.shows_read_request()
            && of_read
            && let Some(bytes) = behind.array::<{ read_request::LEN }>(0)
        {
            flags |= RDMA_HEADER;
            message.put(&bytes);
        }
        message.bytes[flags_at] = flags;
        message
    }

    /// The ULPDU.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn put(&mut self, bytes: &[u8]) {
        let end = self.len + bytes.len();
        self.bytes[self.len..end].copy_from_slice(bytes);
        self.len = end;
    }
}
