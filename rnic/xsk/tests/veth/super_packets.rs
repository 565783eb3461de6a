//! Segments that leave as one packet, and packets that come in many chunks.

use rnic_xsk::{Port, PortStatistics};

use crate::common::{LEFT, LEFT_V4, RIGHT, RIGHT_V4, VethPair};
use crate::end::{End, segment};

/// In a frame of these tests.
const PAYLOAD: usize = 54;
const FLAGS: usize = 47;
const ACK: u8 = 0x10;
const PSH: u8 = 0x08;

/// Segments of one flow with these lengths, one after the other.
fn row(to_right: bool, seq: u32, lens: &[usize]) -> Vec<Vec<u8>> {
    let mut next = seq;
    let one = |len: &usize| {
        let mut frame = segment(to_right, next, *len);
        next += *len as u32;
        frame[FLAGS] |= ACK;
        frame
    };
    lens.iter().map(one).collect()
}

fn payload(frames: &[Vec<u8>]) -> Vec<u8> {
    frames
        .iter()
        .flat_map(|frame| &frame[PAYLOAD..])
        .copied()
        .collect()
}

fn ends(pair: &VethPair) -> (End, End) {
    pair.enter_left();
    let left = End::open_super(LEFT, LEFT_V4);
    pair.enter_right();
    (left, End::open_super(RIGHT, RIGHT_V4))
}

fn statistics(end: &End) -> PortStatistics {
    end.ports[0].statistics()
}

#[test]
fn segments_that_continue_each_other_arrive_as_one_packet_and_all_else_as_it_is_in_order() {
    let pair = VethPair::new(1, 1);
    let (mut left, mut right) = ends(&pair);
    let free = (left.pool.free_chunks(), right.pool.free_chunks());
    for round in 0..10 {
        let before = segment(true, 7, 64);
        let mut several = row(true, 1_000_000, &[1400; 44]);
        several.extend(row(true, 1_000_000 + 44 * 1400, &[300]));
        several[44][FLAGS] |= PSH;
        let behind = segment(true, 9, 1400);
        let [two, again] = [0, 1].map(|at| row(true, 5_000_000 + at * 900, &[800, 100]));
        let all = [
            std::slice::from_ref(&before),
            &several,
            std::slice::from_ref(&behind),
            &two,
            &again,
        ];
        all.concat().iter().for_each(|bytes| left.send(0, bytes));
        left.flush(0);
        left.reclaim();
        let found = right.receive(0, 5);
        assert_eq!((&found[0], &found[2]), (&before, &behind), "round {round}");
        assert_eq!(found[1].len(), PAYLOAD + 44 * 1400 + 300);
        assert_eq!(found[1][PAYLOAD..], payload(&several));
        assert_eq!(found[1][..16], several[0][..16]);
        assert_eq!(found[1][FLAGS], ACK | PSH);
        let total = u16::from_be_bytes([found[1][16], found[1][17]]);
        assert_eq!(usize::from(total), found[1].len() - 14);
        assert_eq!(found[3][PAYLOAD..], payload(&two));
        assert_eq!(found[4][PAYLOAD..], payload(&again));
    }
    let (sent, received) = (statistics(&left), statistics(&right));
    assert_eq!((sent.transmitted, sent.completed), (510, 510));
    assert_eq!(sent.super_packets_sent, 30);
    assert_eq!(sent.super_packet_segments_sent, 490);
    assert_eq!((sent.send_dropped, received.received), (0, 50));
    assert_eq!(received.chains_received, 10, "the others lie in one chunk");
    assert_eq!(received.bad_receive_chains, 0);
    assert_eq!(left.pool.free_chunks(), free.0);
    assert!(right.pool.free_chunks() <= free.1);
}

#[test]
fn what_a_port_has_not_sent_yet_can_be_copied_and_comes_back() {
    let pair = VethPair::new(1, 1);
    let (mut left, mut right) = ends(&pair);
    let frames = row(true, 1, &[1000, 1000]);
    for (at, bytes) in frames.iter().enumerate() {
        left.send(0, bytes);
        assert_eq!(left.ports[0].unsent(), at + 1);
    }
    let room = left.ports[0].transmit_room();
    assert_eq!(room, 510);
    left.flush(0);
    let found = right.receive(0, 1);
    assert_eq!(found[0][PAYLOAD..], payload(&frames));
    let mut done = Vec::new();
    while let Some((frame, _)) = left.ports[0].completed() {
        assert_eq!(left.umem.bytes(&frame), frames[done.len()], "as it was");
        done.push(frame);
    }
    assert_eq!(done.len(), 2);
    done.into_iter().for_each(|frame| left.pool.free(frame));
    assert_eq!(left.ports[0].transmit_room(), 512);
}
