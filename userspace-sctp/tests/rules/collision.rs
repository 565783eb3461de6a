use std::net::SocketAddr;

use userspace_net::Instant;
use userspace_sctp::cause::Cause;
use userspace_sctp::chunk::{Chunk, Init};
use userspace_sctp::parameter::Parameter;
use userspace_sctp::{Config, Event, Outgoing, Stack, State};

use crate::paths;
use crate::script::{COOKIE, PEERS_TAG, Script, Sent, WINDOW, data, init, parameters, remote};

/// The peer's second tag.
const OTHER_TAG: u32 = 0x6666_0002;

/// Our INIT ACK: its tag and cookie.
fn ask(script: &mut Script, tag: u32) -> (u32, Vec<u8>) {
    script.peer(&[Chunk::Init(Init { tag, ..init(&[]) })]);
    let sent = script.one();
    assert_eq!(sent.tag(), tag, "RFC9260-5.2.2-7");
    answer(&sent)
}

fn answer(sent: &Sent) -> (u32, Vec<u8>) {
    let ack = sent.init_ack();
    let cookie = sent.cookie();
    (ack.tag, cookie.to_vec())
}

/// RFC9260-5.2.1-1, RFC9260-5.2.1-6, RFC9260-5.2.1-11; table 12, row M 0 A A and row M X A A: action B.
#[test]
fn when_both_ask_one_association_comes_of_it() {
    for is_echoed in [false, true] {
        let mut script = Script::new(Config::default());
        let id = script.connect();
        if is_echoed {
            script.init_ack();
        }
        let before = script.state(id);
        let (tag, cookie) = ask(&mut script, OTHER_TAG);
        assert_eq!(tag, script.tag, "the one of our INIT");
        assert_eq!(script.state(id), before);
        script.peer(&[Chunk::CookieEcho(&cookie)]);
        assert!(matches!(script.event(), Event::Established(_)));
        let sent = script.one();
        assert_eq!((sent.only(), sent.tag()), (Chunk::CookieAck, OTHER_TAG));
        // T1 is stopped.
        assert_eq!(script.state(id), State::Established);
        script.now += std::time::Duration::from_secs(10);
        script.stack.advance(script.now);
        script.nothing();
    }
}

/// RFC9260-5.2.4-8: action B of an association that is established.
#[test]
fn a_cookie_of_both_asking_that_is_late_brings_the_peers_tag() {
    let mut script = Script::new(Config::default());
    let id = script.connect();
    let (_, cookie) = ask(&mut script, OTHER_TAG);
    script.init_ack();
    script.peer(&[Chunk::CookieAck]);
    assert!(matches!(script.event(), Event::Established(_)));
    script.peer(&[Chunk::CookieEcho(&cookie)]);
    let sent = script.one();
    assert_eq!((sent.only(), sent.tag()), (Chunk::CookieAck, OTHER_TAG));
    script.no_event();
    assert_eq!(script.state(id), State::Established);
}

/// Table 12, row M M A A: action D (RFC9260-5.2.4-11, RFC9260-5.2.4-12).
#[test]
fn a_cookie_that_comes_again_is_acknowledged_again_even_if_it_is_late() {
    let mut script = Script::new(Config::default());
    let id = script.connect();
    script.init_ack();
    let (_, cookie) = ask(&mut script, PEERS_TAG);
    script.peer(&[Chunk::CookieEcho(&cookie)]);
    assert!(matches!(script.event(), Event::Established(_)));
    assert_eq!(script.one().only(), Chunk::CookieAck);
    script.now += std::time::Duration::from_secs(70);
    script.peer(&[Chunk::CookieEcho(&cookie)]);
    assert_eq!(script.one().only(), Chunk::CookieAck);
    script.no_event();
    assert_eq!(script.state(id), State::Established);
}

