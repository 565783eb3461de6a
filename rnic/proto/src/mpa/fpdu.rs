//! FPDUs: one ULPDU each, with its length ahead and pad and CRC behind (RFC 5044 sections 4.1, 4.4
//! and 4.5), and Markers wherever they fall. An FPDU's bytes are passed on only after [`check`], or
//! [`verify`] where there are Markers.
//!
//! ```text
//! | ULPDU_Length 2 | ULPDU ... | PAD 0-3 | CRC 4 |     a multiple of four bytes
//! ```

mod layout;
mod locate;
mod places;
mod plain;
#[cfg(test)]
mod tests;
mod unmarked;
mod writer;

pub use layout::Layout;
pub use locate::locate;
pub use plain::{plain_length, write_plain};
pub use unmarked::Unmarked;
pub use writer::{Writer, Written};

use super::MpaError;
use super::marker::{self, MARKER_LEN, Markers};
use crate::Bytes;
use crate::crc::crc_of;

/// Bytes of the ULPDU_Length field.
pub const HEADER_LEN: usize = 2;
/// Bytes of the CRC field.
pub const CRC_LEN: usize = 4;
/// The smallest MULPDU, in bytes, whatever the EMSS (RFC 5044 section 4.5).
pub const MULPDU_MIN: usize = 128;
/// The largest ULPDU that may be sent, in bytes (RFC 5044 section 3).
pub const MULPDU_MAX: usize = 64768;
/// The longest FPDU that a ULPDU_Length field can announce, in bytes, with all its Markers.
pub const FPDU_LEN_MAX: usize = Layout::new(Markers::On, 0, u16::MAX as usize).len();

/// Bytes of pad behind a ULPDU of this length.
pub const fn pad_length(ulpdu_len: usize) -> usize {
    (HEADER_LEN + ulpdu_len).wrapping_neg() % 4
}

/// Bytes of the whole FPDU around a ULPDU of this length, Markers not counted.
pub const fn fpdu_length(ulpdu_len: usize) -> usize {
    HEADER_LEN + ulpdu_len + pad_length(ulpdu_len) + CRC_LEN
}

/// The largest ULPDU, in bytes, whose FPDU fits a TCP segment of `emss` bytes of payload wherever
/// its Markers fall; from [`MULPDU_MIN`] to [`MULPDU_MAX`].
pub const fn mulpdu(emss: usize, markers: Markers) -> usize {
    let overhead = HEADER_LEN + CRC_LEN + emss % 4 + markers.overhead(emss);
    let fits = emss.saturating_sub(overhead);
    if fits < MULPDU_MIN {
        MULPDU_MIN
    } else if fits > MULPDU_MAX {
        MULPDU_MAX
    } else {
        fits
    }
}

/// The layout of the FPDU at the front of `bytes`, which lie at `at` of their direction's stream
/// (counted from the first byte behind the start-up); none while its ULPDU_Length isn't there.
#[inline]
pub fn parse<'a>(bytes: &impl Bytes<'a>, markers: Markers, at: u64) -> Option<Layout> {
    let header = bytes.array(Layout::new(markers, at, 0).header_at())?;
    let ulpdu_len = u16::from_be_bytes(header);
    Some(Layout::new(markers, at, usize::from(ulpdu_len)))
}

/// Whether the CRC of a whole FPDU, if it has one, is right. Nothing of it is to be believed before.
///
/// `fpdu` is exactly the bytes of `layout`, as [`parse`] gave it; another length is answered like a
/// wrong CRC, because framing is lost all the same.
#[inline]
pub fn check<'a>(fpdu: &impl Bytes<'a>, layout: &Layout, crc: bool) -> Result<(), MpaError> {
    if fpdu.len() != layout.len() {
        return Err(MpaError::CrcMismatch);
    }
    if crc {
        let covered = layout.crc_at();
        let found = fpdu.array::<CRC_LEN>(covered);
        let bytes = fpdu.sub(0, covered).ok_or(MpaError::CrcMismatch)?;
        if Some(crc_of(bytes.chunks()).bytes()) != found {
            return Err(MpaError::CrcMismatch);
        }
    }
    Ok(())
}

/// The ULPDU of a whole FPDU that has no Markers, once [`check`] found nothing wrong.
#[inline]
pub fn ulpdu<'a, O: Bytes<'a>>(fpdu: &O, layout: &Layout) -> Option<O> {
    fpdu.sub(HEADER_LEN, layout.ulpdu_len())
}

/// The ULPDU of a whole FPDU, once its Markers and (if `crc`) its CRC are found right; `fpdu` is as for
/// [`check`].
#[inline]
pub fn verify<'a, O: Bytes<'a>>(
    fpdu: &O,
    layout: &Layout,
    crc: bool,
) -> Result<Unmarked<O>, MpaError> {
    check(fpdu, layout, crc)?;
    unmarked(fpdu, layout)
}

/// The ULPDU of a whole FPDU that may have Markers, if they are right, once [`check`] found nothing wrong.
#[inline]
pub fn unmarked<'a, O: Bytes<'a>>(fpdu: &O, layout: &Layout) -> Result<Unmarked<O>, MpaError> {
    for (at, back) in layout.markers() {
        let found = fpdu.array::<MARKER_LEN>(at).map(marker::fpdu_pointer);
        if found != Some(back) {
            return Err(MpaError::MarkerMismatch);
        }
    }
    Unmarked::ulpdu(fpdu, layout).ok_or(MpaError::CrcMismatch)
}

/// Completes the FPDU that begins at `out[0]` and whose ULPDU is in place (see [`Layout::ulpdu`]):
/// length, Markers, pad and CRC, as [`Writer`] does. Gives the FPDU's length in bytes.
///
/// # Panics
/// When `out` is shorter than the FPDU.
pub fn finish(out: &mut [u8], layout: &Layout, crc: bool) -> usize {
    Writer::new(out, *layout, crc).finish().len
}
