use super::{Initiator, InitiatorOptions, InitiatorProgress};
use crate::enhanced::Enhanced;
use crate::enhanced::{EnhancedError, ReadDepths, Rtr, RtrSet};
use crate::mpa::MpaError;
use crate::mpa::startup::frame::{FrameHeader, FrameKind, StartupFrame};
use crate::mpa::startup::{Negotiated, Revision, StartupError};

const TWO: InitiatorOptions = InitiatorOptions {
    revision: Revision::Two,
    crc: false,
    markers: false,
    aligned: false,
    depths: ReadDepths { ird: 16, ord: 8 },
    peer_to_peer: RtrSet::NONE,
};

/// A Reply of a responder that accepts with these depths.
const REPLY: FrameHeader = FrameHeader {
    markers: false,
    crc: false,
    aligned: false,
    rejected: false,
    revision: Revision::Two,
    enhanced: Some(Enhanced {
        depths: ReadDepths { ird: 8, ord: 16 },
        peer_to_peer: None,
    }),
};

fn with_depths(ird: u16, ord: u16, peer_to_peer: Option<RtrSet>) -> FrameHeader {
    FrameHeader {
        enhanced: Some(Enhanced {
            depths: ReadDepths { ird, ord },
            peer_to_peer,
        }),
        ..REPLY
    }
}

