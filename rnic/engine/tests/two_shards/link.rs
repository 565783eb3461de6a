//! A link with a seed: frames are lost, doubled, corrupted and overtaken, in virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use rnic_net::Fragments;
use rnic_xsk::MemoryWire;
use userspace_net::Instant;

use crate::impairment::Impairment;
use crate::random::Random;

/// A link that does everything that links do.
pub const ROUGH: Impairment = Impairment {
    loss: 20,
    duplicate: 10,
    corrupt: 5,
    reorder: 50,
    delay: Duration::from_micros(200),
};

#[derive(Debug)]
pub struct Link {
    pub impairment: Impairment,
    random: Random,
    /// By time, then by order of sending.
    flying: BinaryHeap<Reverse<(Instant, u64, Vec<u8>)>>,
    sent: u64,
    pub frames: u64,
    /// Of their bytes and times, and their order.
    pub digest: u64,
    /// Bytes of the largest of them.
    pub largest: usize,
    /// Nothing gets through.
    pub cut: bool,
    /// Nothing to these ports gets through (IPv4).
    pub mute: Vec<u16>,
    /// Packets larger than this go on in fragments, as behind a router that ignores DF.
    pub fragment_to: Option<u32>,
    /// The last fragment of each packet is lost.
    pub lose_last_fragments: bool,
    /// If they are kept: the frames that went in, and those that came out.
    pub kept: Option<[Vec<Vec<u8>>; 2]>,
}

impl Link {
    pub fn new(seed: u64, impairment: Impairment) -> Self {
        Self {
            impairment,
            random: Random::new(seed),
            flying: BinaryHeap::new(),
            sent: 0,
            frames: 0,
            digest: 0,
            largest: 0,
            cut: false,
            mute: Vec::new(),
            fragment_to: None,
            lose_last_fragments: false,
            kept: None,
        }
    }

    /// Takes what the port of `wire` sent.
    pub fn take(&mut self, wire: &MemoryWire, now: Instant) {
        let mut frame = Vec::new();
        while wire.take(&mut frame) {
            self.frames += 1;
            let mut hasher = DefaultHasher::new();
            (self.digest, now, &frame).hash(&mut hasher);
            self.digest = hasher.finish();
            self.largest = self.largest.max(frame.len());
            self.keep(0, &frame);
            let port = u16::from_be_bytes([frame[36], frame[37]]);
            if self.cut || self.mute.contains(&port) {
                continue;
            }
            for frame in self.fragments(&frame) {
                self.fly(frame, now);
            }
        }
    }

    /// The pieces in which a frame goes on.
    fn fragments(&mut self, frame: &[u8]) -> Vec<Vec<u8>> {
        let cut = self
            .fragment_to
            .and_then(|mtu| Fragments::new(frame, 14, mtu, self.frames as u32));
        let Some(mut fragments) = cut else {
            return vec![frame.to_vec()];
        };
        let mut all = Vec::new();
        loop {
            let mut piece = vec![0; frame.len()];
            let Some(len) = fragments.write_next(&mut piece) else {
                return all;
            };
            if self.lose_last_fragments && fragments.left() == 0 {
                return all;
            }
            piece.truncate(len);
            all.push(piece);
        }
    }

    fn fly(&mut self, frame: Vec<u8>, now: Instant) {
        for (delay, frame) in self.impairment.fates(&mut self.random, &frame) {
            self.sent += 1;
            self.flying.push(Reverse((now + delay, self.sent, frame)));
        }
    }

    /// Gives the port of `wire` what has arrived.
    pub fn give(&mut self, wire: &MemoryWire, now: Instant) {
        while let Some(Reverse((at, _, frame))) = self.flying.peek() {
            if *at > now || !wire.push(frame) {
                return;
            }
            if let Some(Reverse((_, _, frame))) = self.flying.pop() {
                self.keep(1, &frame);
            }
        }
    }

    fn keep(&mut self, end: usize, frame: &[u8]) {
        if let Some(kept) = &mut self.kept {
            kept[end].push(frame.to_vec());
        }
    }

    /// When the next frame arrives.
    pub fn next(&self) -> Option<Instant> {
        self.flying.peek().map(|Reverse((at, _, _))| *at)
    }
}
