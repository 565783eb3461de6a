use std::net::SocketAddr;

use userspace_sctp::chunk::{Chunk, Init};
use userspace_sctp::packet::{Header, Writer};
use userspace_sctp::parameter::Parameter;
use userspace_sctp::{Config, ConnectError, Ends, Event, State};

use crate::script::{
    COOKIE, PEERS_TAG, Script, Sent, ends, init, local, millis, parameters, remote,
};

/// RFC9260-8.5-2, RFC9260-8.5-3, RFC9260-8.5.1-3.
#[test]
fn a_packet_with_another_tag_is_dropped() {
    let (mut script, id) = Script::established(Config::default());
    for tag in [script.tag ^ 1, PEERS_TAG, 0] {
        let shutdown = Chunk::Shutdown {
            cumulative: script.tsn.previous(),
        };
        script.peer_with(tag, remote(), &[shutdown]);
        script.nothing();
        assert_eq!(script.state(id), State::Established);
    }
    assert_eq!(script.stack.counters().wrong_tags, 3);
}

#[test]
fn each_packet_with_the_right_tag_is_something_heard() {
    let (mut script, id) = Script::established(Config::default());
    let mut heard = script.now;
    for chunk in [Chunk::Heartbeat(b"beat"), Chunk::CookieAck] {
        script.wait_for(millis(100));
        script.peer_with(script.tag ^ 1, remote(), &[chunk]);
        assert_eq!(script.info(id).heard_at, heard);
        heard = script.now;
        script.peer(&[chunk]);
        assert_eq!(script.info(id).heard_at, heard);
    }
}

/// RFC9260-8.4-10, RFC9260-8.4-11; but an ABORT with an association's tag would end it.
#[test]
fn strangers_are_answered_and_another_address_of_a_peer_is_not() {
    let (mut script, id) = Script::established(Config::default());
    let other = "198.18.0.9:5001".parse().unwrap();
    script.peer_with(77, other, &[Chunk::Heartbeat(b"beat")]);
    let sent = script.one();
    assert!(sent.abort().0);
    assert_eq!((sent.tag(), sent.to), (77, other));
    let tag = script.tag;
    script.peer_with(tag, other, &[Chunk::Heartbeat(b"beat")]);
    script.nothing();
    assert_eq!(script.state(id), State::Established);
}

/// The bounds: answers a second, and answers that wait.
#[test]
fn answers_to_strangers_are_bounded() {
    let mut script = Script::new(Config {
        answers_per_second: 100,
        ..Config::default()
    });
    for tag in 1..1000 {
        script.peer_with(tag, remote(), &[Chunk::Heartbeat(b"beat")]);
    }
    assert_eq!(script.sent().len(), 10);
    script.stack.listen(local()).unwrap();
    for tag in 1..1000 {
        script.peer(&[Chunk::Init(Init { tag, ..init(&[]) })]);
    }
    assert_eq!(script.sent().len(), 64);
    assert_eq!(script.stack.counters().answers_dropped, 999 - 64);
}

/// RFC9260-5.1.2-6: an INIT ACK from another address that names the one that we know.
#[test]
fn an_init_ack_from_another_address_is_known_by_the_addresses_in_it() {
    let mut script = Script::new(Config::default());
    script.connect();
    let other = "198.18.0.9:5001".parse().unwrap();
    let parameters = parameters(&[
        Parameter::StateCookie(COOKIE),
        Parameter::Address(remote().ip()),
    ]);
    let tag = script.tag;
    script.peer_with(tag, other, &[Chunk::InitAck(init(&parameters))]);
    let sent = script.one();
    assert_eq!(
        (sent.only(), sent.to),
        (Chunk::CookieEcho(COOKIE), remote())
    );
}

#[test]
fn ends_that_can_t_be_or_are_in_use_are_refused() {
    let (mut script, _) = Script::established(Config {
        associations: 1,
        ..Config::default()
    });
    let now = script.now;
    let in_use = script.stack.connect(now, ends());
    assert_eq!(in_use, Err(ConnectError::InUse { ends: ends() }));
    for wrong in [
        "198.18.0.2:0",
        "224.0.0.1:5",
        "0.0.0.0:5",
        "[2001:db8::1]:5",
    ] {
        let ends = Ends {
            local: local(),
            remote: wrong.parse().unwrap(),
        };
        let refused = script.stack.connect(now, ends);
        assert_eq!(refused, Err(ConnectError::BadEnds { ends }), "{wrong}");
    }
    let ends = Ends {
        local: local(),
        remote: "198.18.0.3:1".parse().unwrap(),
    };
    let full = script.stack.connect(now, ends);
    assert_eq!(full, Err(ConnectError::TooMany { limit: 1 }));
    script.no_event();
}

