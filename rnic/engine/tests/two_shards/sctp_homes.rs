//! A peer with several addresses (RFC 9260 sections 5.1.2, 5.4, 6.4 and 8.2).

use std::net::IpAddr;
use std::time::Duration;

use rnic_engine::command::{Answer, Command, PathInUse, ShardEvent, Timeouts};
use rnic_ipc::control::{DisconnectReason, Event, MpaOptions};
use rnic_ipc::id::QpNum;
use rnic_ipc::work::WrOpcode;
use rnic_net::{AllowList, ListOwner, Path, PeerRules};
use userspace_sctp::chunk::Chunk;

use crate::known_flows::Told;
use crate::sctp_peer::{ACCEPT, CONTROL, Heard, control};
use crate::sctp_raw::{OTHER, SctpDuel};
use crate::side::{LISTENER, SideConfig};

const FIRST: &str = "198.18.0.10";
const SECOND: &str = "198.18.1.10";
const THIRD: &str = "198.18.2.10";
/// The way to the second address.
const ROUTER: [u8; 6] = [2, 0, 0, 0, 7, 7];
/// What the failure of a path may take: six timeouts.
const FAILOVER: Duration = Duration::from_secs(90);

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// All three are the peer's; nothing is set up yet.
fn duel() -> SctpDuel {
    let mut duel = SctpDuel::new(SideConfig::default());
    duel.peers[OTHER].homes = [FIRST, SECOND, THIRD].map(ip).to_vec();
    duel
}

/// The way there, as the side knows it from the first address on.
fn way(mac: [u8; 6]) -> Path {
    Path {
        src_mac: [2, 0, 0, 0, 0, 2],
        dst_mac: mac,
        vlan: None,
        mtu: 1500,
        hop_limit: 64,
    }
}

/// The peer's addresses to which the side asks for a way.
fn asked(duel: &mut SctpDuel) -> Vec<IpAddr> {
    let events = duel
        .side
        .events
        .extract_if(.., |event| matches!(event, ShardEvent::PathDoubtful { .. }));
    let asked = events.map(|event| match event {
        ShardEvent::PathDoubtful { remote, .. } => remote,
        other => panic!("{other:?}"),
    });
    asked.collect()
}

fn tell_way(duel: &mut SctpDuel, remote: &str, path: Path) {
    let command = Command::MovePath {
        local: duel.side.address.ip(),
        remote: ip(remote),
        path,
    };
    duel.side.shard.execute(command, duel.now).unwrap();
    duel.pump();
}

fn paths(duel: &mut SctpDuel) -> Vec<(IpAddr, Option<[u8; 6]>)> {
    let found = duel.side.shard.execute(Command::QueryPaths, duel.now);
    let Ok(Answer::Paths(paths)) = found else {
        panic!("{found:?}");
    };
    let ways = paths.into_iter();
    ways.map(|PathInUse { remote, path, .. }| (remote, path.map(|path| path.dst_mac)))
        .collect()
}

fn came_to(duel: &SctpDuel, home: &str) -> Vec<[u8; 6]> {
    let came = duel.peers[OTHER].came.iter();
    let to_it = came.filter(|(to, _)| *to == ip(home));
    to_it.map(|(_, mac)| *mac).collect()
}

/// The queue pair of a session that the peer has asked for; the way to its second address is known.
fn session(duel: &mut SctpDuel) -> QpNum {
    let qp = duel.open(OTHER);
    assert_eq!(asked(duel), [SECOND, THIRD].map(ip));
    tell_way(duel, SECOND, way(ROUTER));
    duel.run_for(Duration::from_secs(5));
    qp
}

/// A Write of ours is acknowledged.
fn writes(duel: &mut SctpDuel, qp: QpNum, wr_id: u64) {
    let stag = duel.side.stag;
    duel.side
        .post_work(qp, WrOpcode::Write, wr_id, 0, (stag, 0), 100);
    duel.run_for(FAILOVER);
    let done = duel.side.completion(wr_id);
    assert!(done.is_some(), "{:?}", duel.side.events);
}

#[test]
fn an_address_gets_heartbeats_once_the_way_there_is_known() {
    let mut duel = duel();
    let qp = duel.open(OTHER);
    duel.run_for(Duration::from_secs(5));
    let [first, second, third] = [FIRST, SECOND, THIRD].map(ip);
    let of_first = Some([2, 0, 0, 0, 0, 10]);
    let unknown = [(first, of_first), (second, None), (third, None)];
    assert_eq!(paths(&mut duel), unknown);
    assert!(duel.peers[OTHER].came.iter().all(|(to, _)| *to == first));
    assert_eq!(asked(&mut duel), [second, third]);

    tell_way(&mut duel, SECOND, way(ROUTER));
    assert_eq!(paths(&mut duel)[1], (second, Some(ROUTER)));
    duel.run_for(Duration::from_secs(60));
    let came = came_to(&duel, SECOND);
    assert!(!came.is_empty());
    assert!(came.iter().all(|mac| *mac == ROUTER), "{came:?}");
    assert_eq!(came_to(&duel, THIRD).len(), 0);
    assert_eq!(duel.side.counter("path_moves"), 0);
    writes(&mut duel, qp, 1);
}

