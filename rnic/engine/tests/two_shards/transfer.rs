//! RDMA Write, RDMA Read and Send move the right bytes to the right place, whatever the link does.

use std::time::Duration;

use rnic_ipc::work::{WcStatus, WrOpcode};
use userspace_tcp::CongestionControl;

use crate::impairment::Impairment;
use crate::link::ROUGH;
use crate::random::{Random, seeds};
use crate::side::{MEMORY, SideConfig, pattern};
use crate::world::World;

const PATIENCE: Duration = Duration::from_secs(600);
const SIZES: [usize; 14] = [
    0, 1, 3, 4, 63, 64, 1000, 1424, 1425, 1460, 4096, 65_535, 65_536, 1_000_001,
];

/// The one completion of a work request, which must be a success.
fn expect(world: &World, on_a: bool, wr_id: u64) -> u32 {
    let side = if on_a { &world.a } else { &world.b };
    let completion = side
        .completion(wr_id)
        .unwrap_or_else(|| panic!("no completion of {wr_id}"));
    assert_eq!(
        WcStatus::from_u8(completion.status),
        Some(WcStatus::Success),
        "{completion:?}"
    );
    completion.byte_len
}

pub fn every_size(mut world: World) -> World {
    let (qp_a, qp_b) = world.connect();
    let remote = world.b.stag;
    for (index, len) in SIZES.into_iter().enumerate() {
        let id = index as u64 * 10;
        // Write from a to b, then a Send that says so.
        world.a.fill(0, len, id);
        world.b.post_recv(qp_b, id + 1, 4 << 20, 2 << 20);
        world
            .a
            .post_work(qp_a, WrOpcode::Write, id + 2, 0, (remote, 1 << 20), len);
        world
            .a
            .post_work(qp_a, WrOpcode::Send, id + 3, 0, (remote, 0), len);
        assert!(
            world.run_until(PATIENCE, |w| {
                w.b.completion(id + 1).is_some() && w.a.completion(id + 3).is_some()
            }),
            "Send of {len}: {:?} {:?} {:?}",
            world.a.events,
            world.b.events,
            world.a.completions
        );
        expect(&world, true, id + 2);
        expect(&world, true, id + 3);
        assert_eq!(expect(&world, false, id + 1) as usize, len);
        // The Send was delivered, so the Write before it is placed (RFC 5040 section 5.5).
        assert!(
            world.b.read(1 << 20, len) == pattern(len, id),
            "Write of {len}"
        );
        assert!(
            world.b.read(4 << 20, len) == pattern(len, id),
            "Send of {len}"
        );
        // And back by Read.
        world.a.post_work(
            qp_a,
            WrOpcode::Read,
            id + 4,
            6 << 20,
            (remote, 1 << 20),
            len,
        );
        assert!(
            world.run_until(PATIENCE, |w| w.a.completion(id + 4).is_some()),
            "Read of {len}"
        );
        assert_eq!(expect(&world, true, id + 4) as usize, len);
        assert!(
            world.a.read(6 << 20, len) == pattern(len, id),
            "Read of {len}"
        );
    }
    world.run_for(Duration::from_secs(2));
    world.assert_no_frame_lost();
    world
}

#[test]
fn every_operation_of_every_size_arrives() {
    every_size(World::new(1, Impairment::NONE));
}

#[test]
fn every_operation_of_every_size_arrives_with_markers() {
    for markers in [[true, false], [false, true], [true, true]] {
        let mut world = World::new(1, Impairment::NONE);
        world.markers = markers;
        every_size(world);
    }
}

/// Frames that are sent from several chunks and received into several.
#[test]
fn every_operation_of_every_size_arrives_in_frames_of_several_chunks() {
    for mtu in [5000, 9000, 11_502] {
        for markers in [[false, false], [true, true]] {
            for impairment in [Impairment::NONE, ROUGH] {
                let mut world = World::of_mtu(u64::from(mtu), impairment, mtu);
                world.markers = markers;
                let mut world = every_size(world);
                // FPDUs are multiples of four bytes.
                let full = mtu as usize + 14;
                assert!((full - 3..=full).contains(&world.a_to_b.largest));
                assert_eq!(world.b.counter("rx_tcp_malformed"), 0);
            }
        }
    }
}

#[test]
fn every_operation_arrives_over_ipv6() {
    let (a, b) = (SideConfig::default(), SideConfig::default());
    every_size(World::with(1, Impairment::NONE, a, b, true));
}

