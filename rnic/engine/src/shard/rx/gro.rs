//! GRO: consecutive segments of one flow in a batch of frames that carry nothing new except their bytes. When
//! they are next in order TCP takes them as one segment, as from an adapter with large receive offload. The
//! cost of a segment is then paid once for all of them.
//!
//! A segment lies in one frame or in several; this only changes the number of frags.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::ops::Range;

use rnic_net::{Path, PredictedFields};
use rnic_xsk::{CHUNKS_MAX, Frame, Packet, Umem};
use userspace_net::{Ecn, FourTuple};
use userspace_tcp::{CoalescedInfo, ConnId, FlowHint, NewRange, SeqNum, TcpHeader};

use super::classify::only_continues;

#[derive(Debug)]
pub(super) struct RxSegment {
    /// One frame or several.
    pub packet: Packet,
    /// Where its payload begins in the first frame.
    pub start: usize,
    /// Bytes of payload in all frames.
    pub len: usize,
    /// The payload was found to end with the CRC32C of what is before.
    pub crc_verified: bool,
}

/// What the headers of a segment say.
#[derive(Debug)]
pub(super) enum Headers<'a> {
    /// They were parsed.
    Parsed(&'a mut Head),
    /// They were predicted: they are those of this connection's segments, but for this.
    Predicted(ConnId, &'a PredictedFields),
}

/// Fragments of a batch at most: as many segments, where each has one frame, or one of the largest.
pub(super) const FRAGS_MAX: usize = 18;
const _: () = assert!(FRAGS_MAX >= CHUNKS_MAX);

/// Segments that wait for the next one.
#[derive(Debug, Default)]
pub(super) struct GroBatch {
    head: Option<Head>,
    frags: VecDeque<Frag>,
    bytes: usize,
    /// Whose headers it has, if they were predicted.
    predicted: Option<ConnId>,
}

/// What all segments of a batch have in common: all that the first one says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub tuple: FourTuple,
    /// Where TCP has the connection.
    pub hint: FlowHint,
    pub path: Path,
    pub port: usize,
    pub ecn: Ecn,
    pub header: TcpHeader,
}

/// The frame of one segment, or of a part of one, and where its payload lies.
#[derive(Debug)]
pub(super) struct Frag {
    pub frame: Frame,
    pub start: usize,
    pub len: usize,
    /// Its segment's payload was found to end with the CRC32C of what is before.
    pub crc_verified: bool,
    /// Its segment goes on in the next frag.
    pub goes_on: bool,
}

impl GroBatch {
    pub fn new() -> Self {
        Self {
            frags: VecDeque::with_capacity(FRAGS_MAX),
            ..Self::default()
        }
    }

    /// Whether a segment belongs to this batch, which is not empty: it only continues the one before.
    #[inline(always)]
    pub fn is_continued_by(&self, headers: &Headers<'_>, segment: &RxSegment) -> bool {
        let Some(first) = &self.head else {
            return false;
        };
        self.has_place(segment.len, segment.packet.frame_count())
            && match headers {
                Headers::Predicted(id, says) => {
                    self.predicted == Some(*id)
                        && only_continues(says, &first.header, self.behind(first))
                }
                Headers::Parsed(next) => {
                    self.predicted.is_none()
                        && next
                            .header
                            .only_continues(&first.header, self.behind(first))
                        && (next.tuple, next.ecn) == (first.tuple, first.ecn)
                        && (next.port, next.path) == (first.port, first.path)
                }
            }
    }

    /// Begins anew, with a segment that has these headers, `predicted` of this connection or parsed; the
    /// batch is empty.
    pub fn begin(&mut self, head: Head, predicted: Option<ConnId>) {
        self.head = Some(head);
        self.predicted = predicted;
    }

