//! What the two ends of an rsocket say to each other, as librdmacm's rsockets do over iWARP. There are the
//! private data of the connection, tables that the peer fills by RDMA Write, and messages of 32 bits, each a
//! Send. Tables and messages are in the order of the host; two hosts of different order can't talk.

/// The version of the private data.
const VERSION: u8 = 1;

/// Flags of the private data: its sender is big-endian; it has a table of mapped memory.
const BIG_ENDIAN: u8 = 1;
const HAS_IOMAP: u8 = 2;

const OUR_ORDER: u8 = if cfg!(target_endian = "big") {
    BIG_ENDIAN
} else {
    0
};

/// Entries of the table by which a receiver tells where data may be written.
pub(crate) const TARGETS: usize = 2;

/// The greatest size of a table of mapped memory whose encoding is the number itself.
pub(crate) const IOMAP_MAX: u16 = 128;

/// Memory of a peer's: where, by which STag, how many bytes (or entries).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) addr: u64,
    pub(crate) key: u32,
    pub(crate) length: u32,
}

impl Entry {
    pub(crate) const BYTES: usize = 16;

    pub(crate) fn to_ne_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.addr.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.key.to_ne_bytes());
        bytes[12..].copy_from_slice(&self.length.to_ne_bytes());
        bytes
    }

    pub(crate) fn from_ne_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let [
            a0,
            a1,
            a2,
            a3,
            a4,
            a5,
            a6,
            a7,
            k0,
            k1,
            k2,
            k3,
            l0,
            l1,
            l2,
            l3,
        ] = bytes;
        Self {
            addr: u64::from_ne_bytes([a0, a1, a2, a3, a4, a5, a6, a7]),
            key: u32::from_ne_bytes([k0, k1, k2, k3]),
            length: u32::from_ne_bytes([l0, l1, l2, l3]),
        }
    }

    /// The same fields in network order, as the private data has them.
    fn swapped_to_be(self) -> Self {
        Self {
            addr: self.addr.to_be(),
            key: self.key.to_be(),
            length: self.length.to_be(),
        }
    }
}

/// An entry of the table of mapped memory: an offset that the program chose, and the memory that is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mapped {
    pub(crate) offset: u64,
    pub(crate) memory: Entry,
}

impl Mapped {
    pub(crate) const BYTES: usize = 8 + Entry::BYTES;

    pub(crate) fn to_ne_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.offset.to_ne_bytes());
        bytes[8..].copy_from_slice(&self.memory.to_ne_bytes());
        bytes
    }

    pub(crate) fn from_ne_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let (mut offset, mut memory) = ([0; 8], [0; Entry::BYTES]);
        offset.copy_from_slice(&bytes[..8]);
        memory.copy_from_slice(&bytes[8..]);
        Self {
            offset: u64::from_ne_bytes(offset),
            memory: Entry::from_ne_bytes(memory),
        }
    }

    pub(crate) fn holds(&self, offset: u64) -> bool {
        let from = offset.checked_sub(self.offset);
        from.is_some_and(|from| from < u64::from(self.memory.length))
    }
}

/// The private data of a connection, from either side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    /// Data messages that may be under way and unread.
    pub(crate) credits: u16,
    /// The table of targets, its length in entries; the table of mapped memory follows it.
    pub(crate) targets: Entry,
    /// Entries of the table of mapped memory.
    pub(crate) iomap_entries: u16,
    /// The first target.
    pub(crate) buffer: Entry,
}

impl Hello {
    pub(crate) const BYTES: usize = 8 + 2 * Entry::BYTES;

    pub(crate) fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[0] = VERSION;
        bytes[1] = HAS_IOMAP | OUR_ORDER;
        bytes[2..4].copy_from_slice(&self.credits.to_be_bytes());
        bytes[7] = self.iomap_entries.min(IOMAP_MAX) as u8;
        bytes[8..24].copy_from_slice(&self.targets.swapped_to_be().to_ne_bytes());
        bytes[24..].copy_from_slice(&self.buffer.swapped_to_be().to_ne_bytes());
        bytes
    }

    /// What a peer said, or why it can't be talked to.
    pub(crate) fn decode(private_data: &[u8]) -> Result<Self, &'static str> {
        let Some(bytes) = private_data.first_chunk::<{ Self::BYTES }>() else {
            return Err("the peer's private data is not that of an rsocket");
        };
        if bytes[0] != VERSION {
            return Err("the peer's rsocket is of another version");
        }
        if bytes[1] & BIG_ENDIAN != OUR_ORDER {
            return Err("the peer's host has the other byte order");
        }
        let entry = |at: usize| {
            let mut entry = [0; Entry::BYTES];
            entry.copy_from_slice(&bytes[at..at + Entry::BYTES]);
            Entry::from_ne_bytes(entry).swapped_to_be()
        };
        let hello = Self {
            credits: u16::from_be_bytes([bytes[2], bytes[3]]),
            targets: entry(8),
            iomap_entries: match bytes[1] & HAS_IOMAP {
                0 => 0,
                _ => u16::from(bytes[7]).min(IOMAP_MAX),
            },
            buffer: entry(24),
        };
        match hello.targets.length {
            0 | 1 => Err("the peer's table of targets has less than two entries"),
            _ => Ok(hello),
        }
    }
}

