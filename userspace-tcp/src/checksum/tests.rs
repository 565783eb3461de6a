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
