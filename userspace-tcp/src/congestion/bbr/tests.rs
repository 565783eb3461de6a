mod cycle;

use std::time::Duration;

use super::*;
use crate::rate::Excess;

const SMSS: u64 = 1000;
const MS: u64 = 1_000_000;
/// 10 MB/s.
const BW: u64 = 10_000_000;
/// What the path holds at 10 ms.
const BDP: u64 = 100_000;

/// A connection over a path of 10 ms: each ACK is a round, in which as much was delivered as at BW.
struct World {
    bbr: Bbr,
    now: Instant,
    delivered: u64,
    rate: u64,
    rtt: Duration,
    inflight: u64,
    tx_in_flight: u64,
    app_limited: bool,
    too_high: bool,
    fast_recovery: bool,
}

impl World {
    fn new() -> Self {
        let now = Instant::from_nanos(1000 * MS);
        let setup = Setup {
            smss: SMSS,
            limit: 1_000_000,
            cwnd: 10 * SMSS,
            srtt: Some(10 * MS),
            seed: 7,
        };
        Self {
            bbr: Bbr::new(now, &setup),
            now,
            delivered: 0,
            rate: BW,
            rtt: Duration::from_millis(10),
            inflight: 2 * BDP,
            tx_in_flight: BDP,
            app_limited: false,
            too_high: false,
            fast_recovery: false,
        }
    }

    /// Rounds of one ACK each.
    fn rounds(&mut self, rounds: u64) {
        for _ in 0..rounds {
            self.now += self.rtt;
            let bytes = control::bytes_in(self.rate, self.rtt.as_nanos() as u64);
            let sample = RateSample {
                newly_acked: bytes,
                total: self.delivered + bytes,
                prior_delivered: self.delivered,
                delivered: bytes,
                delivery_rate: self.rate,
                app_limited: self.app_limited,
                tx_in_flight: self.tx_in_flight,
                lost: 0,
                rtt: Some(self.rtt.as_nanos() as u64),
            };
            self.delivered += bytes;
            self.bbr.acknowledged(&Ack {
                now: self.now,
                sample: &sample,
                too_high: self.too_high,
                inflight_before: self.inflight,
                inflight: self.inflight,
                una: self.delivered,
                next: self.delivered + self.inflight,
                selective: true,
                fast_recovery: self.fast_recovery,
            });
        }
    }

    fn lose(&mut self, ranges: u32, excess: Option<u64>) {
        let losses = Losses {
            segments: ranges,
            ranges,
            excess: excess.map(|inflight| Excess {
                inflight,
                app_limited: false,
            }),
        };
        self.bbr.lost(self.now, &losses, self.delivered);
    }

    /// Rounds until it is in `state`, at most so many.
    fn until(&mut self, state: State, most: u64) -> u64 {
        for rounds in 0..most {
            if self.bbr.state == state {
                return rounds;
            }
            self.rounds(1);
        }
        panic!("{:?} after {most} rounds, not {state:?}", self.bbr.state);
    }

    /// A connection that has found out what the path takes.
    fn cruising() -> Self {
        let mut world = Self::new();
        world.until(State::Drain, 10);
        world.inflight = BDP / 2;
        world.until(CRUISE, 10);
        world
    }

    /// One that probes for bandwidth.
    fn probing() -> Self {
        let mut world = Self::cruising();
        world.until(UP, 200);
        world.inflight = BDP;
        world
    }
}

const DOWN: State = State::ProbeBw(Phase::Down);
const CRUISE: State = State::ProbeBw(Phase::Cruise);
const REFILL: State = State::ProbeBw(Phase::Refill);
const UP: State = State::ProbeBw(Phase::Up);

