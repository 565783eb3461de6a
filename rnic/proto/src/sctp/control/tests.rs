use super::*;
use crate::enhanced::{ReadDepths, RtrSet};
use crate::sctp::{PPID_CONTROL, PPID_SEGMENT, UserData};

const ENHANCED: Enhanced = Enhanced {
    depths: ReadDepths {
        ird: 5,
        ord: 0x3fff,
    },
    peer_to_peer: Some(RtrSet::ALL),
};

fn enhanced(function: Function) -> Option<Enhanced> {
    function.has_enhanced_data().then_some(ENHANCED)
}

/// RFC5043-5.2.3-1 to 5.2.3-4, RFC6581-7.
#[test]
fn every_message_is_read_as_it_was_written_with_all_the_private_data_that_it_takes() {
    for function in Function::ALL {
        let most = match function {
            Function::Terminate => 0,
            Function::EnhancedInitiate | Function::EnhancedAccept => 508,
            _ => 512,
        };
        for len in [0, 1, most].into_iter().filter(|len| *len <= most) {
            let data: Vec<u8> = (0..len).map(|byte| byte as u8).collect();
            let chunk = ControlChunk::new(DdpSsn(0x1234), function, enhanced(function), &data);
            let chunk = chunk.unwrap();
            let (ssn, read) = UserData::parse(PPID_CONTROL, chunk.bytes()).unwrap();
            assert_eq!(ssn, DdpSsn(0x1234));
            let written = Control {
                function,
                enhanced: enhanced(function),
                private_data: &data,
            };
            assert_eq!(read, UserData::Control(written));
        }
        if function != Function::Terminate {
            let data = vec![0; most + 1];
            let refused = ControlChunk::new(DdpSsn(0), function, enhanced(function), &data);
            let (len, limit) = (most + 1, most);
            let error = SessionError::PrivateDataTooLong { len, limit };
            assert_eq!(refused.err(), Some(error));
        }
    }
}

/// The bytes of RFC 5043 section 5.2.3 and RFC 6581 section 9.
#[test]
fn bytes_are_those_of_the_rfcs() {
    let plain = ControlChunk::new(DdpSsn(0), Function::Initiate, None, b"ab").unwrap();
    assert_eq!(plain.bytes(), [0, 0, 0, 1, b'a', b'b']);
    let accept = ControlChunk::new(DdpSsn(0), Function::EnhancedAccept, Some(ENHANCED), b"c");
    assert_eq!(
        accept.unwrap().bytes(),
        [0, 0, 0, 6, 0xc0, 5, 0xff, 0xff, b'c']
    );
    assert_eq!(
        ControlChunk::terminate(DdpSsn(0xfffe)).bytes(),
        [0xff, 0xfe, 0, 4]
    );
}

#[test]
fn what_no_rfc_knows_is_refused_by_name() {
    let parse = |ppid, bytes: &[u8]| UserData::parse(ppid, bytes).unwrap_err();
    assert_eq!(parse(PPID_SEGMENT, &[1]), ChunkError::Short { len: 1 });
    assert_eq!(
        parse(PPID_CONTROL, &[0, 0, 0]),
        ChunkError::Short { len: 3 }
    );
    // The draft's, and a byte order that is not the network's.
    for found in [0, 1, 2, 15, 18, PPID_SEGMENT.swap_bytes()] {
        assert_eq!(parse(found, &[0; 8]), ChunkError::Ppid { found });
    }
    for found in [0, 8, 0x100, 0xffff_u16] {
        let [a, b] = found.to_be_bytes();
        assert_eq!(
            parse(PPID_CONTROL, &[0, 0, a, b]),
            ChunkError::Function { found }
        );
    }
    let long = [&[0, 0, 0, 2][..], &[0; 513]].concat();
    let (function, len) = (Function::Accept, 513);
    assert_eq!(
        parse(PPID_CONTROL, &long),
        ChunkError::PrivateData { function, len }
    );
    let terminate = parse(PPID_CONTROL, &[0, 9, 0, 4, 1]);
    assert_eq!(terminate, ChunkError::TerminateWithData { len: 1 });
    let (function, len) = (Function::EnhancedInitiate, 3);
    let short = parse(PPID_CONTROL, &[0, 0, 0, 5, 1, 2, 3]);
    assert_eq!(short, ChunkError::EnhancedDataMissing { function, len });
}

/// An Enhanced Reject has the application's bytes only, however many.
#[test]
fn a_segment_and_a_rejection_have_no_enhanced_data() {
    let (_, read) = UserData::parse(PPID_CONTROL, &[0, 0, 0, 7, 1, 2, 3, 4, 5]).unwrap();
    let UserData::Control(control) = read else {
        panic!("{read:?}");
    };
    assert_eq!(control.enhanced, None);
    assert_eq!(control.private_data, [1, 2, 3, 4, 5]);
    let segment = UserData::parse(PPID_SEGMENT, &[0xff, 0xff, 7, 8]).unwrap();
    assert_eq!(segment, (DdpSsn(0xffff), UserData::Segment(&[7, 8])));
}
