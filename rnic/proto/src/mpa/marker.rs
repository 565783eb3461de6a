//! Markers: four bytes before every 508 bytes of FPDUs, each saying how far back its FPDU begins
//! (RFC 5044 section 4.3). With them a receiver finds an FPDU without those before it.
//!
//! ```text
//! | reserved 2 | FPDUPTR 2 |     the first one right before the first FPDU, then one in 512 bytes
//! ```

#[cfg(test)]
mod tests;

/// Bytes of a Marker.
pub const MARKER_LEN: usize = 4;
/// Bytes of the stream from one Marker to the next.
pub const MARKER_INTERVAL: usize = 512;
/// Bytes of FPDUs between two Markers.
pub const MARKER_SPACING: usize = MARKER_INTERVAL - MARKER_LEN;

/// Markers in the bytes of one direction, as its receiver asked in the start-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Markers {
    /// None: an FPDU's start is known from the FPDUs before it only.
    #[default]
    Off,
    /// At every 512th byte, counted from the first one behind the start-up.
    On,
}

impl Markers {
    /// Whether there are any.
    pub const fn are_on(self) -> bool {
        matches!(self, Self::On)
    }

    /// [`Markers::On`] when `asked`.
    pub const fn when(asked: bool) -> Self {
        if asked { Self::On } else { Self::Off }
    }

    /// Bytes from `at`, a place in the stream counted from the first byte behind the start-up,
    /// to the next Marker that begins there or later.
    pub const fn next(self, at: u64) -> Option<usize> {
        match self {
            Self::Off => None,
            Self::On => Some(at.wrapping_neg() as usize % MARKER_INTERVAL),
        }
    }

    /// The most bytes that Markers take in a TCP segment of `emss` bytes (section 4.5).
    pub const fn overhead(self, emss: usize) -> usize {
        match self {
            Self::Off => 0,
            Self::On => MARKER_LEN * emss.div_ceil(MARKER_INTERVAL),
        }
    }
}

/// The Marker whose FPDU's ULPDU_Length field begins `back` bytes before it; 0: right behind it.
pub const fn marker(back: usize) -> [u8; MARKER_LEN] {
    // No ULPDU of at most `MULPDU_MAX` makes an FPDU in which the way back needs more than 16 bits.
    let [high, low] = (back as u16).to_be_bytes();
    [0, 0, high, low]
}

/// How many bytes before this Marker the ULPDU_Length field of its FPDU begins; 0: right behind
/// it. The bits that the RFC reserves are not looked at.
pub const fn fpdu_pointer(marker: [u8; MARKER_LEN]) -> usize {
    (u16::from_be_bytes([marker[2], marker[3]]) & !0b11) as usize
}
