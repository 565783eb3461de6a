//! The receive path: frames from the ports, to TCP, and their bytes to whoever they are for.
//!
//! [`Shard::receive`] takes batches of frames. Of each, the segments are classified ([`classify`]); those
//! of one flow that follow one another go on together ([`gro`]); and TCP and the layer above have them
//! ([`deliver`]): where they lie when they are in order, kept until their turn when they are not
//! ([`reorder`]). Consecutive Writes are verified and placed one by one before any of that
//! ([`bulk_write`]). What a reply need not wait for is done after it ([`deferred`]).

mod bulk_write;
mod classify;
mod deferred;
mod deliver;
mod gro;
mod reassembly;
mod reorder;

use rnic_xsk::{Packet, Port};
use userspace_tcp::{ConnId, Instant};

pub(super) use deferred::DeferredRx;

use super::{RECEIVE_BATCH, Shard};
use crate::prefetch::{fetch_first, fetch_line};
use classify::Predicted;
use gro::{GroBatch, Headers, RxSegment};

/// Batches taken from one port before the next gets its turn: as many as a receive ring has frames.
/// What a poll leaves in the ring it may find there for ever: a sender produces as much for 64 ACKs
/// as brings it the next 64, and a ring that has once been full never has room for more than those.
const BATCHES: usize = 8;

/// Packets that are looked at before one whose headers are fetched into the cache: another core wrote
/// them, and acknowledgments of many connections are each parsed.
const HEADERS_AHEAD: usize = 2;

/// So many cache lines of the first frame of a batch are fetched before its headers are looked at: those,
/// and a short message.
const LINES_AHEAD: usize = 4;

/// How often the only port is asked in a poll that found nothing else to do: together as long as the
/// rest of such a poll. What comes meanwhile is found at once, and not after half a poll on
/// average; a doorbell is found by as much later at most.
const ATTEMPTS_WHEN_IDLE: u32 = 32;

/// What the receive path keeps from one batch to the next.
#[derive(Debug)]
pub(super) struct Rx {
    /// Received packets of one batch; empty between polls.
    batch: Vec<Packet>,
    /// Segments of it that go to TCP together; empty between polls, and out while a batch is taken in.
    gro: Option<Box<GroBatch>>,
    /// The connection whose headers were predicted last: most segments come behind others of theirs.
    last: Option<ConnId>,
}

/// How time goes on for a batch that is one frame: not at all, unless somebody asks. Whoever waits for its
/// bytes does not wait for the clock, and what is measured of it is measured when the rest of it is done,
/// in the next poll.
type LateClock<'a> = Option<&'a dyn Fn() -> Instant>;

impl Rx {
    pub fn new() -> Self {
        Self {
            batch: Vec::with_capacity(RECEIVE_BATCH),
            gro: Some(Box::new(GroBatch::new())),
            last: None,
        }
    }
}

impl<P: Port> Shard<P> {
    /// Takes batches of frames from each port, until it has no more or has had its turn. Time goes on
    /// with each, but see [`LateClock`]. `idle`: there is nothing else to do.
    pub(super) fn receive(&mut self, clock: &impl Fn() -> Instant, idle: bool) -> bool {
        let mut worked = false;
        let attempts = match self.dp.ports.len() {
            1 if idle => ATTEMPTS_WHEN_IDLE,
            _ => 1,
        };
        for index in 0..self.dp.ports.len() {
            for _ in 0..BATCHES {
                let port = &mut self.dp.ports[index];
                let (pool, batch) = (&mut self.dp.frames.pool, &mut self.rx.batch);
                let count = port.receive_within(attempts, pool, batch, RECEIVE_BATCH);
                // Most attempts find nothing, and cost no more than that.
                if count == 0 {
                    break;
                }
                worked = true;
                if !self.dp.captures.is_empty() {
                    // By a look of its own at the clock: there may be none for a frame alone.
                    let now = clock().max(self.dp.now);
                    self.dp
                        .captures
                        .received(now, &self.dp.frames.umem, &self.rx.batch);
                }
                if count == 1 && !self.deferred.is_waiting() {
                    self.receive_batch(index, Some(clock));
                } else {
                    self.dp.advance(clock());
                    self.receive_batch(index, None);
                }
                if count < RECEIVE_BATCH {
                    break;
                }
                self.dp.ports[index].refill(&mut self.dp.frames.pool);
            }
        }
        worked
    }

