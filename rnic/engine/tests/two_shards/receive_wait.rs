//! A Send for which no receive is posted waits (`receive_wait`), and the stream behind it; nobody else does.

use std::time::Duration;

use rnic_engine::command::Command;
use rnic_ipc::control::{DisconnectReason, ReceiveWait};
use rnic_ipc::id::SrqId;
use rnic_ipc::ring::{QpMemory, SrqMemory, WorkQueueProducer, WorkRequest};
use rnic_ipc::work::{WcStatus, WrOpcode};
use rnic_xsk::Port;

use crate::impairment::Impairment;
use crate::link::ROUGH;
use crate::random::{Random, seeds};
use crate::side::{CLIENT, Side, SideConfig, pattern};
use crate::world::World;

const PATIENCE: Duration = Duration::from_secs(600);
const SINK: usize = 4 << 20;

fn world(seed: u64, impairment: Impairment, wait: ReceiveWait) -> World {
    let mut config = SideConfig::default();
    config.shard.receive_wait = wait;
    World::with(seed, impairment, SideConfig::default(), config, false)
}

fn success(world: &World, on_a: bool, wr_id: u64) -> bool {
    let side = if on_a { &world.a } else { &world.b };
    let completion = side.completion(wr_id);
    completion.is_some_and(|it| {
        assert_eq!(
            WcStatus::from_u8(it.status),
            Some(WcStatus::Success),
            "{it:?}"
        );
        true
    })
}

#[test]
fn a_send_waits_until_a_receive_is_posted() {
    let mut world = world(1, Impairment::NONE, ReceiveWait::Forever);
    let (qp_a, qp_b) = world.connect();
    let stag = world.b.stag;
    for id in 0..10 {
        world.a.fill(id as usize * 4096, 4096, id);
        let local = id as usize * 4096;
        world
            .a
            .post_work(qp_a, WrOpcode::Send, id, local, (stag, 0), 4096);
    }
    world.run_for(Duration::from_secs(300));
    assert!(world.b.completions.is_empty());
    assert_eq!(world.b.counter("holds_begun"), 1);
    for id in 0..10 {
        let sink = SINK + id as usize * 4096;
        world.b.post_recv(qp_b, 100 + id, sink, 4096);
        let came = world.run_until(Duration::from_secs(1), |w| success(w, false, 100 + id));
        assert!(came, "{:?}", world.b.events);
        assert_eq!(world.b.read(sink, 4096), pattern(4096, id));
        world.run_for(Duration::from_millis(50));
        assert_eq!(world.b.completions.len() as u64, id + 1);
    }
    assert_eq!(world.b.counter("sends_received"), 10);
    assert_eq!(world.b.counter("holds_begun"), 10);
    assert_eq!(world.b.counter("refused_no_receive"), 0);
    world.assert_no_frame_lost();
}

/// Its own queue pair's setting comes before the interface's.
#[test]
fn without_the_setting_none_waits() {
    let mut world = world(1, Impairment::NONE, ReceiveWait::Forever);
    world.b.receive_wait = Some(ReceiveWait::Off);
    let (qp_a, qp_b) = world.connect();
    let stag = world.b.stag;
    world.a.post_work(qp_a, WrOpcode::Send, 1, 0, (stag, 0), 10);
    let end = |w: &mut World| w.b.disconnected(qp_b).is_some();
    assert!(world.run_until(Duration::from_secs(1), end));
    assert_eq!(world.b.counter("holds_begun"), 0);
    assert_eq!(world.b.counter("refused_no_receive"), 1);
}

#[test]
fn a_send_that_waits_too_long_ends_the_stream_with_a_terminate() {
    for opcode in [WrOpcode::Send, WrOpcode::Immediate] {
        let mut world = world(1, Impairment::NONE, ReceiveWait::Millis(500));
        let (qp_a, qp_b) = world.connect();
        let stag = world.b.stag;
        let len = if opcode == WrOpcode::Send { 10 } else { 0 };
        world.a.post_work(qp_a, opcode, 1, 0, (stag, 0), len);
        world.run_for(Duration::from_millis(480));
        assert!(world.b.disconnected(qp_b).is_none());
        assert!(world.run_until(Duration::from_millis(100), |w| {
            w.a.disconnected(qp_a).is_some() && w.b.disconnected(qp_b).is_some()
        }));
        assert!(matches!(
            world.b.disconnected(qp_b),
            Some(DisconnectReason::TerminateSent { .. })
        ));
        assert!(matches!(
            world.a.disconnected(qp_a),
            Some(DisconnectReason::TerminateReceived { control: 0x1202 })
        ));
        assert_eq!(world.b.counter("holds_ran_out"), 1);
        assert_eq!(world.b.counter("refused_no_receive"), 1);
        world.run_for(Duration::from_secs(20));
        world.assert_no_frame_lost();
    }
}

