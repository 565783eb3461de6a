//! Two shards of one interface: all that comes to it comes to the one that has no connection.

use std::time::Duration;

use rnic_engine::command::Command;
use rnic_engine::shard::{Shard, Siblings};
use rnic_ipc::control::Transport;
use rnic_ipc::work::WrOpcode;
use rnic_xsk::{ChunkSize, MemoryPort, MemoryWire, Umem};
use userspace_net::Instant;

use crate::allocations::allocations_of;
use crate::impairment::Impairment;
use crate::sctp_peer::Heard;
use crate::sctp_raw::{HOSTILE, SctpDuel};
use crate::side::{Rings, Side, SideConfig};
use crate::world::World;

/// Frames of each shard.
const FRAMES: u32 = 1024;
const WIRE: usize = 512;
const DEPTH: usize = 64;
/// Bytes of a message.
pub const LEN: usize = 100_000;

/// Two hosts. The connections of one are in one shard, and what is sent to it comes to the other.
pub struct Astray {
    pub world: World,
    pub other: Shard<MemoryPort>,
    wire: MemoryWire,
    /// Frames of each of the shards.
    pub frames: [usize; 2],
}

impl Astray {
    pub fn new(transport: Transport, mtu: u32) -> Self {
        let mut world = World::of_mtu(1, Impairment::NONE, mtu);
        let (umem, pool) = Umem::heap(2 * FRAMES, ChunkSize::for_mtu(mtu).unwrap());
        let mut siblings = Siblings::among(2, 256, DEPTH, [7; 16]).unwrap().into_iter();
        let shares = pool.shares(2);
        let address = world.b.address;
        let frames = [0, 1].map(|of: usize| shares[of].free_chunks());
        let mut shards = shares.into_iter().map(|pool| {
            let (port, wire) = MemoryPort::intercepted(&umem, WIRE);
            let mut config = SideConfig::of_mtu(mtu).shard;
            // A test uses them up.
            config.limits.connections = config.limits.queue_pairs / 2;
            let mut shard = Shard::new(config, pool, vec![port], Instant::ZERO);
            shard.join(siblings.next().unwrap());
            (shard, wire)
        });
        let (shard, wire) = shards.next().unwrap();
        world.b = Side::over(2, address, shard, Some(wire), frames[0], Rings::default());
        world.b.mtu = mtu;
        for side in [&mut world.a, &mut world.b] {
            side.transport = transport;
        }
        let (other, wire) = shards.next().unwrap();
        Self {
            world,
            other,
            wire,
            frames,
        }
    }

    /// A moment further; how often the shards that hand over and take asked for memory.
    pub fn step(&mut self) -> u64 {
        let Self {
            world, other, wire, ..
        } = self;
        world.now += Duration::from_micros(10);
        let now = world.now;
        world.a_to_b.give(wire, now);
        let asked = allocations_of(|| {
            other.poll(now);
            world.b.shard.poll(now);
        });
        for sent in [wire, world.b.wire.as_ref().unwrap()] {
            world.b_to_a.take(sent, now);
        }
        let at_a = world.a.wire.as_ref().unwrap();
        world.b_to_a.give(at_a, now);
        world.a.shard.poll(now);
        world.a_to_b.take(at_a, now);
        world.a.collect();
        world.b.collect();
        asked
    }

    pub fn steps(&mut self, mut done: impl FnMut(&Self) -> bool) {
        for _ in 0..1_000_000 {
            self.step();
            if done(self) {
                return;
            }
        }
        panic!("it is never done");
    }

    pub fn of_other(&mut self, name: &str) -> u64 {
        let Ok(rnic_engine::command::Answer::Counters(all)) =
            self.other.execute(Command::QueryCounters, self.world.now)
        else {
            panic!("no counters");
        };
        all.iter().find(|(known, _)| known == name).unwrap().1
    }
}

fn writes(mut it: Astray) -> Astray {
    let (qp_a, qp_b) = it.world.connect();
    it.world.a.fill(0, LEN, 3);
    it.world.b.fill(LEN, LEN, 4);
    let (at_a, at_b) = (it.world.a.stag, it.world.b.stag);
    it.world
        .a
        .post_work(qp_a, WrOpcode::Write, 1, 0, (at_b, 0), LEN);
    it.world
        .b
        .post_work(qp_b, WrOpcode::Write, 2, LEN, (at_a, LEN), LEN);
    it.steps(|it| it.world.a.completion(1).is_some() && it.world.b.completion(2).is_some());
    // A Write completes when it is sent.
    it.steps(|it| {
        let is_there = |at| it.world.b.read(at, LEN) == it.world.a.read(at, LEN);
        is_there(0) && is_there(LEN)
    });
    it
}