/// Sections 5.3.1.1 and 5.6.2.
#[test]
fn startup_sends_277_hundredths_of_the_rate_and_doubles_each_round() {
    let mut world = World::new();
    assert_eq!(world.bbr.pacing_rate, 1_000_000 * 277 / 100);
    world.rate = 2_000_000;
    for _ in 0..5 {
        world.rounds(1);
        assert_eq!(world.bbr.state, State::Startup);
        let paced = world.rate * 277 / 100 * 99 / 100;
        assert_eq!(world.bbr.pacing_rate, paced);
        world.rate *= 2;
    }
    // Twice the BDP, and what one ACK may bring more than expected.
    let bdp = 32_000_000 / 100;
    assert!(world.bbr.cwnd >= bdp && world.bbr.cwnd <= 4 * bdp);
}

/// Section 5.3.1.2, and 10.1.
#[test]
fn startup_ends_after_three_rounds_without_a_quarter_more() {
    let mut world = World::new();
    world.rounds(1);
    world.rate = BW / 4 * 5;
    world.rounds(1);
    world.rounds(2);
    assert_eq!(world.bbr.state, State::Startup);
    world.rounds(1);
    assert_eq!(world.bbr.state, State::Drain);
    assert_eq!(world.bbr.pacing_rate, BW / 4 * 5 / 2 * 99 / 100);
}

/// 10.7: what the application did not send says nothing of the path.
#[test]
fn rounds_that_are_application_limited_end_nothing() {
    let mut world = World::new();
    world.app_limited = true;
    world.rounds(100);
    assert_eq!(world.bbr.state, State::Startup);
    // A greater rate counts nevertheless (section 5.5.4), a lesser one does not.
    assert_eq!(world.bbr.bw, BW);
    world.rate /= 2;
    world.rounds(10);
    assert_eq!(world.bbr.bw, BW);
}

/// Section 5.3.1.3.
#[test]
fn startup_ends_by_loss_if_it_is_much_in_many_places_for_a_round() {
    for (ranges, too_high, fast_recovery, state) in [
        (6, true, true, State::Drain),
        (5, true, true, State::Startup),
        (6, false, true, State::Startup),
        (6, true, false, State::Startup),
    ] {
        let mut world = World::new();
        world.rate = 2_000_000;
        world.rounds(1);
        world.rate = 4_000_000;
        (world.too_high, world.fast_recovery) = (too_high, fast_recovery);
        world.bbr.enter_recovery();
        world.lose(ranges, None);
        world.rounds(1);
        assert_eq!(
            world.bbr.state, state,
            "{ranges} {too_high} {fast_recovery}"
        );
        let bound = if state == State::Drain {
            40_000
        } else {
            INFINITY
        };
        assert_eq!(world.bbr.inflight_longterm, bound);
    }
}

/// Section 5.3.2, 10.3 and 10.4.
#[test]
fn drain_ends_when_the_queue_is_gone_or_after_some_rounds() {
    let mut world = World::new();
    world.until(State::Drain, 10);
    world.inflight = BDP + 50_000;
    world.rounds(1);
    assert_eq!(world.bbr.state, State::Drain);
    world.inflight = BDP;
    world.rounds(1);
    assert_eq!(world.bbr.state, CRUISE, "Down had nothing to do");
    let mut world = World::new();
    world.until(State::Drain, 10);
    world.inflight = 3 * BDP;
    assert_eq!(world.until(DOWN, 10), 4);
}

/// Section 5.3.3: the round of states, with the gains of section 5.6.1.
#[test]
fn probe_bw_goes_down_cruises_refills_and_goes_up() {
    let mut world = World::cruising();
    assert_eq!(world.bbr.pacing_rate, BW * 99 / 100);
    let rounds = world.until(REFILL, 200);
    assert!((61..=63).contains(&rounds), "as Reno would: {rounds}");
    world.rounds(1);
    assert_eq!(world.bbr.state, UP);
    assert_eq!(world.bbr.pacing_rate, BW / 4 * 5 * 99 / 100);
    // A rate that grows no more.
    world.inflight = 2 * BDP;
    assert_eq!(world.until(DOWN, 10), 3);
    assert_eq!(world.bbr.pacing_rate, BW / 10 * 9 * 99 / 100);
    world.rounds(1);
    assert_eq!(world.bbr.state, DOWN, "the queue is still there");
    world.inflight = BDP;
    world.rounds(1);
    assert_eq!(world.bbr.state, CRUISE);
}

