//! Paths that change under live connections, because the host's routes or neighbours did.

use std::time::Duration;

use rnic_engine::command::{Answer, Command, CommandError, PathInUse, ShardEvent};
use rnic_ipc::control::DisconnectReason;
use rnic_ipc::work::{WcStatus, WrOpcode};
use rnic_net::{Path, PathDefaults};

use crate::impairment::Impairment;
use crate::link::ROUGH;
use crate::side::{Side, SideConfig, pattern};
use crate::world::World;

const PATIENCE: Duration = Duration::from_secs(600);
const LEN: usize = 1 << 20;

fn paths(world: &mut World) -> Vec<PathInUse> {
    match world.a.shard.execute(Command::QueryPaths, world.now) {
        Ok(Answer::Paths(paths)) => paths,
        other => panic!("{other:?}"),
    }
}

fn only_path(world: &mut World) -> Path {
    paths(world)[0].path.expect("it is known")
}

fn move_to(world: &mut World, path: Path) -> Result<Answer, CommandError> {
    let [PathInUse { local, remote, .. }] = paths(world)[..] else {
        panic!("{:?}", paths(world));
    };
    let command = Command::MovePath {
        local,
        remote,
        path,
    };
    world.a.shard.execute(command, world.now)
}

#[test]
fn a_narrower_path_is_taken_up_in_the_middle_of_a_transfer() {
    for (v6, impairment) in [(false, Impairment::NONE), (true, ROUGH)] {
        let [a, b] = Default::default();
        let mut world = World::with(11, impairment, a, b, v6);
        let (qp, _) = world.connect();
        world.connect();
        world.a.fill(0, LEN, 3);
        let stag = world.b.stag;
        world.a.post_work(qp, WrOpcode::Write, 1, 0, (stag, 0), LEN);
        assert!(world.run_until(PATIENCE, |w| w.b.read(LEN / 4, 1) != [0]));
        let before = paths(&mut world);
        assert_eq!(before.len(), 1, "two connections, one path");
        let path = Path {
            mtu: 1280,
            hop_limit: 9,
            ..only_path(&mut world)
        };
        move_to(&mut world, path).unwrap();
        assert_eq!(only_path(&mut world), path);
        assert_eq!(world.a.counter("path_moves"), 2);
        assert!(world.a.counter("mss_changes") >= 2);
        world.a_to_b.largest = 0;
        // What was posted before is longer, and goes out in fragments.
        assert!(world.run_until(PATIENCE, |w| w.a.completion(1).is_some()));
        world.run_for(Duration::from_secs(2));
        assert!(world.b.read(0, LEN) == pattern(LEN, 3));
        assert!(
            world.a_to_b.largest <= 14 + 1280,
            "{}",
            world.a_to_b.largest
        );
        // What is posted from now on is as long as the way allows, and needs none (RFC 5041 section 3).
        let fragments = world.a.counter("tx_fragmented");
        let sent = world.a.counter("fpdus_sent");
        world.a.fill(0, LEN, 4);
        world.a.post_work(qp, WrOpcode::Write, 2, 0, (stag, 0), LEN);
        assert!(world.run_until(PATIENCE, |w| w.a.completion(2).is_some()));
        world.run_for(Duration::from_secs(2));
        assert!(world.b.read(0, LEN) == pattern(LEN, 4));
        assert_eq!(world.a.counter("tx_fragmented"), fragments);
        let sent = world.a.counter("fpdus_sent") - sent;
        // 1280 bytes less the headers of IP and TCP, with timestamps, of the FPDU, and of the Write.
        let payload = 1280 - if v6 { 72 } else { 52 } - 2 - 4 - 14;
        let least = LEN.div_ceil(payload) as u64;
        assert!(
            (least..least + least / 20).contains(&sent),
            "{sent} FPDUs, {least} are enough"
        );
        world.assert_no_frame_lost();
    }
}

#[test]
fn fragments_wait_for_room_on_the_link() {
    let narrow = || SideConfig {
        wire_depth: 5,
        ..SideConfig::default()
    };
    let mut world = World::with(16, Impairment::NONE, narrow(), SideConfig::default(), false);
    let queue_pairs: Vec<_> = (0..4).map(|_| world.connect().0).collect();
    world.a.fill(0, LEN, 3);
    let stag = world.b.stag;
    for (id, qp) in (0..).zip(&queue_pairs) {
        world
            .a
            .post_work(*qp, WrOpcode::Write, id, 0, (stag, 0), LEN);
    }
    assert!(world.run_until(PATIENCE, |w| w.b.read(LEN / 4, 1) != [0]));
    // All that is under way is lost, and too large for the way when it goes again: each full segment
    // makes three fragments.
    world.a_to_b.cut = true;
    world.run_for(Duration::from_millis(20));
    let path = Path {
        mtu: 576,
        ..only_path(&mut world)
    };
    move_to(&mut world, path).unwrap();
    world.a_to_b.cut = false;
    let done = |w: &mut World| (0..4).all(|id| w.a.completion(id).is_some());
    assert!(world.run_until(PATIENCE, done));
    world.run_for(Duration::from_secs(2));
    assert!(world.b.read(0, LEN) == pattern(LEN, 3));
    assert!(world.a.counter("tx_fragmented") > 0);
    assert_eq!(
        world.a.counter("transmit_full"),
        0,
        "nothing was dropped here"
    );
    world.assert_no_frame_lost();
}

