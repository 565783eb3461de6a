//! Bulk Writes, with Markers or without: a batch of segments has the same result as its segments one by
//! one, whatever is cut, damaged or lost in it.

use rnic_engine::command::Command;
use rnic_ipc::control::{DisconnectReason, MarkerUse};
use rnic_proto::Stag;
use rnic_proto::crc::crc_of;
use rnic_proto::mpa::fpdu::{CRC_LEN, Layout, mulpdu};
use rnic_proto::mpa::marker::Markers;

use crate::hostile::in_rdma_mode_by;
use crate::predicted_headers::{Outcome, outcome_of};
use crate::random::{Random, seeds};
use crate::raw::fpdu_at;
use crate::side::{BASE, MEMORY, SideConfig};

/// Bytes of the payload of a full segment.
const SEGMENT: usize = 1448;
/// Bytes of a tagged DDP header.
const HEADER: usize = 14;
/// FPDUs ahead of the first that may be wrong: more than make a flow known.
const AHEAD: usize = 12;
/// FPDUs of a script, at most.
const FPDUS_MAX: usize = AHEAD + 38;
/// Bytes of memory that Writes go to.
const PLACE: usize = FPDUS_MAX * SEGMENT;
/// The STag of a side's memory.
const STAG: Stag = Stag(0x0000_0207);

/// What is wrong with one FPDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    Nothing,
    /// Any bit: the CRC tells.
    Bit,
    /// A bit of one of its Markers, which the CRC covers; of some nobody minds.
    Marker,
    /// Its length, which the CRC covers.
    Length,
    Stag,
    /// Its tagged offset: no byte or not all of it is within the memory.
    Bounds,
    /// The version of DDP.
    Version,
    /// Nothing, but that it is no Write with payload.
    Empty,
    /// It is a Send, for which no receive is posted.
    Send,
}

const WRONGS: [Wrong; 9] = [
    Wrong::Nothing,
    Wrong::Bit,
    Wrong::Marker,
    Wrong::Length,
    Wrong::Stag,
    Wrong::Bounds,
    Wrong::Version,
    Wrong::Empty,
    Wrong::Send,
];

fn markers_of(markers: MarkerUse) -> Markers {
    Markers::when(markers == MarkerUse::Require)
}

/// Segments of a peer's, in groups that may come together, and what happens behind each group.
struct Script {
    groups: Vec<Vec<Vec<u8>>>,
    /// Behind the group of this number the memory is taken away.
    revoked: Option<usize>,
}

/// A ULPDU to this place in memory.
fn ulpdu(random: &mut Random, wrong: Wrong, to: u64, len: usize) -> Vec<u8> {
    let len = match wrong {
        Wrong::Empty => 0,
        // Its header is longer.
        Wrong::Send => len.min(100),
        _ => len,
    };
    let (control, opcode) = match wrong {
        Wrong::Send => (0x41, 0x43),
        Wrong::Version => (0xc2, 0x40),
        _ => (0x81 | (random.below(2) as u8) << 6, 0x40),
    };
    let stag = STAG.0 ^ u32::from(wrong == Wrong::Stag) << random.below(32);
    let to = match wrong {
        Wrong::Bounds => [
            BASE - 1 - random.below(len as u64),
            BASE + MEMORY as u64 - random.below(len as u64),
            u64::MAX - random.below(2000),
        ][random.below(3) as usize],
        _ => to,
    };
    let mut out = vec![control, opcode];
    if wrong == Wrong::Send {
        out.extend([0; 4]);
        out.extend([0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]);
    } else {
        out.extend(stag.to_be_bytes());
        out.extend(to.to_be_bytes());
    }
    out.extend((0..len).map(|_| random.next() as u8 | 1));
    out
}

/// An FPDU at this place of the stream.
fn fpdu(random: &mut Random, wrong: Wrong, ulpdu: &[u8], markers: Markers, at: u64) -> Vec<u8> {
    let mut out = fpdu_at(ulpdu, markers, at);
    let layout = Layout::new(markers, at, ulpdu.len());
    match wrong {
        Wrong::Bit => {
            // The length might say that there is more than ever comes.
            let behind = layout.header_at() + 2;
            let byte = behind + random.below((out.len() - behind) as u64) as usize;
            out[byte] ^= 1 << random.below(8);
            return out;
        }
        Wrong::Marker => {
            let count = layout.markers().count() as u64;
            let which = random.below(count) as usize;
            if let Some((marker, _)) = layout.markers().nth(which) {
                out[marker + random.below(4) as usize] ^= 1 << random.below(8);
            }
        }
        Wrong::Length => out[layout.header_at() + 1] ^= 4,
        _ => return out,
    }
    let (covered, crc) = out.split_at_mut(layout.len() - CRC_LEN);
    crc.copy_from_slice(&crc_of([&*covered]).bytes());
    out
}

