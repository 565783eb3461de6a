//! Asking the processor for cache lines that are needed soon.
//!
//! Invariant: nothing here reads or writes memory as far as the program can tell.

/// Bytes of a cache line.
pub const LINE: usize = 64;

/// Asks for so many lines from an address on, which may be any. Nothing waits for them.
#[inline]
pub fn fetch_lines<const LINES: usize>(at: *const u8) {
    for line in 0..LINES {
        fetch_line(at.wrapping_add(line * LINE));
    }
}

/// Asks for the line of an address, which may be any. Nothing waits for it.
#[cfg(target_arch = "x86_64")]
#[inline]
pub fn fetch_line(at: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: every x86-64 processor has the instruction, which is a hint: at any address it changes
    // nothing that a program can see, and never faults.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
}

/// No such instruction is known here.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub fn fetch_line(_: *const u8) {}
