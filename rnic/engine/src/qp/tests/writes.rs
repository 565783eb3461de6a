//! What comes in whole FPDUs that are known to be verified, with Markers or without, ends as what comes byte
//! by byte, and nobody knows anything of.

use std::collections::BTreeMap;

use rnic_proto::crc::{RESIDUE, crc_of};
use rnic_proto::ddp::header::{Tagged, Untagged};
use rnic_proto::mpa::fpdu::{CRC_LEN, Layout};
use rnic_proto::mpa::marker::{MARKER_INTERVAL, fpdu_pointer};
use rnic_proto::rdmap::{Opcode, SendKind, SendWord};
use rnic_proto::{MessageOffset, Msn, Qn};

use super::hostile::tagged;
use super::markers::marked;
use super::*;
use crate::metrics::Counted;

/// Another region that peers may write.
const SECOND: Stag = Stag(0x0000_0e05);
const FPDUS_MAX: u64 = 16;

/// A queue pair whose next FPDU is at `at` of the stream.
fn receiver(markers: Markers, at: u64) -> End {
    let (_, mut end) = joined_with(&Negotiated {
        markers_in: markers,
        ..negotiated(None)
    });
    end.qp.receive.at = at;
    let memory = Arc::new(SharedMemory::private(SMALL_LEN).unwrap());
    let region = RegionMemory::whole(memory.clone());
    end.stags
        .add(SECOND, PD, ALL, TaggedOffset(BASE), region)
        .unwrap();
    end.small[0] = memory;
    for id in 0..4 {
        end.post_recv(id, &[sge(BASE, 64)]);
    }
    end
}

/// FPDUs of one stream, one behind the other.
struct Sender {
    markers: Markers,
    /// Where the next one begins.
    at: u64,
    /// Bytes of Writes so far.
    written: u64,
    sends: u32,
}

impl Sender {
    fn new(markers: Markers, at: u64) -> Self {
        Self {
            markers,
            at,
            written: 0,
            sends: 0,
        }
    }

    fn framed(&self, header: &[u8], payload: &[u8]) -> Vec<u8> {
        match self.markers {
            Markers::Off => hostile::fpdu(header, payload),
            Markers::On => marked(header, payload, self.at),
        }
    }

    fn layout_of(&self, ulpdu_len: usize) -> Layout {
        Layout::new(self.markers, self.at, ulpdu_len)
    }
}

/// The CRC of an FPDU is right again.
fn with_right_crc(fpdu: &mut [u8]) {
    let (covered, crc) = fpdu.split_at_mut(fpdu.len() - CRC_LEN);
    crc.copy_from_slice(&crc_of([&*covered]).bytes());
}

/// An FPDU: a Write as a rule, to where it may be or not, and seldom anything else.
fn any_fpdu(random: &mut Random, sender: &mut Sender) -> Vec<u8> {
    let kind = random.below(40);
    let stags = [STAG, STAG, STAG, SECOND];
    let stag = match kind {
        0 => [BARE_STAG, OTHER_STAG, Stag(0x7777), Stag(STAG.0 + 1)][random.below(4) as usize],
        _ => stags[random.below(4) as usize],
    };
    let to = match kind {
        1 => u64::MAX - random.below(100),
        2 => BASE + LEN as u64 - random.below(100),
        _ => BASE + sender.written % 2400,
    };
    let len = match kind {
        3..5 => 0,
        // Some have several Markers.
        _ if random.below(3) == 0 => 1 + random.below(1600) as usize,
        _ => 1 + random.below(300) as usize,
    };
    sender.written += len as u64;
    let payload = bytes(random, if kind == 5 { len.min(64) } else { len });
    let header = if kind == 5 {
        let invalidate = random.below(2) == 0;
        let opcode = Opcode::Send(SendKind {
            solicited: false,
            word: match invalidate {
                true => SendWord::Invalidate,
                false => SendWord::Unused,
            },
        });
        sender.sends += 1;
        let header = Untagged {
            last: true,
            version: 1,
            ulp: opcode.control_byte(),
            ulp_word: if invalidate { stag.0 } else { 0 },
            qn: Qn::SEND,
            msn: Msn(sender.sends),
            mo: MessageOffset(0),
        };
        header.to_bytes().to_vec()
    } else {
        let header = Tagged {
            last: random.below(4) == 0,
            version: 1,
            ulp: Opcode::Write.control_byte(),
            stag,
            to: TaggedOffset(to),
        };
        let mut bytes = header.to_bytes().to_vec();
        if kind == 6 {
            bytes[random.below(2) as usize] ^= 1 << random.below(8);
        }
        bytes
    };
    let mut out = sender.framed(&header, &payload);
    let layout = sender.layout_of(header.len() + payload.len());
    match kind {
        7 => {
            let at = random.below(out.len() as u64) as usize;
            out[at] ^= 1 << random.below(8);
        }
        // What ends with the CRC of what is before, and is another FPDU, or none.
        8 => {
            out[layout.header_at() + 1] ^= 4;
            with_right_crc(&mut out);
        }
        // One of its Markers points astray, or has bits that mean nothing.
        9 => {
            let count = layout.markers().count() as u64;
            let which = random.below(count) as usize;
            if let Some((marker, _)) = layout.markers().nth(which) {
                out[marker + random.below(4) as usize] ^= 1 << random.below(8);
                with_right_crc(&mut out);
            }
        }
        _ => {}
    }
    sender.at += out.len() as u64;
    out
}

