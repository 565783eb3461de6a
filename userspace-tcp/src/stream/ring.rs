//! Bytes of a stream by their position, copied: for a reader that can't keep the buffers.

use crate::seq::StreamOffset;

/// A ring of a receive window's size. Allocated only when it is first used.
#[derive(Debug, Default)]
pub(super) struct Ring {
    bytes: Box<[u8]>,
}

impl Ring {
    /// Makes room for `window` bytes.
    pub(super) fn open(&mut self, window: usize) {
        if self.bytes.is_empty() {
            self.bytes = vec![0; window.max(1)].into_boxed_slice();
        }
    }

    /// Copies bytes to their place. They lie within a window's length of every other byte that is
    /// still needed.
    pub(super) fn put(&mut self, offset: StreamOffset, bytes: &[u8]) {
        let (first, second) = self.halves(offset, bytes.len());
        let (a, b) = bytes.split_at(first.len());
        self.bytes[first].copy_from_slice(a);
        self.bytes[second].copy_from_slice(b);
    }

    /// `len` bytes from `offset` on, which may wrap around.
    pub(super) fn get(&self, offset: StreamOffset, len: usize) -> [&[u8]; 2] {
        let (first, second) = self.halves(offset, len);
        [&self.bytes[first], &self.bytes[second]]
    }

    fn halves(
        &self,
        offset: StreamOffset,
        len: usize,
    ) -> (std::ops::Range<usize>, std::ops::Range<usize>) {
        let size = self.bytes.len();
        let at = (offset % size as u64) as usize;
        let first = len.min(size - at);
        (at..at + first, 0..len - first)
    }
}
