use userspace_sctp::{Config, Event};

use crate::script::Script;

/// RFC 9260 section 7.3: the PMTU is at most what the first link takes.
#[test]
fn a_first_link_that_takes_less_makes_messages_smaller_and_says_so_once() {
    let (mut script, id) = Script::established(Config::default());
    script.stack.limit_mtu(script.now, id, 1000);
    let message_max = 1000 - 20 - 12 - 16;
    assert_eq!(script.event(), Event::MtuChanged { message_max });
    assert_eq!(script.stack.message_max(id), message_max);
    script.stack.limit_mtu(script.now, id, 1000);
    script.no_event();
}

/// RFC9260-7.2.1-1: the first window is of packets that pass.
#[test]
fn the_first_window_is_of_packets_that_the_first_link_takes() {
    let (mut script, id) = Script::established(Config::default());
    script.stack.limit_mtu(script.now, id, 576);
    assert_eq!(script.info(id).cwnd, 4 * (576 - 20 - 12));
    // What was found out about congestion stays, whatever the size of packets.
    script.post(id, 100);
    script.sent();
    let before = script.info(id).cwnd;
    script.stack.limit_mtu(script.now, id, 500);
    assert_eq!(script.info(id).cwnd, before);
}
