//! The RDMA Read Request header (RFC 5040 section 4.4).

#[cfg(test)]
mod tests;

use crate::bytes::{long, word};
use crate::{Stag, TaggedOffset};

/// Bytes of the header.
pub const LEN: usize = 28;

/// What an RDMA Read Request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// Data Sink STag: where the reader wants the data; not interpreted by the data source.
    pub sink_stag: Stag,
    /// Data Sink Tagged Offset.
    pub sink_to: TaggedOffset,
    /// RDMA Read Message Size, in bytes. When zero, neither STag is checked.
    pub size: u32,
    /// Data Source STag.
    pub source_stag: Stag,
    /// Data Source Tagged Offset.
    pub source_to: TaggedOffset,
}

impl ReadRequest {
    /// The header from its bytes. Any bytes are a header.
    pub fn from_bytes(bytes: &[u8; LEN]) -> Self {
        Self {
            sink_stag: Stag(word(bytes, 0)),
            sink_to: TaggedOffset(long(bytes, 4)),
            size: word(bytes, 12),
            source_stag: Stag(word(bytes, 16)),
            source_to: TaggedOffset(long(bytes, 20)),
        }
    }

    /// The header on the wire.
    pub fn to_bytes(&self) -> [u8; LEN] {
        let mut out = [0; LEN];
        out[0..4].copy_from_slice(&self.sink_stag.0.to_be_bytes());
        out[4..12].copy_from_slice(&self.sink_to.0.to_be_bytes());
        out[12..16].copy_from_slice(&self.size.to_be_bytes());
        out[16..20].copy_from_slice(&self.source_stag.0.to_be_bytes());
        out[20..28].copy_from_slice(&self.source_to.0.to_be_bytes());
        out
    }
}
