//! Frames are taken from the ports and handed to the receive path, batch by batch.

use rnic_xsk::Port;
use userspace_net::Instant;

use super::Shard;
use super::loopback::LOOPBACK;
use super::rx::{LateClock, RECEIVE_BATCH, RxContext};
use super::siblings::SIBLINGS;

/// Batches taken from one port before the next port is served: as many as a receive ring has frames. A poll
/// must empty the ring. For 64 ACKs a sender produces as much as triggers the next 64. So frames that a poll leaves
/// would stay, and a ring that was full once would never have more than 64 free entries.
const BATCHES: usize = 8;

/// How often the only queue is asked in a poll that found nothing else to do: together as long as the
/// rest of such a poll. What comes meanwhile is found at once, and not after half a poll on
/// average; a doorbell is found by as much later at most.
const ATTEMPTS_WHEN_IDLE: u32 = 32;

impl<P: Port> Shard<P> {
    /// Takes batches of frames from each port, until it has no more or has had its turn. Time goes on
    /// with each, but see [`LateClock`]. `idle`: there is nothing else to do.
    pub(super) fn receive(&mut self, clock: &impl Fn() -> Instant, idle: bool) -> bool {
        let loops = !self.dp.loopback.is_empty();
        let attempts = match self.dp.interface_ports {
            1 if idle && !loops => ATTEMPTS_WHEN_IDLE,
            _ => 1,
        };
        let mut worked = false;
        for index in 0..self.dp.ports.len() {
            worked |= self.receive_from(index, attempts, clock);
        }
        // What the links brought may have made one end of a loopback transmit: that waits for the next poll.
        if loops {
            worked |= self.receive_from(LOOPBACK, 1, clock);
        }
        if self.dp.siblings.is_some() {
            worked |= self.exchange_with_siblings(clock);
        }
        worked
    }

    /// Takes a port's batches.
    #[inline]
    fn receive_from(&mut self, index: usize, attempts: u32, clock: &impl Fn() -> Instant) -> bool {
        let mut worked = false;
        for _ in 0..BATCHES {
            // By a look of its own at the clock: there may be none for a frame alone.
            let count = self.rx.take(&mut self.dp, index, attempts, clock);
            // Most attempts find nothing, and cost no more than that.
            if count == 0 {
                break;
            }
            worked = true;
            if count == 1 && !self.rx.deferred().is_waiting() {
                self.receive_batch(index, Some(clock));
            } else {
                self.dp.advance(clock());
                self.receive_batch(index, None);
            }
            if count < RECEIVE_BATCH {
                break;
            }
            if let Some(port) = self.dp.ports.get_mut(index) {
                port.refill(&mut self.dp.frames.pool);
            }
        }
        worked
    }

    /// Takes what siblings handed over, and the frames that they gave for others. Wakes those that sleep and were
    /// handed over something.
    #[inline(never)]
    fn exchange_with_siblings(&mut self, clock: &impl Fn() -> Instant) -> bool {
        let worked = self.receive_from(SIBLINGS, 1, clock);
        if let Some(siblings) = &mut self.dp.siblings {
            siblings.handover().flush();
            siblings.handover().take_back(&mut self.dp.frames.pool);
        }
        worked
    }

    /// Hands the batch that came from a port to the receive path.
    // By itself, so that a poll that finds nothing has nothing of it.
    #[inline(never)]
    fn receive_batch(&mut self, port: usize, clock: LateClock<'_>) {
        // What was handed over came over the interface, whichever queue is another shard's.
        let port = if port == SIBLINGS { 0 } else { port };
        self.rx.receive_batch(&mut RxContext {
            dp: &mut self.dp,
            tx: &mut self.tx,
            ctl: &mut self.ctl,
            port,
            clock,
        });
    }
}