/// A Read of this side's is answered after a Send that waits for a receive, which this side posts only
/// when the Read is done; the Write behind both is not placed before.
#[test]
fn responses_behind_a_send_that_waits_are_delivered_and_writes_are_not() {
    for (seed, (markers, aligned)) in [(false, false), (true, false), (false, true)]
        .into_iter()
        .enumerate()
    {
        for rough in [false, true] {
            let impairment = if rough { ROUGH } else { Impairment::NONE };
            let mut world = world(seed as u64, impairment, ReceiveWait::Forever);
            world.markers = [markers; 2];
            world.aligned = aligned;
            let (qp_a, qp_b) = world.connect();
            let (of_a, of_b) = (world.a.stag, world.b.stag);
            world.a.fill(0, 100_000, 7);
            world.a.fill(1 << 20, 50_000, 8);
            world
                .a
                .post_work(qp_a, WrOpcode::Send, 1, 0, (of_b, 0), 100_000);
            world
                .a
                .post_work(qp_a, WrOpcode::Write, 2, 0, (of_b, 0), 50_000);
            world.run_for(Duration::from_secs(5));
            for id in 0..4 {
                let at = 2 << 20;
                let source = (of_a, 1 << 20);
                world
                    .b
                    .post_work(qp_b, WrOpcode::Read, 10 + id, at, source, 50_000);
                let done = world.run_until(PATIENCE, |w| success(w, false, 10 + id));
                assert!(done, "{:?} {:?}", world.a.events, world.b.events);
                assert_eq!(world.b.read(at, 50_000), pattern(50_000, 8));
            }
            assert_eq!(world.b.read(0, 50_000), vec![0; 50_000], "the Write waits");
            world.b.post_recv(qp_b, 3, SINK, 100_000);
            let written = pattern(50_000, 7);
            let done = world.run_until(PATIENCE, |w| {
                success(w, false, 3) && w.b.read(0, 50_000) == written
            });
            assert!(
                done,
                "markers {markers}, aligned {aligned}, rough {rough}: {:?} {:?} {:?}",
                world.a.events, world.b.events, world.b.completions
            );
            assert_eq!(world.b.read(SINK, 100_000), pattern(100_000, 7));
            assert_eq!(world.b.counter("read_responses_received"), 4);
            world.run_for(Duration::from_secs(30));
            world.assert_no_frame_lost();
        }
    }
}

/// Sends and Reads both ways over a link that loses, doubles and reorders; receives come late, one by one.
#[test]
fn late_receives_get_every_send_in_order_whatever_the_link_does() {
    for seed in seeds(6) {
        let mut world = world(seed, ROUGH, ReceiveWait::Forever);
        world.markers = [seed % 2 == 0; 2];
        world.aligned = seed % 3 == 1;
        let (qp_a, qp_b) = world.connect();
        let (of_a, of_b) = (world.a.stag, world.b.stag);
        let mut random = Random::new(seed);
        let sizes: Vec<usize> = (0..40).map(|_| random.below(20_000) as usize).collect();
        world.a.fill(0, 1 << 20, 5);
        let sent = pattern(1 << 20, 5);
        for (id, &len) in sizes.iter().enumerate() {
            world
                .a
                .post_work(qp_a, WrOpcode::Send, id as u64, id * 8, (of_b, 0), len);
        }
        for (id, &len) in sizes.iter().enumerate() {
            world.run_for(Duration::from_millis(random.below(40)));
            let (read, receive) = (1000 + id as u64, 2000 + id as u64);
            let size = random.below(30_000) as usize;
            world
                .b
                .post_work(qp_b, WrOpcode::Read, read, 0, (of_a, id), size);
            assert!(world.run_until(PATIENCE, |w| success(w, false, read)));
            assert!(world.b.read(0, size) == sent[id..id + size], "Read {id}");
            world.b.post_recv(qp_b, receive, SINK, 32 << 10);
            assert!(world.run_until(PATIENCE, |w| success(w, false, receive)));
            assert_eq!(world.b.completion(receive).unwrap().byte_len as usize, len);
            assert!(
                world.b.read(SINK, len) == sent[id * 8..id * 8 + len],
                "Send {id}"
            );
        }
        assert!(world.b.counter("holds_begun") > 10);
        world.run_for(Duration::from_secs(60));
        world.assert_no_frame_lost();
    }
}

