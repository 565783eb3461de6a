//! The segmenter: a message with payload (Send, RDMA Write, RDMA Read Response) becomes one or more FPDUs
//! (RFC 5041 section 5.2, RFC 5044 section 5). STag, rights, bounds and header are found once for the whole
//! message. Each FPDU is then little more than a header and a copy.

use rnic_crc::Words;
use rnic_ipc::ring::WorkRequest;
use rnic_ipc::work::Sge;
use rnic_proto::ddp::header::{TAGGED_LEN, Tagged, UNTAGGED_LEN, Untagged};
use rnic_proto::mpa::fpdu::{HEADER_LEN, Layout, Writer, Written, plain_length, write_plain};
use rnic_proto::mpa::marker::Markers;

use super::elements;
use crate::region::{MappedSlice, RegionError};
use crate::stag::{ReadGrant, StagTable, User};

/// Bytes from which on it pays to check them while they are copied. What is shorter is checked with
/// what is around it.
const CHECKED_COPY_MIN: usize = 256;

/// The TCP segments that FPDUs are written to.
pub(crate) trait TxSegments {
    /// Whether there may be a place for another FPDU: not once it was for want of room that there was none.
    fn has_room(&mut self) -> bool;

    /// The longest ULPDU of the next FPDU, in bytes: `MULPDU_MIN` at least.
    fn mulpdu(&self) -> usize;

    /// A place for an FPDU of so many bytes; none when there is no room, or the MULPDU has become less. It
    /// is the same one again until [`Self::add`] says that it was used.
    fn place(&mut self, len: usize) -> Option<&mut [u8]>;

    /// An FPDU was written to the place.
    fn add(&mut self, fpdu: &Written);
}

/// The header of the next segment of a message.
#[derive(Clone, Copy, Debug)]
pub(super) enum Head {
    /// Of a Write or a Read Response.
    Tagged(Tagged),
    Untagged(Untagged),
}

