//! The frame that a flood's program makes all others of.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use userspace_net::checksum;
use userspace_tcp::segment::PROTOCOL_TCP;

use crate::Kind;

const ETHERNET: usize = 14;
const IPV4: usize = 20;
const IPV6: usize = 40;
const IPV6_FRAGMENT: usize = 8;
const TCP: usize = 20;
const FRAGMENT_PROTOCOL: u8 = 44;
/// The sender's link address: nobody's, so that answers end at the sender's kernel.
const SENDER: [u8; 6] = [2, 0, 0, 0, 0, 1];
const V4_SENDER: Ipv4Addr = Ipv4Addr::new(198, 19, 0, 1);
const V6_SENDER: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 1);

const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;

/// A frame, and where the fields are that change: `flood.bpf.c` says what each is. 0: it has none.
pub struct Frame {
    pub bytes: Vec<u8>,
    pub source: u32,
    pub v4_id: u32,
    pub v4_checksum: u32,
    pub v6_id: u32,
    pub tcp: u32,
    pub junk: u32,
}

impl Frame {
    pub fn new(kind: Kind, to: SocketAddr, mac: [u8; 6]) -> Self {
        let payload = match kind {
            Kind::Data => 512,
            Kind::Fragment => 8,
            Kind::Junk => 64,
            Kind::Syn | Kind::Ack | Kind::Rst => 0,
        };
        let part = kind == Kind::Fragment;
        let (link, from, ip) = match to.ip() {
            IpAddr::V4(to) => (0x0800_u16, V4_SENDER.into(), ipv4(to, part, TCP + payload)),
            IpAddr::V6(to) => (0x86dd, V6_SENDER.into(), ipv6(to, part, TCP + payload)),
        };
        let mut bytes = [&mac[..], &SENDER, &link.to_be_bytes(), &ip].concat();
        let at = bytes.len();
        bytes.extend(tcp(kind, from, to, payload));
        let base = Self {
            bytes,
            source: 0,
            v4_id: 0,
            v4_checksum: 0,
            v6_id: 0,
            tcp: at as u32,
            junk: match kind {
                Kind::Junk => payload as u32 / 2,
                _ => 0,
            },
        };
        let ip = ETHERNET as u32;
        match to {
            SocketAddr::V4(_) => Self {
                source: ip + 14,
                v4_id: ip + 4,
                v4_checksum: ip + 10,
                ..base
            },
            SocketAddr::V6(_) => Self {
                source: ip + 22,
                v6_id: if part { ip + IPV6 as u32 + 6 } else { 0 },
                ..base
            },
        }
    }
}

/// An IPv4 header, by itself or of a first fragment.
fn ipv4(to: Ipv4Addr, part: bool, rest: usize) -> Vec<u8> {
    let mut header = vec![0; IPV4];
    header[0] = 0x45;
    header[2..4].copy_from_slice(&((IPV4 + rest) as u16).to_be_bytes());
    header[6] = if part { 0x20 } else { 0 };
    header[8] = 64;
    header[9] = PROTOCOL_TCP;
    header[12..16].copy_from_slice(&V4_SENDER.octets());
    header[16..20].copy_from_slice(&to.octets());
    let sum = checksum::fold(checksum::sum(&header));
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    header
}

/// An IPv6 header, and that of a first fragment.
fn ipv6(to: Ipv6Addr, part: bool, rest: usize) -> Vec<u8> {
    let more = if part { IPV6_FRAGMENT } else { 0 };
    let mut header = vec![0; IPV6 + more];
    header[0] = 0x60;
    header[4..6].copy_from_slice(&((more + rest) as u16).to_be_bytes());
    header[6] = if part {
        FRAGMENT_PROTOCOL
    } else {
        PROTOCOL_TCP
    };
    header[7] = 64;
    header[8..24].copy_from_slice(&V6_SENDER.octets());
    header[24..40].copy_from_slice(&to.octets());
    if part {
        header[IPV6] = PROTOCOL_TCP;
        header[IPV6 + 3] = 1;
    }
    header
}

fn tcp(kind: Kind, from: IpAddr, to: SocketAddr, payload: usize) -> Vec<u8> {
    let mut segment = vec![0; TCP + payload];
    segment[2..4].copy_from_slice(&to.port().to_be_bytes());
    segment[12] = 5 << 4;
    segment[13] = match kind {
        Kind::Syn | Kind::Fragment => SYN,
        Kind::Rst => RST,
        Kind::Data => PSH | ACK,
        Kind::Ack | Kind::Junk => ACK,
    };
    segment[14..16].copy_from_slice(&0xffff_u16.to_be_bytes());
    let sum =
        checksum::pseudo(from, to.ip(), PROTOCOL_TCP, segment.len()) + checksum::sum(&segment);
    segment[16..18].copy_from_slice(&checksum::fold(sum).to_be_bytes());
    segment
}

/// A link address as `ip link` writes it.
pub fn mac(text: &str) -> Result<[u8; 6], String> {
    let bytes: Result<Vec<u8>, _> = text
        .split(':')
        .map(|byte| u8::from_str_radix(byte, 16))
        .collect();
    let six = bytes.ok().and_then(|bytes| bytes.try_into().ok());
    six.ok_or_else(|| format!("'{text}' is no link address (02:00:00:00:00:02)"))
}
