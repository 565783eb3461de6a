//! What the unit tests share: frames made and read by etherparse, which is not our own code.

use std::time::Duration;

use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
use rnic_xsk::{ChunkSize, Umem};

use super::{Buffers, Direction, Impairments, Settings, Watch};

pub(super) const LEFT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub(super) const RIGHT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
pub(super) const LEFT_V4: [u8; 4] = [198, 18, 0, 1];
pub(super) const RIGHT_V4: [u8; 4] = [198, 18, 0, 2];
pub(super) const LEFT_V6: [u8; 16] = [0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
pub(super) const RIGHT_V6: [u8; 16] = [0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];

pub(super) const VERSIONS: [u8; 2] = [4, 6];

pub(super) fn buffers(frames: u32) -> Buffers {
    let (umem, pool) = Umem::heap(frames, ChunkSize::Bytes2048);
    Buffers {
        umem,
        pool,
        reserve: 0,
    }
}

pub(super) fn settings(pairs: &[&str]) -> Settings {
    let mut settings = Settings::default();
    let change = Impairments::from_pairs(pairs.iter().copied());
    settings.apply(&change.expect("the test's settings are right"));
    settings
}

pub(super) fn direction(seed: u64, pairs: &[&str]) -> Direction {
    Direction::new(0, seed, settings(pairs), Vec::new())
}

/// A TCP segment with timestamps and PSH.
pub(super) fn segment(version: u8, sequence: u32, payload: &[u8]) -> Vec<u8> {
    let ethernet = PacketBuilder::ethernet2(LEFT_MAC, RIGHT_MAC);
    let ip = match version {
        4 => ethernet.ipv4(LEFT_V4, RIGHT_V4, 64),
        _ => ethernet.ipv6(LEFT_V6, RIGHT_V6, 64),
    };
    let tcp = ip
        .tcp(40_000, 5001, sequence, 3000)
        .ack(77)
        .psh()
        .options(&[
            etherparse::TcpOptionElement::Noop,
            etherparse::TcpOptionElement::Noop,
            etherparse::TcpOptionElement::Timestamp(5, 6),
        ])
        .expect("12 bytes of options fit");
    let mut frame = Vec::new();
    tcp.write(&mut frame, payload).expect("a vector takes all");
    frame
}

pub(super) fn udp(version: u8, payload: &[u8]) -> Vec<u8> {
    let ethernet = PacketBuilder::ethernet2(LEFT_MAC, RIGHT_MAC);
    let ip = match version {
        4 => ethernet.ipv4(LEFT_V4, RIGHT_V4, 64),
        _ => ethernet.ipv6(LEFT_V6, RIGHT_V6, 64),
    };
    let mut frame = Vec::new();
    ip.udp(1000, 2000)
        .write(&mut frame, payload)
        .expect("a vector takes all");
    frame
}

/// Whether etherparse finds every checksum of the packet right.
pub(super) fn checksums_are_right(frame: &[u8]) -> bool {
    let Ok(packet) = SlicedPacket::from_ethernet(frame) else {
        return false;
    };
    match (packet.net, packet.transport) {
        (Some(NetSlice::Ipv4(ip)), transport) => {
            let header = ip.header();
            let ip_right = header.to_header().calc_header_checksum() == header.header_checksum();
            ip_right
                && match transport {
                    Some(TransportSlice::Tcp(tcp)) => {
                        tcp.calc_checksum_ipv4(header.source(), header.destination())
                            == Ok(tcp.checksum())
                    }
                    Some(TransportSlice::Udp(udp)) => {
                        let payload = udp.payload();
                        udp.to_header().calc_checksum_ipv4_raw(
                            header.source(),
                            header.destination(),
                            payload,
                        ) == Ok(udp.checksum())
                    }
                    Some(TransportSlice::Icmpv4(icmp)) => {
                        icmp.icmp_type().calc_checksum(icmp.payload()) == icmp.checksum()
                    }
                    _ => true,
                }
        }
        (Some(NetSlice::Ipv6(ip)), transport) => {
            let (source, destination) = (ip.header().source(), ip.header().destination());
            match transport {
                Some(TransportSlice::Tcp(tcp)) => {
                    tcp.calc_checksum_ipv6(source, destination) == Ok(tcp.checksum())
                }
                Some(TransportSlice::Udp(udp)) => {
                    let payload = udp.payload();
                    udp.to_header()
                        .calc_checksum_ipv6_raw(source, destination, payload)
                        == Ok(udp.checksum())
                }
                Some(TransportSlice::Icmpv6(icmp)) => icmp.is_checksum_valid(source, destination),
                _ => true,
            }
        }
        _ => true,
    }
}

/// What left: when, and its bytes.
pub(super) type Left = Vec<(Duration, Vec<u8>)>;

/// Sends frames through a direction, one each `gap`, and gives what leaves and what goes back.
pub(super) fn pass(
    direction: &mut Direction,
    buffers: &mut Buffers,
    frames: &[Vec<u8>],
    gap: Duration,
    watch: &mut dyn Watch,
) -> (Left, Vec<Vec<u8>>) {
    let (mut left, mut answers) = (Vec::new(), Vec::new());
    let mut now = Duration::ZERO;
    for frame in frames {
        drain(direction, buffers, now, &mut left, watch);
        let frame = buffers.frame(frame).expect("a frame is free");
        let mut back = Vec::new();
        direction.arrive(now, frame, buffers, &mut back, watch);
        for answer in back {
            answers.push(buffers.bytes(&answer).to_vec());
            buffers.free(answer);
        }
        now += gap;
    }
    drain(direction, buffers, Duration::MAX, &mut left, watch);
    (left, answers)
}

/// Lets time run to `until`, from deadline to deadline.
fn drain(
    direction: &mut Direction,
    buffers: &mut Buffers,
    until: Duration,
    left: &mut Left,
    watch: &mut dyn Watch,
) {
    while let Some(deadline) = direction.deadline()
        && deadline <= until
    {
        while let Some(frame) = direction.depart(deadline, buffers, watch) {
            left.push((deadline, buffers.bytes(&frame).to_vec()));
            buffers.free(frame);
        }
    }
}

/// The first four bytes of a UDP payload: what [`numbered`] put there.
pub(super) fn number(frame: &[u8]) -> u32 {
    let packet = SlicedPacket::from_ethernet(frame).expect("a whole frame");
    let Some(TransportSlice::Udp(udp)) = packet.transport else {
        panic!("not UDP");
    };
    let bytes = udp.payload().first_chunk().expect("a number");
    u32::from_be_bytes(*bytes)
}

/// UDP packets with numbers from 0 on.
pub(super) fn numbered(count: u32) -> Vec<Vec<u8>> {
    (0..count)
        .map(|number| udp(4, &number.to_be_bytes()))
        .collect()
}
