//! MPA, DDP and RDMAP on the wire, written down a second time from RFC 5044, 5041, 5040 and 6581.
//!
//! It shares no code with the RNIC, so that an error in one reading shows. It is for well-behaved
//! tests: what it can't read panics.

/// What an MPA Request Frame begins with (RFC 5044 section 7.1.1).
pub const REQUEST_KEY: &[u8; 16] = b"MPA ID Req Frame";
/// What an MPA Reply Frame begins with.
pub const REPLY_KEY: &[u8; 16] = b"MPA ID Rep Frame";

/// Flags of a start-up frame: markers wanted, CRC wanted, rejected (RFC 5044), enhanced (RFC 6581).
pub const MARKERS: u8 = 0x80;
pub const CRC: u8 = 0x40;
pub const REJECTED: u8 = 0x20;
pub const ENHANCED: u8 = 0x10;

/// RDMAP opcodes (RFC 5040 section 4.3).
pub const WRITE: u8 = 0;
pub const READ_REQUEST: u8 = 1;
pub const READ_RESPONSE: u8 = 2;
pub const SEND: u8 = 3;
pub const SEND_INVALIDATE: u8 = 4;
pub const SEND_SOLICITED: u8 = 5;
pub const TERMINATE: u8 = 7;

/// Queue numbers (RFC 5040 section 5).
pub const SEND_QUEUE: u32 = 0;
pub const READ_QUEUE: u32 = 1;
pub const TERMINATE_QUEUE: u32 = 2;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartFrame {
    pub flags: u8,
    pub revision: u8,
    /// With IRD and ORD ahead of it when the frame is enhanced.
    pub private_data: Vec<u8>,
}

impl StartFrame {
    pub fn encode(&self, key: &[u8; 16]) -> Vec<u8> {
        let mut bytes = key.to_vec();
        bytes.extend([self.flags, self.revision]);
        bytes.extend(
            u16::try_from(self.private_data.len())
                .unwrap()
                .to_be_bytes(),
        );
        bytes.extend(&self.private_data);
        bytes
    }

    /// IRD and ORD with the flags in their words (A and B, C and D), and the application's part.
    pub fn split(&self) -> (u16, u16, &[u8]) {
        if self.flags & ENHANCED == 0 {
            return (0, 0, &self.private_data);
        }
        let (words, rest) = self.private_data.split_at(4);
        (be16(words, 0), be16(words, 2), rest)
    }
}

/// Private data of an enhanced frame: IRD, ORD, and what the application says (RFC 6581
/// section 9).
pub fn enhanced(ird: u16, ord: u16, private_data: &[u8]) -> Vec<u8> {
    [&ird.to_be_bytes()[..], &ord.to_be_bytes(), private_data].concat()
}

/// The header of a DDP segment with RDMAP's control byte (RFC 5041 section 4, RFC 5040
/// section 4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    Tagged {
        last: bool,
        opcode: u8,
        stag: u32,
        to: u64,
    },
    Untagged {
        last: bool,
        opcode: u8,
        invalidate: u32,
        qn: u32,
        msn: u32,
        mo: u32,
    },
}

impl Header {
    pub fn encode(&self) -> Vec<u8> {
        const TAGGED: u8 = 0x80;
        const LAST: u8 = 0x40;
        const DDP_VERSION: u8 = 1;
        const RDMAP_VERSION: u8 = 1 << 6;
        let last = |last: bool| if last { LAST } else { 0 };
        match *self {
            Self::Tagged {
                last: l,
                opcode,
                stag,
                to,
            } => {
                let mut bytes = vec![TAGGED | last(l) | DDP_VERSION, RDMAP_VERSION | opcode];
                bytes.extend(stag.to_be_bytes());
                bytes.extend(to.to_be_bytes());
                bytes
            }
            Self::Untagged {
                last: l,
                opcode,
                invalidate,
                qn,
                msn,
                mo,
            } => {
                let mut bytes = vec![last(l) | DDP_VERSION, RDMAP_VERSION | opcode];
                for word in [invalidate, qn, msn, mo] {
                    bytes.extend(word.to_be_bytes());
                }
                bytes
            }
        }
    }

    fn decode(ulpdu: &[u8]) -> (Self, &[u8]) {
        let (ddp, rdmap) = (ulpdu[0], ulpdu[1]);
        assert_eq!(ddp & 0x3f, 1, "reserved bits, or not DDP version 1");
        assert_eq!(rdmap & 0xf0, 0x40, "reserved bits, or not RDMAP version 1");
        let (last, opcode) = (ddp & 0x40 != 0, rdmap & 0x0f);
        if ddp & 0x80 != 0 {
            let (stag, to) = (be32(ulpdu, 2), be64(ulpdu, 6));
            let header = Self::Tagged {
                last,
                opcode,
                stag,
                to,
            };
            return (header, &ulpdu[14..]);
        }
        let header = Self::Untagged {
            last,
            opcode,
            invalidate: be32(ulpdu, 2),
            qn: be32(ulpdu, 6),
            msn: be32(ulpdu, 10),
            mo: be32(ulpdu, 14),
        };
        (header, &ulpdu[18..])
    }
}

/// An FPDU (RFC 5044 section 4.1): length, ULPDU, pad, CRC32C or zeros.
pub fn fpdu(header: &Header, payload: &[u8], crc: bool) -> Vec<u8> {
    let header = header.encode();
    let length = u16::try_from(header.len() + payload.len()).expect("a ULPDU below 64 KiB");
    let mut bytes = length.to_be_bytes().to_vec();
    bytes.extend(header);
    bytes.extend(payload);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    let sum = if crc { crc32c::crc32c(&bytes) } else { 0 };
    bytes.extend(sum.to_le_bytes());
    bytes
}

/// Bytes of the FPDU that begins with these two.
pub fn fpdu_length(start: [u8; 2]) -> usize {
    (2 + usize::from(u16::from_be_bytes(start))).next_multiple_of(4) + 4
}

/// The header and payload of a whole FPDU, whose pad and CRC are right.
#[track_caller]
pub fn open(fpdu: &[u8], crc: bool) -> (Header, &[u8]) {
    let (covered, sum) = fpdu.split_at(fpdu.len() - 4);
    if crc {
        assert_eq!(sum, crc32c::crc32c(covered).to_le_bytes(), "wrong CRC");
    }
    let (ulpdu, pad) = covered[2..].split_at(be16(fpdu, 0).into());
    assert!(pad.iter().all(|byte| *byte == 0), "pad {pad:?}");
    Header::decode(ulpdu)
}

/// The payload of an RDMA Read Request (RFC 5040 section 4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    pub sink_stag: u32,
    pub sink_to: u64,
    pub size: u32,
    pub source_stag: u32,
    pub source_to: u64,
}

impl ReadRequest {
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = self.sink_stag.to_be_bytes().to_vec();
        bytes.extend(self.sink_to.to_be_bytes());
        bytes.extend(self.size.to_be_bytes());
        bytes.extend(self.source_stag.to_be_bytes());
        bytes.extend(self.source_to.to_be_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Self {
        assert_eq!(bytes.len(), 28, "an RDMA Read Request has 28 bytes");
        Self {
            sink_stag: be32(bytes, 0),
            sink_to: be64(bytes, 4),
            size: be32(bytes, 12),
            source_stag: be32(bytes, 16),
            source_to: be64(bytes, 20),
        }
    }
}

fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(bytes[at..at + 2].try_into().unwrap())
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn be64(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap())
}
