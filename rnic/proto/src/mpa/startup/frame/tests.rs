use proptest::prelude::*;

use super::{
    Collector, Enhanced, FRAME_LEN_MAX, FrameHeader, FrameKind, HEADER_LEN, PRIVATE_DATA_MAX,
    Revision, StartupFrame,
};
use crate::enhanced::{ReadDepths, RtrSet};
use crate::mpa::startup::StartupError;

const PLAIN: FrameHeader = FrameHeader {
    markers: false,
    crc: false,
    aligned: false,
    rejected: false,
    revision: Revision::One,
    enhanced: None,
};

fn request(bytes: &[u8]) -> Result<Option<FrameHeader>, StartupError> {
    Ok(Collector::new(FrameKind::Request)
        .take(bytes)?
        .map(|frame| frame.header))
}

/// A Request with these flags, revision and PD_Length, and that many bytes of 7.
fn raw(flags: u8, revision: u8, pd_length: u16) -> Vec<u8> {
    let mut bytes = b"MPA ID Req Frame".to_vec();
    bytes.extend([flags, revision]);
    bytes.extend(pd_length.to_be_bytes());
    bytes.resize(bytes.len() + usize::from(pd_length), 7);
    bytes
}

/// RFC 5044 Figure 8.
#[test]
fn a_revision_1_frame_is_key_flags_revision_and_length() {
    let header = FrameHeader {
        markers: true,
        crc: true,
        rejected: true,
        ..PLAIN
    };
    let frame = StartupFrame::new(FrameKind::Reply, &header, b"hi").expect("short");
    assert_eq!(frame.bytes(), b"MPA ID Rep Frame\xe0\x01\x00\x02hi");
}

/// What Linux siw sends: S only, IRD and ORD ahead of the private data, PD_Length counts both.
#[test]
fn an_enhanced_frame_has_the_words_ahead_of_private_data() {
    let depths = ReadDepths {
        ird: 0x0102,
        ord: 0x0304,
    };
    let enhanced = Some(Enhanced {
        depths,
        peer_to_peer: None,
    });
    let header = FrameHeader {
        revision: Revision::Two,
        enhanced,
        ..PLAIN
    };
    let frame = StartupFrame::new(FrameKind::Request, &header, b"hi").expect("short");
    assert_eq!(
        frame.bytes(),
        b"MPA ID Req Frame\x10\x02\x00\x06\x01\x02\x03\x04hi"
    );
}

/// RFC 6581 section 9: A and B stand beside IRD, C and D beside ORD.
#[test]
fn each_control_flag_has_its_bit() {
    let bytes = |rtr| {
        Enhanced {
            depths: ReadDepths::default(),
            peer_to_peer: rtr,
        }
        .to_bytes()
    };
    assert_eq!(bytes(Some(RtrSet::NONE)), [0x80, 0, 0, 0]);
    assert_eq!(
        bytes(Some(RtrSet {
            send: true,
            ..RtrSet::NONE
        })),
        [0xc0, 0, 0, 0]
    );
    assert_eq!(
        bytes(Some(RtrSet {
            write: true,
            ..RtrSet::NONE
        })),
        [0x80, 0, 0x80, 0]
    );
    assert_eq!(
        bytes(Some(RtrSet {
            read: true,
            ..RtrSet::NONE
        })),
        [0x80, 0, 0x40, 0]
    );
    assert_eq!(bytes(None), [0; 4]);
}

#[test]
fn without_flag_a_the_others_are_ignored() {
    let enhanced = Enhanced::from_bytes([0x40, 1, 0xc0, 2]);
    assert_eq!(enhanced.peer_to_peer, None);
    assert_eq!(enhanced.depths, ReadDepths { ird: 1, ord: 2 });
}

#[test]
fn private_data_over_the_limit_is_refused_by_name() {
    let long = [0; PRIVATE_DATA_MAX + 1];
    let refused =
        |header, len: usize| StartupFrame::new(FrameKind::Request, header, &long[..len]).err();
    let enhanced = FrameHeader {
        revision: Revision::Two,
        enhanced: Some(Enhanced::default()),
        ..PLAIN
    };
    assert_eq!(refused(&PLAIN, 512), None);
    let error = StartupError::PrivateDataTooLong {
        len: 513,
        limit: 512,
    };
    assert_eq!(refused(&PLAIN, 513), Some(error));
    assert_eq!(refused(&enhanced, 508), None);
    let error = StartupError::PrivateDataTooLong {
        len: 509,
        limit: 508,
    };
    assert_eq!(refused(&enhanced, 509), Some(error));
}

