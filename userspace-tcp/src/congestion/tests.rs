use super::*;

const SMSS: u64 = 1000;

fn with(congestion: CongestionControl) -> Congestion {
    let config = Config {
        congestion,
        ..Config::default()
    };
    Congestion::new(&config, SMSS, 1_000_000)
}

fn reno() -> Congestion {
    with(CongestionControl::NewReno)
}

const ALL: [CongestionControl; 3] = [
    CongestionControl::Cubic,
    CongestionControl::NewReno,
    CongestionControl::Dctcp,
];

fn out(flight: u64, next: Position) -> Outstanding {
    Outstanding {
        flight,
        undelivered: flight,
        next,
    }
}

/// An ACK for `bytes` up to `una`, with `flight` bytes out before and so many behind it sent.
fn progress(bytes: u64, una: Position, flight: u64) -> Progress {
    Progress {
        now: Instant::ZERO,
        bytes,
        una,
        next: una.saturating_add(flight.saturating_sub(bytes)),
        flight,
        ece: false,
        rtt: None,
        srtt: None,
    }
}

fn acknowledged(c: &mut Congestion, bytes: u64, una: Position, flight: u64) {
    c.acknowledged(&progress(bytes, una, flight));
}

#[test]
fn the_pace_is_twice_the_window_in_slow_start_and_six_fifths_later() {
    let mut c = reno();
    let srtt = Some(10_000_000);
    assert_eq!(c.pace(None), None);
    assert_eq!(c.pace(Some(999_999)), None);
    assert_eq!(c.pace(srtt).unwrap().bytes, 20_000);
    c.enter_recovery(&out(10_000, 10_000));
    c.delivered(&Delivery {
        bytes: 0,
        pipe: 1000,
        safe: false,
    });
    assert_eq!(c.pace(srtt).unwrap().bytes, 6000, "what it recovers to");
    acknowledged(&mut c, 10_000, 10_000, 10_000);
    assert_eq!(c.pace(srtt).unwrap().bytes, 6000);
    c.pacing = false;
    assert_eq!(c.pace(srtt), None);
}

/// It is part of each connection, which has 2 KiB in all.
#[test]
fn it_is_small() {
    let size = size_of::<Congestion>();
    assert!(size <= 320, "{size}");
}

#[test]
fn the_initial_window_is_ten_segments_or_14600_bytes() {
    for (smss, window) in [(1000, 10_000), (8960, 17_920), (1460, 14_600)] {
        let c = Congestion::new(&Config::default(), smss, 1_000_000);
        assert_eq!(c.cwnd(), window);
    }
}

#[test]
fn slow_start_grows_by_what_is_acknowledged_but_eight_segments_at_most() {
    for algorithm in ALL {
        let mut c = with(algorithm);
        acknowledged(&mut c, 1500, 1500, 10_000);
        assert_eq!(c.cwnd(), 11_500);
        acknowledged(&mut c, 9000, 10_500, 10_000);
        assert_eq!(c.cwnd(), 19_500);
    }
}

/// RFC 9406 section 4.2: L is infinite where pacing prevents the burst.
#[test]
fn paced_slow_start_grows_by_all_that_is_acknowledged() {
    let mut c = reno();
    let mut ack = progress(10_000, 10_000, 10_000);
    ack.srtt = Some(PACED_RTT_MIN);
    c.acknowledged(&ack);
    assert_eq!(c.cwnd(), 20_000);
}

#[test]
fn an_unused_window_does_not_grow() {
    for algorithm in ALL {
        let mut c = with(algorithm);
        for i in 1..100 {
            acknowledged(&mut c, 1000, i * 1000, 1000);
        }
        assert_eq!(c.cwnd(), 10_000);
    }
}

/// The link may give many ACKs at once, of which only the first finds the window full.
#[test]
fn a_batch_of_acknowledgments_counts_as_if_they_came_one_by_one() {
    let mut c = reno();
    c.cwnd = 20_000;
    c.enter_recovery(&out(20_000, 20_000));
    acknowledged(&mut c, 20_000, 20_000, 20_000);
    for i in 1..=10 {
        let mut ack = progress(1000, 20_000 + i * 1000, 11_000 - i * 1000);
        ack.next = 30_000;
        c.acknowledged(&ack);
    }
    assert_eq!(c.cwnd(), 11_000);
}

#[test]
fn congestion_avoidance_grows_one_segment_per_window() {
    for algorithm in [CongestionControl::NewReno, CongestionControl::Dctcp] {
        let mut c = with(algorithm);
        c.cwnd = 20_000;
        c.enter_recovery(&out(20_000, 20_000));
        assert_eq!(c.ssthresh(), 10_000);
        acknowledged(&mut c, 20_000, 20_000, 20_000);
        assert_eq!((c.phase(), c.cwnd()), (Phase::Open, 10_000));
        for i in 1..=10 {
            assert_eq!(c.cwnd(), 10_000);
            acknowledged(&mut c, 1000, 20_000 + i * 1000, 10_000);
        }
        assert_eq!(c.cwnd(), 11_000);
    }
}

