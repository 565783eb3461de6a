use super::*;

#[test]
fn a_window_of_bytes_is_worth_one_segment_however_it_is_acknowledged() {
    for step in [500, 1000, 2000] {
        let mut reno = NewReno::default();
        let mut cwnd = 10_000;
        for _ in 0..(10_000 / step) {
            assert_eq!(cwnd, 10_000);
            cwnd = reno.grow(cwnd, 1000, step);
        }
        assert_eq!(cwnd, 11_000);
    }
}

#[test]
fn one_acknowledgment_is_worth_one_segment_at_most() {
    let mut reno = NewReno::default();
    assert_eq!(reno.grow(10_000, 1000, u64::MAX), 11_000);
    assert_eq!(reno.grow(11_000, 1000, 1000), 12_000);
    assert_eq!(reno.grow(12_000, 1000, 1000), 12_000);
}

#[test]
fn congestion_halves_the_flight() {
    let mut reno = NewReno::default();
    assert_eq!(reno.grow(10_000, 1000, 9_000), 10_000);
    assert_eq!(reno.reduce(20_000), 10_000);
    assert_eq!(reno.grow(10_000, 1000, 9_000), 10_000, "counts from zero");
}
