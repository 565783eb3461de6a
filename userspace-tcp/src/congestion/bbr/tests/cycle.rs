//! What one state leaves to the next, and which bounds hold in which.

use super::*;
use crate::congestion::bbr::bounds::beta;

impl World {
    /// A connection whose probe went too high at a level, and that goes on below it.
    fn after_too_high(level: u64) -> Self {
        let mut world = Self::probing();
        world.lose(5, Some(level));
        world.inflight = BDP / 2;
        world.tx_in_flight = BDP / 2;
        world
    }

    /// The same, when the cautious probe behind it has touched the level, and the next one begins.
    fn bold_again(level: u64) -> Self {
        let mut world = Self::after_too_high(level);
        world.until(UP, 200);
        // The level grows by a segment when it is touched.
        world.inflight = level + 2 * SMSS;
        world.rounds(1);
        assert_eq!(world.bbr.state, DOWN);
        world.inflight = BDP / 2;
        world.until(UP, 10);
        world
    }

    fn enter_probe_rtt(&mut self) {
        self.now += Duration::from_secs(6);
        self.rounds(1);
        assert_eq!(self.bbr.state, State::ProbeRtt);
    }
}

/// Section 5.3.3.8.3.
#[test]
fn the_clock_of_a_probe_begins_with_its_cycle() {
    let mut world = World::cruising();
    world.rtt = Duration::from_millis(300);
    for _ in 0..3 {
        world.until(UP, 60);
        world.until(DOWN, 10);
        let begun = world.now;
        world.until(REFILL, 60);
        let waited = world.now.saturating_duration_since(begun);
        assert!(waited >= Duration::from_secs(2), "{waited:?}");
    }
}

/// AdaptLongTermModel(): a cycle counts for the filter of the bandwidth when its end was not
/// application-limited.
#[test]
fn what_the_application_did_not_send_ages_no_bandwidth() {
    let mut world = World::cruising();
    world.rounds(2);
    world.rate = BW / 10;
    world.inflight = BDP / 20;
    for _ in 0..2 {
        world.until(UP, 200);
        world.until(DOWN, 20);
        world.app_limited = true;
        world.rounds(2);
        world.app_limited = false;
    }
    assert_eq!(world.bbr.max_bw.get(), BW);
}

/// BBR.is_bw_probe_sample.
#[test]
fn a_loss_behind_a_probe_and_its_round_is_not_the_probes() {
    let mut world = World::probing();
    world.until(CRUISE, 20);
    world.rounds(2);
    world.lose(5, Some(123_000));
    assert_eq!(world.bbr.state, CRUISE);
    assert_eq!(world.bbr.inflight_longterm, INFINITY);
}

/// HandleInflightTooHigh(): the bound would be the application's, and not the path's.
#[test]
fn too_much_loss_of_what_was_application_limited_bounds_nothing() {
    let mut world = World::probing();
    let losses = Losses {
        segments: 5,
        ranges: 5,
        excess: Some(Excess {
            inflight: 123_000,
            app_limited: true,
        }),
    };
    world.bbr.lost(world.now, &losses, world.delivered);
    let found = (world.bbr.state, world.bbr.inflight_longterm);
    assert_eq!(found, (DOWN, INFINITY));
}

/// AdaptLongTermModel().
#[test]
fn what_was_in_flight_without_harm_may_be_again() {
    let mut world = World::after_too_high(80_000);
    world.tx_in_flight = 90_000;
    world.too_high = true;
    world.rounds(1);
    assert_eq!(world.bbr.inflight_longterm, 80_000);
    world.too_high = false;
    world.rounds(1);
    assert_eq!(world.bbr.inflight_longterm, 90_000);
}

/// ProbeInflightLongtermUpward(): what was not used shows nothing, and each probe begins with a segment
/// for a window.
#[test]
fn the_bound_grows_while_it_limits_from_a_segment_on() {
    let mut world = World::after_too_high(80_000);
    world.until(UP, 200);
    world.until(DOWN, 10);
    assert_eq!(world.bbr.inflight_longterm, 80_000, "not used");
    let mut world = World::bold_again(80_000);
    for round in 0..2 {
        let before = world.bbr.inflight_longterm;
        world.inflight = world.bbr.cwnd;
        // As long as the rate grows it goes on.
        world.rate = world.rate / 4 * 5;
        world.rounds(1);
        let growth = world.bbr.inflight_longterm - before;
        assert_eq!(growth == SMSS, round == 0, "round {round}: {growth}");
    }
}

