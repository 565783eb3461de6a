//! A segment alone: the octets of one that came by itself are where they belong before anything else is
//! done that it brings with it. Whoever waits for them, and the peer that waits for the answer, wait for
//! what decides whether they may be placed, and for nothing else: the rest ([`Rest`]) is done behind.

use std::collections::VecDeque;
use std::time::Duration;

use rnic_net::Recognised;
use rnic_xsk::{Frame, Packet, Port};
use userspace_tcp::{ConnId, DeferredAck, Instant, Segment, SegmentRun, Stack};

use super::Shard;
use super::in_turn::{is_sound, tagged_fpdu};
use super::train::{Car, Head, Headers, RxSegment, Train};
use crate::prefetch::fetch_first;
use crate::qp::Piece;

/// What is left to be done of the last segment that was received, whose octets are where they belong:
/// the acknowledgment that it brought, what its queue pair asks for, and its frame. Whoever waits for
/// the octets, and the peer that waits for the answer, don't wait for that.
#[derive(Debug, Default)]
pub(super) struct Rest {
    owed: Option<DeferredAck>,
    frame: Option<Frame>,
    /// When the poll began that found the segment.
    since: Instant,
}

impl Rest {
    /// Whether the segment came longer ago than its rest may wait for what answers it.
    pub(super) fn is_late(&self, now: Instant) -> bool {
        self.is_waiting() && now.saturating_duration_since(self.since) > REST_PATIENCE
    }

    /// So much is left of a segment whose octets are in their place.
    #[inline]
    fn leave(&mut self, owed: DeferredAck, frame: Frame, now: Instant) {
        self.owed = Some(owed);
        self.frame = Some(frame);
        self.since = now;
    }

    /// What TCP still has to do of it, if there is any.
    pub(super) fn owed(&self) -> Option<&DeferredAck> {
        self.owed.as_ref()
    }

    /// Whether there is any.
    pub(super) fn is_waiting(&self) -> bool {
        self.owed.is_some()
    }
}

/// For so long the rest of a segment waits for what answers it: no time for TCP, whose clock runs on.
const REST_PATIENCE: Duration = Duration::from_micros(100);

/// So many cache lines of a segment alone are fetched before its headers are looked at: those, and a
/// short message.
const LINES_AHEAD: usize = 4;

impl<P: Port> Shard<P> {
    /// Takes in a batch of one packet, before time goes on if TCP takes its octets first.
    #[inline]
    pub(super) fn take_alone(&mut self, port: usize, clock: &impl Fn() -> Instant) {
        if !self.take_write(port) {
            self.take_other(port, clock);
        }
    }

    /// Takes the octets of a packet alone if its headers are known, its payload is sound and an FPDU as
    /// that of a Write, and TCP takes them before the acknowledgment that comes with them; else nothing is
    /// done, and it says so. Nothing is set up for packets that could be behind it. No rest is waiting.
    // By itself its code lies together.
    #[inline(never)]
    fn take_write(&mut self, port: usize) -> bool {
        if !self.segments_are_fpdus {
            return false;
        }
        let (Some(packet), Some(train)) = (self.batch.first(), self.train.as_deref()) else {
            return false;
        };
        let Some((known, headers)) = train.known(port).filter(|_| packet.is_single()) else {
            return false;
        };
        let frame = self.umem.bytes(packet.first());
        // Another core wrote it: what is read of it later comes while its headers are looked at.
        fetch_first::<LINES_AHEAD>(frame);
        let tagged = tagged_fpdu(headers, frame);
        let Some((like, payload)) = tagged.filter(|(like, payload)| is_sound(like, payload)) else {
            return false;
        };
        let header = known.saying(&like.says).header;
        let segment = Segment::new(header, payload).with_ecn(known.ecn);
        let Some(id) = known.likely.conn() else {
            return false;
        };
        let Some(owed) = commit_one(&mut self.stack, self.now, id, &segment) else {
            return false;
        };
        let Some(packet) = self.batch.pop() else {
            return false;
        };
        let Recognised { payload, .. } = like.says;
        let offset = owed.end() - payload.len() as u64;
        let run = self.place_pieces(owed.conn(), offset, port, |umem| {
            let octets = umem.bytes(packet.first()).get(payload.clone());
            octets.into_iter().map(|octets| Piece {
                octets,
                sound: true,
            })
        });
        // A Write is an FPDU by itself: of its octets all are taken, or none.
        if run.pieces == 0 {
            self.pass_on_write(RxSegment::new(packet, &payload, true), port, owed);
        } else if let Ok(frame) = packet.into_single() {
            self.rest.leave(owed, frame, self.now);
        }
        true
    }

    /// The octets of a segment that [`Self::take_write`] did not place.
    #[cold]
    fn pass_on_write(&mut self, segment: RxSegment, port: usize, owed: DeferredAck) {
        let mut train = self.train.take().unwrap_or_default();
        self.pass_on_alone(segment, port, train.cars(), owed);
        self.train = Some(train);
    }

    /// The octets of a segment alone, of which all else is owed, to whoever they are for.
    fn pass_on_alone(
        &mut self,
        segment: RxSegment,
        port: usize,
        cars: &mut VecDeque<Car>,
        owed: DeferredAck,
    ) {
        match segment.into_car() {
            Ok(car) => self.octets_first(port, car, cars, owed),
            Err(packet) => self.pool.free_packet(packet),
        }
    }

