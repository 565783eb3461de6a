use std::time::Duration;

use userspace_net::Instant;

use super::{Acks, Brought, DELAY};

const NOW: Instant = Instant::from_nanos(5_000_000_000);

/// After the first SACK.
fn acks() -> Acks {
    let mut acks = Acks::new();
    acks.sent();
    acks
}

#[test]
fn the_first_packet_of_data_is_acknowledged_at_once() {
    let mut acks = Acks::new();
    assert_eq!(acks.due(), None);
    acks.packet(NOW, Brought::default());
    assert_eq!(acks.due(), Some(NOW));
    acks.sent();
    assert_eq!(acks.due(), None);
}

#[test]
fn every_second_packet_is_acknowledged_and_none_waits_longer_than_the_delay() {
    let mut acks = acks();
    acks.packet(NOW, Brought::default());
    assert_eq!(acks.due(), Some(NOW + DELAY));
    let later = NOW + DELAY / 2;
    acks.packet(later, Brought::default());
    assert_eq!(acks.due(), Some(later));
    assert!(DELAY < Duration::from_millis(500));
}

#[test]
fn what_is_missing_or_came_again_or_asks_for_it_is_acknowledged_at_once() {
    for brought in [
        Brought {
            gap: true,
            ..Brought::default()
        },
        Brought {
            again: true,
            ..Brought::default()
        },
        Brought {
            immediate: true,
            ..Brought::default()
        },
    ] {
        let mut acks = acks();
        acks.packet(NOW, brought);
        assert_eq!(acks.due(), Some(NOW), "{brought:?}");
    }
}

#[test]
fn a_sack_in_a_fast_stream_waits_for_64_packets_or_30_microseconds() {
    let fast = Brought {
        may_wait: true,
        ..Brought::default()
    };
    let mut acks = acks();
    acks.packet(NOW, fast);
    assert_eq!(acks.due(), Some(NOW + DELAY), "as any first packet");
    let later = NOW + Duration::from_micros(3);
    for packet in 2..64 {
        acks.packet(later, fast);
        let due = later + Duration::from_micros(30);
        assert_eq!(acks.due(), Some(due), "after {packet} packets");
    }
    acks.packet(later, fast);
    assert_eq!(acks.due(), Some(later));
    acks.sent();
    acks.packet(later, fast);
    acks.packet(later, fast);
    let missing = Brought { gap: true, ..fast };
    acks.packet(later, missing);
    assert_eq!(acks.due(), Some(later), "what the peer is to hear at once");
}

#[test]
fn a_sack_can_be_asked_for_without_data() {
    let mut acks = acks();
    acks.at_once(NOW);
    assert_eq!(acks.due(), Some(NOW));
    acks.at_once(NOW + DELAY);
    assert_eq!(acks.due(), Some(NOW), "none goes later for it");
}
