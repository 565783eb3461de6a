//! Where the parts of one FPDU lie, with Markers between them.
//!
//! Everything in a stream of FPDUs is a multiple of four bytes, so that a Marker never falls into
//! an FPDU's length or CRC.

use std::ops::Range;

use rnic_crc::Words;

use super::super::marker::{self, MARKER_INTERVAL, Markers};
use super::places::Places;
use super::{CRC_LEN, HEADER_LEN, fpdu_length, pad_length};

/// Where the parts of an FPDU lie; places count from its first byte, which is a Marker's when one
/// falls between it and the FPDU before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    ulpdu_len: usize,
    places: Places,
    /// All its bytes.
    len: usize,
}

impl Layout {
    /// The FPDU around `ulpdu_len` bytes at `at` of its direction's stream, counted from the first
    /// byte behind the start-up.
    ///
    /// # Panics
    /// When the ULPDU is longer than 65535 bytes.
    #[inline]
    pub const fn new(markers: Markers, at: u64, ulpdu_len: usize) -> Self {
        assert!(
            ulpdu_len <= u16::MAX as usize,
            "no ULPDU is longer than MULPDU_MAX"
        );
        let places = Places::new(markers, at);
        Self {
            ulpdu_len,
            places,
            // A Marker right behind the FPDU belongs to the next one.
            len: places.real(fpdu_length(ulpdu_len) - 1) + 1,
        }
    }

    /// Bytes of the ULPDU.
    #[inline]
    pub const fn ulpdu_len(&self) -> usize {
        self.ulpdu_len
    }

    /// Bytes of the whole FPDU, Markers included.
    #[allow(clippy::len_without_is_empty)]
    #[inline]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Where the ULPDU_Length field begins.
    #[inline]
    pub const fn header_at(&self) -> usize {
        self.places.real(0)
    }

    /// Where its Markers are.
    #[inline]
    pub(super) const fn places(&self) -> Places {
        self.places
    }

    /// The ULPDU_Length field.
    #[inline]
    pub(super) fn length_field(&self) -> [u8; HEADER_LEN] {
        // Checked when it was made.
        (self.ulpdu_len as u16).to_be_bytes()
    }

    /// Where the CRC field begins; the CRC covers all bytes before.
    #[inline]
    pub(super) const fn crc_at(&self) -> usize {
        // Everything is a multiple of four bytes: no Marker is within the CRC.
        self.len - CRC_LEN
    }

    /// Where `len` bytes of the ULPDU from its byte `from` on lie, in order, none of the ranges
    /// empty. What goes beyond the ULPDU is left out.
    #[inline]
    pub fn ulpdu(&self, from: usize, len: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let from = from.min(self.ulpdu_len);
        let len = len.min(self.ulpdu_len - from);
        self.spans(HEADER_LEN + from, len)
    }

    /// From where to where the same bytes lie, and the Markers between them, whose places count from there.
    #[inline]
    pub(super) fn extent(&self, from: usize, len: usize) -> (Range<usize>, Words) {
        let first = HEADER_LEN + from.min(self.ulpdu_len);
        let end = first + len.min(self.ulpdu_len + HEADER_LEN - first);
        let start = self.places.real(first);
        let extent = match end - first {
            0 => start..start,
            _ => start..self.places.real(end - 1) + 1,
        };
        let between = self.places.from(first).first();
        let words = match between < extent.len() {
            // Their way back is longer by an interval for each.
            true => {
                let back = marker::marker(start + between - self.header_at());
                let step = MARKER_INTERVAL as u32;
                Words::new(between, MARKER_INTERVAL, u32::from_be_bytes(back), step)
            }
            false => Words::NONE,
        };
        (extent, words)
    }

    /// Where the pad lies.
    #[inline]
    pub(super) fn pad(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        self.spans(HEADER_LEN + self.ulpdu_len, pad_length(self.ulpdu_len))
    }

    /// Whether there is any Marker in it.
    #[inline]
    pub const fn has_markers(&self) -> bool {
        self.places.first() < self.len
    }

    /// Whether its first bytes, so many, are the ULPDU_Length field and the beginning of the ULPDU with
    /// no Marker before or between them.
    #[inline]
    pub(super) const fn is_plain_to(&self, bytes: usize) -> bool {
        bytes <= self.places.first() && bytes <= HEADER_LEN + self.ulpdu_len
    }

    /// Its Markers: where each begins, and how many bytes before it the ULPDU_Length field does.
    #[inline]
    pub fn markers(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (len, header) = (self.len(), self.header_at());
        (self.places.first().min(len)..len)
            .step_by(MARKER_INTERVAL)
            .map(move |at| (at, at.saturating_sub(header)))
    }

    #[inline]
    fn spans(&self, plain: usize, len: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let places = self.places;
        let (mut at, end) = (plain, plain + len);
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let stop = end.min(places.next(at));
            let start = places.real(at);
            let span = start..start + (stop - at);
            at = stop;
            Some(span)
        })
    }
}