#[test]
fn a_peer_that_is_not_mpa_is_known_by_its_first_wrong_byte() {
    let wanted = FrameKind::Request;
    assert_eq!(request(b"G"), Err(StartupError::NotMpa { wanted }));
    assert_eq!(request(b"MPA ID ReX"), Err(StartupError::NotMpa { wanted }));
    assert_eq!(
        request(b"MPA ID Rep Frame"),
        Err(StartupError::SameRole { wanted })
    );
    assert_eq!(request(b"MPA ID Re"), Ok(None));
}

#[test]
fn revisions_other_than_1_and_2_are_refused() {
    assert!(request(&raw(0, 1, 0)).is_ok_and(|header| header == Some(PLAIN)));
    for found in [0, 3, 255] {
        let refused = Err(StartupError::UnsupportedRevision { found });
        assert_eq!(request(&raw(0, found, 0)), refused);
    }
}

#[test]
fn pd_length_is_limited_before_its_bytes_come() {
    assert!(request(&raw(0, 1, 512)).is_ok_and(|header| header.is_some()));
    let bytes = raw(0, 1, 513);
    assert_eq!(
        request(&bytes[..HEADER_LEN]),
        Err(StartupError::PdLength { found: 513 })
    );
}

#[test]
fn the_s_flag_needs_its_four_bytes() {
    for found in 0..4 {
        let refused = Err(StartupError::EnhancedDataMissing { found });
        assert_eq!(request(&raw(0x10, 2, found)), refused);
    }
    assert!(request(&raw(0x10, 2, 4)).is_ok_and(|h| h.is_some_and(|h| h.enhanced.is_some())));
}

/// RFC 5044 section 7.1.1: Res is not checked on reception, but for the bits of our extension.
#[test]
fn reserved_bits_mean_nothing() {
    assert_eq!(request(&raw(0x1d, 1, 0)), Ok(Some(PLAIN)));
    let two = FrameHeader {
        revision: Revision::Two,
        ..PLAIN
    };
    assert_eq!(request(&raw(0x0d, 2, 0)), Ok(Some(two)));
}

fn any_header() -> impl Strategy<Value = FrameHeader> {
    let rtr = (any::<bool>(), any::<bool>(), any::<bool>())
        .prop_map(|(write, read, send)| RtrSet { write, read, send });
    let enhanced =
        (0u16..0x4000, 0u16..0x4000, prop::option::of(rtr)).prop_map(|(ird, ord, peer_to_peer)| {
            Enhanced {
                depths: ReadDepths { ird, ord },
                peer_to_peer,
            }
        });
    let flags = any::<[bool; 4]>();
    (flags, prop::option::of(enhanced), any::<bool>()).prop_map(|(flags, enhanced, two)| {
        let [markers, crc, aligned, rejected] = flags;
        let two = two || enhanced.is_some();
        let revision = if two { Revision::Two } else { Revision::One };
        FrameHeader {
            markers,
            crc,
            aligned,
            rejected,
            revision,
            enhanced,
        }
    })
}

proptest! {
    #[test]
    fn frames_survive_any_cut(
        header in any_header(),
        data in prop::collection::vec(any::<u8>(), 0..=508),
        cut in any::<prop::sample::Index>(),
        extra in 0usize..4,
    ) {
        let frame = StartupFrame::new(FrameKind::Reply, &header, &data).expect("short enough");
        prop_assert!(frame.bytes().len() <= FRAME_LEN_MAX);
        let mut bytes = frame.bytes().to_vec();
        let (cut, len) = (cut.index(bytes.len()), bytes.len());
        bytes.resize(len + extra, 0);
        let mut collector = Collector::new(FrameKind::Reply);
        prop_assert!(collector.take(&bytes[..cut]).expect("valid").is_none());
        let found = collector.take(&bytes[cut..]).expect("valid").expect("whole");
        prop_assert_eq!(found.header, header);
        prop_assert_eq!(found.consumed, len - cut);
        prop_assert_eq!(collector.private_data(&found), &data[..]);
    }

    #[test]
    fn no_bytes_make_the_collector_panic(
        head in prop::collection::vec(any::<u8>(), 0..40),
        pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..600), 0..3),
        keyed: bool,
    ) {
        let mut collector = Collector::new(FrameKind::Request);
        let key = if keyed { &b"MPA ID Req Frame"[..] } else { b"" };
        let _ = collector.take(key);
        let _ = collector.take(&head);
        for piece in &pieces {
            if let Ok(Some(frame)) = collector.take(piece) {
                prop_assert!(collector.private_data(&frame).len() <= PRIVATE_DATA_MAX);
            }
        }
    }
}
