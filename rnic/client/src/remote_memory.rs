//! What a peer tells of memory that may be written or read over the network.

use crate::error::Error;

/// Memory of the peer's, as the peer advertised it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteMemory {
    /// The STag.
    pub stag: u32,
    /// The tagged offset of its first byte.
    pub addr: u64,
    /// Bytes. For the program's own use: the peer's RNIC checks the bounds.
    pub len: u64,
}

impl RemoteMemory {
    /// Bytes of its encoding.
    pub const ENCODED: usize = 20;

    /// The part from `offset` on.
    pub fn offset(self, offset: u64) -> Self {
        Self {
            addr: self.addr.wrapping_add(offset),
            len: self.len.saturating_sub(offset),
            ..self
        }
    }

    /// For an advertisement: STag, offset, length, in network order.
    pub fn to_bytes(self) -> [u8; Self::ENCODED] {
        let mut bytes = [0; Self::ENCODED];
        bytes[..4].copy_from_slice(&self.stag.to_be_bytes());
        bytes[4..12].copy_from_slice(&self.addr.to_be_bytes());
        bytes[12..].copy_from_slice(&self.len.to_be_bytes());
        bytes
    }

    /// From an advertisement.
    pub fn from_bytes(bytes: [u8; Self::ENCODED]) -> Self {
        let [s0, s1, s2, s3, addr @ .., l0, l1, l2, l3, l4, l5, l6, l7] = bytes;
        Self {
            stag: u32::from_be_bytes([s0, s1, s2, s3]),
            addr: u64::from_be_bytes(addr),
            len: u64::from_be_bytes([l0, l1, l2, l3, l4, l5, l6, l7]),
        }
    }
}

/// From private data or a message that is nothing else.
impl TryFrom<&[u8]> for RemoteMemory {
    type Error = Error;

    fn try_from(bytes: &[u8]) -> Result<Self, Error> {
        let found = bytes.len();
        let bytes = bytes.try_into().map_err(|_| Error::NotRemoteMemory {
            found,
            needed: Self::ENCODED,
        })?;
        Ok(Self::from_bytes(bytes))
    }
}