/// Bytes as segments: one for each FPDU, but for some that have two.
fn segments(random: &mut Random, fpdus: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let mut segments: Vec<Vec<u8>> = Vec::new();
    for fpdu in fpdus {
        match segments.last_mut() {
            Some(last) if random.below(20) == 0 => last.extend(fpdu),
            _ => segments.push(fpdu),
        }
    }
    segments
}

/// A segment in up to so many pieces, which are cut anywhere.
fn cut<'a>(random: &mut Random, segment: &'a [u8], most: u64) -> Vec<&'a [u8]> {
    let mut places: Vec<usize> = (0..random.below(most))
        .map(|_| random.below(segment.len() as u64 + 1) as usize)
        .collect();
    places.sort_unstable();
    let begins = std::iter::once(0).chain(places.iter().copied());
    let ends = places.iter().copied().chain([segment.len()]);
    begins
        .zip(ends)
        .map(|(from, to)| &segment[from..to])
        .collect()
}

/// The verified segments at the front, as the shard shows them that come in turn.
fn verified(segments: &[Vec<u8>]) -> impl Iterator<Item = Piece<'_>> {
    let verified = |bytes: &&[u8]| rnic_crc::check(0, bytes).crc == RESIDUE && is_write(bytes);
    let segments = segments.iter().map(Vec::as_slice);
    segments.take_while(verified).map(|bytes| Piece {
        bytes,
        crc_verified: true,
    })
}

/// The same stream as segments that were checked, each in up to so many pieces, and as bytes of which `alone` come at a
/// time. Says how many were Writes in turn.
fn give(
    random: &mut Random,
    (known, unknown): (&mut End, &mut End),
    segments: &[Vec<u8>],
    most: u64,
    alone: usize,
) -> usize {
    let left = std::mem::take(&mut known.stream);
    let left = Some(left.as_slice()).filter(|left| !left.is_empty());
    let run = match left {
        None if random.below(2) == 0 => {
            known.with_ctx(|qp, ctx| qp.receive_writes(ctx, verified(segments)))
        }
        _ => WriteProgress::default(),
    };
    let (mut pieces, mut verified) = (Vec::new(), CrcVerified::NONE);
    let rest = segments[run.pieces..].iter().map(Vec::as_slice);
    for segment in left.into_iter().chain(rest) {
        let whole = rnic_crc::check(0, segment).crc == RESIDUE;
        let parts = cut(random, segment, most);
        for number in 0..parts.len() {
            if whole {
                let goes_on = number + 1 < parts.len();
                verified.add(pieces.len() + number, number == 0, goes_on);
            }
        }
        pieces.extend(parts);
    }
    let used = known.with_ctx(|qp, ctx| qp.receive_checked(ctx, &pieces, &verified));
    known.stream = pieces.concat()[used..].to_vec();
    for bytes in segments.concat().chunks(alone) {
        unknown.receive(bytes);
    }
    run.pieces
}

fn assert_same(known: &mut End, unknown: &mut End) {
    assert_eq!(known.counters, unknown.counters);
    assert_eq!(known.read(BASE, LEN), unknown.read(BASE, LEN));
    for (one, other) in known.small.iter().zip(&unknown.small) {
        let (mut bytes, mut others) = (vec![0; SMALL_LEN], vec![0; SMALL_LEN]);
        one.read(0, &mut bytes).unwrap();
        other.read(0, &mut others).unwrap();
        assert_eq!(bytes, others);
    }
    assert_eq!(known.recvs(), unknown.recvs());
    assert_eq!(known.qp.state(), unknown.qp.state());
    if known.qp.is_receiving() {
        assert_eq!(known.qp.receive.at, unknown.qp.receive.at);
    }
}

