//! Powers of x modulo the polynomial of CRC32C, by which vectors are folded over a distance.
//!
//! A polynomial is a word whose lowest bit is the highest power, as the CRC has it. The product of
//! two such vectors by carry-less multiplication is one bit too low, hence the exponents.

/// The polynomial of CRC32C without its highest power (RFC 3385 section 6), bits reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// The multipliers that carry the earlier and the later half of a vector of 128 bits over `bytes`
/// bytes.
pub(crate) const fn fold_by(bytes: u32) -> [u64; 2] {
    let bits = bytes * 8;
    [power(bits + 31) as u64, power(bits - 33) as u64]
}

/// x to the `exponent`, modulo the polynomial.
const fn power(exponent: u32) -> u32 {
    let mut value = 1_u32 << 31;
    let mut at = 0;
    while at < exponent {
        value = (value >> 1) ^ (POLYNOMIAL & (value & 1).wrapping_neg());
        at += 1;
    }
    value
}

// Against the published constants of folding by 16 and by 64 bytes.
const _: () = assert!(fold_by(16)[0] == 0xf20c_0dfe && fold_by(16)[1] == 0x493c_7d27);
const _: () = assert!(fold_by(64)[0] == 0x740e_ef02 && fold_by(64)[1] == 0x9e4a_ddf8);
