//! A transmit quantum: as many segments of a connection as the windows, the link, the frames and its client's
//! share allow, each with as many FPDUs as fit.
//!
//! The queue pair decides what comes next, and in which order ([`Qp::transmit`]). This module decides where
//! it is written and whether there is space, in the same way for all.

use rnic_ipc::control::Transport;
use rnic_proto::mpa::fpdu::{self, Written};
use rnic_proto::mpa::marker::Markers;
use rnic_proto::rdmap::segment;
use rnic_xsk::{Frame, FramePool, Port, Umem};
use userspace_net::ConnId;
use userspace_net::checksum::PartialSum;
use userspace_tcp::{Outgoing, Posting, SendCapacity, SendRefusal};

use crate::conn::{Conn, Phase};
use crate::qp::TxSegments;
use crate::shard::datapath::Datapath;
use crate::shard::sctp::{NotPosted, SessionPosting};
use crate::shard::tx::drr_scheduler::{Allowed, SEGMENTS_PER_TURN};
use crate::shard::tx::{Reserve, Tx};

/// Bytes that an FPDU, or work that sends nothing, counts for at least: small ones take as long.
pub(in crate::shard) const COST_MIN: usize = 512;
/// FPDUs that share a TCP segment at most.
const FPDUS_PER_SEGMENT: usize = 64;
/// Bytes of the shortest FPDU that is ever sent: an RDMA Write without payload.
const FPDU_LEN_MIN: usize = fpdu::fpdu_length(segment::WRITE_LEN);

/// The result of a transmit quantum.
pub(in crate::shard) struct TxQuantum {
    /// Segments that it sent.
    pub segments: usize,
    pub fpdus: usize,
    /// What it counts for, in bytes.
    pub cost: usize,
    pub end: StopReason,
}

/// Why a transmit quantum ended.
pub(in crate::shard) enum StopReason {
    /// Nothing to send, or no room: an acknowledgment or a doorbell makes it ready again.
    Done,
    More,
    /// So it has, but its client has had its share.
    DrrScheduler,
    /// Its client holds its share of the frames: an acknowledgment of another connection's may give
    /// some back.
    ClientsFrames,
    /// The connections to its peer have as much under way as they may.
    Macroflow,
    /// No frame is free: frames come back without any event of this connection.
    NoFrame,
    /// The link takes no more.
    LinkFull,
}

