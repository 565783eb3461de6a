use super::*;

const MS: Duration = Duration::from_millis(1);

#[test]
fn the_first_measurement_sets_srtt_and_half_of_it_as_rttvar() {
    let config = Config {
        min_rto: MS,
        ..Config::default()
    };
    let mut rtt = Rtt::new(&config);
    assert_eq!(rtt.rto(&config), Duration::from_secs(1));
    rtt.measured(100 * MS, &config);
    assert_eq!((rtt.srtt(), rtt.rttvar()), (Some(100 * MS), 50 * MS));
    assert_eq!(rtt.rto(&config), 300 * MS);
}

#[test]
fn later_measurements_are_weighted_by_an_eighth_and_a_quarter() {
    let config = Config {
        min_rto: MS,
        ..Config::default()
    };
    let mut rtt = Rtt::new(&config);
    rtt.measured(100 * MS, &config);
    rtt.measured(180 * MS, &config);
    assert_eq!(
        (rtt.srtt(), rtt.rttvar()),
        (Some(110 * MS), 57 * MS + MS / 2)
    );
}

#[test]
fn the_timeout_stays_within_its_limits() {
    let config = Config::default();
    let mut rtt = Rtt::new(&config);
    rtt.measured(Duration::from_micros(20), &config);
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
    rtt.measured(MS, &config);
    rtt.back_off();
    rtt.back_off();
    assert_eq!(rtt.rto(&config), 4 * config.min_rto);
    rtt.measured(MS, &config);
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
