//! What ends a stream, and that it is over then.

use super::*;
use crate::rdmap::Terminate;

fn error(ulpdu: &[u8]) -> Option<TerminateError> {
    take(&mut stream(), ulpdu).err()
}

/// `ulpdu` with one byte replaced.
fn with(mut ulpdu: Vec<u8>, at: usize, byte: u8) -> Vec<u8> {
    ulpdu[at] = byte;
    ulpdu
}

fn terminate_ulpdu() -> Vec<u8> {
    let message = stream()
        .terminate(DdpError::InvalidStag.into(), None)
        .expect("the first");
    message.bytes().to_vec()
}

/// RFC 5041 section 4.1: DV is one.
#[test]
fn another_ddp_version_is_refused_by_buffer_model() {
    let tagged = with(write(1, 0, 1, true), 0, 0xc0);
    assert_eq!(error(&tagged), Some(DdpError::TaggedVersion.into()));
    let untagged = with(send(PLAIN, 1, 0, 1, true), 0, 0x42);
    assert_eq!(error(&untagged), Some(DdpError::UntaggedVersion.into()));
}

/// RFC 5040 section 7.2 rule 3.
#[test]
fn another_rdmap_version_is_refused() {
    let invalid = Some(RdmapError::InvalidVersion.into());
    assert_eq!(error(&with(write(1, 0, 1, true), 1, 0x00)), invalid);
    assert_eq!(error(&with(send(PLAIN, 1, 0, 1, true), 1, 0x83)), invalid);
}

/// RFC 5040 section 7.2 rule 2, Figure 4.
#[test]
fn an_opcode_comes_only_where_figure_4_has_it() {
    let unexpected = Some(RdmapError::UnexpectedOpcode.into());
    for opcode in [1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 15] {
        let ulpdu = with(write(1, 0, 1, true), 1, 0x40 | opcode);
        assert_eq!(error(&ulpdu), unexpected, "opcode {opcode} tagged");
    }
    for opcode in [0, 1, 2, 7, 10, 11, 12, 15] {
        let ulpdu = with(send(PLAIN, 1, 0, 1, true), 1, 0x40 | opcode);
        assert_eq!(error(&ulpdu), unexpected, "opcode {opcode} on queue 0");
    }
    for opcode in [0, 2, 3, 7] {
        let ulpdu = with(read_request(1, &READ), 1, 0x40 | opcode);
        assert_eq!(error(&ulpdu), unexpected, "opcode {opcode} on queue 1");
    }
    for opcode in [0, 1, 2, 3] {
        let ulpdu = with(terminate_ulpdu(), 1, 0x40 | opcode);
        assert_eq!(error(&ulpdu), unexpected, "opcode {opcode} on queue 2");
    }
}

#[test]
fn only_queues_0_to_3_exist() {
    let invalid = Some(DdpError::InvalidQn.into());
    assert_eq!(error(&with(send(PLAIN, 1, 0, 1, true), 9, 4)), invalid);
    assert_eq!(error(&with(send(PLAIN, 1, 0, 1, true), 6, 1)), invalid);
}

#[test]
fn messages_and_bytes_come_in_order() {
    assert_eq!(
        error(&send(PLAIN, 0, 0, 1, true)),
        Some(DdpError::MsnRange.into())
    );
    assert_eq!(
        error(&send(PLAIN, 2, 0, 1, true)),
        Some(DdpError::MsnRange.into())
    );
    assert_eq!(
        error(&send(PLAIN, 1, 1, 1, true)),
        Some(DdpError::InvalidMo.into())
    );
    assert_eq!(
        error(&read_request(2, &READ)),
        Some(DdpError::MsnRange.into())
    );
}

#[test]
fn a_message_keeps_its_opcode() {
    let mut stream = stream();
    assert!(take(&mut stream, &send(PLAIN, 1, 0, 4, false)).is_ok());
    let solicited = SendKind {
        solicited: true,
        ..PLAIN
    };
    let refused = take(&mut stream, &send(solicited, 1, 4, 4, true));
    assert_eq!(refused, Err(RdmapError::UnexpectedOpcode.into()));
}

/// RFC 5041 section 7.1, tagged rule 5.
#[test]
fn a_tagged_offset_that_wraps_is_refused() {
    assert_eq!(
        error(&write(1, u64::MAX, 1, true)),
        Some(DdpError::ToWrap.into())
    );
    assert_eq!(error(&write(1, u64::MAX - 1, 1, true)), None);
}

/// RFC 5041 section 5.2: the ULP Message Length is less than 2^32.
#[test]
fn a_write_of_2_to_the_32_bytes_is_refused() {
    let mut stream = stream();
    stream.write_bytes = u32::MAX - 1;
    assert!(take(&mut stream, &write(1, 0, 1, false)).is_ok());
    let refused = take(&mut stream, &write(1, 1, 1, false));
    assert_eq!(refused, Err(DdpError::BaseOrBounds.into()));
}

#[test]
fn a_segment_shorter_than_its_header_is_refused() {
    let unspecified = Some(RdmapError::OperationUnspecified.into());
    assert_eq!(error(&[]), unspecified);
    assert_eq!(error(&write(1, 0, 0, true)[..13]), unspecified);
    assert_eq!(error(&send(PLAIN, 1, 0, 0, true)[..17]), unspecified);
}

/// RFC 5041 section 7.1: subsequent segments are silently dropped.
#[test]
fn after_an_error_everything_is_dropped() {
    let mut stream = stream();
    assert!(take(&mut stream, &send(PLAIN, 9, 0, 1, true)).is_err());
    assert_eq!(
        take(&mut stream, &write(1, 0, 1, true)),
        Ok(Inbound::Dropped)
    );
    assert_eq!(take(&mut stream, &[]), Ok(Inbound::Dropped));
    assert!(stream.may_transmit(), "the Terminate is still to go");
}

/// RFC 5040 section 5.4: one Terminate, and nothing after it.
#[test]
fn after_our_terminate_nothing_is_sent_or_delivered() {
    let mut stream = stream();
    assert!(
        stream
            .terminate(DdpError::InvalidStag.into(), None)
            .is_some()
    );
    assert!(
        stream
            .terminate(DdpError::InvalidStag.into(), None)
            .is_none()
    );
    assert!(!stream.may_transmit());
    assert!(!stream.can_begin_read());
    assert_eq!(stream.begin_read(1, &READ), None);
    assert_eq!(
        take(&mut stream, &write(1, 0, 1, true)),
        Ok(Inbound::Dropped)
    );
}

#[test]
fn a_terminate_of_the_peer_ends_the_stream() {
    let mut stream = stream();
    let expected = Terminate {
        error: DdpError::InvalidStag.into(),
        segment_length: None,
        ddp_header: None,
        read_request: None,
    };
    let found = take(&mut stream, &terminate_ulpdu());
    assert_eq!(found, Ok(Inbound::Terminate(expected)));
    assert!(!stream.may_transmit());
    assert_eq!(take(&mut stream, &terminate_ulpdu()), Ok(Inbound::Dropped));
    assert!(
        stream
            .terminate(DdpError::InvalidStag.into(), None)
            .is_none()
    );
}

#[test]
fn a_terminate_without_a_control_word_is_refused() {
    let bytes = terminate_ulpdu();
    let unspecified = Some(RdmapError::OperationUnspecified.into());
    assert_eq!(error(&bytes[..21]), unspecified);
    assert_eq!(
        error(&with(bytes, 0, 0x01)),
        unspecified,
        "not the last segment"
    );
}
