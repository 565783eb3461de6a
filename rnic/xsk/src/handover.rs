//! Packets that came to the wrong shard of an interface, on their way to the right one.
//!
//! The shards of an interface have one UMEM, and each has a pool of its own. So a packet is handed over by its
//! frames, and nothing is copied. Who takes it gives as many frames of its own for them: no pool runs dry because
//! another shard's flows come to its queue. A packet that finds the way full, or its taker without free frames, is
//! lost and counted, and TCP or SCTP sends it again. Neither shard ever waits for the other.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::channel::{Bell, Queue};
use crate::frame::Frame;
use crate::packet::Packet;
use crate::pool::FramePool;
use crate::sync::{AtomicBool, Ordering};
use crate::umem::CHUNKS_MAX;

#[cfg(all(test, loom))]
mod models;
#[cfg(test)]
mod tests;

/// One shard's end of the ways to its siblings, the other shards of its interface.
#[derive(Debug)]
pub struct Handover {
    /// To each shard. None to this one.
    to: Vec<Option<Outward>>,
    /// From each shard. None from this one.
    from: Vec<Option<Arc<Lane>>>,
    inbox: Arc<Inbox>,
    /// The last look ended before all lanes were empty.
    more: bool,
    /// Frames that were given, and nothing has come back for.
    owed: usize,
    /// The shard that is taken from first, the next time.
    first: usize,
    /// This shard said that it would sleep, and has not looked since.
    slept: bool,
    /// Packets were given and nobody was woken for them yet.
    unrung: bool,
    statistics: HandoverStatistics,
}

/// The giver's part of a lane.
#[derive(Debug)]
struct Outward {
    lane: Arc<Lane>,
    /// Packets were given and its taker was not woken for them yet.
    unrung: bool,
}

/// From one shard to one other.
#[derive(Debug)]
struct Lane {
    given: Queue<Packet>,
    /// A frame for each one that was given.
    returned: Queue<Frame>,
    inbox: Arc<Inbox>,
}

/// By which a shard learns of packets for it: it need not look at each lane at each poll.
#[derive(Debug)]
struct Inbox {
    /// Packets were given since the last look. Changed by swaps alone: a look that takes one giver's news then sees
    /// what all before it have given.
    news: AtomicBool,
    /// What the shard sleeps on.
    bell: Bell,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandoverStatistics {
    /// Packets given to other shards.
    pub given: u64,
    /// Packets lost because the way was full.
    pub full: u64,
    /// Packets taken from other shards.
    pub taken: u64,
    /// Packets of other shards lost because this one had too few free frames.
    pub no_frame: u64,
}

impl Handover {
    /// An end for each shard of an interface. `depth` packets may be under way from each to each.
    ///
    /// # Errors
    ///
    /// The kernel's, when it gives no eventfd.
    ///
    /// # Panics
    ///
    /// When `depth` is 0.
    pub fn among(shards: usize, depth: usize) -> io::Result<Vec<Handover>> {
        let inbox = |_| {
            Ok(Arc::new(Inbox {
                news: AtomicBool::new(false),
                bell: Bell::new()?,
            }))
        };
        let inboxes: Vec<_> = (0..shards).map(inbox).collect::<io::Result<_>>()?;
        let lane = |to: usize| Lane {
            given: Queue::new(depth),
            returned: Queue::new(depth * CHUNKS_MAX),
            inbox: Arc::clone(&inboxes[to]),
        };
        let lanes: Vec<Vec<_>> = (0..shards)
            .map(|from| {
                let lane = |to| (to != from).then(|| Arc::new(lane(to)));
                (0..shards).map(lane).collect()
            })
            .collect();
        let outward = |lane: &Option<Arc<Lane>>| {
            lane.as_ref().map(|lane| Outward {
                lane: Arc::clone(lane),
                unrung: false,
            })
        };
        let end = |me: usize| Handover {
            to: lanes[me].iter().map(outward).collect(),
            from: lanes.iter().map(|lanes| lanes[me].clone()).collect(),
            inbox: Arc::clone(&inboxes[me]),
            more: false,
            owed: 0,
            first: 0,
            slept: false,
            unrung: false,
            statistics: HandoverStatistics::default(),
        };
        Ok((0..shards).map(end).collect())
    }