/// What takes the segments of a connection.
enum Poster<'a, 's> {
    Tcp(&'a mut Posting<'s, Frame>),
    Session(SessionPosting<'a>),
}

/// A segment that was not taken, though there was room.
struct Refused {
    frame: Frame,
    why: Refusal,
}

#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error(transparent)]
    Tcp(#[from] SendRefusal),
    #[error(transparent)]
    Session(#[from] NotPosted),
}

/// A quantum under way.
struct Filling<'a, 's> {
    /// What takes the segments.
    poster: Poster<'a, 's>,
    pool: &'a mut FramePool,
    umem: &'a Umem,
    reserve: &'a Reserve,
    /// Bytes of a frame that are kept for headers.
    headers: usize,
    allowed: Allowed,
    /// Segments that the link takes.
    room: usize,
    /// Segments that its macroflow allows.
    allowance: usize,
    markers: Markers,
    /// FPDUs that a segment has at most.
    most_fpdus: usize,
    /// Bytes that a segment takes, and what MULPDU comes of it.
    mss: usize,
    mulpdu: usize,
    /// The segment that is being filled.
    open: Option<Frame>,
    filled: Filled,
    segments: usize,
    fpdus: usize,
    cost: usize,
    /// Why there is no room any more.
    end: Option<StopReason>,
    /// A segment was not taken.
    refused: Option<Refused>,
}

/// What the segment that is being filled has: the FPDUs that are there to be sent now and fit whole (RFC
/// 5044 section 5.1). None is made shorter for that, and nothing is waited for.
#[derive(Default)]
struct Filled {
    /// Bytes of payload that it may still have.
    left: usize,
    bytes: usize,
    fpdus: usize,
    /// The checksum's partial sum over the bytes.
    sum: PartialSum,
}

impl TxQuantum {
    /// Whether it was all that the connection has to send, and one segment.
    pub fn is_short(&self) -> bool {
        self.segments == 1 && matches!(self.end, StopReason::Done)
    }
}

impl Tx {
    /// As much of one connection as its client's share and the link's room (in segments) allow.
    pub(in crate::shard) fn run_quantum<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        id: ConnId,
        allowed: Allowed,
        room: usize,
    ) -> TxQuantum {
        let mut quantum = TxQuantum {
            segments: 0,
            fpdus: 0,
            cost: 0,
            end: StopReason::Done,
        };
        if let Err(refused) = self.fill_quantum(dp, id, allowed, room, &mut quantum) {
            // The room was asked for, so this is our own fault; the stream has a hole now.
            log::error!("a segment was refused: {}", refused.why);
            dp.frames.pool.free(refused.frame);
            let qp = dp.conns.get(id).and_then(Conn::qp);
            if let Some(slot) = qp.and_then(|qp| dp.qps.get_mut(qp.0)) {
                slot.qp.stream_broken();
            }
        }
        quantum
    }

    #[inline]
    fn fill_quantum<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        id: ConnId,
        allowed: Allowed,
        room: usize,
        quantum: &mut TxQuantum,
    ) -> Result<(), Refused> {
        let Some(conn) = dp.conns.get(id) else {
            return Ok(());
        };
        let Phase::Rdma { qp } = conn.phase else {
            return Ok(());
        };
        let Some(slot) = dp.qps.get_mut(qp.0) else {
            return Ok(());
        };
        let mut context = dp.tables.context(slot.tally, dp.now);
        let done_before = context.counters.local_work_done;
        let allowance = self.macroflows.allowance(id);
        let Datapath {
            stack,
            sctp,
            frames,
            now,
            ..
        } = dp;
        let end = stack.post(id, *now, |posting| {
            let session = match conn.transport() {
                Transport::Tcp => None,
                Transport::Sctp => sctp.posting(id, &frames.umem, *now),
            };
            // TCP knows no session: of one that is gone it takes nothing.
            let poster = session.map_or(Poster::Tcp(posting), Poster::Session);
            let (mss, markers) = (poster.send_capacity().mss, slot.qp.sends_markers());
            let (headers, most_fpdus) = match (&poster, markers) {
                (Poster::Tcp(_), Markers::Off) => (conn.header_room(), FPDUS_PER_SEGMENT),
                // tshark 4.0 takes some Writes for Sends otherwise; others may fail so too.
                (Poster::Tcp(_), Markers::On) => (conn.header_room(), 1),
                // A chunk is one segment, and SCTP puts it behind its headers.
                (Poster::Session(_), _) => (0, 1),
            };
            let mut filling = Filling {
                poster,
                headers,
                allowed,
                room,
                allowance,
                markers,
                mss,
                most_fpdus,
                mulpdu: fpdu::mulpdu(mss, markers),
                pool: &mut frames.pool,
                umem: &frames.umem,
                reserve: &self.reserve,
                open: None,
                filled: Filled::default(),
                segments: 0,
                fpdus: 0,
                cost: 0,
                end: None,
                refused: None,
            };
            slot.qp.transmit(&mut context, &mut filling);
            filling.close();
            quantum.segments = filling.segments;
            quantum.fpdus = filling.fpdus;
            quantum.cost = filling.cost;
            match filling.refused {
                Some(refused) => Err(refused),
                None => Ok(filling.end),
            }
        });
        let local = context.counters.local_work_done - done_before;
        quantum.cost += COST_MIN * usize::try_from(local).unwrap_or(usize::MAX >> 16);
        quantum.end = match end? {
            Some(end) => end,
            None if slot.qp.has_more_local_work() => {
                // A look in vain is work too: it is not repeated without end in one poll.
                quantum.cost = quantum.cost.max(COST_MIN);
                StopReason::More
            }
            None => StopReason::Done,
        };
        Ok(())
    }
}

impl Poster<'_, '_> {
    #[inline(always)]
    fn send_capacity(&self) -> SendCapacity {
        match self {
            Self::Tcp(posting) => posting.send_capacity(),
            Self::Session(posting) => posting.send_capacity(),
        }
    }

    /// Takes a segment with so many bytes, behind what is kept for headers.
    #[inline(always)]
    fn send(&mut self, frame: Frame, len: usize, sum: PartialSum) -> Result<(), Refused> {
        match self {
            Self::Tcp(posting) => {
                let outgoing = Outgoing {
                    buf: frame,
                    len: len as u32,
                    payload_sum: sum,
                };
                posting.send(outgoing).map_err(|refused| Refused {
                    frame: refused.buf,
                    why: Refusal::Tcp(refused.reason),
                })
            }
            Self::Session(posting) => posting.send(frame).map_err(|(frame, why)| Refused {
                frame,
                why: Refusal::Session(why),
            }),
        }
    }
}

impl TxSegments for Filling<'_, '_> {
    #[inline(always)]
    fn has_room(&mut self) -> bool {
        self.fits(FPDU_LEN_MIN) || self.may_begin()
    }