#[test]
fn slow_start_stops_at_ssthresh() {
    let mut c = reno();
    c.ssthresh = 10_500;
    acknowledged(&mut c, 2000, 2000, 10_000);
    assert_eq!(c.cwnd(), 10_500);
}

#[test]
fn recovery_leaves_half_or_seven_tenths() {
    for (algorithm, left) in [
        (CongestionControl::Cubic, 70_000),
        (CongestionControl::NewReno, 50_000),
        (CongestionControl::Dctcp, 50_000),
    ] {
        let mut c = with(algorithm);
        c.cwnd = 100_000;
        // Limited transmit has sent two segments beyond the window.
        c.enter_recovery(&out(102_000, 102_000));
        assert_eq!((c.phase(), c.ssthresh()), (Phase::Recovery, left));
        acknowledged(&mut c, 102_000, 102_000, 102_000);
        assert_eq!((c.phase(), c.cwnd()), (Phase::Open, left));
    }
}

#[test]
fn the_window_is_reduced_once_per_window_of_bytes() {
    let mut c = reno();
    c.cwnd = 100_000;
    assert!(c.marked(&out(99_999, 100_000)));
    assert_eq!((c.phase(), c.ssthresh()), (Phase::Cwr, 49_999));
    assert!(!c.marked(&out(90_000, 110_000)));
    c.enter_recovery(&out(80_000, 120_000));
    assert_eq!((c.phase(), c.ssthresh()), (Phase::Recovery, 49_999));
    assert!(!c.marked(&out(70_000, 130_000)));
    acknowledged(&mut c, 10_000, 119_999, 60_000);
    assert_eq!(c.phase(), Phase::Recovery);
    acknowledged(&mut c, 1, 120_000, 50_000);
    assert_eq!((c.phase(), c.cwnd()), (Phase::Open, 49_999));
    assert!(!c.marked(&out(50_000, 170_000)), "an echo of before CWR");
    acknowledged(&mut c, 1, 120_001, 50_000);
    assert!(c.marked(&out(49_998, 170_000)));
    assert_eq!(c.ssthresh(), 24_999);
}

#[test]
fn partial_acknowledgments_stay_in_recovery_and_do_not_let_it_grow() {
    for algorithm in ALL {
        let mut c = with(algorithm);
        c.cwnd = 20_000;
        c.enter_recovery(&out(20_000, 20_000));
        let before = c.cwnd();
        acknowledged(&mut c, 5000, 19_999, 20_000);
        assert_eq!((c.phase(), c.cwnd()), (Phase::Recovery, before));
    }
}

#[test]
fn prr_says_what_may_be_sent_in_recovery() {
    let mut c = reno();
    c.cwnd = 20_000;
    c.enter_recovery(&out(20_000, 20_000));
    let delivery = |pipe| Delivery {
        bytes: 1000,
        pipe,
        safe: false,
    };
    c.delivered(&delivery(18_000));
    assert_eq!(c.cwnd(), 19_000, "the retransmission");
    c.sent(1000);
    c.delivered(&delivery(18_000));
    assert_eq!(c.cwnd(), 18_000, "not yet");
    c.delivered(&delivery(17_000));
    assert_eq!(c.cwnd(), 17_500, "byte by byte");
    c.delivered(&delivery(16_000));
    assert_eq!(c.cwnd(), 17_000);
}

/// RFC 3168 section 6.1.2.
#[test]
fn each_reduction_is_told_the_peer_once() {
    let mut c = reno();
    assert!(!c.take_cwr());
    c.marked(&out(9000, 10_000));
    assert!(c.take_cwr());
    assert!(!c.take_cwr());
    acknowledged(&mut c, 10_000, 10_000, 10_000);
    c.enter_recovery(&out(5000, 15_000));
    assert!(c.take_cwr());
    c.timed_out(&out(5000, 15_000));
    assert!(c.take_cwr());
}

/// RFC 8257 section 3.3: by half of DCTCP.Alpha, which begins with 1.
#[test]
fn dctcp_shrinks_with_the_share_of_marks() {
    let mut c = with(CongestionControl::Dctcp);
    c.cwnd = 100_000;
    // 100 windows without a mark.
    let mut una = 0;
    for _ in 0..200 {
        una += 50_000;
        acknowledged(&mut c, 50_000, una, 50_000);
    }
    let cwnd = c.cwnd();
    assert!(c.marked(&out(cwnd, una + cwnd)));
    assert!(c.ssthresh() > cwnd * 99 / 100, "nothing was marked so far");
    // RFC 8257 section 3.5: a loss is answered in full, even in the same window.
    c.enter_recovery(&out(cwnd, una + cwnd));
    assert_eq!(c.ssthresh(), cwnd / 2);
}

#[test]
fn a_timeout_leaves_one_segment_and_slow_starts_to_ssthresh() {
    let mut c = reno();
    c.cwnd = 20_000;
    c.timed_out(&out(20_000, 20_000));
    assert_eq!((c.cwnd(), c.ssthresh()), (SMSS, 10_000));
    c.timed_out(&out(1000, 20_000));
    assert_eq!((c.cwnd(), c.ssthresh()), (SMSS, 10_000));
    acknowledged(&mut c, 1000, 1000, 1000);
    assert_eq!(c.cwnd(), 2000);
    acknowledged(&mut c, 5000, 6000, 5000);
    assert_eq!(
        c.cwnd(),
        3000,
        "one segment for an ACK (RFC 3465 section 2.3)"
    );
}