/// However much a peer sends after a Send that waits, it is at most the window, and half of the frames that may
/// be parked. Another connection goes on meanwhile.
#[test]
fn streams_that_wait_leave_frames_to_the_others() {
    let mut config = SideConfig::default();
    config.shard.receive_wait = ReceiveWait::Forever;
    config.shard.limits.connections = 256;
    config.shard.limits.queue_pairs = 256;
    let mut other = SideConfig::default();
    other.shard.limits = config.shard.limits;
    let mut world = World::with(3, Impairment::NONE, other, config, false);
    world.b.depth = 16;
    world.a.depth = 16;
    let held: Vec<_> = (0..100).map(|_| world.connect()).collect();
    let (qp_a, qp_b) = world.connect();
    let stag = world.b.stag;
    for (index, &(flooding, _)) in held.iter().enumerate() {
        world.settle();
        for id in 0..8 {
            let id = 1000 + index as u64 * 8 + id;
            world
                .a
                .post_work(flooding, WrOpcode::Send, id, 0, (stag, 0), 256 << 10);
        }
    }
    world.run_for(Duration::from_secs(20));
    let levels = world.b.shard.levels();
    assert!(levels.frames_held <= world.b.frames / 2, "{levels:?}");
    let begun = world.now;
    for id in 0..32 {
        world.b.post_recv(qp_b, 500 + id, SINK, 256 << 10);
        world
            .a
            .post_work(qp_a, WrOpcode::Send, id, 0, (stag, 0), 256 << 10);
        assert!(world.run_until(PATIENCE, |w| success(w, false, 500 + id)));
    }
    let took = world.now.saturating_duration_since(begun);
    assert!(took < Duration::from_secs(5), "{took:?}");
    // All of them go on, one by one.
    for &(_, waiting) in &held {
        world.settle();
        for id in 0..8 {
            world.b.post_recv(
                waiting,
                10_000 + u64::from(waiting.0) * 8 + id,
                SINK,
                256 << 10,
            );
        }
    }
    let all = |w: &mut World| w.b.counter("sends_received") == 832;
    assert!(world.run_until(PATIENCE, all));
    world.run_for(Duration::from_secs(60));
    world.assert_no_frame_lost();
}

/// The end of whatever waits gives its frames back, and a graceful end is one.
#[test]
fn whoever_ends_a_stream_that_waits_leaves_nothing() {
    for end in 0..5 {
        let mut world = world(1, Impairment::NONE, ReceiveWait::Forever);
        let (qp_a, qp_b) = world.connect();
        let stag = world.b.stag;
        for id in 0..8 {
            world
                .a
                .post_work(qp_a, WrOpcode::Send, id, 0, (stag, 0), 20_000);
        }
        world.run_for(Duration::from_secs(2));
        assert!(world.b.shard.levels().frames_held > 0);
        let now = world.now;
        let (on_a, on_b) = (&mut world.a.shard, &mut world.b.shard);
        let (qp, abort) = (qp_b, end % 2 == 0);
        match end {
            0 | 1 => on_b.execute(Command::Disconnect { qp, abort }, now),
            2 | 3 => on_a.execute(Command::Disconnect { qp: qp_a, abort }, now),
            _ => on_b.execute(Command::RemoveQp { qp }, now),
        }
        .unwrap();
        assert!(
            world.run_until(Duration::from_secs(11), |w| {
                w.a.disconnected(qp_a).is_some() && (end == 4 || w.b.disconnected(qp_b).is_some())
            }),
            "{end}: {:?} {:?}",
            world.a.events,
            world.b.events
        );
        if end == 1 {
            assert_eq!(world.b.disconnected(qp_b), Some(DisconnectReason::Graceful));
        }
        world.run_for(Duration::from_secs(60));
        world.assert_no_frame_lost();
    }
}

