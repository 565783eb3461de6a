//! The congestion window, and what is sent again (RFC 9260 section 7.2).

use std::collections::BTreeSet;
use std::time::Duration;

use userspace_sctp::Config;
use userspace_sctp::chunk::GapBlock;

use crate::script::{FULL, Script, WINDOW, millis, numbers, remote};

/// RFC9260-7.2.1-1, RFC9260-7.2.1-7, RFC9260-6.1-11.
#[test]
fn the_congestion_window_begins_with_some_packets_and_grows_by_one_a_sack() {
    let (mut script, id) = Script::established(Config::default());
    assert_eq!(script.stack.message_max(id), FULL);
    script.post_all(id, 20, FULL);
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

/// RFC9260-6.1-15: 4 packets.
#[test]
fn a_sack_lets_no_more_go_than_a_burst() {
    let (mut script, id) = Script::established(Config::default());
    script.post_all(id, 60, FULL);
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
    script.post_all(id, 5, FULL);
    assert_eq!(numbers(&mut script).len(), 3);
    for expected in [1, 2, 4] {
        assert_eq!(script.wait(), Duration::from_secs(expected));
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
    script.post_all(id, 8, 1000);
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

/// RFC9260-7.2.1-10, RFC9260-7.2.1-11.
#[test]
fn an_idle_window_shrinks() {
    let (mut script, id) = Script::established(Config {
        max_burst: 100,
        ..Config::default()
    });
    let mut sent = 0;
    for _ in 0..20 {
        script.post_all(id, 8, FULL);
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

/// RFC9260-7.2.5-1, RFC9260-7.2.5.2-2.
#[test]
fn another_path_begins_with_the_first_window() {
    let (mut script, id) = Script::established(Config::default());
    script.post_all(id, 5, FULL);
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

/// RFC9260-7.2.4-6.
#[test]
fn what_a_sack_acknowledges_counts_before_what_it_reports_missing() {
    let (mut script, id) = Script::established(Config {
        max_burst: 100,
        ..Config::default()
    });
    script.post_all(id, 200, FULL);
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

/// RFC9260-7.2.4-4: of several chunks that are found lost at once only one packet goes beyond the window.
#[test]
fn a_fast_retransmission_beyond_the_window_is_one_packet() {
    let (mut script, id) = Script::established(Config {
        path_mtu_probing: false,
        max_burst: 100,
        ..Config::default()
    });
    script.post_all(id, 600, FULL);
    let mut acknowledged = 0;
    while script.info(id).cwnd < 24 * (FULL + 16) {
        acknowledged += numbers(&mut script).len() as u32;
        script.sack(acknowledged, WINDOW, &[]);
    }
    script.sent();
    // Three are missing; what is behind them comes one by one.
    for end in 4..=5 {
        script.sack(acknowledged, WINDOW, &[GapBlock { start: 4, end }.bytes()]);
        script.sent();
    }
    script.sack(
        acknowledged,
        WINDOW,
        &[GapBlock { start: 4, end: 6 }.bytes()],
    );
    let info = script.info(id);
    assert!(info.flight > info.cwnd, "{info:?}");
    assert_eq!(numbers(&mut script), [[acknowledged]]);
    // The next one waits for the window, and is not asked for again.
    script.sack(
        acknowledged,
        WINDOW,
        &[GapBlock { start: 4, end: 7 }.bytes()],
    );
    script.nothing();
}

/// RFC9260-7.2.4-4, RFC9260-6.1-11: nor does anything new go along with it.
#[test]
fn a_fast_retransmission_beyond_the_window_takes_nothing_new_along() {
    let (mut script, id) = Script::established(Config {
        path_mtu_probing: false,
        max_burst: 100,
        ..Config::default()
    });
    // Three of them fit a packet.
    script.post_all(id, 1000, 400);
    let mut acknowledged = 0;
    while script.info(id).cwnd < 16 * (FULL + 16) {
        acknowledged += numbers(&mut script).concat().len() as u32;
        script.sack(acknowledged, WINDOW, &[]);
    }
    script.sent();
    for end in 2..=4 {
        script.sent();
        script.sack(acknowledged, WINDOW, &[GapBlock { start: 2, end }.bytes()]);
    }
    let info = script.info(id);
    assert!(info.flight > info.cwnd, "{info:?}");
    assert_eq!(numbers(&mut script), [[acknowledged]]);
}

/// RFC9260-7.2.4-2, RFC9260-7.2.3-2: a timeout begins the count anew.
#[test]
fn reports_of_before_a_timeout_count_no_more() {
    let (mut script, id) = Script::established(Config {
        path_mtu_probing: false,
        max_burst: 100,
        ..Config::default()
    });
    script.post_all(id, 9, 1000);
    let report = |script: &mut Script, end| {
        script.sack(0, WINDOW, &[GapBlock { start: 2, end }.bytes()]);
        numbers(script).concat()
    };
    assert_eq!(numbers(&mut script).len(), 5);
    report(&mut script, 2);
    report(&mut script, 3);
    script.wait();
    assert_eq!(numbers(&mut script).concat(), [0]);
    let ssthresh = script.info(id).ssthresh;
    for end in 4..6 {
        let again = report(&mut script, end);
        assert!(!again.contains(&0), "{end}: {again:?}");
    }
    assert_eq!(report(&mut script, 6)[0], 0, "the third one");
    assert_eq!(script.info(id).ssthresh, ssthresh);
}

/// The window of RFC 9260 section 7.2, reckoned once more: without gaps, and with chunks of one size.
struct Reckoned {
    cwnd: usize,
    ssthresh: usize,
    partial_bytes_acked: usize,
    in_flight: BTreeSet<u32>,
}

impl Reckoned {
    const CHUNK: usize = FULL + 16;

    fn flight(&self) -> usize {
        self.in_flight.len() * Self::CHUNK
    }

    fn send(&mut self, packets: &[Vec<u32>]) {
        assert!(packets.len() <= 4, "Max.Burst: {packets:?}");
        for packet in packets {
            let [chunk] = packet[..] else {
                panic!("{packet:?}");
            };
            assert!(self.flight() < self.cwnd, "rule B of section 6.1");
            self.in_flight.insert(chunk);
        }
    }

    /// So many more chunks are acknowledged, up to this one.
    fn acknowledge(&mut self, count: u32, before: u32, all: bool) {
        let bytes = count as usize * Self::CHUNK;
        let is_used = self.flight() >= self.cwnd;
        if self.cwnd <= self.ssthresh {
            // Section 7.2.1.
            self.cwnd += if is_used { bytes.min(Self::CHUNK) } else { 0 };
        } else {
            // Section 7.2.2.
            self.partial_bytes_acked += bytes;
            if self.partial_bytes_acked >= self.cwnd && is_used {
                self.partial_bytes_acked -= self.cwnd;
                self.cwnd += Self::CHUNK;
            } else {
                self.partial_bytes_acked = self.partial_bytes_acked.min(self.cwnd);
            }
        }
        if all {
            self.partial_bytes_acked = 0;
        }
        self.in_flight.retain(|chunk| *chunk >= before);
    }

    /// Section 7.2.3.
    fn time_out(&mut self) {
        self.ssthresh = (self.cwnd / 2).max(4 * Self::CHUNK);
        self.cwnd = Self::CHUNK;
        self.partial_bytes_acked = 0;
        self.in_flight.clear();
    }
}

/// RFC9260-7.2-2.
#[test]
fn the_window_is_never_larger_than_that_of_the_rfc() {
    for seed in 0..20_u64 {
        let (mut script, id) = Script::established(Config {
            path_mtu_probing: false,
            heartbeat_interval: None,
            ..Config::default()
        });
        let mut state = seed + 1;
        let mut random = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % below
        };
        let mut reckoned = Reckoned {
            cwnd: 4404,
            ssthresh: usize::MAX,
            partial_bytes_acked: 0,
            in_flight: BTreeSet::new(),
        };
        let (mut posted, mut sent, mut acknowledged) = (0, 0, 0);
        let mut has_timed_out = false;
        let mut largest = 0;
        for _ in 0..600 {
            while posted < acknowledged + 80 {
                script.post(id, FULL);
                posted += 1;
            }
            let packets = numbers(&mut script);
            reckoned.send(&packets);
            let last = packets.concat().into_iter().max();
            sent = last.map_or(sent, |last| sent.max(last + 1));
            let info = script.info(id);
            assert_eq!(info.flight, reckoned.flight(), "seed {seed}");
            if random(60) == 0 && !has_timed_out {
                script.wait();
                reckoned.time_out();
                has_timed_out = true;
            } else {
                let outstanding = sent - acknowledged;
                let count = 1 + random(u64::from(outstanding.min(5))) as u32;
                acknowledged += count;
                script.sack(acknowledged, WINDOW, &[]);
                reckoned.acknowledge(count, acknowledged, count == outstanding);
                has_timed_out = false;
            }
            let info = script.info(id);
            let expected = (reckoned.cwnd, reckoned.ssthresh);
            assert_eq!((info.cwnd, info.ssthresh), expected, "seed {seed}");
            largest = largest.max(info.cwnd);
        }
        assert!(largest > 8 * Reckoned::CHUNK, "seed {seed}: {largest}");
    }
}
