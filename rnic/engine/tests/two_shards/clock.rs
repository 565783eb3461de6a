//! What time it is for what has come.

use crate::raw::Duel;
use crate::side::SideConfig;

/// A thread that has worked, or had to wait for its core, between its look at the clock and its look
/// at the ring would measure round trips that are shorter than their path.
#[test]
fn the_time_of_a_frame_is_not_before_it_came() {
    let mut duel = Duel::new(SideConfig::default());
    duel.side.listen(4, duel.now);
    assert_eq!(duel.looks_at_the_clock_for_a_syn(), 2);
    duel.pump();
    assert_eq!(duel.side.shard.levels().connections, 1);
}