/// What the peer sent before its FIN is received, however late the receives come, and then the end is told.
#[test]
fn sends_before_a_fin_are_received() {
    let mut world = world(1, Impairment::NONE, ReceiveWait::Forever);
    let (qp_a, qp_b) = world.connect();
    let stag = world.b.stag;
    for id in 0..4 {
        world
            .a
            .post_work(qp_a, WrOpcode::Send, id, 0, (stag, 0), 3000);
    }
    let (qp, abort) = (qp_a, false);
    let disconnect = Command::Disconnect { qp, abort };
    world.run_for(Duration::from_millis(10));
    world.a.shard.execute(disconnect, world.now).unwrap();
    for id in 0..4 {
        world.run_for(Duration::from_secs(2));
        assert!(world.b.disconnected(qp_b).is_none());
        world.b.post_recv(qp_b, 100 + id, SINK, 3000);
        assert!(world.run_until(Duration::from_secs(1), |w| success(w, false, 100 + id)));
    }
    assert!(world.run_until(Duration::from_secs(1), |w| {
        w.b.disconnected(qp_b).is_some()
    }));
    assert_eq!(world.b.disconnected(qp_b), Some(DisconnectReason::Graceful));
    world.run_for(Duration::from_secs(60));
    world.assert_no_frame_lost();
}

const SRQ: SrqId = SrqId(1);

fn add_srq<P: Port>(side: &mut Side<P>) -> WorkQueueProducer {
    let slots = QpMemory::slots(64, 4).unwrap();
    let size = SrqMemory::size(slots).unwrap();
    let memory = std::sync::Arc::new(rnic_ipc::shm::SharedMemory::private(size).unwrap());
    let ring = SrqMemory::create_in(memory.clone(), slots, 4).unwrap();
    let command = Command::AddSrq {
        client: CLIENT,
        srq: SRQ,
        max_sge: 4,
        ring,
    };
    side.shard
        .execute(command, userspace_net::Instant::ZERO)
        .unwrap();
    SrqMemory::attach(memory, slots, 4).unwrap()
}

/// Receives of a shared queue go to the streams that wait for them, in the order in which they began to wait, one each;
/// a stream that does not wait yet comes after them.
#[test]
fn a_shared_receive_queue_serves_those_who_wait_in_turn() {
    let mut world = world(1, Impairment::NONE, ReceiveWait::Forever);
    let mut queue = add_srq(&mut world.b);
    world.b.srq = Some(SRQ);
    let pairs: Vec<_> = (0..4).map(|_| world.connect()).collect();
    let stag = world.b.stag;
    for &(qp_a, _) in &pairs[..3] {
        for id in 0..3 {
            world
                .a
                .post_work(qp_a, WrOpcode::Send, id, 0, (stag, 0), 100);
        }
        world.run_for(Duration::from_millis(5));
    }
    // It comes with the receives.
    world
        .a
        .post_work(pairs[3].0, WrOpcode::Send, 9, 0, (stag, 0), 100);
    for id in 0..10 {
        let mut request = WorkRequest::new(WrOpcode::Recv, 100 + id);
        assert!(request.set_sges(&[world.b.sge(SINK, 100)]));
        queue.push(&request).unwrap();
    }
    assert!(world.run_until(PATIENCE, |w| w.b.completions.len() == 10));
    let order: Vec<u32> = world.b.completions.iter().map(|it| it.qp).collect();
    let [a, b, c, d] = [0, 1, 2, 3].map(|index: usize| pairs[index].1.0);
    assert_eq!(order[..3], [a, b, c]);
    for of in [a, b, c] {
        assert_eq!(order.iter().filter(|qp| **qp == of).count(), 3);
    }
    let at = |of: u32, turn: usize| {
        let mut places = order.iter().enumerate().filter(|(_, qp)| **qp == of);
        places.nth(turn).unwrap().0
    };
    for turn in 1..3 {
        assert!(
            at(a, turn) < at(b, turn) && at(b, turn) < at(c, turn),
            "{order:?}"
        );
    }
    assert!(at(d, 0) >= 3, "{order:?}");
}
