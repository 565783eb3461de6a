//! New bytes of a connection that are not delivered in place: parked until they are in order. Whole FPDUs
//! among them may be placed early.

use std::collections::VecDeque;

use rnic_ipc::control::DisconnectReason;
use rnic_proto::mpa::startup::FRAME_LEN_MAX;
use rnic_xsk::Port;
use userspace_tcp::{ConnId, NEW_RANGES_MAX, Received};

use super::gro::Frag;
use super::hold::HELD_SHARE;
use crate::conn::{NewRange, PLACED_AT_ONCE, Phase, Placed, SLICES_MAX};
use crate::qp::{FpduSign, PlacedFpdu};
use crate::shard::ctl::Ctl;
use crate::shard::datapath::Datapath;
use crate::shard::tx::Tx;

/// What connections may keep of what was received.
#[derive(Debug)]
pub(super) struct Parking {
    /// Frames that connections may hold, all together.
    pub(super) most: usize,
}

/// Why a frame was not kept.
enum NotHeld {
    Gone,
    /// A peer sends more than a start-up has.
    StartupOverrun,
    /// TCP gave bytes outside its own window.
    OutsideWindow,
}

impl Parking {
    pub fn new<P>(dp: &Datapath<P>) -> Self {
        // As much for what waits to be delivered as for what waits to be acknowledged.
        let most = (dp.frames.pool.available() - dp.config.receive_reserve) / 2;
        Self { most }
    }

    /// Parks new bytes, and delivers what is in order. `chained`: a segment goes on in another frame.
    pub fn park<P: Port>(
        &self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        ctl: &mut Ctl,
        id: ConnId,
        (frags, count, chained): (&mut VecDeque<Frag>, usize, bool),
        &Received {
            new,
            in_order_to: in_order,
            ..
        }: &Received,
    ) {
        if let Some(conn) = dp.conns.get(id) {
            dp.stack.consumed(id, conn.inbound.consumed_to());
        }
        let end = new.iter().map(|range| (range.skip + range.len) as usize);
        let end = end.max().unwrap_or(0);
        let mut before = 0;
        for frag in frags.drain(..count) {
            let mut ranges = [NewRange::default(); NEW_RANGES_MAX];
            let mut filled = 0;
            for range in new.iter() {
                let (start, len) = frag.part(before, range);
                if let Some(place) = ranges.get_mut(filled).filter(|_| len > 0) {
                    let ahead = before.saturating_sub(range.skip as usize) as u64;
                    let offset = range.offset + ahead;
                    *place = NewRange { offset, start, len };
                    filled += 1;
                }
            }
            before += frag.len;
            let ranges = ranges.get(..filled).unwrap_or(&[]);
            let Some(last) = ranges.last() else {
                dp.frames.pool.free(frag.frame);
                continue;
            };
            // The bytes after it are not here yet.
            let here = match before < end {
                true => last.offset + last.len as u64,
                false => u64::MAX,
            };
            let start = frag.start;
            match self.hold(dp, id, frag, ranges, in_order.min(here)) {
                Ok(()) if chained => {}
                Ok(()) => {
                    for range in ranges
                        .iter()
                        .filter(|range| range.offset > in_order.min(here))
                    {
                        let segment = (range.start == start).then_some(range.len);
                        while dp.place_early(id, range.offset, segment) {}
                    }
                    deliver(dp, tx, ctl, id);
                }
                Err(NotHeld::Gone) => {}
                Err(NotHeld::StartupOverrun) => ctl.startup_overrun(dp, tx, id),
                Err(NotHeld::OutsideWindow) => {
                    ctl.abort(dp, tx, id, DisconnectReason::LocalError, None);
                }
            }
        }
        if chained {
            for range in new.iter().filter(|range| range.offset > in_order) {
                let segment = (range.skip == 0).then_some(range.len as usize);
                while dp.place_early(id, range.offset, segment) {}
            }
            deliver(dp, tx, ctl, id);
        }
    }

