//! Code that does nothing but take its place in the first instruction cache.
//!
//! A transport that keeps books runs through some ten KiB of code for each message, also while nobody
//! waits for it. What that displaces there is fetched again for the next frame, the kernel's own code
//! too: a cost of there being code at all, whatever it does.

use std::hint::black_box;

/// The most that can be run through, in KiB.
pub const CODE_MAX: usize = 64;

/// Some twenty bytes of code for each number, one instruction behind the other.
macro_rules! straight {
    ($long:ident, $short:ident, $seed:ident: $($number:literal)*) => {
        $(
            $long = ($long ^ ($number + $seed as u64)).wrapping_add(0x1234_5600 + $number);
            $short = $short.rotate_left($number % 31 + 1).wrapping_add(0x2345_6700 ^ $number);
        )*
    };
}

/// About a KiB of code, which is another for each `N`.
#[inline(never)]
fn block<const N: usize>(mut long: u64, mut short: u32) -> (u64, u32) {
    straight!(long, short, N:
        1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30
        31 32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54);
    (long, short)
}

type Block = fn(u64, u32) -> (u64, u32);

macro_rules! blocks {
    ($($tens:literal)*) => {
        [$(
            block::<{ 8 * $tens }>, block::<{ 8 * $tens + 1 }>, block::<{ 8 * $tens + 2 }>,
            block::<{ 8 * $tens + 3 }>, block::<{ 8 * $tens + 4 }>, block::<{ 8 * $tens + 5 }>,
            block::<{ 8 * $tens + 6 }>, block::<{ 8 * $tens + 7 }>,
        )*]
    };
}

static BLOCKS: [Block; CODE_MAX] = blocks!(0 1 2 3 4 5 6 7);

/// Runs once through about so many KiB, [`CODE_MAX`] at most.
pub(super) fn run_through(kib: usize) {
    let begin = black_box((1, 2));
    let run = |(long, short), block: &Block| block(long, short);
    black_box(BLOCKS.iter().take(kib).fold(begin, run));
}
