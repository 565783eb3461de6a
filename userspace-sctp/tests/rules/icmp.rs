//! ICMP errors (RFC 9260 section 10).

use userspace_sctp::chunk::Chunk;
use userspace_sctp::{Config, Event, Failure, IcmpError, IcmpQuote, State};

use crate::script::{FULL, PEERS_TAG, Script, ends, numbers};

/// RFC9260-10-6 to RFC9260-10-10, RFC9260-6.9-7.
#[test]
fn icmp_errors_count_when_they_quote_the_peers_tag() {
    let (mut script, id) = Script::established(Config::default());
    script.post(id, FULL);
    let quote = |tag| IcmpQuote {
        ends: ends(),
        tag,
        init_tag: None,
    };
    let too_big = IcmpError::PacketTooBig { mtu: 1000 };
    assert!(!script.stack.icmp(script.now, &quote(1), too_big));
    assert!(script.stack.icmp(script.now, &quote(PEERS_TAG), too_big));
    let message_max = 1000 - 20 - 12 - 16;
    assert_eq!(script.event(), Event::MtuChanged { message_max });
    let mut out = [0; 1500];
    let transmit = script.stack.poll_transmit(script.now, &mut out).unwrap();
    assert_eq!((transmit.fragment_to, transmit.len), (Some(1000), 1480));
    let larger = IcmpError::PacketTooBig { mtu: 1400 };
    script.stack.icmp(script.now, &quote(PEERS_TAG), larger);
    assert_eq!(script.stack.message_max(id), message_max);
    let gone = IcmpError::NoProtocol;
    assert!(!script.stack.icmp(script.now, &quote(0), gone));
    assert_eq!(script.state(id), State::Established);
    assert!(script.stack.icmp(script.now, &quote(PEERS_TAG), gone));
    assert_eq!(script.event(), Event::Failed(Failure::NoProtocol));
    script.nothing();
}

/// What can't be answered any more holds nothing up.
#[test]
fn an_answer_that_fits_no_packet_any_more_is_not_said() {
    let (mut script, id) = Script::established(Config::default());
    script.peer(&[Chunk::Heartbeat(&[7; 1400])]);
    let quote = IcmpQuote {
        ends: ends(),
        tag: PEERS_TAG,
        init_tag: None,
    };
    let too_big = IcmpError::PacketTooBig { mtu: 1000 };
    assert!(script.stack.icmp(script.now, &quote, too_big));
    script.post(id, 100);
    assert_eq!(numbers(&mut script), [[0]]);
    script.peer(&[Chunk::Heartbeat(&[7; 900])]);
    assert_eq!(script.one().only(), Chunk::HeartbeatAck(&[7; 900]));
}

/// RFC9260-10-10: an INIT is quoted with its own tag.
#[test]
fn an_icmp_error_ends_a_set_up_when_it_quotes_the_init() {
    let mut script = Script::new(Config::default());
    script.connect();
    let quote = |init_tag| IcmpQuote {
        ends: ends(),
        tag: 0,
        init_tag: Some(init_tag),
    };
    let gone = IcmpError::NoProtocol;
    assert!(!script.stack.icmp(script.now, &quote(script.tag ^ 1), gone));
    assert!(script.stack.icmp(script.now, &quote(script.tag), gone));
    assert_eq!(script.event(), Event::Failed(Failure::NoProtocol));
}

/// RFC9260-10-7.
#[test]
fn an_icmp_error_about_no_association_is_ignored() {
    let (mut script, id) = Script::established(Config::default());
    let mut ends = ends();
    ends.remote.set_port(1);
    let quote = IcmpQuote {
        ends,
        tag: PEERS_TAG,
        init_tag: None,
    };
    for error in [IcmpError::NoProtocol, IcmpError::PacketTooBig { mtu: 600 }] {
        assert!(!script.stack.icmp(script.now, &quote, error));
    }
    script.no_event();
    assert_eq!(script.state(id), State::Established);
}
