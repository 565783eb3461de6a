//! The network between the nodes: each pair of them has a bad link. Frames go where their
//! destination address says; on the way they are lost, doubled, overtaken, damaged, cut and joined.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use rnic_xsk::MemoryWire;
use userspace_net::Instant;

use crate::impairment::Impairment;
use crate::random::Random;
use crate::tcp_frames::{self, Damage};

/// What the network does; chances in permille.
#[derive(Clone, Copy, Debug)]
pub struct Manners {
    pub impairment: Impairment,
    /// A segment is cut in two.
    pub cut: u64,
    /// Two segments of one flow are joined.
    pub join: u64,
    /// As long as that becomes no longer than so many bytes.
    pub longest: usize,
    /// Two words of a payload change places: the TCP checksum does not see it, a CRC does.
    pub sly: u64,
}

impl Manners {
    /// Every frame arrives, in order.
    pub fn are_good(&self) -> bool {
        let it = self.impairment;
        it.loss + it.corrupt + it.reorder + it.duplicate + self.sly == 0
    }
}

/// When a frame arrives, when it was sent, and the frame.
type Flying = Reverse<(Instant, u64, Vec<u8>)>;

pub struct Network {
    manners: Manners,
    random: Random,
    /// What flies to each node, by time, then by order of sending.
    flying: Vec<BinaryHeap<Flying>>,
    sent: u64,
    /// Initiators' ports of the streams with CRCs; only those may be damaged slyly.
    guarded: BTreeSet<u16>,
    /// Initiators' ports of the streams that were.
    damaged: Vec<u16>,
    /// Initiators' ports of the streams that go over an internal link.
    kept_out: BTreeSet<u16>,
    /// The first nodes, so many, are shards of one interface: a frame may come to each of them.
    siblings: usize,
    /// So many of a thousand frames to one of them come to another.
    astray: u64,
}

impl Network {
    pub fn new(nodes: usize, siblings: usize, manners: Manners, random: Random) -> Self {
        let mut random = random;
        let astray = match siblings {
            0 => 0,
            _ => random.below(1000),
        };
        Self {
            siblings,
            astray,
            manners,
            random,
            flying: (0..nodes).map(|_| BinaryHeap::new()).collect(),
            sent: 0,
            guarded: BTreeSet::new(),
            damaged: Vec::new(),
            kept_out: BTreeSet::new(),
        }
    }

    /// From here on this stream's bytes are FPDUs with CRCs.
    pub fn guard(&mut self, port: u16) {
        self.guarded.insert(port);
    }

    /// Nothing of this stream may be seen here.
    pub fn keep_out(&mut self, port: u16) {
        self.kept_out.insert(port);
    }

    /// The next stream that was damaged slyly.
    pub fn take_damaged(&mut self) -> Option<u16> {
        self.damaged.pop()
    }

    /// Takes what a node's port sent.
    pub fn take(&mut self, wire: &MemoryWire, now: Instant) {
        let mut frames: Vec<Vec<u8>> = Vec::new();
        let mut frame = Vec::new();
        let longest = self.manners.longest;
        while wire.take(&mut frame) {
            if !self.kept_out.is_empty() {
                let found = tcp_frames::ports(&frame).into_iter().flatten();
                let strayed = found.into_iter().find(|port| self.kept_out.contains(port));
                assert_eq!(strayed, None, "on the network, and of an internal link");
            }
            let join = self.random.chance(self.manners.join);
            let before = frames.last_mut().filter(|_| join);
            if !before.is_some_and(|before| tcp_frames::join(before, &frame, longest)) {
                frames.push(std::mem::take(&mut frame));
            }
        }
        for frame in frames {
            if self.random.chance(self.manners.cut) {
                let at = self.random.next() as usize;
                for part in tcp_frames::cut(&frame, at) {
                    self.fly(part, now);
                }
            } else {
                self.fly(frame, now);
            }
        }
    }

    fn fly(&mut self, mut frame: Vec<u8>, now: Instant) {
        if self.random.chance(self.manners.sly) {
            let at = self.random.next() as usize;
            if let Damage::Done { port } = tcp_frames::damage(&mut frame, at, &self.guarded) {
                self.damaged.push(port);
            }
        }
        // Node n has the address 02:00:00:00:00:nn. An answer to a damaged address finds nobody.
        let to = usize::from(frame[5]);
        if to >= self.flying.len() {
            return;
        }
        let to = self.queue(to, &frame);
        for (delay, frame) in self.manners.impairment.fates(&mut self.random, &frame) {
            self.sent += 1;
            self.flying[to].push(Reverse((now + delay, self.sent, frame)));
        }
    }

    /// The shard to which a frame for a node comes. What begins a connection comes to the right one: there it is from
    /// then on.
    fn queue(&mut self, to: usize, frame: &[u8]) -> usize {
        if to >= self.siblings || tcp_frames::begins(frame) {
            return to;
        }
        match self.random.chance(self.astray) {
            true => self.random.below(self.siblings as u64) as usize,
            false => to,
        }
    }

    /// Gives a node's port what has arrived; whether there was anything.
    pub fn give(&mut self, node: usize, wire: &MemoryWire, now: Instant) -> bool {
        let mut any = false;
        while let Some(Reverse((at, _, frame))) = self.flying[node].peek() {
            if *at > now || !wire.push(frame) {
                break;
            }
            any = true;
            self.flying[node].pop();
        }
        any
    }

    /// Nobody takes what arrives at a node.
    pub fn discard(&mut self, node: usize) {
        self.flying[node].clear();
    }

    /// When the next frame arrives at a node.
    pub fn next(&self, node: usize) -> Option<Instant> {
        self.flying[node].peek().map(|Reverse((at, _, _))| *at)
    }
}
