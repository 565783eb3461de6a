//! RFC 5961: a blind attacker who does not know the exact numbers changes nothing.

use userspace_tcp::{Config, Event, Flags, Options, State, Timestamps};

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
fn a_syn_with_bytes_is_challenged_no_more_often() {
    let mut script = Script::active(plain());
    for _ in 0..10 {
        assert!(script.give(Flags::SYN, 500, 0, 100).new.is_empty());
        assert!(script.give(Flags::SYN, 70_000, 0, 100).new.is_empty());
    }
    assert_eq!(script.out().len(), 1);
}

/// RFC 7323 section 5.2.
#[test]
fn resets_carry_timestamps_where_the_peer_does() {
    let theirs = Timestamps { value: 7, echo: 3 };
    let options = Options {
        timestamps: Some(theirs),
        ..Options::default()
    };
    let mut script = Script::new(Config::default());
    script.give_options(ACK, 1, 1, 0, options);
    let expected = Some(Timestamps { value: 0, echo: 7 });
    assert_eq!(script.one().options.timestamps, expected);
    script.give(ACK, 1, 1, 0);
    assert_eq!(script.one().options.timestamps, None);
    let mut script = Script::active(Config::default());
    assert!(script.stack.abort(script.conn()));
    assert_eq!(script.one().options.timestamps.unwrap().echo, 5000);
}

/// RFC 5961 section 5: whoever can't guess the ACK changes nothing, TS.Recent neither.
#[test]
fn a_segment_whose_ack_is_wrong_does_not_move_ts_recent() {
    let mut script = Script::active(Config::default());
    let give = |script: &mut Script, ack, value| {
        let options = Options {
            timestamps: Some(Timestamps { value, echo: 0 }),
            ..Options::default()
        };
        script.give_options(ACK, 1, ack, 10, options)
    };
    assert!(give(&mut script, 1_000_000, 1_000_000).new.is_empty());
    assert_eq!(script.one().options.timestamps.unwrap().echo, 5000);
    assert_eq!(give(&mut script, 1, 5001).new.len(), 1);
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
