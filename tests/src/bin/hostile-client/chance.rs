//! Choices that follow from a seed, and values that programs stumble over.

use rnic_tests::pattern::Pattern;

/// The source of all choices.
#[derive(Debug)]
pub struct Chance(Pattern);

impl Chance {
    pub fn new(seed: u64) -> Self {
        Self(Pattern::new(seed))
    }

    pub fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Less than `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub fn one_in(&mut self, odds: u64) -> bool {
        self.below(odds) == 0
    }

    /// One of them; `None` when there is none.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        let index = self.below(from.len().max(1) as u64) as usize;
        from.get(index)
    }

    /// A number of the kind that is on the edge of something.
    pub fn odd(&mut self) -> u64 {
        const EDGES: [u64; 14] = [
            0,
            1,
            2,
            3,
            7,
            0x7f,
            0xff,
            0xffff,
            0x7fff_ffff,
            0xffff_ffff,
            0x1_0000_0000,
            0x7fff_ffff_ffff_ffff,
            0xffff_ffff_ffff_f000,
            u64::MAX,
        ];
        match self.below(4) {
            0 => EDGES[self.below(EDGES.len() as u64) as usize],
            1 => 1 << self.below(64),
            2 => self.below(64),
            _ => self.next(),
        }
    }

    pub fn odd32(&mut self) -> u32 {
        self.odd() as u32
    }

    /// Mostly one of `known`, else any number.
    pub fn name(&mut self, known: &[u32]) -> u32 {
        match self.pick(known).copied() {
            Some(known) if !self.one_in(6) => known,
            _ => self.odd32(),
        }
    }

    pub fn bytes(&mut self, most: u64) -> Vec<u8> {
        let length = self.below(most + 1) as usize;
        let mut bytes = vec![0; length];
        self.0.fill(&mut bytes);
        bytes
    }
}
