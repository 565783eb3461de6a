//! Where the shards of two hosts are: each host has one UMEM for all of its.

use rnic_engine::shard::Siblings;
use rnic_xsk::{ChunkSize, FramePool, Umem};

use crate::options::Options;

/// Frames of each shard.
const FRAMES: u32 = 2048;
/// Packets under way from a shard to another: none, because each has a link of its own.
const HANDED_OVER: usize = 64;
/// Connections of a shard beside those that are measured.
const SPARE: usize = 64;

/// The source port of a host's first connection; the others have those after it, shard by shard.
const FIRST_PORT: u16 = 20_000;

pub struct Place {
    /// The source port of its shard's first connection.
    pub first_port: u16,
    pub umem: Umem,
    pub pool: FramePool,
    /// None where a host has one shard.
    pub siblings: Option<Siblings>,
}

pub fn of_host(options: &Options) -> Vec<Place> {
    let shards = options.shards;
    let chunk = ChunkSize::for_mtu(options.mtu).unwrap();
    let (umem, pool) = Umem::heap(FRAMES * shards as u32, chunk);
    let connections = (options.queue_pairs + SPARE) * shards;
    let siblings: Vec<_> = match shards {
        1 => vec![None],
        _ => {
            let all = Siblings::among(shards, connections, HANDED_OVER, [1; 16]).unwrap();
            all.into_iter().map(Some).collect()
        }
    };
    let parts = pool.shares(shards).into_iter().zip(siblings);
    let first_ports = (FIRST_PORT..).step_by(options.queue_pairs);
    let place = |((pool, siblings), first_port)| Place {
        first_port,
        umem: umem.clone(),
        pool,
        siblings,
    };
    parts.zip(first_ports).map(place).collect()
}
