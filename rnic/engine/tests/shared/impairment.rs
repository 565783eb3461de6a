//! What a bad link does to a frame, with a seed.

use std::time::Duration;

use crate::random::Random;

/// What the link does to frames; chances in permille.
#[derive(Clone, Copy, Debug)]
pub struct Impairment {
    pub loss: u64,
    pub duplicate: u64,
    pub corrupt: u64,
    pub reorder: u64,
    pub delay: Duration,
}

impl Impairment {
    pub const NONE: Self = Self {
        loss: 0,
        duplicate: 0,
        corrupt: 0,
        reorder: 0,
        delay: Duration::from_micros(20),
    };

    /// What arrives of a frame, and how long after it was sent.
    pub fn fates(&self, random: &mut Random, frame: &[u8]) -> Vec<(Duration, Vec<u8>)> {
        if random.chance(self.loss) {
            return Vec::new();
        }
        let copies = if random.chance(self.duplicate) { 2 } else { 1 };
        (0..copies).map(|_| self.fate(random, frame)).collect()
    }

    fn fate(&self, random: &mut Random, frame: &[u8]) -> (Duration, Vec<u8>) {
        let mut frame = frame.to_vec();
        if random.chance(self.corrupt) {
            let bit = random.below(frame.len() as u64 * 8) as usize;
            frame[bit / 8] ^= 1 << (bit % 8);
        }
        let mut delay = self.delay;
        if random.chance(self.reorder) {
            delay += Duration::from_nanos(random.below(4 * self.delay.as_nanos() as u64));
        }
        (delay, frame)
    }
}
