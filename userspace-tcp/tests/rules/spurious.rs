//! What was repaired without need is taken back: F-RTO (RFC 5682), timestamps (RFC 3522), D-SACK
//! (RFC 3708). The peer is 40 ms away.

use userspace_tcp::{Config, CongestionControl, Options, SackBlock};

use crate::script::*;

fn config(sack: bool, timestamps: bool) -> Config {
    Config {
        sack,
        timestamps,
        congestion: CongestionControl::NewReno,
        ..plain()
    }
}

fn seqs(script: &mut Script) -> Vec<i64> {
    script.out().iter().map(|out| out.seq).collect()
}

/// Ten segments are out when the path falls silent, until the first is sent again. Without SACK:
/// with it a tail loss probe goes before the timeout.
fn timed_out(sack: bool) -> Script {
    let mut script = Script::distant(config(sack, false), 40 * MS);
    script.send_thousands(10);
    if sack {
        script.wait(81 * MS);
        assert_eq!(script.one().seq, 9001);
    }
    script.wait(200 * MS);
    assert_eq!(script.one().seq, 1);
    assert_eq!(script.info().counters.timeouts, 1);
    script
}

/// The answer to the first acknowledgment: two new segments before what is lost.
fn two_new(sack: bool) -> Script {
    let mut script = timed_out(sack);
    script.give(ACK, 1, 1001, 0);
    assert!(script.stack.send_room(script.conn()) >= 2000);
    script.send(1000).unwrap();
    script.send(1000).unwrap();
    assert_eq!(seqs(&mut script), [10_001, 11_001]);
    script
}

#[test]
fn late_acknowledgments_behind_a_timeout_take_it_back() {
    for sack in [false, true] {
        let mut script = two_new(sack);
        script.give(ACK, 1, 2001, 0);
        let info = script.info();
        assert_eq!(info.counters.spurious_timeouts, 1);
        assert!(info.cwnd >= 14_600, "{info:?}");
        assert_eq!((info.pipe, script.out()), (10_000, vec![]));
        script.give(ACK, 1, 12_001, 0);
        assert_eq!(script.info().counters.retransmits, 1 + u64::from(sack));
        assert_eq!(script.stack.next_deadline(), None);
    }
}

#[test]
fn a_duplicate_behind_a_timeout_shows_that_it_was_none_too_soon() {
    let mut script = two_new(false);
    script.give(ACK, 1, 1001, 0);
    let info = script.info();
    assert_eq!(info.counters.spurious_timeouts, 0);
    assert!(info.cwnd <= 3 * 1460);
    assert_eq!(script.next_out().map(|out| out.seq), Some(1001));
}

#[test]
fn a_report_of_an_old_segment_behind_a_timeout_takes_it_back() {
    let mut script = two_new(true);
    script.give_sack(1001, &[(3001, 4001)]);
    assert_eq!(script.info().counters.spurious_timeouts, 1);
}

#[test]
fn a_report_of_a_new_segment_behind_a_timeout_does_not() {
    let mut script = two_new(true);
    script.give_sack(1001, &[(10_001, 11_001)]);
    assert_eq!(script.info().counters.spurious_timeouts, 0);
    assert_eq!(script.next_out().map(|out| out.seq), Some(1001));
}

#[test]
fn without_anything_new_the_conventional_recovery_goes_on_at_once() {
    let mut script = timed_out(false);
    script.give(ACK, 1, 1001, 0);
    assert_eq!(seqs(&mut script), [1001, 2001]);
    script.give(ACK, 1, 2001, 0);
    assert_eq!(script.info().counters.spurious_timeouts, 0);
}

/// The first acknowledgment behind the timeout echoes the time before it.
#[test]
fn an_old_echo_behind_a_timeout_takes_it_back_at_once() {
    let mut script = Script::distant(config(true, true), 40 * MS);
    script.send_thousands(5);
    script.wait(5 * MS);
    let late = script.stack.info(script.conn()).map(|info| info.cwnd);
    script.wait(76 * MS);
    assert_eq!(script.one().seq, 4001);
    script.send(1000).unwrap();
    let original = script.one();
    script.wait(300 * MS);
    let again = script.one();
    assert_eq!((again.seq, script.info().counters.timeouts), (1, 1));
    let options = Options {
        timestamps: original.options.timestamps.map(|mut sent| {
            sent.value -= 81;
            answer(sent)
        }),
        ..Options::default()
    };
    script.give_options(ACK, 1, 1001, 0, options);
    let info = script.info();
    assert_eq!(info.counters.spurious_timeouts, 1);
    assert!(Some(info.cwnd) >= late);
    assert_eq!(script.out(), []);
}

/// Three segments overtake the first; all of it came twice.
#[test]
fn a_recovery_whose_retransmissions_all_came_twice_is_taken_back() {
    let mut script = Script::distant(config(true, false), 40 * MS);
    script.send_thousands(10);
    script.wait(40 * MS);
    let before = script.info().cwnd;
    script.give_sack(1, &[(2001, 5001)]);
    assert_eq!(seqs(&mut script), [1]);
    script.give_sack(1, &[(2001, 8001)]);
    assert_eq!(seqs(&mut script), [1001]);
    script.give_sack(10_001, &[]);
    assert!(script.info().cwnd <= before / 2 + 1460);
    script.wait(40 * MS);
    script.give_sack(10_001, &[(1, 1001)]);
    assert_eq!(script.info().counters.needless_recoveries, 0);
    script.give_sack(10_001, &[(1001, 2001)]);
    let info = script.info();
    assert_eq!(info.counters.needless_recoveries, 1);
    assert!(info.cwnd >= before, "{info:?}");
    assert_eq!(info.ssthresh, u64::MAX);
}

#[test]
fn duplicates_made_by_the_network_take_nothing_back() {
    let mut script = Script::distant(config(true, false), 40 * MS);
    script.send_thousands(10);
    script.wait(40 * MS);
    script.give_sack(1, &[(1001, 5001)]);
    assert_eq!(seqs(&mut script), [1]);
    script.give_sack(1, &[(3001, 4001), (1001, 5001)]);
    script.give_sack(1, &[(4001, 5001), (1001, 5001)]);
    script.wait(40 * MS);
    script.give_sack(10_001, &[]);
    let info = script.info();
    assert_eq!(info.counters.needless_recoveries, 0);
    assert!(info.ssthresh < 10_000);
}

/// While lost segments still wait to be sent again, they are not, once it is known.
#[test]
fn what_still_waits_to_be_sent_again_stays() {
    let mut script = Script::distant(config(true, true), 40 * MS);
    script.send_thousands(10);
    script.wait(40 * MS);
    let mut options = Options {
        timestamps: Some(answer(userspace_tcp::Timestamps::default())),
        ..Options::default()
    };
    options.sack.push(SackBlock {
        left: script.iss.add(6001),
        right: script.iss.add(9001),
    });
    script.give_options(ACK, 1, 1, 0, options);
    let again = script.out();
    assert_eq!(again[0].seq, 1);
    let sent = again.len() as i64;
    assert!(sent < 6);
    // Behind all that was sent again, with an echo that is older.
    let now = again[0].options.timestamps.unwrap().value;
    let options = Options {
        timestamps: Some(userspace_tcp::Timestamps {
            value: 5000,
            echo: now - 40,
        }),
        ..options
    };
    script.give_options(ACK, 1, 1 + 1000 * sent, 0, options);
    assert_eq!(script.info().counters.needless_recoveries, 1);
    assert_eq!(script.out(), []);
}
