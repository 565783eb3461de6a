use std::time::Duration;

use userspace_sctp::cause::Cause;
use userspace_sctp::chunk::{Chunk, Init, Report};
use userspace_sctp::parameter::{ADAPTATION_DDP, Parameter};
use userspace_sctp::{Config, Event, Failure, Outgoing, PostError, State};

use crate::script::{COOKIE, PEERS_TAG, Script, WINDOW, causes, error, init, millis, parameters};

fn ddp() -> Config {
    Config {
        adaptation: Some(ADAPTATION_DDP),
        ..Config::default()
    }
}

/// RFC9260-5.1-1, RFC9260-5.1.1-1, RFC9260-8.5.1-1.
#[test]
fn an_init_says_all_and_has_no_tag() {
    let mut script = Script::new(ddp());
    let id = script.stack.connect(script.now, crate::script::ends());
    let id = id.unwrap();
    let sent = script.one();
    let init = sent.init();
    assert_eq!(sent.tag(), 0);
    assert!(init.check().is_ok());
    assert_eq!((init.outbound_streams, init.inbound_streams), (16, 16));
    let expected = [
        Parameter::Adaptation(ADAPTATION_DDP),
        Parameter::AddressTypes {
            v4: true,
            v6: false,
        },
    ];
    assert!(init.parameters.iter().eq(expected));
    assert_eq!(script.state(id), State::CookieWait);
}

/// A message on stream 0.
fn early(byte: u8, len: usize) -> Outgoing<Vec<u8>> {
    Outgoing {
        stream: 0,
        protocol: 0,
        buffer: vec![byte; len],
    }
}

/// RFC9260-5.1: the COOKIE ECHO comes first, and nothing follows its packet until it is answered.
#[test]
fn what_is_posted_early_goes_with_the_cookie() {
    let mut script = Script::new(Config::default());
    let id = script.connect();
    let (now, first) = (script.now, script.tsn);
    let other = Outgoing {
        stream: 1,
        ..early(1, 1)
    };
    let refused = script.stack.post(now, id, other).unwrap_err();
    let no_stream = PostError::NoStream {
        stream: 1,
        streams: 1,
    };
    assert_eq!(refused.error, no_stream);
    for len in [100, 100, 1400] {
        script.stack.post(now, id, early(3, len)).unwrap();
    }
    script.nothing();
    let cookie = parameters(&[Parameter::StateCookie(COOKIE)]);
    script.peer(&[Chunk::InitAck(init(&cookie))]);
    let sent = script.one();
    assert_eq!(sent.chunks()[0], Chunk::CookieEcho(COOKIE));
    assert_eq!(sent.data(first), [0, 1]);
    script.stack.post(script.now, id, early(4, 10)).unwrap();
    script.nothing();
    script.peer(&[Chunk::CookieAck]);
    assert!(matches!(script.event(), Event::Established(_)));
    assert_eq!(script.one().data(first), [2, 3]);
    // Without a SACK T3-rtx expires for what went with the cookie.
    script.wait();
    assert_eq!(script.one().data(first)[0], 0);
    script.sack(4, WINDOW, &[]);
    let released = std::iter::from_fn(|| script.stack.poll_released()).count();
    assert_eq!(released, 4);
}

/// RFC9260-5.1: a COOKIE ECHO that was lost, perhaps because of its size, goes again alone.
#[test]
fn what_went_with_a_lost_or_stale_cookie_goes_again_when_the_association_is_established() {
    for is_stale in [false, true] {
        let mut script = Script::new(Config::default());
        let id = script.connect();
        let first = script.tsn;
        script.stack.post(script.now, id, early(3, 100)).unwrap();
        let cookie = parameters(&[Parameter::StateCookie(COOKIE)]);
        script.peer(&[Chunk::InitAck(init(&cookie))]);
        assert_eq!(script.one().data(first), [0]);
        if is_stale {
            let stale = causes(&[Cause::StaleCookie(millis(5))]);
            script.peer(&[error(&stale)]);
            assert!(matches!(script.one().only(), Chunk::Init(_)));
            script.peer(&[Chunk::InitAck(init(&cookie))]);
        } else {
            script.wait();
        }
        assert_eq!(script.one().only(), Chunk::CookieEcho(COOKIE));
        script.peer(&[Chunk::CookieAck]);
        assert_eq!(script.one().data(first), [0]);
        script.sack(1, WINDOW, &[]);
        assert_eq!(script.stack.poll_released(), Some(vec![3; 100]));
    }
}

