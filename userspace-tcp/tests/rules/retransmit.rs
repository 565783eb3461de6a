use userspace_tcp::Config;

use crate::script::*;

fn with_sack() -> Config {
    Config {
        sack: true,
        ..plain()
    }
}

#[test]
fn segments_that_wait_for_the_link_keep_no_timeout_from_what_went_before_them() {
    let mut script = Script::active(plain());
    for _ in 0..3 {
        script.send(1000).unwrap();
    }
    let first = script.next_out();
    assert!(script.stack.wants_transmit());
    assert_eq!(script.wait_for_timer(), 200 * MS);
    assert_eq!(script.next_out(), first);
    assert_eq!(script.next_out(), None, "the window is one segment");
    assert_eq!(script.wait_for_timer(), 400 * MS);
    assert_eq!(script.next_out(), first);
}

#[test]
fn after_a_timeout_what_is_sacked_is_not_sent_again() {
    let mut script = Script::active(with_sack());
    script.send_thousands(4);
    script.give_sack(1, &[(1001, 2001), (3001, 4001)]);
    assert_eq!(script.out().len(), 2);
    script.wait(200 * MS);
    assert_eq!(script.one().seq, 1);
    script.give_sack(2001, &[(3001, 4001)]);
    assert_eq!(script.one().seq, 2001);
    script.give_sack(4001, &[]);
    assert_eq!(script.stack.next_deadline(), None);
}

/// F-RTO's step 2 ends with the recovery: what is lost later does not wait for it.
#[test]
fn a_timeout_that_is_over_holds_nothing_back() {
    let mut script = Script::active(with_sack());
    script.send_thousands(1);
    while script.info().counters.timeouts == 0 {
        script.wait_for_timer();
        script.out();
    }
    script.give(ACK, 1, 1001, 0);
    let mut ack = 1001;
    while script.info().cwnd < 6000 {
        let count = script.info().cwnd / 1000;
        script.send_thousands(count as usize);
        ack += 1000 * count as i64;
        script.give(ACK, 1, ack, 0);
    }
    script.send_thousands(6);
    let at = ack as u32;
    script.give_sack(ack, &[(at + 2000, at + 6000)]);
    let again: Vec<i64> = script.out().iter().map(|out| out.seq).collect();
    assert_eq!(again, [ack, ack + 1000]);
}
