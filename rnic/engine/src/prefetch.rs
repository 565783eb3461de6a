//! What is needed soon is fetched into the cache while something else is worked on. Among thousands of
//! connections the next one's state is in none of a core's own caches, and to wait for each of its
//! lines in turn takes longer than all that is done with them.
//!
//! Invariant: nothing here reads or writes memory as far as the program can tell.
#![allow(unsafe_code)]

/// Octets of a cache line.
const LINE: usize = 64;

/// Asks the processor for all cache lines of a value, if there is one. Nothing waits for them.
#[inline]
pub(crate) fn fetch<T>(value: Option<&T>) {
    let Some(value) = value else {
        return;
    };
    let first = std::ptr::from_ref(value).cast::<i8>();
    for line in 0..size_of::<T>().div_ceil(LINE) {
        fetch_line(first.wrapping_add(line * LINE));
    }
    // It may end in one line more.
    if !align_of::<T>().is_multiple_of(LINE) && size_of::<T>() > 0 {
        fetch_line(first.wrapping_add(size_of::<T>() - 1));
    }
}

/// As [`fetch`], of the line at an address, which may be any.
#[inline]
pub(crate) fn fetch_at(at: *const u8) {
    fetch_line(at.cast());
}

/// As [`fetch`], of so many lines from where some octets begin, whether they have as many or not: to
/// look would take longer.
#[inline]
pub(crate) fn fetch_first<const LINES: usize>(octets: &[u8]) {
    for line in 0..LINES {
        fetch_line(octets.as_ptr().wrapping_add(line * LINE).cast());
    }
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn fetch_line(at: *const i8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: every x86-64 processor has the instruction, which is a hint: at any address it changes
    // nothing that a program can see, and never faults.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(at) }
}

/// No such instruction is known here.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn fetch_line(_: *const i8) {}
