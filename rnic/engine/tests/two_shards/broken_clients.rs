//! Clients that break rules, and those whose memory or completion queue fails: each loses what is its own, and nothing
//! else suffers.

use std::sync::Arc;
use std::time::Duration;

use rnic_engine::command::{Command, ShardEvent};
use rnic_engine::region::{RegionMemory, RemoteMemory};
use rnic_ipc::control::{Access, DisconnectReason, Event, QpState, RegionSpec};
use rnic_ipc::work::WrOpcode;
use rnic_proto::Stag;

use crate::impairment::Impairment;
use crate::side::{BASE, CLIENT, CQ, PD, pattern};
use crate::world::World;

#[test]
fn a_client_that_breaks_its_doorbell_ring_is_reported_once_and_read_no_more() {
    let mut world = World::new(1, Impairment::NONE);
    let (qp_a, qp_b) = world.connect();
    // The producer's index lies on the second cache line; no ring holds that many entries.
    world
        .a
        .doorbell_memory
        .write(64, &0x8000_0000_u32.to_ne_bytes())
        .unwrap();
    world.run_for(Duration::from_millis(10));
    let faults = |e: &&ShardEvent| matches!(e, ShardEvent::ClientFault { client: CLIENT, .. });
    assert_eq!(
        world.a.events.iter().filter(faults).count(),
        1,
        "{:?}",
        world.a.events
    );
    // Its connections still hear the peer until it is taken away.
    let stag = world.a.stag;
    world
        .b
        .post_work(qp_b, WrOpcode::Write, 1, 0, (stag, 0), 100);
    assert!(world.run_until(Duration::from_secs(1), |w| w.b.completion(1).is_some()));
    for command in [
        Command::RemoveQp { qp: qp_a },
        Command::RemoveClient { client: CLIENT },
    ] {
        world.a.shard.execute(command, world.now).unwrap();
    }
    assert!(world.run_until(Duration::from_secs(1), |w| w.b.disconnected(qp_b).is_some()));
}

/// Memory of no memfd, which its owner can unmap at any moment.
#[test]
fn memory_that_is_unmapped_ends_its_region_and_the_stream_and_no_other() {
    /// Larger than what malloc keeps: it is unmapped when it is freed.
    const LARGE: usize = 64 << 20;
    let mut world = World::new(1, Impairment::NONE);
    let (qp_a, qp_b) = world.connect();
    let (other_a, other_b) = world.connect();
    let bytes = vec![0_u8; LARGE];
    let mut both_ways = std::fs::File::options();
    both_ways.read(true).write(true);
    let own = both_ways.open("/proc/self/mem").unwrap();
    let own = Arc::new(own.into());
    let address = bytes.as_ptr().expose_provenance() as u64;
    let memory = RemoteMemory::new(own, address, LARGE as u64);
    let stag = Stag(0x7700);
    let command = Command::AddRegion {
        stag,
        spec: RegionSpec::new(PD, Access::ALL, BASE, LARGE as u64),
        memory: RegionMemory::Remote(memory),
        word: None,
    };
    world.b.shard.execute(command, world.now).unwrap();
    let write = |world: &mut World, qp, wr_id| {
        let (at, len) = (LARGE / 2, 100_000);
        world
            .a
            .post_work(qp, WrOpcode::Write, wr_id, 0, (stag, at), len);
    };
    world.a.fill(0, 100_000, 7);
    write(&mut world, qp_a, 1);
    world.run_for(Duration::from_millis(100));
    assert!(bytes[LARGE / 2..][..100_000] == pattern(100_000, 7));
    drop(bytes);
    write(&mut world, qp_a, 2);
    assert!(world.run_until(Duration::from_secs(1), |w| w.a.disconnected(qp_a).is_some()));
    assert!(world.b.disconnected(qp_b).is_some());
    let told = |world: &World| -> Vec<_> {
        let events = world.b.events.iter();
        let told = events.filter_map(|event| match event {
            ShardEvent::RegionFault { client, stag } => Some((*client, *stag)),
            ShardEvent::ClientFault { .. } => panic!("{event:?}"),
            _ => None,
        });
        told.collect()
    };
    assert_eq!(told(&world), [(CLIENT, stag)]);
    assert_eq!(world.b.shard.counters().memory_faults, 1);

    // Another connection of the client's goes on, until it names the region.
    let whole = world.b.stag;
    world
        .a
        .post_work(other_a, WrOpcode::Write, 3, 0, (whole, 0), 100_000);
    assert!(world.run_until(Duration::from_secs(1), |w| w.a.completion(3).is_some()));
    assert_eq!(world.a.completion(3).unwrap().status, 0);
    world.run_for(Duration::from_millis(100));
    assert!(world.b.read(0, 100_000) == pattern(100_000, 7));
    write(&mut world, other_a, 4);
    assert!(world.run_until(Duration::from_secs(1), |w| {
        w.a.disconnected(other_a).is_some()
    }));
    assert!(world.b.disconnected(other_b).is_some());
    assert_eq!(told(&world).len(), 1);

    let command = Command::RemoveRegion { stag };
    world.b.shard.execute(command, world.now).unwrap();
}

#[test]
fn a_cq_that_overflows_takes_its_queue_pairs_with_it() {
    let mut world = World::new(1, Impairment::NONE);
    let (qp_a, qp_b) = world.connect();
    let stag = world.b.stag;
    world.a.collecting = false;
    for round in 0..20 {
        for id in 0..100 {
            world
                .a
                .post_work(qp_a, WrOpcode::Write, round * 100 + id, 0, (stag, 0), 8);
        }
        world.run_for(Duration::from_millis(50));
        if world
            .a
            .client_events()
            .any(|e| matches!(e, Event::CqError { .. }))
        {
            break;
        }
    }
    assert!(
        world
            .a
            .client_events()
            .any(|e| *e == Event::CqError { cq: CQ })
    );
    assert_eq!(
        world.a.disconnected(qp_a),
        Some(DisconnectReason::LocalError)
    );
    assert!(world.run_until(Duration::from_secs(1), |w| w.b.disconnected(qp_b).is_some()));
    assert_eq!(world.a.state(qp_a), QpState::Error);
}
