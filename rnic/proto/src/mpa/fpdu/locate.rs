//! Where an FPDU begins in octets that came out of order (RFC 5044 section 6, rule 2).

use super::super::marker::{self, MARKER_INTERVAL, MARKER_LEN, MARKER_SPACING, Markers};
use crate::{Gather, Octets};

/// Where the first FPDU begins that a Marker in `octets` points to and that begins in them; they
/// lie at `at` of their direction's stream, counted from the first octet behind the start-up.
pub fn locate(octets: &Gather<'_>, at: u64) -> Option<usize> {
    let mut place = Markers::On.next(at)?;
    loop {
        let back = marker::fpdu_pointer(octets.array::<MARKER_LEN>(place)?);
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
