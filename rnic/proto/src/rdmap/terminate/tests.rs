use proptest::prelude::*;

use super::{Offending, Terminate, TerminateMessage, ULPDU_LEN_MAX};
use crate::ddp::{DdpError, Header};
use crate::mpa::MpaError;
use crate::rdmap::segment::{put_read_request, put_write};
use crate::rdmap::{RdmapError, ReadRequest, TerminateError};
use crate::{Msn, Stag, TaggedOffset};

const HEADER: [u8; 18] = [0x41, 0x47, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0];

const READ: ReadRequest = ReadRequest {
    sink_stag: Stag(1),
    sink_to: TaggedOffset(2),
    size: 3,
    source_stag: Stag(4),
    source_to: TaggedOffset(5),
};

fn write_segment() -> Vec<u8> {
    let mut out = vec![0xaa; 114];
    put_write(&mut out, Stag(7), TaggedOffset(8), false);
    out
}

fn read_segment() -> Vec<u8> {
    let mut out = vec![0; 46];
    put_read_request(&mut out, Msn(9), &READ);
    out
}

/// The payload of the Terminate for an error in this segment.
fn payload(error: TerminateError, segment: &[u8]) -> Vec<u8> {
    let message = TerminateMessage::new(error, Some(&Offending::of(&segment)));
    assert_eq!(message.bytes()[..18], HEADER);
    message.bytes()[18..].to_vec()
}

fn parse(payload: &[u8]) -> Option<Terminate> {
    Terminate::parse(&payload)
}

/// RFC 5040 section 4.8 and Figure 10: a DDP error shows segment length and DDP header.
#[test]
fn a_ddp_error_shows_the_ddp_header() {
    let segment = write_segment();
    let out = payload(DdpError::InvalidStag.into(), &segment);
    assert_eq!(out[..6], [0x11, 0x00, 0xc0, 0x00, 0, 114]);
    assert_eq!(out[6..], segment[..14]);
}

#[test]
fn a_protection_error_of_a_read_shows_its_request_too() {
    let segment = read_segment();
    let out = payload(RdmapError::BaseOrBounds.into(), &segment);
    assert_eq!(out[..6], [0x01, 0x01, 0xe0, 0x00, 0, 46]);
    assert_eq!(out[6..], segment[..]);
    assert_eq!(out.len() + 18, ULPDU_LEN_MAX);
}

#[test]
fn an_operation_error_of_a_read_shows_no_request() {
    let out = payload(RdmapError::UnexpectedOpcode.into(), &read_segment());
    assert_eq!(out[..6], [0x02, 0x06, 0xc0, 0x00, 0, 46]);
    assert_eq!(out.len(), 24);
}

#[test]
fn an_llp_error_shows_nothing() {
    let out = payload(MpaError::CrcMismatch.into(), &write_segment());
    assert_eq!(out, [0x20, 0x02, 0x00, 0x00]);
    let alone = TerminateMessage::new(RdmapError::LocalCatastrophic.into(), None);
    assert_eq!(alone.bytes()[18..], [0, 0, 0, 0]);
}

#[test]
fn a_segment_too_short_for_its_header_is_not_shown() {
    let out = payload(RdmapError::OperationUnspecified.into(), &[0x41, 0x43]);
    assert_eq!(out, [0x02, 0xff, 0x00, 0x00]);
}

#[test]
fn what_is_sent_is_read_back() {
    let terminate = parse(&payload(DdpError::ToWrap.into(), &write_segment())).expect("whole");
    assert_eq!(terminate.error, DdpError::ToWrap.into());
    assert_eq!(terminate.segment_length, Some(114));
    assert_eq!(terminate.read_request, None);
    let Some(Header::Tagged(header)) = terminate.ddp_header else {
        panic!("{terminate:?}");
    };
    assert_eq!((header.stag, header.to), (Stag(7), TaggedOffset(8)));
    let out = payload(RdmapError::InvalidStag.into(), &read_segment());
    let terminate = parse(&out).expect("whole");
    assert_eq!(terminate.error, RdmapError::InvalidStag.into());
    assert_eq!(terminate.read_request, Some(READ));
}

/// The control words that Linux siw was seen to send on a little-endian machine.
#[test]
fn the_terminates_of_siw_are_understood() {
    let ddp = |error: DdpError| TerminateError::from(error);
    let rdmap = |error: RdmapError| TerminateError::from(error);
    let seen = [
        ([0x11, 0x00, 0x03, 0x00], ddp(DdpError::InvalidStag), false),
        ([0x11, 0x01, 0x03, 0x00], ddp(DdpError::BaseOrBounds), false),
        (
            [0x10, 0x00, 0x07, 0x00],
            rdmap(RdmapError::InvalidStag),
            true,
        ),
        (
            [0x10, 0x01, 0x07, 0x00],
            rdmap(RdmapError::BaseOrBounds),
            true,
        ),
        ([0x21, 0x02, 0x03, 0x00], ddp(DdpError::NoBuffer), false),
    ];
    for (control, error, of_read) in seen {
        let segment = if of_read {
            read_segment()
        } else {
            write_segment()[..14].to_vec()
        };
        let bytes = [&control[..], &[0, 28], &segment].concat();
        let terminate = parse(&bytes).expect("whole");
        assert_eq!(terminate.error, error, "{control:x?}");
        assert_eq!(terminate.segment_length, Some(28));
        assert!(terminate.ddp_header.is_some());
        assert_eq!(terminate.read_request.is_some(), of_read);
    }
}

#[test]
fn without_header_bits_the_numbers_tell_the_form() {
    let error = |bytes: [u8; 4]| parse(&bytes).map(|terminate| terminate.error);
    let crc = Some(MpaError::CrcMismatch.into());
    assert_eq!(error([0x20, 0x02, 0, 0]), crc, "the RFC's form");
    assert_eq!(
        error([0x02, 0x02, 0, 0]),
        crc,
        "siw's form: RDMAP has no such code"
    );
    let operation = Some(RdmapError::UnexpectedOpcode.into());
    assert_eq!(
        error([0x02, 0x06, 0, 0]),
        operation,
        "known in the RFC's form: taken so"
    );
    let unknown = TerminateError::Unknown {
        layer: 5,
        error_type: 5,
        code: 1,
    };
    assert_eq!(error([0x55, 0x01, 0, 0]), Some(unknown));
}

#[test]
fn headers_that_are_announced_but_missing_are_left_out() {
    let whole = payload(RdmapError::InvalidStag.into(), &read_segment());
    for len in 0..whole.len() {
        match parse(&whole[..len]) {
            None => assert!(len < 4, "{len} bytes"),
            Some(terminate) => {
                assert_eq!(terminate.error, RdmapError::InvalidStag.into());
                assert_eq!(terminate.segment_length.is_some(), len >= 6);
                assert_eq!(terminate.ddp_header.is_some(), len >= 24);
                assert_eq!(terminate.read_request, None);
            }
        }
    }
}

proptest! {
    #[test]
    fn no_bytes_make_the_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        prop_assert_eq!(parse(&bytes).is_some(), bytes.len() >= 4);
    }

    #[test]
    fn no_offending_bytes_make_the_writer_panic(
        control: u16,
        bytes in prop::collection::vec(any::<u8>(), 0..80),
    ) {
        let out = payload(TerminateError::from_control(control), &bytes);
        prop_assert!(parse(&out).is_some());
    }
}
