//! DDP over SCTP in UDP (RFC 6951), as networks ask for that drop SCTP.

use std::time::Duration;

use rnic_engine::command::Command;
use rnic_engine::shard::SctpUdp;
use rnic_ipc::control::{DisconnectReason, Event, MpaOptions};
use rnic_net::{IcmpReport, Quoted};
use userspace_net::FourTuple;
use userspace_tcp::IcmpError;

use crate::impairment::Impairment;
use crate::link::ROUGH;
use crate::random::seeds;
use crate::side::SideConfig;
use crate::transfer::every_size;
use crate::world::World;

const PATIENCE: Duration = Duration::from_secs(300);
/// The side that connects, and the one that listens.
const PORTS: [u16; 2] = [9900, 9899];
const UDP: u8 = 17;

fn of_mtu(mtu: u32, udp: Option<SctpUdp>) -> SideConfig {
    let mut config = SideConfig::of_mtu(mtu);
    config.shard.sctp_udp = udp;
    config
}

/// The side that connects does so in UDP, and the other does as its peer does.
fn world(seed: u64, impairment: Impairment, mtu: u32, v6: bool) -> World {
    let [port, peer_port] = PORTS;
    let a = of_mtu(
        mtu,
        Some(SctpUdp {
            port,
            peer_port: Some(peer_port),
        }),
    );
    let b = of_mtu(
        mtu,
        Some(SctpUdp {
            port: peer_port,
            peer_port: None,
        }),
    );
    let mut world = World::with(seed, impairment, a, b, v6).over_sctp();
    world.a_to_b.kept = Some(Default::default());
    world.b_to_a.kept = Some(Default::default());
    world
}

/// The IP protocol and the ports behind IP of each frame that went into the links.
fn sent(world: &World, v6: bool) -> Vec<(u8, [u16; 2])> {
    let links = [&world.a_to_b, &world.b_to_a];
    let frames = links.into_iter().flat_map(|link| {
        let kept = link.kept.as_ref().expect("they are kept");
        kept[0].iter()
    });
    let (protocol, ports) = if v6 { (20, 54) } else { (23, 34) };
    let word = |frame: &[u8], at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    frames
        .map(|frame| {
            let both = [ports, ports + 2].map(|at| word(frame, at));
            (frame[protocol], both)
        })
        .collect()
}

#[test]
fn every_operation_of_every_size_arrives_in_udp() {
    for (mtu, v6) in [(1500, false), (1280, true), (9000, false)] {
        let mut world = every_size(world(1, Impairment::NONE, mtu, v6));
        let sent = sent(&world, v6);
        assert!(sent.len() > 100);
        let [ours, theirs] = PORTS;
        for (protocol, ports) in sent {
            assert_eq!(protocol, UDP);
            assert!(
                ports == [ours, theirs] || ports == [theirs, ours],
                "{ports:?}"
            );
        }
        for link in [&world.a_to_b, &world.b_to_a] {
            assert!(link.largest <= mtu as usize + 14, "{}", link.largest);
        }
        assert_eq!(world.b.counter("rx_bad_udp_checksum"), 0);
    }
}

/// Damage is found by UDP's checksum, before SCTP's.
#[test]
fn every_operation_of_every_size_arrives_in_udp_over_a_rough_link() {
    let (mut early, mut damaged) = (0, 0);
    for seed in seeds(2) {
        let mut world = every_size(world(seed, ROUGH, 1500, seed % 2 == 1));
        for side in [&mut world.a, &mut world.b] {
            early += side.counter("bytes_placed_early");
            damaged += side.counter("rx_bad_udp_checksum");
        }
    }
    assert!(early > 50_000, "{early} bytes were placed early");
    assert!(damaged > 0);
}

/// A router that cuts packets: what is behind the first fragment has no port of any kind.
#[test]
fn fragments_of_packets_in_udp_are_put_together() {
    let mut world = world(1, Impairment::NONE, 1500, false);
    world.a_to_b.fragment_to = Some(1000);
    let mut world = every_size(world);
    assert!(world.b.counter("rx_reassembled") > 100);
}

/// Each side does without what it was not told of.
#[test]
fn a_side_without_a_port_for_it_takes_nothing_in_udp() {
    let [port, peer_port] = PORTS;
    let udp = |port, peer_port| Some(SctpUdp { port, peer_port });
    for theirs in [None, udp(peer_port + 2, None)] {
        let a = of_mtu(1500, udp(port, Some(peer_port)));
        let mut world =
            World::with(1, Impairment::NONE, a, of_mtu(1500, theirs), false).over_sctp();
        world.b.listen(4, world.now);
        let qp = world.start_connect(MpaOptions::default(), b"");
        let failed = world.run_until(PATIENCE, |w| {
            w.a.client_events().any(
                |event| matches!(event, Event::ConnectFailed { qp: failed, .. } if *failed == qp),
            )
        });
        assert!(failed, "{:?}", world.a.events);
        assert!(world.b.counter("rx_other_protocol") > 1);
        assert_eq!(world.b_to_a.frames, 0);
    }
}

/// Nobody has the UDP port there: the association need not wait for its timeouts.
#[test]
fn a_udp_port_that_nobody_has_ends_an_association() {
    let mut world = world(1, Impairment::NONE, 1500, false);
    let qp = world.start_connect(MpaOptions::default(), b"");
    world.a.shard.poll(world.now);
    world.settle();
    let kept = world.a_to_b.kept.as_ref().expect("they are kept");
    let init = &kept[0][0];
    let word = |at: usize| u32::from_be_bytes([init[at], init[at + 1], init[at + 2], init[at + 3]]);
    let port = u16::from_be_bytes([init[42], init[43]]);
    let report = IcmpReport {
        tuple: FourTuple::new(
            (world.a.address.ip(), port),
            (world.b.address.ip(), world.b.address.port()),
        ),
        quoted: Quoted::Packet {
            tag: 0,
            init_tag: Some(word(58)),
            no_protocol: true,
        },
        error: IcmpError::Unreachable { hard: true },
    };
    let reports = vec![report];
    world
        .a
        .shard
        .execute(Command::IcmpErrors { reports }, world.now)
        .unwrap();
    let failed = world.run_until(Duration::from_millis(10), |w| {
        w.a.client_events().any(|event| {
            matches!(
                event,
                Event::ConnectFailed { qp: failed, reason: DisconnectReason::Refused, .. }
                    if *failed == qp
            )
        })
    });
    assert!(failed, "{:?}", world.a.events);
}
