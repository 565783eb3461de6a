//! Writes in turn: most of what ever comes in bulk. Segments of a flow that is known, the next in order,
//! each an FPDU of a Write, are verified and placed one after the other, each while its octets are still
//! near; and all that does not hang on a single one, TCP's books included, is done once for all of them.
//!
//! What decides is what decides of other segments: [`KnownHeaders`], TCP
//! ([`userspace_tcp::Stack::in_order`]), the queue pair. What is anything else is left to them: at
//! the first segment that is not the next in order, or not sound, or no Write that may be placed, it is
//! over.

use std::ops::Range;

use rnic_ipc::control::DisconnectReason;
use rnic_net::{KnownHeaders, Like};
use rnic_proto::crc::RESIDUE;
use rnic_xsk::{Packet, Port, Umem};
use userspace_tcp::{ConnId, InOrder, Segment, SegmentRun, SeqNum, StreamOffset, TcpHeader};

use super::Shard;
use super::train::{Head, Train};
use crate::conn::Phase;
use crate::prefetch::{fetch_first, fetch_line};
use crate::qp::{Piece, Run, is_tagged};

/// Lines of the next frame that are fetched while one is looked at: its headers, and as many as it takes
/// until the processor sees by itself that octets are read in their order.
const FETCHED_AHEAD: usize = 3;

/// The payloads of segments that only continue each other, each found sound, and none looked at before it
/// is asked for.
struct Sound<'a> {
    /// The octets of the next one's frame, if there is one that lies in one frame.
    next: Option<&'a [u8]>,
    /// Those behind it.
    packets: std::slice::Iter<'a, Packet>,
    umem: &'a Umem,
    headers: &'a KnownHeaders,
    /// The header of the first.
    first: TcpHeader,
    /// Where the next one begins.
    seq: SeqNum,
    /// So many octets may still come.
    room: u32,
}

impl<'a> Sound<'a> {
    fn new(
        batch: &'a [Packet],
        umem: &'a Umem,
        headers: &'a KnownHeaders,
        first: TcpHeader,
        room: u32,
    ) -> Self {
        let mut sound = Self {
            next: None,
            packets: batch.iter(),
            umem,
            headers,
            seq: first.seq,
            first,
            room,
        };
        sound.next = sound.next_frame();
        sound
    }

    /// The octets of the next frame, whose first lines are fetched, if its packet has no other.
    #[inline(always)]
    fn next_frame(&mut self) -> Option<&'a [u8]> {
        let packet = self.packets.next().filter(|packet| packet.is_single())?;
        let octets = self.umem.bytes(packet.first());
        fetch_first::<FETCHED_AHEAD>(octets);
        Some(octets)
    }
}

impl<'a> Iterator for Sound<'a> {
    type Item = Piece<'a>;

    #[inline(always)]
    fn next(&mut self) -> Option<Piece<'a>> {
        let frame = self.next?;
        self.next = self.next_frame();
        let (like, octets) = tagged_fpdu(self.headers, frame)?;
        let says = &like.says;
        // A packet has less than 65536.
        let len = octets.len() as u32;
        let continues = says.seq == self.seq
            && self
                .first
                .is_only_continued(says.ack, says.window, says.flags);
        if !continues || len > self.room || !is_sound(&like, octets) {
            return None;
        }
        self.seq = self.seq.add(len);
        self.room -= len;
        Some(Piece {
            octets,
            sound: true,
        })
    }
}

/// What a frame says that has these headers, and its payload, if that is the FPDU of a Write by its
/// look. Nothing of it is to be believed before it [is sound](is_sound).
#[inline(always)]
pub(super) fn tagged_fpdu<'a>(headers: &KnownHeaders, frame: &'a [u8]) -> Option<(Like, &'a [u8])> {
    let like = headers.compare(frame)?;
    let octets = frame.get(like.says.payload.clone())?;
    is_tagged(octets).then_some((like, octets))
}

/// Whether a frame's checksum is right, and its payload ends with the CRC of what is before.
#[inline(always)]
pub(super) fn is_sound(like: &Like, payload: &[u8]) -> bool {
    let checks = rnic_crc::check(0, payload);
    checks.crc == RESIDUE && like.is_right_with(checks.sum)
}