#[test]
fn a_session_outlives_the_address_that_it_began_with() {
    let mut duel = duel();
    let told = Told::by(&mut duel.side);
    let qp = session(&mut duel);
    assert_eq!(told.count(), 2, "where the peer has answered");
    duel.peers[OTHER].deaf_at = vec![ip(FIRST)];
    writes(&mut duel, qp, 1);
    // Heartbeats find out that it is not there at all.
    duel.run_for(Duration::from_secs(400));
    let asked_again = asked(&mut duel);
    assert!(asked_again.contains(&ip(FIRST)), "the way may be another");

    // It is there again, and the second one is not.
    duel.peers[OTHER].deaf_at = vec![ip(SECOND)];
    duel.run_for(Duration::from_secs(120));
    writes(&mut duel, qp, 2);
    assert_eq!(told.count(), 2);

    let disconnect = Command::Disconnect { qp, abort: true };
    duel.side.shard.execute(disconnect, duel.now).unwrap();
    duel.pump();
    assert_eq!(told.count(), 0);
}

/// The last packet of an association, too, goes to where the peer is.
#[test]
fn an_abort_goes_to_the_address_that_answers() {
    let mut duel = duel();
    let qp = session(&mut duel);
    duel.peers[OTHER].deaf_at = vec![ip(FIRST)];
    writes(&mut duel, qp, 1);
    abort(&mut duel, qp);
    let heard = &duel.peers[OTHER].heard;
    assert!(matches!(heard[..], [Heard::Abort { .. }]), "{heard:?}");
}

fn abort(duel: &mut SctpDuel, qp: QpNum) {
    duel.peers[OTHER].heard.clear();
    duel.peers[OTHER].came.clear();
    let disconnect = Command::Disconnect { qp, abort: true };
    duel.side.shard.execute(disconnect, duel.now).unwrap();
    duel.pump();
}

/// Although data would go elsewhere.
#[test]
fn an_abort_goes_to_where_the_peer_was_heard_last() {
    let mut duel = duel();
    let qp = session(&mut duel);
    duel.peers[OTHER].send_from(ip(SECOND));
    let beat = Chunk::Heartbeat(&[0, 1, 0, 8, 1, 2, 3, 4]);
    duel.send_chunks(OTHER, &[beat]);
    abort(&mut duel, qp);
    assert_eq!(duel.peers[OTHER].came, [(ip(SECOND), ROUTER)]);
}

/// RFC9260-5.1-3, RFC9260-5.1.2-7: on the wire, too, by the way that it came.
#[test]
fn an_init_ack_goes_to_where_the_init_came_from() {
    for home in [FIRST, SECOND, THIRD] {
        let mut duel = duel();
        duel.peers[OTHER].send_from(ip(home));
        let mut init = duel.peers[OTHER].init();
        init[6..12].copy_from_slice(&ROUTER);
        duel.give(&[init]);
        let peer = &duel.peers[OTHER];
        assert_eq!(peer.heard, [Heard::InitAck], "{home}");
        assert_eq!(peer.came, [(ip(home), ROUTER)], "{home}");
    }
}

/// The way to the first address is that of the INIT, wherever the cookie comes from.
#[test]
fn a_cookie_from_another_address_changes_no_way() {
    let mut duel = duel();
    let init = duel.peers[OTHER].init();
    duel.give(&[init]);
    duel.peers[OTHER].send_from(ip(SECOND));
    let mut echo = duel.peers[OTHER].cookie_echo(&[]);
    echo[6..12].copy_from_slice(&ROUTER);
    duel.give(&[echo]);
    let of_first = Some([2, 0, 0, 0, 0, 10]);
    assert_eq!(paths(&mut duel)[0], (ip(FIRST), of_first));
}

#[test]
fn the_way_to_another_address_may_change() {
    let mut duel = duel();
    let qp = session(&mut duel);
    let other = [2, 0, 0, 0, 8, 8];
    tell_way(&mut duel, SECOND, way(other));
    assert_eq!(duel.side.counter("path_moves"), 1);
    assert_eq!(paths(&mut duel)[1], (ip(SECOND), Some(other)));
    duel.peers[OTHER].deaf_at = vec![ip(FIRST)];
    duel.peers[OTHER].came.clear();
    writes(&mut duel, qp, 1);
    let came = came_to(&duel, SECOND);
    assert!(came.iter().all(|mac| *mac == other), "{came:?}");
}

