//! What is between Markers, as if there were none.

#[cfg(test)]
mod tests;

use super::places::Places;
use super::{HEADER_LEN, Layout};
use crate::Bytes;

/// A ULPDU, or a part of one, that lies as its FPDU came: its bytes, Markers among them left out.
#[derive(Clone, Copy, Debug)]
pub struct Unmarked<O> {
    /// From the first byte to one past the end: a Marker may be in between.
    bytes: O,
    places: Places,
    /// Bytes without Markers.
    len: usize,
}

impl<'a, O: Bytes<'a>> Unmarked<O> {
    /// The ULPDU of a whole FPDU.
    #[inline]
    pub(super) fn ulpdu(fpdu: &O, layout: &Layout) -> Option<Self> {
        let whole = Self {
            bytes: *fpdu,
            places: layout.places(),
            len: layout.ulpdu_len() + HEADER_LEN,
        };
        whole.sub(HEADER_LEN, layout.ulpdu_len())
    }
}

impl<'a, O: Bytes<'a>> Bytes<'a> for Unmarked<O> {
    #[inline]
    fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn sub(&self, offset: usize, len: usize) -> Option<Self> {
        let end = offset.checked_add(len).filter(|&end| end <= self.len)?;
        let start = self.places.real(offset);
        let bytes = self.bytes.sub(start, self.places.real(end) - start)?;
        Some(Self {
            bytes,
            places: self.places.from(offset),
            len,
        })
    }

    #[inline]
    fn array<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        let end = offset.checked_add(N).filter(|&end| end <= self.len)?;
        if end <= self.places.next(offset) {
            return self.bytes.array(self.places.real(offset));
        }
        let mut out = [0; N];
        self.copy_to(offset, &mut out)?;
        Some(out)
    }

    #[inline]
    fn chunks(self) -> impl Iterator<Item = &'a [u8]> {
        let bytes = self.bytes;
        self.places
            .runs(bytes.len())
            .filter_map(move |run| bytes.sub(run.start, run.len()))
            .flat_map(O::chunks)
    }
}
