//! Ethernet frames with a TCP segment, written and read apart from the product's own code.

use std::net::IpAddr;

use userspace_net::{Ecn, Endpoint, FourTuple};

/// A segment taken out of a frame, or out of the fragments of a packet.
pub struct Taken {
    /// As its sender sees it.
    pub ends: FourTuple,
    pub ecn: Ecn,
    pub header: Vec<u8>,
    pub payload: Vec<u8>,
    /// Bytes of the first of its fragments, if it came in such.
    pub fragment: Option<u32>,
}

/// Puts fragments together, which come in order.
#[derive(Default)]
pub struct Reader {
    parts: Vec<u8>,
    first: u32,
}

/// A frame with this TCP segment, whose checksum is filled in. `ends` are its sender's.
pub fn write(ends: FourTuple, macs: ([u8; 6], [u8; 6]), ecn: Ecn, mut segment: Vec<u8>) -> Vec<u8> {
    let (source, destination) = (ends.local.addr, ends.remote.addr);
    let mut pseudo = bytes_of(source);
    pseudo.extend(bytes_of(destination));
    pseudo.extend((segment.len() as u32).to_be_bytes());
    pseudo.extend([0, 0, 0, 6]);
    let sum = !(sum(&segment, sum(&pseudo, 0)) as u16);
    segment[16..18].copy_from_slice(&sum.to_be_bytes());
    let mut out = Vec::new();
    out.extend(macs.1);
    out.extend(macs.0);
    if source.is_ipv4() {
        let mut header = vec![0x45, bits(ecn)];
        header.extend((20 + segment.len() as u16).to_be_bytes());
        header.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
        header.extend(bytes_of(source));
        header.extend(bytes_of(destination));
        let sum = !(self::sum(&header, 0) as u16);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        out.extend([0x08, 0x00]);
        out.extend(header);
    } else {
        out.extend([0x86, 0xdd, 0x60, bits(ecn) << 4, 0, 0]);
        out.extend((segment.len() as u16).to_be_bytes());
        out.extend([6, 64]);
        out.extend(bytes_of(source));
        out.extend(bytes_of(destination));
    }
    out.extend(segment);
    out
}

impl Reader {
    /// The segment that is whole with this frame.
    pub fn read(&mut self, frame: &[u8]) -> Option<Taken> {
        let ip = &frame[14..];
        let short = |at: usize| u16::from_be_bytes([ip[at], ip[at + 1]]);
        let (source, destination, ecn, start, end, offset, more);
        match frame[12..14] {
            [0x08, 0x00] => {
                assert_eq!((ip[0], ip[9]), (0x45, 6), "no plain IPv4 header with TCP");
                assert_eq!(sum(&ip[..20], 0), 0xffff, "the IPv4 checksum is wrong");
                source = IpAddr::from(<[u8; 4]>::try_from(&ip[12..16]).unwrap());
                destination = IpAddr::from(<[u8; 4]>::try_from(&ip[16..20]).unwrap());
                (ecn, start, end) = (ip[1] & 3, 20, usize::from(short(2)));
                (offset, more) = ((short(6) & 0x1fff) << 3, short(6) & 0x2000 != 0);
            }
            [0x86, 0xdd] => {
                source = IpAddr::from(<[u8; 16]>::try_from(&ip[8..24]).unwrap());
                destination = IpAddr::from(<[u8; 16]>::try_from(&ip[24..40]).unwrap());
                (ecn, end) = (ip[1] >> 4 & 3, 40 + usize::from(short(4)));
                (start, offset, more) = match ip[6] {
                    6 => (40, 0, false),
                    44 => (48, short(42) & 0xfff8, short(42) & 1 != 0),
                    other => panic!("IPv6 with protocol {other}"),
                };
            }
            [a, b] => panic!("a frame of type {a:02x}{b:02x}"),
            _ => unreachable!(),
        }
        assert_eq!(usize::from(offset), self.parts.len(), "another fragment");
        if offset == 0 {
            self.first = end as u32;
        }
        self.parts.extend(&ip[start..end]);
        if more {
            return None;
        }
        let segment = std::mem::take(&mut self.parts);
        let mut pseudo = bytes_of(source);
        pseudo.extend(bytes_of(destination));
        pseudo.extend((segment.len() as u32).to_be_bytes());
        pseudo.extend([0, 0, 0, 6]);
        let sum = sum(&segment, sum(&pseudo, 0));
        assert_eq!(sum, 0xffff, "the TCP checksum is wrong");
        let (header, payload) = segment.split_at(usize::from(segment[12] >> 4) * 4);
        let port = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        Some(Taken {
            ends: FourTuple::new(
                Endpoint::new(source, port(0)),
                Endpoint::new(destination, port(2)),
            ),
            ecn: [Ecn::NotEct, Ecn::Ect1, Ecn::Ect0, Ecn::Ce][usize::from(ecn)],
            header: header.to_vec(),
            payload: payload.to_vec(),
            fragment: (offset > 0).then_some(self.first),
        })
    }
}

fn bytes_of(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

fn bits(ecn: Ecn) -> u8 {
    match ecn {
        Ecn::NotEct => 0,
        Ecn::Ect1 => 1,
        Ecn::Ect0 => 2,
        Ecn::Ce => 3,
    }
}

/// The Internet checksum's sum (RFC 1071), folded.
fn sum(bytes: &[u8], before: u32) -> u32 {
    let mut sum = before;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum
}