/// As over TCP: one address alone would be tried for ten minutes.
#[test]
fn a_peer_that_acknowledges_nothing_is_given_up_after_the_user_timeout() {
    let mut duel = SctpDuel::new(SideConfig::default());
    let qp = duel.open(OTHER);
    duel.peers[OTHER].answers = false;
    let stag = duel.side.stag;
    duel.side
        .post_work(qp, WrOpcode::Write, 1, 0, (stag, 0), 100);
    duel.run_for(Duration::from_secs(99));
    assert_eq!(duel.side.disconnected(qp), None);
    duel.run_for(Duration::from_secs(2));
    assert_eq!(duel.side.disconnected(qp), Some(DisconnectReason::TimedOut));
}

#[test]
fn a_user_timeout_is_of_the_sessions_that_there_are_too() {
    let mut duel = SctpDuel::new(SideConfig::default());
    let qp = duel.open(OTHER);
    let timeouts = Timeouts {
        user_timeout: Duration::from_secs(3),
        keepalive: None,
        first_byte_timeout: Duration::from_secs(1),
        answer_timeout: Duration::from_secs(20),
        receive_wait: rnic_ipc::control::ReceiveWait::Off,
    };
    let set = Command::SetTimeouts(timeouts);
    duel.side.shard.execute(set, duel.now).unwrap();
    duel.peers[OTHER].answers = false;
    let stag = duel.side.stag;
    duel.side
        .post_work(qp, WrOpcode::Write, 1, 0, (stag, 0), 100);
    duel.run_for(Duration::from_millis(2900));
    assert_eq!(duel.side.disconnected(qp), None);
    duel.run_for(Duration::from_millis(200));
    assert_eq!(duel.side.disconnected(qp), Some(DisconnectReason::TimedOut));
}

fn only(networks: &[&str]) -> PeerRules {
    let networks = networks.iter().map(|network| network.parse().unwrap());
    let mut rules = PeerRules::default();
    rules.add(ListOwner::User, AllowList::new(networks.collect()).unwrap());
    rules
}

/// Without the rule each of them would be asked for.
#[test]
fn an_address_that_the_listener_s_rules_refuse_is_not_used() {
    let mut duel = duel();
    let command = Command::SetPeerRules {
        listener: LISTENER,
        peers: only(&["198.18.0.0/24", "198.18.2.0/24"]),
    };
    duel.side.shard.execute(command, duel.now).unwrap();
    duel.open(OTHER);
    assert_eq!(asked(&mut duel), [ip(THIRD)]);
    tell_way(&mut duel, SECOND, way(ROUTER));
    duel.run_for(Duration::from_secs(60));
    assert_eq!(came_to(&duel, SECOND).len(), 0);
    let remotes: Vec<_> = paths(&mut duel)
        .into_iter()
        .map(|(remote, _)| remote)
        .collect();
    assert_eq!(remotes, [FIRST, THIRD].map(ip));
}

/// The same of who connects, whose peer lists its addresses when it answers.
#[test]
fn an_address_that_the_client_s_rules_refuse_is_not_used() {
    let mut duel = duel();
    duel.side.peers = only(&["198.18.0.0/23"]);
    let qp = duel.side.create_qp();
    let (port, remote) = (
        duel.side.address.port(),
        "198.18.0.10:5000".parse().unwrap(),
    );
    let path = way([2, 0, 0, 0, 0, 10]);
    let mpa = MpaOptions {
        revision: 1,
        ..MpaOptions::default()
    };
    let asks = duel
        .side
        .connect(qp, port, remote, path, mpa, b"", duel.now);
    asks.unwrap();
    duel.pump();
    assert!(
        asked(&mut duel).is_empty(),
        "not before the session is there"
    );
    duel.send(OTHER, CONTROL, &control(0, ACCEPT, b""));
    assert!(duel.side.is_established(qp));
    assert_eq!(asked(&mut duel), [ip(SECOND)]);
    tell_way(&mut duel, SECOND, way(ROUTER));
    duel.run_for(Duration::from_secs(60));
    assert!(!came_to(&duel, SECOND).is_empty());
    assert_eq!(came_to(&duel, THIRD).len(), 0);
    duel.peers[OTHER].deaf_at = vec![ip(FIRST)];
    writes(&mut duel, qp, 1);
    let ended = |event: &Event| matches!(event, Event::Disconnected { .. });
    assert!(!duel.side.client_events().any(ended));
}
