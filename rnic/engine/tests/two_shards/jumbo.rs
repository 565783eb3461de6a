//! Segments in frames of several chunks: what is seen of them is what is seen of others.

use std::time::Duration;

use rnic_ipc::control::DisconnectReason;
use rnic_proto::crc::crc_of;
use rnic_xsk::Port;

use crate::hostile::in_rdma_mode;
use crate::predicted_headers::{Outcome, outcome_of};
use crate::raw::{Duel, write_fpdu};
use crate::side::{BASE, SideConfig, pattern};

/// A TCP segment of a packet that takes three chunks.
const SEGMENT: usize = 8948;

/// A peer may count on an acknowledgment for every second full segment (RFC 9293 section 3.8.6.3), and
/// each one more costs both hosts as much as a segment.
#[test]
fn every_second_full_segment_is_acknowledged_however_many_frames_it_takes() {
    const FPDUS: usize = 40;
    for (mtu, segment) in [(1500, 1448), (9000, SEGMENT)] {
        let (mut duel, _) = in_rdma_mode(SideConfig::of_mtu(mtu), segment);
        let (stag, payload) = (duel.side.stag.0, pattern(FPDUS * (segment - 20), 3));
        let sent = |duel: &Duel| duel.side.shard.ports()[0].statistics().transmitted;
        let before = sent(&duel);
        for (index, part) in payload.chunks(segment - 20).enumerate() {
            let at = BASE + ((segment - 20) * index) as u64;
            duel.send(&write_fpdu(stag, at, part), segment);
        }
        assert_eq!(sent(&duel) - before, FPDUS as u64 / 2, "MTU {mtu}");
        assert!(duel.side.read(0, payload.len()) == payload, "MTU {mtu}");
    }
}

/// Payload of a Write that fills a segment.
const PAYLOAD: usize = SEGMENT - 20;
/// FPDUs ahead of those that a test is about: as many as make a flow known.
const AHEAD: usize = 12;
const FPDUS: usize = AHEAD + 8;

/// A stream of Writes, each one FPDU of these lengths, in turn: in one frame, in two and in three.
fn stream(stag: u32, payload: &[u8]) -> Vec<Vec<u8>> {
    let mut fpdus = Vec::new();
    let mut at = 0;
    for len in LENS.into_iter().cycle().take(FPDUS) {
        let part = &payload[at..at + len];
        fpdus.push(write_fpdu(stag, BASE + at as u64, part));
        at += len;
    }
    fpdus
}

/// Bytes of their payloads: FPDUs that fill a segment, that end with a chunk nearly full, that have the
/// end of a chunk within their CRC, and shorter ones.
const LENS: [usize; 10] = [
    PAYLOAD, PAYLOAD, 7592, 3752, PAYLOAD, 3756, 7596, 5001, 60, PAYLOAD,
];

/// The result of Writes of which `change` has changed some.
fn outcome(together: bool, change: impl Fn(&mut [Vec<u8>])) -> Outcome {
    let (mut duel, qp) = in_rdma_mode(SideConfig::of_mtu(9000), SEGMENT);
    let total: usize = LENS.iter().cycle().take(FPDUS).sum();
    let mut fpdus = stream(duel.side.stag.0, &pattern(total, 3));
    change(&mut fpdus);
    if together {
        duel.send_segments(&fpdus, |_| ());
    } else {
        for fpdu in &fpdus {
            duel.send(fpdu, SEGMENT);
        }
    }
    outcome_of(duel, qp, total)
}

#[test]
fn writes_in_several_frames_end_together_as_each_alone() {
    let sound = outcome(true, |_| ());
    assert!(sound == outcome(false, |_| ()));
    let (placed, _, told, counters) = sound;
    let total = placed.len();
    assert!(placed == pattern(total, 3));
    assert_eq!(counters, [0, FPDUS as u64, total as u64, FPDUS as u64]);
    assert_eq!(told, None);
}

