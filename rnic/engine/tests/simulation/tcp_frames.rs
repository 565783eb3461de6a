//! Frames as a box in the middle of a path sees them: TCP segments to be cut, joined and damaged.

use std::collections::BTreeSet;

use rnic_net::{Path, PathDefaults, Payload};
use userspace_net::{Ecn, FourTuple, checksum};
use userspace_tcp::{Flags, Segment, TcpHeader};

pub enum Damage {
    None,
    /// The stream of this initiator's port is not what was sent any more.
    Done {
        port: u16,
    },
}

/// A data segment, taken apart.
struct Parts {
    path: Path,
    tuple: FourTuple,
    ecn: Ecn,
    header: TcpHeader,
    /// Where the payload begins.
    payload_at: usize,
}

/// No IP packet becomes longer than that.
const MTU_MAX: u32 = 9000;

fn parts(frame: &[u8]) -> Option<Parts> {
    let found = rnic_net::parse(frame, &PathDefaults::new(MTU_MAX)).ok()?;
    let segment = Segment::parse(&frame[found.tcp()?]).ok()?;
    let plain = segment.header.flags.contains(Flags::ACK)
        && !segment.header.flags.contains(Flags::SYN)
        && !segment.header.flags.contains(Flags::RST)
        && !segment.header.flags.contains(Flags::URG);
    (plain && !segment.payload.is_empty()).then(|| Parts {
        // As the sender sees both.
        path: Path {
            src_mac: found.path.dst_mac,
            dst_mac: found.path.src_mac,
            ..found.path
        },
        tuple: FourTuple::new(found.tuple.remote, found.tuple.local),
        ecn: found.ecn,
        payload_at: found.data.end - segment.payload.len(),
        header: segment.header,
    })
}

/// The ports of a segment, source and destination; none of what is no segment.
pub fn ports(frame: &[u8]) -> Option<[u16; 2]> {
    let found = rnic_net::parse(frame, &PathDefaults::new(MTU_MAX)).ok()?;
    Some([found.tuple.remote.port, found.tuple.local.port])
}

/// Whether a frame may begin a connection or association where it comes: a SYN, an INIT, or the COOKIE ECHO that brings
/// back what the INIT's receiver did not keep.
pub fn begins(frame: &[u8]) -> bool {
    const INIT: u8 = 1;
    const COOKIE_ECHO: u8 = 10;
    let Ok(found) = rnic_net::parse(frame, &PathDefaults::new(MTU_MAX)) else {
        return false;
    };
    match found.tcp() {
        Some(segment) => Segment::parse(&frame[segment]).is_ok_and(|segment| {
            let flags = segment.header.flags;
            flags.contains(Flags::SYN) && !flags.contains(Flags::ACK)
        }),
        None => matches!(frame[found.data][12], INIT | COOKIE_ECHO),
    }
}

impl Parts {
    fn write(&self, header: TcpHeader, payload: &[u8]) -> Vec<u8> {
        let headers = self.path.headers_len(self.tuple.remote.addr) + header.header_len();
        let mut frame = vec![0; headers];
        let (len, sum) = (payload.len(), checksum::sum(payload));
        let payload_of = Payload { len, sum };
        rnic_net::write_segment(
            &self.path,
            &self.tuple,
            self.ecn,
            &header,
            payload_of,
            &mut frame,
        )
        .unwrap();
        frame.extend_from_slice(payload);
        frame
    }
}

/// The frame in two, cut somewhere; itself when there is nothing to cut.
pub fn cut(frame: &[u8], at: usize) -> Vec<Vec<u8>> {
    let Some(parts) = parts(frame) else {
        return vec![frame.to_vec()];
    };
    let payload = &frame[parts.payload_at..];
    let at = at % payload.len();
    if at == 0 {
        return vec![frame.to_vec()];
    }
    let seq = parts.header.seq.add(at as u32);
    let first = TcpHeader {
        flags: Flags(parts.header.flags.0 & !Flags::FIN.0),
        ..parts.header
    };
    let second = TcpHeader {
        seq,
        ..parts.header
    };
    vec![
        parts.write(first, &payload[..at]),
        parts.write(second, &payload[at..]),
    ]
}

/// No longer than a packet of the smallest interface.
pub const SMALLEST_MTU: usize = 576;
/// As long as a receiver with small frames takes, as far as it has kept them free.
pub const SUPER_PACKET: usize = 16 * 1792;

/// Puts a frame's payload behind that of the one before, when it continues it and the result is no
/// longer than that.
pub fn join(before: &mut Vec<u8>, frame: &[u8], longest: usize) -> bool {
    if before.len() + frame.len() > longest {
        return false;
    }
    let (Some(first), Some(second)) = (parts(before), parts(frame)) else {
        return false;
    };
    let payload = &before[first.payload_at..];
    let follows = first.tuple == second.tuple
        && !first.header.flags.contains(Flags::FIN)
        && first.header.seq.add(payload.len() as u32) == second.header.seq;
    if !follows {
        return false;
    }
    let header = TcpHeader {
        seq: first.header.seq,
        ..second.header
    };
    let payload = [payload, &frame[second.payload_at..]].concat();
    *before = first.write(header, &payload);
    true
}

/// Exchanges two 16-bit words of the payload, so that no checksum of IP or TCP notices.
pub fn damage(frame: &mut [u8], at: usize, guarded: &BTreeSet<u16>) -> Damage {
    let Some(parts) = parts(frame) else {
        return Damage::None;
    };
    let ports = [parts.tuple.local.port, parts.tuple.remote.port];
    let Some(&port) = ports.iter().find(|port| guarded.contains(port)) else {
        return Damage::None;
    };
    let words = (frame.len() - parts.payload_at) / 2;
    if words < 2 {
        return Damage::None;
    }
    let (one, other) = (at % words, at / words % words);
    let mut differ = false;
    for byte in 0..2 {
        let (a, b) = (
            parts.payload_at + 2 * one + byte,
            parts.payload_at + 2 * other + byte,
        );
        differ |= frame[a] != frame[b];
        frame.swap(a, b);
    }
    if differ {
        Damage::Done { port }
    } else {
        Damage::None
    }
}
