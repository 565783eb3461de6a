use super::*;
use crate::enhanced::EnhancedError;
use crate::mpa::MpaError;
use crate::sctp::{PPID_CONTROL, UserData};

const DEPTHS: ReadDepths = ReadDepths { ird: 4, ord: 8 };

fn options(enhanced: bool) -> SessionOptions {
    SessionOptions {
        enhanced,
        depths: DEPTHS,
        peer_to_peer: RtrSet::NONE,
    }
}

/// Has one side take what the other sent.
fn give<'a>(to: &mut Session, chunk: &'a ControlChunk) -> Result<Told<'a>, SessionError> {
    match UserData::parse(PPID_CONTROL, chunk.bytes()).unwrap() {
        (_, UserData::Control(control)) => to.on_control(&control),
        other => panic!("{other:?}"),
    }
}

fn ssn(chunk: &ControlChunk) -> u16 {
    UserData::parse(PPID_CONTROL, chunk.bytes()).unwrap().0.0
}

/// Two sides of a session that was accepted.
fn open(enhanced: bool) -> (Session, Session) {
    let (mut active, initiate) = Session::initiate(&options(enhanced), b"hello").unwrap();
    let mut passive = Session::passive();
    let told = give(&mut passive, &initiate).unwrap();
    let peer = enhanced.then_some(DEPTHS);
    let private_data = b"hello";
    assert_eq!(told, Told::Initiated { peer, private_data });
    let own = ReadDepths { ird: 16, ord: 16 };
    let (accept, theirs) = passive.accept(own, RtrSet::ALL, b"welcome").unwrap();
    let told = give(&mut active, &accept).unwrap();
    let Told::Accepted {
        negotiated: ours,
        private_data: b"welcome",
    } = told
    else {
        panic!("{told:?}");
    };
    match enhanced {
        // RFC6581-9.1: each side's ORD is at most the other's IRD.
        true => {
            assert_eq!((ours.ird, ours.ord), (4, 8));
            assert_eq!((theirs.ird, theirs.ord), (8, 4));
            assert_eq!(ours.peer, Some(ReadDepths { ird: 8, ord: 4 }));
            assert_eq!(theirs.peer, Some(DEPTHS));
        }
        false => {
            assert_eq!((ours.ird, ours.ord), (4, 8));
            assert_eq!((theirs.ird, theirs.ord), (16, 16));
            assert_eq!((ours.peer, theirs.peer), (None, None));
        }
    }
    assert_eq!((ours.rtr, theirs.rtr), (None, None));
    (active, passive)
}

/// RFC5043-6.2-1, 6.2-2, RFC5043-6-1: numbers without gaps, from 0 on, control messages included.
#[test]
fn a_session_that_is_accepted_has_segments_both_ways_until_each_side_ends_it() {
    for enhanced in [false, true] {
        let (mut active, mut passive) = open(enhanced);
        for number in 1..=3 {
            for side in [&mut active, &mut passive] {
                assert_eq!(side.number_segment(), Some(DdpSsn(number)));
                side.on_segment().unwrap();
            }
        }
        passive.acknowledged(1);
        let last = passive.terminate().unwrap();
        assert_eq!(ssn(&last), 4);
        assert_eq!(passive.number_segment(), None);
        assert_eq!(give(&mut active, &last), Ok(Told::Terminated));
        // The other direction goes on.
        assert_eq!(active.number_segment(), Some(DdpSsn(4)));
        passive.on_segment().unwrap();
        assert!(!active.is_over() && !passive.is_over());
        let last = active.terminate().unwrap();
        assert_eq!(give(&mut passive, &last), Ok(Told::Terminated));
        assert!(active.terminate().is_none());
        for side in [&mut active, &mut passive] {
            assert!(side.is_over() && !side.is_gone());
            // RFC5043-6.6-4.
            side.acknowledged(side.in_flight() - 1);
            assert!(!side.is_gone());
            side.acknowledged(u64::MAX / 2);
            assert!(side.is_gone());
        }
    }
}

/// RFC5043-6.3: what the application says goes along, and no Terminate follows.
#[test]
fn a_session_that_is_rejected_is_over() {
    for enhanced in [false, true] {
        let (mut active, initiate) = Session::initiate(&options(enhanced), b"").unwrap();
        let mut passive = Session::passive();
        give(&mut passive, &initiate).unwrap();
        let reject = passive.reject(b"not now").unwrap();
        let code = if enhanced { 7 } else { 3 };
        assert_eq!(reject.bytes()[..4], [0, 0, 0, code], "RFC6581-7-1");
        let private_data = b"not now";
        assert_eq!(
            give(&mut active, &reject),
            Ok(Told::Rejected { private_data })
        );
        for side in [&mut active, &mut passive] {
            assert!(side.is_over());
            assert!(side.terminate().is_none());
            assert_eq!(side.number_segment(), None);
        }
    }
}

