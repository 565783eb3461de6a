//! Peers that break rules: each gets its named end, and nothing else suffers.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rnic_engine::capture::{Capture, SeenFrame};
use rnic_engine::command::{Command, ShardEvent};
use rnic_ipc::capture::{Direction, Filter};
use rnic_ipc::control::{DisconnectReason, Event, MarkerUse, MpaOptions, QpState};
use rnic_ipc::id::QpNum;
use rnic_ipc::work::WrOpcode;
use rnic_proto::Stag;

use crate::impairment::Impairment;
use crate::random::{Random, seeds};
use crate::raw::{Duel, request, write_fpdu};
use crate::side::{BASE, Side, SideConfig, pattern};
use crate::world::World;

/// A raw peer in RDMA mode with a queue pair.
pub fn in_rdma_mode(config: SideConfig, segment: usize) -> (Duel, QpNum) {
    in_rdma_mode_by(config, segment, MarkerUse::Off)
}

/// The same, where the queue pair wants Markers or not.
pub fn in_rdma_mode_by(config: SideConfig, segment: usize, markers: MarkerUse) -> (Duel, QpNum) {
    let mut duel = Duel::new(config);
    let qp = accept(&mut duel, segment, markers);
    (duel, qp)
}

/// The raw peer connects, asks and is accepted.
pub fn accept(duel: &mut Duel, segment: usize, markers: MarkerUse) -> QpNum {
    duel.side.listen(4, duel.now);
    duel.connect();
    duel.send(&request(0, b"raw"), segment);
    let qp = duel.side.create_qp();
    let data = duel.accept(qp, |asked| {
        assert_eq!((asked.revision, asked.crc), (1, true));
        MpaOptions { markers, ..asked }
    });
    assert_eq!(data, b"raw");
    assert!(duel.peer.received.starts_with(b"MPA ID Rep Frame"));
    qp
}

fn assert_no_frame_lost(duel: &Duel) {
    let levels = duel.side.shard.levels();
    assert_eq!(levels.frames_free, duel.side.frames, "{levels:?}");
}

#[test]
fn fpdus_in_segments_of_any_size_and_order_are_placed() {
    for (size, swapped) in [(1, false), (2, true), (7, true), (100, true), (1448, true)] {
        let (mut duel, _) = in_rdma_mode(SideConfig::default(), size.max(3));
        let stag = duel.side.stag.0;
        let bytes = pattern(5000, size as u64);
        let mut stream = Vec::new();
        for (index, part) in bytes.chunks(1250).enumerate() {
            stream.extend(write_fpdu(stag, BASE + 1250 * index as u64, part));
        }
        if swapped {
            duel.send_swapped(&stream, size);
        } else {
            duel.send(&stream, size);
        }
        duel.run_for(Duration::from_secs(5));
        assert!(duel.side.read(0, 5000) == bytes, "segments of {size}");
        assert_no_frame_lost(&duel);
        if size == 1 {
            assert!(
                duel.side.counter("bounced") > 0,
                "no FPDU holds a frame for each byte"
            );
        }
    }
}

#[test]
fn tiny_segments_do_not_use_up_the_frames() {
    let config = SideConfig {
        frames: 300,
        wire_depth: 128,
        ..SideConfig::default()
    };
    let (mut duel, _) = in_rdma_mode(config, 100);
    let fpdu = write_fpdu(duel.side.stag.0, BASE, &pattern(1000, 5));
    // All but the first byte of the FPDU, in segments of one byte.
    let levels = |duel: &Duel| duel.side.shard.levels();
    duel.send(&fpdu[..fpdu.len() - 1], 1);
    assert!(levels(&duel).frames_free > 100, "{:?}", levels(&duel));
    duel.send(&fpdu[fpdu.len() - 1..], 1);
    duel.run_for(Duration::from_secs(1));
    assert!(duel.side.read(0, 1000) == pattern(1000, 5));
    assert_no_frame_lost(&duel);
}

#[test]
fn bytes_beyond_any_start_up_frame_are_not_kept() {
    let mut duel = Duel::new(SideConfig::default());
    duel.side.listen(4, duel.now);
    duel.connect();
    // The longest frame is 20 + 512 bytes.
    duel.send_behind_a_hole(&request(0, &[0; 512]), 100);
    let levels = duel.side.shard.levels();
    assert!((1..6).contains(&levels.frames_held), "{levels:?}");
    duel.send_behind_a_hole(&[0; 100_000], 1000);
    assert_eq!(duel.side.shard.levels().connections, 0);
    duel.pump();
    assert_eq!(duel.side.counter("startup_failed"), 1);
    assert_no_frame_lost(&duel);
}

