//! A segment alone: the octets of one that came by itself are where they belong before anything else is
//! done that it brings with it. Whoever waits for them, and the peer that waits for the answer, wait for
//! what decides whether they may be placed, and for nothing else: the rest ([`Rest`]) is done behind.

use std::collections::VecDeque;
use std::time::Duration;

use rnic_xsk::{Frame, Packet, Port};
use userspace_tcp::{ConnId, Instant, Owed, Segment};

use super::Shard;
use super::train::{Car, Head, Train};
use crate::qp::{Piece, is_tagged};

/// What is left to be done of the last segment that was received, whose octets are where they belong:
/// the acknowledgment that it brought, what its queue pair asks for, and its frame. Whoever waits for
/// the octets, and the peer that waits for the answer, don't wait for that.
#[derive(Debug, Default)]
pub(super) struct Rest {
    owed: Option<Owed>,
    frame: Option<Frame>,
    /// When the poll began that found the segment.
    since: Instant,
}

impl Rest {
    /// Whether the segment came longer ago than its rest may wait for what answers it.
    pub(super) fn is_late(&self, now: Instant) -> bool {
        self.is_waiting() && now.saturating_duration_since(self.since) > REST_PATIENCE
    }

    /// Whether there is any.
    pub(super) fn is_waiting(&self) -> bool {
        self.owed.is_some()
    }
}

/// For so long the rest of a segment waits for what answers it: no time for TCP, whose clock runs on.
const REST_PATIENCE: Duration = Duration::from_micros(100);

impl<P: Port> Shard<P> {
    /// Takes in a batch of one packet, before time goes on if TCP takes its octets first.
    pub(super) fn take_alone(&mut self, port: usize, clock: &impl Fn() -> Instant) {
        let single = self.batch.first().is_some_and(Packet::is_single);
        if !single || !self.captures.is_empty() {
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
            self.couple_parsed(train, packet, port);
            let (head, cars) = train.take()?;
            return (!self.take_octets_first(&head, cars)).then_some(head);
        };
        // Nothing is set up for segments that could be behind it.
        let octets = self.umem.bytes(packet.first());
        if let Some((known, header)) = train.head_of(&found)
            && let Some(payload) = octets.get(found.payload.clone())
        {
            let segment = Segment::new(header, payload).with_ecn(known.ecn);
            let (tuple, likely) = (&known.tuple, known.likely);
            let owed = self.stack.receive_octets(self.now, tuple, likely, &segment);
            if let Some(owed) = owed {
                let car = self.car(packet, &found, sound)?;
                self.octets_first(port, car, train.cars(), owed);
                return None;
            }
        }
        self.couple_recognised(train, packet, &found, sound);
        train.take().map(|(head, _)| head)
    }

    /// Takes the octets of the segment in the first car, if TCP takes them before the acknowledgment
    /// that comes with them; says whether it does. No rest is waiting.
    pub(super) fn take_octets_first(&mut self, head: &Head, cars: &mut VecDeque<Car>) -> bool {
        let Some(car) = cars.front() else {
            return false;
        };
        let segment = Segment::new(head.header, car.payload(&self.umem)).with_ecn(head.ecn);
        let (tuple, likely) = (&head.tuple, head.likely);
        let Some(owed) = self.stack.receive_octets(self.now, tuple, likely, &segment) else {
            return false;
        };
        if let Some(car) = cars.pop_front() {
            self.octets_first(head.port, car, cars, owed);
        }
        true
    }

    /// The octets of a car, of an established connection, to which all else is owed. It was the first of
    /// `cars`, and is again when it must wait.
    fn octets_first(&mut self, port: usize, car: Car, cars: &mut VecDeque<Car>, owed: Owed) {
        let id = owed.conn();
        self.rest.since = self.now;
        if self.place_alone(port, &car, &owed) {
            self.rest.owed = Some(owed);
            self.rest.frame = Some(car.frame);
            return;
        }
        if let Some(conn) = self.conns.get_mut(id) {
            conn.port = port;
        }
        let mut left = owed.received();
        self.rest.owed = Some(owed);
        let passed = match &mut *left.new {
            [range] => self.pass_through::<1>(id, std::iter::once(&car), range, left.in_order_to),
            _ => false,
        };
        if passed {
            self.rest.frame = Some(car.frame);
            return;
        }
        cars.push_front(car);
        self.hold_octets(id, cars, (1, false), &left);
        self.conclude();
        self.make_ready(id);
    }

    /// Places the octets of a car that are the next of an established connection, if they are known to be
    /// sound and are one FPDU, of a Write: says whether.
    #[inline]
    fn place_alone(&mut self, port: usize, car: &Car, owed: &Owed) -> bool {
        if !car.sound || !is_tagged(car.payload(&self.umem)) {
            return false;
        }
        let run = self.place_pieces(owed.conn(), owed.offset(), port, |umem| {
            let octets = car.payload(umem);
            std::iter::once(Piece {
                octets,
                sound: true,
            })
        });
        // A Write is an FPDU by itself: of its octets all are taken, or none.
        run.pieces == 1
    }

    /// Does the rest that was left of the last segment that was received; says whether there was any.
    #[inline]
    pub(super) fn do_rest(&mut self) -> bool {
        let rest = self.rest.owed.as_ref().map(Owed::conn);
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
        if let Some(owed) = self.rest.owed.take() {
            self.stack.take_owed(self.now, owed);
            self.introduce();
        }
    }
}
