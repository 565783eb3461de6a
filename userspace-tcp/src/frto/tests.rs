use super::*;

/// Segments of 1000 bytes: ten were out from 1 when the first timed out.
fn timed_out() -> Frto {
    let mut frto = Frto::default();
    frto.timed_out(1001, 10_001, false);
    frto
}

fn step(una: Position) -> Step {
    Step {
        una,
        progress: true,
        duplicate: false,
        sack: false,
        lowest_original: Position::MAX,
        highest: una,
    }
}

fn duplicate(una: Position) -> Step {
    Step {
        progress: false,
        duplicate: true,
        highest: 0,
        ..step(una)
    }
}

/// Two new segments went out in answer to an acknowledgment of the first.
fn two_new() -> Frto {
    let mut frto = timed_out();
    assert!(!frto.acknowledged(&step(1001)));
    assert!(frto.prefers_new() && !frto.holds_lost());
    frto.sent_new();
    frto.sent_new();
    assert!(!frto.prefers_new() && frto.holds_lost());
    frto
}

#[test]
fn progress_over_what_was_not_sent_again_shows_a_spurious_timeout() {
    let mut frto = two_new();
    let late = Step {
        lowest_original: 2001,
        ..step(2001)
    };
    assert!(frto.acknowledged(&late));
    assert_eq!(frto, Frto::Off);
}

#[test]
fn a_duplicate_as_the_second_acknowledgment_shows_a_loss() {
    let mut frto = two_new();
    assert!(!frto.acknowledged(&duplicate(1001)));
    assert_eq!(frto, Frto::Off);
}

#[test]
fn a_duplicate_as_the_first_shows_a_loss_unless_there_is_sack() {
    let mut frto = timed_out();
    assert!(!frto.acknowledged(&duplicate(1)));
    assert_eq!(frto, Frto::Off);
    let mut frto = timed_out();
    let sack = Step {
        sack: true,
        ..duplicate(1)
    };
    assert!(!frto.acknowledged(&sack));
    assert_eq!(frto, timed_out());
}

#[test]
fn a_first_acknowledgment_of_everything_or_of_a_part_says_nothing() {
    for una in [10_001, 500] {
        let mut frto = timed_out();
        assert!(!frto.acknowledged(&step(una)));
        assert_eq!(frto, Frto::Off, "{una}");
    }
}

#[test]
fn with_sack_a_report_of_old_segments_shows_a_spurious_timeout() {
    let old = Step {
        sack: true,
        lowest_original: 4001,
        highest: 5001,
        ..duplicate(1001)
    };
    assert!(two_new().acknowledged(&old));
    // One of new segments does not.
    let new = Step {
        lowest_original: 11_001,
        highest: 11_001,
        ..old
    };
    let mut frto = two_new();
    assert!(!frto.acknowledged(&new));
    assert_eq!(frto, Frto::Off);
}

#[test]
fn without_anything_new_to_send_it_is_not_pursued() {
    let mut frto = timed_out();
    frto.acknowledged(&step(1001));
    let late = Step {
        lowest_original: 2001,
        ..step(2001)
    };
    assert!(!frto.acknowledged(&late));
    assert_eq!(frto, Frto::Off);
}

#[test]
fn within_another_recovery_it_does_not_begin_but_goes_on_for_the_same_segment() {
    let mut frto = Frto::default();
    frto.timed_out(1001, 10_001, true);
    assert_eq!(frto, Frto::Off);
    let mut frto = timed_out();
    frto.timed_out(1001, 10_001, true);
    assert_eq!(frto, timed_out());
    frto.timed_out(2001, 10_001, true);
    assert_eq!(frto, Frto::Off);
}
