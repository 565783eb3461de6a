//! Frames from the ports: to TCP, those together that follow one another ([`train`]), and the octets
//! that it finds new to whoever they are for (`octets`).

use std::collections::VecDeque;
use std::time::Duration;

use rnic_ipc::capture::Direction;
use rnic_net::{KnownHeaders, Recognised, Unusable};
use rnic_proto::crc::RESIDUE;
use rnic_xsk::{CHUNKS_MAX, Frame, Packet, Port};
use userspace_tcp::{ConnId, ConnOptions, Instant, Likely, Owed, Received, Segment};

use super::train::{self, Car, Head, Parts, Train};
use super::{RECEIVE_BATCH, Shard};
use crate::conn::{Conn, Phase};
use crate::prefetch::fetch_at;

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

/// Batches taken from one port before the next gets its turn: as many as a receive ring has frames.
/// What a poll leaves in the ring it may find there for ever: a sender produces as much for 64 ACKs
/// as brings it the next 64, and a ring that has once been full never has room for more than those.
const BATCHES: usize = 8;

/// Packets that are looked at before one whose headers are fetched into the cache: another core wrote
/// them, and acknowledgments of many connections are each parsed.
const HEADERS_AHEAD: usize = 2;

/// So many looks at the only port a poll takes that found nothing else to do: together as long as the
/// rest of such a poll. What comes while it looks is found at once, and not after half a poll on
/// average; a doorbell is found by as much later at most.
const LOOKS_WHEN_IDLE: u32 = 32;

impl<P: Port> Shard<P> {
    /// Takes batches of frames from each port, until it has no more or has had its turn. Time goes on
    /// with each, but for a frame alone of which only the octets are taken: whoever waits for them does
    /// not wait for the clock, and what is measured of it is measured with its rest, in the next poll.
    /// `idle`: there is nothing else to do.
    pub(super) fn receive(&mut self, clock: &impl Fn() -> Instant, idle: bool) -> bool {
        let mut worked = false;
        let looks = match self.ports.len() {
            1 if idle => LOOKS_WHEN_IDLE,
            _ => 1,
        };
        for index in 0..self.ports.len() {
            for _ in 0..BATCHES {
                let port = &mut self.ports[index];
                let (pool, batch) = (&mut self.pool, &mut self.batch);
                let count = port.receive_within(looks, pool, batch, RECEIVE_BATCH);
                // Most looks find nothing, and cost no more than that.
                if count == 0 {
                    break;
                }
                worked = true;
                if count == 1 && !self.rest.is_waiting() {
                    self.take_alone(index, clock);
                } else {
                    self.advance(clock());
                    self.take_batch(index);
                }
                if count < RECEIVE_BATCH {
                    break;
                }
                self.ports[index].refill(&mut self.pool);
            }
        }
        worked
    }

    /// Takes in the batch that came from a port.
    fn take_batch(&mut self, port: usize) {
        let mut batch = std::mem::take(&mut self.batch);
        let mut train = self.train.take().unwrap_or_default();
        let in_turn = self.take_in_turn(&batch, &train, port);
        for packet in batch.drain(..in_turn) {
            self.pool.free_packet(packet);
        }
        let mut packets = batch.drain(..);
        while let Some(packet) = packets.next() {
            if let Some(later) = packets.as_slice().get(HEADERS_AHEAD) {
                fetch_at(self.umem.bytes(later.first()).as_ptr());
            }
            if !self.captures.is_empty() {
                self.capture(&packet);
            }
            self.couple(&mut train, packet, port);
        }
        drop(packets);
        self.pass_on(&mut train);
        self.batch = batch;
        self.train = Some(train);
    }

