//! Segments go to TCP, and their bytes to the upper layer: in place when they are in order and a queue pair
//! takes them, otherwise parked ([`super::reorder`]).

use std::collections::VecDeque;

use rnic_ipc::control::Transport;
use rnic_xsk::{Port, Umem};
use userspace_net::Instant;
use userspace_tcp::{ConnId, ConnOptions, NewRange as NewBytes, Received, Segment};

use super::deferred::DeferredRx;
use super::gro::{self, FRAGS_MAX, Frag, GroBatch, Head};
use super::reorder::Parking;
use crate::conn::{Conn, Phase};
use crate::prefetch::fetch_line;
use crate::qp::CrcVerified;
use crate::shard::ctl::Ctl;
use crate::shard::datapath::Datapath;
use crate::shard::tx::Tx;
use crate::shard::tx::return_paths::ReturnPath;

/// The clock during a batch of one frame: read only if a connection asks for it. Delivery does not wait for
/// the clock, and the segment's RTT is sampled in the next poll, with the deferred work.
pub(in crate::shard) type LateClock<'a> = Option<&'a dyn Fn() -> Instant>;

/// What a batch of packets is received with.
pub(in crate::shard) struct RxContext<'a, P> {
    pub dp: &'a mut Datapath<P>,
    pub tx: &'a mut Tx,
    pub ctl: &'a mut Ctl,
    /// Where the batch came from.
    pub port: usize,
    pub clock: LateClock<'a>,
}

/// What segments are delivered with.
#[derive(Debug)]
pub(super) struct Delivery {
    /// Of what was received last, until the next poll has looked for an answer to it.
    pub deferred: DeferredRx,
    pub(super) parking: Parking,
}

impl Delivery {
    pub fn new<P>(dp: &Datapath<P>) -> Self {
        Self {
            deferred: DeferredRx::default(),
            parking: Parking::new(dp),
        }
    }

    /// Gives the segments of a batch, if there are any, to TCP, as one if it takes them so.
    #[inline]
    pub(super) fn flush_gro<P: Port>(
        &mut self,
        context: &mut RxContext<'_, P>,
        gro: &mut GroBatch,
    ) {
        if !gro.is_empty() {
            self.deliver_batch(context, gro);
        }
    }

    #[inline(never)]
    fn deliver_batch<P: Port>(&mut self, context: &mut RxContext<'_, P>, gro: &mut GroBatch) {
        let Some((mut head, predicted, frags)) = gro.take() else {
            return;
        };
        self.deferred.run(context.dp, context.tx, context.ctl);
        let id = context.dp.stack.connection_at(&head.tuple, head.hint);
        if !context.dp.comes_by_its_port(id, &head) {
            context.dp.counters.rx_martians += 1;
            let frames = frags.drain(..).map(|frag| frag.frame);
            return frames.for_each(|frame| context.dp.frames.pool.free(frame));
        }
        // It comes to another shard, and is handed over, before its connection is. Sent again it is known.
        if id.is_none() && context.dp.expects(&head.tuple) {
            let frames = frags.drain(..).map(|frag| frag.frame);
            return frames.for_each(|frame| context.dp.frames.pool.free(frame));
        }
        let several = frags.len() > gro::frags_of_first(frags);
        // Predicted headers are of a connection.
        if !predicted {
            let ctl = &mut *context.ctl;
            let flow = (Transport::Tcp, &head.tuple);
            if may_begin(id, &head) && ctl.refuses_peer(context.dp, flow, head.port) {
                let frames = frags.drain(..).map(|frag| frag.frame);
                return frames.for_each(|frame| context.dp.frames.pool.free(frame));
            }
            if let (Some(id), Some(first)) = (id, frags.front()) {
                context.dp.learn(id, &head, first, several);
            }
        }
        let all = frags.len();
        if let Some(id) = id
            && self.deliver_in_order(context, id, &head, (frags, all))
        {
            return;
        }
        if let Some(clock) = context.clock {
            context.dp.advance(clock());
        }
        let together = several
            && context
                .dp
                .stack
                .takes_together(&head.tuple, head.hint, head.header.seq);
        while !frags.is_empty() {
            let count = match together {
                true => frags.len(),
                false => gro::frags_of_first(frags),
            };
            let bytes: usize = frags.iter().take(count).map(|frag| frag.len).sum();
            self.deliver_any(context, &head, frags, count);
            // The segments after it are of one flow without a gap.
            head.header.seq = head.header.seq.add(bytes as u32);
        }
    }

