use userspace_net::FourTuple;
use userspace_tcp::{
    Config, ConnOptions, ConnectError, Event, Flags, ListenError, Options, Segment, SendRefusal,
    SoftError, State, TcpHeader, Timestamps,
};

use crate::script::*;

#[test]
fn a_syn_offers_every_option() {
    let mut script = Script::new(Config::default());
    script.connect();
    let syn = script.one();
    assert_eq!((syn.flags, syn.len, syn.window), (Flags::SYN, 0, u16::MAX));
    assert_eq!(syn.options.mss, Some(1460));
    assert_eq!(syn.options.window_scale, Some(5));
    assert!(syn.options.sack_permitted && syn.options.timestamps.is_some());
    assert_eq!(script.info().state, State::SynSent);
    assert_eq!(script.send(10), Err(SendRefusal::NotEstablished));
}

#[test]
fn a_syn_ack_offers_only_what_the_peer_has_offered() {
    let mut script = Script::new(Config::default());
    script.stack.listen(local(), 1).unwrap();
    let options = Options {
        mss: Some(1000),
        ..Options::default()
    };
    script.give_options(Flags::SYN, 0, 0, 0, options);
    let syn_ack = script.one();
    assert_eq!(
        syn_ack.options,
        Options {
            mss: Some(1460),
            ..Options::default()
        }
    );
    script.give(ACK, 1, 1, 0);
    assert_eq!(
        script.events(),
        [Event::Incoming {
            listener: local(),
            tuple: FourTuple::new(local(), remote())
        }]
    );
    assert_eq!(script.stack.mss(script.conn()), 1000);
}

#[test]
fn timestamps_take_twelve_bytes_of_each_segment() {
    let script = Script::active(Config {
        sack: false,
        ..Config::default()
    });
    assert_eq!(script.stack.mss(script.conn()), 1448);
}

#[test]
fn the_smaller_of_both_mss_counts_and_none_means_the_default() {
    for (theirs, ours, expected) in [
        (Some(9000), 1460, 1460),
        (Some(700), 1460, 700),
        (None, 1460, 536),
        (Some(1), 1460, 88),
    ] {
        let mut script = Script::new(plain());
        script.stack.listen(local(), 1).unwrap();
        let options = Options {
            mss: theirs,
            ..Options::default()
        };
        let header = script.header(Flags::SYN, 0, 0, 1000, options);
        let segment = Segment::new(header, &[]);
        let conn_options = ConnOptions { mss: ours };
        script
            .stack
            .receive(script.now, script.tuple, &segment, conn_options);
        script.out();
        script.give(ACK, 1, 1, 0);
        script.events();
        assert_eq!(script.stack.mss(script.conn()), expected);
    }
}

#[test]
fn a_syn_is_sent_again_with_back_off_and_then_given_up() {
    let config = Config {
        syn_retries: 3,
        ..Config::default()
    };
    let mut script = Script::new(config);
    script.connect();
    script.one();
    for wait in [1, 2, 4] {
        assert_eq!(script.events(), []);
        assert_eq!(script.wait_for_timer(), wait * SEC);
        assert_eq!(script.one().flags, Flags::SYN);
    }
    assert_eq!(script.events(), [Event::SoftError(SoftError::NoAnswer)]);
    script.wait_for_timer();
    assert_eq!(
        (script.events(), script.out()),
        (vec![Event::TimedOut], vec![])
    );
    assert!(script.is_gone());
}

#[test]
fn a_reset_refuses_a_connection_only_if_it_acknowledges_the_syn() {
    let mut script = Script::new(plain());
    script.connect();
    script.one();
    script.give(Flags::RST, 0, 0, 0);
    script.give(Flags::RST | ACK, 0, 2, 0);
    assert_eq!((script.events(), script.out()), (vec![], vec![]));
    script.give(Flags::RST | ACK, 0, 1, 0);
    assert_eq!(script.events(), [Event::Refused]);
    assert!(script.is_gone());
}

