//! What is around the segments: headers of retransmissions, IP fragments.

use std::time::Duration;

use rnic_ipc::work::WrOpcode;

use crate::impairment::Impairment;
use crate::link::ROUGH;
use crate::side::{MEMORY, SideConfig, pattern};
use crate::world::World;

const PATIENCE: Duration = Duration::from_secs(600);

/// A link that loses frames and does nothing else to them.
const LOSSY: Impairment = Impairment {
    loss: 30,
    ..Impairment::NONE
};

fn transfer(world: &mut World) {
    const LEN: usize = MEMORY / 2;
    let (qp, _) = world.connect();
    world.a.fill(0, LEN, 3);
    let stag = world.b.stag;
    world.a.post_work(qp, WrOpcode::Write, 1, 0, (stag, 0), LEN);
    let last = LEN - 1;
    let end = pattern(LEN, 3)[last];
    assert!(world.run_until(PATIENCE, |w| w.b.read(last, 1) == [end]));
    world.run_for(Duration::from_secs(5));
    assert!(world.b.read(0, LEN) == pattern(LEN, 3));
    world.assert_no_frame_lost();
}

#[test]
fn every_checksum_of_a_retransmission_is_right() {
    for (v6, timestamps) in [(false, false), (false, true), (true, false), (true, true)] {
        let sides = [(); 2].map(|()| {
            let mut config = SideConfig::default();
            config.shard.tcp.timestamps = timestamps;
            config
        });
        let [a, b] = sides;
        let mut world = World::with(7, LOSSY, a, b, v6);
        transfer(&mut world);
        let resent = world.a.counter("tcp_retransmits");
        assert!(resent > 0, "nothing was lost");
        assert_eq!(world.b.counter("rx_bad_tcp_checksum"), 0);
        assert_eq!(world.b.counter("rx_bad_ip_checksum"), 0);
    }
}

#[test]
fn fragments_of_a_path_that_cuts_are_put_together() {
    for v6 in [false, true] {
        for impairment in [Impairment::NONE, ROUGH] {
            let sides = [(); 2].map(|()| SideConfig::default());
            let [a, b] = sides;
            let mut world = World::with(9, impairment, a, b, v6);
            world.a_to_b.fragment_to = Some(1300);
            world.b_to_a.fragment_to = Some(1300);
            transfer(&mut world);
            let whole = world.b.counter("rx_reassembled");
            assert!(whole > 1000, "{whole} packets");
            if impairment.loss == 0 {
                assert_eq!(world.b.counter("rx_fragments"), 2 * whole);
                assert_eq!(world.a.counter("tcp_retransmits"), 0);
            } else {
                assert!(world.b.counter("rx_fragment_duplicates") > 0);
            }
        }
    }
}

/// Fragments of several chunks, and of one, of packets that take several.
#[test]
fn fragments_of_large_packets_are_put_together() {
    for cut in [5000, 1500] {
        let mut world = World::of_mtu(9, Impairment::NONE, 9000);
        world.a_to_b.fragment_to = Some(cut);
        transfer(&mut world);
        assert!(world.b.counter("rx_reassembled") > 0);
        assert_eq!(world.b.counter("rx_fragments_too_large"), 0);
        assert_eq!(world.b.counter("tcp_out_of_order"), 0, "none was lost");
    }
}

#[test]
fn fragments_whose_rest_never_comes_take_nothing_away() {
    // A sender that looks for a wider way would find one.
    let mut a = SideConfig::default();
    a.shard.tcp.path_mtu_probing = false;
    let mut world = World::with(9, Impairment::NONE, a, SideConfig::default(), false);
    world.a_to_b.fragment_to = Some(1300);
    // Every second frame that comes is the rest of one: all of those are lost.
    world.a_to_b.lose_last_fragments = true;
    let (qp, _) = world.connect();
    let stag = world.b.stag;
    world.a.fill(0, 1 << 20, 3);
    world
        .a
        .post_work(qp, WrOpcode::Write, 1, 0, (stag, 0), 1 << 20);
    world.run_for(Duration::from_secs(20));
    assert!(world.b.counter("rx_fragments") > 0);
    assert_eq!(world.b.counter("rx_reassembled"), 0);
    // No frame is held for them.
    assert_eq!(world.b.shard.levels().frames_free, world.b.frames);
    world.a_to_b.lose_last_fragments = false;
    let done = |w: &mut World| w.b.read((1 << 20) - 8, 8) == pattern(1 << 20, 3)[(1 << 20) - 8..];
    assert!(world.run_until(PATIENCE, done));
    assert!(world.b.read(0, 1 << 20) == pattern(1 << 20, 3));
}