/// Table 12, row X M 0 0: action C (RFC9260-5.2.4-9), and a row that the table does not have (RFC9260-5.2.4-3).
#[test]
fn a_cookie_of_before_our_own_init_is_dropped() {
    for tag in [PEERS_TAG, OTHER_TAG] {
        let mut script = Script::new(Config::default());
        script.stack.listen(crate::script::local()).unwrap();
        let (early, cookie) = ask(&mut script, tag);
        let id = script.connect();
        script.init_ack();
        script.peer_with(early, remote(), &[Chunk::CookieEcho(&cookie)]);
        script.nothing();
        script.no_event();
        assert_eq!(script.state(id), State::CookieEchoed);
    }
}

/// RFC9260-5.2.2-8, RFC9260-5.2.2-10; table 12, row X X M M: action A (RFC9260-5.2.4-5, RFC9260-5.2.4-6).
#[test]
fn a_peer_that_has_restarted_begins_anew() {
    let (mut script, id) = Script::established(Config::default());
    script.post(id, 100);
    script.sent();
    let before = script.info(id);
    let (tag, cookie) = ask(&mut script, OTHER_TAG);
    assert_ne!(tag, script.tag, "a new one");
    assert_eq!(script.info(id), before);
    let ours = script.tag;
    script.tag = tag;
    // A message with the cookie waits until the layer above knows of the restart.
    let first = Chunk::Data(crate::script::data(0, b"m"));
    script.peer(&[Chunk::CookieEcho(&cookie), first]);
    assert!(matches!(script.event(), Event::Restarted(_)));
    assert!(script.shown.is_empty());
    assert!(script.stack.poll_released().is_some());
    let sent = script.one();
    assert_eq!((sent.only(), sent.tag()), (Chunk::CookieAck, OTHER_TAG));
    assert_eq!(
        (script.state(id), script.info(id).flight),
        (State::Established, 0)
    );
    // The old tag is good for nothing any more, and the peer's TSNs start over.
    script.peer_with(ours, remote(), &[Chunk::Heartbeat(b"beat")]);
    script.nothing();
    script.peer(&[first]);
    assert_eq!(script.shown, b"m");
}

/// RFC9260-5.2.4-5, RFC9260-7.2.1-1: the paths of an association that starts over are those that it had, and so are the
/// packets that they take.
#[test]
fn after_a_restart_the_first_window_is_of_packets_that_the_path_takes() {
    let (mut script, id) = Script::established(Config::default());
    script.stack.limit_mtu(script.now, id, 576);
    script.event();
    let (tag, cookie) = ask(&mut script, OTHER_TAG);
    script.tag = tag;
    script.peer(&[Chunk::CookieEcho(&cookie)]);
    assert!(matches!(script.event(), Event::Restarted(_)));
    let after = script.info(id);
    assert_eq!((after.mtu, after.cwnd), (576, 4 * (576 - 20 - 12)));
}

/// A tie tag of another association is none of ours.
#[test]
fn a_cookie_without_the_associations_tie_tags_restarts_nothing() {
    let (mut script, id) = Script::established(Config::default());
    script.stack.listen(crate::script::local()).unwrap();
    let (tag, cookie) = ask(&mut script, OTHER_TAG);
    script.stack.abort(script.now, id, b"");
    script.sent();
    let id = script.connect();
    script.init_ack();
    script.peer(&[Chunk::CookieAck]);
    script.event();
    script.peer_with(tag, remote(), &[Chunk::CookieEcho(&cookie)]);
    script.nothing();
    script.no_event();
    assert_eq!(script.state(id), State::Established);
}

/// RFC9260-5.2.4-1, RFC9260-5.2.4-2.
#[test]
fn a_late_cookie_of_a_restart_is_stale() {
    let (mut script, _) = Script::established(Config::default());
    let (tag, cookie) = ask(&mut script, OTHER_TAG);
    script.now += std::time::Duration::from_secs(61);
    script.peer_with(tag, remote(), &[Chunk::CookieEcho(&cookie)]);
    let sent = script.one();
    let Chunk::Error(causes) = sent.only() else {
        panic!("{sent:?}");
    };
    assert!(matches!(causes.iter().next(), Some(Cause::StaleCookie(_))));
    assert_eq!(sent.tag(), OTHER_TAG);
    script.no_event();
}

