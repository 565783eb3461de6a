use super::*;
use crate::umem::{ChunkSize, Umem};

/// A shard's end, its share of the frames, and the UMEM of all.
pub(super) struct Shard {
    pub(super) end: Handover,
    pub(super) pool: FramePool,
    umem: Umem,
}

/// Shards with so many frames each; of those of several chunks half.
pub(super) fn shards(count: usize, frames: u32, chunk: ChunkSize, depth: usize) -> Vec<Shard> {
    let chunks = frames * count as u32 * chunk.chunks() as u32;
    let (umem, pool) = Umem::heap(chunks, chunk);
    let ends = Handover::among(count, depth).unwrap();
    let ends = ends.into_iter().zip(pool.shares(count));
    ends.map(|(end, pool)| Shard {
        end,
        pool,
        umem: umem.clone(),
    })
    .collect()
}

impl Shard {
    fn packet(&mut self, bytes: &[u8]) -> Packet {
        Packet::from_bytes(&self.umem, &mut self.pool, bytes).unwrap()
    }

    pub(super) fn give(&mut self, shard: usize, bytes: &[u8]) {
        let packet = self.packet(bytes);
        self.end.give(shard, packet, &mut self.pool);
        self.end.flush();
    }

    pub(super) fn take(&mut self) -> Vec<Vec<u8>> {
        let mut packets = Vec::new();
        while self.end.take(&mut self.pool, &mut packets, 3) > 0 {}
        let bytes = packets.into_iter().map(|packet| {
            let bytes = packet.slices(&self.umem).collect::<Vec<_>>().concat();
            self.pool.free_packet(packet);
            bytes
        });
        bytes.collect()
    }

    pub(super) fn free_chunks(&mut self) -> usize {
        self.end.take_back(&mut self.pool);
        self.pool.free_chunks()
    }

    /// Whether a sleep ends at once.
    #[cfg(not(loom))]
    fn is_woken(&mut self) -> bool {
        let fd = self.end.poll_fd().unwrap();
        let mut fds = [rustix::event::PollFd::from_borrowed_fd(
            fd,
            rustix::event::PollFlags::IN,
        )];
        rustix::event::poll(&mut fds, Some(&Default::default())).unwrap() > 0
    }
}

const SMALL: ChunkSize = ChunkSize::Bytes2048;

#[test]
fn packets_arrive_in_order_and_each_pool_keeps_its_size() {
    let mut all = shards(3, 8, SMALL, 4);
    for round in 0..50_u8 {
        for (from, to) in [(0, 1), (0, 2), (1, 2), (2, 0)] {
            all[from].give(to, &[round, from as u8]);
            all[from].give(to, &[round, from as u8, 2]);
        }
        assert_eq!(all[1].take(), [vec![round, 0], vec![round, 0, 2]]);
        assert_eq!(all[0].take(), [vec![round, 2], vec![round, 2, 2]]);
        let sent: Vec<_> = [0, 1]
            .map(|from| [vec![round, from], vec![round, from, 2]])
            .concat();
        let mut taken = all[2].take();
        // Those of one shard are in order.
        taken.sort_by_key(|bytes| bytes[1]);
        assert_eq!(taken, sent);
    }
    for shard in &mut all {
        assert_eq!(shard.free_chunks(), 8);
    }
    let counted: Vec<_> = all.iter().map(|shard| shard.end.statistics()).collect();
    assert_eq!([counted[0].given, counted[0].taken], [200, 100]);
    assert_eq!([counted[2].given, counted[2].taken], [100, 200]);
    assert!(counted.iter().all(|it| it.full + it.no_frame == 0));
}

#[test]
fn what_finds_the_way_full_is_lost_and_its_frames_are_its_givers() {
    let mut all = shards(2, 8, SMALL, 4);
    for number in 0..7 {
        all[0].give(1, &[number]);
    }
    assert_eq!(all[0].end.statistics().full, 3);
    assert_eq!(all[0].free_chunks(), 4);
    assert_eq!(all[1].take(), [[0], [1], [2], [3]]);
    assert_eq!([all[0].free_chunks(), all[1].free_chunks()], [8, 8]);
}

#[test]
fn a_shard_without_free_frames_loses_what_it_is_given() {
    let mut all = shards(2, 4, SMALL, 8);
    let kept: Vec<_> = std::iter::from_fn(|| all[1].pool.alloc()).collect();
    all[0].give(1, &[1]);
    assert_eq!(all[1].take(), [[0; 0]; 0]);
    assert_eq!(all[1].end.statistics().no_frame, 1);
    assert_eq!(all[0].free_chunks(), 4);
    kept.into_iter().for_each(|frame| all[1].pool.free(frame));
    all[0].give(1, &[2]);
    assert_eq!(all[1].take(), [[2]]);
}

#[test]
fn a_shard_that_gives_without_end_keeps_no_other_waiting() {
    let mut all = shards(3, 8, SMALL, 4);
    let mut taken = Vec::new();
    all[1].give(2, &[1]);
    for _ in 0..3 {
        for _ in 0..2 {
            all[0].give(2, &[0]);
        }
        let Shard { end, pool, umem } = &mut all[2];
        let mut packets = Vec::new();
        end.take(pool, &mut packets, 1);
        for packet in packets {
            taken.extend_from_slice(umem.bytes(packet.first()));
            pool.free_packet(packet);
        }
    }
    assert!(taken.contains(&1), "{taken:?}");
}

/// A large packet of several frames, and one that was put together in a wide frame.
#[test]
fn frames_are_exchanged_for_frames_of_their_kind() {
    let large = ChunkSize::Bytes16384;
    let mut all = shards(2, 8, large, 4);
    let before = [0, 1].map(|of: usize| all[of].pool.free_chunks());
    let bytes: Vec<u8> = (0..9000_u32).map(|at| at as u8).collect();
    for _ in 0..20 {
        all[0].give(1, &bytes);
        let packet = all[0].packet(&bytes);
        let Shard { end, pool, umem } = &mut all[0];
        let wide = packet.into_frame(umem, pool).unwrap();
        end.give(1, wide.into(), pool);
        assert_eq!(all[1].take(), [bytes.clone(), bytes.clone()]);
    }
    assert_eq!([0, 1].map(|of: usize| all[of].free_chunks()), before);
}

#[cfg(not(loom))]
#[test]
#[cfg_attr(miri, ignore)]
fn a_shard_that_sleeps_is_woken_once_by_whoever_gives() {
    let mut all = shards(3, 8, SMALL, 4);
    all[2].end.prepare_sleep();
    assert!(!all[2].is_woken());
    all[0].give(2, &[1]);
    assert!(all[2].is_woken());
    all[1].give(2, &[2]);
    assert_eq!(all[2].take().len(), 2);
    // Awake: nobody need wake it.
    all[1].give(2, &[3]);
    assert!(!all[2].is_woken());
    all[2].end.prepare_sleep();
    assert!(all[2].is_woken(), "one waits");
}

/// Both are faults of its caller.
#[test]
fn a_packet_for_no_shard_or_for_its_own_is_lost() {
    let mut all = shards(2, 8, SMALL, 4);
    all[0].give(0, &[1]);
    all[0].give(2, &[1]);
    assert_eq!(all[0].end.statistics().full, 2);
    assert_eq!(all[0].free_chunks(), 8);
}
