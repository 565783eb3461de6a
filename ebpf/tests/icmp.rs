//! ICMP errors through the kernel to a filtered socket.

#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, its helpers too"
)]

mod common;

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use common::{LEFT_V4, LEFT_V6, RIGHT, RIGHT_V4, RIGHT_V6, VethPair};
use etherparse::{Icmpv4Type, Icmpv6Type, PacketBuilder};
use rnic_steering::{IpVersion, ModePreference, Protocol, Steering, SteeringConfig};
use rustix::fd::OwnedFd;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, ipproto};

const PORT: u16 = 7471;

/// Sends right an error about a segment that it would have sent from `port`.
fn send_error(v6: bool, port: u16) {
    let (family, protocol, to): (_, _, IpAddr) = if v6 {
        (
            AddressFamily::INET6,
            ipproto::ICMPV6,
            RIGHT_V6.parse().unwrap(),
        )
    } else {
        (
            AddressFamily::INET,
            ipproto::ICMP,
            RIGHT_V4.parse().unwrap(),
        )
    };
    let (mut quoted, mut packet) = (Vec::new(), Vec::new());
    match (to, if v6 { LEFT_V6 } else { LEFT_V4 }.parse().unwrap()) {
        (IpAddr::V4(right), IpAddr::V4(left)) => {
            PacketBuilder::ipv4(right.octets(), left.octets(), 64)
                .tcp(port, 9, 1, 1)
                .write(&mut quoted, &[])
                .unwrap();
            let unreachable = etherparse::icmpv4::DestUnreachableHeader::Port;
            PacketBuilder::ipv4(left.octets(), right.octets(), 64)
                .icmpv4(Icmpv4Type::DestinationUnreachable(unreachable))
                .write(&mut packet, &quoted)
                .unwrap();
            packet.drain(..20);
        }
        (IpAddr::V6(right), IpAddr::V6(left)) => {
            PacketBuilder::ipv6(right.octets(), left.octets(), 64)
                .tcp(port, 9, 1, 1)
                .write(&mut quoted, &[])
                .unwrap();
            PacketBuilder::ipv6(left.octets(), right.octets(), 64)
                .icmpv6(Icmpv6Type::PacketTooBig { mtu: 1400 })
                .write(&mut packet, &quoted)
                .unwrap();
            packet.drain(..40);
        }
        _ => unreachable!(),
    }
    let socket = rustix::net::socket(family, SocketType::RAW, Some(protocol)).unwrap();
    let to = SocketAddr::new(to, 0);
    rustix::net::sendto(&socket, &packet, SendFlags::empty(), &to).unwrap();
}

/// The messages that are there after the last one was sent.
fn receive(socket: &OwnedFd, wanted: usize) -> Vec<Vec<u8>> {
    let end = Instant::now() + Duration::from_secs(30);
    let mut all = Vec::new();
    while all.len() < wanted && Instant::now() < end {
        let mut buffer = [0; 2048];
        match rustix::net::recv(socket, &mut buffer, RecvFlags::empty()) {
            Ok((len, _)) => all.push(buffer[..len].to_vec()),
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    all
}

#[test]
fn a_socket_gets_the_errors_about_what_is_claimed() {
    let pair = VethPair::new(1, 1);
    pair.enter_right();
    let mut steering = Steering::attach(
        RIGHT,
        ModePreference::NativeThenGeneric,
        &SteeringConfig::UNLIMITED,
    )
    .unwrap();
    for (v6, address, version) in [
        (false, RIGHT_V4, IpVersion::V4),
        (true, RIGHT_V6, IpVersion::V6),
    ] {
        let address = address.parse().unwrap();
        let socket = steering.icmp_errors(version).unwrap();
        steering.claim(Protocol::Tcp, address, PORT).unwrap();
        pair.enter_left();
        for port in [PORT + 1, PORT, PORT + 2, PORT] {
            send_error(v6, port);
        }
        pair.enter_right();
        let messages = receive(&socket, 2);
        assert_eq!(messages.len(), 2, "v6 {v6}");
        // IPv4 messages have their IP header, IPv6 ones not.
        assert!(messages.iter().all(|m| m[0] == if v6 { 2 } else { 0x45 }));
        steering.release(Protocol::Tcp, address, PORT).unwrap();
        pair.enter_left();
        send_error(v6, PORT);
        pair.enter_right();
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(receive_now(&socket), 0);
    }
    let taken = steering
        .counters()
        .into_iter()
        .find(|(name, _)| *name == "icmp_taken");
    assert_eq!(taken, Some(("icmp_taken", 4)));
}

fn receive_now(socket: &OwnedFd) -> usize {
    let mut count = 0;
    while rustix::net::recv(socket, &mut [0; 2048][..], RecvFlags::empty()).is_ok() {
        count += 1;
    }
    count
}
