//! What is in the streams: bytes that anybody can name by their stream and their place in it.

use std::sync::LazyLock;

use super::Random;

/// After so many bytes a stream repeats itself: a prime, so that no segment size divides it.
const PERIOD: usize = 65_521;

/// Most bytes that one look at a stream takes.
const LOOK_MAX: usize = 131_072;

static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut random = Random::new(1);
    let lap: Vec<u8> = (0..PERIOD)
        .map(|_| random.next().to_le_bytes()[3])
        .collect();
    lap.iter()
        .copied()
        .cycle()
        .take(PERIOD + LOOK_MAX)
        .collect()
});

/// What all streams share is made at the first use, unless it was made before.
pub fn make_pattern() {
    LazyLock::force(&BYTES);
}

/// `len` bytes of stream `voice`, from `from` on.
pub fn pattern(voice: u64, from: u64, len: u64) -> &'static [u8] {
    let at = ((voice * 7919 + from) % PERIOD as u64) as usize;
    &BYTES[at..at + len as usize]
}
