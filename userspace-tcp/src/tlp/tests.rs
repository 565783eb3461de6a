use super::*;

const MS: u64 = 1_000_000;

fn retransmitted() -> Tlp {
    let mut tlp = Tlp::default();
    tlp.sent(5000, true);
    tlp
}

fn answer(ack: Position) -> Answer {
    Answer {
        ack,
        ..Answer::default()
    }
}

#[test]
fn a_probe_comes_after_two_round_trips_and_for_one_segment_later() {
    assert_eq!(Tlp::pto(Some(40 * MS), false), 81 * MS);
    assert_eq!(Tlp::pto(Some(40 * MS), true), 131 * MS);
    assert_eq!(Tlp::pto(None, false), 1000 * MS);
}

#[test]
fn one_probe_at_a_time_and_a_measurement_between_two() {
    let mut tlp = Tlp::default();
    assert!(tlp.may_probe());
    tlp.sent(5000, false);
    tlp.measured();
    assert!(!tlp.may_probe());
    tlp.acknowledged(&answer(5000));
    assert!(tlp.may_probe());
    tlp.sent(6000, false);
    tlp.acknowledged(&answer(6000));
    assert!(!tlp.may_probe());
}

#[test]
fn a_new_segment_as_probe_says_nothing() {
    let mut tlp = Tlp::default();
    tlp.sent(5000, false);
    assert_eq!(tlp.acknowledged(&answer(6000)), Verdict::None);
    assert_eq!(tlp.end_seq, None);
}

#[test]
fn before_it_is_covered_it_is_not_answered() {
    let mut tlp = retransmitted();
    assert_eq!(tlp.acknowledged(&answer(4999)), Verdict::None);
    assert_eq!(tlp.end_seq, Some(5000));
}

#[test]
fn a_reported_duplicate_or_a_plain_one_shows_that_nothing_was_lost() {
    let reported = Answer {
        duplicate_end: Some(5000),
        ..answer(5000)
    };
    assert_eq!(retransmitted().acknowledged(&reported), Verdict::Needless);
    let mut tlp = retransmitted();
    assert_eq!(tlp.acknowledged(&answer(5000)), Verdict::None);
    let plain = Answer {
        plain_duplicate: true,
        ..answer(5000)
    };
    assert_eq!(tlp.acknowledged(&plain), Verdict::Needless);
    assert_eq!(tlp.acknowledged(&answer(9000)), Verdict::None);
}

#[test]
fn progress_beyond_it_without_such_a_report_shows_a_loss() {
    let mut tlp = retransmitted();
    assert_eq!(tlp.acknowledged(&answer(5000)), Verdict::None);
    let other = Answer {
        duplicate_end: Some(3000),
        ..answer(5001)
    };
    assert_eq!(tlp.acknowledged(&other), Verdict::Repaired);
}
