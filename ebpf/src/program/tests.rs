//! Every way a frame can be parsed, by BPF_PROG_TEST_RUN: no interface and no traffic is needed,
//! but root is.

use std::os::fd::AsFd;

use aya::programs::{TestRun, TestRunOptions, Xdp};
use etherparse::{PacketBuilder, VlanId};
use rustix::net::{AddressFamily, SocketType};

use super::*;
use crate::flood::{FloodLimits, Times};

mod burst;
mod flood;
mod fragments;
mod icmp;
mod limits;
mod members;
mod sctp;
mod sctp_udp;
mod shared_ports;

const OURS_V4: [u8; 4] = [198, 18, 0, 2];
const PEER_V4: [u8; 4] = [198, 18, 0, 1];
const OURS_V6: [u8; 16] = [0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
const PEER_V6: [u8; 16] = [0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const PORT: u16 = 7471;
const PEER_PORT: u16 = 40000;
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
const PEER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

const ETHERNET: usize = 14;
const IPV4: usize = 20;
const IPV6: usize = 40;

const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;
const XDP_REDIRECT: u32 = 4;

struct Bench {
    program: Program,
    variant: Variant,
    _socket: rustix::fd::OwnedFd,
}

impl Bench {
    /// A loaded program with one socket, and `OURS`:`PORT` claimed in both families.
    fn new(variant: Variant) -> Bench {
        Bench::with(variant, &SteeringConfig::UNLIMITED)
    }

    fn limited(variant: Variant, limits: &FloodLimits) -> Bench {
        let config = SteeringConfig {
            limits: *limits,
            ..SteeringConfig::UNLIMITED
        };
        Bench::with(variant, &config)
    }

    fn with(variant: Variant, config: &SteeringConfig) -> Bench {
        Bench::timed(variant, config, Times::DEFAULT)
    }

    fn timed(variant: Variant, config: &SteeringConfig, times: Times) -> Bench {
        assert!(
            rustix::process::geteuid().is_root(),
            "this test loads a BPF program: run it as root"
        );
        let mut program = Program::open_with("test", &[], config, times).unwrap();
        program.load(variant).unwrap();
        let socket = rustix::net::socket(AddressFamily::XDP, SocketType::RAW, None).unwrap();
        program.set_queue(0, 0, socket.as_fd()).unwrap();
        program.claim(Protocol::Tcp, OURS_V4.into(), PORT).unwrap();
        program.claim(Protocol::Tcp, OURS_V6.into(), PORT).unwrap();
        Bench {
            program,
            variant,
            _socket: socket,
        }
    }

    /// Nanoseconds that the program takes for a frame, as the kernel measures it: the mean of many runs,
    /// which all find in the cache what they need.
    fn time(&mut self, frame: &[u8]) -> u128 {
        let program = self.program.ebpf.program_mut(name(self.variant));
        let xdp: &mut Xdp = program.unwrap().try_into().unwrap();
        let mut options = TestRunOptions::new();
        options.data_in = Some(frame);
        options.repeat = 1_000_000;
        xdp.test_run(options).unwrap().duration.as_nanos()
    }

    /// Runs the program on a frame: the one reason that was counted. The verdict must fit it.
    fn run(&mut self, frame: &[u8]) -> &'static str {
        let before = self.program.counters();
        let xdp: &mut Xdp = self
            .program
            .ebpf
            .program_mut(name(self.variant))
            .unwrap()
            .try_into()
            .unwrap();
        let mut options = TestRunOptions::new();
        options.data_in = Some(frame);
        let verdict = xdp.test_run(options).unwrap().return_value;
        let after = self.program.counters();
        let mut counted = before
            .iter()
            .zip(&after)
            .filter(|(before, after)| before.1 != after.1);
        let (was, is) = counted.next().expect("a reason was counted");
        assert_eq!(is.1, was.1 + 1);
        assert!(counted.next().is_none(), "one reason for one frame");
        let expected = if is.0.starts_with("redirected") {
            XDP_REDIRECT
        } else if is.0.starts_with("drop") {
            XDP_DROP
        } else {
            XDP_PASS
        };
        assert_eq!(verdict, expected, "verdict for {}", is.0);
        is.0
    }
}

fn tcp_v4() -> Vec<u8> {
    let mut frame = Vec::new();
    PacketBuilder::ethernet2(PEER_MAC, MAC)
        .ipv4(PEER_V4, OURS_V4, 64)
        .tcp(PEER_PORT, PORT, 1, 1000)
        .write(&mut frame, b"payload")
        .unwrap();
    frame
}

fn tcp_v6() -> Vec<u8> {
    let mut frame = Vec::new();
    PacketBuilder::ethernet2(PEER_MAC, MAC)
        .ipv6(PEER_V6, OURS_V6, 64)
        .tcp(PEER_PORT, PORT, 1, 1000)
        .write(&mut frame, b"payload")
        .unwrap();
    frame
}

/// Puts tags between the addresses and the type.
fn tagged(mut frame: Vec<u8>, tags: &[u16]) -> Vec<u8> {
    let bytes: Vec<u8> = tags
        .iter()
        .flat_map(|tpid| [(tpid >> 8) as u8, *tpid as u8, 0, 5])
        .collect();
    frame.splice(12..12, bytes);
    frame
}

fn with(mut frame: Vec<u8>, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    change(&mut frame);
    frame
}

/// Puts an extension header of 8 bytes before TCP.
fn with_extension(header: u8) -> Vec<u8> {
    with(tcp_v6(), |frame| {
        let tcp = frame[ETHERNET + 6];
        frame[ETHERNET + 6] = header;
        let length = u16::from_be_bytes([frame[ETHERNET + 4], frame[ETHERNET + 5]]) + 8;
        frame[ETHERNET + 4..ETHERNET + 6].copy_from_slice(&length.to_be_bytes());
        let at = ETHERNET + IPV6;
        frame.splice(at..at, [tcp, 0, 0, 0, 0, 0, 0, 0]);
    })
}

fn set_u16(frame: &mut [u8], at: usize, value: u16) {
    frame[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

fn taken() -> Vec<(&'static str, Vec<u8>)> {
    let mut vlan = Vec::new();
    PacketBuilder::ethernet2(PEER_MAC, MAC)
        .single_vlan(VlanId::try_new(5).unwrap())
        .ipv4(PEER_V4, OURS_V4, 64)
        .tcp(PEER_PORT, PORT, 1, 1000)
        .write(&mut vlan, b"payload")
        .unwrap();
    let mut no_payload = Vec::new();
    PacketBuilder::ethernet2(PEER_MAC, MAC)
        .ipv4(PEER_V4, OURS_V4, 64)
        .tcp(PEER_PORT, PORT, 1, 1000)
        .syn()
        .write(&mut no_payload, &[])
        .unwrap();
    let mut options = Vec::new();
    PacketBuilder::ethernet2(PEER_MAC, MAC)
        .ipv4(PEER_V4, OURS_V4, 64)
        .tcp(PEER_PORT, PORT, 1, 1000)
        .options_raw(&[1; 40])
        .unwrap()
        .write(&mut options, b"payload")
        .unwrap();
    let ip_options = with(tcp_v4(), |frame| {
        frame[ETHERNET] = 0x4f;
        let total = u16::from_be_bytes([frame[ETHERNET + 2], frame[ETHERNET + 3]]) + 40;
        set_u16(frame, ETHERNET + 2, total);
        frame.splice(ETHERNET + IPV4..ETHERNET + IPV4, [1; 40]);
    });
    vec![
        ("IPv4", tcp_v4()),
        ("IPv6", tcp_v6()),
        ("IPv4 in a VLAN", vlan),
        ("IPv6 in a VLAN", tagged(tcp_v6(), &[0x8100])),
        ("without payload", no_payload),
        ("TCP options", options),
        ("IPv4 options", ip_options),
        (
            "Ethernet padding",
            with(tcp_v4(), |frame| frame.resize(frame.len() + 20, 0)),
        ),
        (
            "IPv4, don't fragment",
            with(tcp_v4(), |frame| set_u16(frame, ETHERNET + 6, 0x4000)),
        ),
        ("IPv6, one fragment that is all", with_extension(44)),
    ]
}

/// What must pass, and why.
fn passed() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let mut udp = Vec::new();
    PacketBuilder::ethernet2(PEER_MAC, MAC)
        .ipv4(PEER_V4, OURS_V4, 64)
        .udp(PEER_PORT, PORT)
        .write(&mut udp, b"payload of more than a TCP header")
        .unwrap();
    let mut ping = Vec::new();
    PacketBuilder::ethernet2(PEER_MAC, MAC)
        .ipv4(PEER_V4, OURS_V4, 64)
        .icmpv4_echo_request(1, 1)
        .write(&mut ping, b"payload")
        .unwrap();
    let mut ping6 = Vec::new();
    PacketBuilder::ethernet2(PEER_MAC, MAC)
        .ipv6(PEER_V6, OURS_V6, 64)
        .icmpv6_echo_request(1, 1)
        .write(&mut ping6, b"payload")
        .unwrap();
    let arp = |to: [u8; 6]| {
        let mut frame = Vec::new();
        frame.extend(to);
        frame.extend(PEER_MAC);
        frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
        frame.extend(PEER_MAC);
        frame.extend(PEER_V4);
        frame.extend([0; 6]);
        frame.extend(OURS_V4);
        frame
    };
    // A neighbour solicitation goes to the solicited-node multicast address.
    let solicitation = with(ping6.clone(), |frame| {
        frame[..6].copy_from_slice(&[0x33, 0x33, 0xff, 0, 0, 2]);
        frame[ETHERNET + IPV6] = 135;
    });
    let advertisement = with(ping6.clone(), |frame| frame[ETHERNET + IPV6] = 136);
    let v4 = |change: &dyn Fn(&mut Vec<u8>)| with(tcp_v4(), change);
    let v6 = |change: &dyn Fn(&mut Vec<u8>)| with(tcp_v6(), change);
    let v4_tcp = ETHERNET + IPV4;
    let v6_tcp = ETHERNET + IPV6;
    vec![
        ("ARP request", "pass_multicast", arp([0xff; 6])),
        ("ARP reply", "pass_not_ip", arp(MAC)),
        ("ARP in a VLAN", "pass_not_ip", tagged(arp(MAC), &[0x8100])),
        ("neighbour solicitation", "pass_multicast", solicitation),
        (
            "neighbour advertisement",
            "pass_other_protocol",
            advertisement,
        ),
        ("ICMP", "pass_other_protocol", ping),
        ("ICMPv6", "pass_other_protocol", ping6),
        ("UDP to the same port", "pass_other_protocol", udp),
        ("broadcast", "pass_multicast", v4(&|f| f[..6].fill(0xff))),
        ("IPv4 multicast MAC", "pass_multicast", v4(&|f| f[0] = 1)),
        (
            "another port",
            "pass_not_claimed",
            v4(&|f| set_u16(f, v4_tcp + 2, PORT + 1)),
        ),
        (
            "from our port, not to it",
            "pass_not_claimed",
            v4(&|f| {
                set_u16(f, v4_tcp, PORT);
                set_u16(f, v4_tcp + 2, PEER_PORT);
            }),
        ),
        (
            "another address",
            "pass_not_claimed",
            v4(&|f| f[ETHERNET + 19] = 3),
        ),
        (
            "another port, IPv6",
            "pass_not_claimed",
            v6(&|f| set_u16(f, v6_tcp + 2, PORT + 1)),
        ),
        (
            "another address, IPv6",
            "pass_not_claimed",
            v6(&|f| f[ETHERNET + 39] = 3),
        ),
        (
            "IPv6 address that begins with the IPv4 one",
            "pass_not_claimed",
            v6(&|f| {
                f[ETHERNET + 24..ETHERNET + 40].fill(0);
                f[ETHERNET + 24..ETHERNET + 28].copy_from_slice(&OURS_V4);
            }),
        ),
        (
            "first fragment of another protocol",
            "pass_fragment",
            v4(&|f| {
                set_u16(f, ETHERNET + 6, 0x2000);
                f[ETHERNET + 9] = 17;
            }),
        ),
        (
            "first fragment to another port",
            "pass_fragment",
            v4(&|f| {
                set_u16(f, ETHERNET + 6, 0x2000);
                set_u16(f, v4_tcp + 2, PORT + 1);
            }),
        ),
        (
            "middle fragment of nothing",
            "pass_fragment",
            v4(&|f| set_u16(f, ETHERNET + 6, 0x2004)),
        ),
        (
            "last fragment of nothing",
            "pass_fragment",
            v4(&|f| set_u16(f, ETHERNET + 6, 0x0004)),
        ),
        (
            "IPv6 fragment of another protocol",
            "pass_fragment",
            with(with_extension(44), |f| f[ETHERNET + IPV6] = 17),
        ),
        (
            "IPv6 fragment behind a routing header",
            "pass_extension_header",
            with(with_extension(43), |f| f[ETHERNET + IPV6] = 44),
        ),
        (
            "cut in the Fragment header",
            "pass_malformed",
            with(with_extension(44), |f| {
                set_u16(f, ETHERNET + 4, 7);
                f.truncate(v6_tcp + 7);
            }),
        ),
        (
            "hop-by-hop options",
            "pass_extension_header",
            with_extension(0),
        ),
        (
            "routing header",
            "pass_extension_header",
            with_extension(43),
        ),
        ("ESP", "pass_extension_header", with_extension(50)),
        ("AH", "pass_extension_header", with_extension(51)),
        (
            "destination options",
            "pass_extension_header",
            with_extension(60),
        ),
        (
            "mobility header",
            "pass_extension_header",
            with_extension(135),
        ),
        (
            "no next header",
            "pass_other_protocol",
            v6(&|f| f[ETHERNET + 6] = 59),
        ),
        (
            "service tag",
            "pass_vlan_stack",
            tagged(tcp_v4(), &[0x88a8]),
        ),
        (
            "two VLAN tags",
            "pass_vlan_stack",
            tagged(tcp_v4(), &[0x8100, 0x8100]),
        ),
        (
            "service and VLAN tag",
            "pass_vlan_stack",
            tagged(tcp_v4(), &[0x88a8, 0x8100]),
        ),
        (
            "VLAN and service tag",
            "pass_vlan_stack",
            tagged(tcp_v4(), &[0x8100, 0x88a8]),
        ),
        (
            "cut in the VLAN tag",
            "pass_malformed",
            with(tagged(tcp_v4(), &[0x8100]), |f| f.truncate(17)),
        ),
        (
            "no IPv4 header",
            "pass_malformed",
            v4(&|f| f.truncate(ETHERNET)),
        ),
        (
            "cut in the IPv4 header",
            "pass_malformed",
            v4(&|f| f.truncate(ETHERNET + 19)),
        ),
        (
            "cut in the TCP header",
            "pass_malformed",
            v4(&|f| f.truncate(v4_tcp + 19)),
        ),
        (
            "cut in the payload",
            "pass_malformed",
            v4(&|f| f.truncate(f.len() - 1)),
        ),
        (
            "cut in the IPv6 header",
            "pass_malformed",
            v6(&|f| f.truncate(ETHERNET + 39)),
        ),
        (
            "cut in the IPv6 payload",
            "pass_malformed",
            v6(&|f| f.truncate(f.len() - 1)),
        ),
        (
            "version 6 in IPv4",
            "pass_malformed",
            v4(&|f| f[ETHERNET] = 0x65),
        ),
        (
            "version 4 in IPv6",
            "pass_malformed",
            v6(&|f| f[ETHERNET] = 0x40),
        ),
        (
            "IPv4 header of 16 bytes",
            "pass_malformed",
            v4(&|f| f[ETHERNET] = 0x44),
        ),
        (
            "IPv4 header beyond the packet",
            "pass_malformed",
            v4(&|f| f[ETHERNET] = 0x4f),
        ),
        (
            "IPv4 length below its header",
            "pass_malformed",
            v4(&|f| set_u16(f, ETHERNET + 2, 19)),
        ),
        (
            "IPv4 length without TCP",
            "pass_malformed",
            v4(&|f| set_u16(f, ETHERNET + 2, 39)),
        ),
        (
            "IPv6 length without TCP",
            "pass_malformed",
            v6(&|f| set_u16(f, ETHERNET + 4, 19)),
        ),
        (
            "TCP header of 16 bytes",
            "pass_malformed",
            v4(&|f| f[v4_tcp + 12] = 0x40),
        ),
        (
            "TCP header beyond the packet",
            "pass_malformed",
            v4(&|f| f[v4_tcp + 12] = 0xf0),
        ),
        (
            "TCP header beyond the packet, IPv6",
            "pass_malformed",
            v6(&|f| f[v6_tcp + 12] = 0xf0),
        ),
    ]
}

#[test]
fn claimed_frames_are_taken_and_all_others_pass() {
    for variant in [Variant::Frags, Variant::Plain] {
        let mut bench = Bench::new(variant);
        for (name, frame) in taken() {
            assert_eq!(bench.run(&frame), "redirected", "{name} ({variant:?})");
        }
        for (name, reason, frame) in passed() {
            assert_eq!(bench.run(&frame), reason, "{name} ({variant:?})");
        }
    }
}

#[test]
fn no_prefix_of_a_claimed_frame_is_taken() {
    let mut bench = Bench::new(Variant::Frags);
    for (name, frame) in taken() {
        let padding = if name == "Ethernet padding" { 20 } else { 0 };
        // BPF_PROG_TEST_RUN wants an Ethernet header at least.
        for len in ETHERNET..frame.len() - padding {
            assert_ne!(
                bench.run(&frame[..len]),
                "redirected",
                "{name}, {len} bytes"
            );
        }
    }
}

#[test]
fn a_frame_of_several_buffers_is_measured_whole() {
    let [mut v4, mut v6] = [Vec::new(), Vec::new()];
    PacketBuilder::ethernet2(PEER_MAC, MAC)
        .ipv4(PEER_V4, OURS_V4, 64)
        .tcp(PEER_PORT, PORT, 1, 1000)
        .write(&mut v4, &[7; 8900])
        .unwrap();
    PacketBuilder::ethernet2(PEER_MAC, MAC)
        .ipv6(PEER_V6, OURS_V6, 64)
        .tcp(PEER_PORT, PORT, 1, 1000)
        .write(&mut v6, &[7; 8900])
        .unwrap();
    let mut bench = Bench::new(Variant::Frags);
    for frame in [v4, v6] {
        let mut tagged = tagged(frame.clone(), &[0x8100]);
        let mut frame = frame;
        for frame in [&mut frame, &mut tagged] {
            assert_eq!(bench.run(frame), "redirected");
            frame.pop();
            assert_eq!(bench.run(frame), "pass_malformed");
        }
    }
}

#[test]
fn a_released_claim_passes_and_can_be_claimed_again() {
    let mut bench = Bench::new(Variant::Frags);
    bench
        .program
        .release(Protocol::Tcp, OURS_V4.into(), PORT)
        .unwrap();
    assert_eq!(bench.run(&tcp_v4()), "pass_not_claimed");
    assert_eq!(bench.run(&tcp_v6()), "redirected");
    bench
        .program
        .release(Protocol::Tcp, OURS_V4.into(), PORT)
        .unwrap();
    bench
        .program
        .claim(Protocol::Tcp, OURS_V4.into(), PORT)
        .unwrap();
    bench
        .program
        .claim(Protocol::Tcp, OURS_V4.into(), PORT)
        .unwrap();
    assert_eq!(bench.run(&tcp_v4()), "redirected");
}

#[test]
fn claimed_frames_pass_while_the_queue_has_no_socket() {
    let mut bench = Bench::new(Variant::Frags);
    bench.program.sockets.unset(0).unwrap();
    assert_eq!(bench.run(&tcp_v4()), "pass_no_socket");
}
