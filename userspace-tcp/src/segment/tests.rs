use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use etherparse::TcpHeaderSlice;
use userspace_net::checksum;

use super::*;
use crate::options::{SackBlock, Timestamps};

fn headers() -> Vec<TcpHeader> {
    let base = TcpHeader {
        source_port: 4321,
        destination_port: 80,
        seq: SeqNum(0xdead_beef),
        ack: SeqNum(0x0102_0304),
        flags: Flags::ACK | Flags::PSH,
        window: 0xabcd,
        urgent: 0,
        options: Options::default(),
    };
    let timestamps = Some(Timestamps {
        value: 77,
        echo: u32::MAX,
    });
    let mut headers = vec![base];
    headers.push(TcpHeader {
        flags: Flags::SYN,
        options: Options {
            mss: Some(1460),
            window_scale: Some(7),
            sack_permitted: true,
            timestamps,
            ..Options::default()
        },
        ..base
    });
    for count in 1..=4 {
        for timestamps in [None, timestamps] {
            let mut options = Options {
                timestamps,
                ..Options::default()
            };
            for i in 0..count.min(if timestamps.is_some() { 3 } else { 4 }) {
                let left = SeqNum(1000 * i);
                options.sack.push(SackBlock {
                    left,
                    right: left.add(500),
                });
            }
            headers.push(TcpHeader { options, ..base });
        }
    }
    headers
}

#[test]
fn what_is_emitted_parses_to_the_same() {
    for header in headers() {
        let mut bytes = [0xee; HEADER_MAX + 5];
        let len = header.emit(&mut bytes);
        assert_eq!(len, header.header_len());
        let segment = Segment::parse(&bytes[..len + 5]).unwrap();
        assert_eq!(segment.header, header);
        assert_eq!(segment.payload, [0xee; 5]);
    }
}

#[test]
fn a_syn_has_its_options_in_the_usual_order_and_room() {
    let options = |timestamps: bool| {
        let header = TcpHeader {
            options: Options {
                mss: Some(1460),
                window_scale: Some(8),
                sack_permitted: true,
                timestamps: timestamps.then_some(Timestamps { value: 1, echo: 0 }),
                ..Options::default()
            },
            ..TcpHeader::default()
        };
        let mut bytes = [0; HEADER_MAX];
        let len = header.emit(&mut bytes);
        bytes[HEADER_MIN..len].to_vec()
    };
    let (mss, scale) = ([2, 4, 0x05, 0xb4], [1, 3, 3, 8]);
    assert_eq!(options(false), [mss, [1, 1, 4, 2], scale].concat());
    let with = [&mss[..], &[4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0], &scale].concat();
    assert_eq!(options(true), with);
}

#[test]
fn an_independent_parser_and_checksum_agree() {
    let payload: Vec<u8> = (0..101).collect();
    let v4: (Ipv4Addr, Ipv4Addr) = ([198, 18, 0, 1].into(), [198, 18, 255, 2].into());
    let v6: (Ipv6Addr, Ipv6Addr) = (
        "2001:db8::1".parse().unwrap(),
        "2001:db8:ffff::2".parse().unwrap(),
    );
    for header in headers() {
        let mut bytes = vec![0; HEADER_MAX];
        let len = header.emit(&mut bytes);
        bytes.truncate(len);
        let total = len + payload.len();
        let parts = checksum::sum(&bytes) + checksum::sum(&payload);
        let ours_v4 = checksum::fold(parts + checksum::pseudo_v4(v4.0, v4.1, PROTOCOL_TCP, total));
        let ours_v6 = checksum::fold(parts + checksum::pseudo_v6(v6.0, v6.1, PROTOCOL_TCP, total));

        let theirs = TcpHeaderSlice::from_slice(&bytes).unwrap().to_header();
        assert_eq!(theirs.sequence_number, header.seq.0);
        assert_eq!(theirs.acknowledgment_number, header.ack.0);
        assert_eq!(theirs.window_size, header.window);
        assert_eq!(
            (theirs.syn, theirs.ack),
            (header.flags.syn(), header.flags.ack())
        );
        assert!(theirs.options_iterator().all(|option| option.is_ok()));
        let raw = |a: [u8; 4], b: [u8; 4]| theirs.calc_checksum_ipv4_raw(a, b, &payload).unwrap();
        assert_eq!(ours_v4, raw(v4.0.octets(), v4.1.octets()));
        let raw = |a: [u8; 16], b: [u8; 16]| theirs.calc_checksum_ipv6_raw(a, b, &payload).unwrap();
        assert_eq!(ours_v6, raw(v6.0.octets(), v6.1.octets()));

        bytes[CHECKSUM_OFFSET..CHECKSUM_OFFSET + 2].copy_from_slice(&ours_v4.to_be_bytes());
        bytes.extend(&payload);
        let (source, destination) = (IpAddr::from(v4.0), IpAddr::from(v4.1));
        assert!(checksum::verify(source, destination, PROTOCOL_TCP, &bytes));
        bytes[7] ^= 1;
        assert!(!checksum::verify(source, destination, PROTOCOL_TCP, &bytes));
    }
}

