//! Bytes that look random and are known to whoever knows the seed: the content of test transfers.

/// A pseudo-random sequence of bytes (SplitMix64), the same for the same seed on every machine.
#[derive(Clone, Debug)]
pub struct Pattern(u64);

impl Pattern {
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Fills a buffer with the next bytes; a part of a word that is left over is not used later.
    pub fn fill(&mut self, buffer: &mut [u8]) {
        for chunk in buffer.chunks_mut(8) {
            chunk.copy_from_slice(&self.next_u64().to_le_bytes()[..chunk.len()]);
        }
    }

    /// The first `length` bytes of a seed.
    #[must_use]
    pub fn bytes(seed: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        Self::new(seed).fill(&mut bytes);
        bytes
    }
}