/// RFC9260-5.1.4-1, RFC9260-3.3.11-2, RFC9260-3.3.3-4, RFC9260-5.1.1-2.
#[test]
fn an_init_ack_is_answered_by_its_cookie() {
    let (mut script, id) = Script::established(Config::default());
    let agreed = script.info(id).agreed;
    assert_eq!((agreed.outbound_streams, agreed.inbound_streams), (5, 10));
    script.post(id, 1);
    assert_eq!(script.one().tag(), PEERS_TAG);
}

/// RFC9260-3.3.3-6, RFC9260-3.3.3-12, RFC9260-3.3.3-15, RFC9260-5.1.2-2, RFC9260-5.1-15, RFC9260-5.1-16: none of these
/// answers begins an association.
#[test]
fn an_init_ack_that_lacks_something_ends_the_attempt() {
    let good = parameters(&[
        Parameter::StateCookie(COOKIE),
        Parameter::Adaptation(ADAPTATION_DDP),
    ]);
    let no_cookie = parameters(&[Parameter::Adaptation(ADAPTATION_DDP)]);
    let no_layer = parameters(&[Parameter::StateCookie(COOKIE)]);
    let other_layer = parameters(&[Parameter::StateCookie(COOKIE), Parameter::Adaptation(2)]);
    let host_name = [&good[..], &[0, 11, 0, 8, b'h', b'o', b's', 0]].concat();
    let good = init(&good);
    let cases = [
        (Init { tag: 0, ..good }, Cause::InvalidParameter),
        (
            Init {
                outbound_streams: 0,
                ..good
            },
            Cause::InvalidParameter,
        ),
        (
            Init {
                inbound_streams: 0,
                ..good
            },
            Cause::InvalidParameter,
        ),
        (init(&no_cookie), Cause::MissingParameters(&[0, 7])),
        (
            init(&no_layer),
            Cause::UserInitiated(b"another adaptation layer"),
        ),
        (
            init(&other_layer),
            Cause::UserInitiated(b"another adaptation layer"),
        ),
        (
            init(&host_name),
            Cause::UnresolvableAddress(&host_name[host_name.len() - 8..]),
        ),
    ];
    for (answer, cause) in cases {
        let mut script = Script::new(ddp());
        let id = script.connect();
        script.peer(&[Chunk::InitAck(answer)]);
        let sent = script.one();
        let reflected = answer.tag == 0;
        assert_eq!(sent.abort(), (reflected, Some(cause)));
        let tag = if reflected { script.tag } else { answer.tag };
        assert_eq!(sent.tag(), tag, "RFC9260-5.1-17");
        assert!(matches!(
            script.event(),
            Event::Failed(Failure::BadAnswer(_))
        ));
        assert_eq!(script.stack.info(id), None);
    }
}

/// RFC9260-3.3.3-19.
#[test]
fn parameters_that_ask_for_it_are_reported_with_the_cookie() {
    let mut script = Script::new(Config::default());
    script.connect();
    let whole = [0xc1, 1, 0, 8, 1, 2, 3, 4];
    let report = Report::SkipAndReport;
    let unknown = Parameter::Unknown {
        report,
        whole: &whole,
    };
    let parameters = parameters(&[unknown, Parameter::StateCookie(COOKIE)]);
    script.peer(&[Chunk::InitAck(init(&parameters))]);
    let sent = script.one();
    let causes = causes(&[Cause::UnrecognizedParameters(&whole)]);
    assert_eq!(sent.chunks(), [Chunk::CookieEcho(COOKIE), error(&causes)]);
}

/// A peer that finds every cookie too old is not asked for ever.
#[test]
fn a_peer_whose_cookies_are_always_stale_is_given_up() {
    let stale = causes(&[Cause::StaleCookie(millis(5))]);
    let mut script = Script::new(Config::default());
    script.connect();
    for _ in 0..8 {
        script.init_ack();
        script.peer(&[error(&stale)]);
        assert!(matches!(script.one().only(), Chunk::Init(_)));
        script.no_event();
    }
    script.init_ack();
    script.peer(&[error(&stale)]);
    assert_eq!(script.event(), Event::Failed(Failure::SetupTimedOut));
    script.nothing();
}

