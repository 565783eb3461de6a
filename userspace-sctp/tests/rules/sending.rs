use std::time::Duration;

use userspace_net::Instant;
use userspace_sctp::chunk::{Chunk, Data, GapBlock};
use userspace_sctp::{
    AssocCounters, Config, Event, Failure, IcmpError, IcmpQuote, Outgoing, PostError, State,
};

use crate::script::{PEERS_TAG, Script, Sent, WINDOW, data, ends, millis, remote};

/// The longest message at an MTU of 1500.
const FULL: usize = 1500 - 20 - 12 - 16;

fn numbers(script: &mut Script) -> Vec<Vec<u32>> {
    let first = script.tsn;
    let sent = script.sent();
    sent.iter().map(|sent: &Sent| sent.data(first)).collect()
}

/// RFC9260-7.2.1-1, RFC9260-7.2.1-7, RFC9260-6.1-11.
#[test]
fn the_congestion_window_begins_with_some_packets_and_grows_by_one_a_sack() {
    let (mut script, id) = Script::established(Config::default());
    assert_eq!(script.stack.message_max(id), FULL);
    for _ in 0..20 {
        script.post(id, FULL);
    }
    assert_eq!(script.info(id).cwnd, 4404);
    script.now += millis(10);
    assert_eq!(numbers(&mut script), [[0], [1], [2]]);
    script.now += millis(80);
    script.sack(2, WINDOW, &[]);
    assert_eq!(script.info(id).cwnd, 4404 + FULL + 16);
    assert_eq!(numbers(&mut script), [[3], [4], [5]]);
    // An eighth of it: the handshake took no time.
    assert_eq!(script.info(id).srtt, Some(millis(10)));
    assert_eq!(
        std::iter::from_fn(|| script.stack.poll_released()).count(),
        2
    );
}

/// RFC9260-6.1-19, RFC9260-6.10-1, RFC9260-6.10-4.
#[test]
fn short_messages_share_a_packet() {
    let (mut script, id) = Script::established(Config::default());
    for _ in 0..30 {
        script.post(id, 84);
    }
    let all: Vec<_> = (0..30).collect();
    assert_eq!(numbers(&mut script), [&all[..14], &all[14..28], &all[28..]]);
}

/// RFC9260-6.1-15: 4 packets.
#[test]
fn a_sack_lets_no_more_go_than_a_burst() {
    let (mut script, id) = Script::established(Config::default());
    for _ in 0..60 {
        script.post(id, FULL);
    }
    let mut sent = numbers(&mut script).len() as u32;
    assert_eq!(sent, 3);
    for _ in 0..6 {
        script.sack(sent, WINDOW, &[]);
        let burst = numbers(&mut script).len() as u32;
        assert!(burst <= 4);
        sent += burst;
    }
    assert_eq!(sent, 3 + 6 * 4);
}

/// RFC9260-6.1-23, RFC9260-7.2.1-2, RFC9260-7.2.3-2, RFC9260-6.1-14, RFC9260-6.3.1-4.
#[test]
fn a_timeout_sends_one_packet_again_and_doubles() {
    let (mut script, id) = Script::established(Config {
        // Packets keep their size.
        path_mtu_probing: false,
        ..Config::default()
    });
    for _ in 0..5 {
        script.post(id, FULL);
    }
    assert_eq!(numbers(&mut script).len(), 3);
    for expected in [1, 2, 4] {
        let before = script.now;
        script.wait();
        assert_eq!(
            script.now.saturating_duration_since(before),
            Duration::from_secs(expected)
        );
        assert_eq!(numbers(&mut script), [[0]]);
        assert_eq!(script.info(id).cwnd, FULL + 16);
    }
    assert_eq!(script.info(id).errors, 3);
    let srtt = script.info(id).srtt;
    script.sack(1, WINDOW, &[]);
    assert_eq!((script.info(id).errors, script.info(id).srtt), (0, srtt));
    let again = numbers(&mut script);
    assert_eq!(again, [[1], [2]], "slow start, before new ones");
}

