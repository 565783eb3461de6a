//! Segments as bytes and as tcpdump prints them. Written apart from the crate's own codec, so that
//! the two check each other (RFC 9293 section 3.1).

use std::fmt::Write as _;

use userspace_net::Ecn;

pub const SYN: u8 = 0x02;
pub const RST: u8 = 0x04;
pub const ACK: u8 = 0x10;

/// A segment with the numbers of the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wire {
    pub ports: (u16, u16),
    pub flags: u8,
    pub seq: u32,
    pub ack: u32,
    pub window: u16,
    pub urgent: u16,
    pub options: Vec<Tlv>,
    pub len: u32,
    pub ecn: Ecn,
    pub fragment: Option<u32>,
}

/// An option; NOPs and the end of the list are none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tlv {
    Mss(u16),
    WindowScale(u8),
    SackPermitted,
    Timestamps(u32, u32),
    Sack(Vec<(u32, u32)>),
    /// The bytes as they are.
    Raw(Vec<u8>),
}

impl Wire {
    pub fn is(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    pub fn syn(&self) -> bool {
        self.is(SYN)
    }

    pub fn timestamps(&self) -> Option<(u32, u32)> {
        self.options.iter().find_map(|option| match option {
            Tlv::Timestamps(value, echo) => Some((*value, *echo)),
            _ => None,
        })
    }

    /// Header and `len` bytes of payload.
    pub fn encode(&self) -> Vec<u8> {
        let mut options = Vec::new();
        for option in &self.options {
            option.encode(&mut options);
        }
        while options.len() % 4 != 0 {
            options.push(0);
        }
        let words = (20 + options.len()) / 4;
        let offset = u8::try_from(words << 4).expect("a script's options fit 40 bytes");
        let mut out = Vec::new();
        out.extend(self.ports.0.to_be_bytes());
        out.extend(self.ports.1.to_be_bytes());
        out.extend(self.seq.to_be_bytes());
        out.extend(self.ack.to_be_bytes());
        out.extend([offset, self.flags]);
        out.extend(self.window.to_be_bytes());
        out.extend([0, 0]);
        out.extend(self.urgent.to_be_bytes());
        out.extend(options);
        out.resize(out.len() + self.len as usize, 0);
        out
    }

    /// From a header that ends where `header` does.
    pub fn decode(header: &[u8], len: u32) -> Self {
        let short = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let long = |at: usize| u32::from(short(at)) << 16 | u32::from(short(at + 2));
        assert_eq!(usize::from(header[12] >> 4) * 4, header.len());
        Self {
            ports: (short(0), short(2)),
            flags: header[13],
            seq: long(4),
            ack: long(8),
            window: short(14),
            urgent: short(18),
            options: Tlv::decode(&header[20..]),
            len,
            ecn: Ecn::NotEct,
            fragment: None,
        }
    }

    /// In the manner of tcpdump, with the sequence numbers counted from `seq_base` and `ack_base`.
    pub fn print(&self, seq_base: u32, ack_base: u32) -> String {
        let mut out = format!("Flags [{}]", letters(self.flags));
        let seq = relative(self.seq, seq_base);
        if self.len > 0 {
            let _ = write!(out, ", seq {seq}:{}", seq + i64::from(self.len));
        } else {
            let _ = write!(out, ", seq {seq}");
        }
        if self.is(ACK) {
            let _ = write!(out, ", ack {}", relative(self.ack, ack_base));
        }
        let _ = write!(out, ", win {}", self.window);
        if self.urgent != 0 {
            let _ = write!(out, ", urg {}", self.urgent);
        }
        if !self.options.is_empty() {
            let options: Vec<String> = self.options.iter().map(|o| o.print(ack_base)).collect();
            let _ = write!(out, ", options [{}]", options.join(","));
        }
        let _ = write!(out, ", length {}", self.len);
        if self.ecn != Ecn::NotEct {
            let _ = write!(out, ", ecn {:?}", self.ecn);
        }
        if let Some(mtu) = self.fragment {
            let _ = write!(out, ", in fragments of {mtu}");
        }
        out
    }
}

impl Tlv {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Mss(mss) => {
                out.extend([2, 4]);
                out.extend(mss.to_be_bytes());
            }
            Self::WindowScale(shift) => out.extend([3, 3, *shift]),
            Self::SackPermitted => out.extend([4, 2]),
            Self::Timestamps(value, echo) => {
                out.extend([8, 10]);
                out.extend(value.to_be_bytes());
                out.extend(echo.to_be_bytes());
            }
            Self::Sack(blocks) => {
                let len = u8::try_from(2 + 8 * blocks.len()).expect("few blocks");
                out.extend([5, len]);
                for (left, right) in blocks {
                    out.extend(left.to_be_bytes());
                    out.extend(right.to_be_bytes());
                }
            }
            Self::Raw(bytes) => out.extend(bytes),
        }
    }

    fn decode(mut bytes: &[u8]) -> Vec<Self> {
        let mut options = Vec::new();
        while let Some((&kind, rest)) = bytes.split_first() {
            match kind {
                0 => break,
                1 => bytes = rest,
                _ => {
                    let len = usize::from(bytes[1]);
                    options.push(Self::one(&bytes[..len]));
                    bytes = &bytes[len..];
                }
            }
        }
        options
    }

    fn one(option: &[u8]) -> Self {
        let long = |at: usize| {
            let bytes = option[at..at + 4].try_into().expect("four bytes");
            u32::from_be_bytes(bytes)
        };
        match (option[0], option.len()) {
            (2, 4) => Self::Mss(u16::from_be_bytes([option[2], option[3]])),
            (3, 3) => Self::WindowScale(option[2]),
            (4, 2) => Self::SackPermitted,
            (8, 10) => Self::Timestamps(long(2), long(6)),
            (5, len) if len % 8 == 2 => {
                let blocks = (2..len).step_by(8).map(|at| (long(at), long(at + 4)));
                Self::Sack(blocks.collect())
            }
            _ => Self::Raw(option.to_vec()),
        }
    }

    fn print(&self, ack_base: u32) -> String {
        match self {
            Self::Mss(mss) => format!("mss {mss}"),
            Self::WindowScale(shift) => format!("wscale {shift}"),
            Self::SackPermitted => "sackOK".to_owned(),
            Self::Timestamps(value, echo) => format!("TS val {value} ecr {echo}"),
            Self::Sack(blocks) => {
                let blocks: Vec<String> = blocks
                    .iter()
                    .map(|&(left, right)| {
                        let (left, right) = (relative(left, ack_base), relative(right, ack_base));
                        format!(" {left}:{right}")
                    })
                    .collect();
                format!("sack{}", blocks.concat())
            }
            Self::Raw(bytes) => format!("unknown {bytes:02x?}"),
        }
    }
}

/// Signed distance from `base`.
pub fn relative(number: u32, base: u32) -> i64 {
    i64::from(number.wrapping_sub(base).cast_signed())
}

/// Inverse of [`relative`].
pub fn absolute(number: i64, base: u32) -> u32 {
    // Truncated on purpose: sequence numbers wrap.
    base.wrapping_add(number as u32)
}

pub fn letters(flags: u8) -> String {
    let set = crate::parse::FLAGS.chars().enumerate();
    let set: String = set
        .filter(|(bit, _)| flags >> bit & 1 == 1)
        .map(|(_, letter)| letter)
        .collect();
    if set.is_empty() {
        "none".to_owned()
    } else {
        set
    }
}
