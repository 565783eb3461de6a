//! Segments of a long message in a row, but for its last: what is true of all of them is found once, and
//! each is then little more than a header and a copy.
//!
//! Each is what [`Qp::plan`] and [`Qp::produce`] would make of it, and what is left behind is the same. Where
//! one can't be made so it is left to them, with those behind it.

use rnic_crc::Words;
use rnic_ipc::control::QpState;
use rnic_proto::ddp::header::{Tagged, Untagged};
use rnic_proto::mpa::fpdu::{HEADER_LEN, Layout, Writer, Written, plain_length, write_plain};
use rnic_proto::mpa::marker::Markers;
use rnic_proto::rdmap::segment;
use rnic_proto::{MessageOffset, TaggedOffset};

use super::read_response::Response;
use super::send::{FPDU_LEN_MIN, Turn};
use super::whole::{SEND_WORDS, WRITE_WORDS};
use super::work::{Kind, Work};
use super::{Qp, QpContext, elements};
use crate::region::{MappedSlice, RegionError};
use crate::stag::{Source, StagTable};

/// Segments that may be written in a row. While this lives the STag table is borrowed, so that none of
/// what was found changes.
pub(crate) struct Row<'a> {
    /// The bytes of all of them.
    bytes: MappedSlice<'a>,
    /// The next one's header.
    head: Head,
    markers: Markers,
    crc: bool,
    checks: bool,
    /// Where the next FPDU begins in the stream.
    at: u64,
    /// Bytes of payload of each.
    payload: usize,
    /// How many there may be.
    most: usize,
    written: usize,
}

/// What was written in a row, to be told to the queue pair ([`Qp::row_written`]).
#[derive(Clone, Copy, Debug)]
pub(crate) struct InRow {
    segments: usize,
    payload: usize,
    /// Where the next FPDU begins in the stream.
    at: u64,
}

#[derive(Clone, Copy, Debug)]
enum Head {
    /// Of a Write or a Read Response.
    Tagged(Tagged),
    /// Of a Send.
    Untagged(Untagged),
}

impl Qp {
    /// The segments that come next of the message under way, at most so many, where a TCP segment takes
    /// `emss` bytes of payload; none where it has none but its last, or they can't be written in a row.
    #[inline]
    pub(crate) fn row<'a>(
        &self,
        stags: &'a StagTable,
        emss: usize,
        most: usize,
    ) -> Option<Row<'a>> {
        let turn = self.send.in_message?;
        if self.state != QpState::Rts || !self.ending.lets_send() || !self.send.goes_on() {
            return None;
        }
        let mulpdu = self.mulpdu(emss);
        let (head, left) = match turn {
            Turn::Work => self.work_under_way()?,
            Turn::Responses => self.response_under_way()?,
        };
        let payload = mulpdu.checked_sub(head.len())?;
        let markers = self.send.markers;
        // Nothing else is to share a segment with one of these.
        let fills =
            markers == Markers::On || plain_length(head.words(), payload) + FPDU_LEN_MIN > emss;
        if payload == 0 || !fills {
            return None;
        }
        let most = most.min((left as usize).checked_sub(1)? / payload);
        let (source, most) = match turn {
            Turn::Work => self.source_of_work(stags, payload, most)?,
            Turn::Responses => self.source_of_response(stags, payload, most)?,
        };
        Some(Row {
            bytes: source.stretch().ok()?,
            head,
            markers,
            crc: self.crc,
            checks: self.checks,
            at: self.send.at(),
            payload,
            most,
            written: 0,
        })
    }

    /// So much was written in a row.
    #[inline]
    pub(crate) fn row_written(&mut self, ctx: &mut QpContext<'_>, row: InRow) {
        // Less than a message has.
        let bytes = (row.segments * row.payload) as u32;
        match self.send.in_message {
            Some(Turn::Work) => {
                if let Some(work) = &mut self.send.work {
                    work.sent = work.sent.saturating_add(bytes);
                }
            }
            _ => {
                if let Some(Response::Read(response)) = self.send.responses.front_mut() {
                    response.sent = response.sent.saturating_add(bytes);
                }
            }
        }
        self.send.goes_on_at(row.at);
        ctx.counters.fpdus_sent += row.segments as u64;
        ctx.counters.bytes_gathered += u64::from(bytes);
    }

    /// The header of the next segment of the work under way, and how many bytes are left.
    fn work_under_way(&self) -> Option<(Head, u32)> {
        let Work {
            kind, total, sent, ..
        } = self.send.work.as_ref()?;
        let head = match *kind {
            Kind::Write { stag, to, .. } => {
                let to = TaggedOffset(to.0.saturating_add(u64::from(*sent)));
                Head::Tagged(segment::write(stag, to, false))
            }
            Kind::Send {
                kind,
                invalidate,
                msn: Some(msn),
            } => {
                let mo = MessageOffset(*sent);
                Head::Untagged(segment::send(kind, invalidate, msn, mo, false))
            }
            _ => return None,
        };
        Some((head, total.saturating_sub(*sent)))
    }

    /// The same of a Read Response. Meanwhile local work may be done, which takes memory away: not while
    /// its segments are written in a row.
    fn response_under_way(&self) -> Option<(Head, u32)> {
        let Some(Response::Read(response)) = self.send.responses.front() else {
            return None;
        };
        let no_work = match &self.send.work {
            Some(work) => !matches!(work.kind, Kind::Local(_)),
            None => self.send.ring.is_empty(),
        };
        let rest = response.rest();
        let head = segment::read_response(rest.sink_stag, rest.sink_to, false);
        no_work.then_some((Head::Tagged(head), rest.size))
    }

    /// The bytes of so many segments of the work under way, and how many there are in one element.
    fn source_of_work<'a>(
        &self,
        stags: &'a StagTable,
        payload: usize,
        most: usize,
    ) -> Option<(Source<'a>, usize)> {
        let request = &self.send.request;
        let sent = self.send.work.as_ref()?.sent;
        // Both fit: a message has fewer bytes.
        let wanted = (most * payload) as u32;
        let next = elements::pieces(request.sges(), u64::from(sent), wanted).next()?;
        let most = most.min(next.length as usize / payload);
        if request.is_inline() || most == 0 {
            return None;
        }
        let source = stags.local_read(&next, self.id.user()).ok()?;
        Some((source, most))
    }

    /// The same of the response under way.
    fn source_of_response<'a>(
        &self,
        stags: &'a StagTable,
        payload: usize,
        most: usize,
    ) -> Option<(Source<'a>, usize)> {
        let Some(Response::Read(response)) = self.send.responses.front() else {
            return None;
        };
        if most == 0 {
            return None;
        }
        let rest = response.rest();
        let (stag, to, len) = (rest.source_stag, rest.source_to, (most * payload) as u32);
        let source = stags.remote_read(stag, to, len, self.id.user()).ok()?;
        Some((source, most))
    }
}