/// Section 5.3.3.8.3: on a long path after two to three seconds.
#[test]
fn bandwidth_is_probed_for_by_the_clock_too() {
    let mut world = World::cruising();
    world.rtt = Duration::from_millis(300);
    let begun = world.now;
    world.until(REFILL, 60);
    let waited = world.now.saturating_duration_since(begun);
    assert!(waited >= Duration::from_secs(2) && waited <= Duration::from_millis(3300));
}

/// A path that takes more is found out, and filled.
#[test]
fn more_bandwidth_is_used_after_the_next_probe() {
    let mut world = World::probing();
    world.rate = 2 * BW;
    world.rounds(1);
    assert_eq!(world.bbr.max_bw.get(), 2 * BW);
}

/// Sections 5.5.3 and 5.5.6: less is believed after two cycles.
#[test]
fn less_bandwidth_is_believed_after_two_cycles() {
    let mut world = World::cruising();
    world.rounds(2);
    world.rate = BW / 10;
    world.inflight = BDP / 20;
    for _ in 0..2 {
        assert_eq!(world.bbr.max_bw.get(), BW);
        world.until(UP, 200);
        world.until(CRUISE, 20);
        world.rounds(2);
    }
    assert_eq!(world.bbr.max_bw.get(), BW / 10);
}

/// Section 5.5.10.2: what was in flight when it became too much is what may be, and BBR.Beta of the
/// target at least; once for each probe.
#[test]
fn too_much_loss_while_probing_bounds_what_is_in_flight() {
    let mut world = World::probing();
    world.bbr.enter_recovery();
    world.lose(5, Some(123_000));
    assert_eq!(
        (world.bbr.state, world.bbr.inflight_longterm),
        (DOWN, 123_000)
    );
    world.lose(5, Some(1000));
    assert_eq!(world.bbr.inflight_longterm, 123_000, "once");
    let mut world = World::probing();
    world.lose(5, Some(1000));
    assert_eq!(world.bbr.inflight_longterm, BDP * 7 / 10);
    world.rounds(1);
    assert_eq!(world.bbr.short_term.bw, INFINITY, "it was answered");
    // Not while it cruises.
    let mut world = World::cruising();
    world.lose(5, Some(123_000));
    assert_eq!(world.bbr.inflight_longterm, INFINITY);
}

/// Sections 5.3.3.6 and 5.3.3.7: a level that was too high is only touched, and if it does no harm
/// bandwidth is probed for again at once.
#[test]
fn the_probe_after_one_that_went_too_high_is_cautious() {
    let mut world = World::probing();
    world.lose(5, Some(110_000));
    world.inflight = BDP / 2;
    world.tx_in_flight = BDP / 2;
    world.until(UP, 200);
    world.inflight = 110_000;
    world.rounds(1);
    assert_eq!(world.bbr.state, DOWN);
    world.inflight = BDP / 2;
    world.until(REFILL, 3);
    world.until(UP, 3);
    world.inflight = 110_000;
    world.rounds(1);
    assert_eq!(world.bbr.state, UP, "no caution any more");
    world.inflight = BDP / 2;
    world.until(DOWN, 10);
    world.rounds(3);
    assert_eq!(world.bbr.state, CRUISE, "and nothing to be made good");
}

/// IsTimeToCruise(): what may be in flight is not all used, so that others find room.
#[test]
fn down_lasts_until_there_is_headroom() {
    let mut world = World::probing();
    world.lose(5, Some(80_000));
    world.tx_in_flight = BDP / 2;
    world.inflight = 75_000;
    world.rounds(2);
    assert_eq!(world.bbr.state, DOWN);
    world.inflight = 68_000;
    world.rounds(1);
    assert_eq!(world.bbr.state, CRUISE);
}

