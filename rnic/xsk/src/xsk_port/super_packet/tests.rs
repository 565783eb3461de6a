use super::*;

/// A segment's frame, with checksums as the sender of these tests leaves them.
fn frame(v6: bool, seq: u32, len: usize) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    let tcp_len = 32 + len;
    if v6 {
        frame.extend(ETHERTYPE_IPV6);
        frame.extend([0x60, 0, 0, 0]);
        frame.extend((tcp_len as u16).to_be_bytes());
        frame.extend([PROTOCOL_TCP, 64]);
        frame.extend([0x20; 16]);
        frame.extend([0x21; 16]);
    } else {
        frame.extend(ETHERTYPE_IPV4);
        frame.extend([0x45, 0]);
        frame.extend((20 + tcp_len as u16).to_be_bytes());
        // The identification differs from packet to packet.
        frame.extend((seq as u16).to_be_bytes());
        frame.extend([
            0x40,
            0,
            64,
            PROTOCOL_TCP,
            0,
            0,
            198,
            18,
            0,
            1,
            198,
            18,
            0,
            2,
        ]);
        let checksum = !folded(sum(&frame[ETHERNET..ETHERNET + IPV4]));
        frame[ETHERNET + 10..ETHERNET + 12].copy_from_slice(&checksum.to_be_bytes());
    }
    frame.extend([0x1c, 0x06, 0x1c, 0x07]);
    frame.extend(seq.to_be_bytes());
    frame.extend([0, 0, 0, 9, 0x80, ACK, 1, 0, 0x12, 0x34, 0, 0]);
    frame.extend([1, 1, 8, 10, 0, 0, 0, 7, 0, 0, 0, 8]);
    frame.extend((0..len).map(|at| (seq as usize + at) as u8));
    frame
}

/// The frames with a tag of VLAN 5.
fn tagged(mut frames: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    for frame in &mut frames {
        frame.splice(12..12, [0x81, 0, 0, 5]);
    }
    frames
}

fn run(frames: &[Vec<u8>]) -> Option<Run> {
    Run::at_front(frames.iter().map(Vec::as_slice))
}

fn count(frames: &[Vec<u8>]) -> usize {
    run(frames).map_or(0, |run| run.count)
}

/// Segments of these lengths, one after the other.
fn row(v6: bool, lens: &[usize]) -> Vec<Vec<u8>> {
    // The numbers wrap on the way.
    let mut seq = u32::MAX - 2000;
    let segment = |len: &usize| {
        let frame = frame(v6, seq, *len);
        seq = seq.wrapping_add(*len as u32);
        frame
    };
    lens.iter().map(segment).collect()
}

/// What a device makes of a packet: a segment for each `gso_size` bytes. Nothing here is used that
/// `Run::write` uses but the numbers in the kernel's header.
fn cut(vnet: &[u8], packet: &[u8]) -> Vec<(u32, u8, Vec<u8>)> {
    let number = |at: usize| usize::from(u16::from_ne_bytes([vnet[at], vnet[at + 1]]));
    let (headers, size, tcp) = (number(2), number(4), number(6));
    let seq = u32::from_be_bytes(packet[tcp + 4..tcp + 8].try_into().unwrap());
    let parts: Vec<_> = packet[headers..].chunks(size).collect();
    let last = parts.len() - 1;
    let segment = |(at, part): (usize, &&[u8])| {
        let flags = match at == last {
            true => packet[tcp + 13],
            false => packet[tcp + 13] & !PSH,
        };
        (seq.wrapping_add((at * size) as u32), flags, part.to_vec())
    };
    parts.iter().enumerate().map(segment).collect()
}

