//! New octets of a connection: to whoever they are for, where they lie when it is their turn, and kept
//! until then when it is not.

use std::collections::VecDeque;

use rnic_ipc::control::DisconnectReason;
use rnic_proto::mpa::startup::FRAME_LEN_MAX;
use rnic_xsk::Port;
use userspace_tcp::{ConnId, NEW_RANGES_MAX, NewRange as NewOctets, Received};

use super::train::{CARS_MAX, Car};
use super::{Shard, memory};
use crate::conn::{Memory, NewRange, Phase, Placed, SLICES_MAX};
use crate::prefetch::fetch_line;
use crate::qp::{FpduSign, PLACED_AT_ONCE, PlacedFpdu, Sound};

impl<P: Port> Shard<P> {
    pub(super) fn drop_cars(&mut self, cars: &mut VecDeque<Car>, count: usize) {
        for car in cars.drain(..count) {
            self.pool.free(car.frame);
        }
    }

    /// New octets of a connection, in order or not.
    pub(super) fn take_octets(
        &mut self,
        id: ConnId,
        cars: &mut VecDeque<Car>,
        (count, chained): (usize, bool),
        received: &Received,
    ) {
        let mut left = *received;
        let passed = match &mut *left.new {
            [range] => {
                let cars = cars.iter().take(count);
                self.pass_through::<CARS_MAX>(id, cars, range, left.in_order_to)
            }
            _ => false,
        };
        if passed {
            if let Some(conn) = self.conns.get(id) {
                self.stack.consumed(id, conn.inbound.consumed_to());
            }
            self.drop_cars(cars, count);
            return self.settle_conn(id);
        }
        self.hold_octets(id, cars, (count, chained), &left);
    }

    /// Those of them that the queue pair did not take where they lie.
    pub(super) fn hold_octets(
        &mut self,
        id: ConnId,
        cars: &mut VecDeque<Car>,
        (count, chained): (usize, bool),
        &Received {
            new,
            in_order_to: in_order,
            ..
        }: &Received,
    ) {
        if let Some(conn) = self.conns.get(id) {
            self.stack.consumed(id, conn.inbound.consumed_to());
        }
        let end = new.iter().map(|range| (range.skip + range.len) as usize);
        let end = end.max().unwrap_or(0);
        let mut before = 0;
        for car in cars.drain(..count) {
            let mut ranges = [NewRange::default(); NEW_RANGES_MAX];
            let mut filled = 0;
            for range in new.iter() {
                let (start, len) = car.part(before, range);
                if let Some(place) = ranges.get_mut(filled).filter(|_| len > 0) {
                    let ahead = before.saturating_sub(range.skip as usize) as u64;
                    let offset = range.offset + ahead;
                    *place = NewRange { offset, start, len };
                    filled += 1;
                }
            }
            before += car.len;
            let ranges = ranges.get(..filled).unwrap_or(&[]);
            match ranges.last() {
                // What is behind is not here yet.
                Some(last) if before < end => {
                    let here = last.offset + last.len as u64;
                    self.hold(id, car, ranges, in_order.min(here), chained);
                }
                Some(_) => self.hold(id, car, ranges, in_order, chained),
                None => self.pool.free(car.frame),
            }
        }
        if chained {
            for range in new.iter().filter(|range| range.offset > in_order) {
                let segment = (range.skip == 0).then_some(range.len as usize);
                while self.place_early(id, range.offset, segment) {}
            }
            self.deliver(id);
        }
    }

