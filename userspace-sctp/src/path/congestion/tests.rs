mod recovery;

use super::{Acknowledged, Congestion};
use crate::tsn::Tsn;

const PMDCS: usize = 1452;

/// A SACK of one full chunk, with a full window before it.
fn full(congestion: &Congestion) -> Acknowledged {
    Acknowledged {
        bytes: PMDCS,
        advances: true,
        flight_before: congestion.cwnd(),
        all: false,
    }
}

fn sack(congestion: &mut Congestion) {
    let acknowledged = full(congestion);
    congestion.acknowledged(Tsn(1), acknowledged);
}

/// One that lost a packet at a window of 20 chunks and recovered: in congestion avoidance.
fn avoiding() -> Congestion {
    let mut congestion = Congestion::new(PMDCS, false);
    while congestion.cwnd() < 20 * PMDCS {
        sack(&mut congestion);
    }
    congestion.lost(Tsn(0));
    // The first ends the recovery, the second is still one of slow start.
    (0..2).for_each(|_| sack(&mut congestion));
    assert!(congestion.cwnd() > congestion.ssthresh());
    congestion
}

#[test]
fn the_first_window_is_that_of_the_rfc() {
    let first = |pmdcs, is_v6| Congestion::new(pmdcs, is_v6).cwnd();
    assert_eq!(first(1452, false), 4404);
    assert_eq!(first(1432, true), 4344);
    assert_eq!(first(500, false), 2000);
    assert_eq!(first(8952, false), 2 * 8952);
}

#[test]
fn slow_start_grows_by_what_is_acknowledged_and_no_more_than_a_chunk_for_each_sack() {
    let mut congestion = Congestion::new(PMDCS, false);
    let before = congestion.cwnd();
    let grown = |acknowledged: Acknowledged| {
        let mut congestion = congestion.clone();
        congestion.acknowledged(Tsn(1), acknowledged);
        congestion.cwnd() - before
    };
    let all = full(&congestion);
    assert_eq!(grown(all), PMDCS);
    assert_eq!(grown(Acknowledged { bytes: 100, ..all }), 100);
    assert_eq!(
        grown(Acknowledged {
            bytes: 3 * PMDCS,
            ..all
        }),
        PMDCS
    );
    // A window that is not used, or a SACK that only fills blocks, is no reason to grow.
    assert_eq!(
        grown(Acknowledged {
            flight_before: before - 1,
            ..all
        }),
        0
    );
    assert_eq!(
        grown(Acknowledged {
            advances: false,
            ..all
        }),
        0
    );
    sack(&mut congestion);
    assert_eq!(congestion.cwnd(), before + PMDCS);
}

#[test]
fn congestion_avoidance_grows_by_a_chunk_for_each_window() {
    let mut congestion = avoiding();
    for _ in 0..3 {
        let before = congestion.cwnd();
        let mut sacks = 0;
        while congestion.cwnd() == before {
            sack(&mut congestion);
            sacks += 1;
        }
        assert_eq!(congestion.cwnd(), before + PMDCS);
        assert!(sacks * PMDCS + PMDCS >= before, "{sacks}");
    }
}

#[test]
fn a_window_that_is_not_used_does_not_grow_and_saves_up_at_most_one_chunk() {
    let mut congestion = avoiding();
    let before = congestion.cwnd();
    for _ in 0..100 {
        let unused = Acknowledged {
            flight_before: before - 1,
            ..full(&congestion)
        };
        congestion.acknowledged(Tsn(1), unused);
    }
    assert_eq!(congestion.cwnd(), before);
    (0..2).for_each(|_| sack(&mut congestion));
    assert_eq!(congestion.cwnd(), before + PMDCS);
    // What was saved up is gone when all is acknowledged.
    let mut congestion = avoiding();
    let all = Acknowledged {
        all: true,
        flight_before: 1,
        ..full(&congestion)
    };
    (0..100).for_each(|_| congestion.acknowledged(Tsn(1), all));
    sack(&mut congestion);
    assert_eq!(congestion.cwnd(), before);
}

#[test]
fn a_loss_halves_the_window_once_in_a_fast_recovery() {
    let mut congestion = Congestion::new(PMDCS, false);
    while congestion.cwnd() < 20 * PMDCS {
        sack(&mut congestion);
    }
    let before = congestion.cwnd();
    assert!(congestion.lost(Tsn(50)));
    assert_eq!(congestion.cwnd(), before / 2);
    assert!(!congestion.lost(Tsn(60)), "in Fast Recovery");
    // Neither does it grow.
    let acknowledged = full(&congestion);
    congestion.acknowledged(Tsn(49), acknowledged);
    assert_eq!(
        (congestion.cwnd(), congestion.is_in_fast_recovery()),
        (before / 2, true)
    );
    congestion.acknowledged(Tsn(50), acknowledged);
    assert!(!congestion.is_in_fast_recovery());
    assert!(congestion.lost(Tsn(70)));
    assert!(congestion.cwnd() < before / 2);
}

#[test]
fn a_timeout_leaves_one_packet_until_something_is_acknowledged() {
    let mut congestion = avoiding();
    let before = congestion.cwnd();
    congestion.timed_out();
    assert_eq!(congestion.cwnd(), PMDCS);
    assert_eq!(congestion.ssthresh(), (before / 2).max(4 * PMDCS));
    assert!(congestion.may_send(0) && !congestion.may_send(1));
    let nothing = Acknowledged {
        flight_before: 1,
        ..Acknowledged::default()
    };
    congestion.acknowledged(Tsn(1), nothing);
    assert!(!congestion.may_send(1));
    sack(&mut congestion);
    assert!(congestion.may_send(1));
    assert_eq!(congestion.cwnd(), 2 * PMDCS, "slow start again");
}

#[test]
fn the_window_may_be_exceeded_by_less_than_a_packet() {
    let congestion = Congestion::new(PMDCS, false);
    assert!(congestion.may_send(congestion.cwnd() - 1));
    assert!(!congestion.may_send(congestion.cwnd()));
}

#[test]
fn an_idle_window_is_halved_down_to_four_chunks() {
    let mut congestion = Congestion::new(PMDCS, false);
    let first = congestion.cwnd();
    congestion.idle();
    assert_eq!(
        (congestion.cwnd(), congestion.ssthresh()),
        (first, first),
        "below four chunks"
    );
    let mut congestion = avoiding();
    while congestion.cwnd() < 16 * PMDCS {
        sack(&mut congestion);
    }
    let before = congestion.cwnd();
    congestion.idle();
    assert_eq!(congestion.cwnd(), before / 2);
    (0..9).for_each(|_| congestion.idle());
    assert_eq!(congestion.cwnd(), 4 * PMDCS);
}