    /// Keeps the new bytes of a frame until their turn has come, which may be now.
    fn hold<P>(
        &self,
        dp: &mut Datapath<P>,
        id: ConnId,
        Frag { frame, .. }: Frag,
        ranges: &[NewRange],
        in_order: u64,
    ) -> Result<(), NotHeld> {
        let Some(conn) = dp.conns.get_mut(id) else {
            dp.frames.pool.free(frame);
            return Err(NotHeld::Gone);
        };
        let furthest = ranges.iter().map(|range| range.offset + range.len as u64);
        if conn.is_starting() && furthest.max() > Some(in_order.max(FRAME_LEN_MAX as u64)) {
            dp.frames.pool.free(frame);
            return Err(NotHeld::StartupOverrun);
        }
        // A connection holds no more frames than it leaves to the others, so that no peer parks so
        // much that the next has to do without.
        let share = self.most.saturating_sub(dp.frames.held.count());
        let mut spare = conn.inbound.pieces() < share
            && dp.frames.pool.available() > dp.config.receive_reserve / 2;
        // Nobody knows how long a stream that waits for a receive keeps its frames.
        if !dp.holds.is_empty() && dp.frames.held.count() > self.most / HELD_SHARE {
            let qp = conn.qp().and_then(|qp| dp.qps.get(qp.0));
            spare &= !qp.is_some_and(|slot| slot.qp.is_held());
        }
        let arrived = conn
            .inbound
            .arrived(frame, ranges, in_order, spare, &mut dp.frames);
        dp.counters.bounced += u64::from(conn.inbound.is_bouncing());
        if arrived.is_err() {
            log::error!("TCP gave bytes outside its own window on {}", conn.tuple);
            return Err(NotHeld::OutsideWindow);
        }
        for range in ranges.iter().filter(|range| range.offset > in_order) {
            dp.counters.bytes_out_of_order += range.len as u64;
            conn.bytes_out_of_order += range.len as u64;
        }
        Ok(())
    }
}

/// Gives in-order data to its consumer.
pub(super) fn deliver<P: Port>(dp: &mut Datapath<P>, tx: &mut Tx, ctl: &mut Ctl, id: ConnId) {
    let Some(conn) = dp.conns.get_mut(id) else {
        return;
    };
    match conn.phase {
        // The event that makes a start-up of it comes first.
        Phase::HalfOpen => {}
        Phase::Requesting { .. } | Phase::AwaitRequest { .. } | Phase::Requested { .. } => {
            ctl.deliver_startup(dp, tx, id);
        }
        Phase::Rdma { qp } => {
            while dp.deliver_fpdus(id, qp.0) {}
            dp.note_hold(id, qp);
            ctl.update_conn(dp, tx, id);
        }
        Phase::Over => {
            while conn.inbound.available() > 0 || conn.inbound.next_placed().is_some() {
                let available = conn.inbound.available();
                conn.inbound.consume(available, &mut dp.frames);
                conn.inbound.consume_placed(&mut dp.frames);
            }
            dp.stack.consumed(id, conn.inbound.consumed_to());
        }
    }
}

