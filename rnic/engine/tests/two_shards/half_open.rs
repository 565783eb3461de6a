//! Connections that one end alone has, or has half (RFC 9293 sections 3.5.1, 3.10.7.3 and 3.10.7.4): each
//! segment that TCP makes about them leaves, whether the shard has a connection or not.

use std::net::SocketAddr;
use std::time::Duration;

use rnic_engine::command::Command;
use rnic_ipc::control::{Event, MpaOptions};
use userspace_tcp::{Flags, SeqNum};

use crate::hand::{Hand, ISS, Seen, segment};
use crate::impairment::Impairment;
use crate::side::{LISTENER, SideConfig};
use crate::world::World;

fn peer(port: u16) -> SocketAddr {
    SocketAddr::new("198.18.0.9".parse().unwrap(), port)
}

/// The resets among segments, by their numbers.
fn resets(seen: &[Seen]) -> Vec<SeqNum> {
    let resets = seen.iter().filter(|seen| seen.header.flags.rst());
    resets.map(|seen| seen.header.seq).collect()
}

/// The peer still has the connection that this host had before it was started again. A SYN gets a challenge ACK
/// (RFC 5961 section 4) until a reset has come at that number.
#[test]
fn an_old_connection_of_the_peers_is_reset_and_the_next_syn_opens_at_once() {
    let mut hand = Hand::new(SideConfig::default());
    let to = peer(5000);
    hand.connect(40_000, to);
    let syn = hand.sees().remove(0);
    assert!(syn.header.flags.syn());
    let from = SocketAddr::new(hand.side.address.ip(), 40_000);
    let challenge = segment(Flags::default(), SeqNum(777_777), Some(SeqNum(424_242)));
    hand.says_to(from, to, challenge, b"");
    let seen = hand.sees();
    assert_eq!(resets(&seen), [SeqNum(424_242)], "{seen:?}");
    assert!(!seen[0].header.flags.ack());
    // The old connection is gone with that. The next SYN need not wait for a timeout.
    let seen = hand.sees_for(Duration::from_millis(50));
    let again = seen.first().expect("the SYN again");
    assert!(again.header.flags.syn() && again.header.seq == syn.header.seq);
    let syn_ack = segment(Flags::SYN, ISS, Some(syn.header.seq.add(1)));
    hand.says_to(from, to, syn_ack, b"");
    let seen = hand.sees();
    let request = |seen: &Seen| seen.payload.starts_with(b"MPA ID Req Frame");
    assert!(seen.iter().any(request), "{seen:?}");
}

/// A peer that answers each SYN so does not have it sent in a loop.
#[test]
fn a_peer_that_challenges_every_syn_gets_one_at_once_and_the_others_by_the_timeout() {
    let mut hand = Hand::new(SideConfig::default());
    let to = peer(5000);
    hand.connect(40_000, to);
    let from = SocketAddr::new(hand.side.address.ip(), 40_000);
    let (mut syns, end) = (0, hand.now + Duration::from_secs(8));
    while hand.now < end {
        for seen in hand.sees_for(Duration::from_millis(1)) {
            syns += usize::from(seen.header.flags.syn());
            if !seen.header.flags.rst() {
                let challenge = segment(Flags::default(), SeqNum(777_777), Some(SeqNum(424_242)));
                hand.says_to(from, to, challenge, b"");
            }
        }
    }
    assert!((3..=5).contains(&syns), "{syns} SYNs");
}

/// The same from the other side: the peer's host was started again, and this one still has the connection.
#[test]
fn a_peer_that_was_started_again_connects_again_from_its_port() {
    let mut hand = Hand::new(SideConfig::default());
    hand.side.listen(4, hand.now);
    let from = peer(5000);
    hand.says(from, segment(Flags::SYN, ISS, None));
    let ours = hand.sees()[0].header.seq.add(1);
    hand.says(from, segment(Flags::default(), ISS.add(1), Some(ours)));
    assert!(hand.sees().is_empty());
    hand.says(from, segment(Flags::SYN, SeqNum(99), None));
    let challenge = hand.sees().remove(0).header;
    assert!(!challenge.flags.syn() && challenge.ack == ISS.add(1));
    hand.says(from, segment(Flags::RST, challenge.ack, None));
    assert!(hand.sees().is_empty());
    hand.says(from, segment(Flags::SYN, SeqNum(99), None));
    let answer = hand.sees().remove(0).header;
    assert!(answer.flags.syn() && answer.ack == SeqNum(100));
}