/// RFC9260-5.1-6, RFC9260-5.1.5-3, RFC9260-5.1.5-4, RFC9260-5.1.5-5, RFC9260-5.1-8.
#[test]
fn a_listener_keeps_nothing_until_its_cookie_comes_back() {
    let mut script = Script::new(Config::default());
    script.stack.listen(crate::script::local()).unwrap();
    let mut cookies = Vec::new();
    for number in 0..1000 {
        let asked = Init {
            tag: PEERS_TAG + number,
            ..init(&[])
        };
        script.peer(&[Chunk::Init(asked)]);
        let sent = script.one();
        let ack = sent.init_ack();
        cookies.push((ack.tag, ack.initial_tsn, sent.cookie()));
    }
    assert_eq!(script.stack.associations().count(), 0);
    let (tag, tsn, cookie) = cookies.pop().unwrap();
    let mut forged = cookie.clone();
    forged[3] ^= 1;
    (script.tag, script.tsn) = (tag, tsn);
    script.peer(&[Chunk::CookieEcho(&forged)]);
    script.peer_with(
        tag ^ 1,
        crate::script::remote(),
        &[Chunk::CookieEcho(&cookie)],
    );
    script.nothing();
    assert_eq!(script.stack.associations().count(), 0);
    script.peer(&[Chunk::CookieEcho(&cookie)]);
    assert_eq!(script.one().only(), Chunk::CookieAck);
    assert!(matches!(script.event(), Event::Incoming(_)));
    // One that is too late, of another association.
    let (tag, _, cookie) = cookies.pop().unwrap();
    let id = script.stack.associations().next().unwrap();
    script.stack.abort(script.now, id, b"");
    script.sent();
    script.now += Duration::from_secs(61);
    script.peer_with(tag, crate::script::remote(), &[Chunk::CookieEcho(&cookie)]);
    let sent = script.one();
    let Chunk::Error(causes) = sent.only() else {
        panic!("{sent:?}");
    };
    let second = Duration::from_secs(1);
    assert_eq!(causes.iter().next(), Some(Cause::StaleCookie(second)));
}

/// The second one has the place of the first in all tables.
#[test]
fn an_association_in_the_place_of_one_that_is_gone_sends_its_init() {
    let mut script = Script::new(Config::default());
    let first = script.stack.connect(script.now, crate::script::ends());
    script.stack.abort(script.now, first.unwrap(), b"");
    script.connect();
    script.nothing();
}

/// RFC9260-3.2.2-3, RFC9260-5.1-7: nothing goes before the COOKIE ACK.
#[test]
fn a_report_that_does_not_fit_beside_the_cookie_is_not_sent() {
    let mut script = Script::new(Config::default());
    script.connect();
    let whole = [&[0xc1, 1, 0, 200][..], &[9; 196]].concat();
    let report = Report::SkipAndReport;
    let unknown = Parameter::Unknown {
        report,
        whole: &whole,
    };
    let cookie = [5; 1400];
    let parameters = parameters(&[unknown, Parameter::StateCookie(&cookie)]);
    script.peer(&[Chunk::InitAck(init(&parameters))]);
    assert_eq!(script.one().only(), Chunk::CookieEcho(&cookie));
}

/// RFC9260-3.3.3-17.
#[test]
fn an_init_ack_may_be_longer_than_a_packet_of_ours() {
    let mut script = Script::new(Config::default());
    script.connect();
    let whole = [&[0x81, 1, 0x06, 0x40][..], &[9; 1596]].concat();
    let report = Report::Skip;
    let unknown = Parameter::Unknown {
        report,
        whole: &whole,
    };
    let parameters = parameters(&[unknown, Parameter::StateCookie(COOKIE)]);
    script.peer(&[Chunk::InitAck(init(&parameters))]);
    assert_eq!(script.one().only(), Chunk::CookieEcho(COOKIE));
}

