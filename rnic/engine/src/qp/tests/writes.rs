//! What comes in whole FPDUs that are known to be sound ends as what comes octet by octet, and nobody
//! knows anything of.

use std::collections::BTreeMap;

use rnic_proto::crc::{RESIDUE, crc_of};
use rnic_proto::ddp::header::{Tagged, Untagged};
use rnic_proto::rdmap::{Opcode, SendKind};
use rnic_proto::{MessageOffset, Msn, Qn};

use super::*;

/// Another region that peers may write.
const SECOND: Stag = Stag(0x0000_0e05);
const FPDUS_MAX: u64 = 16;

fn receiver() -> End {
    let (_, mut end) = joined();
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

/// An FPDU: a Write as a rule, to where it may be or not, and seldom anything else.
fn any_fpdu(random: &mut Random, next: &mut u64, sends: &mut u32) -> Vec<u8> {
    let kind = random.below(40);
    let stags = [STAG, STAG, STAG, SECOND];
    let stag = match kind {
        0 => [BARE_STAG, OTHER_STAG, Stag(0x7777), Stag(STAG.0 + 1)][random.below(4) as usize],
        _ => stags[random.below(4) as usize],
    };
    let to = match kind {
        1 => u64::MAX - random.below(100),
        2 => BASE + LEN as u64 - random.below(100),
        _ => BASE + *next % 3000,
    };
    let len = match kind {
        3..5 => 0,
        _ => 1 + random.below(300) as usize,
    };
    *next += len as u64;
    let payload = octets(random, if kind == 5 { len.min(64) } else { len });
    let header = if kind == 5 {
        let invalidate = random.below(2) == 0;
        let opcode = Opcode::Send(SendKind {
            solicited: false,
            invalidate,
        });
        *sends += 1;
        let header = Untagged {
            last: true,
            version: 1,
            ulp: opcode.control_octet(),
            ulp_word: if invalidate { stag.0 } else { 0 },
            qn: Qn::SEND,
            msn: Msn(*sends),
            mo: MessageOffset(0),
        };
        header.to_octets().to_vec()
    } else {
        let header = Tagged {
            last: random.below(4) == 0,
            version: 1,
            ulp: Opcode::Write.control_octet(),
            stag,
            to: TaggedOffset(to),
        };
        let mut octets = header.to_octets().to_vec();
        if kind == 6 {
            octets[random.below(2) as usize] ^= 1 << random.below(8);
        }
        octets
    };
    let mut out = hostile::fpdu(&header, &payload);
    if kind == 7 {
        let at = random.below(out.len() as u64) as usize;
        out[at] ^= 1 << random.below(8);
    }
    if kind == 8 {
        // What ends with the CRC of what is before, and is another FPDU, or none.
        out[1] ^= 4;
        let end = out.len() - 4;
        let crc = crc_of([&out[..end]]).octets();
        out[end..].copy_from_slice(&crc);
    }
    out
}

/// Octets as segments: one for each FPDU, but for some that have two.
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

/// The same stream as segments that were checked, each in up to so many pieces, and by itself.
fn give(random: &mut Random, known: &mut End, unknown: &mut End, segments: &[Vec<u8>], most: u64) {
    let left = std::mem::take(&mut known.stream);
    let left = Some(left.as_slice()).filter(|left| !left.is_empty());
    let (mut pieces, mut sound) = (Vec::new(), Sound::NONE);
    for segment in left.into_iter().chain(segments.iter().map(Vec::as_slice)) {
        let whole = rnic_crc::check(0, segment).crc == RESIDUE;
        let parts = cut(random, segment, most);
        for number in 0..parts.len() {
            if whole {
                let goes_on = number + 1 < parts.len();
                sound.add(pieces.len() + number, number == 0, goes_on);
            }
        }
        pieces.extend(parts);
    }
    let used = known.with_ctx(|qp, ctx| qp.receive_checked(ctx, &pieces, &sound));
    known.stream = pieces.concat()[used..].to_vec();
    for octet in segments.concat() {
        unknown.receive(&[octet]);
    }
}

fn assert_same(known: &mut End, unknown: &mut End) {
    assert_eq!(known.counters, unknown.counters);
    assert_eq!(known.read(BASE, LEN), unknown.read(BASE, LEN));
    for (one, other) in known.small.iter().zip(&unknown.small) {
        let (mut octets, mut others) = (vec![0; SMALL_LEN], vec![0; SMALL_LEN]);
        one.read(0, &mut octets).unwrap();
        other.read(0, &mut others).unwrap();
        assert_eq!(octets, others);
    }
    assert_eq!(known.recvs(), unknown.recvs());
    assert_eq!(known.qp.state(), unknown.qp.state());
}

#[test]
fn writes_in_a_row_end_as_each_alone() {
    end_as_each_alone(1);
}

#[test]
fn segments_in_several_pieces_end_as_each_octet_alone() {
    end_as_each_alone(4);
}

/// What ends with the CRC of what is before, and is another FPDU with more behind it, which is cut off.
#[test]
fn a_piece_is_not_believed_because_its_segment_is_sound() {
    let header = Tagged {
        last: true,
        version: 1,
        ulp: Opcode::Write.control_octet(),
        stag: STAG,
        to: TaggedOffset(BASE),
    };
    let mut segment = hostile::fpdu(&header.to_octets(), &[7; 40]);
    let first = segment.len();
    segment[first - 1] ^= 1;
    segment.extend([0; 20]);
    let crc = crc_of([segment.as_slice()]).octets();
    segment.extend(crc);
    for cut in [first - 4, first, first + 4] {
        let pieces = [&segment[..cut], &segment[cut..]];
        let mut sound = Sound::NONE;
        sound.add(0, true, true);
        sound.add(1, false, false);
        let mut end = receiver();
        end.with_ctx(|qp, ctx| qp.receive_checked(ctx, &pieces, &sound));
        let counters = end.counters;
        assert_eq!((counters.crc_errors, counters.octets_placed), (1, 0));
        assert_eq!(end.read(BASE, 40), [0; 40]);
    }
}

/// Random FPDUs in segments of up to so many pieces.
fn end_as_each_alone(pieces: u64) {
    let (mut ended, mut counted) = (0, BTreeMap::new());
    for seed in seeds(1000) {
        let mut random = Random::new(seed);
        let (mut known, mut unknown) = (receiver(), receiver());
        let (mut next, mut sends) = (0, 0);
        for _ in 0..4 {
            let count = 1 + random.below(FPDUS_MAX);
            let fpdus: Vec<_> = (0..count)
                .map(|_| any_fpdu(&mut random, &mut next, &mut sends))
                .collect();
            let segments = segments(&mut random, fpdus);
            give(&mut random, &mut known, &mut unknown, &segments, pieces);
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
                ulp: Opcode::Write.control_octet(),
                stag,
                to: TaggedOffset(to),
            };
            hostile::fpdu(&header.to_octets(), &[7; 16])
        };
        let opcode = Opcode::Send(SendKind {
            solicited: false,
            invalidate: true,
        });
        let send = Untagged {
            last: true,
            version: 1,
            ulp: opcode.control_octet(),
            ulp_word: STAG.0,
            qn: Qn::SEND,
            msn: Msn(1),
            mo: MessageOffset(0),
        };
        let send = hostile::fpdu(&send.to_octets(), &[]);
        let (mut known, mut unknown) = (receiver(), receiver());
        let train = [
            write(STAG, BASE),
            write(STAG, BASE + 100),
            send,
            write(stag, BASE + 200),
            write(stag, BASE + 300),
        ];
        give(&mut Random::new(1), &mut known, &mut unknown, &train, 1);
        assert_same(&mut known, &mut unknown);
        let counters = known.counters;
        if stag == SECOND {
            assert_eq!((counters.fpdus_received, counters.octets_placed), (5, 64));
        } else {
            assert_eq!((counters.fpdus_received, counters.octets_placed), (4, 32));
            assert_eq!(known.read(BASE + 200, 200), [0; 200]);
            assert_eq!(known.qp.state(), QpState::Terminate);
        }
    }
}