#[test]
fn a_wrong_acknowledgment_in_syn_sent_is_reset() {
    let mut script = Script::new(plain());
    script.connect();
    script.one();
    script.give(Flags::SYN | ACK, 0, 77, 0);
    let out = script.one();
    assert_eq!((out.flags, out.seq), (Flags::RST, 77));
    assert_eq!(script.info().state, State::SynSent);
}

#[test]
fn a_lost_syn_ack_is_sent_again() {
    let mut script = Script::new(plain());
    script.stack.listen(local(), 1).unwrap();
    script.give(Flags::SYN, 0, 0, 0);
    let first = script.one();
    // By the peer's SYN...
    script.give(Flags::SYN, 0, 0, 0);
    assert_eq!(script.one(), first);
    // ... and by time.
    assert_eq!(script.wait_for_timer(), SEC);
    assert_eq!(script.one(), first);
    assert_eq!(script.events(), []);
    script.give(ACK, 1, 1, 0);
    assert_eq!(script.events().len(), 1);
}

#[test]
fn a_half_open_connection_that_dies_was_never_there() {
    let mut script = Script::new(Config {
        syn_retries: 1,
        ..plain()
    });
    script.stack.listen(local(), 1).unwrap();
    script.give(Flags::SYN, 0, 0, 0);
    script.out();
    script.wait_for_timer();
    script.out();
    script.wait_for_timer();
    assert_eq!((script.events(), script.out()), (vec![], vec![]));
    assert_eq!(
        (
            script.stack.connections_at(local()),
            script.stack.next_deadline()
        ),
        (0, None)
    );
    // Its place in the backlog is free again.
    script.give(Flags::SYN, 0, 0, 0);
    assert_eq!(script.one().flags, Flags::SYN | ACK);
    script.give(Flags::RST, 1, 0, 0);
    assert_eq!(
        (script.events(), script.stack.connections_at(local())),
        (vec![], 0)
    );
    script.give(Flags::SYN, 0, 0, 0);
    assert_eq!(script.one().flags, Flags::SYN | ACK);
}

/// A SYN of a peer at another port.
fn give_syn(script: &mut Script, port: u16) {
    let remote = userspace_net::Endpoint { port, ..remote() };
    let header = script.header(Flags::SYN, 0, 0, 1000, Options::default());
    let tuple = FourTuple::new(local(), remote);
    let segment = Segment::new(header, &[]);
    script.stack.receive(script.now, tuple, &segment, OPTIONS);
}

fn no_cookies() -> Config {
    Config {
        syn_cookies: false,
        ..plain()
    }
}

#[test]
fn without_cookies_a_full_backlog_drops_syns() {
    let mut script = Script::new(no_cookies());
    script.stack.listen(local(), 2).unwrap();
    for port in 1000..1005 {
        give_syn(&mut script, port);
    }
    assert_eq!(script.stack.connections_at(local()), 2);
    assert_eq!(script.stack.counters().backlog_full, 3);
}

/// RFC 4987 section 3.4: a flood of SYNs that nobody stands behind shuts nobody out for long.
#[test]
fn without_cookies_a_half_open_connection_whose_syn_ack_timed_out_gives_way() {
    let mut script = Script::new(no_cookies());
    script.stack.listen(local(), 2).unwrap();
    for port in 1000..1002 {
        give_syn(&mut script, port);
    }
    script.out_to_anybody();
    script.wait_for_timer();
    script.out_to_anybody();
    script.give(Flags::SYN, 0, 0, 0);
    assert_eq!(script.one().flags, Flags::SYN | ACK);
    assert_eq!(script.stack.connections_at(local()), 2);
    script.give(ACK, 1, 1, 0);
    assert!(matches!(script.events()[..], [Event::Incoming { .. }]));
    let counters = script.stack.counters();
    assert_eq!((counters.half_open_evicted, counters.backlog_full), (1, 0));
}

#[test]
fn half_open_connections_do_not_keep_the_table_from_an_active_open() {
    let mut script = Script::new(Config {
        connections: 2,
        ..plain()
    });
    script.stack.listen(local(), 10).unwrap();
    for port in 1000..1002 {
        give_syn(&mut script, port);
    }
    script.out_to_anybody();
    let tuple = FourTuple::new((local().addr, 9000), remote());
    let too_many = script.stack.connect(script.now, tuple, OPTIONS);
    assert_eq!(too_many, Err(ConnectError::TooMany { limit: 2 }));
    script.wait_for_timer();
    script.out_to_anybody();
    assert!(script.stack.connect(script.now, tuple, OPTIONS).is_ok());
}