#[test]
fn every_operation_arrives_without_tcp_options() {
    let mut a = SideConfig::default();
    a.shard.tcp.timestamps = false;
    a.shard.tcp.sack = false;
    a.shard.tcp.window_scale = false;
    every_size(World::with(
        1,
        Impairment::NONE,
        a,
        SideConfig::default(),
        false,
    ));
}

#[test]
fn loss_reordering_duplication_and_corruption_change_nothing() {
    for seed in seeds(3) {
        println!("seed {seed}");
        let mut world = World::new(seed, ROUGH);
        world.markers = [seed & 1 == 1, seed & 2 == 2];
        let mut world = every_size(world);
        assert!(
            world.a.counter("tcp_retransmits") > 0,
            "the link was not rough at all"
        );
        assert!(world.b.counter("tcp_out_of_order") > 0);
    }
}

/// Bytes that come behind a gap are placed as they come when their FPDU is whole, and the frames
/// are free again, by Markers or by the extension; without either none of them are.
#[test]
fn with_markers_or_aligned_almost_every_byte_out_of_order_is_placed_on_arrival() {
    let impairment = Impairment {
        loss: 10,
        reorder: 50,
        ..Impairment::NONE
    };
    for (opcode, markers, aligned, mtu) in [
        (WrOpcode::Write, true, false, 1500),
        (WrOpcode::Read, true, false, 1500),
        (WrOpcode::Send, true, false, 1500),
        (WrOpcode::Write, true, false, 9000),
        (WrOpcode::Send, true, false, 9000),
        (WrOpcode::Write, false, true, 1500),
        (WrOpcode::Read, false, true, 1500),
        (WrOpcode::Send, false, true, 1500),
        (WrOpcode::Write, false, true, 9000),
        (WrOpcode::Send, false, true, 9000),
        (WrOpcode::Write, false, false, 1500),
        (WrOpcode::Write, false, false, 9000),
    ] {
        let mut world = World::of_mtu(7, impairment, mtu);
        world.markers = [markers; 2];
        world.aligned = aligned;
        let (qp_a, qp_b) = world.connect();
        let (remote, len) = (world.b.stag, 4 << 20);
        world.a.fill(0, len, 1);
        world.b.fill(0, len, 1);
        world.b.post_recv(qp_b, 9, 4 << 20, len);
        let at = if opcode == WrOpcode::Read { 4 << 20 } else { 0 };
        let to = if opcode == WrOpcode::Read { 0 } else { 4 << 20 };
        world.a.post_work(qp_a, opcode, 1, at, (remote, to), len);
        let done = |w: &mut World| w.a.completion(1).is_some();
        assert!(world.run_until(PATIENCE, done), "{opcode:?}");
        world.run_for(Duration::from_secs(2));
        let sink = if opcode == WrOpcode::Read {
            &mut world.a
        } else {
            &mut world.b
        };
        assert!(sink.read(4 << 20, len) == pattern(len, 1), "{opcode:?}");
        let early = sink.counter("bytes_placed_early");
        let late = sink.counter("bytes_parked");
        println!(
            "{opcode:?}, markers {markers}, aligned {aligned}, MTU {mtu}: {early} placed early, \
             {late} parked"
        );
        if markers || aligned {
            assert!(early > 100_000, "{early} placed early");
            assert!(late * 100 <= early, "{late} parked, {early} placed early");
        } else {
            assert_eq!(early, 0);
            assert!(late > 100_000);
        }
        world.assert_no_frame_lost();
    }
}

