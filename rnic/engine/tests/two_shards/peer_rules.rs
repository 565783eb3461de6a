//! Allow-lists of peers: a listener that may not be connected to is silent, for SYNs, for the ACKs that bring
//! back SYN cookies, and for SYNs that would open an old connection again. Addresses that no host has never may.

use std::net::SocketAddr;
use std::time::Duration;

use rnic_engine::command::{Answer, Command, ForbiddenBy, ShardEvent};
use rnic_ipc::control::MpaOptions;
use rnic_net::{AllowList, IpsecPolicies, ListOwner, PeerRules, RejectedPaths};
use userspace_tcp::{Event, Flags, SeqNum};

use crate::allocations::allocations_of;
use crate::hand::{Hand, ISS, segment};
use crate::impairment::Impairment;
use crate::raw::{Duel, request};
use crate::side::{CLIENT, LISTENER, SideConfig};
use crate::world::World;

const INSIDE: &str = "198.18.0.9:5000";
const OUTSIDE: &str = "198.18.8.9:5000";
const NETWORK: &str = "198.18.0.0/24";

fn only(networks: &[&str]) -> PeerRules {
    let networks = networks.iter().map(|network| network.parse().unwrap());
    let mut rules = PeerRules::default();
    rules.add(ListOwner::User, AllowList::new(networks.collect()).unwrap());
    rules
}

fn duel(peers: PeerRules, backlog: u32) -> Duel {
    let mut duel = Duel::new(SideConfig::default());
    duel.side.peers = peers;
    duel.side.listen(backlog, duel.now);
    duel
}

fn set(duel: &mut Duel, peers: PeerRules) {
    let listener = LISTENER;
    let command = Command::SetPeerRules { listener, peers };
    duel.side.shard.execute(command, duel.now).unwrap();
}

/// The refusals that the side told of: from where, and how many were not told before.
fn told(duel: &mut Duel) -> Vec<(String, u64)> {
    let refused = |event: ShardEvent| match event {
        ShardEvent::PeerRefused {
            client: CLIENT,
            listener: LISTENER,
            local,
            remote,
            list: ListOwner::User,
            untold,
        } => {
            assert_eq!(local.to_string(), "198.18.0.2:7174");
            Some((remote.to_string(), untold))
        }
        _ => None,
    };
    duel.side.events.drain(..).filter_map(refused).collect()
}

#[test]
fn a_peer_outside_the_list_gets_no_answer_and_is_told_of() {
    let mut duel = duel(only(&[NETWORK]), 4);
    assert!(!duel.try_connect_from(OUTSIDE));
    assert!(duel.peer.events.is_empty(), "{:?}", duel.peer.events);
    assert_eq!(duel.side.shard.levels().connections, 0);
    assert_eq!(duel.side.counter("peers_refused_user"), 1);
    assert_eq!(duel.side.counter("tcp_unknown_flow"), 0);
    assert_eq!(told(&mut duel), [(OUTSIDE.to_owned(), 0)]);
    assert!(duel.try_connect_from(INSIDE));
    assert_eq!(duel.side.counter("peers_refused_user"), 1);
}

#[test]
fn other_rules_are_for_connections_that_begin_later() {
    let mut duel = duel(only(&[]), 4);
    assert!(!duel.try_connect_from(INSIDE));
    set(&mut duel, only(&[NETWORK]));
    assert!(duel.try_connect_from("198.18.0.9:5001"));
    set(&mut duel, only(&[]));
    duel.send(&request(0, b"before"), 1448);
    let (_, _, data) = duel.side.take_request().expect("a request");
    assert_eq!(data, b"before");
    assert!(!duel.try_connect_from("198.18.0.9:5002"));
    set(&mut duel, PeerRules::default());
    assert!(duel.try_connect_from("203.0.113.1:5000"));
    let unknown = Command::SetPeerRules {
        listener: rnic_ipc::id::ListenerId(77),
        peers: PeerRules::default(),
    };
    duel.side.shard.execute(unknown, duel.now).unwrap_err();
}

#[test]
fn an_ack_that_brings_back_a_syn_cookie_is_held_to_the_list_of_now() {
    for refused in [false, true] {
        let mut duel = duel(only(&[NETWORK]), 1);
        // It never answers the SYN-ACK, and takes the only place.
        duel.begin_from("198.18.0.9:5001");
        duel.keep_answer_back();
        duel.begin_from("198.18.0.9:5002");
        let ack = duel.keep_answer_back();
        assert_eq!(duel.side.counter("tcp_cookies_sent"), 1);
        if refused {
            set(&mut duel, only(&[]));
        }
        for frame in ack {
            duel.send_frame(frame);
        }
        let accepted = duel.side.counter("tcp_cookies_accepted");
        assert_eq!(accepted, u64::from(!refused));
        let counted = duel.side.counter("peers_refused_user");
        assert_eq!(counted, u64::from(refused));
    }
}