/// RFC9260-6.7-4, RFC9260-7.2.4-2 to RFC9260-7.2.4-5.
#[test]
fn the_third_report_sends_a_chunk_again_at_once() {
    let (mut script, id) = Script::established(Config {
        max_burst: 100,
        ..Config::default()
    });
    for _ in 0..8 {
        script.post(id, 1000);
    }
    assert_eq!(numbers(&mut script), [[0], [1], [2], [3], [4]]);
    let report = |script: &mut Script, end| {
        script.sack(0, WINDOW, &[GapBlock { start: 2, end }.bytes()]);
    };
    report(&mut script, 2);
    report(&mut script, 3);
    assert_eq!(
        numbers(&mut script),
        [[5], [6]],
        "as much as left the network"
    );
    assert_eq!(script.info(id).cwnd, 4404);
    report(&mut script, 4);
    assert_eq!(numbers(&mut script)[0], [0]);
    let after = script.info(id);
    let least = 4 * (FULL + 16);
    assert_eq!(
        (after.ssthresh, after.cwnd, after.errors),
        (least, least, 0)
    );
    // It had its fast retransmission, and one window is halved once.
    report(&mut script, 5);
    report(&mut script, 6);
    let again = numbers(&mut script).concat();
    assert!(!again.contains(&0), "{again:?}");
    assert_eq!(script.info(id).ssthresh, least);
}

/// RFC9260-6.1-3 to RFC9260-6.1-8.
#[test]
fn a_closed_window_is_probed_for_as_long_as_the_peer_answers() {
    let (mut script, id) = Script::established(Config {
        heartbeat_interval: None,
        ..Config::default()
    });
    script.post(id, 100);
    script.sent();
    script.sack(1, 0, &[]);
    script.post(id, 100);
    script.post(id, 100);
    script.nothing();
    let mut expected = 1;
    script.wait();
    assert_eq!(
        script.now,
        Instant::ZERO + Duration::from_secs(1),
        "after one timeout"
    );
    assert_eq!(numbers(&mut script), [[1]], "one probe");
    for _ in 0..20 {
        script.sack(1, 0, &[]);
        let before = script.now;
        script.wait();
        assert_eq!(
            script.now.saturating_duration_since(before),
            Duration::from_secs(expected)
        );
        expected = (expected * 2).min(60);
        assert_eq!(numbers(&mut script), [[1]]);
    }
    assert_eq!(script.info(id).errors, 0);
    script.sack(2, WINDOW, &[]);
    assert_eq!(numbers(&mut script), [[2]]);
}

/// RFC9260-6.1-7: also of a peer that takes each probe, and whose heartbeats measure the round trip in between. The
/// window that opens ends it.
#[test]
fn probes_back_off_while_the_window_stays_closed() {
    let (mut script, id) = Script::established(Config {
        heartbeat_interval: None,
        ..Config::default()
    });
    for _ in 0..12 {
        script.post(id, 100);
    }
    script.sent();
    let cwnd = script.info(id).cwnd;
    script.sack(12, 0, &[]);
    for _ in 0..12 {
        script.post(id, 100);
    }
    script.nothing();
    // The stack may be woken for a timer that was set anew.
    let next = |script: &mut Script| {
        let before = script.now;
        loop {
            script.wait();
            let sent = numbers(script).concat();
            if !sent.is_empty() {
                return (script.now.saturating_duration_since(before).as_secs(), sent);
            }
        }
    };
    let mut gap = 1;
    for probe in 12..21 {
        assert_eq!(next(&mut script), (gap, vec![probe]));
        gap = (gap * 2).min(60);
        script.sack(probe + 1, 0, &[]);
    }
    assert!(script.info(id).cwnd >= cwnd.min(4380));
    script.sack(21, WINDOW, &[]);
    assert_eq!(numbers(&mut script).concat(), [21, 22, 23]);
    script.sack(24, 0, &[]);
    script.post(id, 100);
    assert_eq!(next(&mut script).0, 1, "a window that closes anew");
}

/// RFC9260-8.1-3, RFC9260-8.1-4, RFC9260-8.2-2.
#[test]
fn a_peer_that_acknowledges_nothing_is_given_up() {
    let (mut script, id) = Script::established(Config {
        heartbeat_interval: None,
        ..Config::default()
    });
    script.post(id, 100);
    script.sent();
    for _ in 0..5 {
        script.wait();
        assert_eq!(numbers(&mut script), [[0]]);
    }
    script.no_event();
    script.wait();
    assert_eq!(
        script.event(),
        Event::PathDown {
            remote: remote().ip()
        }
    );
    for _ in 0..4 {
        script.wait();
    }
    script.no_event();
    script.sent();
    script.wait();
    assert_eq!(script.event(), Event::Failed(Failure::Unreachable));
    assert!(script.stack.poll_released().is_some());
    assert_eq!(script.stack.info(id), None);
    script.nothing();
}