#[test]
fn bytes_with_the_last_ack_of_the_handshake_count() {
    let mut script = Script::new(plain());
    script.stack.listen(local(), 1).unwrap();
    script.give(Flags::SYN, 0, 0, 0);
    script.out();
    let received = script.give(ACK | Flags::FIN, 1, 1, 100);
    assert_eq!((received.new[0].offset, received.new[0].len), (0, 100));
    let events = script.events();
    assert!(
        matches!(events[..], [Event::Incoming { .. }, Event::PeerClosed]),
        "{events:?}"
    );
    assert_eq!(received.conn, script.conn);
    assert_eq!(script.one().ack, 102);
}

#[test]
fn a_strange_ack_in_syn_received_is_reset() {
    let mut script = Script::new(plain());
    script.stack.listen(local(), 1).unwrap();
    script.give(Flags::SYN, 0, 0, 0);
    script.out();
    script.give(ACK, 1, 5, 0);
    let out = script.one();
    assert_eq!((out.flags, out.seq), (Flags::RST, 5));
    assert_eq!(script.events(), []);
}

#[test]
fn segments_to_nobody_are_reset_but_resets_are_not() {
    let mut script = Script::new(Config {
        resets_per_second: 100,
        ..plain()
    });
    script.give(Flags::SYN, 0, 0, 0);
    let out = script.one();
    assert_eq!((out.flags, out.seq, out.ack), (Flags::RST | ACK, 0, 1));
    script.give(ACK, 50, 1234, 10);
    let out = script.one();
    assert_eq!((out.flags, out.seq), (Flags::RST, 1234));
    script.give(Flags::RST, 0, 0, 0);
    assert_eq!(script.out(), []);
    for _ in 0..100 {
        script.give(ACK, 50, 1234, 10);
    }
    assert_eq!(script.out().len(), 8);
    assert_eq!(script.stack.counters().resets_limited, 92);
}

#[test]
fn a_listener_resets_an_ack_and_ignores_a_reset() {
    let mut script = Script::new(plain());
    script.stack.listen(local(), 1).unwrap();
    assert_eq!(
        script.stack.listen(local(), 1),
        Err(ListenError::InUse { local: local() })
    );
    script.give(Flags::RST, 0, 0, 0);
    assert_eq!(script.out(), []);
    script.give(Flags::SYN | ACK, 0, 9, 0);
    assert_eq!(
        (script.one().flags, script.stack.connections_at(local())),
        (Flags::RST, 0)
    );
}

#[test]
fn a_listener_for_every_address_takes_what_no_other_does() {
    let mut script = Script::new(plain());
    let any = userspace_net::Endpoint {
        addr: std::net::Ipv4Addr::UNSPECIFIED.into(),
        ..local()
    };
    script.stack.listen(any, 1).unwrap();
    script.give(Flags::SYN, 0, 0, 0);
    script.out();
    script.give(ACK, 1, 1, 0);
    let events = script.events();
    assert!(matches!(events[..], [Event::Incoming { listener, .. }] if listener == any));
}

#[test]
fn unlisten_resets_what_is_half_open_and_keeps_what_is_established() {
    let mut script = Script::passive(plain());
    let established = script.conn();
    let tuple = FourTuple::new(
        local(),
        userspace_net::Endpoint {
            port: 9,
            ..remote()
        },
    );
    let header = script.header(Flags::SYN, 0, 0, 1000, Options::default());
    let segment = Segment::new(header, &[]);
    script.stack.receive(script.now, tuple, &segment, OPTIONS);
    while script.stack.poll_transmit(script.now).is_some() {}
    assert!(script.stack.unlisten(local()) && !script.stack.unlisten(local()));
    let reset = script.stack.poll_transmit(script.now).unwrap();
    assert_eq!(reset.tuple, tuple);
    let of = reset.conn.expect("its way is the connection's");
    assert!(script.stack.info(of).is_none());
    assert!(reset.header.flags.rst());
    assert!(script.stack.info(established).is_some());
    assert_eq!(script.stack.connections_at(local()), 1);
}