impl<P: Port> Datapath<P> {
    /// Places whole FPDUs although bytes before them are missing, beginning near `offset` of the stream.
    /// `segment` is the length of the TCP segment that begins there, if one does. Returns true when there may
    /// be more of them.
    fn place_early(&mut self, id: ConnId, offset: u64, segment: Option<usize>) -> bool {
        let Some(conn) = self.conns.get_mut(id) else {
            return false;
        };
        let Phase::Rdma { qp } = conn.phase else {
            return false;
        };
        let Some(slot) = self.qps.get_mut(qp.0) else {
            return false;
        };
        // A segment stands for itself; by Markers, what came around it may make an FPDU whole.
        let (back, bytes) = match (slot.qp.fpdu_sign(), segment) {
            (FpduSign::Markers, _) => (SLICES_MAX / 2, None),
            (FpduSign::Segments, Some(len)) => (0, Some(len)),
            (FpduSign::Segments, None) | (FpduSign::Nothing, _) => return false,
        };
        let mut fpdus = [PlacedFpdu::default(); PLACED_AT_ONCE];
        let (start, count) = {
            let mut slices: [&[u8]; SLICES_MAX] = [&[]; SLICES_MAX];
            let run = conn.inbound.run(
                offset,
                back,
                &self.frames.umem,
                &self.frames.held,
                &mut slices,
            );
            let Some((start, filled)) = run else {
                return false;
            };
            if bytes.is_some() && start != offset {
                return false;
            }
            let slices = slices.get(..filled).unwrap_or(&[]);
            let slices = bytes.map_or(slices, |bytes| up_to(slices, bytes));
            let ahead = start - conn.inbound.consumed_to();
            let aligned = bytes.is_some() || conn.inbound.begins_at(&self.frames.held, start);
            let context = &mut self.tables.context(slot.tally, self.now);
            let count = slot
                .qp
                .place_early(context, slices, ahead, aligned, &mut fpdus);
            (start, count)
        };
        for fpdu in fpdus.iter().take(count) {
            let start = start + fpdu.from as u64;
            let placed = Placed {
                start,
                end: start + fpdu.len as u64,
                header: fpdu.header,
                ulpdu_len: fpdu.ulpdu_len,
            };
            conn.inbound.placed(placed, &mut self.frames);
            self.counters.bytes_placed_early += fpdu.len as u64;
        }
        count == PLACED_AT_ONCE
    }

    /// One round of bytes for a queue pair; true when there may be another.
    fn deliver_fpdus(&mut self, id: ConnId, qp: u32) -> bool {
        let Some(conn) = self.conns.get_mut(id) else {
            return false;
        };
        let Some(slot) = self.qps.get_mut(qp) else {
            return false;
        };
        if slot.qp.is_held() {
            return self.deliver_behind(id, qp);
        }
        if let Some(placed) = conn.inbound.next_placed() {
            let context = &mut self.tables.context(slot.tally, self.now);
            let len = placed.end - placed.start;
            slot.qp
                .deliver_placed(context, len, &placed.header, placed.ulpdu_len);
            conn.inbound.consume_placed(&mut self.frames);
            self.stack.consumed(id, conn.inbound.consumed_to());
            return true;
        }
        let mut slices: [&[u8]; SLICES_MAX] = [&[]; SLICES_MAX];
        let filled = conn
            .inbound
            .slices(&self.frames.umem, &self.frames.held, &mut slices);
        let slices = slices.get(..filled).unwrap_or(&[]);
        if conn.inbound.available() == 0 {
            return false;
        }
        let taken = slot
            .qp
            .receive(&mut self.tables.context(slot.tally, self.now), slices);
        if taken == 0 && slot.qp.is_held() {
            return true;
        }
        if taken == 0 && conn.inbound.reaches_placed() && filled < SLICES_MAX {
            slot.qp
                .marker_mismatch(&mut self.tables.context(slot.tally, self.now));
            return true;
        }
        if taken == 0 {
            // An FPDU in more pieces than one look shows: only tiny segments do that.
            let split = filled == SLICES_MAX && !conn.inbound.is_bouncing();
            if split {
                conn.inbound.start_bouncing(&mut self.frames);
            }
            return split;
        }
        conn.inbound.consume(taken, &mut self.frames);
        self.stack.consumed(id, conn.inbound.consumed_to());
        true
    }
}

/// The first of the slices that have so many bytes together.
fn up_to<'a, 'b>(slices: &'b [&'a [u8]], bytes: usize) -> &'b [&'a [u8]] {
    let mut left = bytes;
    let count = slices.iter().take_while(|slice| {
        let wanted = left > 0;
        left = left.saturating_sub(slice.len());
        wanted
    });
    slices.get(..count.count()).unwrap_or(&[])
}