#[test]
fn a_run_cut_again_is_the_segments_that_it_was_made_of() {
    for (v6, vlan, ece) in [
        (false, false, false),
        (false, true, true),
        (true, false, true),
        (true, true, false),
    ] {
        for lens in [
            &[1000; 5][..],
            &[1448, 1448, 1],
            &[1428; 45],
            &[8948; 7],
            &[700, 700],
        ] {
            let mut frames = row(v6, lens);
            let mut ip = 14;
            if vlan {
                frames = tagged(frames);
                ip += 4;
            }
            let tcp = ip + if v6 { 40 } else { 20 };
            for frame in &mut frames {
                frame[tcp + 13] |= if ece { ECE } else { 0 };
            }
            if let Some(last) = frames.last_mut() {
                last[tcp + 13] |= PSH;
            }
            let run = run(&frames).unwrap();
            assert_eq!(run.count, lens.len());
            let (mut vnet, mut headers) = ([0; VNET_HEADER], [0; HEADERS_MAX]);
            run.write(&frames[0], &mut vnet, &mut headers);
            let len = run.payload_at();
            assert_eq!(len, tcp + 32);
            let mut packet = headers[..len].to_vec();
            assert_eq!(packet[..ip], frames[0][..ip]);
            for frame in &frames {
                packet.extend(&frame[len..]);
            }
            let seq =
                |frame: &[u8]| u32::from_be_bytes(frame[tcp + 4..tcp + 8].try_into().unwrap());
            let expected: Vec<_> = frames
                .iter()
                .map(|frame| (seq(frame), frame[tcp + 13], frame[tcp + 32..].to_vec()))
                .collect();
            assert_eq!(cut(&vnet, &packet), expected);
            // What the kernel checks and completes.
            assert_eq!(vnet[..2], [1, if v6 { GSO_TCPV6 } else { GSO_TCPV4 }]);
            let tcp_len = packet.len() - tcp;
            let addresses = match v6 {
                false => {
                    assert_eq!(word(&packet, ip + 2), packet.len() - ip);
                    assert_eq!(folded(sum(&packet[ip..tcp])), 0xffff);
                    &packet[ip + 12..tcp]
                }
                true => {
                    assert_eq!(word(&packet, ip + 4), tcp_len);
                    &packet[ip + 8..tcp]
                }
            };
            let pseudo = folded(sum(addresses) + 6 + tcp_len as u64);
            assert_eq!(word(&packet, tcp + 16), usize::from(pseudo));
        }
    }
}

#[test]
fn a_tag_of_another_vlan_or_a_second_one_is_in_no_run() {
    let mut frames = tagged(row(false, &[1000; 3]));
    assert_eq!(count(&frames), 3);
    frames[1][15] = 6;
    assert_eq!(count(&frames), 1, "of VLAN 6");
    frames[1].splice(12..16, []);
    assert_eq!(count(&frames), 1, "without a tag");
    assert_eq!(count(&tagged(tagged(row(true, &[1000; 2])))), 0, "two tags");
}

#[test]
fn a_run_ends_behind_a_shorter_segment_and_before_a_longer_one() {
    assert_eq!(count(&row(false, &[1000, 1000, 999, 1000])), 3);
    assert_eq!(count(&row(false, &[1000, 1001])), 1);
    assert_eq!(count(&row(true, &[1, 1, 1])), 3);
    assert_eq!(count(&row(false, &[100; SEGMENTS_MAX + 3])), SEGMENTS_MAX);
    // The largest IP packet: 52 bytes of headers here.
    assert_eq!(count(&row(false, &[13_096; 6])), 5);
    assert_eq!(count(&row(false, &[13_097; 6])), 4);
}

#[test]
fn a_segment_that_says_something_else_begins_another_packet() {
    for v6 in [false, true] {
        let tcp = if v6 { 54 } else { 34 };
        let ip: &[usize] = match v6 {
            // Class and flow label, hop limit, addresses.
            true => &[15, 17, 21, 22, 53],
            // Class, time to live, addresses.
            false => &[15, 22, 26, 33],
        };
        // Ethernet addresses, ports, sequence number, acknowledgment, window, urgent pointer, options.
        let differ = [
            0,
            11,
            tcp,
            tcp + 3,
            tcp + 4,
            tcp + 7,
            tcp + 8,
            tcp + 14,
            tcp + 18,
            tcp + 24,
        ];
        for at in differ.into_iter().chain(ip.iter().copied()) {
            let mut frames = row(v6, &[1000; 3]);
            frames[1][at] ^= 1;
            assert_eq!(count(&frames), 1, "byte {at}");
        }
        for flag in [0x01, 0x02, 0x04, 0x20, ECE, 0x80] {
            let mut frames = row(v6, &[1000; 3]);
            frames[1][tcp + 13] |= flag;
            assert_eq!(count(&frames), 1, "flag {flag:#x}");
            // The congestion window was reduced once: CWR is on one segment.
            let front = usize::from(flag == ECE);
            assert_eq!(count(&frames[1..]), front, "flag {flag:#x} at the front");
        }
    }
}

#[test]
fn what_is_no_plain_segment_is_in_no_run() {
    let mut none = row(false, &[0, 1000]);
    assert_eq!(count(&none), 0, "an acknowledgment alone");
    for (at, value) in [
        (12, 0x81),
        (14, 0x46),
        (20, 0x20),
        (21, 1),
        (23, 17),
        (46, 0x10),
        (46, 0xf0),
    ] {
        none = row(false, &[20, 20]);
        none[0][at] = value;
        assert_eq!(count(&none), 0, "byte {at}");
    }
    none = row(false, &[30, 30]);
    none[0].push(0);
    assert_eq!(count(&none), 0, "with padding");
    for len in 0..none[1].len() {
        assert_eq!(count(&[none[1][..len].to_vec()]), 0, "cut off at {len}");
    }
    assert_eq!(count(&[]), 0);
}
