//! How many frames go from port to port over a veth pair, all on one core.
//!
//! `cargo test --release -p rnic-xsk --test rate -- --ignored --nocapture`

#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, its helpers too"
)]

#[path = "../../../ebpf/tests/common/mod.rs"]
mod common;

use std::time::{Duration, Instant};

use common::{LEFT, LEFT_MAC, LEFT_V4, RIGHT, RIGHT_MAC, RIGHT_V4, VethPair};
use etherparse::PacketBuilder;
use rnic_steering::{ModePreference, Protocol, Steering, SteeringConfig};
use rnic_xsk::{ChunkSize, Packet, Port, Umem, UmemConfig, XskPort, XskPortConfig};

const PORT: u16 = 7471;

/// Frames that are sent but not completed, at most.
const IN_FLIGHT: usize = 200;

const BATCH: usize = 32;

fn rate(preference: ModePreference, bytes: usize) -> f64 {
    let pair = VethPair::new(1, 1);
    let mtu = (bytes as u32 - 14).max(1500);
    let mtu_text = mtu.to_string();
    pair.ip_left(&["link", "set", "dev", LEFT, "mtu", &mtu_text]);
    pair.ip_right(&["link", "set", "dev", RIGHT, "mtu", &mtu_text]);
    let config = UmemConfig {
        frames: 2048,
        chunk: ChunkSize::for_mtu(mtu).unwrap(),
        ..UmemConfig::default()
    };
    pair.enter_left();
    let (umem_l, mut pool_l) = Umem::new(&config).unwrap();
    let mut left = XskPort::open(&umem_l, XskPortConfig::new(LEFT, 0)).unwrap();
    let _left_steering = Steering::attach(LEFT, preference, &SteeringConfig::UNLIMITED).unwrap();
    pair.enter_right();
    let (umem_r, mut pool_r) = Umem::new(&config).unwrap();
    let mut right = XskPort::open(&umem_r, XskPortConfig::new(RIGHT, 0)).unwrap();
    let mut steering = Steering::attach(RIGHT, preference, &SteeringConfig::UNLIMITED).unwrap();
    steering
        .claim(Protocol::Tcp, RIGHT_V4.parse().unwrap(), PORT)
        .unwrap();
    steering.set_queue(0, 0, right.fd()).unwrap();
    right.refill(&mut pool_r);

    let v4 = |address: &str| address.parse::<std::net::Ipv4Addr>().unwrap().octets();
    let mut segment = Vec::new();
    PacketBuilder::ethernet2(LEFT_MAC, RIGHT_MAC)
        .ipv4(v4(LEFT_V4), v4(RIGHT_V4), 64)
        .tcp(PORT, PORT, 1, 1000)
        .write(&mut segment, &vec![1; bytes - 54])
        .unwrap();

    let mut packets: Vec<Packet> = Vec::with_capacity(BATCH);
    let (mut in_flight, mut received) = (0, 0_u64);
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(2) {
        let room = left.transmit_room().min(BATCH).min(IN_FLIGHT - in_flight);
        for _ in 0..room {
            let mut frame = pool_l.alloc_for(bytes).unwrap();
            // Headers only: the payload of each frame was written by its first use.
            umem_l.bytes_mut(&mut frame)[..54].copy_from_slice(&segment[..54]);
            frame.set_len(segment.len());
            left.transmit(frame, 0).unwrap();
            in_flight += 1;
        }
        left.flush().unwrap();
        while let Some((frame, _)) = left.completed() {
            pool_l.free(frame);
            in_flight -= 1;
        }
        right.receive(&mut pool_r, &mut packets, BATCH);
        for packet in packets.drain(..) {
            assert_eq!(packet.len(&umem_r), segment.len());
            received += 1;
            pool_r.free_packet(packet);
        }
        right.refill(&mut pool_r);
    }
    let rate = received as f64 / started.elapsed().as_secs_f64() / 1000.0;
    // What was under way when the time was over.
    std::thread::sleep(Duration::from_millis(50));
    while right.receive(&mut pool_r, &mut packets, BATCH) > 0 {}
    received += packets.len() as u64;
    let statistics = left.statistics();
    println!(
        "{bytes:5} bytes, {preference:?} ({}): {rate:.0} kpps, {:.1} Gbit/s, lost {}, {:.1} frames a call, {}",
        steering.mode(),
        rate * bytes as f64 * 8.0 / 1e6,
        statistics.transmitted - left.unsent() as u64 - received,
        statistics.transmitted as f64 / statistics.send_calls as f64,
        umem_l.pages(),
    );
    rate
}

#[test]
#[ignore = "a measurement, of use only in a release build"]
fn frames_per_second() {
    for bytes in [64, 1514, 3520, 9014] {
        for preference in [ModePreference::NativeOnly, ModePreference::GenericOnly] {
            assert!(rate(preference, bytes) > 0.0);
        }
    }
}
