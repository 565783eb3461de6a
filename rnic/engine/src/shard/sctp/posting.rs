//! Segments are posted to a session's association.
//!
//! A queue pair writes FPDUs, whatever is below. One without Markers has its ULPDU where a DDP Segment Chunk has it,
//! behind two bytes: the ULPDU_Length, or the DDP-SSN (RFC 5044 section 4.1, RFC 5043 section 5.2). So the chunk's user
//! data is the FPDU with the one in place of the other, and without what is behind the ULPDU.

use rnic_proto::mpa::fpdu;
use rnic_proto::sctp::{PPID_CONTROL, PPID_SEGMENT};
use rnic_xsk::{Frame, Umem};
use userspace_net::{ConnId, Instant};
use userspace_sctp::{Outgoing, PostError, Stack};
use userspace_tcp::SendCapacity;

use super::{Association, CONTROL_CHUNKS, ChunkFrame, SEGMENT_CHUNKS, Sctp, StreamSession};

/// Bytes of the DDP-SSN.
const SSN_LEN: usize = 2;
/// Bytes of a SACK that reports one gap.
const SACK_LEN: usize = 20;

/// A session that segments are posted to.
pub struct SessionPosting<'a> {
    stack: &'a mut Stack<ChunkFrame>,
    session: &'a mut StreamSession,
    association: &'a mut Association,
    umem: &'a Umem,
    now: Instant,
    send_capacity: SendCapacity,
    chunks: usize,
}

/// Why a chunk was not posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotPosted {
    /// It has no room for a DDP-SSN.
    #[error("it has no room for a DDP-SSN")]
    Short,
    /// The session takes no segments.
    #[error("the session takes no segments")]
    NoSegments,
    /// The peer has not said which stream is the session's.
    #[error("the peer has not said which stream is the session's")]
    NoStream,
    /// SCTP does not take it.
    #[error(transparent)]
    Sctp(#[from] PostError),
}

impl Sctp {
    /// What takes the segments of a session; none when it is gone.
    pub fn posting<'a>(
        &'a mut self,
        id: ConnId,
        umem: &'a Umem,
        now: Instant,
    ) -> Option<SessionPosting<'a>> {
        let (session, association) = self.sessions.with_association(id)?;
        let info = self.stack.info(session.assoc)?;
        let message_max = self.stack.message_max(session.assoc);
        let sharing = association.sharing(session.posted);
        // Twice the congestion window may be posted: in a recovery what is acknowledged behind a gap is not given
        // back, and new chunks are to go on.
        let window = 2 * info.cwnd + message_max;
        let window = (window / sharing).max(message_max);
        let chunks = SEGMENT_CHUNKS / sharing;
        let takes = self.stack.takes_messages(session.assoc) && session.session.may_send_segment();
        let is_chunk_free = info.room > CONTROL_CHUNKS;
        if takes && !is_chunk_free && session.posted == 0 {
            association.wait(id);
        }
        let room = match takes && is_chunk_free && session.posted < chunks {
            true => window.saturating_sub(session.posted_bytes),
            false => 0,
        };
        let send_capacity = SendCapacity {
            queued: session.posted,
            mss: mss(message_max),
            room,
        };
        Some(SessionPosting {
            stack: &mut self.stack,
            session,
            association,
            umem,
            now,
            send_capacity,
            chunks,
        })
    }

    /// Posts the user data of a session's control message. The frame, if it is not taken.
    pub fn post_control(
        &mut self,
        id: ConnId,
        (frame, umem): (Frame, &Umem),
        now: Instant,
    ) -> Result<(), (Frame, NotPosted)> {
        match self.sessions.with_association(id) {
            None => Err((frame, NotPosted::Sctp(PostError::Gone))),
            Some((session, association)) => {
                let chunk = (PPID_CONTROL, frame);
                session.post((&mut self.stack, association), umem, chunk, now)
            }
        }
    }
}

/// The segment size of TCP that gives the MULPDU: what a packet that takes so many bytes of user data has beside
/// the DDP-SSN and a SACK (RFC 5043 section 9).
fn mss(message_max: usize) -> usize {
    let overhead = fpdu::fpdu_length(0) - fpdu::pad_length(0);
    message_max.saturating_sub(SSN_LEN + SACK_LEN) + overhead
}

impl SessionPosting<'_> {
    #[inline]
    pub fn send_capacity(&self) -> SendCapacity {
        self.send_capacity
    }

    // By itself, so that what TCP takes lies together.
    #[inline(never)]
    /// Posts the segment of an FPDU without Markers, which is all of the frame's data. The frame, if it is not taken.
    pub fn send(&mut self, mut frame: Frame) -> Result<(), (Frame, NotPosted)> {
        let data = self.umem.bytes_mut(&mut frame);
        let Some(place) = data.first_chunk_mut::<SSN_LEN>() else {
            return Err((frame, NotPosted::Short));
        };
        let Some(ssn) = self.session.session.number_segment() else {
            return Err((frame, NotPosted::NoSegments));
        };
        let ulpdu_len = usize::from(u16::from_be_bytes(*place));
        *place = ssn.0.to_be_bytes();
        frame.set_len(SSN_LEN + ulpdu_len);
        let bytes = frame.len();
        let below = (&mut *self.stack, &mut *self.association);
        let chunk = (PPID_SEGMENT, frame);
        self.session.post(below, self.umem, chunk, self.now)?;
        let has_room = self.session.session.may_send_segment()
            && self.session.posted < self.chunks
            && self.stack.room(self.session.assoc) > CONTROL_CHUNKS;
        let capacity = &mut self.send_capacity;
        capacity.queued += 1;
        capacity.room = match has_room {
            true => capacity.room.saturating_sub(bytes),
            false => 0,
        };
        Ok(())
    }
}

impl StreamSession {
    /// Posts the user data of a chunk. The frame, if it is not taken.
    fn post(
        &mut self,
        (stack, association): (&mut Stack<ChunkFrame>, &mut Association),
        umem: &Umem,
        (protocol, frame): (u32, Frame),
        now: Instant,
    ) -> Result<(), (Frame, NotPosted)> {
        let bytes = frame.len();
        let Some(stream) = self.stream else {
            return Err((frame, NotPosted::NoStream));
        };
        let message = Outgoing {
            stream,
            protocol,
            buffer: ChunkFrame::new(frame, self.id, umem),
        };
        match stack.post(now, self.assoc, message) {
            Ok(()) => {
                if self.posted == 0 {
                    association.set_posting(true);
                }
                self.posted += 1;
                self.posted_bytes += bytes;
                Ok(())
            }
            Err(refused) => Err((refused.buffer.frame, NotPosted::Sctp(refused.error))),
        }
    }

    /// A chunk of so many bytes is acknowledged, and all before it.
    pub fn acknowledged(&mut self, bytes: usize) {
        self.posted = self.posted.saturating_sub(1);
        self.posted_bytes = self.posted_bytes.saturating_sub(bytes);
        self.session.acknowledged(1);
    }
}

// Both lie before the ULPDU.
const _: () = assert!(fpdu::HEADER_LEN == SSN_LEN);

#[cfg(test)]
mod tests;
