//! A view over bytes that lie in several pieces, as an FPDU does when TCP segments or UMEM frames
//! end within it. Headers are read by value from it, payload is walked chunk by chunk; nothing is
//! ever joined by copying. Reads outside it give `None`, never a panic.

#[cfg(test)]
mod tests;

/// Bytes to be looked at, in one slice or over several ([`Gather`]). Nearly all FPDUs lie in one, and
/// what is compiled for that needs no more than an address and a length.
pub trait Bytes<'a>: Copy {
    fn len(&self) -> usize;

    /// The `len` bytes from `offset` on, or none when there are less.
    fn sub(&self, offset: usize, len: usize) -> Option<Self>;

    /// `N` bytes at `offset` by value, or none when there are less.
    fn array<const N: usize>(&self, offset: usize) -> Option<[u8; N]>;

    /// The bytes as slices, in order, none of them empty.
    fn chunks(self) -> impl Iterator<Item = &'a [u8]>;

    /// Copies bytes from `offset` on until `out` is full; none when they end before.
    fn copy_to(&self, offset: usize, out: &mut [u8]) -> Option<()> {
        let mut rest = out;
        for chunk in self.sub(offset, rest.len())?.chunks() {
            let (now, later) = rest.split_at_mut(chunk.len());
            now.copy_from_slice(chunk);
            rest = later;
        }
        Some(())
    }

    /// Whether there are none.
    #[inline]
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All bytes from `offset` on, or none when there are less.
    #[inline]
    fn tail(&self, offset: usize) -> Option<Self> {
        self.sub(offset, self.len().checked_sub(offset)?)
    }
}

impl<'a> Bytes<'a> for &'a [u8] {
    #[inline]
    fn len(&self) -> usize {
        <[u8]>::len(self)
    }

    #[inline]
    fn sub(&self, offset: usize, len: usize) -> Option<Self> {
        self.get(offset..)?.get(..len)
    }

    #[inline]
    fn array<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        self.get(offset..)?.first_chunk().copied()
    }

    #[inline]
    fn chunks(self) -> impl Iterator<Item = &'a [u8]> {
        std::iter::once(self).filter(|slice| !slice.is_empty())
    }
}

/// A run of bytes over one or more slices.
#[derive(Clone, Copy, Debug)]
pub struct Gather<'a> {
    pieces: &'a [&'a [u8]],
    /// Bytes of the first pieces that come before the view.
    skip: usize,
    len: usize,
}

impl<'a> Gather<'a> {
    /// A view of all the bytes of all the pieces, in order. Pieces may be empty.
    #[inline]
    pub fn new(pieces: &'a [&'a [u8]]) -> Self {
        let len = pieces.iter().map(|piece| piece.len()).sum();
        Self {
            pieces,
            skip: 0,
            len,
        }
    }
}

impl<'a> Bytes<'a> for Gather<'a> {
    #[inline]
    fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn sub(&self, offset: usize, len: usize) -> Option<Self> {
        if offset.checked_add(len)? > self.len {
            return None;
        }
        let (mut pieces, mut skip) = (self.pieces, self.skip + offset);
        while let Some((first, rest)) = pieces.split_first() {
            if skip < first.len() || rest.is_empty() {
                break;
            }
            skip -= first.len();
            pieces = rest;
        }
        Some(Self { pieces, skip, len })
    }

    #[inline]
    fn array<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        if offset.checked_add(N)? > self.len {
            return None;
        }
        // Nearly all that is ever asked for lies in the first piece.
        let first = self.pieces.first()?.get(self.skip + offset..);
        if let Some(bytes) = first.and_then(|bytes| bytes.first_chunk()) {
            return Some(*bytes);
        }
        let mut out = [0; N];
        self.copy_to(offset, &mut out)?;
        Some(out)
    }

    fn chunks(self) -> impl Iterator<Item = &'a [u8]> {
        let (mut pieces, mut skip, mut left) = (self.pieces, self.skip, self.len);
        std::iter::from_fn(move || {
            while left > 0 {
                let (piece, rest) = pieces.split_first()?;
                pieces = rest;
                let from = skip.min(piece.len());
                skip -= from;
                let take = left.min(piece.len() - from);
                left -= take;
                if take > 0 {
                    return Some(&piece[from..from + take]);
                }
            }
            None
        })
    }
}
