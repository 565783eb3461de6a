//! Bytes as a segment, and as the options of one.

use userspace_tcp::segment::{HEADER_MAX, HEADER_MIN};
use userspace_tcp::{OPTIONS_MAX, Segment, TcpHeader};

/// Bytes of the network. What is read can be written, and reads the same again.
pub fn segment(bytes: &[u8]) {
    let Ok(segment) = Segment::parse(bytes) else {
        return;
    };
    assert!(segment.payload.len() + HEADER_MIN <= bytes.len());
    assert!(segment.sequence_len() >= segment.payload.len() as u64);
    let (again, payload) = write_and_read(&segment.header, segment.payload);
    assert_eq!(payload, segment.payload);
    assert_same(&segment.header, &again);
    // What we have written ourselves has all its options.
    let (third, _) = write_and_read(&again, &[]);
    assert_eq!(third, again);
}

/// Bytes of the option field only, so that all of the input is options.
pub fn options(bytes: &[u8]) {
    let bytes = &bytes[..bytes.len().min(OPTIONS_MAX)];
    let len = bytes.len().next_multiple_of(4);
    let mut whole = vec![0; HEADER_MIN + len];
    TcpHeader::default().emit(&mut whole);
    whole[12] = (((HEADER_MIN + len) / 4) << 4) as u8;
    whole[HEADER_MIN..HEADER_MIN + bytes.len()].copy_from_slice(bytes);
    segment(&whole);
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
