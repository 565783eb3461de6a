//! What two RNICs say of a join, as the private data of the MPA start-up (`docs/extensions.md`). All integers are
//! big-endian.

use rnic_ipc::control::JoinEnd;

/// What a request that is none of ours does not begin with.
const MAGIC: [u8; 8] = *b"rnicjoin";
const VERSION: u8 = 1;
/// Reliable connections.
const KIND: u8 = 1;
/// Magic, version, kind, two reserved bytes, two numbers, two GIDs.
pub(crate) const LEN: usize = 52;

/// A queue pair of the sender, and the one of the receiver that it is to be joined to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) from: End,
    pub(crate) to: End,
}

/// A queue pair, by number and GID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct End {
    gid: [u8; 16],
    number: u32,
}

impl From<JoinEnd> for End {
    fn from(end: JoinEnd) -> Self {
        let (gid, number) = (end.gid(), end.number);
        Self { gid, number }
    }
}

impl Hello {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(LEN);
        bytes.extend(MAGIC);
        bytes.extend([VERSION, KIND, 0, 0]);
        for end in [self.from, self.to] {
            bytes.extend(end.number.to_be_bytes());
        }
        for end in [self.from, self.to] {
            bytes.extend(end.gid);
        }
        bytes
    }

    /// None of what is not this version's, or has other bytes behind it.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(&MAGIC)?;
        let (head, rest) = rest.split_first_chunk::<4>()?;
        let (from_number, rest) = rest.split_first_chunk::<4>()?;
        let (to_number, rest) = rest.split_first_chunk::<4>()?;
        let (from_gid, rest) = rest.split_first_chunk::<16>()?;
        let to_gid: [u8; 16] = rest.try_into().ok()?;
        let end = |gid, number| End {
            gid,
            number: u32::from_be_bytes(number),
        };
        // The reserved bytes are not looked at.
        (head[..2] == [VERSION, KIND]).then(|| Self {
            from: end(*from_gid, *from_number),
            to: end(to_gid, *to_number),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        let end = |address: &str, number| {
            let address = address.parse().unwrap();
            JoinEnd { address, number }.into()
        };
        Hello {
            from: end("198.18.0.1", 0x01_0203),
            to: end("2001:db8::2", 0xf0_0102),
        }
    }

    #[test]
    fn it_lies_on_the_wire_as_documented() {
        let bytes = hello().encode();
        assert_eq!(bytes.len(), LEN);
        assert_eq!(&bytes[..12], b"rnicjoin\x01\x01\0\0");
        assert_eq!(bytes[12..20], [0, 1, 2, 3, 0, 0xf0, 1, 2]);
        assert_eq!(bytes[20..32], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]);
        assert_eq!(bytes[32..36], [198, 18, 0, 1]);
        assert_eq!(bytes[36..40], [0x20, 1, 0x0d, 0xb8]);
        assert_eq!(Hello::decode(&bytes), Some(hello()));
    }

    #[test]
    fn nothing_else_is_taken_for_one() {
        let good = hello().encode();
        for len in 0..LEN {
            assert_eq!(Hello::decode(&good[..len]), None);
        }
        let longer = [&good[..], &[0]].concat();
        assert_eq!(Hello::decode(&longer), None);
        for at in 0..10 {
            let mut other = good.clone();
            other[at] ^= 1;
            assert_eq!(Hello::decode(&other), None, "byte {at}");
        }
        let mut reserved = good.clone();
        reserved[10] = 1;
        assert_eq!(Hello::decode(&reserved), Some(hello()));
    }
}
