//! A peer with several addresses (RFC 9260 sections 5.1.2, 5.4, 6.4, 8.2).

use std::net::SocketAddr;
use std::time::Duration;

use userspace_sctp::cause::Cause;
use userspace_sctp::chunk::{Chunk, Init};
use userspace_sctp::parameter::Parameter;
use userspace_sctp::{AssocId, Config, Ends, Event, IcmpError, IcmpQuote, PathInfo};

use crate::script::{
    COOKIE, PEERS_TAG, Script, Sent, data, ends, init, local, millis, parameters, remote,
};

/// The peer's second address.
pub fn second() -> SocketAddr {
    "198.18.1.2:5001".parse().unwrap()
}

pub fn config() -> Config {
    Config {
        peer_addresses: 4,
        ..Config::default()
    }
}

fn address(text: &str) -> Parameter<'static> {
    Parameter::Address(text.parse().unwrap())
}

pub fn paths(script: &Script, id: AssocId) -> Vec<PathInfo> {
    script.stack.paths(id).collect()
}

fn remotes(script: &Script, id: AssocId) -> Vec<String> {
    let all = paths(script, id).into_iter();
    all.map(|path| path.remote.to_string()).collect()
}

/// An association whose peer lists these addresses in its INIT ACK.
pub fn listing(all: &[Parameter<'_>]) -> (Script, AssocId) {
    listing_with(config(), all)
}

pub fn listing_with(config: Config, all: &[Parameter<'_>]) -> (Script, AssocId) {
    let mut script = Script::new(config);
    let id = script.connect();
    let mut list = vec![Parameter::StateCookie(COOKIE)];
    list.extend_from_slice(all);
    script.peer(&[Chunk::InitAck(init(&parameters(&list)))]);
    assert_eq!(script.one().only(), Chunk::CookieEcho(COOKIE));
    script.peer(&[Chunk::CookieAck]);
    assert!(matches!(script.event(), Event::Established(_)));
    (script, id)
}

pub fn heartbeat(sent: &Sent) -> Vec<u8> {
    let Chunk::Heartbeat(info) = sent.only() else {
        panic!("{sent:?}");
    };
    info.to_vec()
}

/// The second address is confirmed.
pub fn two() -> (Script, AssocId) {
    two_with(config())
}

pub fn two_with(config: Config) -> (Script, AssocId) {
    let (mut script, id) = listing_with(config, &[address("198.18.1.2")]);
    script.wait_for(millis(0));
    let probe = script.one();
    assert_eq!(probe.to, second());
    script.peer_from(second(), &[Chunk::HeartbeatAck(&heartbeat(&probe))]);
    assert!(paths(&script, id)[1].is_confirmed);
    let confirmed = Event::PathConfirmed {
        remote: second().ip(),
    };
    assert_eq!(script.event(), confirmed);
    script.nothing();
    (script, id)
}

/// RFC9260-5.1.2-4, RFC9260-5.1.2-9 to RFC9260-5.1.2-11: of one family, and no more than are wanted.
#[test]
fn the_addresses_of_an_init_ack_are_used_up_to_a_bound() {
    let (script, id) = listing(&[
        address("198.18.0.2"),
        address("2001:db8::7"),
        address("224.0.0.1"),
        address("127.0.0.1"),
        address("198.18.0.1"),
        address("198.18.1.2"),
        address("198.18.1.2"),
        address("198.18.2.2"),
        address("198.18.3.2"),
        address("198.18.4.2"),
    ]);
    let expected = ["198.18.0.2", "198.18.1.2", "198.18.2.2", "198.18.3.2"];
    assert_eq!(remotes(&script, id), expected);
    let (mut script, id) = Script::established(Config::default());
    script.post(id, 10);
    assert_eq!(remotes(&script, id), ["198.18.0.2"]);
}

/// What the layer above does not want gets nothing, and nothing that comes from there is the association's.
#[test]
fn an_address_that_is_not_kept_is_not_used() {
    let (mut script, id) = listing(&[address("198.18.1.2"), address("198.18.2.2")]);
    let kept = "198.18.2.2".parse().unwrap();
    let (now, first) = (script.now, second());
    script
        .stack
        .keep_addresses(now, id, |remote| remote == kept);
    assert_eq!(remotes(&script, id), ["198.18.0.2", "198.18.2.2"]);
    script.wait_for(millis(0));
    assert_eq!(script.one().to.ip(), kept);
    let at = |remote| Ends { remote, ..ends() };
    assert_eq!(script.stack.find(&at(first)), None);
    let kept = SocketAddr::new(kept, first.port());
    assert_eq!(script.stack.find(&at(kept)), Some(id));
    for _ in 0..300 {
        script.wait_for(millis(500));
        assert!(script.sent().iter().all(|sent| sent.to != first));
    }
}

/// RFC9260-5.4-4, RFC9260-5.4-5: nothing but heartbeats goes to an address that nobody has answered from.
#[test]
fn an_address_that_does_not_answer_gets_heartbeats_only() {
    let (mut script, id) = listing(&[address("198.18.1.2")]);
    let mut to_second = 0;
    script.post(id, 100);
    let mut events = Vec::new();
    for _ in 0..300 {
        script.wait_for(millis(500));
        for sent in script.sent() {
            if sent.to == second() {
                heartbeat(&sent);
                to_second += 1;
            }
        }
        events.extend(std::iter::from_fn(|| script.stack.poll_event()).map(|(_, event)| event));
        if events.iter().any(|event| matches!(event, Event::Failed(_))) {
            break;
        }
    }
    assert!(to_second > 5, "{to_second}");
    let down = |remote: SocketAddr| Event::PathDown {
        remote: remote.ip(),
    };
    assert!(events.contains(&down(second())) && events.contains(&down(remote())));
}

/// RFC9260-5.4-2, RFC9260-8.1-2: heartbeats elsewhere say nothing of the association.
#[test]
fn a_dead_second_address_ends_nothing() {
    let (mut script, id) = listing(&[address("198.18.1.2")]);
    let end = script.now + Duration::from_secs(3600);
    while script.now < end {
        script.wait();
        for sent in script.sent() {
            if sent.to == remote() {
                let info = heartbeat(&sent);
                script.peer(&[Chunk::HeartbeatAck(&info)]);
            }
        }
    }
    let [first, other] = paths(&script, id)[..] else {
        panic!("two paths");
    };
    assert!(first.is_active && !other.is_active && !other.is_confirmed);
}

/// RFC9260-5.4: only the nonce of the path's own heartbeat confirms it, wherever the answer comes from.
#[test]
fn an_address_is_confirmed_by_its_own_heartbeat() {
    let (mut script, id) = listing(&[address("198.18.1.2"), address("198.18.2.2")]);
    script.wait_for(millis(0));
    let sent = script.sent();
    assert_eq!(sent.len(), 2);
    let mut forged = heartbeat(&sent[0]);
    forged[7] ^= 1;
    script.peer_from(second(), &[Chunk::HeartbeatAck(&forged)]);
    let confirmed = |script: &Script| -> Vec<bool> {
        let all = paths(script, id).into_iter();
        all.map(|path| path.is_confirmed).collect()
    };
    assert_eq!(confirmed(&script), [true, false, false]);
    script.peer(&[Chunk::HeartbeatAck(&heartbeat(&sent[1]))]);
    assert_eq!(confirmed(&script), [true, false, true]);
}

/// RFC9260-6.4-2 to RFC9260-6.4-4: answers go back to where their packets came from.
#[test]
fn packets_come_from_any_address_and_are_answered_there() {
    let (mut script, _) = two();
    script.peer_from(second(), &[Chunk::Data(data(0, &[1]))]);
    script.peer_from(second(), &[Chunk::Data(data(1, &[2]))]);
    let sent = script.one();
    assert!(matches!(sent.only(), Chunk::Sack(_)));
    assert_eq!((sent.to, script.shown.clone()), (second(), vec![1, 2]));
    let info = [0, 1, 0, 8, 1, 2, 3, 4];
    script.peer(&[Chunk::Heartbeat(&info)]);
    assert_eq!(script.one().to, remote());
    script.peer_from(second(), &[Chunk::Heartbeat(&info)]);
    assert_eq!(script.one().to, second());
    // Strangers get nothing with the association's tag, and nothing is shown.
    let stranger = "198.18.9.2:5001".parse().unwrap();
    script.peer_from(stranger, &[Chunk::Data(data(2, &[3]))]);
    script.nothing();
    assert_eq!(script.shown, [1, 2]);
}

/// RFC9260-5.4-4, RFC9260-5.4-6.
#[test]
fn an_unconfirmed_address_gets_heartbeat_acks_and_nothing_else() {
    let (mut script, _) = listing(&[address("198.18.1.2")]);
    script.peer_from(second(), &[Chunk::Data(data(0, &[1]))]);
    script.peer_from(second(), &[Chunk::Data(data(1, &[2]))]);
    let info = [0, 1, 0, 8, 1, 2, 3, 4];
    script.peer_from(second(), &[Chunk::Heartbeat(&info)]);
    let sent = script.sent();
    let ack = sent.iter().find(|sent| sent.to == second()).unwrap();
    assert_eq!(ack.only(), Chunk::HeartbeatAck(&info));
    let sack = sent.iter().find(|sent| sent.to == remote()).unwrap();
    assert!(matches!(sack.only(), Chunk::Sack(_)));
}

/// RFC9260-5.1.2-4, RFC9260-5.1.2-7: the cookie has the addresses, and may come from any of them.
#[test]
fn the_addresses_of_an_init_are_in_its_cookie() {
    let mut script = Script::new(config());
    script.stack.listen(local()).unwrap();
    let list = parameters(&[address("198.18.1.2")]);
    script.peer(&[Chunk::Init(init(&list))]);
    let answer = script.one();
    assert_eq!(answer.to, remote());
    let ack = answer.init_ack();
    let cookie = answer.cookie();
    script.tag = ack.tag;
    let stranger = "198.18.9.2:5001".parse().unwrap();
    script.peer_from(stranger, &[Chunk::CookieEcho(&cookie)]);
    script.nothing();
    script.peer_from(second(), &[Chunk::CookieEcho(&cookie)]);
    let Event::Incoming(agreed) = script.event() else {
        panic!("no association");
    };
    assert_eq!(agreed.ends, ends());
    let sent = script.sent();
    // RFC9260-5.4-7.
    assert_eq!((sent[0].only(), sent[0].to), (Chunk::CookieAck, remote()));
    let id = script.stack.find(&ends()).unwrap();
    assert_eq!(remotes(&script, id), ["198.18.0.2", "198.18.1.2"]);
    let other = userspace_sctp::Ends {
        remote: second(),
        ..ends()
    };
    assert_eq!(script.stack.find(&other), Some(id));
    script.stack.abort(script.now, id, b"");
    assert_eq!(script.stack.find(&other), None);
}

/// RFC9260-5.2.2-2 to RFC9260-5.2.2-5.
#[test]
fn a_restart_may_add_no_address() {
    let (mut script, id) = two();
    let list = parameters(&[address("198.18.1.2"), address("198.18.2.2")]);
    script.peer(&[Chunk::Init(init(&list))]);
    let sent = script.one();
    let (reflected, cause) = sent.abort();
    assert!(!reflected && matches!(cause, Some(Cause::RestartWithNewAddresses(_))));
    // From another address, with fewer of them.
    for from in [remote(), second()] {
        script.peer_from(from, &[Chunk::Init(init(&[]))]);
        let sent = script.one();
        assert!(matches!(sent.only(), Chunk::InitAck(_)));
        assert_eq!(sent.to, from);
    }
    assert_eq!(paths(&script, id).len(), 2);
}

/// RFC9260-7.3-2, RFC9260-7.3-3, RFC9260-10-6: messages fit the narrowest path.
#[test]
fn each_path_has_a_size_and_messages_fit_all() {
    let (mut script, id) = two();
    let quote = |remote| IcmpQuote {
        ends: userspace_sctp::Ends { remote, ..ends() },
        tag: PEERS_TAG,
        init_tag: None,
    };
    let too_big = IcmpError::PacketTooBig { mtu: 1300 };
    assert!(script.stack.icmp(script.now, &quote(second()), too_big));
    let message_max = 1300 - 20 - 12 - 16;
    assert_eq!(script.event(), Event::MtuChanged { message_max });
    let mtus: Vec<_> = paths(&script, id).iter().map(|path| path.mtu).collect();
    assert_eq!(mtus, [1500, 1300]);
    assert_eq!(script.stack.message_max(id), message_max);
}

/// RFC9260-10-8: what is said of an address that the peer was never heard from does not end the association.
#[test]
fn an_unconfirmed_address_without_sctp_ends_nothing() {
    let (mut script, _) = listing(&[address("198.18.1.2")]);
    let quote = IcmpQuote {
        ends: userspace_sctp::Ends {
            remote: second(),
            ..ends()
        },
        tag: PEERS_TAG,
        init_tag: None,
    };
    assert!(!script.stack.icmp(script.now, &quote, IcmpError::NoProtocol));
    script.no_event();
}

/// An address that another association has stays with that one.
#[test]
fn two_associations_do_not_share_an_address() {
    let (mut script, first) = two();
    let other: SocketAddr = "198.18.5.2:5001".parse().unwrap();
    let stack = &mut script.stack;
    let route = userspace_sctp::Ends {
        remote: other,
        ..ends()
    };
    let second_id = stack.connect(script.now, route).unwrap();
    let sent = script.one();
    let asked = sent.init();
    script.tag = asked.tag;
    let list = [
        Parameter::StateCookie(COOKIE),
        address("198.18.1.2"),
        address("198.18.6.2"),
    ];
    script.peer_from(other, &[Chunk::InitAck(init(&parameters(&list)))]);
    assert_eq!(remotes(&script, second_id), ["198.18.5.2", "198.18.6.2"]);
    assert_eq!(remotes(&script, first), ["198.18.0.2", "198.18.1.2"]);
}

/// RFC9260-5.1.2-6, RFC9260-5.2.1-3 to RFC9260-5.2.1-5: both ask, and the peer's INIT comes from an address that is not
/// known yet.
#[test]
fn an_init_from_another_address_is_answered_where_we_have_asked() {
    let mut script = Script::new(config());
    let id = script.connect();
    let list = parameters(&[address("198.18.0.2"), address("198.18.1.2")]);
    script.peer_from(second(), &[Chunk::Init(init(&list))]);
    let answer = script.one();
    assert_eq!(answer.to, remote());
    let ack = answer.init_ack();
    assert_eq!(ack.tag, script.tag);
    let cookie = answer.cookie();
    script.peer_from(second(), &[Chunk::CookieEcho(&cookie)]);
    assert!(matches!(script.event(), Event::Established(_)));
    assert_eq!(remotes(&script, id), ["198.18.0.2", "198.18.1.2"]);
}

/// RFC9260-5.2.4-5: a peer that has restarted may ask from any of its addresses.
#[test]
fn a_restart_from_another_address_goes_on_there() {
    let (mut script, id) = two();
    let list = parameters(&[address("198.18.0.2"), address("198.18.1.2")]);
    let restarted = Init {
        tag: 77,
        ..init(&list)
    };
    script.peer_from(second(), &[Chunk::Init(restarted)]);
    let answer = script.one();
    let ack = answer.init_ack();
    let cookie = answer.cookie();
    script.tag = ack.tag;
    script.peer_from(second(), &[Chunk::CookieEcho(&cookie)]);
    assert!(matches!(script.event(), Event::Restarted(_)));
    let confirmed: Vec<_> = paths(&script, id)
        .iter()
        .map(|path| path.is_confirmed)
        .collect();
    assert_eq!(confirmed, [false, true]);
    assert_eq!(script.sent()[0].to, second());
    script.post(id, 100);
    assert_eq!(script.one().to, second());
}

/// RFC9260-5.4: a peer can't keep an address that it only claims. Whoever asks from there gets an association of its own.
#[test]
fn an_address_that_is_claimed_only_is_free_for_its_owner() {
    let mut script = Script::new(config());
    script.stack.listen(local()).unwrap();
    // The claim is the peer's whose own address is the second one.
    let claim = parameters(&[address("198.18.0.2")]);
    let mut all = Vec::new();
    for (from, list) in [(second(), claim), (remote(), Vec::new())] {
        script.peer_from(from, &[Chunk::Init(init(&list))]);
        let answer = script.sent().pop().unwrap();
        assert_eq!(answer.to, from);
        let ack = answer.init_ack();
        let cookie = answer.cookie();
        script.tag = ack.tag;
        script.peer_from(from, &[Chunk::CookieEcho(&cookie)]);
        let Event::Incoming(agreed) = script.event() else {
            panic!("no association");
        };
        assert_eq!(agreed.ends.remote, from);
        script.wait_for(millis(0));
        script.sent();
        all.push(script.stack.find(&agreed.ends).unwrap());
    }
    assert_ne!(all[0], all[1]);
    assert_eq!(remotes(&script, all[0]), ["198.18.1.2"]);
    assert_eq!(remotes(&script, all[1]), ["198.18.0.2"]);
    // Nothing of the first one goes there any more.
    for _ in 0..10 {
        script.wait();
        let sent = script.sent();
        let to_owner: Vec<_> = sent.iter().filter(|sent| sent.to == remote()).collect();
        assert!(to_owner.len() <= 1, "{to_owner:?}");
    }
}

/// RFC9260-6.4-2, RFC9260-5.4: an answer that waits goes back to where its packet came from, as long as that is this
/// peer's address: not to who has it now.
#[test]
fn answers_do_not_follow_an_address_that_is_withdrawn() {
    let third: SocketAddr = "198.18.2.2:5001".parse().unwrap();
    for (from, expected) in [(second(), remote()), (third, third)] {
        let (mut script, _) = listing(&[address("198.18.1.2"), address("198.18.2.2")]);
        script.stack.listen(local()).unwrap();
        script.wait_for(millis(0));
        let probes = script.sent();
        let probe = probes.iter().find(|sent| sent.to == third).unwrap();
        script.peer_from(third, &[Chunk::HeartbeatAck(&heartbeat(probe))]);
        let info = [0, 1, 0, 8, 1, 2, 3, 4];
        script.peer_from(from, &[Chunk::Heartbeat(&info)]);
        // Before it is answered the second address' owner asks for an association.
        script.peer_from(second(), &[Chunk::Init(init(&[]))]);
        let sent = script.sent();
        let is_ack = |sent: &&Sent| sent.chunks().contains(&Chunk::HeartbeatAck(&info));
        let answered: Vec<_> = sent.iter().filter(is_ack).map(|sent| sent.to).collect();
        assert_eq!(answered, [expected], "{from}");
    }
}
