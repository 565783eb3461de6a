//! How a fast recovery ends.

use super::*;

/// RFC 9260 section 7.2.4: a timeout ends it, and the slow start after it grows.
#[test]
fn a_timeout_ends_a_fast_recovery() {
    let mut congestion = avoiding();
    assert!(congestion.lost(Tsn(9)));
    congestion.timed_out();
    assert!(!congestion.is_in_fast_recovery());
    // A loss behind it halves the window again.
    assert!(congestion.lost(Tsn(9)));
}