#[test]
fn a_syn_opens_no_connection_in_time_wait_again_that_is_not_allowed_now() {
    for refused in [false, true] {
        let mut duel = duel(only(&[NETWORK]), 4);
        assert!(duel.try_connect_from(INSIDE));
        duel.send(&request(0, b""), 1448);
        let qp = duel.side.create_qp();
        duel.accept(qp, |_| MpaOptions::default());
        let command = Command::Disconnect { qp, abort: false };
        duel.side.shard.execute(command, duel.now).unwrap();
        duel.pump();
        duel.peer.stack.close(duel.peer.conn.unwrap());
        duel.run_for(Duration::from_millis(500));
        assert_eq!(duel.side.shard.levels().connections, 1, "TIME-WAIT");
        if refused {
            set(&mut duel, only(&[]));
        }
        assert_eq!(duel.try_connect_from(INSIDE), !refused);
        let counted = duel.side.counter("peers_refused_user");
        assert_eq!(counted > 0, refused);
    }
}

#[test]
fn what_a_refused_peer_sends_beside_syns_is_not_answered_either() {
    for refused in [false, true] {
        let mut duel = duel(only(&[NETWORK]), 4);
        assert!(duel.try_connect_from(INSIDE));
        let command = Command::Unlisten { listener: LISTENER };
        duel.side.shard.execute(command, duel.now).unwrap();
        // The connection is gone, and its peer does not know.
        duel.resets_to_lose = 1;
        duel.pump();
        if refused {
            duel.side.peers = only(&[]);
        }
        duel.side.listen(4, duel.now);
        duel.send(b"M", 1);
        assert_eq!(duel.peer.events.contains(&Event::Reset), !refused);
        let counted = duel.side.counter("peers_refused_user");
        assert_eq!(counted, u64::from(refused));
    }
}

#[test]
fn few_refusals_of_a_second_are_told_and_all_counted_without_memory() {
    let mut duel = duel(only(&[NETWORK]), 4);
    for number in 0..30 {
        duel.begin_from(&format!("203.0.113.1:{}", 5000 + number));
        let (shard, now) = (&mut duel.side.shard, duel.now);
        assert_eq!(allocations_of(|| while shard.poll(now) {}), 0);
    }
    duel.side.collect();
    assert_eq!(told(&mut duel).len(), 10);
    assert_eq!(duel.side.counter("peers_refused_user"), 30);
    duel.now += Duration::from_secs(1);
    assert!(!duel.try_connect_from("203.0.113.1:6000"));
    assert_eq!(told(&mut duel), [("203.0.113.1:6000".to_owned(), 20)]);
}

#[test]
fn ipv6_peers_are_in_a_list_or_not() {
    for (network, allowed) in [("2001:db8::/64", true), ("2001:db8:7::/64", false)] {
        let (a, b) = (SideConfig::default(), SideConfig::default());
        let mut world = World::with(1, Impairment::NONE, a, b, true);
        world.b.peers = only(&[network]);
        world.b.listen(4, world.now);
        world.start_connect(MpaOptions::default(), b"");
        world.run_for(Duration::from_millis(100));
        assert_eq!(world.b.take_request().is_some(), allowed, "{network}");
        assert_eq!(world.b.counter("peers_refused_user") > 0, !allowed);
    }
}

/// RFC 9293 section 3.9.2.3 (MUST-63): a SYN from or to an address that is not one host's is dropped in silence.
/// So is all else that has no connection.
#[test]
fn nothing_from_an_address_that_no_host_has_is_answered() {
    let mut hand = Hand::new(SideConfig::default());
    hand.side.listen(64, hand.now);
    let subnets = vec![
        "198.18.0.255".parse().unwrap(),
        "198.18.7.15".parse().unwrap(),
    ];
    let command = Command::SetBroadcasts(subnets);
    hand.side.shard.execute(command, hand.now).unwrap();
    let no_hosts = [
        "0.0.0.0",
        "0.1.2.3",
        "127.0.0.1",
        "127.255.0.9",
        "224.0.0.1",
        "239.1.2.3",
        "240.0.0.1",
        "250.1.2.3",
        "255.255.255.255",
        "198.18.0.255",
        "198.18.7.15",
        "198.18.0.2",
    ];
    for (index, addr) in no_hosts.into_iter().enumerate() {
        let peer = SocketAddr::new(addr.parse().unwrap(), 5000);
        for header in [
            segment(Flags::SYN, ISS, None),
            segment(Flags::default(), ISS, Some(SeqNum(7))),
        ] {
            hand.says(peer, header);
            let seen = hand.sees();
            assert!(seen.is_empty(), "{addr}: {seen:?}");
        }
        let dropped = hand.side.counter("rx_martians") + hand.side.counter("rx_group_address");
        assert_eq!(dropped, 2 * (index as u64 + 1), "{addr}");
    }
    for host in ["1.0.0.1", "198.18.0.254", "198.18.7.14", "223.255.255.254"] {
        let peer = SocketAddr::new(host.parse().unwrap(), 5000);
        hand.says(peer, segment(Flags::SYN, ISS, None));
        assert_eq!(hand.sees().len(), 1, "{host}");
    }
}