fn answer(options: InitiatorOptions, reply: &FrameHeader) -> Result<Negotiated, StartupError> {
    let mut initiator = Initiator::new(options, b"").expect("good options");
    let frame = StartupFrame::new(FrameKind::Reply, reply, b"pd").expect("short");
    match initiator.on_bytes(frame.bytes())? {
        InitiatorProgress::Accepted {
            consumed,
            negotiated,
            private_data,
        } => {
            assert_eq!((consumed, private_data), (frame.bytes().len(), &b"pd"[..]));
            Ok(negotiated)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_request_of_revision_2_is_enhanced() {
    let initiator = Initiator::new(InitiatorOptions { crc: true, ..TWO }, b"x").expect("good");
    let expected = b"MPA ID Req Frame\x50\x02\x00\x05\x00\x10\x00\x08x";
    assert_eq!(initiator.request().bytes(), expected);
}

/// RFC 6581 section 9.2: A in the word of the IRD, and the indications that it can send beside it.
#[test]
fn the_request_of_the_peer_to_peer_model_has_flag_a() {
    let words = |peer_to_peer| {
        let options = InitiatorOptions {
            peer_to_peer,
            ..TWO
        };
        let initiator = Initiator::new(options, b"").expect("good");
        initiator.request().bytes()[20..].to_vec()
    };
    assert_eq!(words(RtrSet::NONE), [0x00, 16, 0x00, 8]);
    assert_eq!(words(RtrSet::only(Rtr::Write)), [0x80, 16, 0x80, 8]);
    assert_eq!(words(RtrSet::only(Rtr::Read)), [0x80, 16, 0x40, 8]);
    assert_eq!(words(RtrSet::only(Rtr::Send)), [0xc0, 16, 0x00, 8]);
}

#[test]
fn the_request_of_revision_1_is_not() {
    let options = InitiatorOptions {
        revision: Revision::One,
        ..TWO
    };
    let initiator = Initiator::new(options, b"x").expect("good");
    assert_eq!(
        initiator.request().bytes(),
        b"MPA ID Req Frame\x00\x01\x00\x01x"
    );
}

#[test]
fn options_that_no_request_can_carry_are_refused() {
    let refused = |options, data: &[u8]| Initiator::new(options, data).err();
    let depths = ReadDepths { ird: 1, ord: 257 };
    let asked = StartupError::Enhanced(EnhancedError::ReadDepth { asked: 257 });
    assert_eq!(
        refused(InitiatorOptions { depths, ..TWO }, b""),
        Some(asked)
    );
    let one = InitiatorOptions {
        revision: Revision::One,
        ..TWO
    };
    let peer_to_peer = InitiatorOptions {
        peer_to_peer: RtrSet::ALL,
        ..one
    };
    assert_eq!(
        refused(peer_to_peer, b""),
        Some(StartupError::RtrNeedsRevision2)
    );
    let too_long = StartupError::PrivateDataTooLong {
        len: 509,
        limit: 508,
    };
    assert_eq!(refused(TWO, &[0; 509]), Some(too_long));
    assert_eq!(refused(one, &[0; 509]), None);
}

/// RFC 5044 section 7.1.1: CRCs are used when either bit is 1.
#[test]
fn crc_is_on_when_either_side_asks() {
    for (ours, theirs) in [(false, false), (false, true), (true, false), (true, true)] {
        let options = InitiatorOptions { crc: ours, ..TWO };
        let reply = FrameHeader {
            crc: theirs,
            ..REPLY
        };
        assert_eq!(
            answer(options, &reply).map(|agreed| agreed.crc),
            Ok(ours || theirs)
        );
    }
}

/// docs/extensions.md: the asking bit that comes back grants nothing, with or without the other.
#[test]
fn a_reply_made_from_the_request_does_not_grant_alignment() {
    let options = InitiatorOptions {
        crc: true,
        aligned: true,
        ..TWO
    };
    let initiator = Initiator::new(options, b"").expect("good options");
    assert_eq!(initiator.request().bytes()[16] & 0x0f, 2);
    for reserved in 0..16 {
        let mut initiator = Initiator::new(options, b"").expect("good options");
        let frame = StartupFrame::new(FrameKind::Reply, &REPLY, b"").expect("short");
        let mut bytes = frame.bytes().to_vec();
        bytes[16] = bytes[16] & 0xf0 | reserved;
        let Ok(InitiatorProgress::Accepted { negotiated, .. }) = initiator.on_bytes(&bytes) else {
            panic!("reserved bits {reserved:#x}");
        };
        assert_eq!(negotiated.aligned, reserved & 3 == 1, "{reserved:#x}");
    }
}

/// RFC 6581 section 9.1.
#[test]
fn depths_follow_the_responder() {
    let depths =
        |ird, ord| answer(TWO, &with_depths(ird, ord, None)).map(|agreed| (agreed.ird, agreed.ord));
    assert_eq!(depths(8, 16), Ok((16, 8)));
    assert_eq!(depths(4, 2), Ok((2, 4)), "both lowered");
    assert_eq!(depths(100, 16), Ok((16, 8)), "own ORD is not raised");
    assert_eq!(
        depths(8, 32),
        Ok((32, 8)),
        "IRD is at least the responder's ORD"
    );
    assert_eq!(depths(0x3fff, 0x3fff), Ok((16, 8)), "not negotiated");
    assert_eq!(
        depths(8, 257),
        Err(StartupError::Enhanced(EnhancedError::InsufficientIrd {
            asked: 257
        }))
    );
}

/// RFC 6581 section 9.1: the Terminate has layer 2, type 0, code 6; section 9.2: code 7.
#[test]
fn errors_after_an_accept_name_their_terminate() {
    let error = answer(TWO, &with_depths(8, 257, None)).expect_err("too deep");
    assert_eq!(error.wants_terminate(), Some(MpaError::InsufficientIrd));
    let options = InitiatorOptions {
        peer_to_peer: RtrSet::only(Rtr::Write),
        ..TWO
    };
    let reply = with_depths(8, 16, Some(RtrSet::only(Rtr::Read)));
    let error = answer(options, &reply).expect_err("no match");
    assert_eq!(error, StartupError::Enhanced(EnhancedError::NoMatchingRtr));
    assert_eq!(error.wants_terminate(), Some(MpaError::NoMatchingRtr));
}

#[test]
fn the_indication_is_one_that_both_sides_know() {
    let options = InitiatorOptions {
        peer_to_peer: RtrSet::ALL,
        ..TWO
    };
    let rtr = |theirs| answer(options, &with_depths(8, 16, theirs)).map(|agreed| agreed.rtr);
    assert_eq!(rtr(Some(RtrSet::ALL)), Ok(Some(Rtr::Write)));
    assert_eq!(rtr(Some(RtrSet::only(Rtr::Read))), Ok(Some(Rtr::Read)));
    assert_eq!(rtr(Some(RtrSet::only(Rtr::Send))), Ok(Some(Rtr::Send)));
    assert_eq!(
        rtr(None),
        Err(StartupError::Enhanced(EnhancedError::NoMatchingRtr))
    );
}

#[test]
fn flags_of_a_responder_that_was_not_asked_are_ignored() {
    let agreed = answer(TWO, &with_depths(8, 16, Some(RtrSet::ALL))).expect("accepted");
    assert_eq!(agreed.rtr, None);
}

#[test]
fn an_indication_by_read_has_room_for_a_read() {
    let depths = ReadDepths { ird: 1, ord: 0 };
    let options = InitiatorOptions {
        peer_to_peer: RtrSet::only(Rtr::Read),
        depths,
        ..TWO
    };
    let reply = with_depths(1, 1, Some(RtrSet::only(Rtr::Read)));
    assert_eq!(answer(options, &reply).map(|agreed| agreed.ord), Ok(1));
}

/// RFC 6581 section 10.
#[test]
fn the_reply_is_enhanced_as_the_request_was() {
    let plain = FrameHeader {
        enhanced: None,
        ..REPLY
    };
    let mismatch = |asked| Err(StartupError::EnhancedMismatch { asked });
    assert_eq!(answer(TWO, &plain), mismatch(true));
    let old = FrameHeader {
        revision: Revision::One,
        ..plain
    };
    assert_eq!(answer(TWO, &old), mismatch(true));
    let one = InitiatorOptions {
        revision: Revision::One,
        ..TWO
    };
    assert_eq!(answer(one, &REPLY), mismatch(false));
    let agreed = answer(one, &old).expect("unenhanced");
    assert_eq!((agreed.ird, agreed.ord, agreed.peer), (16, 8, None));
    assert_eq!(agreed.revision, Revision::One, "what DDP is told");
    let agreed = answer(TWO, &REPLY).expect("enhanced");
    assert_eq!(agreed.revision, Revision::Two);
}

#[test]
fn a_rejection_comes_with_private_data() {
    let mut initiator = Initiator::new(TWO, b"").expect("good");
    // Also when the responder would want Markers.
    let reply = FrameHeader {
        rejected: true,
        markers: true,
        ..REPLY
    };
    let frame = StartupFrame::new(FrameKind::Reply, &reply, b"no").expect("short");
    let peer = Some(ReadDepths { ird: 8, ord: 16 });
    assert_eq!(
        initiator.on_bytes(frame.bytes()),
        Ok(InitiatorProgress::Rejected {
            consumed: 26,
            peer,
            private_data: b"no"
        })
    );
}

/// RFC 5044 section 7.1.1: each side says what it wants to receive.
#[test]
fn markers_are_agreed_for_each_direction_by_itself() {
    for (ours, theirs) in [(false, false), (false, true), (true, false), (true, true)] {
        let options = InitiatorOptions {
            markers: ours,
            ..TWO
        };
        let initiator = Initiator::new(options, b"").expect("good");
        assert_eq!(initiator.request().bytes()[16] & 0x80 != 0, ours);
        let reply = FrameHeader {
            markers: theirs,
            ..REPLY
        };
        let agreed = answer(options, &reply).expect("acceptable");
        assert_eq!(agreed.markers_in.are_on(), ours);
        assert_eq!(agreed.markers_out.are_on(), theirs);
    }
}

/// RFC 5044 section 7.1.2 rule 4: the responder sends no FPDU before it has received one.
#[test]
fn bytes_behind_the_reply_are_an_error() {
    let mut initiator = Initiator::new(TWO, b"").expect("good");
    let frame = StartupFrame::new(FrameKind::Reply, &REPLY, b"").expect("short");
    let (head, tail) = frame.bytes().split_at(10);
    assert_eq!(initiator.on_bytes(head), Ok(InitiatorProgress::NeedMore));
    let bytes = [tail, &[0, 0, 0]].concat();
    let error = StartupError::BytesBehindFrame {
        kind: FrameKind::Reply,
        extra: 3,
    };
    assert_eq!(initiator.on_bytes(&bytes), Err(error));
}

#[test]
fn two_initiators_find_out() {
    let mut initiator = Initiator::new(TWO, b"").expect("good");
    let other = Initiator::new(TWO, b"").expect("good");
    let error = StartupError::SameRole {
        wanted: FrameKind::Reply,
    };
    assert_eq!(initiator.on_bytes(other.request().bytes()), Err(error));
}
