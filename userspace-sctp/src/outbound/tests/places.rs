//! Which chunks a SACK and a timeout are about: also the first, and of several paths only one's.

use super::*;

/// RFC 9260 section 6.2.1, D iv.
#[test]
fn the_chunk_right_behind_the_cumulative_tsn_may_be_taken_back() {
    let mut outbound = sent(3);
    sack(&mut outbound, 0, &[(1, 1)]);
    assert_eq!(outbound.flight(), 2 * BYTES);
    sack(&mut outbound, 1, &[]);
    assert_eq!(outbound.flight(), 2 * BYTES);
    outbound.timed_out(0);
    assert_eq!(again(&mut outbound), [1, 2]);
}

/// RFC 9260 section 6.3.3, E3: what is outstanding for the address whose T3-rtx expired.
#[test]
fn a_timeout_of_a_path_leaves_alone_what_is_under_way_on_others() {
    let mut outbound = sent(1);
    assert_eq!(outbound.post(1, BYTES), Ok(tsn(1)));
    outbound.transmit(Instant::ZERO, false, 1).unwrap();
    outbound.timed_out(0);
    assert_eq!(outbound.flight_on(0), 0);
    assert_eq!(outbound.flight_on(1), BYTES);
    assert_eq!(again(&mut outbound), [0]);
}

/// What is sent again is looked for behind a lost chunk that was acknowledged after all.
#[test]
fn the_next_lost_chunk_is_found_when_the_first_one_is_acknowledged() {
    let mut outbound = sent(1);
    for (number, path) in [(1, 1), (2, 0)] {
        assert_eq!(outbound.post(number, BYTES), Ok(tsn(number)));
        outbound.transmit(Instant::ZERO, false, path).unwrap();
    }
    outbound.timed_out(0);
    sack(&mut outbound, 1, &[]);
    assert_eq!(again(&mut outbound), [2]);
}