#[test]
fn an_unspecified_address_listens_to_all_of_its_family() {
    let mut script = Script::new(Config::default());
    let any = "0.0.0.0:5000".parse().unwrap();
    script.stack.listen(any).unwrap();
    assert!(script.stack.listen(any).is_err());
    script.peer(&[Chunk::Init(init(&[]))]);
    assert!(matches!(script.one().only(), Chunk::InitAck(_)));
    assert!(script.stack.unlisten(any));
    script.peer(&[Chunk::Init(init(&[]))]);
    assert!(!script.one().abort().0, "RFC9260-8.4-4");
}

/// The peer's INIT was answered while somebody listened.
#[test]
fn an_incoming_association_is_told_before_what_happens_to_it() {
    let mut script = Script::new(Config::default());
    script.stack.listen(local()).unwrap();
    script.peer(&[Chunk::Init(init(&[]))]);
    let sent = script.one();
    let ack = sent.init_ack();
    let cookie = sent.cookie();
    script.tag = ack.tag;
    let shutdown = Chunk::Shutdown {
        cumulative: ack.initial_tsn.previous(),
    };
    let message = Chunk::Data(crate::script::data(0, b"m"));
    script.peer(&[Chunk::CookieEcho(&cookie), message, shutdown]);
    assert_eq!(script.shown, b"m", "RFC9260-3.3.11-1");
    let events = std::iter::from_fn(|| script.stack.poll_event());
    let events: Vec<_> = events.map(|(_, event)| event).collect();
    assert!(matches!(
        events[..],
        [Event::Incoming(_), Event::PeerClosed]
    ));
    let sent = script.one();
    assert_eq!(sent.chunks()[0], Chunk::CookieAck, "RFC9260-5.1.5-8");
}

/// RFC9260-8.4-1.
#[test]
fn packets_of_addresses_that_are_not_unicast_get_no_answer() {
    let bytes = {
        let mut script = Script::new(Config::default());
        script.stack.connect(script.now, ends()).unwrap();
        // An INIT to the peer's port.
        script.one().bytes
    };
    let own = remote().ip();
    for (to, from, answers) in [
        (own, local().ip(), 1),
        ("224.0.0.1".parse().unwrap(), local().ip(), 0),
        ("255.255.255.255".parse().unwrap(), local().ip(), 0),
        (own, "239.1.2.3".parse().unwrap(), 0),
        (own, "0.0.0.0".parse().unwrap(), 0),
    ] {
        let mut script = Script::new(Config::default());
        let now = script.now;
        script.stack.receive(now, to, from, None, &bytes, |_, _| ());
        assert_eq!(script.sent().len(), answers, "{from} to {to}");
    }
}

/// RFC9260-3.1-1: no packet of ours has it, and none that has it is answered.
#[test]
fn port_0_is_neither_used_nor_answered() {
    let mut script = Script::new(Config::default());
    for (from, to) in [
        ("198.18.0.1:0", "198.18.0.2:5001"),
        ("198.18.0.1:5000", "198.18.0.2:0"),
    ] {
        let ends = Ends {
            local: from.parse().unwrap(),
            remote: to.parse().unwrap(),
        };
        let refused = script.stack.connect(script.now, ends);
        assert_eq!(refused, Err(ConnectError::BadEnds { ends }));
    }
    script.stack.listen(local()).unwrap();
    script
        .stack
        .listen("198.18.0.1:0".parse().unwrap())
        .unwrap();
    let mut good = Script::new(Config::default());
    good.stack.connect(good.now, ends()).unwrap();
    // An INIT, which comes from the other side here.
    let init = good.one().bytes;
    let (now, own, peer) = (script.now, local().ip(), remote().ip());
    for (ports, answers) in [
        ([5001, 5000], 1),
        ([0, 5000], 0),
        ([5001, 0], 0),
        ([0, 0], 0),
    ] {
        let mut bytes = init.clone();
        let numbers = ports.map(|port: u16| port.to_be_bytes());
        bytes[..4].copy_from_slice(numbers.as_flattened());
        bytes[8..12].fill(0);
        let checksum = rnic_crc::append(0, &bytes);
        bytes[8..12].copy_from_slice(&checksum.to_le_bytes());
        script
            .stack
            .receive(now, own, peer, None, &bytes, |_, _| ());
        assert_eq!(script.sent().len(), answers, "{ports:?}");
    }
    assert_eq!(script.stack.counters().malformed, 3);
}

