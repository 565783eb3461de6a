//! Frames from the ports: to TCP, and the octets that it finds new to whoever they are for.

use rnic_ipc::capture::Direction;
use rnic_ipc::control::DisconnectReason;
use rnic_net::Unusable;
use rnic_proto::mpa::startup::FRAME_LEN_MAX;
use rnic_xsk::{Frame, Port};
use userspace_tcp::{ConnId, ConnOptions, NEW_RANGES_MAX, Received, Segment};

use super::{RECEIVE_BATCH, Shard, memory};
use crate::conn::{Conn, Memory, NewRange, Phase, Placed, SLICES_MAX};
use crate::qp::{FpduSign, PLACED_AT_ONCE, PlacedFpdu};

impl<P: Port> Shard<P> {
    /// Takes a batch of frames from each port.
    pub(super) fn receive(&mut self) -> bool {
        let mut batch = std::mem::take(&mut self.batch);
        let mut worked = false;
        for index in 0..self.ports.len() {
            self.ports[index].receive(&mut self.pool, &mut batch, RECEIVE_BATCH);
            for frame in batch.drain(..) {
                worked = true;
                self.frame(frame, index);
            }
        }
        self.batch = batch;
        worked
    }

    fn frame(&mut self, frame: Frame, port: usize) {
        if !self.captures.is_empty() {
            let time = self.unix_now();
            self.captures
                .show(time, Direction::In, self.umem.bytes(&frame));
        }
        self.packet(frame, port);
    }

    pub(super) fn packet(&mut self, frame: Frame, port: usize) {
        let octets = self.umem.bytes(&frame);
        let mut parsed = match rnic_net::parse(octets, &self.config.path_defaults) {
            Ok(parsed) => parsed,
            Err(Unusable::Fragment) => return self.fragment(frame, port),
            Err(reason) => {
                self.counters.count_unusable(reason);
                return self.pool.free(frame);
            }
        };
        let local = parsed.tuple.local.addr;
        let Some(tag) = self.config.vlans.way_back(local, parsed.path.vlan) else {
            self.counters.wrong_vlan += 1;
            return self.pool.free(frame);
        };
        parsed.path.vlan = tag;
        // `parse` checked that the range lies within the frame.
        let tcp = octets.get(parsed.tcp.clone()).unwrap_or(&[]);
        let Ok(segment) = Segment::parse(tcp) else {
            self.counters.tcp_malformed += 1;
            return self.pool.free(frame);
        };
        let segment = segment.with_ecn(parsed.ecn);
        let tuple = parsed.tuple;
        let options = ConnOptions {
            mss: parsed.path.mss(tuple.remote.addr),
        };
        let received = self.stack.receive(self.now, tuple, &segment, options);
        let payload_at = parsed.tcp.end - segment.payload.len();
        match received.conn {
            Some(id) => {
                if self.conns.get(id).is_none() {
                    let window = self.config.tcp.receive_window;
                    let conn = Conn::new(id, tuple, parsed.path, port, window, Phase::HalfOpen);
                    self.adopt(conn);
                    self.set_deadline(id, self.config.startup_timeout);
                }
                if let Some(conn) = self.conns.get_mut(id) {
                    conn.port = port;
                }
            }
            None => self.link.remember(tuple, parsed.path, port),
        }
        // An event may introduce the connection whose octets came with it (the ACK that completes a
        // passive open), but the peer's FIN comes after the octets in its segment: the layer above
        // is told of it once they are delivered.
        self.introduce();
        match received.conn {
            Some(id) if !received.new.is_empty() => {
                self.take_octets(id, frame, &received, payload_at)
            }
            _ => self.pool.free(frame),
        }
        self.conclude();
        if let Some(id) = received.conn {
            // What was acknowledged may have opened room to send.
            self.make_ready(id);
        }
    }

    /// New octets of a connection, in order or not.
    fn take_octets(&mut self, id: ConnId, frame: Frame, received: &Received, payload_at: usize) {
        let mut ranges = [NewRange {
            offset: 0,
            start: 0,
            len: 0,
        }; NEW_RANGES_MAX];
        for (range, new) in ranges.iter_mut().zip(received.new.iter()) {
            *range = NewRange {
                offset: new.offset,
                start: payload_at + new.skip as usize,
                len: new.len as usize,
            };
        }
        let Some(ranges) = ranges.get_mut(..received.new.len()) else {
            return self.pool.free(frame);
        };
        let in_order = received.in_order_to;
        if let [range] = ranges
            && self.pass_through(id, &frame, range, in_order)
            && range.len == 0
        {
            self.pool.free(frame);
            return self.settle_conn(id);
        }
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
            let begins_segment = range.start == payload_at;
            while self.place_early(id, range.offset, begins_segment) {}
        }
        self.deliver(id);
    }

    /// The common case: nothing is held, and the next octets in order are in this frame. They are
    /// shown to the queue pair where they lie; `range` becomes what it left. False when it isn't
    /// the common case.
    fn pass_through(
        &mut self,
        id: ConnId,
        frame: &Frame,
        range: &mut NewRange,
        in_order: u64,
    ) -> bool {
        let Some(conn) = self.conns.get_mut(id) else {
            return false;
        };
        let Phase::Rdma { qp } = conn.phase else {
            return false;
        };
        let next = conn.inbound.consumed_to();
        if !conn.inbound.is_empty() || range.offset != next || in_order != next + range.len as u64 {
            return false;
        }
        let Some(slot) = self.qps.get_mut(&qp.0) else {
            return false;
        };
        let Some(octets) = self
            .umem
            .bytes(frame)
            .get(range.start..range.start + range.len)
        else {
            return false;
        };
        let taken = slot
            .qp
            .receive(&mut self.tables.context(slot.tally, self.now), &[octets])
            .min(range.len);
        conn.inbound.pass(taken);
        range.offset += taken as u64;
        range.start += taken;
        range.len -= taken;
        if taken > 0 {
            self.stack.consumed(id, conn.inbound.consumed_to());
        }
        true
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
    /// the stream, where a TCP segment begins or does not; true when there may be more of them there.
    fn place_early(&mut self, id: ConnId, offset: u64, begins_segment: bool) -> bool {
        let Some(conn) = self.conns.get_mut(id) else {
            return false;
        };
        let Phase::Rdma { qp } = conn.phase else {
            return false;
        };
        let Some(slot) = self.qps.get_mut(&qp.0) else {
            return false;
        };
        let by_segment = match slot.qp.fpdu_sign() {
            FpduSign::Markers => false,
            FpduSign::Segments if begins_segment => true,
            FpduSign::Segments | FpduSign::Nothing => return false,
        };
        // A segment stands for itself; by Markers, what came around it may make an FPDU whole.
        let (back, pieces) = match by_segment {
            true => (0, 1),
            false => (SLICES_MAX / 2, SLICES_MAX),
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
            if by_segment && start != offset {
                return false;
            }
            let slices = slices.get(..filled.min(pieces)).unwrap_or(&[]);
            let ahead = start - conn.inbound.consumed_to();
            let aligned = by_segment || conn.inbound.begins_at(&self.held, start);
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
        let Some(slot) = self.qps.get_mut(&qp) else {
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
