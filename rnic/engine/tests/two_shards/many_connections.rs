//! Hundreds of connections to one host in virtual time. Its receive ring is short, and it does not poll for a while again
//! and again. Little is lost, each client has its share, and together they get as much through as one connection does.

use std::time::Duration;

use rnic_ipc::control::Access;
use rnic_ipc::ring::WorkRequest;
use rnic_ipc::work::{WR_SIGNALED, WrOpcode};
use rnic_proto::Stag;

use crate::fairness::Tenant;
use crate::impairment::Impairment;
use crate::side::{PD, Side, SideConfig};
use crate::world::World;

const FIRST_PORT: u16 = 20_000;
const FIRST_CLIENT: u32 = 101;
/// Frames that a host's receive ring holds; what comes then is lost.
const RING: usize = 512;
/// Both hosts are on one core: for so many ticks it is one's, then the other's.
const SLICE: u32 = 20;
const TICK: Duration = Duration::from_micros(50);
const TICKS: u32 = 6000;

struct Outcome {
    /// Frames that the first host sent, and those that the other's ring had no place for.
    sent: u64,
    dropped: u64,
    /// Bytes of TCP that came to the other.
    bytes: u64,
    /// Messages of each client.
    messages: Vec<u64>,
}

/// Clients with as many queue pairs each, and on each two messages of so many bytes under way.
fn work(clients: u32, queue_pairs: u16, message: usize) -> Outcome {
    let config = || {
        let mut side = SideConfig {
            frames: 8192,
            wire_depth: RING,
            ..SideConfig::default()
        };
        let limits = &mut side.shard.limits;
        limits.queue_pairs = clients as usize * usize::from(queue_pairs) + 16;
        limits.connections = 2 * limits.queue_pairs;
        limits.clients = clients as usize + 1;
        side
    };
    let mut world = World::with(11, Impairment::NONE, config(), config(), false);
    world.b.listen(16, world.now);
    let mut port = FIRST_PORT;
    let mut tenants = Vec::new();
    for number in 0..clients {
        let mut tenant = Tenant::new(&mut world.a, FIRST_CLIENT + number, message, 2);
        for _ in 0..queue_pairs {
            tenant.connect(&mut world, port);
            port += 1;
        }
        tenants.push(tenant);
    }
    let before = world.b.counter("tcp_bytes_in");
    let (mut sent, mut dropped) = (0, 0);
    for tick in 0..TICKS {
        if (tick / SLICE).is_multiple_of(2) {
            for tenant in &mut tenants {
                tenant.work(&world.a, world.b.stag.0);
            }
            world.a.shard.poll(world.now);
            let (frames, lost) = carry(&world.a, &world.b);
            sent += frames;
            dropped += lost;
        } else {
            world.b.shard.poll(world.now);
            carry(&world.b, &world.a);
        }
        world.a.collect();
        world.b.collect();
        world.now += TICK;
    }
    Outcome {
        sent,
        dropped,
        bytes: world.b.counter("tcp_bytes_in") - before,
        messages: tenants.iter().map(|tenant| tenant.done).collect(),
    }
}

/// All that one has sent, to the other's ring; how much that was, and how much was lost.
fn carry(from: &Side, to: &Side) -> (u64, u64) {
    let (mut sent, mut lost) = (0, 0);
    let mut frame = Vec::new();
    while from.wire.as_ref().unwrap().take(&mut frame) {
        sent += 1;
        lost += u64::from(!to.wire.as_ref().unwrap().push(&frame));
    }
    (sent, lost)
}

#[test]
fn hundreds_of_connections_to_one_host_lose_little_and_share_evenly() {
    let one = work(1, 1, 64 << 10);
    let many = work(32, 16, 4096);
    let sum: u64 = many.messages.iter().sum();
    let mean = sum as f64 / many.messages.len() as f64;
    let squares: f64 = many.messages.iter().map(|own| (*own as f64).powi(2)).sum();
    let jain = (sum as f64).powi(2) / (many.messages.len() as f64 * squares);
    let least = many.messages.iter().copied().min().unwrap_or(0) as f64;
    println!(
        "{} bytes, one connection {}; {} of {} frames lost; least {:.2} of the mean, Jain {jain:.3}",
        many.bytes,
        one.bytes,
        many.dropped,
        many.sent,
        least / mean,
    );
    assert!(
        many.dropped * 100 < many.sent,
        "of {}, {}",
        many.sent,
        many.dropped
    );
    assert!(jain > 0.95 && least > 0.7 * mean, "{:?}", many.messages);
    assert!(
        many.bytes * 10 > one.bytes * 9,
        "{} of {}",
        many.bytes,
        one.bytes
    );
}

/// Hosts that may have as many connections as a crowd.
fn of_a_crowd() -> World {
    let config = || {
        let mut side = SideConfig::default();
        side.shard.limits.queue_pairs = 128;
        side.shard.limits.connections = 256;
        side
    };
    World::with(12, Impairment::NONE, config(), config(), false)
}

/// So many connections, each with a message that takes more segments than its window has at the
/// beginning: what they may have under way together is under way.
fn crowd(world: &mut World, connections: usize) {
    let crowd: Vec<_> = (0..connections).map(|_| world.connect().0).collect();
    for qp in &crowd {
        let remote = (world.b.stag, 0);
        world
            .a
            .post_work(*qp, WrOpcode::Write, 0, 0, remote, 32 << 10);
        world.a.shard.poll(world.now);
    }
    while world.a.shard.poll(world.now) {}
    assert!(world.a.counter("macroflow_waits") > 0);
}

#[test]
fn what_is_acknowledged_at_once_is_not_all_produced_again_in_one_poll() {
    let mut world = of_a_crowd();
    crowd(&mut world, 100);
    let (under_way, _) = carry(&world.a, &world.b);
    assert!(under_way > 400, "{under_way}");
    while world.b.shard.poll(world.now) {}
    carry(&world.b, &world.a);
    world.a.shard.poll(world.now);
    carry(&world.a, &world.b);
    world.a.shard.poll(world.now);
    let (sent, _) = carry(&world.a, &world.b);
    assert!((50..96).contains(&sent), "{sent} of {under_way}");
    world.run_for(Duration::from_secs(10));
    world.a.collect();
    assert_eq!(world.a.completions.len(), 100);
}

#[test]
fn local_work_does_not_wait_for_the_window_of_a_crowd() {
    let mut world = of_a_crowd();
    // A doorbell alone has its turn at once: two don't.
    let both = [8, 9].map(|number| (number, world.connect().0));
    // The other host acknowledges nothing.
    crowd(&mut world, 80);
    for (number, qp) in both {
        let region = Stag::from_parts(number, 1);
        let access = Access::default();
        world.a.register(region, PD, access, 0, 4096);
        let mut work = WorkRequest::new(WrOpcode::LocalInvalidate, u64::from(number));
        work.slot.flags = WR_SIGNALED;
        work.slot.rkey = region.0;
        world.a.post(qp, &work);
        let (write, remote) = (u64::from(10 * number), (world.b.stag, 0));
        world
            .a
            .post_work(qp, WrOpcode::Write, write, 0, remote, 4096);
    }
    while world.a.shard.poll(world.now) {}
    world.a.collect();
    for (number, _) in both {
        let done = |number: u32| world.a.completion(u64::from(number));
        assert!(done(number).is_some(), "it waits");
        assert!(done(10 * number).is_none(), "the window has room");
    }
}
