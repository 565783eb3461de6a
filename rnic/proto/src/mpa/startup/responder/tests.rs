use proptest::prelude::*;

use super::{Responder, ResponderOptions, ResponderProgress};
use crate::enhanced::Enhanced;
use crate::enhanced::{EnhancedError, ReadDepths, Rtr, RtrSet};
use crate::mpa::startup::frame::{FrameHeader, FrameKind, StartupFrame};
use crate::mpa::startup::{
    Initiator, InitiatorOptions, InitiatorProgress, Negotiated, Revision, StartupError,
};

const OPTIONS: ResponderOptions = ResponderOptions {
    crc: false,
    markers: false,
    aligned: false,
    depths: ReadDepths { ird: 16, ord: 16 },
    rtr: RtrSet::ALL,
};

fn request(ird: u16, ord: u16, peer_to_peer: Option<RtrSet>) -> FrameHeader {
    FrameHeader {
        markers: false,
        crc: false,
        aligned: false,
        rejected: false,
        revision: Revision::Two,
        enhanced: Some(Enhanced {
            depths: ReadDepths { ird, ord },
            peer_to_peer,
        }),
    }
}

fn plain(revision: Revision) -> FrameHeader {
    FrameHeader {
        revision,
        enhanced: None,
        ..request(0, 0, None)
    }
}

fn frame(header: &FrameHeader) -> StartupFrame {
    StartupFrame::new(FrameKind::Request, header, b"pd").expect("short")
}