/// ProbeInflightLongtermUpward(): a segment for a window, then two, then four.
#[test]
fn inflight_longterm_grows_faster_each_round() {
    let mut world = World::probing();
    world.lose(5, Some(80_000));
    world.inflight = BDP / 2;
    world.tx_in_flight = BDP / 2;
    // The cautious probe, and the next.
    world.until(UP, 200);
    world.inflight = 80_000;
    world.rounds(1);
    world.inflight = BDP / 2;
    world.until(UP, 10);
    world.inflight = world.bbr.cwnd;
    let mut growth = Vec::new();
    for _ in 0..5 {
        let before = world.bbr.inflight_longterm;
        // As long as the rate grows it goes on.
        world.rate = world.rate / 4 * 5;
        world.rounds(1);
        growth.push((world.bbr.inflight_longterm - before) / SMSS);
        world.inflight = world.bbr.cwnd;
    }
    assert!(
        growth.is_sorted() && growth[4] > 2 * growth[1],
        "{growth:?}"
    );
}

/// Section 5.5.10.3: never below what is delivered, by three tenths a round at most.
#[test]
fn loss_while_cruising_follows_what_is_delivered() {
    for (rate, left) in [(BW / 100 * 99, BW / 100 * 99), (BW / 10, BW / 10 * 7)] {
        let mut world = World::cruising();
        // The latest round has to be of this rate.
        world.rate = rate;
        world.rounds(2);
        world.lose(1, None);
        assert_eq!(world.bbr.bw, BW, "not before the round is over");
        world.rounds(1);
        assert_eq!((world.bbr.bw, world.bbr.short_term.bw), (left, left));
        assert!(world.bbr.cwnd >= 2 * BDP * 7 / 10);
        // The next probe starts over.
        world.until(REFILL, 100);
        assert_eq!(world.bbr.short_term.bw, INFINITY);
    }
}

/// Section 5.3.4, 10.10.
#[test]
fn without_a_shorter_round_trip_for_five_seconds_there_is_little_in_flight_for_a_while() {
    let mut world = World::cruising();
    world.rtt = Duration::from_millis(11);
    let began = world.now;
    let mut rounds = 0;
    while world.bbr.state != State::ProbeRtt {
        world.inflight = BDP / 2;
        world.rounds(1);
        rounds += 1;
        assert!(rounds < 1000);
    }
    let waited = world.now.saturating_duration_since(began);
    assert!(waited <= Duration::from_millis(5100) && waited >= Duration::from_secs(4));
    let before = world.bbr.prior_cwnd;
    assert_eq!(world.bbr.cwnd, BDP / 2, "half of the BDP");
    let entered = world.now;
    world.rounds(1);
    while world.bbr.state == State::ProbeRtt {
        world.rounds(1);
    }
    let stayed = world.now.saturating_duration_since(entered);
    assert!(stayed >= Duration::from_millis(200) && stayed <= Duration::from_millis(230));
    assert_eq!(world.bbr.state, CRUISE);
    assert!(world.bbr.cwnd >= before.min(2 * BDP));
    // The longer path is believed in after ten seconds.
    world.rounds(600);
    assert_eq!(world.bbr.round_trips.min, 11 * MS);
}

/// 10.20.
#[test]
fn probe_rtt_in_startup_goes_back_to_startup() {
    let mut world = World::new();
    world.app_limited = true;
    world.rtt = Duration::from_millis(20);
    world.inflight = 3000;
    world.until(State::ProbeRtt, 300);
    world.until(State::Startup, 30);
}

/// Section 5.4.1, 10.11: a pause shows the round trip by itself.
#[test]
fn after_a_pause_it_goes_on_at_the_rate_that_it_knows() {
    let mut world = World::cruising();
    world.until(UP, 200);
    world.now += Duration::from_secs(20);
    world.bbr.restarts_from_idle(world.now);
    assert_eq!(world.bbr.pacing_rate, BW * 99 / 100);
    let cwnd = world.bbr.cwnd;
    world.inflight = 3000;
    world.rounds(1);
    assert_ne!(world.bbr.state, State::ProbeRtt);
    assert!(world.bbr.cwnd >= cwnd.min(2 * BDP));
}

