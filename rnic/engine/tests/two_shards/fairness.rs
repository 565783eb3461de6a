//! Clients share a link that can't take what they all want, in virtual time: what each gets does not
//! depend on how many queue pairs it has, nor on how long its messages are.

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rnic_engine::command::Command;
use rnic_ipc::control::{MpaOptions, QpAttributes};
use rnic_ipc::id::{ClientId, CqId, QpNum};
use rnic_ipc::ring::{
    CqConsumer, CqMemory, DoorbellConsumer, DoorbellProducer, QpMemory, WorkQueueProducer,
    WorkRequest,
};
use rnic_ipc::shm::SharedMemory;
use rnic_ipc::work::{Completion, WR_SIGNALED, WrOpcode};
use userspace_net::Instant;

use crate::impairment::Impairment;
use crate::side::{PD, Side, SideConfig};
use crate::world::World;

const DEPTH: u32 = 64;
const CQ_DEPTH: u32 = 4096;
const FIRST_PORT: u16 = 41_000;
/// Between two looks of both hosts at their link.
const TICK: Duration = Duration::from_micros(10);
/// Frames that the link takes in a tick: about 10 Gbit/s.
const FRAMES_PER_TICK: usize = 8;

/// A client of one side, beside the one that every side has.
pub struct Tenant {
    client: ClientId,
    cq_id: CqId,
    doorbells: DoorbellProducer,
    cq: CqConsumer,
    _notify: OwnedFd,
    /// By number, with the number of work requests under way.
    queues: Vec<(QpNum, WorkQueueProducer, u32)>,
    /// Bytes of each message, and how many of them are always under way on each queue pair.
    message: usize,
    depth: u32,
    /// Messages that were completed.
    pub done: u64,
}

impl Tenant {
    pub fn new(side: &mut Side, number: u32, message: usize, depth: u32) -> Self {
        let (client, cq_id) = (ClientId(number), CqId(number));
        let size = DoorbellConsumer::memory_size(64, 1).unwrap();
        let memory = Arc::new(SharedMemory::private(size).unwrap());
        let doorbells = DoorbellConsumer::create_in(&memory, 64, 1)
            .unwrap()
            .remove(0);
        let (mut rings, fd) = CqMemory::create(CQ_DEPTH, 1).unwrap();
        let (ours, notify) = rustix::net::socketpair(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::DGRAM,
            rustix::net::SocketFlags::empty(),
            None,
        )
        .unwrap();
        for command in [
            Command::AddClient { client, doorbells },
            Command::AddCq {
                client,
                cq: cq_id,
                ring: rings.remove(0),
                notify: notify.into(),
            },
        ] {
            side.shard.execute(command, Instant::ZERO).unwrap();
        }
        Self {
            client,
            cq_id,
            doorbells: DoorbellProducer::attach(&memory, 64, 1).unwrap().remove(0),
            cq: CqMemory::attach_fd(fd, CQ_DEPTH, 1).unwrap().remove(0),
            _notify: ours,
            queues: Vec::new(),
            message,
            depth,
            done: 0,
        }
    }

    /// A connected queue pair, from the next port.
    pub fn connect(&mut self, world: &mut World, port: u16) {
        let qp = QpNum(u32::from(port));
        let slots = QpMemory::slots(DEPTH, 1).unwrap();
        let layout = QpMemory::layout(slots, slots).unwrap();
        let (sq, rq, _, fd) = QpMemory::create(&layout, 0).unwrap();
        let attributes = QpAttributes {
            pd: PD,
            send_cq: self.cq_id,
            recv_cq: self.cq_id,
            sq_depth: DEPTH,
            rq_depth: DEPTH,
            srq: None,
            max_sge: 1,
            max_inline: 0,
            signal_all: false,
            receive_wait: None,
        };
        let client = self.client;
        let command = Command::AddQp {
            client,
            qp,
            attributes,
            sq,
            rq,
        };
        world.a.shard.execute(command, world.now).unwrap();
        let (producer, _) = QpMemory::attach_fd(fd, &layout).unwrap();
        self.queues.push((qp, producer, 0));

        let path = world.a.path_to(&world.b);
        let (remote, mpa) = (world.b.address, MpaOptions::default());
        let connect = world.a.connect(qp, port, remote, path, mpa, b"", world.now);
        connect.unwrap();
        let theirs = world.b.create_qp();
        let connected = world.run_until(Duration::from_secs(30), |world| {
            if let Some((request, ..)) = world.b.take_request() {
                let command = Command::Accept {
                    request,
                    qp: theirs,
                    mpa,
                    private_data: Vec::new(),
                };
                world.b.shard.execute(command, world.now).unwrap();
            }
            world.a.is_established(qp)
        });
        assert!(connected, "no connection from port {port}");
    }