/// RFC9260-5.1.2-6, RFC9260-5.2.2-2 to RFC9260-5.2.2-5.
#[test]
fn an_init_that_would_add_an_address_is_refused() {
    let (mut script, id) = Script::established(Config::default());
    script.stack.listen(crate::script::local()).unwrap();
    let stranger: SocketAddr = "198.18.0.9:5001".parse().unwrap();
    let named = parameters(&[Parameter::Address(remote().ip())]);
    let asked = Init {
        tag: OTHER_TAG,
        ..init(&named)
    };
    script.peer_with(0, stranger, &[Chunk::Init(asked)]);
    let sent = script.one();
    let added = parameters(&[Parameter::Address(stranger.ip())]);
    assert_eq!(
        sent.abort(),
        (false, Some(Cause::RestartWithNewAddresses(&added)))
    );
    assert_eq!((sent.tag(), sent.to), (OTHER_TAG, stranger));
    assert_eq!(script.state(id), State::Established);
}

/// RFC9260-12.3-2.
#[test]
fn an_init_that_is_not_alone_or_has_a_tag_is_dropped() {
    let (mut script, id) = Script::established(Config::default());
    let asked = Chunk::Init(init(&[]));
    script.peer_with(0, remote(), &[asked, Chunk::Heartbeat(b"beat")]);
    script.peer_with(script.tag, remote(), &[asked]);
    script.nothing();
    script.peer(&[Chunk::ShutdownAck, asked, Chunk::Heartbeat(b"beat")]);
    script.nothing();
    assert_eq!(script.state(id), State::Established);
}

/// RFC9260-12.3-2: wherever it comes from, and whatever there is: no association, one that is asked for, one whose peer
/// claims the address.
#[test]
fn an_init_that_is_not_alone_or_has_a_tag_is_dropped_from_any_address() {
    let stranger: SocketAddr = "198.18.0.9:5001".parse().unwrap();
    let named = parameters(&[Parameter::Address(remote().ip())]);
    for (is_asking, listens) in [(false, true), (false, false), (true, true), (true, false)] {
        let (mut script, id) = if is_asking {
            let mut script = Script::new(paths::config());
            let id = script.connect();
            (script, id)
        } else {
            paths::listing(&[Parameter::Address(paths::second().ip())])
        };
        if listens {
            script.stack.listen(crate::script::local()).unwrap();
        }
        script.wait_for(std::time::Duration::ZERO);
        script.sent();
        let before = (script.info(id), paths::paths(&script, id));
        for from in [remote(), paths::second(), stranger] {
            for list in [&[][..], &named] {
                let asked = Chunk::Init(Init {
                    tag: OTHER_TAG,
                    ..init(list)
                });
                script.peer_with(0, from, &[asked, Chunk::Heartbeat(b"beat")]);
                script.peer_with(0, from, &[asked, asked]);
                script.peer_with(script.tag, from, &[asked]);
                script.peer_with(77, from, &[asked]);
                script.nothing();
                script.no_event();
                let after = (script.info(id), paths::paths(&script, id));
                assert_eq!(after, before, "{from}");
            }
        }
        assert_eq!(script.stack.counters().inits_refused, 3 * 2 * 4);
    }
}

/// RFC9260-5.2.4-8: what went with our cookie had the tag that the peer has no more. It goes again at once, with the other
/// one; and what comes with the peer's cookie is taken.
#[test]
fn early_data_goes_again_when_both_have_asked() {
    let mut script = Script::new(Config::default());
    let id = script.connect();
    let early = Outgoing {
        stream: 0,
        protocol: 0,
        buffer: vec![3; 100],
    };
    script.stack.post(script.now, id, early).unwrap();
    let parameters = parameters(&[Parameter::StateCookie(COOKIE)]);
    script.peer(&[Chunk::InitAck(init(&parameters))]);
    assert_eq!(script.one().data(script.tsn), [0]);
    let (_, cookie) = ask(&mut script, OTHER_TAG);
    let theirs = Chunk::Data(data(0, b"m"));
    script.peer(&[Chunk::CookieEcho(&cookie), theirs]);
    assert!(matches!(script.event(), Event::Established(_)));
    assert_eq!(script.shown, b"m");
    let sent = script.one();
    assert_eq!(
        (sent.tag(), sent.chunks()[0]),
        (OTHER_TAG, Chunk::CookieAck)
    );
    assert_eq!(sent.data(script.tsn), [0]);
    script.sack(1, WINDOW, &[]);
    assert_eq!(script.stack.poll_released(), Some(vec![3; 100]));
}