    #[inline(always)]
    fn mulpdu(&self) -> usize {
        self.mulpdu
    }

    #[inline(always)]
    fn place(&mut self, len: usize) -> Option<&mut [u8]> {
        if !self.fits(len) {
            self.begin(len)?;
        }
        let from = self.headers + self.filled.bytes;
        let place = (self.open.as_mut())
            .and_then(|frame| self.umem.bytes_mut(frame).get_mut(from..from + len));
        if place.is_none() {
            self.end = Some(StopReason::NoFrame);
        }
        place
    }

    #[inline(always)]
    fn add(&mut self, fpdu: &Written) {
        let filled = &mut self.filled;
        filled.left -= fpdu.len;
        filled.bytes += fpdu.len;
        filled.fpdus += 1;
        // Every FPDU is of an even number of bytes.
        filled.sum += PartialSum::from_folded(fpdu.sum);
    }
}

impl Filling<'_, '_> {
    /// Whether the open segment has room for an FPDU of so many bytes.
    #[inline(always)]
    fn fits(&self, len: usize) -> bool {
        self.filled.left >= len && self.filled.fpdus < self.most_fpdus
    }

    /// Posts the open segment; whether another one may be begun.
    #[inline(always)]
    fn may_begin(&mut self) -> bool {
        self.close();
        if self.end.is_some() {
            return false;
        }
        if self.segments >= SEGMENTS_PER_TURN {
            self.end = Some(StopReason::More);
        } else if self.cost >= self.allowed.credit {
            self.end = Some(StopReason::DrrScheduler);
        }
        self.end.is_none()
    }

    /// Begins a segment with an FPDU of so many bytes. None if there is no room, or the FPDU is too long
    /// for what the MULPDU has become.
    #[inline(always)]
    fn begin(&mut self, len: usize) -> Option<()> {
        let mss = self.mss;
        if !self.may_begin() || self.mss < mss {
            return None;
        }
        let frame = match self.frame_for(len) {
            Ok(frame) => frame,
            Err(end) => {
                self.end = Some(end);
                return None;
            }
        };
        // What the smallest MULPDU needs may be more than the EMSS; TCP judges that. And where a segment
        // may need a wide frame, this FPDU may have one of a chunk.
        let most = mss.min(self.poster.send_capacity().room).max(len);
        let left = most.min(frame.capacity().saturating_sub(self.headers));
        debug_assert!(left >= len, "a frame for {len} bytes has room for {left}");
        self.filled.left = left;
        self.open = Some(frame);
        Some(())
    }

    /// A frame for a segment that begins with an FPDU of so many bytes; why there is none, if so.
    #[inline(always)]
    fn frame_for(&mut self, len: usize) -> Result<Frame, StopReason> {
        let send_capacity = self.poster.send_capacity();
        if send_capacity.room < len {
            return Err(StopReason::Done);
        }
        if self.segments >= self.room {
            return Err(StopReason::LinkFull);
        }
        if self.segments >= self.allowance {
            return Err(StopReason::Macroflow);
        }
        let spare = self.reserve.spare(self.pool, self.headers + len);
        if spare == 0 {
            return Err(StopReason::NoFrame);
        }
        // It holds no more frames than it leaves to the others, so that peers which acknowledge
        // nothing don't hold them all. It has some, so an acknowledgment makes it ready again.
        if send_capacity.queued >= spare {
            return Err(StopReason::Done);
        }
        // The same for its client.
        let held = self.allowed.held;
        if held.is_some_and(|held| held + self.segments >= spare) {
            return Err(StopReason::ClientsFrames);
        }
        self.pool
            .alloc_for(self.headers + len)
            .ok_or(StopReason::NoFrame)
    }

    /// Hands the open segment, if there is one, over to be sent.
    #[inline(always)]
    fn close(&mut self) {
        let Some(mut frame) = self.open.take() else {
            return;
        };
        let filled = std::mem::take(&mut self.filled);
        if filled.fpdus == 0 {
            return self.pool.free(frame);
        }
        frame.set_len(self.headers + filled.bytes);
        if let Err(refused) = self.poster.send(frame, filled.bytes, filled.sum) {
            self.refused = Some(refused);
            self.end = Some(StopReason::Done);
            return;
        }
        self.segments += 1;
        self.fpdus += filled.fpdus;
        self.cost += filled.bytes.max(filled.fpdus * COST_MIN);
        // The next segment may be the one that probes the path with another size (RFC 8899).
        let mss = self.poster.send_capacity().mss;
        if mss != self.mss {
            (self.mss, self.mulpdu) = (mss, fpdu::mulpdu(mss, self.markers));
        }
    }
}