#[test]
fn too_many_sack_blocks_are_left_out() {
    let mut options = Options {
        timestamps: Some(Timestamps::default()),
        mss: Some(1),
        ..Options::default()
    };
    for _ in 0..4 {
        options.sack.push(SackBlock::default());
    }
    let header = TcpHeader {
        options,
        ..TcpHeader::default()
    };
    assert!(header.header_len() <= HEADER_MAX);
    let mut bytes = [0; HEADER_MAX];
    let len = header.emit(&mut bytes);
    assert_eq!(
        Segment::parse(&bytes[..len])
            .unwrap()
            .header
            .options
            .sack
            .as_slice()
            .len(),
        2
    );
}

#[test]
fn unsound_headers_are_named() {
    let mut bytes = [0; 28];
    let len = headers()[0].emit(&mut bytes);
    assert_eq!(
        Segment::parse(&bytes[..19]),
        Err(ParseError::TooShort { len: 19 })
    );
    bytes[12] = 4 << 4;
    assert_eq!(
        Segment::parse(&bytes[..len]),
        Err(ParseError::DataOffset {
            offset: 16,
            len: 20
        })
    );
    bytes[12] = 6 << 4;
    assert_eq!(
        Segment::parse(&bytes[..len]),
        Err(ParseError::DataOffset {
            offset: 24,
            len: 20
        })
    );
    for option in [
        [2, 0, 0, 0],
        [2, 1, 0, 0],
        [2, 5, 0, 0],
        [3, 4, 0, 0],
        [1, 1, 1, 8],
    ] {
        bytes[20..24].copy_from_slice(&option);
        assert_eq!(
            Segment::parse(&bytes[..24]),
            Err(ParseError::Options),
            "{option:?}"
        );
    }
}

#[test]
fn unknown_options_are_skipped() {
    let mut bytes = [0; 28];
    headers()[0].emit(&mut bytes);
    bytes[12] = 7 << 4;
    bytes[20..28].copy_from_slice(&[253, 4, 9, 9, 2, 4, 5, 0xb4]);
    assert_eq!(
        Segment::parse(&bytes).unwrap().header.options.mss,
        Some(1460)
    );
}

/// One header of each kind of segment, and all fields at their limits.
#[test]
fn the_sum_of_the_fields_is_that_of_the_bytes() {
    let mut random = 1_u64;
    let mut next = move || {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 32) as u32
    };
    for round in 0..2000_u32 {
        let wild = |value: u32| if round % 7 == 0 { u32::MAX } else { value };
        let mut options = Options::default();
        if round % 2 == 0 {
            options.timestamps = Some(Timestamps {
                value: wild(next()),
                echo: wild(next()),
            });
        }
        if round % 5 == 0 {
            options.mss = Some(next() as u16);
            options.sack_permitted = round % 10 == 0;
            options.window_scale = (round % 15 == 0).then_some(7);
        }
        for _ in 0..(if round % 3 == 0 { next() % 5 } else { 0 }) {
            options.sack.push(SackBlock {
                left: SeqNum(next()),
                right: SeqNum(next()),
            });
        }
        let header = TcpHeader {
            source_port: wild(next()) as u16,
            destination_port: next() as u16,
            seq: SeqNum(wild(next())),
            ack: SeqNum(wild(next())),
            flags: Flags(next() as u8),
            window: wild(next()) as u16,
            urgent: next() as u16,
            options,
        };
        let mut bytes = [0xaa; HEADER_MAX];
        let (len, sum) = header.emit_summed(&mut bytes);
        assert_eq!(len, header.header_len());
        assert_eq!(sum, checksum::sum(&bytes[..len]), "{header:?}");
        assert!(bytes[len..].iter().all(|byte| *byte == 0xaa));
        let read = Segment::parse(&bytes[..len]).unwrap().header;
        assert_eq!(read.options.timestamps, header.options.timestamps);
        // SACK blocks may not all fit.
        let bare = |header: TcpHeader| TcpHeader {
            options: Options::default(),
            ..header
        };
        assert_eq!(bare(read), bare(header));
    }
}
