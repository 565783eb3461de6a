//! Messages of netlink protocols that no crate reads here: their bytes, words and attributes.

use netlink_packet_core::{NetlinkDeserializable, NetlinkHeader, NetlinkSerializable};

/// Of an attribute's type: the other bits are flags.
const ATTRIBUTE_TYPE: u16 = 0x3fff;

/// A message whose bytes whoever asks writes and reads.
#[derive(Clone, Debug)]
pub(super) struct RawMessage {
    pub(super) kind: u16,
    pub(super) bytes: Vec<u8>,
}

impl NetlinkSerializable for RawMessage {
    fn message_type(&self) -> u16 {
        self.kind
    }

    fn buffer_len(&self) -> usize {
        self.bytes.len()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        buffer.copy_from_slice(&self.bytes);
    }
}

impl NetlinkDeserializable for RawMessage {
    type Error = std::convert::Infallible;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Self, Self::Error> {
        Ok(Self {
            kind: header.message_type,
            bytes: payload.to_vec(),
        })
    }
}

impl RawMessage {
    /// A message of type `kind`, with so many bytes of 0.
    pub(super) fn zeroed(kind: u16, len: usize) -> Self {
        Self {
            kind,
            bytes: vec![0; len],
        }
    }
}

/// The native word there, 0 where there is none.
pub(super) fn word(bytes: &[u8], at: usize) -> u32 {
    let found = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>());
    found.map_or(0, |word| u32::from_ne_bytes(*word))
}

/// Netlink attributes: a length with this head, a type, then the value, padded to 4 bytes.
pub(super) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let [a, b, c, d] = *bytes.first_chunk::<4>()?;
        let len = usize::from(u16::from_ne_bytes([a, b]));
        let value = bytes.get(4..len)?;
        let kind = u16::from_ne_bytes([c, d]) & ATTRIBUTE_TYPE;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        Some((kind, value))
    })
}
