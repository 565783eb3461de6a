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
