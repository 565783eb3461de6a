//! Octets as a segment, and as the options of one.

use userspace_tcp::segment::{HEADER_MAX, HEADER_MIN};
use userspace_tcp::{OPTIONS_MAX, Segment, TcpHeader};

/// Octets of the network. What is read can be written, and reads the same again.
pub fn segment(octets: &[u8]) {
    let Ok(segment) = Segment::parse(octets) else {
        return;
    };
    assert!(segment.payload.len() + HEADER_MIN <= octets.len());
    assert!(segment.sequence_len() >= segment.payload.len() as u64);
    let (again, payload) = write_and_read(&segment.header, segment.payload);
    assert_eq!(payload, segment.payload);
    assert_same(&segment.header, &again);
    // What we have written ourselves has all its options.
    let (third, _) = write_and_read(&again, &[]);
    assert_eq!(third, again);
}

/// Octets of the option field only, so that all of the input is options.
pub fn options(octets: &[u8]) {
    let octets = &octets[..octets.len().min(OPTIONS_MAX)];
    let len = octets.len().next_multiple_of(4);
    let mut bytes = vec![0; HEADER_MIN + len];
    TcpHeader::default().emit(&mut bytes);
    bytes[12] = (((HEADER_MIN + len) / 4) << 4) as u8;
    bytes[HEADER_MIN..HEADER_MIN + octets.len()].copy_from_slice(octets);
    segment(&bytes);
}

fn write_and_read(header: &TcpHeader, payload: &[u8]) -> (TcpHeader, Vec<u8>) {
    let mut bytes = vec![0xff; header.header_len()];
    assert!(bytes.len() <= HEADER_MAX && bytes.len().is_multiple_of(4));
    assert_eq!(header.emit(&mut bytes), bytes.len());
    bytes.extend_from_slice(payload);
    let again = Segment::parse(&bytes).expect("what we write can be read");
    (again.header, again.payload.to_vec())
}

/// SACK blocks that don't fit beside the other options are left out; all else is kept.
fn assert_same(read: &TcpHeader, again: &TcpHeader) {
    let (before, after) = (read.options.sack.as_slice(), again.options.sack.as_slice());
    assert!(before.starts_with(after), "{before:?} {after:?}");
    let mut expected = *read;
    expected.options.sack = again.options.sack;
    if !read.flags.contains(userspace_tcp::Flags::URG) {
        expected.urgent = again.urgent;
    }
    assert_eq!(expected, *again);
}