/// RFC9260-8.2-3.
#[test]
fn a_path_that_was_down_is_up_with_the_first_answer() {
    let (mut script, id) = Script::established(Config::default());
    script.post(id, 100);
    script.sent();
    while script.info(id).errors < 6 {
        script.wait();
        script.sent();
    }
    assert_eq!(
        script.event(),
        Event::PathDown {
            remote: remote().ip()
        }
    );
    script.sack(1, WINDOW, &[]);
    assert_eq!(
        script.event(),
        Event::PathUp {
            remote: remote().ip()
        }
    );
}

/// RFC9260-12.4-5.
#[test]
fn a_sack_of_what_was_not_sent_ends_the_association() {
    let (mut script, id) = Script::established(Config::default());
    script.post(id, 100);
    script.sent();
    script.sack(2, WINDOW, &[]);
    assert_eq!(script.one().abort().1.unwrap().code(), Some(13));
    assert!(matches!(
        script.event(),
        Event::Failed(Failure::Violation(_))
    ));
    assert_eq!(script.stack.info(id), None);
}

/// RFC9260-6.9-3, RFC9260-6.5-1, RFC9260-6.2-37.
#[test]
fn messages_that_can_t_be_sent_are_given_back() {
    let (mut script, id) = Script::established(Config {
        send_chunks: 1,
        ..Config::default()
    });
    let mut post = |stream, len| {
        let outgoing = Outgoing {
            stream,
            protocol: 0,
            buffer: vec![0; len],
        };
        let refused = script.stack.post(script.now, id, outgoing);
        refused.map_err(|refused| (refused.buffer.len(), refused.error))
    };
    let no_stream = PostError::NoStream {
        stream: 5,
        streams: 5,
    };
    let too_long = PostError::TooLong {
        len: FULL + 1,
        max: FULL,
    };
    assert_eq!(post(5, 1), Err((1, no_stream)));
    assert_eq!(post(0, 0), Err((0, PostError::Empty)));
    assert_eq!(post(0, FULL + 1), Err((FULL + 1, too_long)));
    let full = (0..100).find_map(|_| post(0, 9).err());
    assert_eq!(full, Some((9, PostError::QueueFull)));
}

/// RFC9260-10-6 to RFC9260-10-10, RFC9260-6.9-7.
#[test]
fn icmp_errors_count_when_they_quote_the_peers_tag() {
    let (mut script, id) = Script::established(Config::default());
    script.post(id, FULL);
    let quote = |tag| IcmpQuote {
        ends: ends(),
        tag,
        init_tag: None,
    };
    let too_big = IcmpError::PacketTooBig { mtu: 1000 };
    assert!(!script.stack.icmp(script.now, &quote(1), too_big));
    assert!(script.stack.icmp(script.now, &quote(PEERS_TAG), too_big));
    let message_max = 1000 - 20 - 12 - 16;
    assert_eq!(script.event(), Event::MtuChanged { message_max });
    let mut out = [0; 1500];
    let transmit = script.stack.poll_transmit(script.now, &mut out).unwrap();
    assert_eq!((transmit.fragment_to, transmit.len), (Some(1000), 1480));
    let larger = IcmpError::PacketTooBig { mtu: 1400 };
    script.stack.icmp(script.now, &quote(PEERS_TAG), larger);
    assert_eq!(script.stack.message_max(id), message_max);
    let gone = IcmpError::NoProtocol;
    assert!(!script.stack.icmp(script.now, &quote(0), gone));
    assert_eq!(script.state(id), State::Established);
    assert!(script.stack.icmp(script.now, &quote(PEERS_TAG), gone));
    assert_eq!(script.event(), Event::Failed(Failure::NoProtocol));
    script.nothing();
}

/// What can't be answered any more holds nothing up.
#[test]
fn an_answer_that_fits_no_packet_any_more_is_not_said() {
    let (mut script, id) = Script::established(Config::default());
    script.peer(&[Chunk::Heartbeat(&[7; 1400])]);
    let quote = IcmpQuote {
        ends: ends(),
        tag: PEERS_TAG,
        init_tag: None,
    };
    let too_big = IcmpError::PacketTooBig { mtu: 1000 };
    assert!(script.stack.icmp(script.now, &quote, too_big));
    script.post(id, 100);
    assert_eq!(numbers(&mut script), [[0]]);
    script.peer(&[Chunk::Heartbeat(&[7; 900])]);
    assert_eq!(script.one().only(), Chunk::HeartbeatAck(&[7; 900]));
}