    /// Takes in a batch of one packet of any other kind.
    #[inline(never)]
    fn take_other(&mut self, port: usize, clock: &impl Fn() -> Instant) {
        let single = self.batch.first().is_some_and(Packet::is_single);
        if !single {
            self.advance(clock());
            return self.take_batch(port);
        }
        let Some(packet) = self.batch.pop() else {
            return;
        };
        let mut train = self.train.take().unwrap_or_default();
        if let Some(head) = self.take_first(&mut train, packet, port) {
            self.advance(clock());
            self.take_segments(&head, train.cars(), 1);
        }
        self.train = Some(train);
    }

    /// Takes the octets of a packet alone, in one frame, if TCP takes them before the acknowledgment that
    /// comes with them. If not, and it is of use, it is in the train's place, and here is its head. No
    /// rest is waiting.
    fn take_first(&mut self, train: &mut Train, packet: Packet, port: usize) -> Option<Head> {
        let Some((found, sound)) = self.recognise(train, &packet, port) else {
            self.take_parsed(train, packet, port);
            let (head, cars) = train.take()?;
            return (!self.take_octets_first(&head, cars)).then_some(head);
        };
        // Nothing is set up for segments that could be behind it.
        let octets = self.umem.bytes(packet.first());
        if let Some((known, header)) = train.head_of(&found)
            && let Some(payload) = octets.get(found.payload.clone())
        {
            let segment = Segment::new(header, payload).with_ecn(known.ecn);
            let id = self.stack.connection_at(&known.tuple, known.likely);
            let owed = id.and_then(|id| commit_one(&mut self.stack, self.now, id, &segment));
            if let Some(owed) = owed {
                let segment = RxSegment::new(packet, &found.payload, sound);
                self.pass_on_alone(segment, port, train.cars(), owed);
                return None;
            }
        }
        let segment = RxSegment::new(packet, &found.payload, sound);
        self.couple(train, Headers::Recognised(&found), segment);
        train.take().map(|(head, _)| head)
    }

    /// Takes the octets of the segment in the first car, if TCP takes them before the acknowledgment
    /// that comes with them; says whether it does. No rest is waiting.
    pub(super) fn take_octets_first(&mut self, head: &Head, cars: &mut VecDeque<Car>) -> bool {
        let Some(car) = cars.front() else {
            return false;
        };
        let segment = Segment::new(head.header, car.payload(&self.umem)).with_ecn(head.ecn);
        let id = self.stack.connection_at(&head.tuple, head.likely);
        let Some(owed) = id.and_then(|id| commit_one(&mut self.stack, self.now, id, &segment))
        else {
            return false;
        };
        if let Some(car) = cars.pop_front() {
            self.octets_first(head.port, car, cars, owed);
        }
        true
    }

    /// The octets of a car, of an established connection, of which all else is owed. It was the first of
    /// `cars`, and is again when it must wait.
    fn octets_first(&mut self, port: usize, car: Car, cars: &mut VecDeque<Car>, owed: DeferredAck) {
        let id = owed.conn();
        if let Some(conn) = self.conns.get_mut(id) {
            conn.port = port;
        }
        let mut left = owed.received();
        let passed = match &mut *left.new {
            [range] => self.pass_through::<1>(id, std::iter::once(&car), range, left.in_order_to),
            _ => false,
        };
        if passed {
            return self.rest.leave(owed, car.frame, self.now);
        }
        self.rest.owed = Some(owed);
        self.rest.since = self.now;
        cars.push_front(car);
        self.hold_octets(id, cars, (1, false), &left);
        self.conclude();
        self.make_ready(id);
    }

    /// Does the rest that was left of the last segment that was received; says whether there was any.
    #[inline]
    pub(super) fn do_rest(&mut self) -> bool {
        let rest = self.rest.owed.as_ref().map(DeferredAck::conn);
        // Most looks find none, and cost no more than that.
        rest.is_some_and(|id| self.do_rest_of(id))
    }

    #[inline(never)]
    fn do_rest_of(&mut self, id: ConnId) -> bool {
        if let Some(frame) = self.rest.frame.take() {
            self.pool.free(frame);
        }
        self.take_acknowledgment();
        if let Some(conn) = self.conns.get(id) {
            self.stack.consumed(id, conn.inbound.consumed_to());
        }
        self.settle_conn(id);
        self.conclude();
        self.make_ready(id);
        true
    }

    fn take_acknowledgment(&mut self) {
        let late = self.rest.is_late(self.now);
        if let Some(owed) = self.rest.owed.take() {
            // Whoever drives the shard may have stayed away since, which is no part of a round trip; or
            // the poll was interrupted before it found the segment, and all of it is.
            let owed = if late { owed.unmeasured() } else { owed };
            self.stack.finish(self.now, &owed);
            self.introduce();
        }
    }
}

/// Has TCP take the bytes of a segment that is in order, if it is and they fit the window.
#[inline(always)]
fn commit_one(
    stack: &mut Stack<Frame>,
    now: Instant,
    id: ConnId,
    segment: &Segment<'_>,
) -> Option<DeferredAck> {
    let in_order = stack.in_order(now, id, segment)?;
    // Of one IP packet.
    let bytes = segment.payload.len() as u32;
    let run = SegmentRun {
        bytes,
        segments: 1,
        longest: bytes,
    };
    stack.commit(now, &in_order, run)
}
