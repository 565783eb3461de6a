//! One FPDU that is written from its front to its end, with its CRC and its Internet checksum, which the LLP may
//! want (RFC 1071). Long payload is checked while it is copied, in one pass. All the rest is checked in place.

use rnic_crc::{Checks, Words};

use super::super::marker::{self, MARKER_LEN};
use super::{CRC_LEN, HEADER_LEN, Layout};

/// Where an FPDU is written. What is put lies behind what was put before.
#[derive(Debug)]
pub struct Writer<'a> {
    out: &'a mut [u8],
    layout: Layout,
    /// The CRC field is used.
    crc: bool,
    /// Bytes from the front that are in `checks`.
    checked: usize,
    checks: Checks,
}

/// An FPDU that is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Its bytes.
    pub len: usize,
    /// Their one's complement sum as big-endian words of 16 bits, not complemented.
    pub sum: u16,
}

impl<'a> Writer<'a> {
    /// Begins the FPDU at the front of `out`: length, Markers and pad are there. Without `crc` its CRC
    /// field will be zero (RFC 5044 section 4.1 allows any value).
    ///
    /// # Panics
    /// When `out` is shorter than the FPDU.
    #[inline]
    pub fn new(out: &'a mut [u8], layout: Layout, crc: bool) -> Self {
        let out = &mut out[..layout.len()];
        for (at, back) in layout.markers() {
            out[at..at + MARKER_LEN].copy_from_slice(&marker::marker(back));
        }
        let header = layout.header_at();
        out[header..header + HEADER_LEN].copy_from_slice(&layout.length_field());
        for span in layout.pad() {
            out[span].fill(0);
        }
        Self {
            out,
            layout,
            crc,
            checked: 0,
            checks: Checks { crc: 0, sum: 0 },
        }
    }

    /// Bytes of the ULPDU.
    #[inline]
    pub fn ulpdu_len(&self) -> usize {
        self.layout.ulpdu_len()
    }

    /// Writes the first bytes of the ULPDU, a header that makes so many words together with the
    /// ULPDU_Length field before it, for which the first one's high half is left. Nothing was put
    /// before.
    ///
    /// It is checked by its values, where no Marker cuts it.
    #[inline]
    pub fn begin<const WORDS: usize>(&mut self, mut header: [u32; WORDS]) {
        let whole = self.layout.is_plain_to(4 * WORDS);
        let places = self.out.as_chunks_mut::<4>().0.get_mut(..WORDS);
        let Some(places) = places.filter(|_| whole && self.checked == 0) else {
            let bytes = header.map(u32::to_be_bytes);
            return self.put(0, &bytes.as_flattened()[HEADER_LEN..]);
        };
        let [high, low] = self.layout.length_field();
        header[0] |= u32::from_be_bytes([high, low, 0, 0]);
        for (place, word) in places.iter_mut().zip(header) {
            *place = word.to_be_bytes();
        }
        self.checks = rnic_crc::check_words(0, header);
        self.checked = 4 * WORDS;
    }

    /// Writes bytes of the ULPDU from its byte `from` on.
    pub fn put(&mut self, from: usize, bytes: &[u8]) {
        let mut rest = bytes;
        for span in self.layout.ulpdu(from, bytes.len()) {
            let (now, later) = rest.split_at(span.len());
            self.out[span].copy_from_slice(now);
            rest = later;
        }
    }

    /// Has `len` bytes of the ULPDU from its byte `from` on written by `write`, in order: it is
    /// given how many of them were written before, and the place of the next.
    pub fn fill<E>(
        &mut self,
        from: usize,
        len: usize,
        mut write: impl FnMut(usize, &mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut done = 0;
        for span in self.layout.ulpdu(from, len) {
            let bytes = span.len();
            write(done, &mut self.out[span])?;
            done += bytes;
        }
        Ok(())
    }

    /// Has `copy` write `len` bytes of the ULPDU from its byte `from` on. `copy` is given the CRC so far, the place
    /// of the bytes, and the Markers that are to be among them. It returns the checks of all that is there then.
    #[inline]
    pub fn copy<E>(
        &mut self,
        from: usize,
        len: usize,
        copy: impl FnOnce(u32, &mut [u8], Words) -> Result<Checks, E>,
    ) -> Result<(), E> {
        let (extent, markers) = self.layout.extent(from, len);
        self.check_to(extent.start);
        let place = &mut self.out[extent];
        let bytes = place.len();
        let checks = copy(self.checks.crc, place, markers)?;
        self.add(checks, bytes);
        Ok(())
    }

    /// Completes it.
    #[inline]
    pub fn finish(mut self) -> Written {
        let crc_at = self.layout.crc_at();
        self.check_to(crc_at);
        let crc = if self.crc { self.checks.crc } else { 0 };
        let bytes = crc.to_le_bytes();
        self.out[crc_at..crc_at + CRC_LEN].copy_from_slice(&bytes);
        let [a, b, c, d] = bytes;
        let sum = rnic_crc::add_sums(self.checks.sum, u16::from_be_bytes([a, b]));
        Written {
            len: self.out.len(),
            sum: rnic_crc::add_sums(sum, u16::from_be_bytes([c, d])),
        }
    }

    /// Takes the checks of what was written before `end`.
    #[inline]
    fn check_to(&mut self, end: usize) {
        if end > self.checked {
            let bytes = &self.out[self.checked..end];
            let checks = rnic_crc::check(self.checks.crc, bytes);
            self.add(checks, bytes.len());
        }
    }

    /// Adds the checks of the next `bytes`.
    #[inline]
    fn add(&mut self, checks: Checks, bytes: usize) {
        self.checks = self.checks.then(self.checked, checks);
        self.checked += bytes;
    }
}
