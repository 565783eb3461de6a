//! Octets of a stream by their position, copied: for a reader that can't keep the buffers.

use crate::seq::StreamOffset;

/// A ring of a receive window's size. Allocated only when it is first used.
#[derive(Debug, Default)]
pub(super) struct Ring {
    octets: Box<[u8]>,
}

impl Ring {
    /// Makes room for `window` octets.
    pub(super) fn open(&mut self, window: usize) {
        if self.octets.is_empty() {
            self.octets = vec![0; window.max(1)].into_boxed_slice();
        }
    }

    /// Copies octets to their place. They lie within a window's length of every other octet that is
    /// still needed.
    pub(super) fn put(&mut self, offset: StreamOffset, octets: &[u8]) {
        let (first, second) = self.halves(offset, octets.len());
        let (a, b) = octets.split_at(first.len());
        self.octets[first].copy_from_slice(a);
        self.octets[second].copy_from_slice(b);
    }

    /// `len` octets from `offset` on, which may wrap around.
    pub(super) fn get(&self, offset: StreamOffset, len: usize) -> [&[u8]; 2] {
        let (first, second) = self.halves(offset, len);
        [&self.octets[first], &self.octets[second]]
    }

    fn halves(
        &self,
        offset: StreamOffset,
        len: usize,
    ) -> (std::ops::Range<usize>, std::ops::Range<usize>) {
        let size = self.octets.len();
        let at = (offset % size as u64) as usize;
        let first = len.min(size - at);
        (at..at + first, 0..len - first)
    }
}
