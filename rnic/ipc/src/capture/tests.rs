use super::*;

#[test]
fn a_record_header_is_read_as_it_was_written() {
    for direction in [Direction::In, Direction::Out] {
        let header = RecordHeader {
            unix_ns: 0x0102_0304_0506_0708,
            lost: u64::MAX - 1,
            original: 9000,
            kept: 96,
            direction,
        };
        assert_eq!(RecordHeader::from_bytes(&header.to_bytes()), Some(header));
        assert!(!header.is_last());
    }
    let last = RecordHeader::last(7, 8);
    assert_eq!(RecordHeader::from_bytes(&last.to_bytes()), Some(last));
    assert!(last.is_last());
}

#[test]
fn a_record_that_would_have_more_bytes_than_possible_is_none() {
    let header = |original, kept| RecordHeader {
        original,
        kept,
        ..RecordHeader::last(0, 0)
    };
    let read = |header: RecordHeader| RecordHeader::from_bytes(&header.to_bytes());
    assert_eq!(read(header(60, 61)), None);
    let most = KEPT_MAX as u32;
    assert!(read(header(most, most)).is_some());
    assert_eq!(read(header(most + 1, most + 1)), None);
}
