//! Buffers on the heap that are counted, for the tests of this module.

use super::Memory;

/// Bytes in front of the payload, as headers would be.
pub(super) const HEADROOM: usize = 3;

#[derive(Debug)]
pub(super) struct Heap {
    /// Buffers out at present.
    pub(super) alive: usize,
    /// The most that may be.
    pub(super) limit: usize,
    /// Bytes of payload that fit one.
    pub(super) size: usize,
}

impl Heap {
    pub(super) fn new() -> Self {
        Self {
            alive: 0,
            limit: usize::MAX,
            size: 2000,
        }
    }

    /// A buffer that came from the link.
    pub(super) fn received(&mut self, payload: &[u8]) -> Vec<u8> {
        self.alive += 1;
        [&[0xee; HEADROOM][..], payload].concat()
    }
}

impl Memory<Vec<u8>> for Heap {
    fn alloc(&mut self) -> Option<Vec<u8>> {
        (self.alive < self.limit).then(|| {
            self.alive += 1;
            vec![0; HEADROOM + self.size]
        })
    }

    fn free(&mut self, _: Vec<u8>) {
        self.alive -= 1;
    }

    fn bytes<'a>(&'a self, buf: &'a Vec<u8>) -> &'a [u8] {
        buf
    }

    fn payload_mut<'a>(&'a self, buf: &'a mut Vec<u8>) -> &'a mut [u8] {
        &mut buf[HEADROOM..]
    }
}
