use super::*;

/// The example of RFC 1071 section 3.
#[test]
fn the_example_of_the_rfc() {
    let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
    assert_eq!(sum(&bytes).folded(), 0xddf2);
}

#[test]
fn pieces_of_even_length_add_up() {
    let bytes: Vec<u8> = (0..=255).map(|i: u8| i.wrapping_mul(37)).collect();
    for len in 0..bytes.len() {
        let whole = sum(&bytes[..len]);
        for cut in (0..=len).step_by(2) {
            assert_eq!(sum(&bytes[..cut]) + sum(&bytes[cut..len]), whole);
        }
    }
}

/// Word by word, as RFC 1071 section 4.1 does it.
fn plain(bytes: &[u8]) -> u16 {
    let words = bytes
        .chunks(2)
        .map(|word| u16::from_be_bytes([word[0], *word.get(1).unwrap_or(&0)]));
    reduce(words.map(u64::from).sum())
}

#[test]
fn wide_words_make_the_same_sum_as_narrow_ones() {
    let bytes = |at: usize| [0xff, (at * 37 + at / 251) as u8, 0];
    for kind in 0..3 {
        let bytes: Vec<u8> = (0..65_535).map(|at| bytes(at)[kind]).collect();
        for len in (0..200).chain([1448, 1460, 8999, 65_535]) {
            for start in 0..4.min(bytes.len() - len + 1) {
                let part = &bytes[start..start + len];
                assert_eq!(sum(part).folded(), plain(part), "{kind} {start} {len}");
            }
        }
    }
}