/// RFC5043-5.2.3-8, 6.4-4, 6.3-3: not for the application to decide on.
#[test]
fn an_initiate_that_is_refused_is_answered_by_a_terminate() {
    let (mut active, initiate) = Session::initiate(&options(false), b"").unwrap();
    let mut passive = Session::passive();
    give(&mut passive, &initiate).unwrap();
    let terminate = passive.terminate().unwrap();
    assert_eq!(ssn(&terminate), 0);
    assert_eq!(give(&mut active, &terminate), Ok(Told::Terminated));
    assert!(active.is_over() && passive.is_over());
    assert!(active.terminate().is_none());
}

/// RFC5043-6.6-1 to 6.6-3: it must not overtake the Initiate. Segments wait for the Accept.
#[test]
fn a_terminate_waits_until_the_initiate_is_acknowledged_or_answered() {
    let (mut active, _) = Session::initiate(&options(false), b"").unwrap();
    assert!(active.terminate().is_none());
    assert_eq!(active.number_segment(), None);
    active.acknowledged(1);
    assert_eq!(active.number_segment(), None);
    let terminate = active.terminate().unwrap();
    assert_eq!(ssn(&terminate), 1);
    // What the peer says to that still comes.
    assert!(!active.is_over());
    let mut passive = Session::passive();
    let (_, initiate) = Session::initiate(&options(false), b"").unwrap();
    give(&mut passive, &initiate).unwrap();
    assert_eq!(give(&mut passive, &terminate), Ok(Told::Terminated));
    assert_eq!(
        passive.accept(DEPTHS, RtrSet::ALL, b"").err(),
        Some(SessionError::NoInitiate)
    );
    let answer = passive.terminate().unwrap();
    assert_eq!(give(&mut active, &answer), Ok(Told::Terminated));
    assert!(active.is_over() && passive.is_over());
}

/// The answer may have been under way already.
#[test]
fn an_accept_that_comes_after_our_terminate_opens_nothing_for_us() {
    let (mut active, initiate) = Session::initiate(&options(false), b"").unwrap();
    let mut passive = Session::passive();
    give(&mut passive, &initiate).unwrap();
    let (accept, _) = passive.accept(DEPTHS, RtrSet::ALL, b"").unwrap();
    active.acknowledged(1);
    let terminate = active.terminate().unwrap();
    assert!(matches!(
        give(&mut active, &accept),
        Ok(Told::Accepted { .. })
    ));
    assert_eq!(active.number_segment(), None);
    active.on_segment().unwrap();
    assert_eq!(give(&mut passive, &terminate), Ok(Told::Terminated));
    passive.acknowledged(1);
    let last = passive.terminate().unwrap();
    assert_eq!(give(&mut active, &last), Ok(Told::Terminated));
    assert!(active.is_over() && passive.is_over());
}

/// RFC5043-6.6-1: nothing that an active side sends says that it has the Accept.
#[test]
fn a_terminate_waits_until_the_accept_is_acknowledged() {
    let (mut active, mut passive) = open(false);
    assert!(passive.terminate().is_none());
    passive.on_segment().unwrap();
    assert!(passive.terminate().is_none());
    let last = active.terminate().unwrap();
    give(&mut passive, &last).unwrap();
    assert!(passive.terminate().is_none());
    passive.acknowledged(1);
    let last = passive.terminate().unwrap();
    assert_eq!(give(&mut active, &last), Ok(Told::Terminated));
    assert!(active.is_over() && passive.is_over());
}

/// An active side of another implementation may send them once its Initiate is acknowledged (RFC5043-6.6-3).
#[test]
fn segments_behind_an_initiate_wait_for_its_answer() {
    let (_, initiate) = Session::initiate(&options(false), b"").unwrap();
    let mut passive = Session::passive();
    assert!(
        passive.takes_segments(),
        "one that comes first is out of sequence"
    );
    give(&mut passive, &initiate).unwrap();
    assert!(!passive.takes_segments());
    passive.accept(DEPTHS, RtrSet::ALL, b"").unwrap();
    assert!(passive.takes_segments());
    passive.on_segment().unwrap();
}

/// RFC5043-10-3: by our own count, with a place kept for the last chunk.
#[test]
fn no_more_than_32767_chunks_are_under_way() {
    let (mut active, mut passive) = open(false);
    let mut sent = 1;
    while active.number_segment().is_some() {
        sent += 1;
        passive.on_segment().unwrap();
    }
    assert_eq!(sent, IN_FLIGHT_MAX - 1);
    active.acknowledged(2);
    assert_eq!(active.number_segment(), Some(DdpSsn(32_766)));
    assert_eq!(active.number_segment(), Some(DdpSsn(32_767)));
    assert_eq!(active.number_segment(), None);
    let last = active.terminate().unwrap();
    assert_eq!(DdpSsn(ssn(&last)).place(2), Some(2 + IN_FLIGHT_MAX - 1));
}

