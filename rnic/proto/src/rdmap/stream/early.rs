//! What of a segment that came out of order may be placed at once: Placement is not Delivery
//! (RFC 5041 section 5.3). Whatever is doubtful waits for its turn, and is judged there.

use super::Stream;
use crate::ddp::header::{self, Header, Tagged, Untagged};
use crate::rdmap::control::{self, Opcode};
use crate::{Bytes, MessageOffset, Msn, Qn, Stag, TaggedOffset};

/// Messages of the row of the Sends that one which is placed may be ahead of the next in order.
pub const SENDS_AHEAD_MAX: u32 = 1024;

/// A segment whose payload may be placed before those before it are here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Early {
    /// A segment of an RDMA Write.
    Write {
        /// The memory written.
        stag: Stag,
        /// The payload's place in it.
        to: TaggedOffset,
        /// Bytes of payload, at least one.
        len: u32,
    },
    /// A segment of the response to a Read that is outstanding, within its sink.
    ReadResponse {
        /// The Read's sink.
        stag: Stag,
        /// The payload's place in it.
        to: TaggedOffset,
        /// Bytes of payload, at least one.
        len: u32,
    },
    /// A segment of a Send.
    Send {
        /// The message's number.
        msn: Msn,
        /// Messages that are delivered before it, less than [`SENDS_AHEAD_MAX`]: each consumes one
        /// receive, the oldest first.
        ahead: u32,
        /// The payload's place in the message.
        mo: MessageOffset,
        /// Bytes of payload, at least one.
        len: u32,
    },
}

impl Early {
    /// Where the payload begins in the ULPDU, in bytes.
    pub const fn payload_offset(&self) -> usize {
        match self {
            Self::Write { .. } | Self::ReadResponse { .. } => header::TAGGED_LEN,
            Self::Send { .. } => header::UNTAGGED_LEN,
        }
    }
}

impl Stream {
    /// What may be placed of a ULPDU that is not the next in the LLP's order. The stream does not
    /// change; when its turn has come the ULPDU goes to [`Stream::classify`] as ever.
    pub fn early<'a>(&self, ulpdu: &impl Bytes<'a>) -> Option<Early> {
        if !self.receiving {
            return None;
        }
        let header = Header::parse(ulpdu)?;
        let bytes = ulpdu.len().checked_sub(header.payload_offset())?;
        let len = u32::try_from(bytes).ok().filter(|&len| len > 0)?;
        let ulp = header.ulp();
        let opcode = control::opcode(ulp).filter(|_| control::version(ulp) == control::VERSION)?;
        match header {
            Header::Tagged(header) => self.early_tagged(&header, opcode, len),
            Header::Untagged(header) => self.early_send(&header, opcode, len),
        }
    }

    fn early_tagged(&self, header: &Tagged, opcode: Opcode, len: u32) -> Option<Early> {
        let &Tagged {
            version, stag, to, ..
        } = header;
        let sound = version == header::VERSION && to.checked_add(u64::from(len)).is_some();
        match opcode {
            Opcode::Write if sound => Some(Early::Write { stag, to, len }),
            Opcode::ReadResponse if sound && self.outbound_reads.cover(stag, to, len) => {
                Some(Early::ReadResponse { stag, to, len })
            }
            _ => None,
        }
    }

    fn early_send(&self, header: &Untagged, opcode: Opcode, len: u32) -> Option<Early> {
        let &Untagged {
            version,
            qn,
            msn,
            mo,
            ..
        } = header;
        let next = &self.sends;
        let ahead = msn.0.wrapping_sub(next.msn().0);
        // Bytes that came in order are not written again by what is behind them in the stream.
        let in_room = ahead < SENDS_AHEAD_MAX && (ahead > 0 || mo.0 >= next.mo().0);
        let sound = version == header::VERSION
            && qn == Qn::SEND
            && matches!(opcode, Opcode::Send(kind) if self.takes(kind))
            && in_room
            && mo.0.checked_add(len).is_some();
        (sound && !self.expect_rtr).then_some(Early::Send {
            msn,
            ahead,
            mo,
            len,
        })
    }
}