/// AdaptLongTermModel(): what the cautious probe touched was too high after all.
#[test]
fn after_a_cautious_probe_that_does_harm_there_is_no_other_at_once() {
    let mut world = World::after_too_high(110_000);
    world.until(UP, 200);
    world.inflight = 110_000;
    world.rounds(1);
    assert_eq!(world.bbr.state, DOWN);
    world.lose(5, Some(100_000));
    world.inflight = BDP / 2;
    world.rounds(3);
    assert_eq!(world.bbr.state, CRUISE);
}

/// AdaptLowerBoundsFromCongestion(): with BBR each probe has another answer.
#[test]
fn loss_while_probing_has_no_short_term_bounds() {
    let mut refilling = World::cruising();
    refilling.until(REFILL, 200);
    let mut starting = World::new();
    starting.rounds(1);
    for mut world in [starting, refilling, World::probing()] {
        let state = world.bbr.state;
        world.lose(1, None);
        world.rounds(1);
        let short = world.bbr.short_term;
        assert_eq!(
            (short.bw, short.inflight),
            (INFINITY, INFINITY),
            "{state:?}"
        );
    }
}

/// Section 5.5.10.3, of what may be in flight.
#[test]
fn loss_while_cruising_bounds_what_is_in_flight_by_what_is_delivered() {
    let mut world = World::cruising();
    world.rate = BW / 10;
    world.rounds(2);
    world.lose(1, None);
    let cwnd = world.bbr.cwnd;
    world.rounds(1);
    assert_eq!(world.bbr.short_term.inflight, beta(cwnd));
    let mut world = World::cruising();
    world.lose(1, None);
    world.bbr.cwnd = BDP;
    world.rounds(1);
    assert_eq!(world.bbr.short_term.inflight, BDP, "all was delivered");
}

/// Section 5.6.4.7, and the gain of section 5.6.1.
#[test]
fn each_state_has_its_bound_of_the_window() {
    let mut world = World::after_too_high(80_000);
    world.inflight = 75_000;
    world.rounds(1);
    assert_eq!((world.bbr.state, world.bbr.cwnd), (DOWN, 80_000));
    world.inflight = BDP / 2;
    world.rounds(1);
    assert_eq!((world.bbr.state, world.bbr.cwnd), (CRUISE, 68_000));
    let mut world = World::probing();
    world.rounds(1);
    let extra = world.bbr.aggregation.extra();
    assert_eq!(world.bbr.cwnd, BDP / 100 * 225 + 2 * SMSS + extra);
}

/// Section 5.5.11.2.
#[test]
fn a_loss_that_was_none_has_no_answer_in_its_round() {
    let mut world = World::cruising();
    world.bbr.enter_recovery();
    world.lose(1, None);
    assert!(world.bbr.undo());
    world.rounds(1);
    assert_eq!(world.bbr.short_term.bw, INFINITY);
}

/// Section 5.5.11.2: the model is as it was, the state only when it is another's turn.
#[test]
fn what_is_undone_in_probe_rtt_does_not_end_it() {
    let mut world = World::probing();
    world.lose(5, Some(123_000));
    world.enter_probe_rtt();
    assert!(world.bbr.undo());
    assert_eq!(world.bbr.state, State::ProbeRtt);
    assert_eq!(world.bbr.inflight_longterm, INFINITY);

    let mut world = World::new();
    world.rate = 2_000_000;
    world.rounds(1);
    (world.too_high, world.fast_recovery) = (true, true);
    world.bbr.enter_recovery();
    world.lose(6, None);
    world.rounds(1);
    assert_eq!(world.bbr.state, State::Drain);
    world.enter_probe_rtt();
    assert!(world.bbr.undo());
    assert_eq!(world.bbr.state, State::ProbeRtt);
    world.inflight = 3000;
    // The pipe is not found full meanwhile.
    world.app_limited = true;
    world.until(State::Startup, 60);
}

/// Section 5.3.4.
#[test]
fn each_probe_rtt_lasts_as_long_and_gives_back_what_was_before() {
    let mut world = World::cruising();
    world.rtt = Duration::from_millis(11);
    for _ in 0..2 {
        let mut before = 0;
        for _ in 0..1000 {
            if world.bbr.state == State::ProbeRtt {
                break;
            }
            before = world.bbr.cwnd;
            world.rounds(1);
        }
        assert_eq!(world.bbr.state, State::ProbeRtt);
        let entered = world.now;
        world.until(CRUISE, 30);
        let stayed = world.now.saturating_duration_since(entered);
        assert!(stayed >= Duration::from_millis(200), "{stayed:?}");
        assert!(world.bbr.cwnd >= before.min(2 * BDP));
    }
}
