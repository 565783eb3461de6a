//! An FPDU without Markers, of a header and a payload that are both at hand: what [`Writer`](super::Writer)
//! makes of them, in one go.

use rnic_crc::Checks;

use super::{CRC_LEN, HEADER_LEN, Written, fpdu_length};

/// Writes the FPDU to the front of `out`. The ULPDU is the header and `payload` bytes after it. The header is
/// given in whole words that begin with the ULPDU_Length field, for which the first word's high half is left.
/// `copy` puts the payload in its place. It is given that place and the CRC of what precedes it, and returns the
/// checks of the payload. Without `crc` the CRC field will be zero.
///
/// # Errors
/// Those of `copy`; then nothing of `out` means anything.
///
/// # Panics
/// When `out` is shorter than the FPDU, or the ULPDU is longer than 65535 bytes.
#[inline]
pub fn write_plain<const WORDS: usize, E>(
    out: &mut [u8],
    mut header: [u32; WORDS],
    payload: usize,
    crc: bool,
    copy: impl FnOnce(u32, &mut [u8]) -> Result<Checks, E>,
) -> Result<Written, E> {
    let ulpdu_len = ulpdu_len_of(WORDS, payload);
    assert!(
        ulpdu_len <= usize::from(u16::MAX),
        "no ULPDU is longer than MULPDU_MAX"
    );
    header[0] |= (ulpdu_len as u32) << 16;
    let (head, rest) = out[..fpdu_length(ulpdu_len)].split_at_mut(4 * WORDS);
    for (place, word) in head.as_chunks_mut::<4>().0.iter_mut().zip(header) {
        *place = word.to_be_bytes();
    }
    let of_head = rnic_crc::check_words(0, header);
    let (rest, field) = rest.split_at_mut(rest.len() - CRC_LEN);
    let (bytes, pad) = rest.split_at_mut(payload);
    let mut checks = of_head.then(head.len(), copy(of_head.crc, bytes)?);
    if !pad.is_empty() {
        pad.fill(0);
        checks.crc = rnic_crc::append(checks.crc, pad);
    }
    let bytes = if crc { checks.crc } else { 0 }.to_le_bytes();
    field.copy_from_slice(&bytes);
    let [a, b, c, d] = bytes;
    let sum = rnic_crc::add_sums(checks.sum, u16::from_be_bytes([a, b]));
    Ok(Written {
        len: head.len() + rest.len() + CRC_LEN,
        sum: rnic_crc::add_sums(sum, u16::from_be_bytes([c, d])),
    })
}

/// Bytes of the FPDU that [`write_plain`] writes.
#[inline]
pub const fn plain_length(words: usize, payload: usize) -> usize {
    fpdu_length(ulpdu_len_of(words, payload))
}

const fn ulpdu_len_of(words: usize, payload: usize) -> usize {
    4 * words - HEADER_LEN + payload
}
