//! Bytes that both ends can compute from a seed and a position, so that every byte of a transfer
//! can be checked without sending it twice.

/// A seeded sequence of bytes.
#[derive(Clone, Copy, Debug)]
pub struct Pattern {
    seed: u64,
}

impl Pattern {
    /// Different seeds give unrelated sequences.
    pub fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// Writes the bytes at `position..position + out.len()`.
    pub fn fill(&self, position: u64, out: &mut [u8]) {
        let mut at = position;
        let mut rest = out;
        while !rest.is_empty() {
            let word = self.word(at / 8).to_le_bytes();
            let skip = (at % 8) as usize;
            let take = rest.len().min(8 - skip);
            let (now, later) = rest.split_at_mut(take);
            now.copy_from_slice(&word[skip..skip + take]);
            at += take as u64;
            rest = later;
        }
    }

    /// Writes other bytes than those at `position..position + out.len()`, each of them: where they lay
    /// before, what does not arrive is seen.
    pub fn spoil(&self, position: u64, out: &mut [u8]) {
        self.fill(position, out);
        out.iter_mut().for_each(|byte| *byte = !*byte);
    }

    /// The first position at which `bytes` differ from the sequence at `position`.
    pub fn first_difference(&self, position: u64, bytes: &[u8]) -> Option<u64> {
        let mut expected = [0; 4096];
        let mut at = position;
        for chunk in bytes.chunks(expected.len()) {
            let expected = &mut expected[..chunk.len()];
            self.fill(at, expected);
            if chunk != expected {
                let off = chunk
                    .iter()
                    .zip(&*expected)
                    .position(|(a, b)| a != b)
                    .unwrap_or(0);
                return Some(at + off as u64);
            }
            at += chunk.len() as u64;
        }
        None
    }

    /// SplitMix64 of the word's index: cheap, and no two nearby words alike.
    fn word(&self, index: u64) -> u64 {
        let mut z = self
            .seed
            .wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_cut_of_the_sequence_is_the_same_bytes() {
        let pattern = Pattern::new(7);
        let mut whole = vec![0; 1000];
        pattern.fill(0, &mut whole);
        for (from, to) in [(0, 1), (3, 9), (8, 16), (5, 999), (999, 1000)] {
            let mut part = vec![0; to - from];
            pattern.fill(from as u64, &mut part);
            assert_eq!(part, whole[from..to]);
        }
    }

    #[test]
    fn spoiled_bytes_are_all_others() {
        let pattern = Pattern::new(7);
        let (mut right, mut wrong) = (vec![0; 1000], vec![0; 1000]);
        pattern.fill(5, &mut right);
        pattern.spoil(5, &mut wrong);
        assert!(
            right
                .iter()
                .zip(&wrong)
                .all(|(right, wrong)| right != wrong)
        );
    }

    #[test]
    fn a_single_wrong_byte_is_found_where_it_is() {
        let pattern = Pattern::new(1);
        let mut bytes = vec![0; 10_000];
        pattern.fill(13, &mut bytes);
        assert_eq!(pattern.first_difference(13, &bytes), None);
        bytes[9_876] ^= 1;
        assert_eq!(pattern.first_difference(13, &bytes), Some(13 + 9_876));
    }
}
