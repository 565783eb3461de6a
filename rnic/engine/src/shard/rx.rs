//! The receive path: frames from the ports go to TCP, and their bytes to a queue pair or a start-up.
//!
//! [`Rx::take`] takes batches of frames. Their segments are classified ([`classify`]), and consecutive
//! segments of one flow are merged ([`gro`]). Then TCP and the upper layer process them ([`deliver`]): in
//! place when they are in order, otherwise parked ([`reorder`]). Consecutive Writes are verified and placed
//! one by one before any of that ([`bulk_write`]). Work that a reply need not wait for is done after the
//! reply ([`deferred`]). Streams that wait for a receive go on when it is posted ([`hold`]). SCTP has its own way ([`packets`]).

mod bulk_write;
mod classify;
mod deferred;
mod deliver;
mod gro;
mod hold;
mod packets;
mod reorder;

use rnic_net::ReassemblyCounters;
use rnic_xsk::{Packet, Port};
use userspace_net::Instant;

use super::ctl::Ctl;
use super::datapath::Datapath;
use super::siblings::SIBLINGS;
use super::tx::Tx;
use crate::prefetch::{fetch_first, fetch_line};
use classify::{Arrived, Classifier, Predicted};
use deferred::DeferredRx;
use deliver::Delivery;
pub(super) use deliver::{LateClock, RxContext};
use gro::{GroBatch, Headers, RxSegment};

/// Frames taken from a port at a time.
pub(super) const RECEIVE_BATCH: usize = 64;
/// Packets that are looked at before one whose headers are fetched into the cache: another core wrote
/// them, and acknowledgments of many connections are each parsed.
const HEADERS_AHEAD: usize = 2;

/// So many cache lines of the first frame of a batch are fetched before its headers are looked at: those,
/// and a short message.
const LINES_AHEAD: usize = 4;

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

    /// The deferred work of the last segment.
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

    pub fn fragments(&self) -> &ReassemblyCounters {
        self.classifier.fragments()
    }

    /// Takes a batch of frames from a port, and says how many; captures see them. `now`: when they came.
    #[inline(always)]
    pub fn take<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        port: usize,
        attempts: u32,
        now: impl Fn() -> Instant,
    ) -> usize {
        let batch = &mut self.batch;
        let Some(port) = dp.ports.get_mut(port) else {
            // Captures have seen it: what loops when it was transmitted, what was handed over where it came.
            return match port {
                SIBLINGS => dp.take_handed_over(batch, RECEIVE_BATCH),
                _ => dp.loopback.receive(batch, RECEIVE_BATCH),
            };
        };
        let pool = &mut dp.frames.pool;
        let count = port.receive_within(attempts, pool, batch, RECEIVE_BATCH);
        if count > 0 && !dp.captures.is_empty() {
            let now = now().max(dp.now);
            dp.captures.received(now, &dp.frames.umem, &self.batch);
        }
        count
    }

    /// Receives the batch that was [taken](Self::take).
    #[inline]
    pub fn receive_batch<P: Port>(&mut self, context: &mut RxContext<'_, P>) {
        let mut batch = std::mem::take(&mut self.batch);
        if let Some(first) = batch.first() {
            // Another core wrote it: prefetch what is read later while its headers are examined.
            fetch_first::<LINES_AHEAD>(context.dp.frames.umem.bytes(first.first()));
        }
        let mut packets = batch.drain(..);
        while let Some(packet) = packets.as_slice().first() {
            let predicted = self.classifier.classify(context.dp, packet, context.port);
            if let Some(predicted) = predicted
                .as_ref()
                .filter(|of| context.dp.is_write(of, packet))
            {
                if !self.gro.is_empty() {
                    self.delivery.flush_gro(context, &mut self.gro);
                    // What came before may have changed what its headers are like.
                    continue;
                }
                let placed = self
                    .delivery
                    .receive_writes(context, predicted, packets.as_slice());
                if placed > 0 {
                    self.delivery
                        .defer_writes(context, packets.by_ref().take(placed), placed);
                    continue;
                }
            }
            let Some(packet) = packets.next() else {
                break;
            };
            if let Some(later) = packets.as_slice().get(HEADERS_AHEAD) {
                fetch_line(context.dp.frames.umem.bytes(later.first()).as_ptr());
            }
            self.receive_packet(context, packet, predicted);
        }
        drop(packets);
        self.delivery.flush_gro(context, &mut self.gro);
        self.batch = batch;
    }

    /// Appends a packet's segment to those before it, if it only continues them.
    #[inline(never)]
    fn receive_packet<P: Port>(
        &mut self,
        context: &mut RxContext<'_, P>,
        packet: Packet,
        predicted: Option<Predicted>,
    ) {
        let (id, port) = (predicted.as_ref().map(|of| of.id), context.port);
        let verified = predicted.and_then(|predicted| context.dp.verify(predicted, &packet, port));
        if let (Some(id), Some((says, crc_verified))) = (id, verified) {
            let segment = RxSegment::new(packet, &says.payload, crc_verified);
            return self.merge(context, Headers::Predicted(id, &says), segment);
        }
        match self.classifier.parse(context.dp, packet, context.port) {
            Some(Arrived::Segment(mut head, segment)) => {
                self.merge(context, Headers::Parsed(&mut head), segment);
            }
            Some(Arrived::Packet(received, packet)) => context.receive_packet(packet, &received),
            Some(Arrived::Error(report)) => {
                let RxContext { dp, tx, ctl, .. } = context;
                ctl.icmp_errors(dp, tx, &[report]);
            }
            None => {}
        }
    }

    /// Appends a segment to those before it, if it only continues them. Otherwise those are passed on, and it
    /// begins a new batch.
    #[inline(always)]
    fn merge<P: Port>(
        &mut self,
        context: &mut RxContext<'_, P>,
        headers: Headers<'_>,
        segment: RxSegment,
    ) {
        if !self.gro.is_continued_by(&headers, &segment)
            && !self.begin(context, headers, segment.len)
        {
            // Its connection was there when it was verified.
            return context.dp.frames.pool.free_packet(segment.packet);
        }
        self.gro.push(segment, &context.dp.frames.umem);
    }

    /// Passes on the segments that came before, and starts over with one of so many bytes that has these
    /// headers; says whether its connection is still there.
    #[inline(never)]
    fn begin<P: Port>(
        &mut self,
        context: &mut RxContext<'_, P>,
        headers: Headers<'_>,
        len: usize,
    ) -> bool {
        // What came before may change what is predicted, or end the connection: TCP judges that.
        let head = match headers {
            Headers::Predicted(id, says) => {
                let head = context.dp.predicted_head(id, says);
                head.map(|head| (head, Some(id)))
            }
            Headers::Parsed(head) => {
                // It comes while those before are taken in.
                head.hint = context.tx.fetch_flow(context.dp, &head.tuple, len);
                Some((*head, None))
            }
        };
        self.delivery.flush_gro(context, &mut self.gro);
        let Some((head, predicted)) = head else {
            return false;
        };
        self.gro.begin(head, predicted);
        true
    }
}
