use proptest::prelude::*;
use userspace_net::FourTuple;
use userspace_net::checksum::PartialSum;
use userspace_tcp::{Segment, TcpHeader, Timestamps};

use super::*;
use crate::tests::{path, tuple};
use crate::{Path, PathDefaults, Payload, Received, parse, write_segment};

const DEFAULTS: PathDefaults = PathDefaults::new(1500);

fn header(tuple: &FourTuple, seq: u32, timestamps: bool) -> TcpHeader {
    let mut header = TcpHeader {
        source_port: tuple.local.port,
        destination_port: tuple.remote.port,
        seq: SeqNum(seq),
        ack: SeqNum(0x1234_5678),
        window: 500,
        flags: Flags::ACK,
        ..TcpHeader::default()
    };
    header.options.timestamps = timestamps.then_some(Timestamps { value: 7, echo: 9 });
    header
}

fn frame(path: &Path, tuple: &FourTuple, header: &TcpHeader, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![0; path.headers_len(tuple.remote.addr) + header.header_len()];
    let (len, sum) = (payload.len(), checksum::sum(payload));
    let ecn = userspace_net::Ecn::Ect0;
    write_segment(path, tuple, ecn, header, Payload { len, sum }, &mut out).unwrap();
    out.extend_from_slice(payload);
    out
}

fn known(frame: &[u8]) -> (HeaderPrediction, Received, TcpHeader) {
    let received = parse(frame, &DEFAULTS).unwrap();
    let header = Segment::parse(&frame[received.data.clone()])
        .unwrap()
        .header;
    let payload = received.data.start + header.header_len();
    let known = HeaderPrediction::of(frame, payload).unwrap();
    (known, received, header)
}

/// What a frame says that has these headers, if its checksums are right.
fn recognise(known: &HeaderPrediction, first: &[u8], rest: &[&[u8]]) -> Option<PredictedFields> {
    known
        .compare(first)?
        .verified(first, rest.iter().copied(), rnic_crc::sum)
}

/// IPv4's header checksum and TCP's made right, whatever else is in the frame.
fn with_right_checksums(frame: &mut [u8], ip: usize, tcp: usize) {
    let v4 = tcp - ip < IPV6_HEADER;
    let end = match v4 {
        true => ip + usize::from(u16::from_be_bytes([frame[ip + 2], frame[ip + 3]])),
        false => tcp + usize::from(u16::from_be_bytes([frame[ip + 4], frame[ip + 5]])),
    };
    let end = end.clamp(tcp + TCP_HEADER, frame.len());
    if v4 {
        frame[ip + 10..ip + 12].fill(0);
        let sum = checksum::fold(checksum::sum(&frame[ip..tcp]));
        frame[ip + 10..ip + 12].copy_from_slice(&sum.to_be_bytes());
    }
    frame[tcp + 16..tcp + 18].fill(0);
    let addresses = match v4 {
        true => checksum::sum(&frame[ip + 12..ip + 20]),
        false => checksum::sum(&frame[ip + 8..ip + 40]),
    };
    let len = PartialSum::from_folded((end - tcp) as u16);
    let pseudo = addresses + PartialSum::from_folded(6) + len;
    let sum = checksum::fold(pseudo + checksum::sum(&frame[tcp..end]));
    frame[tcp + 16..tcp + 18].copy_from_slice(&sum.to_be_bytes());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn what_is_recognised_is_what_parsing_finds(
        v6 in any::<bool>(),
        vlan in prop::option::of(Just(0x6064)),
        timestamps in any::<bool>(),
        seqs in any::<(u32, u32)>(),
        lens in (0..80_usize, 0..80_usize),
        changes in prop::collection::vec((0..110_usize, 0..8), 0..4),
        right in prop::bool::weighted(0.8),
        padding in 0..8_usize,
        cuts in (0..200_usize, 0..200_usize),
    ) {
        let (path, tuple) = (path(vlan), tuple(v6));
        let first = frame(&path, &tuple, &header(&tuple, seqs.0, timestamps), &vec![1; lens.0]);
        let (known, like, like_header) = known(&first);
        let mut next = frame(&path, &tuple, &header(&tuple, seqs.1, timestamps), &vec![2; lens.1]);
        next.resize(next.len() + padding, 0);
        for &(at, bit) in &changes {
            if let Some(byte) = next.get_mut(at) {
                *byte ^= 1_u8 << bit;
            }
        }
        if right {
            with_right_checksums(&mut next, known.ip, known.tcp);
        }
        let found = recognise(&known, &next, &[]);
        prop_assert!(found.is_some() || !changes.is_empty());
        let cut = cuts.0.min(next.len());
        let (begin, rest) = next.split_at(cut);
        let (middle, end) = rest.split_at(cuts.1.min(rest.len()));
        let in_parts = recognise(&known, begin, &[middle, end]);
        match &found {
            Some(found) if cut >= found.payload.start => {
                prop_assert_eq!(in_parts.as_ref(), Some(found));
            }
            // What parsing finds is found by that.
            _ => prop_assert_eq!(in_parts, None),
        }
        if let Some(found) = found {
            let parsed = parse(&next, &DEFAULTS);
            let end = found.payload.end;
            let expected = Received { data: like.data.start..end, ..like };
            prop_assert_eq!(parsed, Ok(expected));
            let segment = Segment::parse(&next[like.data.start..end]).unwrap();
            let expected = TcpHeader {
                seq: found.seq,
                ack: found.ack,
                window: found.window,
                flags: found.flags,
                ..like_header
            };
            prop_assert_eq!(segment.header, expected);
            prop_assert_eq!(segment.payload, &next[found.payload]);
        }
    }
}

#[test]
fn a_wrong_checksum_is_not_recognised() {
    for v6 in [false, true] {
        let (path, tuple) = (path(None), tuple(v6));
        let right = frame(&path, &tuple, &header(&tuple, 5, false), b"some bytes");
        let (known, ..) = known(&right);
        assert!(recognise(&known, &right, &[]).is_some());
        for at in 0..right.len() {
            let mut wrong = right.clone();
            wrong[at] ^= 4;
            assert_eq!(recognise(&known, &wrong, &[]), None, "byte {at}");
            for cut in known.payload..=wrong.len() {
                let (first, rest) = wrong.split_at(cut);
                let (second, third) = rest.split_at(rest.len() / 2);
                let found = recognise(&known, first, &[second, third]);
                assert_eq!(found, None, "byte {at}, cut at {cut}");
            }
        }
    }
}
