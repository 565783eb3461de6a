//! Prefetching: state that is needed soon is fetched into the cache while other work is done. With thousands
//! of connections the next one's state is in none of a core's own caches. Waiting for each of its cache lines
//! in turn takes longer than the work on them.

pub(crate) use rnic_xsk::prefetch::fetch_line;
use rnic_xsk::prefetch::{LINE, fetch_lines};

/// Asks the processor for all cache lines of a value, if there is one. Nothing waits for them.
#[inline]
pub(crate) fn fetch<T>(value: Option<&T>) {
    let Some(value) = value else {
        return;
    };
    let first = std::ptr::from_ref(value).cast::<u8>();
    for line in 0..size_of::<T>().div_ceil(LINE) {
        fetch_line(first.wrapping_add(line * LINE));
    }
    // It may end in one line more.
    if !align_of::<T>().is_multiple_of(LINE) && size_of::<T>() > 0 {
        fetch_line(first.wrapping_add(size_of::<T>() - 1));
    }
}

/// As [`fetch`], of so many lines from where some bytes begin, whether they have as many or not: to
/// look would take longer.
#[inline]
pub(crate) fn fetch_first<const LINES: usize>(bytes: &[u8]) {
    fetch_lines::<LINES>(bytes.as_ptr());
}