/// Where a message's payload is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Payload<'a> {
    /// In a work request's elements.
    Elements(&'a [Sge], &'a StagTable, User),
    Inline(&'a WorkRequest),
    /// In a range of memory, of which this is what is left.
    Range(MappedSlice<'a>),
    /// It has none.
    Empty,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Message<'a> {
    /// Of its first segment.
    pub head: Head,
    pub payload: Payload<'a>,
    /// Bytes of the payload that were sent.
    pub sent: u32,
    /// Bytes of all of it.
    pub total: u32,
}

/// A message from its next segment on. While this lives the STag table is borrowed, so that none of what
/// was found changes.
#[derive(Debug)]
struct Segmenter<'a> {
    head: Head,
    payload: Payload<'a>,
    /// What of the payload lies together from the next byte on, or before it, and where in the message
    /// that begins.
    slice: Option<(u32, MappedSlice<'a>)>,
    /// Bytes of the message's payload before the next segment.
    sent: u32,
    /// Bytes of it from there on.
    left: u32,
    framing: Framing,
    fpdus: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Framing {
    pub markers: Markers,
    pub crc: bool,
    /// Payload is summed as it is copied: for the CRC, or for TCP's checksum.
    pub checks: bool,
    /// Where the next one begins, counted from the first byte after the start-up.
    pub at: u64,
}

/// How far a message was written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    /// Bytes of its payload that were sent.
    pub bytes: u32,
    /// It has no segment left.
    pub is_whole: bool,
    pub fpdus: u32,
    /// Where the next FPDU begins in the stream.
    pub at: u64,
}

/// Payload can't be had any more: its owner took the memory, or the right to it, away.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unreadable;

impl Framing {
    /// The CRC of what is before some payload, if that is summed as it is copied.
    #[inline]
    fn checked_from(&self, crc: u32) -> Option<u32> {
        self.checks.then_some(crc)
    }
}

impl From<RegionError> for Unreadable {
    fn from(_: RegionError) -> Self {
        Self
    }
}

impl Head {
    /// Its bytes.
    #[inline]
    fn len(&self) -> usize {
        match self {
            Self::Tagged(_) => TAGGED_LEN,
            Self::Untagged(_) => UNTAGGED_LEN,
        }
    }

    /// That of the segment that is `bytes` of payload further on.
    #[inline]
    fn advance(&mut self, bytes: u32) {
        match self {
            // Of our own messages it was checked that none wraps; a Read Response's sink is the peer's
            // business, and wraps as the peer's numbers do.
            Self::Tagged(head) => head.to.0 = head.to.0.wrapping_add(bytes.into()),
            Self::Untagged(head) => head.mo.0 = head.mo.0.wrapping_add(bytes),
        }
    }
}

/// Writes the FPDUs of a message until it is at its end or there is no room; says how far it came.
#[inline(always)]
pub(super) fn run(
    message: Message<'_>,
    framing: Framing,
    out: &mut impl TxSegments,
) -> (Progress, Result<(), Unreadable>) {
    let Message {
        mut head,
        payload,
        sent,
        total,
    } = message;
    head.advance(sent);
    let mut segmenter = Segmenter {
        head,
        payload,
        slice: None,
        sent,
        left: total.saturating_sub(sent),
        framing,
        fpdus: 0,
    };
    let ran = segmenter.find().and_then(|()| segmenter.run(out));
    let progress = Progress {
        bytes: segmenter.sent - sent,
        is_whole: segmenter.fpdus > 0 && segmenter.left == 0,
        fpdus: segmenter.fpdus,
        at: segmenter.framing.at,
    };
    (progress, ran)
}

/// Early exit of [`run`]: a message that is one FPDU without Markers, and whose payload is one element's
/// bytes. None, and nothing is done, where there is no room or they can't be had.
#[inline(always)]
pub(super) fn write_single(
    head: Head,
    source: &ReadGrant<'_>,
    len: usize,
    framing: Framing,
    out: &mut impl TxSegments,
) -> Option<Written> {
    if len == 0 || len > out.mulpdu() - head.len() {
        return None;
    }
    let place = out.place(plain_length((HEADER_LEN + head.len()) / 4, len))?;
    let copy = |crc, place: &mut [u8]| {
        source.read_checked(0, framing.checked_from(crc), place, Words::NONE)
    };
    let written = match head {
        Head::Tagged(head) => {
            let header = Tagged { last: true, ..head }.to_words();
            write_plain(place, header, len, framing.crc, copy)
        }
        Head::Untagged(head) => {
            let header = Untagged { last: true, ..head }.to_words();
            write_plain(place, header, len, framing.crc, copy)
        }
    };
    let written = written.ok()?;
    out.add(&written);
    Some(written)
}

impl<'a> Segmenter<'a> {
    /// Writes FPDUs until the message is at its end or there is no room.
    #[inline(always)]
    fn run(&mut self, out: &mut impl TxSegments) -> Result<(), Unreadable> {
        let header = self.head.len();
        loop {
            let len = self.left.min((out.mulpdu() - header) as u32);
            let Some(place) = out.place(self.fpdu_len(header, len as usize)) else {
                return Ok(());
            };
            let written = self.write(len, place)?;
            out.add(&written);
            if self.left == 0 {
                return Ok(());
            }
        }
    }

    /// Bytes of the next FPDU, with so much header and payload.
    #[inline]
    fn fpdu_len(&self, header: usize, payload: usize) -> usize {
        match self.framing.markers {
            Markers::Off => plain_length((HEADER_LEN + header) / 4, payload),
            Markers::On => self.layout(payload).len(),
        }
    }

    fn layout(&self, payload: usize) -> Layout {
        Layout::new(
            self.framing.markers,
            self.framing.at,
            self.head.len() + payload,
        )
    }

    /// Writes the next FPDU, with so much payload, to a place of its length.
    #[inline(always)]
    fn write(&mut self, len: u32, place: &mut [u8]) -> Result<Written, Unreadable> {
        let last = len == self.left;
        let written = match self.head {
            Head::Tagged(head) => self.put(Tagged { last, ..head }.to_words(), len, place),
            Head::Untagged(head) => self.put(Untagged { last, ..head }.to_words(), len, place),
        }?;
        self.head.advance(len);
        self.sent += len;
        self.left -= len;
        self.fpdus += 1;
        self.framing.at += written.len as u64;
        Ok(written)
    }

    /// Finds the memory of the next bytes of payload that lie together: as far as the message goes, and
    /// not for one segment only.
    #[inline(always)]
    fn find(&mut self) -> Result<(), Unreadable> {
        let slice = match self.payload {
            Payload::Range(slice) => slice,
            Payload::Elements(sges, stags, user) => {
                let next = match sges {
                    [sge] if self.sent == 0 && sge.length > 0 => *sge,
                    _ => match elements::pieces(sges, self.sent.into(), self.left).next() {
                        Some(next) => next,
                        None => return Ok(()),
                    },
                };
                let source = stags.local_read(&next, user).map_err(|_| Unreadable)?;
                source.mapped()?
            }
            Payload::Inline(_) | Payload::Empty => return Ok(()),
        };
        self.slice = Some((self.sent, slice));
        Ok(())
    }

    /// The same at the end of an element.
    #[inline(never)]
    fn find_next(&mut self) -> Result<(), Unreadable> {
        match self.payload {
            Payload::Elements(..) => self.find(),
            _ => Ok(()),
        }
    }

    /// The memory of so many bytes of payload that are next, and where in it they begin, if it is known.
    #[inline]
    fn found(&self, len: u32) -> Option<(usize, &MappedSlice<'a>)> {
        let (from, slice) = self.slice.as_ref()?;
        let skipped = (self.sent - from) as usize;
        (skipped + len as usize <= slice.len()).then_some((skipped, slice))
    }

    #[inline(always)]
    fn put<const WORDS: usize>(
        &mut self,
        header: [u32; WORDS],
        len: u32,
        place: &mut [u8],
    ) -> Result<Written, Unreadable> {
        if self.framing.markers == Markers::Off
            && let Some((from, slice)) = self.found(len)
        {
            let framing = self.framing;
            let copy = |crc, place: &mut [u8]| {
                slice.read_checked(from, framing.checked_from(crc), place, Words::NONE)
            };
            return Ok(write_plain(place, header, len as usize, framing.crc, copy)?);
        }
        self.put_any(header, len, place)
    }

    /// An FPDU with Markers, or of pieces.
    // By itself, so that what is neither lies together.
    #[inline(never)]
    fn put_any<const WORDS: usize>(
        &mut self,
        header: [u32; WORDS],
        len: u32,
        place: &mut [u8],
    ) -> Result<Written, Unreadable> {
        let from = self.head.len();
        let mut ulpdu = Writer::new(place, self.layout(len as usize), self.framing.crc);
        ulpdu.begin(header);
        if self.found(len).is_none() {
            self.find_next()?;
        }
        match self.found(len) {
            Some((skipped, slice)) => ulpdu.copy(from, len as usize, |crc, place, markers| {
                slice.read_checked(skipped, self.framing.checked_from(crc), place, markers)
            })?,
            None => self.gather(&mut ulpdu, from, len)?,
        }
        Ok(ulpdu.finish())
    }

    /// Copies the next bytes of payload, which lie in pieces, to the ULPDU's bytes from `from` on.
    fn gather(&self, ulpdu: &mut Writer<'_>, from: usize, len: u32) -> Result<(), Unreadable> {
        let (sges, stags, user) = match self.payload {
            Payload::Elements(sges, stags, user) => (sges, stags, user),
            Payload::Inline(request) => {
                return ulpdu.fill(from, len as usize, |at, place| {
                    request.copy_inline(self.sent as usize + at, place);
                    Ok(())
                });
            }
            _ if len == 0 => return Ok(()),
            _ => return Err(Unreadable),
        };
        let mut at = from;
        for sge in elements::pieces(sges, self.sent.into(), len) {
            let source = stags.local_read(&sge, user).map_err(|_| Unreadable)?;
            copy_out(&source, ulpdu, at, &sge)?;
            at += sge.length as usize;
        }
        debug_assert_eq!(at, from + len as usize, "the total is of the elements");
        Ok(())
    }
}

/// Copies an element's bytes to the ULPDU's from `from` on.
fn copy_out(
    source: &ReadGrant<'_>,
    ulpdu: &mut Writer<'_>,
    from: usize,
    sge: &Sge,
) -> Result<(), Unreadable> {
    let len = sge.length as usize;
    if len < CHECKED_COPY_MIN {
        return ulpdu.fill(from, len, |at, place| Ok(source.read(at as u64, place)?));
    }
    ulpdu.copy(from, len, |crc, place, markers| {
        Ok(source.read_checked(0, Some(crc), place, markers)?)
    })
}
