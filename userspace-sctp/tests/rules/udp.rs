//! UDP encapsulation (RFC 6951).

use userspace_sctp::cause::Cause;
use userspace_sctp::chunk::Chunk;
use userspace_sctp::{AssocId, Config, ConnectError, Event, UdpPorts};

use crate::script::{PEERS_TAG, Script, WINDOW, data, ends, init, local, millis, parameters};

const OURS: u16 = 9899;
const PEERS: u16 = 40_000;

/// A message that fills a packet of 1500 bytes, without UDP and in UDP.
const FULL: usize = 1500 - 20 - 12 - 16;
const IN_UDP: usize = FULL - 8;

fn config() -> Config {
    Config {
        udp_port: Some(OURS),
        ..Config::default()
    }
}

fn to(destination: u16) -> Option<UdpPorts> {
    Some(UdpPorts {
        source: OURS,
        destination,
    })
}

fn established() -> (Script, AssocId) {
    let mut script = Script::new(config());
    script.udp = Some(PEERS);
    let id = script.connect();
    script.init_ack();
    script.peer(&[Chunk::CookieAck]);
    assert!(matches!(script.event(), Event::Established(_)));
    (script, id)
}

/// RFC 6951 sections 5.3, 5.6.
#[test]
fn an_association_in_udp_sends_to_the_peers_port_and_its_packets_leave_room_for_the_header() {
    let (mut script, id) = established();
    assert_eq!(script.stack.message_max(id), IN_UDP);
    assert_eq!(script.info(id).udp, Some(PEERS));
    script.post(id, IN_UDP);
    let sent = script.one();
    assert_eq!((sent.udp, sent.bytes.len()), (to(PEERS), 1472));
    assert_eq!(sent.fragment_to, None);
    // An ABORT is of no association any more.
    script.stack.abort(script.now, id, b"enough");
    assert_eq!(script.one().udp, to(PEERS));
}

/// Section 5.4: the port follows the packets, but only those with the right tag.
#[test]
fn the_peers_port_is_learnt_from_packets_with_the_right_tag() {
    let (mut script, id) = established();
    script.udp = Some(PEERS + 1);
    let tag = script.tag;
    script.peer_with(tag ^ 1, ends().remote, &[Chunk::Data(data(0, &[1]))]);
    assert_eq!(script.info(id).udp, Some(PEERS));
    script.peer_with(PEERS_TAG, ends().remote, &[Chunk::Data(data(0, &[1]))]);
    assert_eq!(script.info(id).udp, Some(PEERS));
    script.peer(&[Chunk::Data(data(0, &[1]))]);
    script.wait_for(millis(200));
    assert_eq!(script.one().udp, to(PEERS + 1));
    script.no_event();
}

/// Sections 5.4, 5.6: packets without UDP end the encapsulation, and those in UDP begin it.
#[test]
fn encapsulation_ends_and_begins_with_the_peers() {
    let (mut script, id) = established();
    script.udp = None;
    script.peer(&[Chunk::Data(data(0, &[1]))]);
    assert_eq!(script.event(), Event::MtuChanged { message_max: FULL });
    script.post(id, FULL);
    script.post(id, FULL);
    script.sack(0, WINDOW, &[]);
    assert_eq!(script.sent()[0].udp, None);
    script.udp = Some(7);
    script.peer(&[Chunk::Data(data(1, &[1]))]);
    let smaller = Event::MtuChanged {
        message_max: IN_UDP,
    };
    assert_eq!(script.event(), smaller);
    // What was posted before goes as fragments.
    while script.info(id).errors == 0 {
        script.wait();
    }
    let mut sent = script.sent().into_iter();
    let sent = sent.find(|sent| sent.data(script.tsn) == [0]).unwrap();
    assert_eq!((sent.udp, sent.fragment_to), (to(7), Some(1500)));
}

/// Section 5.4: each answer goes to where its packet came from.
#[test]
fn a_listener_answers_in_udp_and_its_association_begins_with_the_port_of_the_cookie() {
    let mut script = Script::new(config());
    script.stack.listen(local()).unwrap();
    script.udp = Some(1234);
    script.peer(&[Chunk::Init(init(&[]))]);
    let answer = script.one();
    assert_eq!(answer.udp, to(1234));
    let ack = answer.init_ack();
    let cookie = answer.cookie();
    script.tag = ack.tag;
    script.udp = Some(1235);
    script.peer(&[Chunk::CookieEcho(&cookie)]);
    assert!(matches!(script.event(), Event::Incoming(_)));
    let sent = script.one();
    assert_eq!((sent.only(), sent.udp), (Chunk::CookieAck, to(1235)));
    // Out of the blue.
    script.udp = Some(4321);
    script.peer_with(
        77,
        "198.18.0.9:9".parse().unwrap(),
        &[
            Chunk::CookieAck,
            Chunk::Shutdown {
                cumulative: script.tsn,
            },
        ],
    );
    script.peer_with(
        77,
        "198.18.0.9:9".parse().unwrap(),
        &[Chunk::Data(data(0, &[1]))],
    );
    assert_eq!(script.one().udp, to(4321));
}

/// An INIT has no tag that could be checked: it changes nothing, and gets an ABORT back to where it came from.
#[test]
fn an_init_by_another_port_is_refused_and_changes_nothing() {
    let (mut script, id) = established();
    for new in [Some(PEERS + 1), None] {
        script.udp = new;
        script.peer(&[Chunk::Init(init(&[]))]);
        let sent = script.one();
        assert_eq!(sent.udp, new.and_then(to));
        let cause = Cause::RestartWithNewPort {
            current: PEERS,
            new: new.unwrap_or(0),
        };
        assert_eq!(sent.abort(), (false, Some(cause)));
        assert_eq!(sent.tag(), PEERS_TAG);
    }
    assert_eq!(script.info(id).udp, Some(PEERS));
    script.udp = Some(PEERS);
    script.peer(&[Chunk::Init(init(&parameters(&[])))]);
    let sent = script.one();
    assert!(matches!(sent.only(), Chunk::InitAck(_)));
    script.no_event();
}

#[test]
fn without_a_port_of_ours_there_is_no_encapsulation() {
    let mut script = Script::new(Config::default());
    script.stack.listen(local()).unwrap();
    script.udp = Some(PEERS);
    script.peer(&[Chunk::Init(init(&[]))]);
    script.nothing();
    assert_eq!(script.stack.counters().malformed, 1);
    let refused = script.stack.connect(script.now, script.route());
    assert_eq!(refused, Err(ConnectError::NoUdpPort));
    let mut script = Script::new(config());
    script.stack.listen(local()).unwrap();
    script.udp = Some(0);
    script.peer(&[Chunk::Init(init(&[]))]);
    script.nothing();
}