#[test]
fn connect_names_what_is_wrong() {
    let mut script = Script::new(Config {
        connections: 1,
        ..plain()
    });
    script.connect();
    let (now, tuple) = (script.now, script.tuple);
    assert_eq!(
        script.stack.connect(now, tuple, OPTIONS),
        Err(ConnectError::InUse { tuple })
    );
    let other = FourTuple::new(
        local(),
        userspace_net::Endpoint {
            port: 1,
            ..remote()
        },
    );
    let full = script.stack.connect(now, other, OPTIONS);
    assert_eq!(full, Err(ConnectError::TooMany { limit: 1 }));
    let zero = FourTuple::new(
        local(),
        userspace_net::Endpoint {
            port: 0,
            ..remote()
        },
    );
    let unusable = script.stack.connect(now, zero, OPTIONS);
    assert_eq!(unusable, Err(ConnectError::DropReason { tuple: zero }));
}

#[test]
fn a_segment_without_timestamps_is_dropped_once_they_are_in_use() {
    let mut script = Script::active(Config {
        sack: false,
        ..Config::default()
    });
    assert!(script.give(ACK, 1, 1, 100).new.is_empty());
    assert_eq!(
        (script.info().counters.paws_dropped, script.out()),
        (1, vec![])
    );
    // But a reset needs none (RFC 7323 section 3.2).
    script.give(Flags::RST, 1, 0, 0);
    assert_eq!(script.events(), [Event::Reset]);
}

#[test]
fn an_old_timestamp_is_answered_and_dropped() {
    let mut script = Script::active(Config {
        sack: false,
        ..Config::default()
    });
    let options = |value| Options {
        timestamps: Some(Timestamps { value, echo: 0 }),
        ..Options::default()
    };
    assert_eq!(
        script.give_options(ACK, 1, 1, 100, options(6000)).new.len(),
        1
    );
    assert!(
        script
            .give_options(ACK, 101, 1, 100, options(5999))
            .new
            .is_empty()
    );
    let out = script.one();
    assert_eq!((out.ack, out.options.timestamps.unwrap().echo), (101, 6000));
    assert_eq!(
        script
            .give_options(ACK, 101, 1, 100, options(6000))
            .new
            .len(),
        1
    );
}

#[test]
fn broadcast_and_multicast_are_not_answered() {
    let mut script = Script::new(plain());
    for addr in ["255.255.255.255", "224.0.0.1", "0.0.0.0", "ff02::1"] {
        let bad = userspace_net::Endpoint {
            addr: addr.parse().unwrap(),
            ..remote()
        };
        let header = TcpHeader {
            flags: Flags::SYN,
            ..TcpHeader::default()
        };
        let segment = Segment::new(header, &[]);
        script
            .stack
            .receive(script.now, FourTuple::new(local(), bad), &segment, OPTIONS);
        script
            .stack
            .receive(script.now, FourTuple::new(bad, remote()), &segment, OPTIONS);
    }
    assert!(script.stack.poll_transmit(script.now).is_none());
}

/// RFC 7323 section 2.2, also for the SYN-ACK that ends a simultaneous open.
#[test]
fn the_window_of_a_syn_is_not_scaled() {
    let mut script = Script::new(Config {
        timestamps: false,
        sack: false,
        ..Config::default()
    });
    script.connect();
    script.one();
    let options = Options {
        window_scale: Some(7),
        ..Options::default()
    };
    script.give_options(Flags::SYN, 0, 0, 0, options);
    assert_eq!(script.one().flags, Flags::SYN | ACK);
    script.give_options(Flags::SYN | ACK, 0, 1, 0, options);
    assert_eq!(script.events(), [Event::Established]);
    assert_eq!(script.info().peer_window, u64::from(PEER_WINDOW));
    script.give(ACK, 1, 1, 0);
    assert_eq!(script.info().peer_window, u64::from(PEER_WINDOW) << 7);
}