#[test]
fn a_timeout_in_recovery_does_not_raise_ssthresh() {
    let mut c = reno();
    c.cwnd = 20_000;
    c.enter_recovery(&out(20_000, 20_000));
    c.timed_out(&out(30_000, 30_000));
    assert_eq!((c.cwnd(), c.ssthresh()), (SMSS, 10_000));
}

#[test]
fn ssthresh_is_two_segments_at_least() {
    for algorithm in ALL {
        let mut c = with(algorithm);
        c.timed_out(&out(100, 100));
        assert_eq!(c.ssthresh(), 2 * SMSS);
    }
}

/// RFC 9438 section 4.9, RFC 5682.
#[test]
fn a_loss_that_was_none_is_undone() {
    for algorithm in ALL {
        for timeout in [false, true] {
            let mut c = with(algorithm);
            c.cwnd = 100_000;
            c.ssthresh = 80_000;
            if timeout {
                c.timed_out(&out(100_000, 100_000));
            } else {
                c.enter_recovery(&out(100_000, 100_000));
            }
            assert!(c.undo(0));
            assert_eq!(
                (c.phase(), c.cwnd(), c.ssthresh()),
                (Phase::Open, 100_000, 80_000)
            );
            assert!(!c.take_cwr());
            c.cwnd = 50_000;
            assert!(!c.undo(0));
            assert_eq!(c.cwnd(), 50_000, "once");
        }
    }
}

#[test]
fn what_was_marked_is_not_undone() {
    let mut c = reno();
    c.marked(&out(9000, 10_000));
    assert!(!c.undo(0));
    assert_eq!((c.phase(), c.ssthresh()), (Phase::Cwr, 4500));
}

/// RFC 5681 section 4.1.
#[test]
fn after_idle_time_the_window_restarts() {
    for algorithm in ALL {
        let mut c = with(algorithm);
        c.cwnd = 100_000;
        c.ssthresh = 50_000;
        c.resumed(Instant::ZERO, false);
        assert_eq!(c.cwnd(), 100_000);
        c.resumed(Instant::ZERO, true);
        assert_eq!((c.cwnd(), c.ssthresh()), (10_000, 75_000));
    }
}

/// CUBIC's window after a round trip that follows on so long a time without anything to send, of which
/// congestion control is told or not.
fn cubics_window_after(idle: Duration, told: bool) -> u64 {
    const ROUND: Duration = Duration::from_millis(100);
    let mut c = with(CongestionControl::Cubic);
    (c.cwnd, c.ssthresh, c.limit) = (100_000, 100_000, 10_000_000);
    let mut now = Instant::ZERO;
    for (una, wait) in [(100_000, Duration::ZERO), (200_000, idle)] {
        now += wait;
        if told {
            c.resumed(now, false);
        }
        now += ROUND;
        c.acknowledged(&Progress {
            now,
            srtt: Some(ROUND.as_nanos() as u64),
            ..progress(100_000, una, c.cwnd())
        });
    }
    c.cwnd()
}

/// RFC 9438 section 5.8.
#[test]
fn idle_time_too_short_for_a_restart_does_not_count_for_cubic() {
    let long = Duration::from_secs(5);
    let busy = cubics_window_after(Duration::ZERO, true);
    assert_eq!(cubics_window_after(long, true), busy);
    assert!(cubics_window_after(long, false) > busy + 10 * SMSS);
}

#[test]
fn a_lossy_handshake_leaves_one_segment() {
    let mut c = reno();
    c.handshake_was_lossy();
    assert_eq!(c.cwnd(), SMSS);
}

#[test]
fn the_window_stays_within_what_the_queue_holds() {
    for algorithm in ALL {
        let mut c = with(algorithm);
        c.limit = 50_000;
        let mut una = 0;
        for _ in 0..1000 {
            let cwnd = c.cwnd();
            una += cwnd;
            acknowledged(&mut c, cwnd, una, cwnd);
        }
        assert_eq!(c.cwnd(), 50_000);
    }
}

#[test]
fn no_number_is_too_great() {
    let most = [0, 1, SMSS, u64::MAX];
    for algorithm in ALL {
        let mut c = with(algorithm);
        for a in most {
            for b in most {
                c.acknowledged(&Progress {
                    next: b,
                    srtt: Some(u64::MAX),
                    rtt: Some(Duration::MAX),
                    ..progress(a, b, b)
                });
                c.enter_recovery(&out(a, b));
                c.delivered(&Delivery {
                    bytes: a,
                    pipe: b,
                    safe: true,
                });
                c.sent(a);
                c.timed_out(&out(a, b));
                c.undo(0);
                c.marked(&out(a, b));
                assert!(c.cwnd() <= c.limit && c.ssthresh() >= 2 * SMSS);
            }
        }
    }
}
