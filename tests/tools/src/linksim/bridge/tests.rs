use std::time::Duration;

use rnic_xsk::{ChunkSize, MemoryPort, MemoryWire, Umem};

use super::*;
use crate::linksim::testing::{number, numbered, segment};
use crate::linksim::{Impairments, Layer};

/// A bridge and the far ends of its two ports.
fn bridge(pairs: &[&str]) -> (Bridge<MemoryPort>, [MemoryWire; 2]) {
    let (umem, pool) = Umem::heap(256, ChunkSize::Bytes2048);
    let (left, left_wire) = MemoryPort::intercepted(&umem, 64);
    let (right, right_wire) = MemoryPort::intercepted(&umem, 64);
    let both = Impairments::from_pairs(pairs.iter().copied()).unwrap();
    let none = Impairments::default();
    let layer = Layer {
        both: &both,
        own: [&none, &none],
    };
    let config = Config::new(1, &[layer], &[]).unwrap();
    let side = |port| Side { ports: vec![port] };
    let buffers = Buffers {
        umem,
        pool,
        reserve: 64,
    };
    let bridge = Bridge::new(side(left), side(right), buffers, &config);
    (bridge, [left_wire, right_wire])
}

#[test]
fn frames_pass_both_ways_and_none_is_lost_for_good() {
    let (mut bridge, [left, right]) = bridge(&["delay=1ms"]);
    let free = bridge.free_frames();
    let mut now = Duration::ZERO;
    let mut bytes = Vec::new();
    for _ in 0..10 {
        for frame in numbered(40) {
            assert!(left.push(&frame) && right.push(&frame));
        }
        assert!(bridge.turn(now, &mut ()).unwrap());
        assert_eq!(bridge.deadline(), Some(now + Duration::from_millis(1)));
        assert!(!bridge.turn(now, &mut ()).unwrap());
        now += Duration::from_millis(1);
        assert!(bridge.turn(now, &mut ()).unwrap());
        for wire in [&left, &right] {
            for expected in 0..40 {
                assert!(wire.take(&mut bytes));
                assert_eq!(number(&bytes), expected);
            }
            assert!(!wire.take(&mut bytes));
        }
    }
    bridge.turn(now, &mut ()).unwrap();
    assert_eq!(bridge.free_frames(), free);
    assert_eq!(bridge.deadline(), None);
}

#[test]
fn an_answer_goes_back_to_where_the_packet_came_from() {
    let (mut bridge, wires) = bridge(&["mtu=600"]);
    for (from, to) in [(0, 1), (1, 0)] {
        assert!(wires[from].push(&segment(6, 1, &[7; 1000])));
        bridge.turn(Duration::ZERO, &mut ()).unwrap();
        let mut bytes = Vec::new();
        assert!(!wires[to].take(&mut bytes));
        assert!(wires[from].take(&mut bytes));
        assert_eq!(bytes[14 + 6], 58, "ICMPv6");
    }
}

#[test]
fn a_port_without_room_keeps_frames_in_the_link_and_in_order() {
    let (mut bridge, [left, right]) = bridge(&[]);
    let mut sent = 0;
    for frames in numbered(180).chunks(60) {
        for frame in frames {
            assert!(left.push(frame));
        }
        bridge.turn(Duration::ZERO, &mut ()).unwrap();
        sent += frames.len();
    }
    assert_eq!(sent, 180);
    let mut bytes = Vec::new();
    let mut expected = 0;
    while expected < 180 {
        while right.take(&mut bytes) {
            assert_eq!(number(&bytes), expected);
            expected += 1;
        }
        bridge.turn(Duration::ZERO, &mut ()).unwrap();
    }
}
