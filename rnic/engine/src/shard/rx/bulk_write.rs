//! Bulk receive path for consecutive in-order Writes of one connection. Each segment has predicted headers,
//! is next in order, and is one FPDU of a Write. Each is verified and placed before the next is examined,
//! while its bytes are in the cache. Work that does not depend on a single segment, such as TCP's
//! bookkeeping, is done once for all of them.
//!
//! The same code decides as for other segments: header prediction, TCP ([`userspace_tcp::Stack::in_order`]),
//! the queue pair. This path stops at the first segment that is out of order, has a bad CRC, or is no Write
//! that may be placed. That segment takes the general path.

use rnic_ipc::control::DisconnectReason;
use rnic_net::Match;
use rnic_proto::crc::RESIDUE;
use rnic_xsk::{Packet, Port, Umem};
use userspace_tcp::{Segment, SegmentRun, SeqNum, TcpHeader};

use super::classify::{Predicted, only_continues};
use super::deliver::{Delivery, RxContext};
use crate::conn::{Learnt, Phase, Prediction};
use crate::prefetch::{fetch_first, fetch_line};
use crate::qp::{Piece, WriteProgress, is_write};
use crate::shard::datapath::Datapath;

/// Cache lines of the next frame that are prefetched while the current one is processed: its headers, and
/// enough for the hardware prefetcher to detect a sequential read.
const FETCHED_AHEAD: usize = 3;

/// The payloads of segments that only continue each other, each found sound, and none looked at before it
/// is asked for.
struct Verified<'a> {
    /// The bytes of the next one's frame, if there is one that lies in one frame.
    next: Option<&'a [u8]>,
    /// The packets after it.
    packets: std::slice::Iter<'a, Packet>,
    umem: &'a Umem,
    learnt: &'a Learnt,
    port: usize,
    /// What the next one says, if that is known.
    like: Option<Match>,
    first: &'a TcpHeader,
    /// Where the next one begins.
    seq: SeqNum,
    /// So many bytes may still come.
    room: u32,
}

impl<'a> Verified<'a> {
    /// The bytes of the next frame, whose first lines are fetched, if its packet has no other.
    #[inline(always)]
    fn next_frame(&mut self) -> Option<&'a [u8]> {
        let packet = self.packets.next().filter(|packet| packet.is_single())?;
        let bytes = self.umem.bytes(packet.first());
        fetch_first::<FETCHED_AHEAD>(bytes);
        Some(bytes)
    }
}

impl<'a> Iterator for Verified<'a> {
    type Item = Piece<'a>;

    #[inline(always)]
    fn next(&mut self) -> Option<Piece<'a>> {
        let frame = self.next?;
        self.next = self.next_frame();
        let like = match self.like.take() {
            Some(like) => like,
            None => self.learnt.compare(frame, self.port)?,
        };
        let bytes = frame.get(like.says.payload.clone())?;
        let says = &like.says;
        // A packet has less than 65536.
        let len = bytes.len() as u32;
        let continues = only_continues(says, self.first, self.seq);
        if !is_write(bytes) || !continues || len > self.room || !is_verified(&like, bytes) {
            return None;
        }
        self.seq = self.seq.add(len);
        self.room -= len;
        Some(Piece {
            bytes,
            crc_verified: true,
        })
    }
}

/// Whether a frame's checksum is right, and its payload ends with the CRC of what is before.
#[inline(always)]
fn is_verified(like: &Match, payload: &[u8]) -> bool {
    let checks = rnic_crc::check(0, payload);
    checks.crc == RESIDUE && like.is_right_with(checks.sum)
}

impl Delivery {
    /// Places the Writes at the front of packets from a port, of which the first is predicted; returns how
    /// many. The rest of their processing is deferred; other segments are not touched.
    // By itself its code lies together.
    #[inline(never)]
    pub(super) fn receive_writes<P: Port>(
        &mut self,
        context: &mut RxContext<'_, P>,
        predicted: &Predicted,
        packets: &[Packet],
    ) -> usize {
        let RxContext {
            dp, tx, ctl, port, ..
        } = context;
        let port = *port;
        let (id, like) = (predicted.id, &predicted.like);
        self.deferred.run(dp, tx, ctl);
        let Some(conn) = dp.conns.get_mut(id) else {
            return 0;
        };
        let learnt = conn.prediction.as_deref().and_then(Prediction::learnt);
        let (&Phase::Rdma { qp }, Some(learnt)) = (&conn.phase, learnt) else {
            return 0;
        };
        let Some(slot) = dp.qps.get_mut(qp.0) else {
            return 0;
        };
        let frame = packets
            .first()
            .map(|packet| dp.frames.umem.bytes(packet.first()));
        let payload = frame.and_then(|frame| frame.get(like.says.payload.clone()));
        let payload = payload.unwrap_or(&[]);
        let segment = Segment::new(learnt.header(&like.says), payload).with_ecn(learnt.ecn);
        let Some(in_order) = dp.stack.in_order(dp.now, id, &segment) else {
            return 0;
        };
        let next = conn.inbound.is_empty() && conn.inbound.consumed_to() == in_order.offset();
        if !next || !slot.qp.checks_crc() {
            return 0;
        }
        // When they are taken it is asked whether it has something to send.
        fetch_line(slot.qp.posted_at());
        let mut pieces = Verified {
            next: None,
            packets: packets.iter(),
            umem: &dp.frames.umem,
            learnt,
            port,
            like: Some(like.clone()),
            seq: like.says.seq,
            first: &segment.header,
            room: in_order.room(),
        };
        pieces.next = pieces.next_frame();
        let context = &mut dp.tables.context(slot.tally, dp.now);
        let run: WriteProgress = slot.qp.receive_writes(context, pieces);
        if run.pieces == 0 {
            return 0;
        }
        conn.inbound.pass(run.bytes);
        conn.came_from(port);
        let taken = SegmentRun {
            bytes: run.bytes as u32,
            segments: run.pieces as u32,
            longest: run.longest as u32,
        };
        match dp.stack.commit(dp.now, &in_order, taken) {
            Some(deferred) => self.deferred.leave(deferred, dp.now),
            // Nothing has come since it said that they are in order.
            None => {
                log::error!("TCP did not take Writes in order on {}", conn.tuple);
                ctl.abort(dp, tx, id, DisconnectReason::LocalError, None);
            }
        }
        run.pieces
    }

    /// The frames of placed Writes: a single one is freed with its deferred work.
    pub(super) fn defer_writes<P: Port>(
        &mut self,
        context: &mut RxContext<'_, P>,
        mut packets: impl Iterator<Item = Packet>,
        count: usize,
    ) {
        let RxContext { dp, tx, ctl, .. } = context;
        if count == 1 && self.deferred.is_waiting() {
            let frame = packets.next().and_then(|packet| packet.into_single().ok());
            return self.deferred.keep(frame);
        }
        dp.frames.pool.free_singles(packets);
        self.deferred.run(dp, tx, ctl);
    }
}

impl<P: Port> Datapath<P> {
    /// Whether a predicted packet looks like a Write's that may be [received so](Delivery::receive_writes).
    #[inline]
    pub(super) fn is_write(&self, predicted: &Predicted, packet: &Packet) -> bool {
        let says = &predicted.like.says;
        let payload = || {
            self.frames
                .umem
                .bytes(packet.first())
                .get(says.payload.clone())
        };
        predicted.segments_are_fpdus && packet.is_single() && payload().is_some_and(is_write)
    }
}
