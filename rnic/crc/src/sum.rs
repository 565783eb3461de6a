//! The sum alone, for bytes whose CRC is another matter.
#![allow(unsafe_code)]

use crate::kernel::fold;
use crate::portable;

/// See [`crate::sum`].
pub(crate) fn sum(bytes: &[u8]) -> u16 {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has what it takes.
        return fold(unsafe { words_by_avx2(bytes) });
    }
    fold(portable::words(bytes))
}

/// The compiler makes the same sum of wider vectors.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn words_by_avx2(bytes: &[u8]) -> u64 {
    portable::words(bytes)
}