impl Row<'_> {
    /// Bytes of the next FPDU; none when there is none.
    #[inline]
    pub fn next_len(&self) -> Option<usize> {
        (self.written < self.most).then(|| match self.markers {
            Markers::Off => plain_length(self.head.words(), self.payload),
            Markers::On => self.layout().len(),
        })
    }

    /// Writes the next FPDU, whose length [`Self::next_len`] has just told, to the front of `out`; none when
    /// that has no room, or its bytes can't be had.
    #[inline]
    pub fn write(&mut self, len: usize, out: &mut [u8]) -> Option<Written> {
        debug_assert_eq!(self.next_len(), Some(len));
        let out = out.get_mut(..len)?;
        let written = match self.head {
            Head::Tagged(head) => self.put(head.to_words(), out),
            Head::Untagged(head) => self.put(head.to_words(), out),
        };
        let written = written.ok()?;
        self.written += 1;
        self.at += written.len as u64;
        match &mut self.head {
            Head::Tagged(head) => head.to.0 = head.to.0.wrapping_add(self.payload as u64),
            Head::Untagged(head) => head.mo.0 = head.mo.0.wrapping_add(self.payload as u32),
        }
        Some(written)
    }

    /// What was written of it, for [`Qp::row_written`].
    pub fn written(&self) -> InRow {
        InRow {
            segments: self.written,
            payload: self.payload,
            at: self.at,
        }
    }

    #[inline]
    fn put<const WORDS: usize>(
        &self,
        header: [u32; WORDS],
        out: &mut [u8],
    ) -> Result<Written, RegionError> {
        let from = self.written * self.payload;
        if self.markers == Markers::On {
            return self.put_marked(header, from, out);
        }
        write_plain(out, header, self.payload, self.crc, |crc, place| {
            self.bytes
                .read_checked(from, self.checks.then_some(crc), place, Words::NONE)
        })
    }

    // By itself, so that what is without Markers lies together.
    #[inline(never)]
    fn put_marked<const WORDS: usize>(
        &self,
        header: [u32; WORDS],
        from: usize,
        out: &mut [u8],
    ) -> Result<Written, RegionError> {
        let mut ulpdu = Writer::new(out, self.layout(), self.crc);
        ulpdu.begin(header);
        ulpdu.copy(self.head.len(), self.payload, |crc, place, markers| {
            self.bytes
                .read_checked(from, self.checks.then_some(crc), place, markers)
        })?;
        Ok(ulpdu.finish())
    }

    fn layout(&self) -> Layout {
        Layout::new(self.markers, self.at, self.head.len() + self.payload)
    }
}

impl Head {
    /// Its bytes.
    #[inline]
    fn len(&self) -> usize {
        4 * self.words() - HEADER_LEN
    }

    /// The words that it makes together with the ULPDU_Length field.
    #[inline]
    fn words(&self) -> usize {
        match self {
            Self::Tagged(_) => WRITE_WORDS,
            Self::Untagged(_) => SEND_WORDS,
        }
    }
}
