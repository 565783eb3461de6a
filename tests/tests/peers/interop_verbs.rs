//! Against Linux's siw by the verbs: the messages that no stock tool sends, what may be asked for in
//! the MPA start-up, and what either end does when the other is at fault. Each case has connections
//! and objects of its own, and leaves none behind.

mod errors;
mod messages;
mod perf;
mod registers;
mod rtr;
mod stand;
mod startup;

use rnic_tests::cases::Cases;
use stand::Stand;

#[test]
fn siw_and_we_understand_each_others_messages_and_errors() {
    let stand = Stand::new("verbs");
    let mut cases = Cases::new("verbs, over a bridge, XDP in native mode");
    messages::run(&stand, &mut cases);
    startup::run(&stand, &mut cases);
    errors::run(&stand, &mut cases);
    cases.finish();
}

#[test]
fn siw_and_we_agree_on_each_ready_to_receive_indication() {
    let stand = Stand::of(rtr::peer_to_peer());
    let mut cases = Cases::new("verbs, siw in peer-to-peer mode");
    rtr::run(&stand, &mut cases);
    cases.finish();
}

#[test]
fn rnic_perf_and_siw_move_many_messages_and_over_several_connections() {
    let stand = Stand::new("many");
    let mut cases = Cases::new("rnic-perf, over a bridge, XDP in native mode");
    perf::many(&stand, &mut cases);
    cases.finish();
}

#[test]
fn rnic_perf_and_siw_move_large_messages() {
    let stand = Stand::new("large");
    let mut cases = Cases::new("rnic-perf, over a bridge, XDP in native mode");
    perf::large(&stand, &mut cases);
    cases.finish();
}
