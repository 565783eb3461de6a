//! The order of a session's chunks.

/// Chunks of one session that may be sent and not acknowledged: with more, a DDP-SSN would not tell where its
/// chunk belongs (RFC 5043 section 10).
pub const IN_FLIGHT_MAX: u64 = 32_767;

/// A DDP Source Sequence Number, as on the wire. A chunk's place in its session is the same number without end: 0
/// for the first (RFC 5043 section 6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DdpSsn(pub u16);

impl DdpSsn {
    /// Of the chunk at this place.
    pub const fn of(place: u64) -> Self {
        Self(place as u16)
    }

    /// The place of a chunk with this number, when all before `next` have come. None when the chunk came already, or
    /// can't have been sent yet.
    pub const fn place(self, next: u64) -> Option<u64> {
        let ahead = self.0.wrapping_sub(next as u16) as u64;
        if ahead < IN_FLIGHT_MAX {
            Some(next + ahead)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests;
