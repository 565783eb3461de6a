use userspace_tcp::{Flags, SeqNum, Timestamps};

use super::*;
use crate::tests::{path, tuple};
use crate::{Payload, write_segment};

/// Where one's complement arithmetic goes wrong if it does.
const CORNERS: [u16; 8] = [0, 1, 0x7fff, 0x8000, 0x5555, 0xaaaa, 0xfffe, 0xffff];

const PAYLOAD: &[u8] = b"the payload, which no retransmission touches";

/// The checksum over two words, from nothing.
fn whole([a, b]: [u16; 2]) -> u16 {
    let ([a, b], [c, d]) = (a.to_be_bytes(), b.to_be_bytes());
    checksum::fold(checksum::sum(&[a, b, c, d]))
}

fn header(timestamps: bool) -> TcpHeader {
    let tuple = tuple(false);
    TcpHeader {
        source_port: tuple.local.port,
        destination_port: tuple.remote.port,
        seq: SeqNum(0x1234_5678),
        ack: SeqNum(0xffff_0000),
        flags: Flags::ACK | Flags::PSH,
        window: 512,
        options: Options {
            timestamps: timestamps.then_some(Timestamps {
                value: 0xffff_ffff,
                echo: 7,
            }),
            ..Options::default()
        },
        ..TcpHeader::default()
    }
}

fn written(path: &Path, tuple: &FourTuple, ecn: Ecn, header: &TcpHeader) -> Vec<u8> {
    let mut out = vec![0xa5; path.headers_len(tuple.remote.addr) + header.header_len()];
    let payload = Payload {
        len: PAYLOAD.len(),
        sum: checksum::sum(PAYLOAD),
    };
    write_segment(path, tuple, ecn, header, payload, &mut out).unwrap();
    out.extend_from_slice(PAYLOAD);
    out
}

/// Every family, tagging and option layout.
fn layouts() -> impl Iterator<Item = (Path, FourTuple, TcpHeader)> {
    [
        (false, None),
        (false, Some(5)),
        (true, None),
        (true, Some(7)),
    ]
    .into_iter()
    .flat_map(|(v6, vlan)| {
        [false, true].map(|timestamps| (path(vlan), tuple(v6), header(timestamps)))
    })
}

/// A second transmission of `before`, rewritten, must be what is written from nothing.
fn check(
    path: &Path,
    tuple: &FourTuple,
    (ecn, before): (Ecn, &TcpHeader),
    (ecn_after, after): (Ecn, &TcpHeader),
) {
    let mut frame = written(path, tuple, ecn, before);
    let len = rewrite_segment(path, tuple, ecn_after, after, PAYLOAD.len(), &mut frame);
    assert_eq!(len, Some(frame.len() - PAYLOAD.len()));
    assert_eq!(frame, written(path, tuple, ecn_after, after), "{after:?}");
}

#[test]
fn the_example_of_rfc_1624_section_4() {
    assert_eq!(update(0xdd2f, 0x5555, 0x3285), 0x0000);
}

#[test]
fn an_updated_checksum_is_that_of_the_whole_for_every_old_and_new_word() {
    // A header is never all zeros: the first word stands for the rest of it.
    for rest in [1, 0xffff] {
        for word in 0..=u16::MAX {
            for corner in [0, 1, 0x8000, 0xffff] {
                for (old, new) in [(word, corner), (corner, word)] {
                    let before = whole([rest, old]);
                    assert_eq!(
                        update(before, old, new),
                        whole([rest, new]),
                        "{rest:#x} {old:#x} {new:#x}"
                    );
                }
            }
        }
    }
}

#[test]
fn checksums_of_zero_come_and_go_as_they_should() {
    // RFC 1624 section 5: 0x0000 where the older equation gave 0xffff. The word that makes the
    // checksum zero is tried as the old and as the new value of each 16-bit field.
    for rest in [1, 0x8000, 0xffff] {
        let zero = !rest;
        assert_eq!(whole([rest, zero]), 0);
        for other in 0..=u16::MAX {
            let to = update(whole([rest, other]), other, zero);
            assert_eq!(to, 0, "{rest:#x} {other:#x}");
            let back = update(0, zero, other);
            assert_eq!(back, whole([rest, other]), "{rest:#x} {other:#x}");
        }
    }
}

#[test]
fn a_rewritten_header_is_what_would_be_written() {
    for (path, tuple, before) in layouts() {
        for high in CORNERS {
            for low in CORNERS {
                let value = u32::from(high) << 16 | u32::from(low);
                let mut after = before;
                after.ack = SeqNum(value);
                after.window = low;
                after.urgent = high;
                after.flags = Flags::ACK | Flags(low as u8 & 0xc0);
                if let Some(timestamps) = &mut after.options.timestamps {
                    timestamps.value = value;
                    timestamps.echo = !value;
                }
                for ecn in [Ecn::NotEct, Ecn::Ect0, Ecn::Ce] {
                    check(&path, &tuple, (Ecn::Ect1, &before), (ecn, &after));
                    check(&path, &tuple, (ecn, &after), (Ecn::Ect1, &before));
                }
            }
        }
    }
}

