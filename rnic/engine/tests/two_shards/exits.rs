//! An interface of several devices, the members of a bond, of which some carry no frames.

use std::time::Duration;

use rnic_engine::command::{Command, CommandError};
use rnic_engine::shard::Shard;
use rnic_ipc::work::WrOpcode;
use rnic_xsk::{ChunkSize, MemoryPort, MemoryWire, Umem};
use userspace_net::Instant;

use crate::impairment::Impairment;
use crate::side::{Rings, Side, SideConfig, pattern};
use crate::world::World;

const PATIENCE: Duration = Duration::from_secs(60);
const LEN: usize = 1 << 20;
/// Frames that a member's wire takes while nobody takes them from it.
const DEPTH: usize = 16;

/// A world whose first host has two ports. What is sent by the first goes nowhere, until [`Bond::swap`].
struct Bond {
    world: World,
    idle: MemoryWire,
}

impl Bond {
    fn new(mtu: u32) -> Self {
        let mut world = World::of_mtu(21, Impairment::NONE, mtu);
        let config = SideConfig::of_mtu(mtu);
        let (umem, pool) = Umem::heap(config.frames, ChunkSize::for_mtu(mtu).unwrap());
        let (first, idle) = MemoryPort::intercepted(&umem, DEPTH);
        let (second, wire) = MemoryPort::intercepted(&umem, DEPTH);
        let shard = Shard::new(config.shard, pool, vec![first, second], Instant::ZERO);
        let address = world.a.address;
        let rings = Rings::default();
        world.a = Side::over(1, address, shard, Some(wire), umem.frames(), rings);
        world.a.mtu = mtu;
        Self { world, idle }
    }

    fn carry(&mut self, carry: [bool; 2]) {
        let command = Command::SetExits {
            carry: carry.to_vec(),
        };
        self.world.a.shard.execute(command, self.world.now).unwrap();
    }

    /// The peer is behind the other port from now on, and nothing behind the one where it was.
    fn swap(&mut self) {
        let wire = self.world.a.wire.as_mut().unwrap();
        std::mem::swap(wire, &mut self.idle);
    }
}

#[test]
fn frames_leave_by_the_ports_that_carry_them_and_what_was_on_its_way_is_sent_again() {
    for mtu in [1500, 9000] {
        let mut bond = Bond::new(mtu);
        bond.carry([false, true]);
        let (qp, _) = bond.world.connect();
        assert_eq!(bond.idle.waiting(), 0);
        for (round, carry) in [[true, false], [false, true]].into_iter().enumerate() {
            let world = &mut bond.world;
            let (seed, id) = (round as u64 + 3, round as u64 + 1);
            let stag = world.b.stag;
            world.a.fill(0, LEN, seed);
            world
                .a
                .post_work(qp, WrOpcode::Write, id, 0, (stag, 0), LEN);
            let placed = pattern(LEN, seed)[LEN / 4..][..64].to_vec();
            assert!(world.run_until(PATIENCE, |w| w.b.read(LEN / 4, 64) == placed));
            // The member in use loses its peer and takes no more, as one that is down.
            bond.swap();
            bond.world.run_for(Duration::from_millis(50));
            assert!(bond.world.a.completion(id).is_none());
            assert!(bond.idle.waiting() > 0 && bond.idle.waiting() <= DEPTH);
            bond.carry(carry);
            let waiting = bond.idle.waiting();
            let world = &mut bond.world;
            assert!(world.run_until(PATIENCE, |w| w.a.completion(id).is_some()));
            assert!(world.run_until(PATIENCE, |w| w.b.read(0, LEN) == pattern(LEN, seed)));
            assert_eq!(bond.idle.waiting(), waiting, "nothing more leaves there");
            let mut frame = Vec::new();
            while bond.idle.take(&mut frame) {
                bond.world.settle();
            }
            assert_eq!(
                bond.idle.waiting(),
                0,
                "nor what it has, while it carries nothing"
            );
        }
        // Both are up again, and the one that carried nothing sends what it had.
        bond.carry([true, true]);
        let mut frame = Vec::new();
        for _ in 0..100 {
            bond.world.run_for(Duration::from_millis(20));
            while bond.idle.take(&mut frame) {}
        }
        bond.world.assert_no_frame_lost();
    }
}

#[test]
fn where_no_port_carries_frames_each_has_its_own_and_the_number_of_ports_is_checked() {
    let mut bond = Bond::new(1500);
    bond.carry([false, true]);
    let (qp, _) = bond.world.connect();
    bond.carry([false, false]);
    let world = &mut bond.world;
    world.a.fill(0, 100, 3);
    let stag = world.b.stag;
    world.a.post_work(qp, WrOpcode::Write, 1, 0, (stag, 0), 100);
    assert!(world.run_until(PATIENCE, |w| w.b.read(0, 100) == pattern(100, 3)));
    for wrong in [vec![], vec![true], vec![true; 3]] {
        let command = Command::SetExits { carry: wrong };
        let refused = world.a.shard.execute(command, world.now).unwrap_err();
        assert!(matches!(refused, CommandError::Invalid(_)), "{refused}");
    }
}
