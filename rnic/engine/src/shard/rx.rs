//! The receive path: frames from the ports, to TCP, and their bytes to whoever they are for.
//!
//! [`Rx::receive`] takes batches of frames. Of each, the segments are classified ([`classify`]); those
//! of one flow that follow one another go on together ([`gro`]); and TCP and the layer above have them
//! ([`deliver`]): where they lie when they are in order, kept until their turn when they are not
//! ([`reorder`]). Consecutive Writes are verified and placed one by one before any of that
//! ([`bulk_write`]). What a reply need not wait for is done after it ([`deferred`]).

mod bulk_write;
mod classify;
mod deferred;
mod deliver;
mod gro;
mod reorder;

use rnic_net::ReassemblyCounters;
use rnic_xsk::{Packet, Port};
use userspace_tcp::Instant;

use super::RECEIVE_BATCH;
use super::ctl::Ctl;
use super::datapath::Datapath;
use super::tx::Tx;
use crate::prefetch::{fetch_first, fetch_line};
use classify::{Classifier, Predicted};
use deferred::DeferredRx;
use deliver::{Delivery, LateClock};
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
    /// Segments of it that go to TCP together; empty between polls.
    gro: GroBatch,
    classifier: Classifier,
    delivery: Delivery,
}

impl Rx {
    pub fn new<P>(dp: &Datapath<P>) -> Self {
        Self {
            batch: Vec::with_capacity(RECEIVE_BATCH),
            gro: GroBatch::new(),
            classifier: Classifier::new(dp),
            delivery: Delivery::new(dp),
        }
    }

    /// What is left to be done of the last segment.
    #[inline]
    pub fn deferred(&self) -> &DeferredRx {
        &self.delivery.deferred
    }

    /// Does what was deferred; says whether there was anything.
    #[inline]
    pub fn run_deferred<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        ctl: &mut Ctl,
    ) -> bool {
        self.delivery.deferred.run(dp, tx, ctl)
    }

    /// What was counted of fragments.
    pub fn fragments(&self) -> &ReassemblyCounters {
        self.classifier.fragments()
    }

    /// Takes batches of frames from each port, until it has no more or has had its turn. Time goes on
    /// with each, but see [`LateClock`]. `idle`: there is nothing else to do.
    pub(super) fn receive<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        ctl: &mut Ctl,
        clock: &impl Fn() -> Instant,
        idle: bool,
    ) -> bool {
        let mut worked = false;
        let attempts = match dp.ports.len() {
            1 if idle => ATTEMPTS_WHEN_IDLE,
            _ => 1,
        };
        for index in 0..dp.ports.len() {
            for _ in 0..BATCHES {
                let port = &mut dp.ports[index];
                let (pool, batch) = (&mut dp.frames.pool, &mut self.batch);
                let count = port.receive_within(attempts, pool, batch, RECEIVE_BATCH);
                // Most attempts find nothing, and cost no more than that.
                if count == 0 {
                    break;
                }
                worked = true;
                if !dp.captures.is_empty() {
                    // By a look of its own at the clock: there may be none for a frame alone.
                    let now = clock().max(dp.now);
                    dp.captures.received(now, &dp.frames.umem, &self.batch);
                }
                if count == 1 && !self.delivery.deferred.is_waiting() {
                    self.receive_batch(dp, tx, ctl, index, Some(clock));
                } else {
                    dp.advance(clock());
                    self.receive_batch(dp, tx, ctl, index, None);
                }
                if count < RECEIVE_BATCH {
                    break;
                }
                dp.ports[index].refill(&mut dp.frames.pool);
            }
        }
        worked
    }

    /// Takes in the batch that came from a port.
    #[inline(never)]
    fn receive_batch<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        ctl: &mut Ctl,
        port: usize,
        clock: LateClock<'_>,
    ) {
        let mut batch = std::mem::take(&mut self.batch);
        if let Some(first) = batch.first() {
            // Another core wrote it: what is read of it later comes while its headers are looked at.
            fetch_first::<LINES_AHEAD>(dp.frames.umem.bytes(first.first()));
        }
        let mut packets = batch.drain(..);
        while let Some(packet) = packets.as_slice().first() {
            let predicted = self.classifier.classify(dp, packet, port);
            if let Some(predicted) = predicted.as_ref().filter(|of| dp.is_write(of, packet)) {
                if !self.gro.is_empty() {
                    self.delivery.flush_gro(dp, tx, ctl, &mut self.gro, clock);
                    // What came before may have changed what its headers are like.
                    continue;
                }
                let placed =
                    self.delivery
                        .receive_writes(dp, tx, ctl, predicted, packets.as_slice(), port);
                if placed > 0 {
                    self.delivery
                        .defer_writes(dp, tx, ctl, packets.by_ref().take(placed), placed);
                    continue;
                }
            }
            let Some(packet) = packets.next() else {
                break;
            };
            if let Some(later) = packets.as_slice().get(HEADERS_AHEAD) {
                fetch_line(dp.frames.umem.bytes(later.first()).as_ptr());
            }
            self.receive_packet(dp, tx, ctl, packet, predicted, (port, clock));
        }
        drop(packets);
        self.delivery.flush_gro(dp, tx, ctl, &mut self.gro, clock);
        self.batch = batch;
    }

    /// Puts a packet's segment behind those before it, if it only continues them.
    #[inline(never)]
    fn receive_packet<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        ctl: &mut Ctl,
        packet: Packet,
        predicted: Option<Predicted>,
        (port, clock): (usize, LateClock<'_>),
    ) {
        let id = predicted.as_ref().map(|predicted| predicted.id);
        let verified = predicted.and_then(|predicted| dp.verify(predicted, &packet));
        if let (Some(id), Some((says, crc_verified))) = (id, verified) {
            let segment = RxSegment::new(packet, &says.payload, crc_verified);
            return self.merge(dp, tx, ctl, Headers::Predicted(id, &says), segment, clock);
        }
        if let Some((mut head, segment)) = self.classifier.parse(dp, packet, port) {
            self.merge(dp, tx, ctl, Headers::Parsed(&mut head), segment, clock);
        }
    }

    /// Puts a segment behind those before it, if it only continues them; else they are passed on, and it
    /// begins anew.
    #[inline]
    fn merge<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        ctl: &mut Ctl,
        mut headers: Headers<'_>,
        segment: RxSegment,
        clock: LateClock<'_>,
    ) {
        if !self.gro.is_continued_by(&headers, &segment) {
            // What came before may change what is predicted, or end the connection: TCP judges that.
            let head = match &mut headers {
                Headers::Predicted(id, says) => {
                    dp.predicted_head(*id, says).map(|head| (head, Some(*id)))
                }
                Headers::Parsed(head) => {
                    // It comes while those before are taken in.
                    head.hint = tx.fetch_flow(dp, &head.tuple, segment.len);
                    Some((**head, None))
                }
            };
            self.delivery.flush_gro(dp, tx, ctl, &mut self.gro, clock);
            let Some((head, predicted)) = head else {
                // Its connection was there when it was verified.
                return dp.frames.pool.free_packet(segment.packet);
            };
            self.gro.begin(head, predicted);
        }
        self.gro.push(segment);
    }
}