#[test]
fn a_peer_parks_no_more_frames_than_it_leaves_to_others_and_loses_no_byte() {
    let config = SideConfig {
        frames: 600,
        ..SideConfig::default()
    };
    let (mut duel, _) = in_rdma_mode(config, 1448);
    let stag = duel.side.stag.0;
    let bytes = pattern(400_000, 9);
    let parts = bytes.chunks(1000).enumerate();
    let stream: Vec<u8> = parts
        .flat_map(|(index, part)| write_fpdu(stag, BASE + 1000 * index as u64, part))
        .collect();
    let withheld = duel.send_behind_a_hole(&stream, 1000);
    let levels = duel.side.shard.levels();
    // 600 frames, 256 of them in reserve: 172 for parking, of which one peer takes half.
    assert!(levels.frames_held <= 86, "{levels:?}");
    assert!(levels.frames_free >= 600 - 86, "{levels:?}");
    duel.send_frame(withheld);
    assert!(duel.side.read(0, bytes.len()) == bytes);
    assert_no_frame_lost(&duel);
}

#[test]
fn peers_that_acknowledge_nothing_leave_frames_to_others() {
    // Half of them in reserve.
    let config = SideConfig {
        frames: 120,
        ..SideConfig::default()
    };
    let mut world = World::with(1, Impairment::NONE, config, SideConfig::default(), false);
    let stag = world.b.stag;
    let soon = Duration::from_secs(2);
    // Each of them first shows that much may be in flight, then falls silent.
    for wr_id in [1, 2] {
        let (qp, _) = world.connect();
        for id in [wr_id * 10, wr_id * 10 + 1] {
            world
                .a
                .post_work(qp, WrOpcode::Write, id, 0, (stag, 0), 2 << 20);
        }
        assert!(world.run_until(soon, |w| w.a.completion(wr_id * 10).is_some()));
        world.b_to_a.mute.push(40_000 + wr_id as u16);
        world.run_for(Duration::from_millis(100));
    }
    let (qp, _) = world.connect();
    world
        .a
        .post_work(qp, WrOpcode::Write, 3, 0, (stag, 0), 1 << 20);
    assert!(
        world.run_until(soon, |w| w.a.completion(3).is_some()),
        "{:?}",
        world.a.shard.levels()
    );
}

#[test]
fn a_wrong_crc_ends_the_stream_before_anything_is_placed() {
    let (mut duel, qp) = in_rdma_mode(SideConfig::default(), 1448);
    let stag = duel.side.stag.0;
    duel.send(&write_fpdu(stag, BASE, &[]), 1448);
    let mut fpdu = write_fpdu(stag, BASE, &[7; 100]);
    fpdu[50] ^= 1;
    duel.send(&fpdu, 1448);
    duel.run_for(Duration::from_secs(30));
    assert_eq!(duel.side.read(0, 100), [0; 100]);
    assert_eq!(duel.side.counter("crc_errors"), 1);
    // LLP (layer 2), MPA (type 0), CRC error (2): RFC 5044 section 8.2.
    let reason = DisconnectReason::TerminateSent { control: 0x2002 };
    assert_eq!(duel.side.disconnected(qp), Some(reason));
    assert_no_frame_lost(&duel);
}

#[test]
fn a_fin_inside_an_fpdu_is_told_as_such() {
    let (mut duel, qp) = in_rdma_mode(SideConfig::default(), 1448);
    let fpdu = write_fpdu(duel.side.stag.0, BASE, &[7; 100]);
    duel.send(&fpdu[..60], 1448);
    duel.peer.stack.close(duel.peer.conn.unwrap());
    duel.run_for(Duration::from_secs(1));
    assert_eq!(
        duel.side.disconnected(qp),
        Some(DisconnectReason::PeerClosed)
    );
    assert_eq!(duel.side.state(qp), QpState::Error);
    assert_no_frame_lost(&duel);
}

#[test]
fn bytes_that_are_no_mpa_request_end_the_connection() {
    let garbage = b"GET / HTTP/1.1\r\nHost: example\r\n\r\n".to_vec();
    let mut behind = request(0, b"");
    behind.push(0);
    for bytes in [garbage, behind] {
        let mut duel = Duel::new(SideConfig::default());
        duel.side.listen(4, duel.now);
        duel.connect();
        duel.send(&bytes, 1448);
        duel.run_for(Duration::from_secs(1));
        assert!(
            duel.peer.events.contains(&userspace_tcp::Event::Reset),
            "{:?}",
            duel.peer.events
        );
        assert!(duel.side.client_events().next().is_none());
        assert_eq!(duel.side.counter("startup_failed"), 1);
        assert_no_frame_lost(&duel);
    }
}

