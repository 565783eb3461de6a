//! FPDUs: one ULPDU each, with its length ahead and pad and CRC behind (RFC 5044 sections 4.1, 4.4
//! and 4.5). An FPDU's octets are passed on only after [`verify`].
//!
//! ```text
//! | ULPDU_Length 2 | ULPDU ... | PAD 0-3 | CRC 4 |     a multiple of four octets
//! ```

#[cfg(test)]
mod tests;

use super::MpaError;
use crate::Gather;
use crate::crc::{Crc32c, crc_of};

/// Octets of the ULPDU_Length field.
pub const HEADER_LEN: usize = 2;
/// Octets of the CRC field.
pub const CRC_LEN: usize = 4;
/// The smallest MULPDU, in octets, whatever the EMSS (RFC 5044 section 4.5).
pub const MULPDU_MIN: usize = 128;
/// The largest ULPDU that may be sent, in octets (RFC 5044 section 3).
pub const MULPDU_MAX: usize = 64768;
/// The longest FPDU that a ULPDU_Length field can announce, in octets.
pub const FPDU_LEN_MAX: usize = fpdu_length(u16::MAX as usize);

/// Markers in the octets of one direction (RFC 5044 section 4.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Markers {
    /// None: an FPDU's start is known from the FPDUs before it only.
    #[default]
    Off,
}

/// Octets of pad behind a ULPDU of this length.
pub const fn pad_length(ulpdu_len: usize) -> usize {
    (HEADER_LEN + ulpdu_len).wrapping_neg() % 4
}

/// Octets of the whole FPDU around a ULPDU of this length.
pub const fn fpdu_length(ulpdu_len: usize) -> usize {
    HEADER_LEN + ulpdu_len + pad_length(ulpdu_len) + CRC_LEN
}

/// The ULPDU's length, in octets, from the first two octets of an FPDU.
pub const fn parse_length(header: [u8; HEADER_LEN]) -> usize {
    u16::from_be_bytes(header) as usize
}

/// The largest ULPDU, in octets, whose FPDU fits a TCP segment of `emss` octets of payload; from
/// [`MULPDU_MIN`] to [`MULPDU_MAX`].
pub const fn mulpdu(emss: usize, markers: Markers) -> usize {
    match markers {
        Markers::Off => {
            let fits = emss.saturating_sub(HEADER_LEN + CRC_LEN + emss % 4);
            if fits < MULPDU_MIN {
                MULPDU_MIN
            } else if fits > MULPDU_MAX {
                MULPDU_MAX
            } else {
                fits
            }
        }
    }
}

/// The ULPDU of a whole FPDU, once length and (if `crc`) CRC are found right.
///
/// `fpdu` is exactly the [`fpdu_length`] octets that its own header announces; another length is
/// answered like a wrong CRC, because framing is lost all the same.
pub fn verify<'a>(fpdu: &Gather<'a>, crc: bool) -> Result<Gather<'a>, MpaError> {
    let header = fpdu.array(0).ok_or(MpaError::CrcMismatch)?;
    let ulpdu_len = parse_length(header);
    if fpdu.len() != fpdu_length(ulpdu_len) {
        return Err(MpaError::CrcMismatch);
    }
    if crc {
        let covered = fpdu.len() - CRC_LEN;
        let found = fpdu
            .array::<CRC_LEN>(covered)
            .ok_or(MpaError::CrcMismatch)?;
        let octets = fpdu.sub(0, covered).ok_or(MpaError::CrcMismatch)?;
        if crc_of(octets.chunks()).octets() != found {
            return Err(MpaError::CrcMismatch);
        }
    }
    fpdu.sub(HEADER_LEN, ulpdu_len).ok_or(MpaError::CrcMismatch)
}

/// Writes the ULPDU_Length field of an FPDU that begins at `buf[0]`, and gives the CRC state after
/// it, for the way that computes the CRC while it copies.
///
/// # Panics
/// When `buf` is shorter than the field or the ULPDU longer than 65535 octets.
pub fn begin(buf: &mut [u8], ulpdu_len: usize) -> Crc32c {
    let length = u16::try_from(ulpdu_len).expect("no ULPDU is longer than MULPDU_MAX");
    buf[..HEADER_LEN].copy_from_slice(&length.to_be_bytes());
    Crc32c::new().over(&buf[..HEADER_LEN])
}

/// Completes the FPDU that begins at `buf[0]` and whose ULPDU is in place at `buf[HEADER_LEN..]`:
/// length, pad and CRC. Gives the FPDU's length in octets.
///
/// With `crc_on`, `running` is the state of [`begin`] after all octets of the ULPDU, or `None` to
/// compute it here. Without, the CRC field is zero (RFC 5044 section 4.1 allows any value).
///
/// # Panics
/// When `buf` is shorter than the FPDU or the ULPDU longer than 65535 octets.
pub fn finish(buf: &mut [u8], ulpdu_len: usize, crc_on: bool, running: Option<Crc32c>) -> usize {
    let header = begin(buf, ulpdu_len);
    let end = HEADER_LEN + ulpdu_len;
    let (covered, total) = (end + pad_length(ulpdu_len), fpdu_length(ulpdu_len));
    buf[end..covered].fill(0);
    let field = match (crc_on, running) {
        (false, _) => [0; CRC_LEN],
        (true, Some(state)) => state.over(&buf[end..covered]).octets(),
        (true, None) => header.over(&buf[HEADER_LEN..covered]).octets(),
    };
    buf[covered..total].copy_from_slice(&field);
    total
}
