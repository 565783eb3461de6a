//! Oddities of opening (RFC 9293 sections 3.5 and 3.10.7): what else comes with a SYN, SYNs where
//! none is due, and a new connection where an old one stands in TIME-WAIT.

use userspace_tcp::{Config, Event, Flags, Options, State, Timestamps};

use crate::script::*;

const SYN: Flags = Flags::SYN;
const FIN: Flags = Flags::FIN;

/// The listener has no place for them before the handshake is over.
#[test]
fn bytes_and_a_fin_on_a_syn_are_left_for_the_peer_to_send_again() {
    let mut script = Script::new(plain());
    script.stack.listen(local(), 1).unwrap();
    let received = script.give(SYN | FIN, 0, 0, 100);
    assert!(received.new.is_empty());
    let syn_ack = script.one();
    assert_eq!((syn_ack.flags, syn_ack.ack), (SYN | ACK, 1));
    let received = script.give(ACK | FIN, 1, 1, 100);
    assert_eq!((received.new[0].offset, received.new[0].len), (0, 100));
    assert_eq!(script.events().len(), 2);
    assert_eq!(
        (script.one().ack, script.info().state),
        (102, State::CloseWait)
    );
}

/// Section 3.10.7.3, fourth: processing goes on at the sixth step.
#[test]
fn bytes_and_a_fin_on_the_syn_ack_count() {
    let mut script = Script::new(plain());
    script.connect();
    script.one();
    let header = script.header(SYN | ACK | FIN | Flags::URG, 0, 1, 1000, Options::default());
    let header = userspace_tcp::TcpHeader {
        urgent: 51,
        ..header
    };
    let received = script.give_header(header, 100);
    let range = received.new[0];
    assert_eq!((range.offset, range.skip, range.len), (0, 0, 100));
    assert_eq!(received.in_order_to, 100);
    assert_eq!(script.info().urgent_to, Some(50));
    let expected = [Event::Established, Event::Urgent, Event::PeerClosed];
    assert_eq!(script.events(), expected);
    assert_eq!(
        (script.one().ack, script.info().state),
        (102, State::CloseWait)
    );
}

#[test]
fn bytes_in_a_simultaneous_open_count_once_our_syn_is_acknowledged() {
    let mut script = Script::new(plain());
    script.connect();
    script.one();
    assert!(script.give(SYN, 0, 0, 100).new.is_empty());
    let syn_ack = script.one();
    assert_eq!((syn_ack.flags, syn_ack.ack), (SYN | ACK, 1));
    let received = script.give(SYN | ACK, 0, 1, 100);
    assert_eq!((received.new[0].offset, received.new[0].len), (0, 100));
    assert_eq!(
        (script.one().ack, script.events()),
        (101, vec![Event::Established])
    );
}

/// Section 3.10.7.4, fourth.
#[test]
fn another_syn_returns_a_half_open_connection_to_listen() {
    let mut script = Script::new(plain());
    script.stack.listen(local(), 1).unwrap();
    script.give(SYN, 0, 0, 0);
    script.one();
    script.give(SYN, 500, 0, 0);
    assert_eq!((script.out(), script.events()), (vec![], vec![]));
    assert_eq!(script.stack.connections_at(local()), 0);
    // Sent again, it opens.
    script.give(SYN, 500, 0, 0);
    assert_eq!(script.one().ack, 501);
}

#[test]
fn another_syn_does_not_disturb_an_active_open() {
    let mut script = Script::new(plain());
    script.connect();
    script.one();
    script.give(SYN, 0, 0, 0);
    script.one();
    script.give(SYN, 500, 0, 0);
    let challenge = script.one();
    assert_eq!((challenge.flags, challenge.ack), (ACK, 1));
    assert_eq!(script.info().state, State::SynReceived);
}

/// RFC 9293 section 3.5.1: how a peer learns that it has crashed. RFC 7323 section 3.2 would drop
/// what has no timestamp.
#[test]
fn a_syn_without_timestamps_is_challenged_too() {
    let mut script = Script::active(Config {
        sack: false,
        ..Config::default()
    });
    script.give(SYN, 500, 0, 0);
    let challenge = script.one();
    assert_eq!((challenge.flags, challenge.seq, challenge.ack), (ACK, 1, 1));
    // It resets what it does not know.
    script.give(Flags::RST, 1, 0, 0);
    assert_eq!(script.events(), [Event::Reset]);
}

/// A connection that the peer opened, and that stands in TIME-WAIT.
fn time_wait(config: Config, timestamps: Option<Timestamps>) -> Script {
    let options = Options {
        timestamps,
        mss: Some(1460),
        ..Options::default()
    };
    let mut script = Script::new(config);
    script.stack.listen(local(), 1).unwrap();
    script.give_options(SYN, 0, 0, 0, options);
    script.one();
    script.give_options(ACK, 1, 1, 0, options);
    script.events();
    script.send_thousands(10);
    script.close();
    script.give_options(ACK, 1, 10_001, 0, options);
    script.one();
    script.give_options(ACK | FIN, 1, 10_002, 0, options);
    script.one();
    assert_eq!(script.info().state, State::TimeWait);
    script.events();
    script
}

/// Section 3.6.1 (MAY-2): no number of the old connection is used again, however fast it was.
#[test]
fn what_follows_a_connection_in_time_wait_begins_behind_its_numbers() {
    let mut script = time_wait(plain(), None);
    let old = script.iss;
    script.give(SYN, 100, 0, 0);
    assert_eq!(script.one().flags, SYN | ACK);
    assert!(script.iss.distance(old.add(10_002)) > 0);
}

/// RFC 6191 section 2: the timestamp decides where there is one.
#[test]
fn a_syn_with_an_older_timestamp_opens_nothing_anew() {
    let config = Config {
        sack: false,
        ..Config::default()
    };
    for (value, opens) in [(4999, false), (5000, true), (5001, true)] {
        let at = |value| Some(Timestamps { value, echo: 0 });
        let mut script = time_wait(config.clone(), at(5000));
        let options = Options {
            timestamps: at(value),
            ..Options::default()
        };
        script.give_options(SYN, 100, 0, 0, options);
        assert_eq!(script.one().flags.syn(), opens, "{value}");
    }
}