#[test]
fn an_ack_of_something_never_sent_is_reset_in_syn_received() {
    let mut hand = Hand::new(SideConfig::default());
    hand.side.listen(4, hand.now);
    hand.says(peer(5000), segment(Flags::SYN, ISS, None));
    let ours = hand.sees()[0].header.seq;
    let bad = segment(Flags::default(), ISS.add(1), Some(ours.add(7)));
    hand.says(peer(5000), bad);
    let seen = hand.sees();
    assert_eq!(resets(&seen), [ours.add(7)], "{seen:?}");
}

/// RFC 9293 section 3.10.5: an abort in SYN-RECEIVED sends a reset.
#[test]
fn what_is_half_open_is_reset_with_its_listener() {
    let mut hand = Hand::new(SideConfig::default());
    hand.side.listen(40, hand.now);
    let mut ours = Vec::new();
    for port in 5000..5030 {
        hand.says(peer(port), segment(Flags::SYN, ISS, None));
        ours.push(hand.sees()[0].header.seq.add(1));
    }
    let command = Command::Unlisten { listener: LISTENER };
    hand.side.shard.execute(command, hand.now).unwrap();
    let seen = hand.sees();
    assert_eq!(resets(&seen), ours);
    let mut ports: Vec<u16> = seen.iter().map(|seen| seen.tuple.local.port).collect();
    ports.dedup();
    assert_eq!(ports, (5000..5030).collect::<Vec<_>>());
}

/// A client that ends has all of its connections reset, however many they are.
#[test]
fn a_thousand_connections_that_end_together_are_all_reset() {
    const CONNECTIONS: u16 = 1000;
    let mut config = SideConfig::default();
    config.shard.limits.connections = 2 * usize::from(CONNECTIONS);
    let mut hand = Hand::new(config);
    hand.side.listen(u32::from(CONNECTIONS), hand.now);
    let mut ours = Vec::new();
    for port in 5000..5000 + CONNECTIONS {
        let from = SocketAddr::new([198, 18, 1, (port % 250) as u8].into(), port);
        hand.says(from, segment(Flags::SYN, ISS, None));
        ours.push(hand.sees()[0].header.seq.add(1));
        let last = *ours.last().unwrap();
        hand.says(from, segment(Flags::default(), ISS.add(1), Some(last)));
        assert!(hand.sees().is_empty());
    }
    let command = Command::Unlisten { listener: LISTENER };
    hand.side.shard.execute(command, hand.now).unwrap();
    let seen = hand.sees();
    let mut numbers = resets(&seen);
    numbers.sort_by_key(|seq| seq.0);
    ours.sort_by_key(|seq| seq.0);
    assert!(numbers == ours, "{} resets", numbers.len());
}

/// Two RNICs, one of which forgets all: it connects again from the same port as if nothing had been.
#[test]
fn a_host_that_was_started_again_connects_again_from_its_port_in_milliseconds() {
    let mut world = World::new(1, Impairment::NONE);
    let (_, old) = world.connect();
    let fresh = World::new(1, Impairment::NONE);
    world.a = fresh.a;
    let qp = world.start_connect_from(40_001, MpaOptions::default(), b"hello");
    let began = world.now;
    let asked = world.run_until(Duration::from_secs(60), |w| {
        w.b.client_events()
            .any(|event| matches!(event, Event::ConnectRequest { .. }))
    });
    assert!(asked, "{:?}", world.a.events);
    assert!(world.now < began + Duration::from_millis(20));
    assert!(world.b.disconnected(old).is_some());
    assert!(!world.a.is_established(qp));
}