    /// Takes completions, and posts as much as is to be under way.
    pub fn work(&mut self, side: &Side, remote: u32) {
        let mut out = [Completion::default(); 64];
        loop {
            let count = self.cq.poll(&mut out).unwrap();
            for completion in &out[..count] {
                let queue = self.queues.get_mut(completion.wr_id as usize).unwrap();
                queue.2 -= 1;
                self.done += 1;
            }
            if count == 0 {
                break;
            }
        }
        for (index, (qp, queue, under_way)) in self.queues.iter_mut().enumerate() {
            while *under_way < self.depth {
                let mut request = WorkRequest::new(WrOpcode::Write, index as u64);
                request.slot.flags = WR_SIGNALED;
                request.slot.rkey = remote;
                request.slot.remote_addr = crate::side::BASE;
                assert!(request.set_sges(&[side.sge(0, self.message)]));
                queue.push(&request).unwrap();
                *under_way += 1;
            }
            if queue.set_pending().is_some() {
                self.doorbells.ring(*qp).unwrap();
            }
        }
    }

    fn ports(&self) -> impl Iterator<Item = u16> {
        self.queues.iter().map(|(qp, ..)| qp.0 as u16)
    }
}

/// Lets the tenants of `a` send to `b` for so long; gives the bytes that the link took for each, and
/// panics unless it was busy.
fn contend(world: &mut World, tenants: &mut [Tenant], ticks: usize) -> Vec<u64> {
    let mut bytes: HashMap<u16, u64> = HashMap::new();
    let mut back: VecDeque<(Instant, Vec<u8>)> = VecDeque::new();
    let mut frame = Vec::new();
    let (mut busy, mut measured) = (0, 0);
    let remote = world.b.stag.0;
    for tick in 0..ticks {
        let now = world.now;
        for tenant in &mut *tenants {
            tenant.work(&world.a, remote);
        }
        while back.front().is_some_and(|(at, _)| *at <= now) {
            let Some((_, frame)) = back.pop_front() else {
                break;
            };
            world.a.wire.as_ref().unwrap().push(&frame);
        }
        world.a.shard.poll(now);
        let mut taken = 0;
        while taken < FRAMES_PER_TICK && world.a.wire.as_ref().unwrap().take(&mut frame) {
            taken += 1;
            let port = u16::from_be_bytes([frame[34], frame[35]]);
            // The beginning is slow start.
            if tick >= ticks / 4 {
                *bytes.entry(port).or_default() += frame.len() as u64;
            }
            world.b.wire.as_ref().unwrap().push(&frame);
        }
        measured += usize::from(tick >= ticks / 4);
        busy += usize::from(tick >= ticks / 4 && taken == FRAMES_PER_TICK);
        world.b.shard.poll(now);
        while world.b.wire.as_ref().unwrap().take(&mut frame) {
            back.push_back((now + 2 * TICK, frame.clone()));
        }
        world.a.collect();
        world.b.collect();
        world.now = now + TICK;
    }
    assert!(
        busy * 10 > measured * 9,
        "the link is idle: {busy} of {measured} ticks"
    );
    tenants
        .iter()
        .map(|tenant| {
            tenant
                .ports()
                .map(|port| bytes.get(&port).copied().unwrap_or(0))
                .sum()
        })
        .collect()
}

fn world(queue_pairs: usize, clients: usize) -> World {
    let config = || {
        let mut side = SideConfig {
            // Shallow: what one connection may have under way is enough for its share.
            wire_depth: 32,
            ..SideConfig::default()
        };
        let limits = &mut side.shard.limits;
        limits.connections = 2 * queue_pairs + 16;
        limits.queue_pairs = queue_pairs + 16;
        limits.clients = clients + 1;
        side
    };
    let mut world = World::with(7, Impairment::NONE, config(), config(), false);
    world.b.listen(16, world.now);
    world
}

