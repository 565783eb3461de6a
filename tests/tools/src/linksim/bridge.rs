//! Both directions between two sides' ports: what one turn of the loop does.

use std::time::Duration;

use rnic_xsk::{Frame, Packet, Port, PortStatistics, XskError};

use super::buffers::Buffers;
use super::config::Config;
use super::direction::{Direction, Watch};

/// Frames taken from a port at a time.
const BATCH: usize = 64;

/// One side of the link: the queues of an interface. All are received from, the first is sent to.
#[derive(Debug)]
pub struct Side<P> {
    /// One port for each queue, at least one.
    pub ports: Vec<P>,
}

/// Two sides and what is between them.
#[derive(Debug)]
pub struct Bridge<P> {
    sides: [Side<P>; 2],
    directions: [Direction; 2],
    buffers: Buffers,
    received: Vec<Packet>,
    answers: Vec<Frame>,
}

impl<P: Port> Bridge<P> {
    /// Joins left and right, whose ports all are on the memory of `buffers`.
    pub fn new(left: Side<P>, right: Side<P>, buffers: Buffers, config: &Config) -> Self {
        let direction = |index: usize| {
            let settings = config.settings[index].clone();
            Direction::new(index, config.seed, settings, config.changes[index].clone())
        };
        Self {
            sides: [left, right],
            directions: [direction(0), direction(1)],
            buffers,
            received: Vec::with_capacity(BATCH),
            answers: Vec::with_capacity(BATCH),
        }
    }

    /// Receives what there is and sends what is due; says whether there was anything.
    ///
    /// # Errors
    ///
    /// When an interface is down or gone.
    pub fn turn(&mut self, now: Duration, watch: &mut dyn Watch) -> Result<bool, XskError> {
        let mut busy = false;
        for side in 0..2 {
            for queue in 0..self.sides[side].ports.len() {
                self.reclaim(side, queue);
                let port = &mut self.sides[side].ports[queue];
                let pool = &mut self.buffers.pool;
                busy |= port.receive(pool, &mut self.received, BATCH) > 0;
                port.refill(pool);
                for packet in self.received.drain(..) {
                    let bytes = packet.len(&self.buffers.umem);
                    let Some(frame) = self.buffers.whole(packet) else {
                        self.directions[side].lack(bytes);
                        continue;
                    };
                    self.directions[side].arrive(
                        now,
                        frame,
                        &mut self.buffers,
                        &mut self.answers,
                        watch,
                    );
                }
            }
            self.answer(now, side, watch);
        }
        for side in 0..2 {
            busy |= self.send(now, side, watch)?;
        }
        Ok(busy)
    }

    /// When there is something to send next, if ever.
    pub fn deadline(&self) -> Option<Duration> {
        self.directions.iter().filter_map(Direction::deadline).min()
    }

    /// Frames that a port took and its interface did not yet.
    pub fn unsent(&mut self) -> usize {
        let ports = self.sides.iter_mut().map(|side| side.ports[0].unsent());
        ports.sum()
    }

    /// Every port.
    pub fn ports(&self) -> impl Iterator<Item = &P> {
        self.sides.iter().flat_map(|side| &side.ports)
    }

    /// Nobody takes a turn until frames come.
    pub fn prepare_sleep(&mut self) {
        for port in self.sides.iter_mut().flat_map(|side| &mut side.ports) {
            port.prepare_sleep(&mut self.buffers.pool);
        }
    }

    /// To the right, to the left.
    pub fn directions(&mut self) -> &mut [Direction; 2] {
        &mut self.directions
    }

    pub fn statistics(&self, side: usize) -> Vec<PortStatistics> {
        self.sides[side]
            .ports
            .iter()
            .map(Port::statistics)
            .collect()
    }

    pub fn free_frames(&self) -> usize {
        self.buffers.pool.available()
    }

    fn reclaim(&mut self, side: usize, queue: usize) {
        while let Some((frame, _)) = self.sides[side].ports[queue].completed() {
            self.buffers.free(frame);
        }
    }

    /// Sends answers back to the side that they are for.
    fn answer(&mut self, now: Duration, side: usize, watch: &mut dyn Watch) {
        for frame in self.answers.drain(..) {
            watch.forwarded(now, 1 - side, self.buffers.bytes(&frame));
            // An answer that finds the ring full is lost, as ICMP may be.
            if let Err(frame) = self.sides[side].ports[0].transmit(frame, 0) {
                self.buffers.free(frame);
            }
        }
    }

    /// Sends to a side what is due for it.
    fn send(
        &mut self,
        now: Duration,
        side: usize,
        watch: &mut dyn Watch,
    ) -> Result<bool, XskError> {
        let (port, direction) = (
            &mut self.sides[side].ports[0],
            &mut self.directions[1 - side],
        );
        let mut sent = false;
        while port.transmit_room() > 0
            && let Some(frame) = direction.depart(now, &mut self.buffers, watch)
        {
            sent = true;
            if let Err(frame) = port.transmit(frame, 0) {
                unreachable!("a ring with room refused a frame of {} bytes", frame.len());
            }
        }
        if sent || port.unsent() > 0 {
            port.flush()?;
        }
        Ok(sent)
    }
}

#[cfg(test)]
mod tests;