#[test]
fn every_window_leads_to_every_other_by_way_of_the_checksum_that_is_zero() {
    let (path, tuple, header) = layouts().next().unwrap();
    let checksum_of = |window| {
        let frame = written(&path, &tuple, Ecn::NotEct, &TcpHeader { window, ..header });
        u16::from_be_bytes([frame[50], frame[51]])
    };
    let zero = (0..=u16::MAX)
        .find(|window| checksum_of(*window) == 0)
        .unwrap();
    let mut frame = written(&path, &tuple, Ecn::NotEct, &header);
    for window in 0..=u16::MAX {
        for window in [window, zero] {
            let next = TcpHeader { window, ..header };
            rewrite_segment(&path, &tuple, Ecn::NotEct, &next, PAYLOAD.len(), &mut frame).unwrap();
            assert_eq!(frame[50..52], checksum_of(window).to_be_bytes());
        }
    }
}

#[test]
fn the_next_hop_may_have_changed() {
    for (path, tuple, header) in layouts() {
        let moved = Path {
            dst_mac: [6; 6],
            ..path
        };
        let mut frame = written(&path, &tuple, Ecn::NotEct, &header);
        rewrite_segment(
            &moved,
            &tuple,
            Ecn::NotEct,
            &header,
            PAYLOAD.len(),
            &mut frame,
        )
        .unwrap();
        assert_eq!(frame, written(&moved, &tuple, Ecn::NotEct, &header));
    }
}

#[test]
fn headers_of_anything_else_are_left_alone() {
    for (path, tuple, header) in layouts() {
        let original = written(&path, &tuple, Ecn::NotEct, &header);
        let refuse = |what: &str, path: &Path, tuple: &FourTuple, header: &TcpHeader, len| {
            let mut frame = original.clone();
            let done = rewrite_segment(path, tuple, Ecn::Ect0, header, len, &mut frame);
            assert_eq!(done, None, "{what}");
            assert_eq!(frame, original, "{what}");
        };
        let len = PAYLOAD.len();
        let vlan = path.vlan.map_or(Some(5), |_| None);
        refuse("tagging", &Path { vlan, ..path }, &tuple, &header, len);
        let hop_limit = path.hop_limit + 1;
        refuse(
            "hop limit",
            &Path { hop_limit, ..path },
            &tuple,
            &header,
            len,
        );
        refuse("length", &path, &tuple, &header, len + 1);
        refuse("too long", &path, &tuple, &header, 65_535);
        let turned = FourTuple::new(tuple.remote, tuple.local);
        refuse("addresses", &path, &turned, &header, len);
        let other = self::tuple(tuple.remote.addr.is_ipv4());
        refuse("family", &path, &other, &header, len);
        let (mut port, mut seq, mut options) = (header, header, header);
        port.destination_port += 1;
        refuse("port", &path, &tuple, &port, len);
        seq.seq = SeqNum(1);
        refuse("sequence number", &path, &tuple, &seq, len);
        options.options.timestamps = match header.options.timestamps {
            Some(_) => None,
            None => Some(Timestamps::default()),
        };
        refuse("options", &path, &tuple, &options, len);
        options = header;
        options.options.mss = Some(1460);
        refuse("other options", &path, &tuple, &options, len);
    }
}

#[test]
fn any_flipped_bit_of_what_must_be_the_same_is_seen() {
    for (path, tuple, header) in layouts() {
        let original = written(&path, &tuple, Ecn::NotEct, &header);
        let end = original.len() - PAYLOAD.len();
        let link = path.link_len();
        let tcp = path.headers_len(tuple.remote.addr);
        let ip_changes: &[usize] = if tuple.remote.addr.is_ipv4() {
            &[1, 10, 11]
        } else {
            &[1]
        };
        let mut ignored: Vec<usize> = (0..12).collect();
        ignored.extend(ip_changes.iter().map(|at| link + at));
        ignored.extend((8..12).chain(13..20).chain(24..32).map(|at| tcp + at));
        for at in (0..end).filter(|at| !ignored.contains(at)) {
            for bit in 0..8 {
                let mut broken = original.clone();
                broken[at] ^= 1 << bit;
                let before = broken.clone();
                let done = rewrite_segment(
                    &path,
                    &tuple,
                    Ecn::Ect0,
                    &header,
                    PAYLOAD.len(),
                    &mut broken,
                );
                assert_eq!(done, None, "octet {at}");
                assert_eq!(broken, before, "octet {at}");
            }
        }
    }
}

#[test]
fn a_frame_that_ends_in_its_headers_is_refused() {
    for (path, tuple, header) in layouts() {
        let whole = written(&path, &tuple, Ecn::NotEct, &header);
        for len in 0..whole.len() - PAYLOAD.len() {
            let mut cut = whole[..len].to_vec();
            let done = rewrite_segment(&path, &tuple, Ecn::Ect0, &header, PAYLOAD.len(), &mut cut);
            assert_eq!(done, None, "{len} octets");
        }
    }
}
