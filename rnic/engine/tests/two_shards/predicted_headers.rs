//! Segments whose headers were predicted, with the CRC taken in the same pass as the checksum: an error
//! in one is found as in a segment that is parsed.

use std::time::Duration;

use rnic_engine::command::Command;
use rnic_ipc::control::DisconnectReason;
use rnic_ipc::id::QpNum;
use rnic_net::PathDefaults;
use rnic_proto::crc::crc_of;

use crate::hostile::in_rdma_mode;
use crate::raw::{Duel, write_fpdu};
use crate::side::{BASE, SideConfig, pattern};

/// Bytes of a payload, and of the FPDU and the segment around it.
const PAYLOAD: usize = 1000;
const SEGMENT: usize = 1020;
/// FPDUs ahead of those that a test is about: as many as make a flow known.
const AHEAD: usize = 12;
const FPDUS: usize = AHEAD + 8;

/// The stream of Writes, each one FPDU.
fn stream(stag: u32, payload: &[u8]) -> Vec<u8> {
    let parts = payload.chunks(PAYLOAD).enumerate();
    let fpdus = parts.map(|(index, part)| write_fpdu(stag, BASE + (PAYLOAD * index) as u64, part));
    fpdus.collect::<Vec<_>>().concat()
}

/// The result of Writes: what was placed, what the peer was told, what the client, and what was counted.
pub type Outcome = (Vec<u8>, Vec<u8>, Option<DisconnectReason>, [u64; 4]);

/// The result of the peer's Writes in a while, so many bytes in all.
pub fn outcome_of(mut duel: Duel, qp: QpNum, bytes: usize) -> Outcome {
    duel.run_for(Duration::from_secs(30));
    let counters = [
        "crc_errors",
        "fpdus_received",
        "bytes_placed",
        "writes_received",
    ];
    let counters = counters.map(|name| duel.side.counter(name));
    let told = duel.side.disconnected(qp);
    let levels = duel.side.shard.levels();
    assert_eq!(levels.frames_free, duel.side.frames, "{levels:?}");
    (duel.side.read(0, bytes), duel.peer.received, told, counters)
}

/// The result of a stream that `change` has changed, each segment an FPDU.
fn outcome(together: bool, change: impl Fn(&mut [u8])) -> Outcome {
    let (mut duel, qp) = in_rdma_mode(SideConfig::default(), SEGMENT);
    let mut bytes = stream(duel.side.stag.0, &pattern(FPDUS * PAYLOAD, 3));
    change(&mut bytes);
    if together {
        duel.send(&bytes, SEGMENT);
    } else {
        for fpdu in bytes.chunks(SEGMENT) {
            duel.send(fpdu, SEGMENT);
        }
    }
    outcome_of(duel, qp, FPDUS * PAYLOAD)
}

#[test]
fn a_wrong_crc_is_found_in_recognised_segments_as_in_parsed_ones() {
    let wrong = (AHEAD + 3) * SEGMENT;
    // Of its length one that makes it shorter, and one longer; STag, payload, CRC.
    for (at, bit) in [(1, 4), (1, 8), (3, 1), (500, 1), (SEGMENT - 1, 0x80)] {
        let change = |bytes: &mut [u8]| bytes[wrong + at] ^= bit;
        let (together, alone) = (outcome(true, change), outcome(false, change));
        assert_eq!(together, alone, "byte {at}");
        let (placed, _, told, counters) = together;
        let before = (AHEAD + 3) as u64;
        assert_eq!(counters, [1, before, before * PAYLOAD as u64, before]);
        // LLP (layer 2), MPA (type 0), CRC error (2): RFC 5044 section 8.2.
        let reason = DisconnectReason::TerminateSent { control: 0x2002 };
        assert_eq!(told, Some(reason), "byte {at}");
        assert!(
            placed[(AHEAD + 3) * PAYLOAD..]
                .iter()
                .all(|&byte| byte == 0)
        );
    }
    let sound = outcome(true, |_| ());
    assert_eq!(sound, outcome(false, |_| ()));
    assert_eq!(sound.3[1], FPDUS as u64);
}

#[test]
fn a_segment_that_ends_with_the_crc_of_all_of_it_is_not_believed_to_be_an_fpdu() {
    let begin = (AHEAD + 3) * SEGMENT;
    // Its FPDU is shorter, and what is behind that makes the segment's CRC right.
    let change = |bytes: &mut [u8]| {
        bytes[begin + 1] ^= 4;
        with_right_crc(bytes, begin);
    };
    let (together, alone) = (outcome(true, change), outcome(false, change));
    assert_eq!(together, alone);
    assert_eq!(together.3[0], 1);
}

/// The FPDU of a segment that begins there has its right CRC again.
fn with_right_crc(bytes: &mut [u8], begin: usize) {
    let segment = &mut bytes[begin..begin + SEGMENT];
    let crc = crc_of([&segment[..SEGMENT - 4]]).bytes();
    segment[SEGMENT - 4..].copy_from_slice(&crc);
}

