//! A connection's turn: as many segments as everybody has room for who has a say, each with as many FPDUs
//! as fit it.
//!
//! Most FPDUs are of two kinds for which little is to be decided: the segments of a long message, which are
//! written in a row, and messages of one FPDU. What these are, and in which order they come, is the queue
//! pair's to say; whether there is room is asked in the same way for all.

use rnic_xsk::{Frame, FramePool, Port, Umem};
use userspace_tcp::checksum::PartialSum;
use userspace_tcp::{ConnId, Outgoing, Posting, SendError};

use crate::conn::{Conn, Phase};
use crate::qp::{Filled, First, Qp, QpContext};
use crate::shard::datapath::Datapath;
use crate::shard::tx::drr_scheduler::{Allowed, SEGMENTS_PER_TURN};
use crate::shard::tx::{Reserve, Tx};

/// Bytes that an FPDU, or work that sends nothing, counts for at least: small ones take as long.
pub(in crate::shard) const COST_MIN: usize = 512;

/// How a connection's turn went.
pub(in crate::shard) struct TxQuantum {
    /// Segments that it sent.
    pub segments: usize,
    /// FPDUs in them.
    pub fpdus: usize,
    /// What it counts for, in bytes.
    pub cost: usize,
    pub end: StopReason,
}

/// Why a connection's turn ended.
pub(in crate::shard) enum StopReason {
    /// Nothing to send, or no room: an acknowledgment or a doorbell makes it ready again.
    Done,
    /// It has more, and room for more.
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

/// A turn under way.
struct Filling<'a, 's> {
    /// What takes the segments.
    posting: &'a mut Posting<'s, Frame>,
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
    segments: usize,
    fpdus: usize,
    cost: usize,
}

impl TxQuantum {
    /// Whether it was all that the connection has to send, and one segment.
    pub fn is_short(&self) -> bool {
        self.segments == 1 && matches!(self.end, StopReason::Done)
    }
}

impl Tx {
    /// As much of one connection as its client's share and the link's room (in segments) allow.
    pub(in crate::shard) fn turn<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        id: ConnId,
        allowed: Allowed,
        room: usize,
    ) -> TxQuantum {
        let mut turn = TxQuantum {
            segments: 0,
            fpdus: 0,
            cost: 0,
            end: StopReason::Done,
        };
        if let Err(refused) = self.fill_turn(dp, id, allowed, room, &mut turn) {
            // The room was asked for, so this is our own fault; the stream has a hole now.
            log::error!("TCP refused a segment: {refused}");
            dp.frames.pool.free(refused.buf);
            let qp = dp.conns.get(id).and_then(Conn::qp);
            if let Some(slot) = qp.and_then(|qp| dp.qps.get_mut(qp.0)) {
                slot.qp.stream_broken();
            }
        }
        turn
    }

    #[inline]
    fn fill_turn<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        id: ConnId,
        allowed: Allowed,
        room: usize,
        turn: &mut TxQuantum,
    ) -> Result<(), SendError<Frame>> {
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
        let end = dp.stack.post(id, dp.now, |posting| {
            let mut filling = Filling {
                posting,
                headers: conn.header_room(),
                allowed,
                room,
                allowance,
                pool: &mut dp.frames.pool,
                umem: &dp.frames.umem,
                reserve: &self.reserve,
                segments: 0,
                fpdus: 0,
                cost: 0,
            };
            let end = filling.fill(&mut slot.qp, &mut context);
            turn.segments = filling.segments;
            turn.fpdus = filling.fpdus;
            turn.cost = filling.cost;
            end
        });
        let local = context.counters.local_work_done - done_before;
        turn.cost += COST_MIN * usize::try_from(local).unwrap_or(usize::MAX >> 16);
        turn.end = end?;
        Ok(())
    }
}

impl Filling<'_, '_> {
    fn fill(
        &mut self,
        qp: &mut Qp,
        context: &mut QpContext<'_>,
    ) -> Result<StopReason, SendError<Frame>> {
        loop {
            if self.segments >= SEGMENTS_PER_TURN {
                return Ok(StopReason::More);
            }
            if self.cost >= self.allowed.credit {
                return Ok(StopReason::DrrScheduler);
            }
            if self.segments > 0 && qp.has_nothing_to_send() {
                return Ok(StopReason::Done);
            }
            if self.post_row(qp, context)? || self.post_whole(qp, context)? {
                continue;
            }
            if let Some(end) = self.post_planned(qp, context)? {
                return Ok(end);
            }
        }
    }