fn shares(bytes: &[u64]) -> Vec<f64> {
    let sum: u64 = bytes.iter().sum();
    bytes.iter().map(|own| *own as f64 / sum as f64).collect()
}

#[test]
fn one_queue_pair_with_small_messages_has_its_share_beside_32_with_large_ones() {
    let mut world = world(33, 2);
    let mut bulk = Tenant::new(&mut world.a, 101, 1 << 20, 4);
    for number in 0..32 {
        bulk.connect(&mut world, FIRST_PORT + number);
    }
    let mut small = Tenant::new(&mut world.a, 102, 4096, DEPTH);
    small.connect(&mut world, FIRST_PORT + 100);
    let mut tenants = [bulk, small];
    let bytes = contend(&mut world, &mut tenants, 4000);
    let shares = shares(&bytes);
    println!(
        "32 queue pairs: {:.3}, 1 queue pair: {:.3}",
        shares[0], shares[1]
    );
    assert!(shares[1] > 0.4, "{shares:?}");
    assert!(shares[0] > 0.4, "{shares:?}");
}

#[test]
fn eight_clients_with_one_to_eight_queue_pairs_share_evenly() {
    let mut world = world(36, 8);
    let mut tenants = Vec::new();
    for number in 1..=8_u16 {
        let mut tenant = Tenant::new(&mut world.a, 100 + u32::from(number), 1000 << number, 16);
        for each in 0..number {
            tenant.connect(&mut world, FIRST_PORT + 100 * number + each);
        }
        tenants.push(tenant);
    }
    let bytes = contend(&mut world, &mut tenants, 6000);
    let shares = shares(&bytes);
    println!("1 to 8 queue pairs: {shares:.3?}");
    let fair = 1.0 / shares.len() as f64;
    for share in &shares {
        assert!(*share > 0.7 * fair && *share < 1.5 * fair, "{shares:?}");
    }
}

#[test]
fn a_message_that_its_clients_share_has_cut_goes_on_before_the_next() {
    let mut world = World::new(7, Impairment::NONE);
    let qps = [(); 4].map(|()| world.connect().0);
    // The share ends within the third.
    for (number, qp) in qps.into_iter().enumerate() {
        let remote = (world.b.stag, 0);
        let (opcode, wr_id) = (WrOpcode::Write, number as u64);
        world.a.post_work(qp, opcode, wr_id, 0, remote, 12_000);
    }
    let limit = Duration::from_secs(10);
    assert!(world.run_until(limit, |world| world.a.completions.len() == 4));
    let order = world.a.completions.iter();
    let order: Vec<u64> = order.map(|completion| completion.wr_id).collect();
    assert_eq!(order, [0, 1, 2, 3]);
}

/// FPDUs that a client sends in the poll that finds that it has half a MiB to send; alone, or beside
/// another, of which a message may come at any time.
fn sent_in_a_poll(mtu: u32, alone: bool) -> u64 {
    let mut world = World::of_mtu(7, Impairment::NONE, mtu);
    let (qp, _) = world.connect();
    let remote = (world.b.stag, 0);
    // The congestion window opens.
    for wr_id in 0..8 {
        let (a, bytes) = (&mut world.a, 1 << 19);
        a.post_work(qp, WrOpcode::Write, wr_id, 0, remote, bytes);
    }
    let limit = Duration::from_secs(10);
    assert!(world.run_until(limit, |world| world.a.completions.len() == 8));
    world.run_for(Duration::from_millis(10));
    let mut other = Tenant::new(&mut world.a, 101, 64, 1);
    if !alone {
        other.connect(&mut world, FIRST_PORT);
    }
    let before = world.a.counter("fpdus_sent");
    let a = &mut world.a;
    a.post_work(qp, WrOpcode::Write, 0, 0, remote, 1 << 19);
    a.shard.poll(world.now);
    a.counter("fpdus_sent") - before
}

