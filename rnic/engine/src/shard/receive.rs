//! Frames from the ports: to TCP, those together that follow one another ([`train`]), and the octets
//! that it finds new to whoever they are for (`octets`).

use std::collections::VecDeque;
use std::ops::Range;

use rnic_net::{KnownHeaders, Recognised, Unusable};
use rnic_proto::crc::RESIDUE;
use rnic_xsk::{CHUNKS_MAX, Packet, Port};
use userspace_tcp::{ConnOptions, Instant, Likely, Segment};

use super::train::{self, Car, Head, Headers, RxSegment, Train};
use super::{RECEIVE_BATCH, Shard};
use crate::conn::{Conn, Phase};
use crate::prefetch::fetch_line;

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
                if !self.captures.is_empty() {
                    // By a look of its own at the clock: there may be none for a frame alone.
                    let now = clock().max(self.now);
                    self.captures.received(now, &self.umem, &self.batch);
                }
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
    pub(super) fn take_batch(&mut self, port: usize) {
        let mut batch = std::mem::take(&mut self.batch);
        let mut train = self.train.take().unwrap_or_default();
        let in_turn = self.take_in_turn(&batch, &train, port);
        self.pool.free_singles(batch.drain(..in_turn));
        let mut packets = batch.drain(..);
        while let Some(packet) = packets.next() {
            if let Some(later) = packets.as_slice().get(HEADERS_AHEAD) {
                fetch_line(self.umem.bytes(later.first()).as_ptr());
            }
            self.take_packet(&mut train, packet, port);
        }
        drop(packets);
        self.pass_on(&mut train);
        self.batch = batch;
        self.train = Some(train);
    }

    /// Puts a packet's segment behind those before it, when it belongs to them; else they are passed
    /// on, and it begins anew.
    fn take_packet(&mut self, train: &mut Train, packet: Packet, port: usize) {
        match self.recognise(train, &packet, port) {
            Some((found, sound)) => {
                let segment = RxSegment::new(packet, &found.payload, sound);
                self.couple(train, Headers::Recognised(&found), segment);
            }
            None => self.take_parsed(train, packet, port),
        }
    }

    /// What a packet says whose headers are known, and whether its payload was found to end with the CRC
    /// of what is before: where segments have been FPDUs, that is taken with the checksum.
    #[inline]
    pub(super) fn recognise(
        &self,
        train: &Train,
        packet: &Packet,
        port: usize,
    ) -> Option<(Recognised, bool)> {
        let (takes_crc, mut crc) = (self.segments_are_fpdus, 0);
        let found = train.recognise(packet, &self.umem, port, |part| {
            if !takes_crc {
                return rnic_crc::sum(part);
            }
            let checks = rnic_crc::check(crc, part);
            crc = checks.crc;
            checks.sum
        })?;
        Some((found, takes_crc && crc == RESIDUE))
    }

    /// As [`Self::take_packet`], of one whose headers are not known.
    pub(super) fn take_parsed(&mut self, train: &mut Train, packet: Packet, port: usize) {
        match self.segment(&packet, port) {
            Ok((mut head, payload)) => {
                let segment = RxSegment::new(packet, &payload, false);
                self.couple(train, Headers::Parsed(&mut head), segment);
            }
            Err(Some(Unusable::Fragment)) => {
                if let Some(whole) = self.fragment(packet) {
                    // It is no fragment any more.
                    self.take_packet(train, whole.into(), port);
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

    /// Puts a segment behind those before it, if it only continues them; else they are passed on, and it
    /// begins anew.
    #[inline]
    pub(super) fn couple(
        &mut self,
        train: &mut Train,
        mut headers: Headers<'_>,
        segment: RxSegment,
    ) {
        if !train.is_continued_by(&headers, &segment) {
            if let Headers::Parsed(head) = &mut headers {
                // It comes while those before are taken in.
                head.likely = self.fetch_flow(&head.tuple, segment.len);
            }
            self.pass_on(train);
            if !train.begin(&headers) {
                return self.pool.free_packet(segment.packet);
            }
        }
        train.push(segment);
        train.know(
            |frame, payload| KnownHeaders::of(self.umem.bytes(frame), payload),
            |head| self.stack.surely(&head.tuple, head.likely),
        );
    }

    /// What the headers of a packet's segment say, and where its payload is, counted from the packet's
    /// beginning: it begins in the first frame. What is of no use is counted here, if it has no reason
    /// that says more.
    fn segment(
        &mut self,
        packet: &Packet,
        port: usize,
    ) -> Result<(Head, Range<usize>), Option<Unusable>> {
        let mut slices = [&[][..]; CHUNKS_MAX];
        let slices = packet.slices(&self.umem, &mut slices);
        let (octets, rest) = slices.split_first().ok_or(Unusable::Truncated)?;
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
        Ok((head, parsed.tcp.end - len..parsed.tcp.end))
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
    pub(super) fn take_segments(&mut self, head: &Head, cars: &mut VecDeque<Car>, count: usize) {
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
}
