//! RFC 5961: a blind attacker who does not know the exact numbers changes nothing.

use userspace_tcp::{Event, Flags, State};

use crate::script::*;

#[test]
fn only_a_reset_at_the_exact_number_resets() {
    let mut script = Script::active(plain());
    script.give(Flags::RST, 0, 0, 0);
    script.give(Flags::RST, 70_000, 0, 0);
    assert_eq!(
        (script.out(), script.info().state),
        (vec![], State::Established)
    );
    script.give(Flags::RST, 2, 0, 0);
    let challenge = script.one();
    assert_eq!((challenge.flags, challenge.seq, challenge.ack), (ACK, 1, 1));
    script.give(Flags::RST, 1, 0, 0);
    assert_eq!(script.events(), [Event::Reset]);
    assert!(script.is_gone());
}

#[test]
fn a_syn_on_a_connection_is_challenged() {
    let mut script = Script::active(plain());
    for seq in [500, 70_000, -500] {
        script.give(Flags::SYN, seq, 0, 0);
        assert_eq!(
            (script.one().flags, script.info().state),
            (ACK, State::Established)
        );
        script.wait(SEC);
    }
}

#[test]
fn challenges_are_rate_limited() {
    let mut script = Script::active(plain());
    let mut count = 0;
    for _ in 0..1000 {
        script.give(Flags::SYN, 500, 0, 0);
        count += script.out().len();
        script.wait(MS);
    }
    assert_eq!(count, 10);
}

#[test]
fn an_ack_of_what_was_never_sent_is_challenged_and_dropped() {
    let mut script = Script::active(plain());
    for ack in [2, 1_000_000, -70_000] {
        assert!(script.give(ACK, 1, ack, 10).new.is_empty());
        assert_eq!(script.one().ack, 1);
        script.wait(SEC);
    }
    // An old one within the window is no reason to drop.
    assert_eq!(script.give(ACK, 1, -10_000, 10).new.len(), 1);
}

#[test]
fn a_segment_without_ack_is_dropped() {
    let mut script = Script::active(plain());
    assert!(script.give(Flags::PSH, 1, 0, 10).new.is_empty());
    assert_eq!(script.out(), []);
}
