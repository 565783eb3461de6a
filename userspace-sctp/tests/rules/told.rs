//! What the user learns of an association.

use userspace_sctp::chunk::Chunk;
use userspace_sctp::parameter::Parameter;
use userspace_sctp::{Config, Event};

use crate::script::{Script, init, parameters};

/// RFC 5061 section 4.2.6.
#[test]
fn the_adaptation_code_of_an_init_ack_is_told() {
    let mut script = Script::new(Config::default());
    script.connect();
    let offered = [Parameter::StateCookie(b"cookie"), Parameter::Adaptation(7)];
    script.peer(&[Chunk::InitAck(init(&parameters(&offered)))]);
    script.sent();
    script.peer(&[Chunk::CookieAck]);
    let Event::Established(established) = script.event() else {
        panic!("it is established");
    };
    assert_eq!(established.adaptation, Some(7));
}

#[test]
fn bytes_that_are_sent_again_are_not_counted_again() {
    let (mut script, id) = Script::established(Config::default());
    script.post(id, 100);
    script.sent();
    assert_eq!(script.info(id).counters.bytes_out, 100);
    script.wait();
    script.sent();
    let counters = script.info(id).counters;
    assert_eq!((counters.bytes_out, counters.retransmits), (100, 1));
}