/// RFC9260-5.1.3-6: of an association that there is, a cookie tells neither tags nor TSN, and never our secrets. Two of
/// the same INIT differ by what is in the INIT ACK, by random tie tags, and by their MAC.
#[test]
fn a_cookie_tells_nothing_of_the_association_that_there_is() {
    let (mut script, _) = Script::established(Config::default());
    let (tag, cookie) = ask(&mut script, OTHER_TAG);
    let has = |bytes: [u8; 4]| cookie.windows(4).any(|found| found == bytes);
    let ours = [script.tag, PEERS_TAG, script.tsn.0];
    assert!(ours.iter().all(|hidden| !has(hidden.to_be_bytes())));
    assert!(has(tag.to_be_bytes()) && has(OTHER_TAG.to_be_bytes()));
    // The secret of the stack.
    assert!(!has([9; 4]));
    let cookie_of = |secret: u8| {
        let mut script = Script::new(Config::default());
        script.stack = Stack::new(Config::default(), [secret; 16], Instant::ZERO);
        script.stack.listen(crate::script::local()).unwrap();
        script.peer(&[Chunk::Init(init(&[]))]);
        let sent = script.one();
        let ack = sent.init_ack();
        let (_, mut cookie) = answer(&sent);
        // What the INIT ACK says is blanked.
        for said in [ack.tag, ack.initial_tsn.0] {
            let said = said.to_be_bytes();
            let at = cookie.windows(4).position(|found| found == said).unwrap();
            cookie[at..at + 4].fill(0);
        }
        cookie
    };
    let [one, other] = [1, 2].map(cookie_of);
    let differing = one.iter().zip(&other).filter(|(a, b)| a != b).count();
    let mac = one.len() - 16;
    assert!(
        one[..mac] == other[..mac] && differing > 8,
        "{one:?} {other:?}"
    );
}

/// RFC9260-9.2-24, RFC9260-5.2.4-7.
#[test]
fn an_association_at_its_end_is_not_restarted() {
    let (mut script, id) = Script::established(Config::default());
    let (tag, cookie) = ask(&mut script, OTHER_TAG);
    let cumulative = script.tsn.previous();
    script.peer(&[Chunk::Shutdown { cumulative }]);
    assert_eq!(script.event(), Event::PeerClosed);
    assert_eq!(script.one().only(), Chunk::ShutdownAck);
    script.peer(&[Chunk::Init(init(&[]))]);
    assert_eq!(script.one().only(), Chunk::ShutdownAck);
    script.peer_with(tag, remote(), &[Chunk::CookieEcho(&cookie)]);
    let sent = script.one();
    let [Chunk::Error(causes), Chunk::ShutdownAck] = sent.chunks()[..] else {
        panic!("{:?}", sent.chunks());
    };
    assert_eq!(causes.iter().next(), Some(Cause::CookieInShutdown));
    assert_eq!(script.state(id), State::ShutdownAckSent);
}

/// RFC9260-5.2.1-7 to RFC9260-5.2.1-9: the same while the association is asked for.
#[test]
fn an_init_that_would_add_an_address_leaves_a_set_up_as_it_is() {
    let mut script = Script::new(Config::default());
    let id = script.connect();
    script.init_ack();
    let stranger: SocketAddr = "198.18.0.9:5001".parse().unwrap();
    let named = parameters(&[Parameter::Address(remote().ip())]);
    script.peer_with(0, stranger, &[Chunk::Init(init(&named))]);
    let sent = script.one();
    let added = parameters(&[Parameter::Address(stranger.ip())]);
    let cause = Cause::RestartWithNewAddresses(&added);
    assert_eq!((sent.abort(), sent.to), ((false, Some(cause)), stranger));
    assert_eq!(script.state(id), State::CookieEchoed);
    script.peer(&[Chunk::CookieAck]);
    assert!(matches!(script.event(), Event::Established(_)));
}
