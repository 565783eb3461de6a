use super::*;
use crate::flood::Rate;

/// The smallest bucket has a token when it is full.
#[test]
fn a_burst_of_one_lets_one_frame_through() {
    let one = Rate {
        burst: 1,
        sharers: 1_000_000,
        ..Rate::of(1)
    };
    let limits = FloodLimits {
        syns: one,
        unknown_flows: one,
        fragments: one,
    };
    let mut bench = Bench::limited(Variant::Frags, &limits);
    assert_eq!(bench.run(&tcp_v4()), "redirected");
}
