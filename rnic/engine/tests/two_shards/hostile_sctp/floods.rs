//! Many at once.

use std::time::Duration;

use super::scene::Scene;
use crate::sctp_peer::{CONTROL, Heard, INITIATE, SEGMENT, control, segment};
use crate::sctp_raw::HOSTILE;
use crate::side::SideConfig;

const ASSOCIATIONS: usize = 8;

fn scene() -> Scene {
    let mut config = SideConfig {
        frames: 600,
        ..SideConfig::default()
    };
    config.shard.limits.associations = ASSOCIATIONS;
    Scene::before_the_session(config)
}

/// An INIT costs nothing, from one end or from many.
#[test]
fn a_flood_of_inits_keeps_nothing() {
    let mut scene = scene();
    for number in 0..3000 {
        let hostile = &mut scene.duel.peers[HOSTILE];
        hostile.move_to(10_000 + number % 1000);
        hostile.tag = 1 + u32::from(number);
        let init = hostile.init();
        scene.duel.give(&[init]);
    }
    assert_eq!(scene.duel.side.shard.levels().connections, 1);
    // A cookie that was seen before, for another port.
    let hostile = &mut scene.duel.peers[HOSTILE];
    hostile.heard.clear();
    hostile.move_to(20_000);
    let echo = hostile.cookie_echo(&[]);
    scene.duel.give(&[echo]);
    assert_eq!(scene.duel.side.counter("sctp_cookies_rejected"), 1);
    scene.assert_innocent_unharmed("INITs", &[]);
}

/// Associations without a session: the table is full, the oldest give way, and none stays for long.
#[test]
fn a_flood_of_associations_keeps_nobody_out() {
    for segments in [false, true] {
        let mut scene = scene();
        let name = format!("segments: {segments}");
        let mut refused = 0;
        for number in 0..100 {
            let hostile = &mut scene.duel.peers[HOSTILE];
            hostile.restart(0x100 + u32::from(number));
            hostile.move_to(10_000 + number);
            let init = hostile.init();
            scene.duel.give(&[init]);
            let hostile = &mut scene.duel.peers[HOSTILE];
            // What is not the first chunk of a session waits.
            let message = segment(9, b"what");
            let chunk = hostile.next_data(SEGMENT, &message);
            let chunks = [chunk];
            let echo = hostile.cookie_echo(if segments { &chunks } else { &[] });
            scene.duel.give(&[echo]);
            let heard = &scene.duel.peers[HOSTILE].heard;
            refused += usize::from(heard.iter().any(|one| matches!(one, Heard::Abort { .. })));
            let connections = scene.duel.side.shard.levels().connections;
            assert!(connections <= ASSOCIATIONS, "{name}: {connections}");
        }
        let gave_way = scene.duel.side.counter("backlog_evicted");
        assert!(refused > 0 || gave_way > 0, "{name}");
        scene.duel.run_for(Duration::from_secs(11));
        assert_eq!(scene.duel.side.shard.levels().connections, 1, "{name}");
        scene.hostile = scene.duel.side.create_qp();
        let hostile = &mut scene.duel.peers[HOSTILE];
        hostile.restart(0x9999);
        hostile.move_to(5000);
        scene.duel.initiate(HOSTILE);
        scene.duel.accept(HOSTILE, scene.hostile);
        let qp = scene.hostile;
        let command = rnic_engine::command::Command::Disconnect { qp, abort: true };
        let now = scene.duel.now;
        scene.duel.side.shard.execute(command, now).unwrap();
        scene.assert_innocent_unharmed(&name, &[]);
    }
}

/// Sessions that nobody answers: the listener's backlog says how many wait, and the rest is told by a Terminate.
#[test]
fn a_flood_of_requests_waits_in_the_backlog() {
    let mut scene = scene();
    let mut told = 0;
    for number in 0..20 {
        let hostile = &mut scene.duel.peers[HOSTILE];
        hostile.restart(0x100 + u32::from(number));
        hostile.move_to(10_000 + number);
        let init = hostile.init();
        scene.duel.give(&[init]);
        let hostile = &mut scene.duel.peers[HOSTILE];
        let message = control(0, INITIATE, b"raw");
        let chunk = hostile.next_data(CONTROL, &message);
        let echo = hostile.cookie_echo(&[chunk]);
        scene.duel.give(&[echo]);
        told += scene.duel.peers[HOSTILE].data.len();
    }
    let mut requests = 0;
    while scene.duel.side.take_request().is_some() {
        requests += 1;
    }
    // The listener's backlog.
    assert_eq!((requests, told), (4, 16));
    assert_eq!(scene.duel.side.counter("backlog_full"), 16);
    // Nobody answers: they end by themselves.
    scene.duel.run_for(Duration::from_secs(61));
    assert_eq!(scene.duel.side.counter("answer_timeouts"), 4);
    scene.assert_innocent_unharmed("requests", &[]);
}