impl<P: Port> Shard<P> {
    /// Takes in the segments at the front of a batch from a port that are Writes in turn; says how many.
    pub(super) fn take_in_turn(&mut self, batch: &[Packet], train: &Train, port: usize) -> usize {
        // One alone is taken before its acknowledgment.
        if batch.len() < 2 || !self.segments_are_fpdus {
            return 0;
        }
        let (Some((known, headers)), Some(first)) = (train.known(port), batch.first()) else {
            return 0;
        };
        let frame = self.umem.bytes(first.first());
        let Some(says) = headers.compare(frame).map(|like| like.says) else {
            return 0;
        };
        let first = says.payload.clone();
        if !frame.get(first.clone()).is_some_and(is_tagged) {
            return 0;
        }
        let head = known.saying(&says);
        self.do_rest();
        let Some(expected) = self.expects(&head, batch, first) else {
            return 0;
        };
        let run = self.place_in_turn(&expected, batch, &head, headers);
        if run.pieces > 0 {
            self.account_for(&head, &expected, &run);
        }
        run.pieces
    }

    /// Whether TCP expects the octets of the first segment, whose payload is there.
    fn expects(&self, head: &Head, batch: &[Packet], payload: Range<usize>) -> Option<InOrder> {
        let octets = self.umem.bytes(batch.first()?.first()).get(payload)?;
        let segment = Segment::new(head.header, octets).with_ecn(head.ecn);
        let id = self.stack.connection_at(&head.tuple, head.likely)?;
        self.stack.in_order(self.now, id, &segment)
    }

    /// Shows the octets that TCP expects to their queue pair, if there is one that takes them where they
    /// lie.
    fn place_in_turn(
        &mut self,
        expected: &InOrder,
        batch: &[Packet],
        head: &Head,
        headers: &KnownHeaders,
    ) -> Run {
        self.place_pieces(expected.conn(), expected.offset(), head.port, |umem| {
            Sound::new(batch, umem, headers, head.header, expected.room())
        })
    }

    /// Shows octets that are the next in order, `offset` in the stream, to the connection's queue pair,
    /// if there is one that takes them where they lie.
    #[inline(always)]
    pub(super) fn place_pieces<'a, I: Iterator<Item = Piece<'a>>>(
        &'a mut self,
        id: ConnId,
        offset: StreamOffset,
        port: usize,
        pieces: impl FnOnce(&'a Umem) -> I,
    ) -> Run {
        let Some(conn) = self.conns.get_mut(id) else {
            return Run::default();
        };
        let Phase::Rdma { qp } = conn.phase else {
            return Run::default();
        };
        let Some(slot) = self.qps.get_mut(qp.0) else {
            return Run::default();
        };
        let next = conn.inbound.is_empty() && conn.inbound.consumed_to() == offset;
        if !next || !slot.qp.checks_crc() {
            return Run::default();
        }
        // When they are taken it is asked whether it has something to send.
        fetch_line(slot.qp.posted_at());
        let context = &mut self.tables.context(slot.tally, self.now);
        let run = slot.qp.receive_in_turn(context, pieces(&self.umem));
        conn.inbound.pass(run.octets);
        conn.port = port;
        run
    }

    /// Gives TCP the segments whose bytes are in their place.
    fn account_for(&mut self, head: &Head, in_order: &InOrder, run: &Run) {
        let id = in_order.conn();
        let run = SegmentRun {
            bytes: run.octets as u32,
            segments: run.pieces as u32,
            longest: run.longest as u32,
        };
        let Some(deferred) = self.stack.commit(self.now, in_order, run) else {
            log::error!(
                "TCP expected octets on {} and did not take them",
                head.tuple
            );
            return self.abort(id, DisconnectReason::LocalError, None);
        };
        self.stack.finish(self.now, &deferred);
        self.stack.consumed(id, deferred.end());
        self.introduce();
        self.settle_conn(id);
        self.conclude();
        self.make_ready(id);
    }
}