#[test]
fn writes_in_a_row_end_as_each_alone() {
    end_as_each_alone(Markers::Off, 1);
}

#[test]
fn writes_with_markers_in_a_row_end_as_each_byte_alone() {
    end_as_each_alone(Markers::On, 1);
}

#[test]
fn segments_in_several_pieces_end_as_each_byte_alone() {
    end_as_each_alone(Markers::Off, 4);
}

#[test]
fn segments_in_several_pieces_with_markers_end_as_each_byte_alone() {
    end_as_each_alone(Markers::On, 4);
}

/// What ends with the CRC of what is before, and is another FPDU with more behind it, which is cut off.
#[test]
fn a_piece_is_not_believed_because_its_segment_is_verified() {
    let header = Tagged {
        last: true,
        version: 1,
        ulp: Opcode::Write.control_byte(),
        stag: STAG,
        to: TaggedOffset(BASE),
    };
    let mut segment = hostile::fpdu(&header.to_bytes(), &[7; 40]);
    let first = segment.len();
    segment[first - 1] ^= 1;
    segment.extend([0; 20]);
    let crc = crc_of([segment.as_slice()]).bytes();
    segment.extend(crc);
    for cut in [first - 4, first, first + 4] {
        let pieces = [&segment[..cut], &segment[cut..]];
        let mut verified = CrcVerified::NONE;
        verified.add(0, true, true);
        verified.add(1, false, false);
        let mut end = receiver(Markers::Off, 0);
        end.with_ctx(|qp, ctx| qp.receive_checked(ctx, &pieces, &verified));
        let counters = end.counters;
        assert_eq!((counters.crc_errors, counters.bytes_placed), (1, 0));
        assert_eq!(end.read(BASE, 40), [0; 40]);
    }
}

/// Random FPDUs in segments of up to so many pieces.
fn end_as_each_alone(markers: Markers, pieces: u64) {
    let (mut ended, mut verified, mut counted) = (0, 0, BTreeMap::new());
    for seed in seeds(1000) {
        let mut random = Random::new(seed);
        // Each byte alone takes long. A few at a time end anywhere, too.
        let alone = if seed.is_multiple_of(10) { 1 } else { 13 };
        let at = 4 * random.below(2 * MARKER_INTERVAL as u64 / 4);
        let (mut known, mut unknown) = (receiver(markers, at), receiver(markers, at));
        let mut sender = Sender::new(markers, at);
        for _ in 0..4 {
            let count = 1 + random.below(FPDUS_MAX);
            let fpdus: Vec<_> = (0..count)
                .map(|_| any_fpdu(&mut random, &mut sender))
                .collect();
            let segments = segments(&mut random, fpdus);
            let ends = (&mut known, &mut unknown);
            verified += give(&mut random, ends, &segments, pieces, alone);
            assert_same(&mut known, &mut unknown);
            // What comes between trains: a command, or what another queue pair does.
            let stag = [STAG, SECOND][random.below(2) as usize];
            match random.below(30) {
                0 => [&mut known, &mut unknown].map(|end| end.stags.remove(stag)),
                1 => [&mut known, &mut unknown]
                    .map(|end| end.stags.local_invalidate(stag, NEIGHBOUR).is_ok()),
                _ => [false; 2],
            };
        }
        assert_eq!(
            known.produce(MULPDU),
            unknown.produce(MULPDU),
            "seed {seed}"
        );
        assert_eq!(known.qp.wants_close(), unknown.qp.wants_close());
        ended += u32::from(known.qp.state() != QpState::Rts);
        for (name, count) in known.counters.named() {
            *counted.entry(name).or_insert(0) += count;
        }
    }
    assert!(ended > 50, "{ended}");
    assert!(verified > 1000, "{verified}");
    if markers.are_on() {
        assert!(counted["marker_errors"] > 0);
    }
    for name in [
        "crc_errors",
        "refused_invalid_stag",
        "refused_stag_not_associated",
        "refused_access_rights",
        "refused_base_or_bounds",
        "refused_protocol",
        "stags_invalidated",
    ] {
        assert!(counted[name] > 0, "{name}");
    }
}