#[test]
fn a_wrong_crc_is_found_in_whichever_frame_it_is_wrong() {
    // One that fills its segment, and one with its CRC in two frames.
    for (number, places) in [
        (AHEAD + 2, [1, 3, 500, 3773, 3774, 7613, 7614, 8947]),
        (AHEAD + 3, [1, 3, 500, 3771, 3772, 3773, 3774, 3775]),
    ] {
        for at in places {
            let change = |fpdus: &mut [Vec<u8>]| {
                let fpdu = &mut fpdus[number + 1];
                let at = at.min(fpdu.len() - 1);
                fpdu[at] ^= 4;
            };
            let (together, alone) = (outcome(true, change), outcome(false, change));
            assert!(together == alone, "FPDU {number}, byte {at}");
            let (placed, _, told, counters) = together;
            let before: usize = LENS.iter().cycle().take(number + 1).sum();
            let fpdus = number as u64 + 1;
            assert_eq!(counters, [1, fpdus, before as u64, fpdus], "byte {at}");
            // LLP (layer 2), MPA (type 0), CRC error (2): RFC 5044 section 8.2.
            let reason = DisconnectReason::TerminateSent { control: 0x2002 };
            assert_eq!(told, Some(reason), "byte {at}");
            assert!(placed[..before] == pattern(placed.len(), 3)[..before]);
            assert!(placed[before..].iter().all(|&byte| byte == 0));
        }
    }
}

#[test]
fn a_wrong_checksum_is_found_in_whichever_frame_it_is_wrong() {
    // Of the TCP header: the window; of the payload: bytes in each chunk, that its CRC is for.
    for at in [48, 500, 3839, 3840, 7679, 7680, 9000] {
        let (mut duel, _) = in_rdma_mode(SideConfig::of_mtu(9000), SEGMENT);
        let total: usize = LENS.iter().cycle().take(FPDUS).sum();
        let payload = pattern(total, 3);
        let fpdus = stream(duel.side.stag.0, &payload);
        let (ahead, behind) = fpdus.split_at(AHEAD);
        duel.send_segments(ahead, |_| ());
        duel.send_segments(behind, |frames| frames[2][at] ^= 0x10);
        duel.run_for(Duration::from_secs(5));
        assert_eq!(duel.side.counter("rx_bad_tcp_checksum"), 1, "byte {at}");
        assert_eq!(duel.side.counter("crc_errors"), 0, "byte {at}");
        assert!(duel.side.read(0, total) == payload, "byte {at}");
    }
}

/// The CRC that a segment ends with is of all of it. Of one that begins with bytes which are known
/// already, that says nothing of what is new, where it goes on in another frame either.
#[test]
fn the_crc_of_a_segment_that_is_only_partly_new_is_no_fpdus() {
    /// What of a payload lies in the first chunk, and how much of that is not new.
    const FIRST: usize = 3774;
    const OLD: usize = 1022;
    for wrong in [false, true] {
        let (mut duel, qp) = in_rdma_mode(SideConfig::of_mtu(9000), SEGMENT);
        let payload = pattern((AHEAD + 1) * 1004 + 2732 + 4000, 3);
        let mut at = 0;
        let mut next = |len: usize| {
            let fpdu = write_fpdu(duel.side.stag.0, BASE + at as u64, &payload[at..at + len]);
            at += len;
            fpdu
        };
        let ahead: Vec<_> = (0..AHEAD).map(|_| next(1004)).collect();
        // The last one but two comes twice; one fills the first chunk behind it, and the last one is in
        // the others.
        let [old, fills, mut last] = [1004, 2732, 4000].map(&mut next);
        let but = old.len() - OLD;
        assert_eq!(OLD + fills.len(), FIRST);
        if wrong {
            let end = last.len() - 4;
            let crc = crc_of([&old[but..], &fills, &last[..end]]).bytes();
            last[end..].copy_from_slice(&crc);
        }
        duel.send_segments(&ahead, |_| ());
        duel.send_again_with(&old, but, &[fills, last].concat());
        let (placed, _, told, counters) = outcome_of(duel, qp, payload.len());
        let (whole, fpdus) = match wrong {
            true => (payload.len() - 4000, AHEAD as u64 + 2),
            false => (payload.len(), AHEAD as u64 + 3),
        };
        assert_eq!(counters, [u64::from(wrong), fpdus, whole as u64, fpdus]);
        assert!(placed[..whole] == payload[..whole]);
        assert!(placed[whole..].iter().all(|&byte| byte == 0));
        assert_eq!(told.is_some(), wrong);
    }
}