#[test]
fn no_connection_moves_to_a_path_that_it_could_not_begin_with() {
    let mut world = World::new(12, Impairment::NONE);
    world.connect();
    let path = only_path(&mut world);
    for mtu in [0, 575, 65_536, u32::MAX] {
        let refused = move_to(&mut world, Path { mtu, ..path }).unwrap_err();
        assert!(matches!(refused, CommandError::Invalid(_)), "{refused}");
    }
    assert_eq!(only_path(&mut world), path);
    assert_eq!(world.a.counter("path_moves"), 0);
    // The same once more moves nothing either.
    move_to(&mut world, path).unwrap();
    assert_eq!(world.a.counter("path_moves"), 0);
}

#[test]
fn passive_connections_begin_with_what_the_interface_has_at_the_time() {
    let mut world = World::new(13, Impairment::NONE);
    let defaults = PathDefaults {
        hop_limit_v4: 3,
        ..PathDefaults::new(1000)
    };
    let set = |side: &mut Side, defaults, now| {
        let command = Command::SetPathDefaults(defaults);
        side.shard.execute(command, now).unwrap();
    };
    set(&mut world.a, defaults, world.now);
    set(&mut world.b, PathDefaults::new(u32::MAX), world.now);
    world.connect();
    let found = match world.b.shard.execute(Command::QueryPaths, world.now) {
        Ok(Answer::Paths(paths)) => paths[0].path.expect("it is known"),
        other => panic!("{other:?}"),
    };
    assert!(found.mtu < 4096, "{found:?}: no frame has room for that");
}

#[test]
fn a_peer_that_falls_silent_is_told_of() {
    let mut world = World::new(14, Impairment::NONE);
    let (qp, _) = world.connect();
    let PathInUse { local, remote, .. } = paths(&mut world)[0];
    world.a_to_b.cut = true;
    let stag = world.b.stag;
    world.a.post_work(qp, WrOpcode::Write, 1, 0, (stag, 0), 100);
    let doubted = |w: &mut World| {
        let events = w.a.events.iter();
        events
            .filter(|event| {
                matches!(event, ShardEvent::PathDoubtful { local: l, remote: r }
                    if (*l, *r) == (local, remote))
            })
            .count()
    };
    assert!(world.run_until(Duration::from_secs(60), |w| doubted(w) > 0));
    world.run_for(Duration::from_secs(60));
    assert_eq!(doubted(&mut world), 1, "once for each time of silence");
}

#[test]
fn connections_of_another_vlan_keep_their_way() {
    let mut world = World::new(15, Impairment::NONE);
    world.connect();
    let path = only_path(&mut world);
    let tagged = Path {
        vlan: Some(5),
        hop_limit: 9,
        ..path
    };
    move_to(&mut world, tagged).unwrap();
    assert_eq!(only_path(&mut world), path);
    assert_eq!(world.a.counter("path_moves"), 0);
}

#[test]
fn all_connections_of_an_interface_that_is_gone_end_and_say_so() {
    let mut world = World::new(16, Impairment::NONE);
    let (qp, _) = world.connect();
    let (other, _) = world.connect();
    let stag = world.b.stag;
    world.a.post_work(qp, WrOpcode::Read, 1, 0, (stag, 0), LEN);
    world.run_for(Duration::from_micros(10));
    let interface = "eth7".to_owned();
    let gone = Command::InterfaceGone { interface };
    world.a.shard.execute(gone, world.now).unwrap();
    world.run_for(Duration::from_secs(1));
    for qp in [qp, other] {
        let reason = world.a.disconnected(qp);
        assert_eq!(reason, Some(DisconnectReason::InterfaceGone));
    }
    let flushed = world.a.completion(1).unwrap();
    assert_eq!(flushed.status, WcStatus::WorkRequestFlushed as u8);
    assert_eq!(world.a.shard.levels().connections, 0);
    world.assert_no_frame_lost();
}

#[test]
fn connections_from_an_address_that_is_gone_end_and_no_others() {
    let mut world = World::new(17, Impairment::NONE);
    let (qp, of_peer) = world.connect();
    let gone = |address| Command::AddressGone { address };
    let (own, peer) = (world.a.address, world.b.address);
    world.a.shard.execute(gone(peer.ip()), world.now).unwrap();
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.a.disconnected(qp), None);
    world.a.shard.execute(gone(own.ip()), world.now).unwrap();
    world.run_for(Duration::from_secs(1));
    let [ours, theirs] = [world.a.disconnected(qp), world.b.disconnected(of_peer)];
    assert_eq!(ours, Some(DisconnectReason::AddressGone));
    assert_eq!(theirs, Some(DisconnectReason::Reset));
    world.assert_no_frame_lost();
}