/// RFC6581-9.2, as with MPA; over SCTP it decides nothing but what is sent.
#[test]
fn the_peer_to_peer_model_agrees_on_an_indication() {
    let asked = SessionOptions {
        peer_to_peer: RtrSet::ALL,
        ..options(true)
    };
    let (mut active, initiate) = Session::initiate(&asked, b"").unwrap();
    let mut passive = Session::passive();
    give(&mut passive, &initiate).unwrap();
    let only_read = RtrSet::only(Rtr::Read);
    let (accept, theirs) = passive.accept(DEPTHS, only_read, b"").unwrap();
    let Ok(Told::Accepted { negotiated, .. }) = give(&mut active, &accept) else {
        panic!("{accept:?}");
    };
    assert_eq!(
        (negotiated.rtr, theirs.rtr),
        (Some(Rtr::Read), Some(Rtr::Read))
    );
    let plain = SessionOptions {
        enhanced: false,
        ..asked
    };
    let refused = Session::initiate(&plain, b"").err();
    assert_eq!(refused, Some(SessionError::RtrNeedsEnhanced));
}

/// RFC6581-9.1, 10: what can't be agreed on ends the session, with the RDMAP Terminate that tells why.
#[test]
fn an_accept_that_does_not_fit_is_an_error() {
    let answer = |asked, function, enhanced| {
        let (mut active, _) = Session::initiate(&options(asked), b"").unwrap();
        let told = active.on_control(&Control {
            function,
            enhanced,
            private_data: b"",
        });
        told.unwrap_err()
    };
    let large = Enhanced {
        depths: ReadDepths { ird: 0, ord: 257 },
        peer_to_peer: None,
    };
    let error = answer(true, Function::EnhancedAccept, Some(large));
    let asked = EnhancedError::InsufficientIrd { asked: 257 };
    assert_eq!(error, SessionError::Enhanced(asked));
    assert_eq!(error.wants_terminate(), Some(MpaError::InsufficientIrd));
    let mismatch = |asked| SessionError::EnhancedMismatch { asked };
    assert_eq!(answer(true, Function::Accept, None), mismatch(true));
    assert_eq!(
        answer(false, Function::EnhancedAccept, Some(large)),
        mismatch(false)
    );
    let too_many = SessionOptions {
        depths: ReadDepths { ird: 257, ord: 0 },
        ..options(true)
    };
    assert!(Session::initiate(&too_many, b"").is_err());
    assert!(Session::initiate(&options(true), &[0; 509]).is_err());
    assert!(Session::initiate(&options(false), &[0; 513]).is_err());
}

/// What the RFCs' patterns say, written once more: `s` is a segment, a digit a control message's code, and `.` our
/// application's acceptance of what came.
fn is_legal(active: bool, enhanced: bool, chunks: &str) -> bool {
    let (first, rest) = match (active, enhanced) {
        (true, false) => {
            if ["", "3", "4"].contains(&chunks) {
                return true;
            }
            ("2", chunks)
        }
        (true, true) => {
            if ["", "3", "4", "7"].contains(&chunks) {
                return true;
            }
            ("6", chunks)
        }
        (false, _) => {
            // Either form may begin it, and the one that begins it may give up before it is answered.
            if ["", "1", "5", "14", "54"].contains(&chunks) {
                return true;
            }
            (if chunks.starts_with('1') { "1." } else { "5." }, chunks)
        }
    };
    let Some(rest) = rest.strip_prefix(first) else {
        return false;
    };
    let rest = rest.trim_start_matches('s');
    rest.is_empty() || rest == "4"
}

/// RFC5043-6.1-1, 6.1-2: all sequences of up to six chunks, and each is taken as far as the RFCs have it.
#[test]
fn exactly_the_legal_sequences_are_taken() {
    let alphabet = ['s', '.', '1', '2', '3', '4', '5', '6', '7'];
    for (active, enhanced) in [(true, false), (true, true), (false, false)] {
        let mut legal = vec![String::new()];
        let mut count = 0;
        while let Some(before) = legal.pop() {
            for next in alphabet {
                if next == '.' && (active || !["1", "5"].contains(&before.as_str())) {
                    continue;
                }
                let chunks = format!("{before}{next}");
                let taken = play(active, enhanced, &chunks);
                assert_eq!(
                    taken,
                    is_legal(active, enhanced, &chunks),
                    "{active} {enhanced} {chunks}"
                );
                count += 1;
                if taken && chunks.len() < 6 {
                    legal.push(chunks);
                }
            }
        }
        assert!(count > 60, "{count}");
    }
}

/// Whether a side takes all of these.
fn play(active: bool, enhanced: bool, chunks: &str) -> bool {
    let mut session = match active {
        true => Session::initiate(&options(enhanced), b"").unwrap().0,
        false => Session::passive(),
    };
    chunks.chars().all(|chunk| match chunk {
        's' => session.takes_segments() && session.on_segment().is_ok(),
        '.' => session.accept(DEPTHS, RtrSet::ALL, b"").is_ok(),
        digit => {
            let data = [0, 0, 0, digit as u8 - b'0', 0, 4, 0, 4];
            let len = if digit == '4' { 4 } else { 8 };
            let read = UserData::parse(PPID_CONTROL, &data[..len]).unwrap();
            let UserData::Control(control) = read.1 else {
                panic!("{read:?}");
            };
            session.on_control(&control).is_ok()
        }
    })
}
