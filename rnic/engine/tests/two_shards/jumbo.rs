//! Segments in frames of several chunks: what is seen of them is what is seen of others.

use rnic_xsk::Port;

use crate::hostile::in_rdma_mode;
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