/// Many Sends are in flight, and each goes to the receive of its number whatever is missing before
/// it; the completions come in order all the same.
#[test]
fn of_many_small_sends_almost_every_byte_out_of_order_is_placed_on_arrival() {
    const SENDS: u64 = 2000;
    const LEN: usize = 700;
    const SLOTS: u64 = 100;
    let impairment = Impairment {
        loss: 10,
        reorder: 50,
        delay: Duration::from_micros(200),
        ..Impairment::NONE
    };
    for (markers, aligned) in [(true, false), (false, true), (false, false)] {
        let mut world = World::new(3, impairment);
        world.markers = [markers; 2];
        world.aligned = aligned;
        let (qp_a, qp_b) = world.connect();
        let stag = world.b.stag;
        world.a.fill(0, SENDS as usize + LEN, 5);
        let bytes = pattern(SENDS as usize + LEN, 5);
        let (mut posted, mut received) = (0, 0);
        let at = |wr_id: u64| (4 << 20) + (wr_id % SLOTS) as usize * LEN;
        for wr_id in 0..SLOTS {
            world.b.post_recv(qp_b, wr_id, at(wr_id), LEN);
        }
        let done = |w: &mut World| {
            for completion in std::mem::take(&mut w.b.completions) {
                let wr_id = received;
                assert_eq!((completion.wr_id, completion.status), (wr_id, 0));
                let from = wr_id as usize;
                let found = w.b.read(at(wr_id), LEN);
                assert!(found == bytes[from..from + LEN], "Send {wr_id}");
                w.b.post_recv(qp_b, wr_id + SLOTS, at(wr_id), LEN);
                received += 1;
            }
            while posted < SENDS.min(received + SLOTS)
                && posted - w.a.completions.len() as u64 <= 64
            {
                let from = posted as usize;
                w.a.post_work(qp_a, WrOpcode::Send, posted, from, (stag, 0), LEN);
                posted += 1;
            }
            received == SENDS
        };
        assert!(world.run_until(PATIENCE, done), "{:?}", world.b.events);
        let early = world.b.counter("bytes_placed_early");
        let late = world.b.counter("bytes_parked");
        println!("markers {markers}, aligned {aligned}: {early} placed early, {late} parked");
        if markers || aligned {
            assert!(early > 100_000, "{early} placed early");
            assert!(late * 100 <= early, "{late} parked, {early} placed early");
        } else {
            assert_eq!(early, 0);
            assert!(late > 100_000);
        }
        assert_eq!(world.b.counter("bounced"), 0);
        assert_eq!(world.b.counter("bytes_placed"), SENDS * LEN as u64);
        world.run_for(Duration::from_secs(2));
        world.assert_no_frame_lost();
    }
}

#[test]
fn few_frames_are_enough() {
    for seed in seeds(2) {
        let few = || {
            let mut side = SideConfig {
                frames: 160,
                wire_depth: 32,
                ..SideConfig::default()
            };
            side.shard.receive_reserve = 64;
            side
        };
        every_size(World::with(seed, ROUGH, few(), few(), false));
    }
}

#[test]
fn random_work_both_ways_leaves_both_memories_as_expected() {
    for seed in seeds(4) {
        println!("seed {seed}");
        work_at_random(seed, World::new(seed, ROUGH));
    }
}

/// Links of any MTU and roughness, few frames, small windows, TCP options on and off.
#[test]
fn random_settings_and_work_leave_both_memories_as_expected() {
    for seed in seeds(8) {
        let mut random = Random::new(!seed);
        // Frames of one chunk, or of up to three.
        let most = if random.chance(600) { 3822 } else { 11_502 };
        let mtu = 576 + random.below(most - 576 + 1) as u32;
        let sides = [(); 2].map(|()| {
            let mut config = SideConfig {
                frames: 32 + random.below(400) as u32,
                wire_depth: 8 + random.below(200) as usize,
                ..SideConfig::default()
            };
            let tcp = &mut config.shard.tcp;
            tcp.receive_window = 1 << (10 + random.below(11));
            tcp.send_queue_segments = 2 + random.below(200) as usize;
            tcp.timestamps = random.chance(700);
            tcp.sack = random.chance(700);
            tcp.window_scale = random.chance(700);
            if random.chance(300) {
                tcp.congestion = CongestionControl::Bbr;
            }
            config.shard.path_defaults.mtu = mtu;
            config
        });
        let impairment = Impairment {
            loss: random.below(80),
            duplicate: random.below(50),
            corrupt: random.below(20),
            reorder: random.below(300),
            delay: Duration::from_micros(1 + random.below(2000)),
        };
        let v6 = random.chance(500);
        println!("seed {seed}");
        let [a, b] = sides;
        let mut world = World::with(seed, impairment, a, b, v6);
        world.markers = [random.chance(500), random.chance(500)];
        world.aligned = random.chance(500);
        work_at_random(seed, world);
    }
}