/// A responder that has the Request.
fn asked(header: &FrameHeader) -> Responder {
    let mut responder = Responder::new();
    let frame = frame(header);
    let consumed = match responder.on_bytes(frame.bytes()) {
        Ok(ResponderProgress::Request {
            consumed,
            private_data,
            ..
        }) => {
            assert_eq!(private_data, b"pd");
            consumed
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(consumed, frame.bytes().len());
    responder
}

/// The enhanced words of the Reply, and what was agreed.
fn accept(header: &FrameHeader, options: &ResponderOptions) -> ([u8; 4], Negotiated) {
    let (reply, agreed) = asked(header).accept(options, b"").expect("acceptable");
    let bytes = reply.bytes();
    assert_eq!(&bytes[..16], b"MPA ID Rep Frame");
    (bytes[20..24].try_into().expect("four"), agreed)
}

#[test]
fn the_request_tells_what_the_initiator_asks() {
    let mut responder = Responder::new();
    let header = FrameHeader {
        crc: true,
        ..request(3, 4, Some(RtrSet::ALL))
    };
    let frame = frame(&header);
    assert_eq!(
        responder.on_bytes(frame.bytes()),
        Ok(ResponderProgress::Request {
            consumed: 26,
            revision: Revision::Two,
            crc_wanted: true,
            markers_wanted: false,
            aligned_wanted: false,
            peer: Some(ReadDepths { ird: 3, ord: 4 }),
            peer_to_peer: Some(RtrSet::ALL),
            private_data: b"pd",
        })
    );
}

/// RFC 6581 section 9.1.
#[test]
fn depths_are_the_lesser_of_both_sides() {
    let depths = |ird, ord| {
        let (words, agreed) = accept(&request(ird, ord, None), &OPTIONS);
        let said = (words[1], words[3]);
        ((agreed.ird, agreed.ord), said)
    };
    assert_eq!(depths(4, 8), ((8, 4), (8, 4)));
    assert_eq!(depths(100, 200), ((16, 16), (16, 16)));
    assert_eq!(depths(0, 0), ((0, 0), (0, 0)));
}

/// RFC 6581 section 9.1: 0x3FFF is answered by 0x3FFF and leaves the local value unchanged.
#[test]
fn depths_that_are_not_negotiated_stay_and_are_said_back() {
    let (words, agreed) = accept(&request(0x3fff, 0x3fff, None), &OPTIONS);
    assert_eq!(words, [0x3f, 0xff, 0x3f, 0xff]);
    assert_eq!((agreed.ird, agreed.ord), (16, 16));
    assert_eq!(
        agreed.peer,
        Some(ReadDepths {
            ird: 0x3fff,
            ord: 0x3fff
        })
    );
}

/// RFC 6581 section 9.2.
#[test]
fn peer_to_peer_is_answered_by_one_indication() {
    let answer = |offered, taken| {
        let options = ResponderOptions {
            rtr: taken,
            ..OPTIONS
        };
        let (words, agreed) = accept(&request(16, 16, Some(offered)), &options);
        (words, agreed.rtr.expect("peer-to-peer"))
    };
    let (write, read, send) = (
        ([0x80, 16, 0x80, 16], Rtr::Write),
        ([0x80, 16, 0x40, 16], Rtr::Read),
        ([0xc0, 16, 0, 16], Rtr::Send),
    );
    assert_eq!(answer(RtrSet::ALL, RtrSet::ALL), write);
    assert_eq!(answer(RtrSet::only(Rtr::Read), RtrSet::ALL), read);
    assert_eq!(answer(RtrSet::only(Rtr::Send), RtrSet::ALL), send);
    assert_eq!(
        answer(RtrSet::only(Rtr::Write), RtrSet::only(Rtr::Read)),
        read,
        "no match"
    );
    assert_eq!(answer(RtrSet::NONE, RtrSet::ALL), write, "none offered");
    assert_eq!(answer(RtrSet::ALL, RtrSet::NONE), write, "none taken");
}

#[test]
fn an_indication_by_read_has_room_for_a_read() {
    let (words, agreed) = accept(&request(0, 0, Some(RtrSet::only(Rtr::Read))), &OPTIONS);
    assert_eq!(words, [0x80, 1, 0x40, 0]);
    assert_eq!(agreed.ird, 1);
}

/// RFC 6581 section 10: an unenhanced Request gets an unenhanced Reply of its revision.
#[test]
fn the_reply_is_of_the_requests_kind() {
    for revision in [Revision::One, Revision::Two] {
        let (reply, agreed) = asked(&plain(revision))
            .accept(&OPTIONS, b"")
            .expect("acceptable");
        assert_eq!(reply.bytes()[16..], [0, revision.number(), 0, 0]);
        assert_eq!((agreed.ird, agreed.ord), (16, 16));
        assert_eq!((agreed.peer, agreed.rtr), (None, None));
        assert_eq!(agreed.revision, revision, "what DDP is told");
    }
}

#[test]
fn crc_is_on_when_either_side_asks() {
    for (ours, theirs) in [(false, false), (false, true), (true, false), (true, true)] {
        let header = FrameHeader {
            crc: theirs,
            ..plain(Revision::One)
        };
        let options = ResponderOptions {
            crc: ours,
            ..OPTIONS
        };
        let (reply, agreed) = asked(&header).accept(&options, b"").expect("acceptable");
        assert_eq!(agreed.crc, ours || theirs);
        assert_eq!(reply.bytes()[16] & 0x40 != 0, agreed.crc);
    }
}

/// docs/extensions.md: alignment takes both sides and CRCs, and its bits are zero otherwise.
#[test]
fn alignment_is_granted_to_who_asks_for_it_and_has_crcs() {
    for bits in 0..8 {
        let [ours, theirs, crc] = [1, 2, 4].map(|bit| bits & bit != 0);
        let header = FrameHeader {
            aligned: theirs,
            crc,
            ..plain(Revision::One)
        };
        let options = ResponderOptions {
            aligned: ours,
            ..OPTIONS
        };
        let (reply, agreed) = asked(&header).accept(&options, b"").expect("acceptable");
        assert_eq!(agreed.aligned, ours && theirs && crc);
        assert_eq!(reply.bytes()[16] & 0x0f, if agreed.aligned { 1 } else { 0 });
    }
}

/// RFC 5044 section 7.1.1: each side says what it wants to receive.
#[test]
fn markers_are_agreed_for_each_direction_by_itself() {
    for (ours, theirs) in [(false, false), (false, true), (true, false), (true, true)] {
        let header = FrameHeader {
            markers: theirs,
            ..plain(Revision::One)
        };
        let options = ResponderOptions {
            markers: ours,
            ..OPTIONS
        };
        let (reply, agreed) = asked(&header).accept(&options, b"").expect("acceptable");
        assert_eq!(agreed.markers_in.are_on(), ours);
        assert_eq!(agreed.markers_out.are_on(), theirs);
        assert_eq!(reply.bytes()[16] & 0x80 != 0, ours);
    }
}

/// siw's own reject has the flags 0x30.
#[test]
fn a_reject_of_an_enhanced_request_is_enhanced() {
    let reply = asked(&request(5, 6, None))
        .reject(b"no")
        .expect("a Request");
    assert_eq!(reply.bytes()[16..], [0x30, 2, 0, 6, 0, 6, 0, 5, b'n', b'o']);
}

#[test]
fn nothing_is_answered_before_it_is_asked() {
    let mut responder = Responder::new();
    let frame = frame(&plain(Revision::One));
    let (head, tail) = frame.bytes().split_at(20);
    assert_eq!(responder.on_bytes(head), Ok(ResponderProgress::NeedMore));
    assert_eq!(
        responder.accept(&OPTIONS, b"").err(),
        Some(StartupError::NoRequest)
    );
    assert_eq!(responder.reject(b"").err(), Some(StartupError::NoRequest));
    assert!(responder.on_bytes(tail).is_ok());
    assert!(responder.accept(&OPTIONS, b"").is_ok());
}

#[test]
fn bytes_behind_the_request_are_an_error() {
    let error = |extra| {
        Err(StartupError::BytesBehindFrame {
            kind: FrameKind::Request,
            extra,
        })
    };
    let bytes = [frame(&plain(Revision::One)).bytes(), &[1]].concat();
    assert_eq!(Responder::new().on_bytes(&bytes), error(1));
    let mut responder = asked(&plain(Revision::One));
    assert_eq!(responder.on_bytes(&[]), Ok(ResponderProgress::NeedMore));
    assert_eq!(responder.on_bytes(&[1, 2]), error(2));
}

#[test]
fn options_that_no_reply_can_carry_are_refused() {
    let responder = asked(&request(1, 1, None));
    let depths = ReadDepths { ird: 257, ord: 1 };
    let refused = responder
        .accept(&ResponderOptions { depths, ..OPTIONS }, b"")
        .err();
    assert_eq!(
        refused,
        Some(StartupError::Enhanced(EnhancedError::ReadDepth {
            asked: 257
        }))
    );
    let too_long = Some(StartupError::PrivateDataTooLong {
        len: 509,
        limit: 508,
    });
    assert_eq!(responder.accept(&OPTIONS, &[0; 509]).err(), too_long);
    assert_eq!(responder.reject(&[0; 509]).err(), too_long);
}

fn any_rtr() -> impl Strategy<Value = RtrSet> {
    (any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(write, read, send)| RtrSet {
        write,
        read,
        send,
    })
}

fn any_depths() -> impl Strategy<Value = ReadDepths> {
    (0u16..=256, 0u16..=256).prop_map(|(ird, ord)| ReadDepths { ird, ord })
}

proptest! {
    /// Both sides come to the same: ORD is at most the other's IRD, and no one exceeds its own.
    #[test]
    fn two_of_ours_agree(
        two: bool,
        crc: (bool, bool),
        markers: (bool, bool),
        aligned: (bool, bool),
        depths in (any_depths(), any_depths()),
        offered in any_rtr(),
        taken in any_rtr(),
    ) {
        let revision = if two { Revision::Two } else { Revision::One };
        let peer_to_peer = if two { offered } else { RtrSet::NONE };
        let options = InitiatorOptions {
            revision,
            crc: crc.0,
            markers: markers.0,
            aligned: aligned.0,
            depths: depths.0,
            peer_to_peer,
        };
        let mut initiator = Initiator::new(options, b"hello").expect("good options");
        let mut responder = Responder::new();
        responder.on_bytes(initiator.request().bytes()).expect("a Request");
        let options = ResponderOptions {
            crc: crc.1,
            markers: markers.1,
            aligned: aligned.1,
            depths: depths.1,
            rtr: taken,
        };
        let (reply, theirs) = responder.accept(&options, b"welcome").expect("acceptable");
        match initiator.on_bytes(reply.bytes()) {
            Ok(InitiatorProgress::Accepted { negotiated: ours, private_data, .. }) => {
                prop_assert_eq!(private_data, b"welcome");
                prop_assert_eq!((ours.crc, ours.rtr), (theirs.crc, theirs.rtr));
                prop_assert_eq!(ours.crc, crc.0 || crc.1);
                prop_assert_eq!(ours.markers_in, theirs.markers_out);
                prop_assert_eq!(ours.markers_out, theirs.markers_in);
                prop_assert_eq!(ours.aligned, theirs.aligned);
                prop_assert_eq!(ours.aligned, aligned.0 && aligned.1 && ours.crc);
                if two {
                    prop_assert!(ours.ord <= theirs.ird && theirs.ord <= ours.ird);
                }
            }
            Err(StartupError::Enhanced(EnhancedError::NoMatchingRtr)) => {
                prop_assert!(offered.and(taken).is_empty() && !peer_to_peer.is_empty());
            }
            other => prop_assert!(false, "{other:?}"),
        }
    }
}