/// A train of Writes by two STags, of which a Send in the middle invalidates the first.
#[test]
fn an_stag_that_is_invalidated_in_a_train_is_refused_behind_it() {
    for stag in [STAG, SECOND] {
        let write = |stag: Stag, to| {
            let header = Tagged {
                last: true,
                version: 1,
                ulp: Opcode::Write.control_byte(),
                stag,
                to: TaggedOffset(to),
            };
            hostile::fpdu(&header.to_bytes(), &[7; 16])
        };
        let opcode = Opcode::Send(SendKind {
            solicited: false,
            word: SendWord::Invalidate,
        });
        let send = Untagged {
            last: true,
            version: 1,
            ulp: opcode.control_byte(),
            ulp_word: STAG.0,
            qn: Qn::SEND,
            msn: Msn(1),
            mo: MessageOffset(0),
        };
        let send = hostile::fpdu(&send.to_bytes(), &[]);
        let (mut known, mut unknown) = (receiver(Markers::Off, 0), receiver(Markers::Off, 0));
        let train = [
            write(STAG, BASE),
            write(STAG, BASE + 100),
            send,
            write(stag, BASE + 200),
            write(stag, BASE + 300),
        ];
        let ends = (&mut known, &mut unknown);
        give(&mut Random::new(1), ends, &train, 1, 1);
        assert_same(&mut known, &mut unknown);
        let counters = known.counters;
        if stag == SECOND {
            assert_eq!((counters.fpdus_received, counters.bytes_placed), (5, 64));
        } else {
            assert_eq!((counters.fpdus_received, counters.bytes_placed), (4, 32));
            assert_eq!(known.read(BASE + 200, 200), [0; 200]);
            assert_eq!(known.qp.state(), QpState::Terminate);
        }
    }
}

/// Whatever a Marker stands in, and whichever points astray or has reserved bits.
#[test]
fn a_row_of_writes_goes_on_wherever_their_markers_are_and_ends_at_one_that_is_wrong() {
    let payload: Vec<u8> = (1..=1200).map(|at| at as u8 | 1).collect();
    for at in (0..MARKER_INTERVAL as u64).step_by(4) {
        let (mut place, mut row) = (at, Vec::new());
        for (number, len) in [1200, 9, 1200, 30].into_iter().enumerate() {
            let header = tagged(Opcode::Write, STAG, BASE + 1200 * number as u64);
            let fpdu = marked(&header.to_bytes(), &payload[..len], place);
            assert!(is_write(&fpdu), "{len} bytes at {place}");
            place += fpdu.len() as u64;
            row.push(fpdu);
        }
        let third = at + (row[0].len() + row[1].len()) as u64;
        let layout = Layout::new(Markers::On, third, 14 + 1200);
        let run_of = |row: &[Vec<u8>]| {
            let mut end = receiver(Markers::On, at);
            let run = end.with_ctx(|qp, ctx| qp.receive_writes(ctx, verified(row)));
            assert_eq!(end.qp.receive.at, at + run.bytes as u64);
            assert_eq!(end.counters.fpdus_received, run.pieces as u64);
            assert_eq!(end.counters.marker_errors, 0);
            (run.pieces, end.read(BASE, 4 * 1200))
        };
        let (pieces, placed) = run_of(&row);
        assert_eq!(pieces, 4, "from {at}");
        for (number, len) in [1200, 9, 1200, 30].into_iter().enumerate() {
            let there = &placed[1200 * number..];
            assert!(there.starts_with(&payload[..len]), "{number} from {at}");
            assert!(
                there[len..1200.min(there.len())]
                    .iter()
                    .all(|byte| *byte == 0)
            );
        }
        for (marker, back) in layout.markers() {
            let mut row = row.clone();
            let right: [u8; 4] = row[2][marker..marker + 4].try_into().unwrap();
            assert_eq!(fpdu_pointer(right), back);
            for (byte, bit, taken) in [(3, 4, 2), (2, 0x40, 2), (3, 3, 4), (0, 0xff, 4)] {
                row[2][marker..marker + 4].copy_from_slice(&right);
                row[2][marker + byte] ^= bit;
                with_right_crc(&mut row[2]);
                let (pieces, placed) = run_of(&row);
                assert_eq!(
                    pieces, taken,
                    "Marker at {marker} from {at}: {byte}, {bit:#x}"
                );
                let third = &placed[2 * 1200..3 * 1200];
                assert_eq!(third == payload, taken == 4);
                assert!(taken == 4 || third.iter().all(|byte| *byte == 0));
            }
        }
    }
}

#[test]
fn a_send_is_told_from_a_write_wherever_its_markers_are() {
    for at in (0..MARKER_INTERVAL as u64).step_by(4) {
        for last in [false, true] {
            let header = Untagged {
                last,
                ..hostile::untagged(hostile::SEND, Qn::SEND, 1, 0)
            };
            assert!(!is_write(&marked(&header.to_bytes(), &[0x80; 600], at)));
        }
    }
}