/// RFC9260-10-10: an INIT is quoted with its own tag.
#[test]
fn an_icmp_error_ends_a_set_up_when_it_quotes_the_init() {
    let mut script = Script::new(Config::default());
    script.connect();
    let quote = |init_tag| IcmpQuote {
        ends: ends(),
        tag: 0,
        init_tag: Some(init_tag),
    };
    let gone = IcmpError::NoProtocol;
    assert!(!script.stack.icmp(script.now, &quote(script.tag ^ 1), gone));
    assert!(script.stack.icmp(script.now, &quote(script.tag), gone));
    assert_eq!(script.event(), Event::Failed(Failure::NoProtocol));
}

/// RFC9260-7.2.1-10, RFC9260-7.2.1-11.
#[test]
fn an_idle_window_shrinks() {
    let (mut script, id) = Script::established(Config {
        max_burst: 100,
        ..Config::default()
    });
    let mut sent = 0;
    for _ in 0..20 {
        for _ in 0..8 {
            script.post(id, FULL);
        }
        sent += numbers(&mut script).len() as u32;
        script.sack(sent, WINDOW, &[]);
    }
    while sent < 160 {
        sent += numbers(&mut script).len() as u32;
        script.sack(sent, WINDOW, &[]);
    }
    let grown = script.info(id).cwnd;
    assert!(grown > 8 * (FULL + 16), "{grown}");
    script.now += Duration::from_millis(1500);
    script.post(id, FULL);
    assert_eq!(script.sent().len(), 1);
    let after = script.info(id);
    assert_eq!(
        (after.cwnd, after.ssthresh),
        ((grown / 2).max(4 * (FULL + 16)), grown)
    );
}

/// When the timer sends something again of five chunks, the first of which is acknowledged after 0.4 s. After 0.8 s so
/// many SACKs say that the second is missing.
fn resent_at(reports: u16) -> Instant {
    let config = Config {
        max_burst: 100,
        heartbeat_interval: None,
        ..Config::default()
    };
    let (mut script, id) = Script::established(config);
    for _ in 0..5 {
        script.post(id, 1000);
    }
    assert_eq!(numbers(&mut script).len(), 5);
    script.now = Instant::ZERO + millis(400);
    script.sack(1, WINDOW, &[]);
    script.nothing();
    script.now = Instant::ZERO + millis(800);
    for report in 0..reports {
        script.nothing();
        let end = report + 2;
        script.sack(1, WINDOW, &[GapBlock { start: 2, end }.bytes()]);
    }
    if reports == 3 {
        assert_eq!(numbers(&mut script), [[1]], "fast retransmit");
    }
    loop {
        script.wait();
        if !script.sent().is_empty() {
            return script.now;
        }
    }
}

/// RFC9260-6.1-23 to RFC9260-6.1-25; rule R3 of section 6.3.2.
#[test]
fn the_timer_starts_again_for_the_earliest_chunk_alone() {
    // The first is acknowledged: the timer starts again.
    assert_eq!(resent_at(0), Instant::ZERO + millis(1400));
    // Later ones are acknowledged: it does not.
    assert_eq!(resent_at(2), Instant::ZERO + millis(1400));
    // The earliest one goes again: the timer starts again.
    assert_eq!(resent_at(3), Instant::ZERO + millis(1800));
}

/// RFC9260-6.3.1-2, RFC9260-6.3.1-5: the second was sent before the first was measured.
#[test]
fn a_round_trip_is_measured_once() {
    let (mut script, id) = Script::established(Config::default());
    script.now = Instant::ZERO + millis(10);
    for _ in 0..3 {
        script.post(id, FULL);
    }
    script.sent();
    script.now = Instant::ZERO + millis(90);
    script.sack(1, WINDOW, &[]);
    let srtt = script.info(id).srtt;
    assert_eq!(srtt, Some(millis(10)));
    script.now = Instant::ZERO + millis(300);
    script.sack(2, WINDOW, &[]);
    assert_eq!(script.info(id).srtt, srtt);
}

/// RFC9260-7.2.5-1, RFC9260-7.2.5.2-2.
#[test]
fn another_path_begins_with_the_first_window() {
    let (mut script, id) = Script::established(Config::default());
    for _ in 0..5 {
        script.post(id, FULL);
    }
    script.sent();
    script.wait();
    script.sent();
    let before = script.info(id);
    assert_eq!(before.cwnd, FULL + 16);
    script.stack.path_moved(script.now, id, remote().ip());
    let after = script.info(id);
    assert_eq!((after.cwnd, after.ssthresh), (4404, usize::MAX));
    assert_eq!(after.flight, before.flight);
}