    /// Takes in the batch that came from a port.
    #[inline(never)]
    fn receive_batch(&mut self, port: usize, clock: LateClock<'_>) {
        let mut batch = std::mem::take(&mut self.rx.batch);
        let mut gro = self.rx.gro.take().unwrap_or_default();
        if let Some(first) = batch.first() {
            // Another core wrote it: what is read of it later comes while its headers are looked at.
            fetch_first::<LINES_AHEAD>(self.dp.frames.umem.bytes(first.first()));
        }
        let mut packets = batch.drain(..);
        while let Some(packet) = packets.as_slice().first() {
            let predicted = self.classify(packet, port);
            if let Some(predicted) = predicted.as_ref().filter(|of| self.is_write(of, packet)) {
                if !gro.is_empty() {
                    self.flush_gro(&mut gro, clock);
                    // What came before may have changed what its headers are like.
                    continue;
                }
                let placed = self.receive_writes(predicted, packets.as_slice(), port);
                if placed > 0 {
                    self.defer_writes(packets.by_ref().take(placed), placed);
                    continue;
                }
            }
            let Some(packet) = packets.next() else {
                break;
            };
            if let Some(later) = packets.as_slice().get(HEADERS_AHEAD) {
                fetch_line(self.dp.frames.umem.bytes(later.first()).as_ptr());
            }
            self.receive_packet(&mut gro, packet, predicted, port, clock);
        }
        drop(packets);
        self.flush_gro(&mut gro, clock);
        self.rx.batch = batch;
        self.rx.gro = Some(gro);
    }

    /// Puts a packet's segment behind those before it, if it only continues them.
    #[inline(never)]
    fn receive_packet(
        &mut self,
        gro: &mut GroBatch,
        packet: Packet,
        predicted: Option<Predicted>,
        port: usize,
        clock: LateClock<'_>,
    ) {
        let id = predicted.as_ref().map(|predicted| predicted.id);
        let verified = predicted.and_then(|predicted| self.verify(predicted, &packet));
        if let (Some(id), Some((says, crc_verified))) = (id, verified) {
            let segment = RxSegment::new(packet, &says.payload, crc_verified);
            return self.merge(gro, Headers::Predicted(id, &says), segment, clock);
        }
        if let Some((mut head, segment)) = self.parse(packet, port) {
            self.merge(gro, Headers::Parsed(&mut head), segment, clock);
        }
    }

    /// Puts a segment behind those before it, if it only continues them; else they are passed on, and it
    /// begins anew.
    #[inline]
    fn merge(
        &mut self,
        gro: &mut GroBatch,
        mut headers: Headers<'_>,
        segment: RxSegment,
        clock: LateClock<'_>,
    ) {
        if !gro.is_continued_by(&headers, &segment) {
            // What came before may change what is predicted, or end the connection: TCP judges that.
            let head = match &mut headers {
                Headers::Predicted(id, says) => {
                    self.predicted_head(*id, says).map(|head| (head, Some(*id)))
                }
                Headers::Parsed(head) => {
                    // It comes while those before are taken in.
                    head.hint = self.tx.fetch_flow(&self.dp, &head.tuple, segment.len);
                    Some((**head, None))
                }
            };
            self.flush_gro(gro, clock);
            let Some((head, predicted)) = head else {
                // Its connection was there when it was verified.
                return self.dp.frames.pool.free_packet(segment.packet);
            };
            gro.begin(head, predicted);
        }
        gro.push(segment);
    }
}