#[test]
fn what_comes_to_the_wrong_shard_is_handed_over_and_answered_by_the_right_one() {
    let cases = [1500, 9000].map(|mtu| [Transport::Tcp, Transport::Sctp].map(|it| (it, mtu)));
    for (transport, mtu) in cases.concat() {
        let mut it = writes(Astray::new(transport, mtu));
        let (given, taken) = (it.other.handover(), it.world.b.shard.handover());
        assert!(given.given > LEN as u64 / u64::from(mtu), "{given:?}");
        assert_eq!((given.given, given.full), (taken.taken, 0));
        for unknown in ["tcp_unknown_flow", "sctp_unknown_flow", "tcp_segments_in"] {
            assert_eq!(it.of_other(unknown), 0, "{unknown}");
        }
        it.steps(|it| it.world.b.shard.levels().frames_free == it.frames[0]);
        it.other.poll(it.world.now);
        assert_eq!(it.other.levels().frames_free, it.frames[1]);
    }
}

/// Fragments behind the first have no ports.
#[test]
fn fragments_are_put_together_where_they_come_and_handed_over_as_one_packet() {
    let mut it = Astray::new(Transport::Tcp, 1500);
    it.world.a_to_b.fragment_to = Some(900);
    let mut it = writes(it);
    assert!(it.other.handover().given > LEN as u64 / 1500);
    assert_eq!(it.of_other("tcp_unknown_flow"), 0);
    assert!(it.of_other("rx_reassembled") > 0);
}

#[test]
fn handing_over_asks_for_no_memory() {
    let mut it = writes(Astray::new(Transport::Tcp, 1500));
    let (qp, _) = it.world.connect();
    let stag = it.world.b.stag;
    let mut asked = 0;
    for round in 0..20 {
        it.world
            .a
            .post_work(qp, WrOpcode::Write, round, 0, (stag, 0), LEN);
        while it.world.a.completion(round).is_none() {
            let now = it.step();
            // The first rounds may find tables that grow once.
            asked += if round < 4 { 0 } else { now };
        }
        it.world.a.completions.clear();
    }
    assert_eq!(asked, 0);
}

#[test]
fn when_a_connection_is_over_its_flow_is_no_shards() {
    let mut it = Astray::new(Transport::Tcp, 1500);
    let (_, qp) = it.world.connect();
    let abort = true;
    let command = Command::Disconnect { qp, abort };
    it.world.b.shard.execute(command, it.world.now).unwrap();
    // Its reset is lost: the peer goes on.
    it.world.b_to_a.cut = true;
    it.step();
    it.world.b_to_a.cut = false;
    let (given, stag) = (it.other.handover().given, it.world.b.stag);
    let theirs = *it.world.a.queues.keys().next().unwrap();
    let theirs = rnic_ipc::id::QpNum(theirs);
    it.world
        .a
        .post_work(theirs, WrOpcode::Write, 1, 0, (stag, 0), 10);
    it.steps(|it| it.world.a.disconnected(theirs).is_some());
    assert_eq!(it.other.handover().given, given);
    assert!(it.of_other("tcp_resets_sent") > 0);
}

/// RFC 9260 section 5.1.3. The tags of one shard tell nothing of the other's.
#[test]
fn a_state_cookie_of_one_shard_is_good_at_the_other() {
    let [mut first, mut second] = [1, 2].map(|number| {
        let mut config = SideConfig::default();
        config.shard.secret = [number; 16];
        config.shard.common_secret = [9; 16];
        SctpDuel::new(config)
    });
    let mut tags = Vec::new();
    for port in 5000..5020 {
        let peer = &mut first.peers[HOSTILE];
        peer.move_to(port);
        peer.heard.clear();
        let init = peer.init();
        first.give(&[init]);
        std::mem::swap(&mut first.peers, &mut second.peers);
        let peer = &second.peers[HOSTILE];
        tags.push(peer.nodes_tag);
        let echo = peer.cookie_echo(&[]);
        second.give(&[echo]);
        std::mem::swap(&mut first.peers, &mut second.peers);
        let heard = &first.peers[HOSTILE].heard;
        assert_eq!(heard[..], [Heard::InitAck, Heard::CookieAck], "port {port}");
    }
    let peer = &mut second.peers[HOSTILE];
    peer.move_to(6000);
    let init = peer.init();
    second.give(&[init]);
    assert!(!tags.contains(&second.peers[HOSTILE].nodes_tag));
}