/// RFC9260-6.3.1-5.
#[test]
fn what_was_sent_before_a_retransmission_measures_nothing() {
    let (mut script, id) = Script::established(Config {
        max_burst: 100,
        ..Config::default()
    });
    let at = |script: &mut Script, time| script.now = Instant::ZERO + millis(time);
    let report = |script: &mut Script, end| {
        script.sack(0, WINDOW, &[GapBlock { start: 2, end }.bytes()]);
    };
    at(&mut script, 10);
    for _ in 0..5 {
        script.post(id, 1000);
    }
    script.sent();
    at(&mut script, 20);
    report(&mut script, 2);
    at(&mut script, 30);
    script.post(id, 1000);
    assert_eq!(numbers(&mut script), [[5]]);
    at(&mut script, 40);
    report(&mut script, 3);
    report(&mut script, 4);
    assert_eq!(numbers(&mut script), [[0]], "again");
    let srtt = script.info(id).srtt;
    at(&mut script, 100);
    script.sack(6, WINDOW, &[]);
    assert_eq!((script.info(id).srtt, script.info(id).flight), (srtt, 0));
}

/// RFC9260-7.2.4-6.
#[test]
fn what_a_sack_acknowledges_counts_before_what_it_reports_missing() {
    let (mut script, id) = Script::established(Config {
        max_burst: 100,
        ..Config::default()
    });
    for _ in 0..200 {
        script.post(id, FULL);
    }
    let mut acknowledged = 0;
    while script.info(id).cwnd < 12 * (FULL + 16) {
        acknowledged += numbers(&mut script).len() as u32;
        script.sack(acknowledged, WINDOW, &[]);
    }
    let report = |script: &mut Script, advance, start, end| {
        script.sent();
        let before = script.info(id).cwnd;
        let block = GapBlock { start, end }.bytes();
        script.sack(acknowledged + advance, WINDOW, &[block]);
        before
    };
    report(&mut script, 0, 3, 3);
    report(&mut script, 0, 3, 4);
    // The third report of the second chunk acknowledges the first one.
    let before = report(&mut script, 1, 2, 4);
    let after = script.info(id);
    let half = (before + FULL + 16) / 2;
    assert_eq!((after.cwnd, after.ssthresh), (half, half));
    // RFC9260-7.2.4-4: one packet, whatever the window.
    assert!(after.flight > half);
    assert_eq!(numbers(&mut script), [[acknowledged + 1]]);
}

/// RFC9260-10-7.
#[test]
fn an_icmp_error_about_no_association_is_ignored() {
    let (mut script, id) = Script::established(Config::default());
    let mut ends = ends();
    ends.remote.set_port(1);
    let quote = IcmpQuote {
        ends,
        tag: PEERS_TAG,
        init_tag: None,
    };
    for error in [IcmpError::NoProtocol, IcmpError::PacketTooBig { mtu: 600 }] {
        assert!(!script.stack.icmp(script.now, &quote, error));
    }
    script.no_event();
    assert_eq!(script.state(id), State::Established);
}

#[test]
fn user_data_counts_once_in_each_direction() {
    let (mut script, id) = Script::established(Config::default());
    let counters = |script: &Script| script.info(id).counters;
    script.post(id, 1000);
    script.post(id, 501);
    assert_eq!(counters(&script), AssocCounters::default());
    assert_eq!(numbers(&mut script), [[0], [1]]);
    script.wait();
    assert_eq!(numbers(&mut script), [[0]]);
    script.sack(1, WINDOW, &[]);
    assert_eq!(numbers(&mut script), [[1]]);
    let sent = AssocCounters {
        bytes_in: 0,
        bytes_out: 1501,
        retransmits: 2,
        timeouts: 1,
    };
    assert_eq!(counters(&script), sent);
    // In order, ahead, and the two fragments of a message; each once more.
    let (begin, end) = (data(3, b"be"), data(4, b"gin"));
    let fragments = [
        Data {
            end: false,
            ..begin
        },
        Data {
            begin: false,
            ..end
        },
    ];
    for one in [data(0, b"abc"), data(2, b"d"), fragments[0], fragments[1]] {
        script.peer(&[Chunk::Data(one)]);
        script.peer(&[Chunk::Data(one)]);
    }
    let bytes_in = 3 + 1 + 2 + 3;
    assert_eq!(counters(&script), AssocCounters { bytes_in, ..sent });
}