    /// Takes a segment that the batch was [begun](Self::begin) with, or that
    /// [continues](Self::is_continued_by) it.
    #[inline]
    pub fn push(&mut self, segment: RxSegment, umem: &Umem) {
        self.bytes += segment.len;
        let segment = match segment.into_frag() {
            Ok(frag) => return self.frags.push_back(frag),
            Err(segment) => segment,
        };
        let (mut start, mut left) = (segment.start, segment.len);
        let crc_verified = segment.crc_verified;
        let mut frames = segment.packet.into_frames(umem).peekable();
        while let Some(frame) = frames.next() {
            let len = left.min(frame.len().saturating_sub(start));
            self.frags.push_back(Frag {
                goes_on: frames.peek().is_some(),
                frame,
                start,
                len,
                crc_verified,
            });
            (start, left) = (0, left - len);
        }
    }

    /// Whether a segment with so many bytes in so many frames may belong to this batch. One without
    /// any bytes says something else, whichever of the two it is.
    fn has_place(&self, len: usize, frames: usize) -> bool {
        self.frags.len() + frames <= FRAGS_MAX && self.bytes > 0 && len > 0
    }

    /// Where the next segment begins.
    fn behind(&self, first: &Head) -> SeqNum {
        first.header.seq.add(self.bytes as u32)
    }

    /// Whether it has no segment.
    pub fn is_empty(&self) -> bool {
        self.head.is_none()
    }

    /// The batch is over: what its segments have in common, and the segments, which are to be taken
    /// out.
    pub fn take(&mut self) -> Option<(Head, bool, &mut VecDeque<Frag>)> {
        self.bytes = 0;
        Some((self.head.take()?, self.predicted.is_some(), &mut self.frags))
    }
}

impl RxSegment {
    /// A segment whose payload is there, counted from the packet's beginning.
    #[inline]
    pub fn new(packet: Packet, payload: &Range<usize>, crc_verified: bool) -> Self {
        Self {
            packet,
            start: payload.start,
            len: payload.len(),
            crc_verified,
        }
    }

    /// Its only fragment.
    ///
    /// # Errors
    ///
    /// The segment itself, if it lies in several frames.
    #[inline]
    fn into_frag(self) -> Result<Frag, Self> {
        match self.packet.into_single() {
            Ok(frame) => Ok(Frag {
                frame,
                start: self.start,
                len: self.len,
                crc_verified: self.crc_verified,
                goes_on: false,
            }),
            Err(packet) => Err(Self { packet, ..self }),
        }
    }
}

impl Frag {
    /// The bytes of its segment.
    pub fn payload<'a>(&'a self, umem: &'a Umem) -> &'a [u8] {
        let bytes = umem.bytes(&self.frame);
        bytes.get(self.start..self.start + self.len).unwrap_or(&[])
    }

    /// The part of new bytes, counted over all frags together, that lies in this frag. The frag begins
    /// `before` bytes after the first frag's start. Gives the offset in its frame and the length.
    pub fn part(&self, before: usize, new: &NewRange) -> (usize, usize) {
        let (skip, len) = (new.skip as usize, new.len as usize);
        let from = skip.clamp(before, before + self.len);
        let to = (skip + len).clamp(from, before + self.len);
        (self.start + (from - before), to - from)
    }
}

/// What follows the first frag of some segments.
pub(super) fn following<'a>(mut frags: impl Iterator<Item = &'a Frag>) -> CoalescedInfo {
    let Some(first) = frags.next() else {
        return CoalescedInfo::default();
    };
    let mut behind = CoalescedInfo {
        longest: first.len as u32,
        ..CoalescedInfo::default()
    };
    let (mut len, mut goes_on) = (first.len as u32, first.goes_on);
    for frag in frags {
        if !goes_on {
            behind.segments += 1;
            len = 0;
        }
        len += frag.len as u32;
        behind.bytes += frag.len as u32;
        behind.longest = behind.longest.max(len);
        goes_on = frag.goes_on;
    }
    behind
}

/// Of some segments' frags, how many are the first one's.
pub(super) fn frags_of_first(frags: &VecDeque<Frag>) -> usize {
    let more = frags.iter().take_while(|frag| frag.goes_on);
    (more.count() + 1).min(frags.len())
}
