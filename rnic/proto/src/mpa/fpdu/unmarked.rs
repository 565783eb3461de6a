//! What is between Markers, as if there were none.

#[cfg(test)]
mod tests;

use super::places::Places;
use super::{HEADER_LEN, Layout};
use crate::Octets;

/// A ULPDU, or a part of one, that lies as its FPDU came: its octets, Markers among them left out.
#[derive(Clone, Copy, Debug)]
pub struct Unmarked<O> {
    /// From the first octet to where the one behind the last would be: a Marker may be between these.
    octets: O,
    places: Places,
    /// Octets without Markers.
    len: usize,
}

impl<'a, O: Octets<'a>> Unmarked<O> {
    /// The ULPDU of a whole FPDU.
    #[inline]
    pub(super) fn ulpdu(fpdu: &O, layout: &Layout) -> Option<Self> {
        let whole = Self {
            octets: *fpdu,
            places: layout.places(),
            len: layout.ulpdu_len() + HEADER_LEN,
        };
        whole.sub(HEADER_LEN, layout.ulpdu_len())
    }
}

impl<'a, O: Octets<'a>> Octets<'a> for Unmarked<O> {
    #[inline]
    fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn sub(&self, offset: usize, len: usize) -> Option<Self> {
        let end = offset.checked_add(len).filter(|&end| end <= self.len)?;
        let start = self.places.real(offset);
        let octets = self.octets.sub(start, self.places.real(end) - start)?;
        Some(Self {
            octets,
            places: self.places.from(offset),
            len,
        })
    }

    #[inline]
    fn array<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        let end = offset.checked_add(N).filter(|&end| end <= self.len)?;
        if end <= self.places.next(offset) {
            return self.octets.array(self.places.real(offset));
        }
        let mut out = [0; N];
        self.copy_to(offset, &mut out)?;
        Some(out)
    }

    #[inline]
    fn chunks(self) -> impl Iterator<Item = &'a [u8]> {
        let octets = self.octets;
        self.places
            .runs(octets.len())
            .filter_map(move |run| octets.sub(run.start, run.len()))
            .flat_map(O::chunks)
    }
}