    /// Takes in a batch of one packet, before time goes on if TCP takes its octets first.
    fn take_alone(&mut self, port: usize, clock: &impl Fn() -> Instant) {
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
            let taken = self
                .stack
                .receive_octets(self.now, known.tuple, known.likely, &segment);
            if let Some((received, owed)) = taken {
                if let Some(car) = self.car(packet, &found, sound) {
                    self.octets_first(port, car, train.cars(), &received, owed);
                }
                return None;
            }
        }
        self.couple_recognised(train, packet, &found, sound);
        train.take().map(|(head, _)| head)
    }

    #[cold]
    fn capture(&mut self, packet: &Packet) {
        let time = self.unix_now();
        let mut slices = [&[][..]; CHUNKS_MAX];
        let octets = packet.slices(&self.umem, &mut slices);
        self.captures.show(time, Direction::In, octets);
    }

    /// Puts a packet's segment behind those before it, when it belongs to them; else they are passed
    /// on, and it begins anew.
    fn couple(&mut self, train: &mut Train, packet: Packet, port: usize) {
        if !packet.is_single()
            && let Some((found, sound)) = self.recognise_parts(train, &packet, port)
        {
            return self.couple_recognised_parts(train, packet, &found, sound);
        }
        match self.recognise(train, &packet, port) {
            Some((found, sound)) => self.couple_recognised(train, packet, &found, sound),
            None => self.couple_parsed(train, packet, port),
        }
    }

    /// What a packet says that lies in one frame and whose headers are known, and whether its payload
    /// was found to end with the CRC of what is before.
    #[inline]
    fn recognise(&self, train: &Train, packet: &Packet, port: usize) -> Option<(Recognised, bool)> {
        if !packet.is_single() {
            return None;
        }
        let octets = self.umem.bytes(packet.first());
        let (takes_crc, mut sound) = (self.segments_are_fpdus, false);
        let found = train.recognise(octets, port, |payload| {
            if !takes_crc {
                return rnic_crc::sum(payload);
            }
            let checks = rnic_crc::check(0, payload);
            sound = checks.crc == RESIDUE;
            checks.sum
        })?;
        Some((found, sound))
    }

    /// As [`Self::couple`], of a packet whose headers are not known.
    fn couple_parsed(&mut self, train: &mut Train, packet: Packet, port: usize) {
        match self.segment(&packet, port) {
            Ok((mut head, start, len)) => {
                let frame = match packet.into_single() {
                    Ok(frame) => frame,
                    Err(packet) => {
                        let parts = Parts {
                            packet,
                            start,
                            len,
                            sound: false,
                        };
                        return self.couple_parts(train, head, parts);
                    }
                };
                let car = Car {
                    frame,
                    start,
                    len,
                    sound: false,
                    goes_on: false,
                };
                if train.is_empty() {
                    head.likely = self.fetch_flow(&head.tuple);
                }
                if let Err(car) = train.couple(&head, car) {
                    head.likely = self.fetch_flow(&head.tuple);
                    self.pass_on(train);
                    // An empty one takes any.
                    if let Err(car) = train.couple(&head, car) {
                        self.pool.free(car.frame);
                    }
                }
                train.know(|frame, payload| KnownHeaders::of(self.umem.bytes(frame), payload));
            }
            Err(Some(Unusable::Fragment)) => {
                if let Some(whole) = self.fragment(packet) {
                    // It is no fragment any more.
                    self.couple(train, whole.into(), port);
                }
            }
            Err(reason) => {
                if let Some(reason) = reason {
                    self.counters.count_unusable(reason);
                }
                self.pool.free_packet(packet);
            }
        }
    }

    /// As [`Self::couple`], of a packet that lies in one frame and whose headers are known.
    fn couple_recognised(
        &mut self,
        train: &mut Train,
        packet: Packet,
        found: &Recognised,
        sound: bool,
    ) {
        let Some(car) = self.car(packet, found, sound) else {
            return;
        };
        if let Err(car) = train.couple_recognised(found, car) {
            self.pass_on(train);
            // An empty one takes any.
            if let Err(car) = train.couple_recognised(found, car) {
                self.pool.free(car.frame);
            }
        }
    }

    /// The frame of a packet that lies in one, and was recognised.
    fn car(&mut self, packet: Packet, found: &Recognised, sound: bool) -> Option<Car> {
        match packet.into_single() {
            Ok(frame) => Some(Car {
                frame,
                start: found.payload.start,
                len: found.payload.len(),
                sound,
                goes_on: false,
            }),
            Err(packet) => {
                self.pool.free_packet(packet);
                None
            }
        }
    }

    /// The segment in a packet, and where its payload is: it begins in the first frame. What is of no
    /// use is counted here, if it has no reason that says more.
    fn segment(
        &mut self,
        packet: &Packet,
        port: usize,
    ) -> Result<(Head, usize, usize), Option<Unusable>> {
        let octets = self.umem.bytes(packet.first());
        let mut slices = [&[][..]; CHUNKS_MAX];
        let rest = match packet.is_single() {
            true => &[],
            false => packet
                .slices(&self.umem, &mut slices)
                .get(1..)
                .unwrap_or(&[]),
        };
        let mut parsed = rnic_net::parse_parts(octets, rest, &self.config.path_defaults)?;
        let local = parsed.tuple.local.addr;
        let Some(tag) = self.config.vlans.way_back(local, parsed.path.vlan) else {
            self.counters.wrong_vlan += 1;
            return Err(None);
        };
        parsed.path.vlan = tag;
        // `parse_parts` checked that the range lies within the packet.
        let first = parsed.tcp.start..parsed.tcp.end.min(octets.len());
        let beyond = parsed.tcp.end - first.end;
        let tcp = octets.get(first).unwrap_or(&[]);
        let Ok(segment) = Segment::parse(tcp) else {
            self.counters.tcp_malformed += 1;
            return Err(None);
        };
        let head = Head {
            tuple: parsed.tuple,
            likely: Likely::default(),
            path: parsed.path,
            port,
            ecn: parsed.ecn,
            header: segment.header,
        };
        let len = segment.payload.len() + beyond;
        Ok((head, parsed.tcp.end - len, len))
    }

    /// Gives the segments of a train to TCP, as one if it takes them so.
    pub(super) fn pass_on(&mut self, train: &mut Train) {
        let Some((mut head, cars)) = train.take() else {
            return;
        };
        let seq = head.header.seq;
        let several = cars.len() > train::cars_of_first(cars);
        let together = several && self.stack.takes_together(&head.tuple, head.likely, seq);
        while !cars.is_empty() {
            let count = match together {
                true => cars.len(),
                false => train::cars_of_first(cars),
            };
            let octets: usize = cars.iter().take(count).map(|car| car.len).sum();
            self.segments(&head, cars, count);
            // The cars behind are of one flow without a gap.
            head.header.seq = head.header.seq.add(octets as u32);
        }
    }

    /// Gives the segments of the first `count` cars to TCP, as one, and their octets to whoever they are
    /// for.
    fn segments(&mut self, head: &Head, cars: &mut VecDeque<Car>, count: usize) {
        self.do_rest();
        if count == 1 && self.take_octets_first(head, cars) {
            return;
        }
        self.take_segments(head, cars, count);
    }

    /// As [`Self::segments`], of what TCP does not take before its acknowledgment. No rest is waiting.
    fn take_segments(&mut self, head: &Head, cars: &mut VecDeque<Car>, count: usize) {
        let &Head {
            tuple,
            likely,
            path,
            port,
            ..
        } = head;
        let first = cars.front().map_or(&[][..], |car| car.payload(&self.umem));
        let following = train::following(cars.iter().take(count));
        // Some segment has several cars.
        let chained = following.segments as usize + 1 < count;
        let segment = Segment::new(head.header, first)
            .with_ecn(head.ecn)
            .with_following(following);
        let options = ConnOptions {
            mss: path.mss(tuple.remote.addr),
        };
        let received = self
            .stack
            .receive_at(self.now, tuple, likely, &segment, options);
        match received.conn {
            Some(id) => {
                if self.conns.get(id).is_none() {
                    let window = self.config.tcp.receive_window;
                    let conn = Conn::new(id, tuple, path, port, window, Phase::HalfOpen);
                    self.adopt(conn);
                    self.set_deadline(id, self.config.startup_timeout);
                }
                if let Some(conn) = self.conns.get_mut(id) {
                    conn.port = port;
                }
            }
            None => self.link.remember(tuple, path, port),
        }
        // An event may introduce the connection whose octets came with it (the ACK that completes a
        // passive open), but the peer's FIN comes after the octets in its segment: the layer above
        // is told of it once they are delivered.
        self.introduce();
        match received.conn {
            Some(id) if !received.new.is_empty() => {
                self.take_octets(id, cars, (count, chained), &received)
            }
            _ => self.drop_cars(cars, count),
        }
        self.conclude();
        if let Some(id) = received.conn {
            // What was acknowledged may have opened room to send.
            self.make_ready(id);
        }
    }

    /// Takes the octets of the segment in the first car, if TCP takes them before the acknowledgment
    /// that comes with them; says whether it does. No rest is waiting.
    fn take_octets_first(&mut self, head: &Head, cars: &mut VecDeque<Car>) -> bool {
        let Some(car) = cars.front() else {
            return false;
        };
        let segment = Segment::new(head.header, car.payload(&self.umem)).with_ecn(head.ecn);
        let taken = self
            .stack
            .receive_octets(self.now, head.tuple, head.likely, &segment);
        let Some((received, owed)) = taken else {
            return false;
        };
        if let Some(car) = cars.pop_front() {
            self.octets_first(head.port, car, cars, &received, owed);
        }
        true
    }

    /// The octets of a car, of an established connection, whose acknowledgment is owed. It was the first
    /// of `cars`, and is again when it must wait.
    fn octets_first(
        &mut self,
        port: usize,
        car: Car,
        cars: &mut VecDeque<Car>,
        received: &Received,
        owed: Owed,
    ) {
        let id = owed.conn();
        if let Some(conn) = self.conns.get_mut(id) {
            conn.port = port;
        }
        let mut left = *received;
        let passed = match &mut *left.new {
            [range] => self.pass_through::<1>(id, std::iter::once(&car), range, left.in_order_to),
            _ => false,
        };
        self.rest.owed = Some(owed);
        self.rest.since = self.now;
        if passed {
            self.rest.frame = Some(car.frame);
            return;
        }
        cars.push_front(car);
        self.hold_octets(id, cars, (1, false), &left);
        self.conclude();
        self.make_ready(id);
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