    /// Delivers segments that are the next in order and say nothing else but an acknowledgment, before
    /// TCP takes that. False, and nothing is done: they are for [`Self::deliver_any`]. Nothing is deferred.
    fn deliver_in_order<P: Port>(
        &mut self,
        context: &mut RxContext<'_, P>,
        id: ConnId,
        head: &Head,
        (frags, count): (&mut VecDeque<Frag>, usize),
    ) -> bool {
        let RxContext { dp, tx, ctl, .. } = context;
        let (segment, chained) = segment(&dp.frames.umem, head, frags, count);
        let run = segment.run();
        let Some(in_order) = dp.stack.in_order(dp.now, id, &segment) else {
            return false;
        };
        let Some(conn) = dp.conns.get_mut(id) else {
            return false;
        };
        let Some(deferred) = dp.stack.commit(dp.now, &in_order, run) else {
            return false;
        };
        conn.came_from(head.port);
        let mut received = deferred.received();
        self.deferred.leave(deferred, dp.now);
        let delivered = match &mut *received.new {
            [range] => {
                dp.deliver_in_place(id, frags.iter().take(count), range, received.in_order_to)
            }
            _ => false,
        };
        if delivered {
            if count == 1 {
                self.deferred.keep(frags.pop_front().map(|frag| frag.frame));
                return true;
            }
            dp.free_frags(frags, count);
        } else {
            self.parking
                .park(dp, tx, ctl, id, (frags, count, chained), &received);
            ctl.handle_close_events(dp, tx);
            tx.make_ready(dp, id);
        }
        if count > 1 {
            self.deferred.run(dp, tx, ctl);
        }
        true
    }

    /// Delivers the first `count` fragments as TCP receives their segments, taken as one. Nothing is
    /// deferred.
    fn deliver_any<P: Port>(
        &mut self,
        context: &mut RxContext<'_, P>,
        head: &Head,
        frags: &mut VecDeque<Frag>,
        count: usize,
    ) {
        let RxContext { dp, tx, ctl, .. } = context;
        let &Head {
            tuple,
            hint,
            path,
            port,
            ..
        } = head;
        let (segment, chained) = segment(&dp.frames.umem, head, frags, count);
        let options = ConnOptions {
            mss: path.mss(tuple.remote.addr),
        };
        let received = dp.stack.receive_at(dp.now, tuple, hint, &segment, options);
        match received.conn {
            Some(id) => {
                if dp.conns.get(id).is_none() {
                    let window = dp.config.tcp.receive_window;
                    let conn = Conn::new(id, tuple, path, port, window, Phase::HalfOpen);
                    ctl.adopt(dp, tx, conn);
                    let patience = dp.config.startup_timeout;
                    ctl.set_deadline(dp, id, patience);
                }
                if let Some(conn) = dp.conns.get_mut(id) {
                    conn.came_from(port);
                }
            }
            None => tx
                .link
                .return_paths
                .remember(tuple, ReturnPath::Open(path, port)),
        }
        // The ACK that completes a passive open may carry bytes, so the event that introduces the connection
        // comes first. The peer's FIN comes after the bytes in its segment, so the upper layer is notified of it
        // once they are delivered.
        ctl.handle_open_events(dp, tx);
        match received.conn {
            Some(id) if !received.new.is_empty() => {
                self.deliver_new(dp, tx, ctl, id, (frags, count, chained), &received);
            }
            _ => dp.free_frags(frags, count),
        }
        ctl.handle_close_events(dp, tx);
        if let Some(id) = received.conn {
            // What was acknowledged may have opened room to send.
            tx.make_ready(dp, id);
        }
    }

