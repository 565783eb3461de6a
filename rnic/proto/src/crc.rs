//! CRC32C as MPA uses it (RFC 5044 section 4.4, in the manner of iSCSI): a running state over any
//! number of slices. On the wire the value goes as little-endian bytes.

#[cfg(test)]
mod tests;

/// A running CRC32C.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Crc32c(u32);

impl Crc32c {
    /// The state before the first byte.
    pub const fn new() -> Self {
        Self(0)
    }

    /// Takes in the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0 = rnic_crc::append(self.0, bytes);
    }

    /// The state after the next bytes.
    pub fn over(mut self, bytes: &[u8]) -> Self {
        self.update(bytes);
        self
    }

    /// The CRC of all bytes so far.
    pub const fn value(self) -> u32 {
        self.0
    }

    /// The CRC as it stands in an FPDU's CRC field.
    pub const fn bytes(self) -> [u8; 4] {
        self.0.to_le_bytes()
    }
}

/// The value over bytes and, behind them, their CRC as it stands in an FPDU's CRC field: whenever that
/// is right, and never else.
pub const RESIDUE: u32 = 0x4867_4bc7;

/// The CRC of the bytes of all the slices, in order.
pub fn crc_of<'a>(slices: impl IntoIterator<Item = &'a [u8]>) -> Crc32c {
    slices.into_iter().fold(Crc32c::new(), Crc32c::over)
}
