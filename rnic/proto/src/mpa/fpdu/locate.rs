//! Where an FPDU begins in bytes that came out of order (RFC 5044 section 6, rule 2).

use super::super::marker::{self, MARKER_INTERVAL, MARKER_LEN, MARKER_SPACING, Markers};
use crate::{Bytes, Gather};

/// Where the first FPDU begins that a Marker in `bytes` points to and that begins in them; they
/// lie at `at` of their direction's stream, counted from the first byte behind the start-up.
pub fn locate(bytes: &Gather<'_>, at: u64) -> Option<usize> {
    let mut place = Markers::On.next(at)?;
    loop {
        let back = marker::fpdu_pointer(bytes.array::<MARKER_LEN>(place)?);
        let begins = place.checked_sub(back).and_then(|header| {
            let next = Markers::On.next(at.wrapping_add(header as u64));
            match (back, next) {
                (0, _) => Some(place),
                // A Marker right before the length belongs to the FPDU.
                (_, Some(MARKER_SPACING)) => header.checked_sub(MARKER_LEN),
                _ => Some(header),
            }
        });
        if begins.is_some() {
            return begins;
        }
        place += MARKER_INTERVAL;
    }
}
