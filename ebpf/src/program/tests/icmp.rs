//! Which ICMP messages the filters let through. The bytes are what a raw socket sees.

use aya::programs::SocketFilter;

use super::*;

/// Bytes of an ICMP header, in both versions.
const ICMP: usize = 8;

/// What a filter says of a message.
pub(super) fn keep(bench: &mut Bench, version: IpVersion, message: &[u8]) -> bool {
    let name = match version {
        IpVersion::V4 => "icmp",
        IpVersion::V6 => "icmpv6",
    };
    let taken = |bench: &Bench| {
        let counters = bench.program.counters();
        let found = counters.iter().find(|(name, _)| *name == "icmp_taken");
        found.map(|(_, count)| *count)
    };
    let before = taken(bench).unwrap();
    load::load_filter(&mut bench.program.ebpf, "test", name).unwrap();
    let program: &mut SocketFilter = bench
        .program
        .ebpf
        .program_mut(name)
        .unwrap()
        .try_into()
        .unwrap();
    // The kernel takes an Ethernet header off before it runs the filter.
    let mut frame = vec![0; 12];
    frame.extend([8, 0]);
    frame.extend(message);
    let mut options = TestRunOptions::new();
    options.data_in = Some(&frame);
    let kept = program.test_run(options).unwrap().return_value;
    assert!(kept == 0 || kept as usize >= message.len());
    assert_eq!(taken(bench).unwrap() - before, u64::from(kept > 0));
    kept > 0
}

/// A segment of ours, as the packet it was sent in.
fn sent(v6: bool) -> Vec<u8> {
    let mut packet = Vec::new();
    if v6 {
        PacketBuilder::ipv6(OURS_V6, PEER_V6, 64)
            .tcp(PORT, PEER_PORT, 1, 1000)
            .write(&mut packet, b"payload")
            .unwrap();
    } else {
        PacketBuilder::ipv4(OURS_V4, PEER_V4, 64)
            .tcp(PORT, PEER_PORT, 1, 1000)
            .write(&mut packet, b"payload")
            .unwrap();
    }
    packet
}

/// An error of this type that quotes a packet.
pub(super) fn error(v6: bool, kind: u8, quoted: &[u8]) -> Vec<u8> {
    let mut message = vec![];
    if !v6 {
        PacketBuilder::ipv4([198, 18, 0, 9], OURS_V4, 64)
            .icmpv4_echo_request(1, 1)
            .write(&mut message, quoted)
            .unwrap();
    } else {
        message = vec![0; ICMP];
        message.extend(quoted);
    }
    let at = message.len() - quoted.len() - ICMP;
    message[at] = kind;
    message
}

pub(super) fn version(v6: bool) -> IpVersion {
    if v6 { IpVersion::V6 } else { IpVersion::V4 }
}

#[test]
fn errors_about_claimed_flows_are_taken_and_nothing_else() {
    let mut bench = Bench::new(Variant::Frags);
    for v6 in [false, true] {
        let errors: &[u8] = if v6 { &[1, 2, 3, 4] } else { &[3, 11, 12] };
        for kind in 0..=255 {
            let message = error(v6, kind, &sent(v6));
            let kept = keep(&mut bench, version(v6), &message);
            assert_eq!(kept, errors.contains(&kind), "type {kind}, v6 {v6}");
        }
        let (port, source, protocol) = if v6 { (IPV6, 23, 6) } else { (IPV4, 15, 9) };
        for (what, at) in [
            ("port", port + 1),
            ("address", source),
            ("protocol", protocol),
        ] {
            let other = with(sent(v6), |packet| packet[at] ^= 1);
            let message = error(v6, 3, &other);
            assert!(
                !keep(&mut bench, version(v6), &message),
                "another {what}, v6 {v6}"
            );
        }
        // From the peer to us, not from us to the peer.
        let theirs = with(sent(v6), |packet| {
            set_u16(packet, port, PEER_PORT);
            set_u16(packet, port + 2, PORT);
        });
        assert!(!keep(&mut bench, version(v6), &error(v6, 3, &theirs)));
        assert!(!keep(&mut bench, version(v6), &error(v6, 3, &sent(!v6))));
    }
}

#[test]
fn an_error_that_ends_before_the_port_is_left() {
    let mut bench = Bench::new(Variant::Frags);
    for v6 in [false, true] {
        let whole = error(v6, 3, &sent(v6));
        let port = whole.len() - sent(v6).len() + if v6 { IPV6 } else { IPV4 };
        // The kernel's test runs want an IPv4 header at least.
        for len in IPV4..whole.len() {
            let kept = keep(&mut bench, version(v6), &whole[..len]);
            assert_eq!(kept, len >= port + 2, "{len} bytes, v6 {v6}");
        }
    }
}

#[test]
fn options_and_fragments_are_looked_through() {
    let mut bench = Bench::new(Variant::Frags);
    let options = with(sent(false), |packet| {
        packet[0] = 0x4f;
        packet.splice(IPV4..IPV4, [1; 40]);
    });
    assert!(keep(&mut bench, IpVersion::V4, &error(false, 3, &options)));
    let outer = with(error(false, 3, &sent(false)), |packet| {
        packet[0] = 0x46;
        packet.splice(IPV4..IPV4, [1; 4]);
    });
    assert!(keep(&mut bench, IpVersion::V4, &outer));
    for (offset, ours) in [(0, true), (8, false)] {
        let v4 = with(sent(false), |packet| {
            set_u16(packet, 6, 0x2000 | (offset / 8))
        });
        assert_eq!(keep(&mut bench, IpVersion::V4, &error(false, 3, &v4)), ours);
        let v6 = with(sent(true), |packet| {
            packet[6] = 44;
            packet.splice(IPV6..IPV6, [6, 0, 0, offset as u8 | 1, 0, 0, 0, 9]);
        });
        assert_eq!(keep(&mut bench, IpVersion::V6, &error(true, 2, &v6)), ours);
    }
}