/// What a Send of 32 bits says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// So many bytes were written to the current target.
    Data(u32),
    /// The number of data messages up to which the peer may send; a target may be new too.
    Credits(u16),
    /// An entry of the table of mapped memory is new.
    IomapUpdated(u16),
    /// Nothing more will be sent or received.
    Disconnect,
    KeepAlive,
    /// Nothing more will be sent.
    Shutdown,
}

impl Message {
    pub(crate) const BYTES: usize = 4;
    /// The number in a data message.
    const NUMBER: u32 = (1 << 29) - 1;

    const DATA: u32 = 0;
    const SGL: u32 = 4;
    const IOMAP_SGL: u32 = 6;
    const CTRL: u32 = 7;

    pub(crate) fn to_ne_bytes(self) -> [u8; Self::BYTES] {
        let (kind, number) = match self {
            Self::Data(bytes) => (Self::DATA, bytes & Self::NUMBER),
            Self::Credits(upto) => (Self::SGL, upto.into()),
            Self::IomapUpdated(index) => (Self::IOMAP_SGL, index.into()),
            Self::Disconnect => (Self::CTRL, 0),
            Self::KeepAlive => (Self::CTRL, 1),
            Self::Shutdown => (Self::CTRL, 2),
        };
        (kind << 29 | number).to_ne_bytes()
    }

    /// What came, unless it is of a kind that nobody sends.
    pub(crate) fn from_ne_bytes(bytes: [u8; Self::BYTES]) -> Option<Self> {
        let word = u32::from_ne_bytes(bytes);
        let number = word & Self::NUMBER;
        // Credits count up past 16 bits at the sender and are compared in 16.
        Some(match (word >> 29, number) {
            (Self::DATA, bytes) => Self::Data(bytes),
            (Self::SGL, upto) => Self::Credits(upto as u16),
            (Self::IOMAP_SGL, index) => Self::IomapUpdated(index as u16),
            (Self::CTRL, 0) => Self::Disconnect,
            (Self::CTRL, 1) => Self::KeepAlive,
            (Self::CTRL, 2) => Self::Shutdown,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELLO: Hello = Hello {
        credits: 384,
        targets: Entry {
            addr: 0x1122_3344_5566_7788,
            key: 0x99aa_bbcc,
            length: 2,
        },
        iomap_entries: 1,
        buffer: Entry {
            addr: 0x10,
            key: 7,
            length: 65_536,
        },
    };

    #[test]
    fn private_data_is_laid_out_as_librdmacm_has_it() {
        let bytes = HELLO.encode();
        assert_eq!(bytes[..2], [1, HAS_IOMAP | OUR_ORDER]);
        assert_eq!(bytes[2..8], [1, 0x80, 0, 0, 0, 1]);
        assert_eq!(
            bytes[8..24],
            [
                0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0, 0, 0, 2
            ]
        );
        assert_eq!(
            bytes[24..],
            [0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 7, 0, 1, 0, 0]
        );
        assert_eq!(Hello::decode(&bytes), Ok(HELLO));
    }

    #[test]
    fn private_data_that_is_no_rsockets_is_refused() {
        let bytes = HELLO.encode();
        assert!(Hello::decode(&bytes[..39]).is_err(), "too short");
        for (at, value) in [(0, 2), (1, bytes[1] ^ BIG_ENDIAN), (23, 1)] {
            let mut wrong = bytes;
            wrong[at] = value;
            assert!(Hello::decode(&wrong).is_err(), "byte {at} is {value}");
        }
    }

    #[test]
    fn messages_are_a_kind_of_three_bits_and_a_number() {
        let known = [
            (Message::Data(5), 5),
            (Message::Credits(0xfffe), 0x8000_fffe),
            (Message::IomapUpdated(3), 0xc000_0003),
            (Message::Disconnect, 0xe000_0000),
            (Message::KeepAlive, 0xe000_0001),
            (Message::Shutdown, 0xe000_0002_u32),
        ];
        for (message, word) in known {
            assert_eq!(message.to_ne_bytes(), word.to_ne_bytes());
            assert_eq!(Message::from_ne_bytes(word.to_ne_bytes()), Some(message));
        }
        let late = 0x8001_0005_u32;
        let credits = Message::from_ne_bytes(late.to_ne_bytes());
        assert_eq!(credits, Some(Message::Credits(5)), "16 bits count");
        for unknown in [0x2000_0000_u32, 0x4000_0001, 0xe000_0003] {
            assert_eq!(Message::from_ne_bytes(unknown.to_ne_bytes()), None);
        }
    }

    #[test]
    fn mapped_memory_holds_the_offsets_from_its_own_on() {
        let mapped = Mapped {
            offset: 100,
            memory: HELLO.buffer,
        };
        assert!(mapped.holds(100) && mapped.holds(100 + 65_535));
        assert!(!mapped.holds(99) && !mapped.holds(100 + 65_536));
        assert_eq!(Mapped::from_ne_bytes(mapped.to_ne_bytes()), mapped);
    }
}
