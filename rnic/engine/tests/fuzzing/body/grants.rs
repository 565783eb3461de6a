//! What the peer may change of a node's memory at this moment, and that nothing else changes.

use std::ops::Range;

use rnic_ipc::control::Access;
use rnic_ipc::id::PdId;
use rnic_proto::Stag;

use super::node::{ARENA, Node};

pub const PD: PdId = PdId(1);
const OTHER_PD: PdId = PdId(2);

/// All rights; local work only; none; another domain's, with all rights; to be read only.
pub const STAGS: [u32; 5] = [0x0101, 0x0202, 0x0303, 0x0404, 0x0505];
/// Not valid: another key, and nothing that ever was.
pub const OTHER_STAGS: [u32; 3] = [0x0102, 0x0001, 0xffff_ffff];
/// Tagged offsets of the regions' first octets. The last region ends where offsets end.
pub const BASES: [u64; 5] = [
    0x1000,
    0x7000_0000_0000,
    0x2000,
    0x3000,
    u64::MAX - REGION as u64,
];
/// Octets of a region.
pub const REGION: usize = 4000;
/// Where the regions begin in the memory.
const PLACES: [usize; 5] = [1000, 8000, 16_000, 24_000, 32_000];

pub struct Grants {
    valid: [bool; 5],
    /// What must be there.
    settled: Vec<u8>,
    /// What may change, and for which work; 0 for an STag's own right.
    open: Vec<(u64, Range<usize>)>,
}

/// Where an octet of a region lies in the memory.
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
        ];
        let octets: Vec<u8> = (0..ARENA).map(|at| (at % 251) as u8).collect();
        node.arena.write(0, &octets).unwrap();
        for (region, (local_write, remote_read, remote_write)) in rights.into_iter().enumerate() {
            let access = Access {
                local_write,
                remote_read,
                remote_write,
                remote_atomic: remote_write,
            };
            let pd = if region == 3 { OTHER_PD } else { PD };
            let at = (PLACES[region], REGION);
            node.register(Stag(STAGS[region]), pd, access, BASES[region], at);
        }
        Self {
            valid: [true; 5],
            settled: octets,
            open: vec![(0, place(0, 0)..place(0, REGION))],
        }
    }

    pub fn is_valid(&self, region: usize) -> bool {
        self.valid[region]
    }

    /// Work may change octets from here on.
    pub fn open(&mut self, work: u64, range: Range<usize>) {
        self.open.push((work, range));
    }

    /// Work is done: what it placed stays.
    pub fn close(&mut self, node: &Node, work: u64) {
        let found = read(node);
        for (_, range) in self.open.iter().filter(|(of, _)| *of == work) {
            self.settled[range.clone()].copy_from_slice(&found[range.clone()]);
        }
        self.open.retain(|(of, _)| *of != work);
    }

    /// Nothing may change any more.
    pub fn close_all(&mut self, node: &Node) {
        self.check(node);
        self.settled = read(node);
        self.open.clear();
    }

    /// An STag is gone: nothing of its region may change any more.
    pub fn revoked(&mut self, node: &Node, region: usize) {
        self.check(node);
        self.valid[region] = false;
        let range = place(region, 0)..place(region, REGION);
        let found = read(node);
        self.settled[range.clone()].copy_from_slice(&found[range.clone()]);
        self.open.retain(|(_, open)| !range.contains(&open.start));
    }

    pub fn check(&self, node: &Node) {
        let mut expected = self.settled.clone();
        let found = read(node);
        for (_, range) in &self.open {
            expected[range.clone()].copy_from_slice(&found[range.clone()]);
        }
        if found != expected {
            let at = found.iter().zip(&expected).position(|(a, b)| a != b);
            panic!("octet {at:?} of the memory changed, and nobody may change it");
        }
    }
}

fn read(node: &Node) -> Vec<u8> {
    let mut out = vec![0; ARENA];
    node.arena.read(0, &mut out).unwrap();
    out
}