    /// Gives a packet to a shard, which is woken by [`Self::flush`]. No frame of it is on loan. What finds no place
    /// is lost, and its frames go to `pool`, as do those that came back for others.
    pub fn give(&mut self, shard: usize, packet: Packet, pool: &mut FramePool) {
        // For each frame under way a place is kept to come back by: a queue holds so many for each packet of the other.
        self.take_back(pool);
        let frames = packet.frame_count();
        let outward = self.to.get_mut(shard).and_then(Option::as_mut);
        let refused = match outward {
            Some(outward) => outward.give(packet).err(),
            None => Some(packet),
        };
        match refused {
            None => {
                self.unrung = true;
                self.owed += frames;
                self.statistics.given += 1;
            }
            Some(packet) => {
                self.statistics.full += 1;
                pool.free_packet(packet);
            }
        }
    }

    /// Wakes the shard that sleeps and was given a packet.
    #[inline]
    pub fn flush(&mut self) {
        if std::mem::take(&mut self.unrung) {
            for outward in self.to.iter_mut().flatten() {
                if std::mem::take(&mut outward.unrung) {
                    let inbox = &outward.lane.inbox;
                    inbox.news.swap(true, Ordering::AcqRel);
                    inbox.bell.ring();
                }
            }
        }
    }

    /// Puts frames that came back for those that were given into the pool.
    pub fn take_back(&mut self, pool: &mut FramePool) {
        if self.owed == 0 {
            return;
        }
        for outward in self.to.iter().flatten() {
            while let Some(frame) = outward.lane.returned.pop() {
                self.owed -= 1;
                pool.free(frame);
            }
        }
    }

    /// Appends up to `max` packets from other shards to `out`; says how many.
    #[inline]
    pub fn take(&mut self, pool: &mut FramePool, out: &mut Vec<Packet>, max: usize) -> usize {
        // Most looks find nothing, and cost no more than that.
        match self.slept || self.more || self.inbox.news.load(Ordering::Relaxed) {
            true => self.take_some(pool, out, max),
            false => 0,
        }
    }

    #[inline(never)]
    fn take_some(&mut self, pool: &mut FramePool, out: &mut Vec<Packet>, max: usize) -> usize {
        if self.slept {
            self.slept = false;
            self.inbox.bell.wake_up();
        }
        self.inbox.news.swap(false, Ordering::AcqRel);
        let (mut count, mut looked) = (0, 0);
        // In turn: one that gives without end keeps no other waiting.
        let (later, sooner) = self.from.split_at(self.first);
        self.first = (self.first + 1) % self.from.len();
        for lane in sooner.iter().chain(later).flatten() {
            // Those that are lost count as well: their giver may be as fast as this.
            while looked < max
                && let Some(packet) = lane.given.pop()
            {
                looked += 1;
                match pool.exchange_for(packet, |frame| lane.give_back(frame)) {
                    Some(packet) => {
                        self.statistics.taken += 1;
                        out.push(packet);
                        count += 1;
                    }
                    None => self.statistics.no_frame += 1,
                }
            }
        }
        self.more = looked == max;
        count
    }

    /// Whether no packet of another shard waits.
    fn is_empty(&self) -> bool {
        let mut lanes = self.from.iter().flatten();
        lanes.all(|lane| lane.given.is_empty())
    }

    /// This shard will look for packets only when it is woken for them.
    pub fn prepare_sleep(&mut self) {
        self.slept = true;
        self.inbox.bell.prepare_sleep();
        if !self.is_empty() {
            // Its giver may not have seen that this shard sleeps.
            self.inbox.bell.end_sleep();
        }
    }

    /// Readable when there is something to take for a shard that sleeps.
    pub fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inbox.bell.fd()
    }

    /// What was counted so far.
    pub fn statistics(&self) -> HandoverStatistics {
        self.statistics
    }
}

impl Outward {
    fn give(&mut self, packet: Packet) -> Result<(), Packet> {
        self.lane.given.push(packet)?;
        self.unrung = true;
        Ok(())
    }
}

impl Lane {
    fn give_back(&self, frame: Frame) {
        // Its place was kept when the one was given that it is for.
        let _ = self.returned.push(frame);
    }
}