/// FPDUs in segments: one each but for some, where two share one or one has two.
fn segments(random: &mut Random, fpdus: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let mut segments: Vec<Vec<u8>> = Vec::new();
    for (number, fpdu) in fpdus.into_iter().enumerate() {
        let room = segments.last().map_or(0, |last| SEGMENT - last.len());
        match segments.last_mut() {
            Some(last) if number > AHEAD && fpdu.len() <= room && random.below(4) == 0 => {
                last.extend(fpdu);
            }
            _ if number > AHEAD && random.below(30) == 0 => {
                let (first, rest) = fpdu.split_at(1 + random.below(fpdu.len() as u64 - 1) as usize);
                segments.extend([first.to_vec(), rest.to_vec()]);
            }
            _ => segments.push(fpdu),
        }
    }
    segments
}

fn script(random: &mut Random, wrong: Wrong, markers: Markers) -> Script {
    let count = FPDUS_MAX - random.below(30) as usize;
    // Behind a length that is too great there is more.
    let fault = AHEAD + random.below((count - AHEAD - 1) as u64) as usize;
    let (mut at, mut to) = (0, 0);
    let fpdus = (0..count).map(|number| {
        let wrong = if number == fault {
            wrong
        } else {
            Wrong::Nothing
        };
        let most = mulpdu(SEGMENT, markers) - HEADER;
        let len = match random.below(3) {
            0 => 1 + random.below(most as u64) as usize,
            _ => most,
        };
        let ulpdu = ulpdu(random, wrong, BASE + to, len);
        to += len as u64;
        let fpdu = fpdu(random, wrong, &ulpdu, markers, at);
        at += fpdu.len() as u64;
        fpdu
    });
    let fpdus: Vec<_> = fpdus.collect();
    let mut rest = segments(random, fpdus);
    let mut groups = Vec::new();
    while !rest.is_empty() {
        let size = (2 + random.below(12) as usize).min(rest.len());
        let behind = rest.split_off(size);
        groups.push(rest);
        rest = behind;
    }
    let last = groups.len() as u64;
    let revoked = (random.below(6) == 0).then(|| random.below(last) as usize);
    Script { groups, revoked }
}

/// The result, with each group as frames that come together, changed, or with each segment by itself.
fn outcome(
    script: &Script,
    markers: MarkerUse,
    mut together: Option<impl FnMut(&mut Vec<Vec<u8>>)>,
) -> Outcome {
    let config = SideConfig {
        frames: 600,
        ..SideConfig::default()
    };
    let (mut duel, qp) = in_rdma_mode_by(config, SEGMENT, markers);
    assert_eq!(duel.side.stag, STAG);
    for (number, group) in script.groups.iter().enumerate() {
        match &mut together {
            Some(change) => duel.send_segments(group, change),
            None => group.iter().for_each(|bytes| duel.send(bytes, SEGMENT)),
        }
        if script.revoked == Some(number) {
            let command = Command::RemoveRegion { stag: STAG };
            duel.side.shard.execute(command, duel.now).unwrap();
        }
    }
    outcome_of(duel, qp, PLACE)
}

/// Nobody changes a frame.
type Unchanged = fn(&mut Vec<Vec<u8>>);

#[test]
fn whatever_comes_together_ends_as_if_each_segment_came_alone() {
    for markers in [MarkerUse::Off, MarkerUse::Require] {
        let (mut ended, mut astray) = (0, 0);
        for seed in seeds(300) {
            let random = &mut Random::new(seed);
            let wrong = WRONGS[random.below(WRONGS.len() as u64) as usize];
            let script = script(random, wrong, markers_of(markers));
            let together = outcome(&script, markers, Some(|_: &mut Vec<Vec<u8>>| ()));
            let alone = outcome(&script, markers, None::<Unchanged>);
            assert!(together == alone, "seed {seed}, {markers:?}, {wrong:?}");
            let told = together.2;
            ended += u32::from(told.is_some());
            // RFC 5044 section 8, error 3.
            let control = 0x2003;
            astray += u32::from(told == Some(DisconnectReason::TerminateSent { control }));
        }
        assert!(ended > 100, "{ended}");
        let expected = markers == MarkerUse::Require;
        assert_eq!(astray > 5, expected, "{astray}");
    }
}

/// Frames that are lost, changed, doubled or overtaken.
#[test]
fn what_a_link_does_to_writes_that_come_together_is_made_good() {
    for markers in [MarkerUse::Off, MarkerUse::Require] {
        for seed in seeds(150) {
            let random = &mut Random::new(seed);
            let mut script = script(random, Wrong::Nothing, markers_of(markers));
            script.revoked = None;
            let (placed, _, told, counters) = outcome(
                &script,
                markers,
                Some(|frames: &mut Vec<Vec<u8>>| damage(random, frames)),
            );
            let (expected, .., sound) = outcome(&script, markers, None::<Unchanged>);
            assert_eq!((told, counters), (None, sound), "seed {seed}, {markers:?}");
            assert!(placed == expected, "seed {seed}, {markers:?}");
        }
    }
}

/// Something happens to one of the frames.
fn damage(random: &mut Random, frames: &mut Vec<Vec<u8>>) {
    if frames.is_empty() {
        return;
    }
    let which = random.below(frames.len() as u64) as usize;
    match random.below(4) {
        0 => drop(frames.remove(which)),
        1 => {
            let byte = random.below(frames[which].len() as u64) as usize;
            frames[which][byte] ^= 1 << random.below(8);
        }
        2 => frames.insert(which, frames[which].clone()),
        _ => frames[which..].rotate_left(1),
    }
}