#[test]
fn bytes_before_the_reply_end_the_request() {
    let mut duel = Duel::new(SideConfig::default());
    duel.side.listen(4, duel.now);
    duel.connect();
    duel.send(&request(0, b""), 1448);
    assert!(duel.side.take_request().is_some());
    duel.send(b"early", 1448);
    let gone = |event: &ShardEvent| {
        matches!(
            event,
            ShardEvent::RequestGone {
                reason: DisconnectReason::NotMpa,
                ..
            }
        )
    };
    assert!(duel.side.events.iter().any(gone), "{:?}", duel.side.events);
}

#[test]
fn silence_in_the_startup_does_not_hold_a_connection() {
    let mut duel = Duel::new(SideConfig::default());
    duel.side.listen(4, duel.now);
    duel.connect();
    duel.send(&request(0, b"")[..10], 1448);
    duel.run_for(Duration::from_secs(11));
    assert!(
        duel.peer.events.contains(&userspace_tcp::Event::Reset),
        "{:?}",
        duel.peer.events
    );
    assert_eq!(duel.side.shard.levels().connections, 0);
    assert_eq!(duel.side.counter("startup_timeouts"), 1);
}

#[test]
fn a_responder_that_is_not_mpa_fails_the_connect_with_a_reason() {
    let mut duel = Duel::new(SideConfig::default());
    let qp = duel.ask(MpaOptions::default(), b"");
    duel.send(b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n", 1448);
    let failed = duel.side.client_events().find_map(|event| match event {
        Event::ConnectFailed {
            reason, message, ..
        } => Some((*reason, message.clone())),
        _ => None,
    });
    let (reason, message) = failed.expect("a failure");
    assert_eq!(reason, DisconnectReason::NotMpa);
    assert!(message.contains("does not speak MPA"), "{message}");
    assert_eq!(duel.side.state(qp), QpState::Error);
}

/// RFC 6581 sections 9.1 and 9.2: an initiator that can't live with the Reply says why.
#[test]
fn a_reply_that_the_initiator_cannot_live_with_is_answered_with_a_terminate() {
    // Enhanced data: flag A and a Write, but an ORD of 300; flag A and no indication.
    for (words, control) in [([0x80, 4, 0x81, 0x2c], 0x2006), ([0x80, 4, 0, 4], 0x2007)] {
        let mut duel = Duel::new(SideConfig::default());
        let qp = duel.ask(MpaOptions::default(), b"");
        let request = duel.peer.received.len();
        let mut reply = b"MPA ID Rep Frame\x50\x02\x00\x04".to_vec();
        reply.extend_from_slice(&words);
        duel.send(&reply, 1448);
        let terminate = &duel.peer.received[request..];
        // 22 bytes: an untagged header for queue 2, and LLP, MPA, the error code.
        assert_eq!(terminate.len(), 28, "{terminate:x?}");
        assert_eq!(terminate[..4], [0, 22, 0x41, 0x47]);
        assert_eq!(terminate[20..22], u16::to_be_bytes(control));
        assert!(duel.peer.events.contains(&userspace_tcp::Event::PeerClosed));
        let reason = DisconnectReason::TerminateSent { control };
        let failed =
            |event: &Event| matches!(event, Event::ConnectFailed { reason: r, .. } if *r == reason);
        assert!(
            duel.side.client_events().any(failed),
            "{:?}",
            duel.side.events
        );
        assert_eq!(duel.side.state(qp), QpState::Error);
        assert_eq!(duel.side.counter("startup_failed"), 1);
        duel.run_for(Duration::from_secs(11));
        assert_eq!(duel.side.shard.levels().connections, 0);
        assert_no_frame_lost(&duel);
    }
}

#[test]
fn no_frame_can_break_the_shard() {
    for seed in seeds(3) {
        let mut random = Random::new(seed);
        let (mut duel, qp) = in_rdma_mode(SideConfig::default(), 1448);
        let frames = Arc::new(Mutex::new(Vec::new()));
        let capture = Command::AddCapture {
            number: 0,
            filter: Filter::default(),
            sink: Box::new(Tape(Arc::clone(&frames))),
        };
        duel.side.shard.execute(capture, duel.now).unwrap();
        let fpdu = write_fpdu(duel.side.stag.0, BASE, &pattern(900, seed));
        duel.send(&fpdu, 300);
        let tape: Vec<Vec<u8>> = frames
            .lock()
            .unwrap()
            .iter()
            .filter(|(out, _)| !out)
            .map(|(_, f)| f.clone())
            .collect();
        assert!(!tape.is_empty());
        for _ in 0..3000 {
            let mut frame = tape[random.below(tape.len() as u64) as usize].clone();
            for _ in 0..random.below(4) {
                let at = random.below(frame.len() as u64) as usize;
                frame[at] = random.next() as u8;
            }
            if random.chance(300) {
                frame.truncate(random.below(frame.len() as u64 + 1) as usize);
            } else {
                repair(&mut frame);
            }
            let _ = duel.side.wire.as_ref().unwrap().push(&frame);
            duel.pump();
        }
        // What lies out of order on a living connection may stay.
        duel.side
            .shard
            .execute(Command::RemoveQp { qp }, duel.now)
            .unwrap();
        duel.run_for(Duration::from_secs(400));
        assert_eq!(duel.side.shard.levels().connections, 0);
        assert_no_frame_lost(&duel);
    }
}

/// Makes the checksums right again, so that what is behind them is reached.
fn repair(frame: &mut [u8]) {
    use userspace_net::checksum;
    use userspace_tcp::segment::PROTOCOL_TCP;
    if frame.len() < 54 || frame[12..14] != [8, 0] {
        return;
    }
    frame[24..26].fill(0);
    let sum = checksum::fold(checksum::sum(&frame[14..34]));
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame[50..52].fill(0);
    let source = std::net::Ipv4Addr::new(frame[26], frame[27], frame[28], frame[29]);
    let destination = std::net::Ipv4Addr::new(frame[30], frame[31], frame[32], frame[33]);
    let tcp = checksum::pseudo_v4(source, destination, PROTOCOL_TCP, frame.len() - 34)
        + checksum::sum(&frame[34..]);
    let sum = checksum::fold(tcp);
    frame[50..52].copy_from_slice(&sum.to_be_bytes());
}

/// Keeps every frame, and whether it went out.
#[derive(Debug)]
pub struct Tape(pub Arc<Mutex<Frames>>);

type Frames = Vec<(bool, Vec<u8>)>;

impl Capture for Tape {
    fn frame(&mut self, frame: &SeenFrame<'_>) {
        let outbound = frame.direction == Direction::Out;
        let seen = (outbound, frame.bytes.to_vec());
        self.0.lock().unwrap().push(seen);
    }
}

#[test]
fn a_capture_sees_every_frame_of_both_directions() {
    let mut world = World::new(1, Impairment::NONE);
    let frames = Arc::new(Mutex::new(Vec::new()));
    let capture = Command::AddCapture {
        number: 0,
        filter: Filter::default(),
        sink: Box::new(Tape(Arc::clone(&frames))),
    };
    world.a.shard.execute(capture, world.now).unwrap();
    let (qp_a, _) = world.connect();
    let stag = world.b.stag;
    world
        .a
        .post_work(qp_a, WrOpcode::Write, 1, 0, (stag, 0), 100_000);
    world.run_for(Duration::from_secs(1));
    let count = |out: bool| {
        frames
            .lock()
            .unwrap()
            .iter()
            .filter(|(o, _)| *o == out)
            .count() as u64
    };
    assert_eq!(count(true), world.a_to_b.frames);
    assert_eq!(count(false), world.b_to_a.frames);
}

#[test]
fn both_sides_are_told_of_a_terminate_by_its_name_and_number() {
    let mut world = World::new(1, Impairment::NONE);
    let (qp_a, qp_b) = world.connect();
    world
        .a
        .post_work(qp_a, WrOpcode::Send, 1, 0, (Stag(0), 0), 8);
    assert!(world.run_until(Duration::from_secs(1), |w| w.a.disconnected(qp_a).is_some()));
    let told = |side: &Side| {
        side.client_events().find_map(|event| match event {
            Event::Disconnected { message, .. } => Some(message.clone()),
            _ => None,
        })
    };
    for (side, words) in [
        (&world.a, "sent Terminate 0x1202: "),
        (&world.b, "was told so by Terminate 0x1202: "),
    ] {
        let message = told(side).unwrap();
        assert!(
            message.contains(words) && message.contains("no receive is posted"),
            "{message}"
        );
    }
    assert!(world.b.disconnected(qp_b).is_some());
}

#[test]
fn a_sleeping_shard_is_kicked_by_the_next_doorbell_only() {
    let mut world = World::new(1, Impairment::NONE);
    let (qp_a, _) = world.connect();
    world.run_for(Duration::from_millis(100));
    assert!(world.a.shard.prepare_sleep());
    assert!(world.a.doorbells.ring(qp_a).unwrap(), "asleep: kick it");
    assert!(!world.a.doorbells.ring(qp_a).unwrap(), "one kick is enough");
    assert!(!world.a.shard.prepare_sleep(), "work waits: no sleep");
    world.a.shard.wake_up();
    world.run_for(Duration::from_millis(1));
    assert!(!world.a.doorbells.ring(qp_a).unwrap(), "awake: no kick");
}

#[test]
fn every_counter_has_a_name_of_its_own() {
    let mut world = World::new(1, Impairment::NONE);
    world.connect();
    let names = world.a.counter_names();
    let mut unique = names.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), names.len());
    assert_eq!(names, world.a.counter_names(), "the order is fixed");
}
