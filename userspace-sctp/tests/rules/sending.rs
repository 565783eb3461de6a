//! The peer's window, the retransmission timer, round trips, and what can't be sent (RFC 9260 sections 6.1, 6.3, 8.1).

use userspace_net::Instant;
use userspace_sctp::chunk::{Chunk, Data, GapBlock};
use userspace_sctp::{AssocCounters, Config, Outgoing, PostError};

use crate::script::{FULL, Script, WINDOW, data, millis, numbers};

/// RFC9260-6.1-19, RFC9260-6.10-1, RFC9260-6.10-4.
#[test]
fn short_messages_share_a_packet() {
    let (mut script, id) = Script::established(Config::default());
    script.post_all(id, 30, 84);
    let all: Vec<_> = (0..30).collect();
    assert_eq!(numbers(&mut script), [&all[..14], &all[14..28], &all[28..]]);
}

/// RFC9260-6.1-7: also of a peer that takes each probe, and whose heartbeats measure the round trip in between. The
/// window that opens ends it.
#[test]
fn probes_back_off_while_the_window_stays_closed() {
    let (mut script, id) = Script::established(Config {
        heartbeat_interval: None,
        ..Config::default()
    });
    script.post_all(id, 12, 100);
    script.sent();
    let cwnd = script.info(id).cwnd;
    script.sack(12, 0, &[]);
    script.post_all(id, 12, 100);
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

/// When the timer sends something again of five chunks, the first of which is acknowledged after 0.4 s. After 0.8 s so
/// many SACKs say that the second is missing.
fn resent_at(reports: u16) -> Instant {
    let config = Config {
        max_burst: 100,
        heartbeat_interval: None,
        ..Config::default()
    };
    let (mut script, id) = Script::established(config);
    script.post_all(id, 5, 1000);
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
    script.post_all(id, 3, FULL);
    script.sent();
    script.now = Instant::ZERO + millis(90);
    script.sack(1, WINDOW, &[]);
    let srtt = script.info(id).srtt;
    assert_eq!(srtt, Some(millis(10)));
    script.now = Instant::ZERO + millis(300);
    script.sack(2, WINDOW, &[]);
    assert_eq!(script.info(id).srtt, srtt);
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
    script.post_all(id, 5, 1000);
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

/// RFC9260-6.3.1-4: Karn's rule holds for INIT and COOKIE ECHO, too.
#[test]
fn what_was_asked_again_measures_nothing() {
    for (init_again, cookie_again) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut script = Script::new(Config::default());
        let id = script.connect();
        if init_again {
            script.wait();
            script.sent();
        }
        script.now += millis(40);
        script.init_ack();
        let expected = (!init_again).then_some(millis(40));
        assert_eq!(script.info(id).srtt, expected, "{init_again}");
        if cookie_again {
            // The stack may be woken for a timer that was set anew.
            while script.sent().is_empty() {
                script.wait();
            }
        }
        script.now += millis(120);
        script.peer(&[Chunk::CookieAck]);
        // Where the INIT was measured, the cookie of the same round trip is not.
        let expected = match (init_again, cookie_again) {
            (false, _) => Some(millis(40)),
            (true, false) => Some(millis(120)),
            (true, true) => None,
        };
        assert_eq!(
            script.info(id).srtt,
            expected,
            "{init_again} {cookie_again}"
        );
    }
}

/// RFC9260-6.2.1-1, rule B: what was lost takes the peer's room again when it is sent again.
#[test]
fn what_is_sent_again_takes_the_peers_room_again() {
    let (mut script, id) = Script::established(Config {
        path_mtu_probing: false,
        ..Config::default()
    });
    // Room for two chunks of 1016 bytes, and for a part of a third one.
    let room = 2_100;
    script.post(id, 100);
    script.sent();
    script.sack(1, room, &[]);
    script.post_all(id, 4, 1000);
    assert_eq!(numbers(&mut script), [[1], [2]]);
    script.wait();
    assert_eq!(numbers(&mut script), [[1]]);
    // It has the first one, and its application has taken nothing.
    script.sack(2, room - 1016, &[]);
    assert_eq!(numbers(&mut script), [[2]], "and no third one");
    // The first probe of a window that is open for less than a chunk.
    script.sack(3, room - 2 * 1016, &[]);
    script.nothing();
    script.wait();
    assert_eq!(numbers(&mut script), [[3]]);
}