/// Section 5.6.4.4.
#[test]
fn a_timeout_leaves_one_segment_until_something_is_delivered() {
    let mut world = World::cruising();
    let cwnd = world.bbr.cwnd;
    world.bbr.timed_out();
    assert_eq!(world.bbr.cwnd, SMSS);
    world.bbr.timed_out();
    world.rate = 100_000;
    world.rounds(1);
    assert_eq!(world.bbr.cwnd, 4 * SMSS);
    world.bbr.recovered();
    assert_eq!(world.bbr.cwnd, cwnd, "the last known good");
}

/// Section 5.5.11, 10.18.
#[test]
fn a_loss_that_was_none_is_undone() {
    let mut world = World::new();
    world.rate = 2_000_000;
    world.rounds(1);
    (world.too_high, world.fast_recovery) = (true, true);
    world.bbr.enter_recovery();
    world.lose(6, None);
    world.rounds(1);
    assert_eq!(world.bbr.state, State::Drain);
    assert!(world.bbr.undo());
    assert_eq!(world.bbr.state, State::Startup);
    assert_eq!(world.bbr.inflight_longterm, INFINITY);
    assert!(!world.bbr.undo(), "once");

    let mut world = World::probing();
    world.bbr.enter_recovery();
    world.lose(6, Some(50_000));
    assert_eq!(world.bbr.state, DOWN);
    assert!(world.bbr.undo());
    assert_eq!(
        (world.bbr.state, world.bbr.inflight_longterm),
        (REFILL, INFINITY)
    );

    let mut world = World::cruising();
    world.bbr.enter_recovery();
    world.rate = BW / 2;
    world.rounds(2);
    world.lose(1, None);
    world.rounds(1);
    assert!(world.bbr.bw < BW);
    world.bbr.undo();
    world.rounds(1);
    assert_eq!(world.bbr.bw, BW);
}

/// However slow ACKs come, the connection goes on.
#[test]
fn it_is_never_slower_than_two_segments_a_second() {
    let mut world = World::new();
    world.rate = 1;
    world.rtt = Duration::from_secs(100);
    world.inflight = 0;
    world.rounds(50);
    assert_eq!(world.bbr.pacing_rate, 2 * SMSS);
    assert!(world.bbr.cwnd >= 4 * SMSS);
}

#[test]
fn no_number_is_too_great() {
    let most = [0, 1, SMSS, u64::MAX / 2, u64::MAX];
    for a in most {
        for b in most {
            let setup = Setup {
                smss: SMSS,
                limit: 50_000,
                cwnd: 10 * SMSS,
                srtt: Some(a),
                seed: a as u32,
            };
            let mut bbr = Bbr::new(Instant::from_nanos(a), &setup);
            for c in most {
                let now = Instant::from_nanos(c.max(a));
                for rate in most {
                    let sample = RateSample {
                        newly_acked: b,
                        total: c,
                        prior_delivered: a,
                        delivered: b,
                        delivery_rate: rate,
                        app_limited: false,
                        tx_in_flight: c,
                        lost: b,
                        rtt: Some(a),
                    };
                    bbr.acknowledged(&Ack {
                        now,
                        sample: &sample,
                        too_high: c == 0,
                        inflight_before: a,
                        inflight: c,
                        una: a,
                        next: b,
                        selective: a == 0,
                        fast_recovery: b == 0,
                    });
                    let excess = Excess {
                        inflight: a,
                        app_limited: false,
                    };
                    let losses = Losses {
                        segments: u32::MAX,
                        ranges: u32::MAX,
                        excess: Some(excess),
                    };
                    bbr.lost(now, &losses, b);
                    bbr.restarts_from_idle(now);
                    let cwnd = bbr.cwnd();
                    assert!((SMSS..=50_000).contains(&cwnd), "{cwnd}");
                    assert!(bbr.pacing_rate >= 2 * SMSS);
                }
                bbr.enter_recovery();
                bbr.timed_out();
                bbr.undo();
            }
        }
    }
}

/// A connection has it beside its 2 KiB.
#[test]
fn it_is_small() {
    let size = size_of::<Bbr>();
    assert!(size <= 576, "{size}");
}
