//! Segments as bytes on a link.

use userspace_net::{FourTuple, checksum};
use userspace_tcp::{Flags, Segment, Transmit, segment};

use super::Buf;

/// The bytes of a segment, with its checksum.
pub fn emit(transmit: &Transmit<Buf>) -> Vec<u8> {
    let Transmit { tuple, header, .. } = transmit;
    let mut bytes = vec![0; header.header_len()];
    header.emit(&mut bytes);
    let mut total = checksum::sum(&bytes);
    if let Some(payload) = &transmit.payload {
        bytes.extend_from_slice(&payload.buf.bytes[..payload.len as usize]);
        total += payload.sum;
    }
    total += checksum::pseudo(
        tuple.local.addr,
        tuple.remote.addr,
        segment::PROTOCOL_TCP,
        bytes.len(),
    );
    put_checksum(&mut bytes, total);
    bytes
}

/// Whether a segment is as its checksum says; `tuple` is its receiver's.
pub fn is_sound(tuple: FourTuple, bytes: &[u8]) -> bool {
    let (source, destination) = (tuple.remote.addr, tuple.local.addr);
    checksum::verify(source, destination, segment::PROTOCOL_TCP, bytes)
}

/// A segment as two, cut so that the second one has what is behind byte `at`.
pub fn split(tuple: FourTuple, bytes: &[u8], at: usize) -> [Vec<u8>; 2] {
    let segment = Segment::parse(bytes).unwrap();
    let header_len = segment.header.header_len();
    let mut headers = [segment.header; 2];
    headers[0].flags = Flags::ACK;
    headers[1].seq = headers[1].seq.add((at - header_len) as u32);
    let payloads = [&bytes[header_len..at], &bytes[at..]];
    [0, 1].map(|part| {
        let mut bytes = vec![0; header_len];
        headers[part].emit(&mut bytes);
        bytes.extend_from_slice(payloads[part]);
        let pseudo = checksum::pseudo(
            tuple.local.addr,
            tuple.remote.addr,
            segment::PROTOCOL_TCP,
            bytes.len(),
        );
        let total = checksum::sum(&bytes) + pseudo;
        put_checksum(&mut bytes, total);
        bytes
    })
}

fn put_checksum(bytes: &mut [u8], total: checksum::PartialSum) {
    let at = segment::CHECKSUM_OFFSET;
    bytes[at..at + 2].copy_from_slice(&checksum::fold(total).to_be_bytes());
}