    /// Posts segments of a long message, if they come next and there is room for some.
    #[inline]
    fn post_row(
        &mut self,
        qp: &mut Qp,
        context: &mut QpContext<'_>,
    ) -> Result<bool, SendError<Frame>> {
        let emss = self.posting.send_capacity().mss;
        let most = SEGMENTS_PER_TURN - self.segments;
        let Some(mut row) = qp.row(context.stags, emss, most) else {
            return Ok(false);
        };
        let before = self.segments;
        let mut posted = Ok(());
        while let Some(len) = row.next_len()
            && self.cost < self.allowed.credit
            // Each may be the one that probes the path with another size (RFC 8899).
            && self.posting.send_capacity().mss == emss
            && let Ok(mut frame) = self.frame_for(len)
        {
            let bytes = self.umem.bytes_mut(&mut frame);
            let written = bytes
                .get_mut(self.headers..)
                .and_then(|out| row.write(len, out));
            let Some(written) = written else {
                self.pool.free(frame);
                break;
            };
            let filled = Filled {
                bytes: written.len,
                fpdus: 1,
                sum: PartialSum::from_folded(written.sum),
            };
            posted = self.post(frame, filled);
            if posted.is_err() {
                break;
            }
        }
        let written = row.written();
        qp.row_written(context, written);
        posted.map(|()| self.segments > before)
    }

    /// Posts a segment that begins with a message of one FPDU, if that comes next and there is room.
    #[inline]
    fn post_whole(
        &mut self,
        qp: &mut Qp,
        context: &mut QpContext<'_>,
    ) -> Result<bool, SendError<Frame>> {
        let mulpdu = qp.mulpdu(self.posting.send_capacity().mss);
        // It stays where it is: moved, it would wait for what was stored of it to leave the processor.
        let next = qp.next_whole(mulpdu);
        let Some(whole) = &next else {
            return Ok(false);
        };
        let len = whole.bytes();
        let Ok(frame) = self.frame_for(len) else {
            return Ok(false);
        };
        self.post_filled(frame, len, |out| {
            qp.fill_segment(context, First::Whole(whole), mulpdu, out)
        })
    }

    /// Posts a segment that begins with whatever comes next; why not, if not.
    // By itself, so that the code of the others lies together.
    #[inline(never)]
    fn post_planned(
        &mut self,
        qp: &mut Qp,
        context: &mut QpContext<'_>,
    ) -> Result<Option<StopReason>, SendError<Frame>> {
        let mulpdu = qp.mulpdu(self.posting.send_capacity().mss);
        let end = |qp: &Qp| match qp.has_more_local_work() {
            true => StopReason::More,
            false => StopReason::Done,
        };
        let Some(plan) = qp.plan(context, mulpdu) else {
            return Ok(Some(end(qp)));
        };
        let len = plan.bytes();
        let frame = match self.frame_for(len) {
            Ok(frame) => frame,
            Err(end) => return Ok(Some(end)),
        };
        let posted = self.post_filled(frame, len, |out| {
            qp.fill_segment(context, First::Planned(plan), mulpdu, out)
        })?;
        Ok((!posted).then(|| end(qp)))
    }

    /// A frame for a segment that begins with an FPDU of so many bytes; why there is none, if so.
    #[inline]
    fn frame_for(&mut self, len: usize) -> Result<Frame, StopReason> {
        let send_capacity = self.posting.send_capacity();
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

    /// Posts a segment that begins with an FPDU of so many bytes, unless nothing comes of it.
    #[inline]
    fn post_filled(
        &mut self,
        mut frame: Frame,
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> Filled,
    ) -> Result<bool, SendError<Frame>> {
        // What the smallest MULPDU needs may be more than the EMSS; TCP judges that. And where a
        // segment may need a wide frame, this FPDU may have one of a chunk.
        let send_capacity = self.posting.send_capacity();
        let most = send_capacity.mss.min(send_capacity.room).max(len);
        let end = (self.headers + most).min(frame.capacity());
        let bytes = self.umem.bytes_mut(&mut frame);
        let filled = bytes.get_mut(self.headers..end).map(fill);
        let filled = filled.unwrap_or_default();
        if filled.bytes == 0 {
            self.pool.free(frame);
            return Ok(false);
        }
        self.post(frame, filled).map(|()| true)
    }

    /// Hands a segment to TCP.
    #[inline(always)]
    fn post(&mut self, mut frame: Frame, filled: Filled) -> Result<(), SendError<Frame>> {
        frame.set_len(self.headers + filled.bytes);
        let outgoing = Outgoing {
            buf: frame,
            len: filled.bytes as u32,
            payload_sum: filled.sum,
        };
        self.posting.send(outgoing)?;
        self.segments += 1;
        self.fpdus += filled.fpdus;
        self.cost += filled.bytes.max(filled.fpdus * COST_MIN);
        Ok(())
    }
}