/// What a host blocks that lets nothing out in clear, or in, by its default policies.
fn forbid_clear(duel: &mut Duel, blocks: [bool; 2]) {
    let policies = IpsecPolicies::new(Vec::new(), blocks);
    let command = Command::SetIpsecPolicies(policies);
    duel.side.shard.execute(command, duel.now).unwrap();
}

#[test]
fn no_answer_leaves_that_the_hosts_ipsec_forbids_in_clear() {
    for blocks in [[true, false], [false, true]] {
        let mut duel = duel(PeerRules::default(), 4);
        forbid_clear(&mut duel, blocks);
        assert!(!duel.try_connect_from(INSIDE));
        assert!(duel.peer.events.is_empty(), "{:?}", duel.peer.events);
        assert_eq!(duel.side.counter("ipsec_dropped_segments"), 1);
        let told = |event: &ShardEvent| {
            matches!(event, ShardEvent::HostPolicyDropped { remote, by: ForbiddenBy::Ipsec, rule, untold: 0, .. }
                if remote.to_string() == INSIDE && rule.contains("block"))
        };
        assert!(duel.side.events.iter().any(told));
        forbid_clear(&mut duel, [false; 2]);
        assert!(duel.try_connect_from("198.18.0.9:5001"));
    }
}

#[test]
fn a_connection_that_ipsec_forbids_ends_without_a_reset_and_its_segments_get_no_answer() {
    let mut duel = duel(PeerRules::default(), 4);
    assert!(duel.try_connect_from(INSIDE));
    duel.peer.events.clear();
    let sent = duel.side.counter("port0_transmitted");
    forbid_clear(&mut duel, [true, false]);
    duel.pump();
    assert_eq!(duel.side.shard.levels().connections, 0);
    assert_eq!(duel.side.counter("ipsec_ended_connections"), 1);
    duel.send(&request(0, b"after"), 1448);
    duel.run_for(Duration::from_secs(2));
    assert!(duel.peer.events.is_empty(), "{:?}", duel.peer.events);
    assert!(duel.side.counter("ipsec_dropped_segments") > 0);
    assert_eq!(duel.side.counter("port0_transmitted"), sent);
}

/// Has the side reject what goes to the peer, as by a route of its host; whether there is more to end.
fn reject(duel: &mut Duel, remotes: &[&str]) -> bool {
    let local = "198.18.0.2".parse().unwrap();
    let pair = |remote: &&str| {
        let rule = "route `prohibit 198.18.0.0/24`".into();
        ((local, remote.parse().unwrap()), rule)
    };
    let command = Command::SetRejectedPaths(RejectedPaths::new(remotes.iter().map(pair)));
    match duel.side.shard.execute(command, duel.now).unwrap() {
        Answer::Rejected { more } => more,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_connection_that_the_hosts_routes_reject_ends_without_a_reset_and_its_segments_get_no_answer() {
    let mut duel = duel(PeerRules::default(), 4);
    assert!(duel.try_connect_from(INSIDE));
    duel.peer.events.clear();
    let sent = duel.side.counter("port0_transmitted");
    assert!(!reject(&mut duel, &["198.18.0.8"]));
    assert_eq!(duel.side.shard.levels().connections, 1);
    assert!(!reject(&mut duel, &["198.18.0.8", "198.18.0.9"]));
    duel.pump();
    assert_eq!(duel.side.shard.levels().connections, 0);
    assert_eq!(duel.side.counter("routes_ended_connections"), 1);
    duel.send(&request(0, b"after"), 1448);
    duel.run_for(Duration::from_secs(2));
    assert!(duel.peer.events.is_empty(), "{:?}", duel.peer.events);
    assert!(duel.side.counter("routes_dropped_segments") > 0);
    assert_eq!(duel.side.counter("port0_transmitted"), sent);
    assert_eq!(duel.side.counter("ipsec_dropped_segments"), 0);
    // No other begins, until none is rejected.
    assert!(!duel.try_connect_from("198.18.0.9:5001"));
    assert!(!reject(&mut duel, &[]));
    assert!(duel.try_connect_from("198.18.0.9:5002"));
}

#[test]
fn many_connections_that_the_hosts_routes_reject_end_in_steps() {
    let mut config = SideConfig::default();
    config.shard.limits.connections = 1000;
    let mut duel = Duel::new(config);
    duel.side.listen(1000, duel.now);
    for port in 5000..5600 {
        assert!(duel.try_connect_from(&format!("198.18.0.9:{port}")));
    }
    let all = duel.side.shard.levels().connections;
    assert_eq!(all, 600);
    let mut left = vec![];
    while reject(&mut duel, &["198.18.0.9"]) {
        left.push(duel.side.shard.levels().connections);
    }
    assert_eq!(left, [344, 88]);
    assert_eq!(duel.side.shard.levels().connections, 0);
    assert_eq!(duel.side.counter("routes_ended_connections"), 600);
}