#[test]
fn what_is_no_write_that_may_be_placed_ends_a_row_of_them_as_it_would_alone() {
    let number = AHEAD + 3;
    // Tagged flag, Last flag, DDP version; RDMAP version, opcode; STag; tagged offset, by 2^63 and by 1.
    let changes = [
        (2, 0x80),
        (2, 0x40),
        (2, 0x01),
        (3, 0x80),
        (3, 0x03),
        (7, 0x01),
        (8, 0x80),
        (15, 0x01),
    ];
    for (at, bit) in changes {
        let change = |bytes: &mut [u8]| {
            bytes[number * SEGMENT + at] ^= bit;
            with_right_crc(bytes, number * SEGMENT);
        };
        let (together, alone) = (outcome(true, change), outcome(false, change));
        assert_eq!(together, alone, "byte {at}, bits {bit:#x}");
        let [crc_errors, fpdus, ..] = together.3;
        let legal = matches!((at, bit), (2, 0x40) | (15, 0x01));
        let wanted = if legal { FPDUS } else { number + 1 };
        assert_eq!((crc_errors, fpdus), (0, wanted as u64), "byte {at}");
        assert_eq!(together.2.is_none(), legal, "byte {at}");
    }
}

#[test]
fn segments_that_are_lost_or_overtaken_end_a_row_and_come_to_their_places_all_the_same() {
    let payload = pattern(FPDUS * PAYLOAD, 3);
    let changes: [fn(&mut Vec<Vec<u8>>); 4] = [
        |frames| drop(frames.remove(3)),
        |frames| drop(frames.remove(0)),
        |frames| frames.swap(2, 3),
        |frames| frames.insert(3, frames[2].clone()),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let (mut duel, qp) = in_rdma_mode(SideConfig::default(), SEGMENT);
        let bytes = stream(duel.side.stag.0, &payload);
        let (ahead, behind) = bytes.split_at(AHEAD * SEGMENT);
        duel.send(ahead, SEGMENT);
        duel.send_changed(behind, SEGMENT, change);
        duel.run_for(Duration::from_secs(5));
        assert!(duel.side.read(0, payload.len()) == payload, "{number}");
        assert_eq!(
            duel.side.counter("fpdus_received"),
            FPDUS as u64,
            "{number}"
        );
        assert_eq!(duel.side.disconnected(qp), None, "{number}");
    }
}

#[test]
fn what_is_beyond_the_window_is_not_placed_whatever_comes_before_it_in_a_row() {
    const WINDOW: usize = 4;
    let mut config = SideConfig::default();
    // What is announced is rounded down.
    config.shard.tcp.receive_window = (WINDOW * SEGMENT + SEGMENT / 2) as u32;
    let (mut duel, qp) = in_rdma_mode(config, SEGMENT);
    let payload = pattern(FPDUS * PAYLOAD, 3);
    let bytes = stream(duel.side.stag.0, &payload);
    let (ahead, behind) = bytes.split_at(AHEAD * SEGMENT);
    duel.send(ahead, SEGMENT);
    assert_eq!(duel.side.counter("fpdus_received"), AHEAD as u64);
    duel.send_beyond_the_window(behind, SEGMENT);
    let taken = AHEAD + WINDOW;
    assert_eq!(duel.side.counter("fpdus_received"), taken as u64);
    let placed = duel.side.read(0, payload.len());
    assert!(placed[..taken * PAYLOAD] == payload[..taken * PAYLOAD]);
    assert!(placed[taken * PAYLOAD..].iter().all(|&byte| byte == 0));
    assert_eq!(duel.side.disconnected(qp), None);
}

#[test]
fn a_wrong_checksum_is_found_in_recognised_segments() {
    // Of the TCP header: the window, and the checksum itself, by which alone it is found; of the payload: an
    // byte that its CRC is for.
    for at in [48, 51, 500] {
        let (mut duel, _) = in_rdma_mode(SideConfig::default(), SEGMENT);
        let payload = pattern(FPDUS * PAYLOAD, 3);
        let bytes = stream(duel.side.stag.0, &payload);
        let (ahead, behind) = bytes.split_at(AHEAD * SEGMENT);
        duel.send(ahead, SEGMENT);
        duel.send_changed(behind, SEGMENT, |frames| frames[3][at] ^= 0x10);
        duel.run_for(Duration::from_secs(5));
        assert_eq!(duel.side.counter("rx_bad_tcp_checksum"), 1, "byte {at}");
        assert_eq!(duel.side.counter("crc_errors"), 0, "byte {at}");
        assert!(duel.side.read(0, FPDUS * PAYLOAD) == payload, "byte {at}");
    }
}

/// The Time to Live with which the side resets a segment whose connection is gone.
fn hop_limit_of_reset(duel: &mut Duel, segment: &[u8]) -> u8 {
    let wire = duel.side.wire.as_ref().unwrap();
    assert!(wire.push(segment));
    while duel.side.shard.poll(duel.now) {}
    let mut reset = Vec::new();
    assert!(wire.take(&mut reset), "an answer");
    assert_eq!(reset[47] & 4, 4, "RST");
    reset[22]
}

#[test]
fn what_is_known_of_a_flow_is_forgotten_when_paths_get_other_defaults() {
    let (mut duel, _) = in_rdma_mode(SideConfig::default(), SEGMENT);
    let bytes = stream(duel.side.stag.0, &pattern(FPDUS * PAYLOAD, 3));
    let mut late = Vec::new();
    duel.send_changed(&bytes, SEGMENT, |frames| late = frames[2].clone());
    duel.peer.stack.abort(duel.peer.conn.unwrap());
    duel.pump();
    assert_eq!(duel.side.shard.levels().connections, 0);
    assert_eq!(hop_limit_of_reset(&mut duel, &late), 64);
    let defaults = PathDefaults {
        hop_limit_v4: 9,
        ..PathDefaults::new(1500)
    };
    let command = Command::SetPathDefaults(defaults);
    duel.side.shard.execute(command, duel.now).unwrap();
    assert_eq!(hop_limit_of_reset(&mut duel, &late), 9);
}
