use super::*;

const MS: Duration = Duration::from_millis(1);
const MS_NANOS: u64 = 1_000_000;

#[test]
fn the_first_measurement_sets_srtt_and_half_of_it_as_rttvar() {
    let config = Config {
        min_rto: MS,
        ..Config::default()
    };
    let mut rtt = Rtt::new(&config);
    assert_eq!(rtt.rto(&config), Duration::from_secs(1));
    rtt.measured(100 * MS_NANOS, &config);
    assert_eq!(
        (rtt.srtt_nanos(), rtt.rttvar()),
        (Some(100 * MS_NANOS), 50 * MS)
    );
    assert_eq!(rtt.rto(&config), 300 * MS);
}

#[test]
fn later_measurements_are_weighted_by_an_eighth_and_a_quarter() {
    let config = Config {
        min_rto: MS,
        ..Config::default()
    };
    let mut rtt = Rtt::new(&config);
    rtt.measured(100 * MS_NANOS, &config);
    rtt.measured(180 * MS_NANOS, &config);
    assert_eq!(
        (rtt.srtt_nanos(), rtt.rttvar()),
        (Some(110 * MS_NANOS), 57 * MS + MS / 2)
    );
}

#[test]
fn the_timeout_stays_within_its_limits() {
    let config = Config::default();
    let mut rtt = Rtt::new(&config);
    rtt.measured(20_000, &config);
    assert_eq!(rtt.rto(&config), config.min_rto);
    for _ in 0..100 {
        rtt.back_off();
    }
    assert_eq!(rtt.rto(&config), config.max_rto);
}

#[test]
fn back_off_doubles_until_the_next_measurement() {
    let config = Config::default();
    let mut rtt = Rtt::new(&config);
    rtt.measured(MS_NANOS, &config);
    rtt.back_off();
    rtt.back_off();
    assert_eq!(rtt.rto(&config), 4 * config.min_rto);
    rtt.measured(MS_NANOS, &config);
    assert_eq!(rtt.rto(&config), config.min_rto);
}

#[test]
fn a_lost_syn_makes_the_first_data_timeout_three_seconds() {
    let config = Config::default();
    let mut rtt = Rtt::new(&config);
    rtt.back_off();
    rtt.handshake_over(true, &config);
    assert_eq!(rtt.rto(&config), Duration::from_secs(3));
}

#[test]
fn a_calm_path_leaves_half_a_round_trip_of_patience() {
    let config = Config::default();
    let mut rtt = Rtt::new(&config);
    for _ in 0..100 {
        rtt.measured(400 * MS_NANOS, &config);
    }
    assert!(rtt.rttvar() < MS);
    assert_eq!(rtt.rto(&config), 600 * MS);
}