#[test]
fn a_poll_goes_on_with_turns_until_it_has_sent_32_fpdus() {
    for mtu in [1500, 3506] {
        let sent = sent_in_a_poll(mtu, true);
        // A turn is 32 KiB; and 16 FPDUs go at once when the doorbell rings.
        let turn = (32_u64 << 10).div_ceil(u64::from(mtu) - 100);
        let least = 16 + 32;
        assert!((least..least + turn).contains(&sent), "MTU {mtu}: {sent}");
    }
}

#[test]
fn a_poll_gives_each_client_one_turn_when_there_are_several() {
    // Of 32 KiB; and the doorbell's own.
    let turn = (32_u64 << 10).div_ceil(3400);
    let sent = sent_in_a_poll(3506, false);
    assert!((1..=2 * turn + 1).contains(&sent), "{sent}");
}

/// Its one doorbell in each poll could give it a turn before the one that waits, each time.
#[test]
fn a_client_whose_messages_fill_the_link_leaves_its_share_to_one_that_waits() {
    let mut world = world(2, 2);
    let mut bulk = Tenant::new(&mut world.a, 101, 1 << 20, 4);
    bulk.connect(&mut world, FIRST_PORT);
    // As many segments as the link takes in a tick.
    let mut fitting = Tenant::new(&mut world.a, 102, FRAMES_PER_TICK * 1400, 1);
    fitting.connect(&mut world, FIRST_PORT + 100);
    let bytes = contend(&mut world, &mut [bulk, fitting], 4000);
    let shares = shares(&bytes);
    println!("waiting: {:.3}, fitting: {:.3}", shares[0], shares[1]);
    // A turn of the one is 32 KiB, 23 segments; the other has no more than a message of 8 for its own.
    assert!(shares[0] > 0.65 && shares[1] > 0.2, "{shares:?}");
}

/// Frames of a side that has few, and those of them that sending may not use.
const FEW: u32 = 64;
const RESERVE: usize = 16;

/// Connections of a side with few frames, whose windows are open for more. Their peer acknowledges nothing from now on.
fn unacknowledged<const N: usize>(clients: usize) -> (World, [QpNum; N]) {
    let mut config = SideConfig {
        frames: FEW,
        ..SideConfig::default()
    };
    config.shard.receive_reserve = RESERVE;
    config.shard.limits.clients = clients;
    let mut world = World::with(7, Impairment::NONE, config, SideConfig::default(), false);
    let qps = [(); N].map(|()| world.connect().0);
    for qp in qps {
        write(&mut world, qp, 1 << 20);
        let limit = Duration::from_secs(10);
        assert!(world.run_until(limit, |world| !world.a.completions.is_empty()));
        world.a.completions.clear();
    }
    world.run_for(Duration::from_millis(10));
    (world, qps)
}

fn write(world: &mut World, qp: QpNum, bytes: usize) {
    let remote = (world.b.stag, 0);
    world.a.post_work(qp, WrOpcode::Write, 0, 0, remote, bytes);
}

/// No timer goes off meanwhile.
fn send_unacknowledged(world: &mut World) -> usize {
    world.b_to_a.cut = true;
    world.run_for(Duration::from_millis(1));
    world.a.shard.levels().frames_free
}

#[test]
fn a_connection_whose_peer_acknowledges_nothing_holds_as_many_frames_as_it_leaves() {
    let (mut world, [qp]) = unacknowledged(1);
    let free = world.a.shard.levels().frames_free;
    write(&mut world, qp, 1 << 20);
    let left = send_unacknowledged(&mut world) - RESERVE;
    let held = free - RESERVE - left;
    assert!(held.abs_diff(left) <= 1, "{held} held, {left} left");
}

#[test]
fn a_client_whose_peers_acknowledge_nothing_holds_as_many_frames_as_it_leaves_to_others() {
    let (mut world, [first, second]) = unacknowledged(2);
    let mut other = Tenant::new(&mut world.a, 101, 64, 1);
    other.connect(&mut world, FIRST_PORT);
    other.work(&world.a, world.b.stag.0);
    let free = send_unacknowledged(&mut world);
    write(&mut world, first, 10_000);
    let some = free - send_unacknowledged(&mut world);
    assert!((7..10).contains(&some), "{some}");
    write(&mut world, second, 1 << 20);
    let left = send_unacknowledged(&mut world) - RESERVE;
    let held = free - RESERVE - left;
    assert!(held.abs_diff(left) <= 1, "{held} held, {left} left");
}