/// RFC9260-5.1-3, RFC9260-5.1-11, RFC9260-5.1.2-7: to the address and port of the INIT, whatever it lists.
#[test]
fn an_init_ack_goes_to_where_the_init_came_from() {
    for (is_known, listed) in [
        (false, "198.18.0.7"),
        (false, "198.18.1.2"),
        (true, "198.18.1.2"),
    ] {
        let mut script = match is_known {
            true => crate::paths::two().0,
            false => Script::new(crate::paths::config()),
        };
        script.stack.listen(local()).unwrap();
        let list = parameters(&[
            Parameter::Address(listed.parse().unwrap()),
            Parameter::Address(remote().ip()),
        ]);
        let froms = match is_known {
            // A restart adds no address.
            true => [remote(), crate::paths::second()],
            false => [remote(), "198.18.0.8:61000".parse().unwrap()],
        };
        for from in froms {
            script.peer_with(0, from, &[Chunk::Init(init(&list))]);
            let sent = script.one();
            assert!(matches!(sent.only(), Chunk::InitAck(_)), "{sent:?}");
            assert_eq!((sent.to, sent.tag()), (from, PEERS_TAG));
            assert_eq!(sent.bytes[2..4], from.port().to_be_bytes());
        }
    }
}

/// RFC9260-3.3.2.1.2-1: what a peer calls so is no address of it, and none of ours is called so.
#[test]
fn no_ipv4_mapped_address_is_used() {
    let mapped: std::net::Ipv6Addr = "::ffff:198.18.0.9".parse().unwrap();
    let mut script = Script::new(crate::paths::config());
    for (from, to) in [
        ("[::ffff:198.18.0.9]:5000", "[2001:db8::2]:5001"),
        ("[2001:db8::1]:5000", "[::ffff:198.18.0.9]:5001"),
    ] {
        let ends = Ends {
            local: from.parse().unwrap(),
            remote: to.parse().unwrap(),
        };
        let refused = script.stack.connect(script.now, ends);
        assert_eq!(refused, Err(ConnectError::BadEnds { ends }));
    }
    let own: SocketAddr = "[2001:db8::1]:5000".parse().unwrap();
    let peer: SocketAddr = "[2001:db8::2]:5001".parse().unwrap();
    script.stack.listen(own).unwrap();
    let third = "2001:db8::3".parse().unwrap();
    let list = parameters(&[Parameter::Address(mapped.into()), Parameter::Address(third)]);
    let mut events = Vec::new();
    for is_restart in [false, true] {
        let asked = Init {
            tag: PEERS_TAG + u32::from(is_restart),
            ..init(&list)
        };
        let mut packet = packet_between(peer, own, 0, &[Chunk::Init(asked)]);
        for _ in 0..2 {
            let (now, from) = (script.now, peer.ip());
            let taken = &packet[..];
            script
                .stack
                .receive(now, own.ip(), from, None, taken, |_, _| ());
            script.wait_for(millis(0));
            let sent = script.sent();
            for sent in &sent {
                let is_told = |found: &[u8]| found == mapped.octets();
                assert!(
                    !sent.bytes.windows(16).any(is_told) && sent.to.ip() != mapped,
                    "{sent:?}"
                );
            }
            events.extend(std::iter::from_fn(|| script.stack.poll_event()).map(|(id, _)| id));
            let Some(Chunk::InitAck(ack)) = sent.first().map(Sent::only) else {
                break;
            };
            let cookie = sent[0].cookie();
            packet = packet_between(peer, own, ack.tag, &[Chunk::CookieEcho(&cookie)]);
        }
    }
    assert_eq!(events.len(), 2, "it is there, and has restarted");
    let known: Vec<_> = script
        .stack
        .paths(events[0])
        .map(|path| path.remote)
        .collect();
    assert_eq!(known, [peer.ip(), third]);
}

fn packet_between(from: SocketAddr, to: SocketAddr, tag: u32, chunks: &[Chunk<'_>]) -> Vec<u8> {
    let header = Header {
        source: from.port(),
        destination: to.port(),
        tag,
    };
    let mut buffer = vec![0; 1500];
    let mut writer = Writer::new(&mut buffer, header).unwrap();
    chunks.iter().for_each(|chunk| writer.chunk(chunk).unwrap());
    let len = writer.finish();
    buffer.truncate(len);
    buffer
}
