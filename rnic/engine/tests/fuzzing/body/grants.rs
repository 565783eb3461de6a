//! What the peer may change of a node's memory at this moment, and that nothing else changes.

use std::ops::Range;

use rnic_engine::command::Command;
use rnic_ipc::control::{Access, StagKind};
use rnic_ipc::id::PdId;
use rnic_proto::Stag;
use userspace_net::Instant;

use super::node::{ARENA, Node};

pub const PD: PdId = PdId(1);
const OTHER_PD: PdId = PdId(2);

/// All rights; local work only; none; another domain's, with all rights; to be read only; for Atomic
/// Operations only.
pub const STAGS: [u32; REGIONS] = [0x0101, 0x0202, 0x0303, 0x0404, 0x0505, 0x0606];
const REGIONS: usize = 6;
/// A memory window, when it is bound; until then it has another key.
pub const WINDOW: u32 = 0x0707;
/// In place of work, of what may change through the window.
pub const THROUGH_WINDOW: u64 = u64::MAX;
/// Not valid: another key, and nothing that ever was.
pub const OTHER_STAGS: [u32; 3] = [0x0102, 0x0001, 0xffff_ffff];
/// Tagged offsets of the regions' first bytes. One region ends where offsets end.
pub const BASES: [u64; REGIONS] = [
    0x1000,
    0x7000_0000_0000,
    0x2000,
    0x3000,
    u64::MAX - REGION as u64,
    0x4000,
];
/// Bytes of a region.
pub const REGION: usize = 4000;
/// Where the regions begin in the memory: the last one between two words.
const PLACES: [usize; REGIONS] = [1000, 8000, 16_000, 24_000, 32_000, 40_003];
/// Bytes of a word.
const WORD: usize = 8;

pub struct Grants {
    valid: [bool; REGIONS],
    /// Still registered.
    there: [bool; REGIONS],
    settled: Vec<u8>,
    /// What may change, and for which work; 0 for an STag's own right.
    open: Vec<(u64, Range<usize>)>,
}

/// Where a byte of a region lies in the memory.
pub fn place(region: usize, skip: usize) -> usize {
    PLACES[region] + skip
}

impl Grants {
    pub fn new(node: &mut Node) -> Self {
        let rights = [
            (true, true, true),
            (true, false, false),
            (false, false, false),
        ];
        let rights = [
            rights[0],
            rights[1],
            rights[2],
            rights[0],
            (false, true, false),
            (true, false, false),
        ];
        let bytes: Vec<u8> = (0..ARENA).map(|at| (at % 251) as u8).collect();
        node.arena.write(0, &bytes).unwrap();
        for (region, (local_write, remote_read, remote_write)) in rights.into_iter().enumerate() {
            let access = Access::LOCAL_WRITE.when(local_write)
                | Access::REMOTE_READ.when(remote_read)
                | Access::REMOTE_WRITE.when(remote_write)
                | Access::REMOTE_ATOMIC.when(remote_write || region == 5);
            let pd = if region == 3 { OTHER_PD } else { PD };
            let at = (PLACES[region], REGION);
            node.register(Stag(STAGS[region]), pd, access, BASES[region], at);
        }
        let unbound = Stag(WINDOW ^ 1);
        let window = Command::AddStag {
            stag: unbound,
            pd: PD,
            kind: StagKind::WindowType2B,
            word: None,
        };
        node.execute(window, Instant::ZERO).unwrap();
        let words = place(5, 0).next_multiple_of(WORD)..place(5, REGION) / WORD * WORD;
        Self {
            valid: [true; REGIONS],
            there: [true; REGIONS],
            settled: bytes,
            open: vec![(0, place(0, 0)..place(0, REGION)), (0, words)],
        }
    }

    pub fn is_valid(&self, region: usize) -> bool {
        self.valid[region]
    }

    /// The regions that are still registered.
    pub fn stags(&self) -> impl Iterator<Item = Stag> {
        let there = STAGS.into_iter().zip(self.there);
        there
            .filter(|(_, there)| *there)
            .map(|(stag, _)| Stag(stag))
    }

    /// Work may change bytes from here on.
    pub fn open(&mut self, work: u64, range: Range<usize>) {
        self.open.push((work, range));
    }

    /// Work is done: what it placed stays.
    pub fn close(&mut self, node: &Node, work: u64) {
        let found = Self::read(node);
        for (_, range) in self.open.iter().filter(|(of, _)| *of == work) {
            self.settled[range.clone()].copy_from_slice(&found[range.clone()]);
        }
        self.open.retain(|(of, _)| *of != work);
    }

    /// Nothing may change any more.
    pub fn close_all(&mut self, node: &Node) {
        self.check(node);
        self.settled = Self::read(node);
        self.open.clear();
    }

    /// An STag is gone: nothing of its region may change any more.
    pub fn revoked(&mut self, node: &Node, region: usize) {
        self.there[region] = false;
        self.invalidated(node, region);
    }

    /// An STag gives no rights any more, a region's or the window's.
    pub fn stag_invalidated(&mut self, node: &Node, stag: u32) {
        if stag == WINDOW {
            self.check(node);
            self.close(node, THROUGH_WINDOW);
        }
        if let Some(region) = STAGS.into_iter().position(|known| known == stag) {
            self.invalidated(node, region);
        }
    }

    fn invalidated(&mut self, node: &Node, region: usize) {
        self.check(node);
        self.valid[region] = false;
        let range = place(region, 0)..place(region, REGION);
        let found = Self::read(node);
        self.settled[range.clone()].copy_from_slice(&found[range.clone()]);
        self.open.retain(|(_, open)| !range.contains(&open.start));
    }

    pub fn check(&self, node: &Node) {
        let mut expected = self.settled.clone();
        let found = Self::read(node);
        for (_, range) in &self.open {
            expected[range.clone()].copy_from_slice(&found[range.clone()]);
        }
        if found != expected {
            let at = found.iter().zip(&expected).position(|(a, b)| a != b);
            panic!("byte {at:?} of the memory changed, and nobody may change it");
        }
    }

    /// The whole memory.
    pub fn read(node: &Node) -> Vec<u8> {
        let mut out = vec![0; ARENA];
        node.arena.read(0, &mut out).unwrap();
        out
    }
}