/// Random work both ways at once; at the end both memories are as a model says.
fn work_at_random(seed: u64, mut world: World) {
    const AREA: usize = 1 << 20;
    let mut random = Random::new(seed);
    let (qp_a, qp_b) = world.connect();
    let stags = [world.a.stag, world.b.stag];
    // Sources are written once, sinks of different work don't overlap: so order is no matter.
    let mut expected = [vec![0; MEMORY], vec![0; MEMORY]];
    for (index, side) in [&world.a, &world.b].into_iter().enumerate() {
        side.fill(0, AREA, seed * 2 + index as u64);
        expected[index][..AREA].copy_from_slice(&pattern(AREA, seed * 2 + index as u64));
    }
    let mut sink = [2 * AREA, 2 * AREA];
    let mut posted = 0;
    for id in 0..60_u64 {
        let from_a = random.chance(500);
        let (us, them) = if from_a { (0, 1) } else { (1, 0) };
        let len = random.below(40_000) as usize;
        let source = random.below((AREA - len) as u64) as usize;
        let opcode = [WrOpcode::Write, WrOpcode::Read, WrOpcode::Send][random.below(3) as usize];
        let (gets, at) = if opcode == WrOpcode::Read {
            (us, sink[us])
        } else {
            (them, sink[them])
        };
        sink[gets] += len;
        let bytes = expected[1 - gets][source..source + len].to_vec();
        expected[gets][at..at + len].copy_from_slice(&bytes);
        let (side, qp) = if from_a {
            (&mut world.a, qp_a)
        } else {
            (&mut world.b, qp_b)
        };
        match opcode {
            WrOpcode::Write => side.post_work(qp, opcode, id, source, (stags[them], at), len),
            WrOpcode::Read => side.post_work(qp, opcode, id, at, (stags[them], source), len),
            _ => {
                side.post_work(qp, opcode, id, source, (stags[them], 0), len);
            }
        }
        if opcode == WrOpcode::Send {
            let (side, qp) = if from_a {
                (&mut world.b, qp_b)
            } else {
                (&mut world.a, qp_a)
            };
            side.post_recv(qp, 1000 + id, at, len);
            posted += 1;
        }
        posted += 1;
        if random.chance(300) {
            world.step();
        }
    }
    let done = |w: &mut World| w.a.completions.len() + w.b.completions.len() == posted;
    assert!(
        world.run_until(PATIENCE, done),
        "seed {seed}: {} of {posted}; {:?} {:?}",
        world.a.completions.len() + world.b.completions.len(),
        world.a.events,
        world.b.events
    );
    for completion in world.a.completions.iter().chain(&world.b.completions) {
        assert_eq!(
            completion.status,
            WcStatus::Success as u8,
            "seed {seed} {completion:?}"
        );
    }
    // A Write has no sign at its sink; what was in flight after the final completion may land.
    world.run_for(Duration::from_secs(30));
    assert!(
        world.a.read(0, MEMORY) == expected[0],
        "seed {seed}: memory of a"
    );
    assert!(
        world.b.read(0, MEMORY) == expected[1],
        "seed {seed}: memory of b"
    );
    world.assert_no_frame_lost();
}

#[test]
fn small_messages_that_are_posted_together_share_segments() {
    for markers in [false, true] {
        let mut world = World::new(1, Impairment::NONE);
        world.markers = [markers; 2];
        let (qp_a, _) = world.connect();
        let stag = world.b.stag;
        world.a.fill(0, 100 * 64, 7);
        let before = world.a.counter("tcp_segments_out");
        for id in 0..100 {
            let at = id as usize * 64;
            world
                .a
                .post_work(qp_a, WrOpcode::Write, id, at, (stag, at), 64);
        }
        assert!(world.run_until(PATIENCE, |w| w.a.completions.len() == 100));
        world.run_for(Duration::from_secs(1));
        assert!(world.b.read(0, 100 * 64) == pattern(100 * 64, 7));
        // An FPDU is of 84 bytes, so 17 of them fill a segment of 1460; with Markers each has its own.
        let segments = world.a.counter("tcp_segments_out") - before;
        let expected = if markers { 100..=110 } else { 6..=10 };
        assert!(
            expected.contains(&segments),
            "{segments}, Markers: {markers}"
        );
    }
}

#[test]
fn a_connection_with_much_to_send_does_not_starve_the_others() {
    let mut world = World::new(1, Impairment::NONE);
    let (busy, _) = world.connect();
    let stag = world.b.stag;
    let others: Vec<_> = (0..6).map(|_| world.connect()).collect();
    for id in 0..32 {
        world
            .a
            .post_work(busy, WrOpcode::Write, 1000 + id, 0, (stag, 0), 1 << 20);
    }
    for _ in 0..50 {
        world.step();
    }
    for (id, (qp_a, qp_b)) in others.iter().enumerate() {
        world.b.post_recv(*qp_b, 100 + id as u64, 4 << 20, 64);
        world
            .a
            .post_work(*qp_a, WrOpcode::Send, id as u64, 0, (stag, 0), 64);
    }
    let all = |w: &mut World| (0..6).all(|id| w.b.completion(100 + id).is_some());
    assert!(
        world.run_until(Duration::from_millis(2), all),
        "{:?}",
        world.b.completions
    );
    assert!(
        world.a.completion(1031).is_none(),
        "the busy one was to be busy still"
    );
}