    /// New bytes of a connection, in order or not.
    fn deliver_new<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        ctl: &mut Ctl,
        id: ConnId,
        (frags, count, chained): (&mut VecDeque<Frag>, usize, bool),
        received: &Received,
    ) {
        let mut left = *received;
        let delivered = match &mut *left.new {
            [range] => dp.deliver_in_place(id, frags.iter().take(count), range, left.in_order_to),
            _ => false,
        };
        if !delivered {
            return self
                .parking
                .park(dp, tx, ctl, id, (frags, count, chained), &left);
        }
        if let Some(conn) = dp.conns.get(id) {
            dp.stack.consumed(id, conn.inbound.consumed_to());
        }
        dp.free_frags(frags, count);
        ctl.update_conn(dp, tx, id);
    }
}

impl<P: Port> Datapath<P> {
    pub(super) fn free_frags(&mut self, frags: &mut VecDeque<Frag>, count: usize) {
        for frag in frags.drain(..count) {
            self.frames.pool.free(frag.frame);
        }
    }

    /// The common case: nothing is parked, and the next bytes in order are in these frames. They are
    /// shown to the queue pair where they lie; `new` is then what it did not take, which is all when it
    /// isn't the common case. Says whether nothing is left. TCP is to be told what is consumed.
    fn deliver_in_place<'a>(
        &mut self,
        id: ConnId,
        frags: impl Iterator<Item = &'a Frag>,
        new: &mut NewBytes,
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
        let mut slices: [&[u8]; FRAGS_MAX] = [&[]; FRAGS_MAX];
        let (mut before, mut filled, mut verified) = (0, 0, CrcVerified::NONE);
        let (mut segments, mut begins) = (0, true);
        for (frag, slice) in frags.zip(&mut slices) {
            let (start, len) = frag.part(before, new);
            if frag.crc_verified && len == frag.len {
                verified.add(filled, begins, frag.goes_on);
            }
            let bytes = self.frames.umem.bytes(&frag.frame);
            *slice = bytes.get(start..start + len).unwrap_or(&[]);
            before += frag.len;
            filled += 1;
            begins = !frag.goes_on;
            segments += u64::from(begins);
        }
        if new.skip > 0 || new.len as usize != before {
            // Of a segment in several frames some may not be new.
            verified.joined = 0;
        }
        let slices = slices.get(..filled).unwrap_or(&[]);
        let context = &mut self.tables.context(slot.tally, self.now);
        let fpdus = context.counters.fpdus_received;
        let taken = slot.qp.receive_checked(context, slices, &verified);
        let fpdus = context.counters.fpdus_received - fpdus;
        if let Some(prediction) = &mut conn.prediction {
            prediction.segments_are_fpdus = fpdus == segments && slot.qp.checks_crc();
        }
        // No more than there was, of which there were less than 2^32.
        let taken = taken.min(new.len as usize) as u32;
        conn.inbound.pass(taken as usize);
        new.offset += u64::from(taken);
        new.skip += taken;
        new.len -= taken;
        new.len == 0
    }
}

impl<P: Port> Datapath<P> {
    /// Whether a segment arrived by the right port. A connection's segments must come over its own medium,
    /// and one of no connection must be from a host.
    fn comes_by_its_port(&self, id: Option<ConnId>, head: &Head) -> bool {
        match id.and_then(|id| self.conns.get(id)) {
            Some(conn) => self.are_of_one_medium(conn.port(), head.port),
            None => self.comes_from_a_host(head.port, &head.tuple),
        }
    }
}

/// Whether a segment may begin a connection: it is of none, as a SYN and the ACK that brings back a SYN cookie
/// are, or a SYN for one in TIME-WAIT.
fn may_begin(id: Option<ConnId>, head: &Head) -> bool {
    let flags = head.header.flags;
    id.is_none() || flags.syn() && !flags.ack()
}

/// The segments of the first `count` fragments as one, and whether some segment has several fragments.
fn segment<'a>(
    umem: &'a Umem,
    head: &Head,
    frags: &'a VecDeque<Frag>,
    count: usize,
) -> (Segment<'a>, bool) {
    let first = frags.front().map_or(&[][..], |frag| frag.payload(umem));
    let following = gro::following(frags.iter().take(count));
    let chained = following.segments as usize + 1 < count;
    let segment = Segment::new(head.header, first)
        .with_ecn(head.ecn)
        .with_coalesced(following);
    (segment, chained)
}