/// RFC9260-3.3.2.1.3-2, RFC9260-5.1.2-10 to RFC9260-5.1.2-13.
#[test]
fn wishes_of_an_init_for_addresses_and_a_longer_life_change_nothing() {
    let mut script = Script::new(Config::default());
    script.stack.listen(crate::script::local()).unwrap();
    let wishes = parameters(&[
        Parameter::CookiePreservative(Duration::from_secs(3600)),
        Parameter::AddressTypes {
            v4: false,
            v6: true,
        },
        Parameter::Address("2001:db8::2".parse().unwrap()),
    ]);
    script.peer(&[Chunk::Init(init(&wishes))]);
    let sent = script.one();
    assert_eq!(sent.to, crate::script::remote());
    let ack = sent.init_ack();
    let parameters: Vec<_> = ack.parameters.iter().collect();
    let [Parameter::StateCookie(cookie)] = parameters[..] else {
        panic!("{parameters:?}");
    };
    script.now += Duration::from_secs(61);
    script.tag = ack.tag;
    script.peer(&[Chunk::CookieEcho(cookie)]);
    assert!(matches!(script.one().only(), Chunk::Error(_)), "stale");
}

/// RFC9260-5.1-2, RFC9260-5.3.1-1, RFC9260-5.3.1-3, RFC9260-3.3.2-17.
#[test]
fn each_association_has_a_tag_and_a_tsn_of_its_own() {
    let mut script = Script::new(Config::default());
    let mut seen = std::collections::HashSet::new();
    for _ in 0..200 {
        let id = script.connect();
        assert_ne!(script.tag, 0);
        assert!(seen.insert(script.tag) && seen.insert(script.tsn.0));
        script.stack.abort(script.now, id, b"");
        script.sent();
    }
}

/// RFC9260-5.1.3-5, RFC9260-5.1.5-2: each hour there is another secret.
#[test]
fn a_cookie_of_a_secret_that_is_gone_is_dropped() {
    let mut script = Script::new(Config::default());
    script.stack.listen(crate::script::local()).unwrap();
    script.peer(&[Chunk::Init(init(&[]))]);
    let sent = script.one();
    let ack = sent.init_ack();
    let cookie = sent.cookie();
    script.tag = ack.tag;
    for is_known in [true, false] {
        script.now += Duration::from_secs(3600);
        script.stack.advance(script.now);
        script.peer(&[Chunk::CookieEcho(&cookie)]);
        // Stale, as long as it is known.
        assert_eq!(script.sent().len(), usize::from(is_known));
    }
    assert_eq!(script.stack.counters().foreign_cookies, 1);
}

/// RFC9260-16-1, RFC9260-16-2.
#[test]
fn the_protocol_parameters_are_the_recommended_ones() {
    let config = Config::default();
    let seconds = Duration::from_secs;
    assert_eq!(config.rto.initial, seconds(1));
    assert_eq!((config.rto.min, config.rto.max), (seconds(1), seconds(60)));
    assert_eq!(config.max_burst, 4);
    assert_eq!(config.association_max_retrans, 10);
    assert_eq!(config.path_max_retrans, 5);
    assert_eq!(config.max_init_retransmits, 8);
    assert_eq!(config.heartbeat_interval, Some(seconds(30)));
    assert_eq!(userspace_sctp::stateless::COOKIE_LIFESPAN, seconds(60));
    assert_eq!(userspace_sctp::inbound::acks::DELAY, millis(200));
}

/// RFC9260-3.3.2-10, RFC9260-3.3.3-8.
#[test]
fn no_window_below_the_least_is_offered() {
    let config = Config {
        receive_window: 10,
        ..Config::default()
    };
    let mut script = Script::new(config);
    let ends = crate::script::ends();
    script.stack.connect(script.now, ends).unwrap();
    let sent = script.one();
    let ours = sent.init();
    assert_eq!(ours.window, 1500);
    script.peer(&[Chunk::Init(init(&[]))]);
    let sent = script.one();
    let ack = sent.init_ack();
    assert_eq!(ack.window, 1500);
    // RFC9260-3.3.3-11: no more than the peer takes.
    assert_eq!((ack.outbound_streams, ack.inbound_streams), (5, 16));
}

/// RFC 9260 section 3.2: the length of a chunk has the padding of its parameters, but not of the last.
#[test]
fn the_padding_of_the_last_parameter_is_the_chunks() {
    let mut script = Script::new(Config::default());
    script
        .stack
        .connect(script.now, crate::script::ends())
        .unwrap();
    let sent = script.one();
    // Header, chunk and address types, with one type of two bytes and two of padding.
    assert_eq!(sent.bytes.len(), 12 + 20 + 8);
    assert_eq!(sent.bytes[14..16], [0, 20 + 6]);
    assert_eq!(sent.bytes[32..], [0, 12, 0, 6, 0, 5, 0, 0]);
}