    /// The common case: nothing is held, and the next octets in order are in these frames. They are
    /// shown to the queue pair where they lie; `new` is then what it did not take, which is all when it
    /// isn't the common case. Says whether nothing is left. TCP is to be told what is consumed. There are
    /// `N` frames at most.
    pub(super) fn pass_through<'a, const N: usize>(
        &mut self,
        id: ConnId,
        cars: impl Iterator<Item = &'a Car>,
        new: &mut NewOctets,
        in_order: u64,
    ) -> bool {
        let Some(conn) = self.conns.get_mut(id) else {
            return false;
        };
        let Phase::Rdma { qp } = conn.phase else {
            return false;
        };
        let next = conn.inbound.consumed_to();
        if !conn.inbound.is_empty() || new.offset != next || in_order != next + u64::from(new.len) {
            return false;
        }
        let Some(slot) = self.qps.get_mut(qp.0) else {
            return false;
        };
        // When they are taken it is asked whether it has something to send.
        fetch_line(slot.qp.posted_at());
        let mut slices: [&[u8]; N] = [&[]; N];
        let (mut before, mut filled, mut sound) = (0, 0, Sound::NONE);
        let (mut segments, mut begins) = (0, true);
        for (car, slice) in cars.zip(&mut slices) {
            let (start, len) = car.part(before, new);
            if car.sound && len == car.len {
                sound.add(filled, begins, car.goes_on);
            }
            let octets = self.umem.bytes(&car.frame);
            *slice = octets.get(start..start + len).unwrap_or(&[]);
            before += car.len;
            filled += 1;
            begins = !car.goes_on;
            segments += u64::from(begins);
        }
        if new.skip > 0 || new.len as usize != before {
            // Of a segment in several cars some may not be new.
            sound.joined = 0;
        }
        let slices = slices.get(..filled).unwrap_or(&[]);
        let context = &mut self.tables.context(slot.tally, self.now);
        let fpdus = context.counters.fpdus_received;
        let taken = slot.qp.receive_checked(context, slices, &sound);
        let fpdus = context.counters.fpdus_received - fpdus;
        self.segments_are_fpdus = fpdus == segments && slot.qp.checks_crc();
        // No more than there was, of which there were less than 2^32.
        let taken = taken.min(new.len as usize) as u32;
        conn.inbound.pass(taken as usize);
        new.offset += u64::from(taken);
        new.skip += taken;
        new.len -= taken;
        new.len == 0
    }

    /// Keeps the new octets of a frame until their turn has come, which may be now; `chained` when
    /// its segment goes on in other frames.
    fn hold(&mut self, id: ConnId, car: Car, ranges: &[NewRange], in_order: u64, chained: bool) {
        let Car { frame, start, .. } = car;
        let Some(conn) = self.conns.get_mut(id) else {
            return self.pool.free(frame);
        };
        let furthest = ranges.iter().map(|range| range.offset + range.len as u64);
        if conn.is_starting() && furthest.max() > Some(in_order.max(FRAME_LEN_MAX as u64)) {
            self.pool.free(frame);
            return self.startup_overrun(id);
        }
        // A connection holds no more frames than it leaves to the others, so that no peer parks so
        // much that the next has to do without.
        let share = self.parking.saturating_sub(self.held.count());
        let spare = conn.inbound.pieces() < share
            && self.pool.available() > self.config.receive_reserve / 2;
        let arrived = conn
            .inbound
            .arrived(frame, ranges, in_order, spare, &mut memory!(self));
        if conn.inbound.is_bouncing() {
            self.counters.bounced += 1;
        }
        if arrived.is_err() {
            log::error!("TCP gave octets outside its own window on {}", conn.tuple);
            return self.abort(id, DisconnectReason::LocalError, None);
        }
        for range in ranges.iter().filter(|range| range.offset > in_order) {
            self.counters.octets_out_of_order += range.len as u64;
            if let Some(conn) = self.conns.get_mut(id) {
                conn.octets_out_of_order += range.len as u64;
            }
            let segment = (range.start == start).then_some(range.len);
            while !chained && self.place_early(id, range.offset, segment) {}
        }
        if !chained {
            self.deliver(id);
        }
    }

    /// Gives what is in order to whoever it is for.
    pub(super) fn deliver(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(id) else {
            return;
        };
        match conn.phase {
            // The event that makes a start-up of it comes first.
            Phase::HalfOpen => {}
            Phase::Requesting { .. } | Phase::AwaitRequest { .. } | Phase::Requested { .. } => {
                self.deliver_startup(id);
            }
            Phase::Rdma { qp } => {
                while self.deliver_fpdus(id, qp.0) {}
                self.settle_conn(id);
            }
            Phase::Over => {
                while conn.inbound.available() > 0 || conn.inbound.next_placed().is_some() {
                    let available = conn.inbound.available();
                    conn.inbound.consume(available, &mut memory!(self));
                    conn.inbound.consume_placed(&mut memory!(self));
                }
                self.stack.consumed(id, conn.inbound.consumed_to());
            }
        }
    }

    /// Places FPDUs that are whole although octets before them are missing, from around `offset` of
    /// the stream, where a TCP segment of so many octets begins or does not; true when there may be
    /// more of them there.
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
        let (back, octets) = match (slot.qp.fpdu_sign(), segment) {
            (FpduSign::Markers, _) => (SLICES_MAX / 2, None),
            (FpduSign::Segments, Some(len)) => (0, Some(len)),
            (FpduSign::Segments, None) | (FpduSign::Nothing, _) => return false,
        };
        let mut fpdus = [PlacedFpdu::default(); PLACED_AT_ONCE];
        let (start, count) = {
            let mut slices: [&[u8]; SLICES_MAX] = [&[]; SLICES_MAX];
            let run = conn
                .inbound
                .run(offset, back, &self.umem, &self.held, &mut slices);
            let Some((start, filled)) = run else {
                return false;
            };
            if octets.is_some() && start != offset {
                return false;
            }
            let slices = slices.get(..filled).unwrap_or(&[]);
            let slices = octets.map_or(slices, |octets| up_to(slices, octets));
            let ahead = start - conn.inbound.consumed_to();
            let aligned = octets.is_some() || conn.inbound.begins_at(&self.held, start);
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
            conn.inbound.placed(placed, &mut memory!(self));
            self.counters.octets_placed_early += fpdu.len as u64;
        }
        count == PLACED_AT_ONCE
    }

    /// One round of octets for a queue pair; true when there may be another.
    fn deliver_fpdus(&mut self, id: ConnId, qp: u32) -> bool {
        let Some(conn) = self.conns.get_mut(id) else {
            return false;
        };
        let Some(slot) = self.qps.get_mut(qp) else {
            return false;
        };
        if let Some(placed) = conn.inbound.next_placed() {
            let context = &mut self.tables.context(slot.tally, self.now);
            let len = placed.end - placed.start;
            slot.qp
                .deliver_placed(context, len, &placed.header, placed.ulpdu_len);
            conn.inbound.consume_placed(&mut memory!(self));
            self.stack.consumed(id, conn.inbound.consumed_to());
            return true;
        }
        let mut slices: [&[u8]; SLICES_MAX] = [&[]; SLICES_MAX];
        let filled = conn.inbound.slices(&self.umem, &self.held, &mut slices);
        let slices = slices.get(..filled).unwrap_or(&[]);
        if conn.inbound.available() == 0 {
            return false;
        }
        let taken = slot
            .qp
            .receive(&mut self.tables.context(slot.tally, self.now), slices);
        if taken == 0 && conn.inbound.reaches_placed() && filled < SLICES_MAX {
            slot.qp
                .marker_mismatch(&mut self.tables.context(slot.tally, self.now));
            return true;
        }
        if taken == 0 {
            // An FPDU in more pieces than one look shows: only tiny segments do that.
            let split = filled == SLICES_MAX && !conn.inbound.is_bouncing();
            if split {
                conn.inbound.start_bouncing(&mut memory!(self));
            }
            return split;
        }
        conn.inbound.consume(taken, &mut memory!(self));
        self.stack.consumed(id, conn.inbound.consumed_to());
        true
    }
}

/// The first of the slices that have so many octets together.
fn up_to<'a, 'b>(slices: &'b [&'a [u8]], octets: usize) -> &'b [&'a [u8]] {
    let mut left = octets;
    let count = slices.iter().take_while(|slice| {
        let wanted = left > 0;
        left = left.saturating_sub(slice.len());
        wanted
    });
    slices.get(..count.count()).unwrap_or(&[])
}
