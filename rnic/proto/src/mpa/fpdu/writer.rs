//! One FPDU that is written from its front to its end, with its CRC and its Internet checksum (which
//! the LLP may want, RFC 1071): long payload is checked while it is copied, in one pass, and all the
//! rest where it lies.

use rnic_crc::Checks;

use super::super::marker::{self, MARKER_LEN};
use super::{CRC_LEN, HEADER_LEN, Layout};

/// Where an FPDU is written. What is put lies behind what was put before.
#[derive(Debug)]
pub struct Writer<'a> {
    out: &'a mut [u8],
    layout: Layout,
    /// The CRC field is used.
    crc: bool,
    /// Octets from the front that are in `checks`.
    checked: usize,
    checks: Checks,
}

/// An FPDU that is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Its octets.
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

    /// Octets of the ULPDU.
    #[inline]
    pub fn ulpdu_len(&self) -> usize {
        self.layout.ulpdu_len()
    }

    /// Whether Markers cut it into pieces.
    #[inline]
    pub fn has_markers(&self) -> bool {
        self.layout.has_markers()
    }

    /// Writes the first octets of the ULPDU, a header that makes so many words together with the
    /// ULPDU_Length field before it, for which the first one's high half is left. Nothing was put
    /// before.
    ///
    /// It is checked by its values, where no Marker cuts it.
    #[inline]
    pub fn begin<const WORDS: usize>(&mut self, mut header: [u32; WORDS]) {
        let whole = self.layout.is_plain_to(4 * WORDS);
        let places = self.out.as_chunks_mut::<4>().0.get_mut(..WORDS);
        let Some(places) = places.filter(|_| whole && self.checked == 0) else {
            let octets = header.map(u32::to_be_bytes);
            return self.put(0, &octets.as_flattened()[HEADER_LEN..]);
        };
        let [high, low] = self.layout.length_field();
        header[0] |= u32::from_be_bytes([high, low, 0, 0]);
        for (place, word) in places.iter_mut().zip(header) {
            *place = word.to_be_bytes();
        }
        self.checks = rnic_crc::check_words(0, header);
        self.checked = 4 * WORDS;
    }

    /// Writes octets of the ULPDU from its octet `from` on.
    pub fn put(&mut self, from: usize, octets: &[u8]) {
        let mut rest = octets;
        for span in self.layout.ulpdu(from, octets.len()) {
            let (now, later) = rest.split_at(span.len());
            self.out[span].copy_from_slice(now);
            rest = later;
        }
    }

    /// Has `len` octets of the ULPDU from its octet `from` on written by `write`, in order: it is
    /// given how many of them were written before, and the place of the next.
    pub fn fill<E>(
        &mut self,
        from: usize,
        len: usize,
        mut write: impl FnMut(usize, &mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut done = 0;
        for span in self.layout.ulpdu(from, len) {
            let octets = span.len();
            write(done, &mut self.out[span])?;
            done += octets;
        }
        Ok(())
    }

    /// As [`Self::fill`], by a `copy` that is also given the CRC so far and says what it finds of the
    /// octets that it has copied.
    pub fn copy<E>(
        &mut self,
        from: usize,
        len: usize,
        mut copy: impl FnMut(usize, u32, &mut [u8]) -> Result<Checks, E>,
    ) -> Result<(), E> {
        let mut done = 0;
        for span in self.layout.ulpdu(from, len) {
            let octets = span.len();
            self.check_to(span.start);
            let checks = copy(done, self.checks.crc, &mut self.out[span])?;
            self.add(checks, octets);
            done += octets;
        }
        Ok(())
    }

    /// Completes it.
    #[inline]
    pub fn finish(mut self) -> Written {
        let crc_at = self.layout.crc_at();
        self.check_to(crc_at);
        let crc = if self.crc { self.checks.crc } else { 0 };
        let octets = crc.to_le_bytes();
        self.out[crc_at..crc_at + CRC_LEN].copy_from_slice(&octets);
        let [a, b, c, d] = octets;
        let sum = add(self.checks.sum, u16::from_be_bytes([a, b]));
        Written {
            len: self.out.len(),
            sum: add(sum, u16::from_be_bytes([c, d])),
        }
    }

    /// Takes the checks of what was written before `end`.
    #[inline]
    fn check_to(&mut self, end: usize) {
        if end > self.checked {
            let octets = &self.out[self.checked..end];
            let checks = rnic_crc::check(self.checks.crc, octets);
            self.add(checks, octets.len());
        }
    }

    /// Adds the checks of the next `octets`.
    #[inline]
    fn add(&mut self, checks: Checks, octets: usize) {
        // RFC 1071 section 2 (B): behind an odd number of octets all words lie the other way round.
        let sum = if self.checked.is_multiple_of(2) {
            checks.sum
        } else {
            checks.sum.swap_bytes()
        };
        self.checks = Checks {
            crc: checks.crc,
            sum: add(self.checks.sum, sum),
        };
        self.checked += octets;
    }
}

/// A one's complement sum.
#[inline]
fn add(one: u16, other: u16) -> u16 {
    let (sum, carry) = one.overflowing_add(other);
    sum + u16::from(carry)
}
