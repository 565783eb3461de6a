//! What work makes valid, and what is of one stream: windows, fast regions and regions between two
//! shards, and the end of each while a peer writes through it over a bad link.

use std::time::Duration;

use rnic_engine::command::Command;
use rnic_engine::region::RegionMemory;
use rnic_ipc::control::{Access, DisconnectReason, RegionSpec, StagKind};
use rnic_ipc::id::QpNum;
use rnic_ipc::ring::WorkRequest;
use rnic_ipc::work::{WR_ONE_STREAM, WR_SIGNALED, WcStatus, WrOpcode};
use rnic_proto::Stag;

use crate::impairment::Impairment;
use crate::side::{BASE, PD, Side};
use crate::world::World;

const PATIENCE: Duration = Duration::from_secs(60);
const BAD: Impairment = Impairment {
    loss: 20,
    duplicate: 10,
    reorder: 200,
    ..Impairment::NONE
};
const STAG: Stag = Stag(0x0000_5500);
/// Where the peer writes, and how much.
const PLACE: (usize, usize) = (0x10_0000, 0x4_0000);

fn keyed(stag: Stag, key: u8) -> Stag {
    Stag::from_parts(stag.index(), key)
}

fn execute(world: &mut World, command: Command) {
    world.b.shard.execute(command, world.now).unwrap();
}

/// Work that makes `stag` stand for the place in its region, or in itself.
fn binding(opcode: WrOpcode, wr_id: u64, stag: Stag, region: Stag, flags: u8) -> WorkRequest {
    let mut work = WorkRequest::new(opcode, wr_id);
    work.slot.flags = WR_SIGNALED | flags;
    work.slot.rkey = stag.0;
    work.slot.remote_addr = BASE + PLACE.0 as u64;
    let operand = u64::from(Access::ALL.bits()) << 32 | u64::from(region.0);
    assert!(work.set_operands(&[PLACE.1 as u64, operand, 0, 0]));
    work
}

/// Has `b` do such work.
fn bind(world: &mut World, qp: QpNum, opcode: WrOpcode, stag: Stag, region: Stag, flags: u8) {
    work_done(world, qp, &binding(opcode, 900, stag, region, flags));
}

#[track_caller]
fn work_done(world: &mut World, qp: QpNum, work: &WorkRequest) {
    world.b.completions.clear();
    world.b.post(qp, work);
    let id = work.slot.wr_id;
    assert!(world.run_until(PATIENCE, |w| w.b.completion(id).is_some()));
    assert_eq!(status(&world.b, id), Some(WcStatus::Success));
}

fn status(side: &Side, wr_id: u64) -> Option<WcStatus> {
    WcStatus::from_u8(side.completion(wr_id)?.status)
}

fn alloc(world: &mut World, kind: StagKind) {
    let (stag, pd) = (STAG, PD);
    execute(
        world,
        Command::AddStag {
            stag,
            pd,
            kind,
            word: None,
        },
    );
}

/// A region of `b`'s that is the place, for one stream.
fn add_for_stream(world: &mut World, qp: QpNum) -> Stag {
    let memory = RegionMemory::Shared {
        memory: world.b.memory.clone(),
        offset: PLACE.0,
        len: PLACE.1,
    };
    let command = Command::AddRegion {
        stag: STAG,
        spec: RegionSpec {
            stream: Some(qp),
            ..RegionSpec::new(PD, Access::ALL, BASE + PLACE.0 as u64, memory.len())
        },
        memory,
        word: None,
    };
    execute(world, command);
    STAG
}

/// `a` writes the whole place through an STag.
fn write(world: &mut World, qp: QpNum, wr_id: u64, stag: Stag) {
    let (at, len) = PLACE;
    world.a.fill(at, len, wr_id);
    world
        .a
        .post_work(qp, WrOpcode::Write, wr_id, at, (stag, at), len);
}

fn holds(world: &World, seed: u64) -> bool {
    let (at, len) = PLACE;
    world.b.read(at, len) == crate::side::pattern(len, seed)
}

fn send_with_invalidate(world: &mut World, qp: QpNum, wr_id: u64, stag: Stag) {
    world
        .a
        .post_work(qp, WrOpcode::SendInvalidate, wr_id, 0, (stag, 0), 0);
}

/// What `b` can let a peer write through, and how that ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    WindowOfType1,
    FastRegion,
    FastRegionOfOneStream,
    RegionOfOneStream,
    RegionRegisteredAgain,
}

const WAYS: [Way; 5] = [
    Way::WindowOfType1,
    Way::FastRegion,
    Way::FastRegionOfOneStream,
    Way::RegionOfOneStream,
    Way::RegionRegisteredAgain,
];

impl Way {
    /// The STag that `a` may use, valid by work of `b`'s queue pair.
    fn open(self, world: &mut World, qp: QpNum, key: u8) -> Stag {
        let (region, stag) = (world.b.stag, keyed(STAG, key));
        let register = WrOpcode::FastRegister;
        match self {
            Self::WindowOfType1 => {
                alloc(world, StagKind::WindowType1);
                bind(world, qp, WrOpcode::BindWindow, stag, region, 0);
                stag
            }
            Self::FastRegion | Self::FastRegionOfOneStream => {
                let limited = self == Self::FastRegionOfOneStream;
                alloc(world, StagKind::FastRegion);
                let flags = if limited { WR_ONE_STREAM } else { 0 };
                bind(world, qp, register, stag, region, flags);
                stag
            }
            Self::RegionOfOneStream => add_for_stream(world, qp),
            Self::RegionRegisteredAgain => {
                let mut work = WorkRequest::new(WrOpcode::LocalInvalidate, 901);
                work.slot.flags = WR_SIGNALED;
                work.slot.rkey = region.0;
                work_done(world, qp, &work);
                let stag = keyed(region, region.key().wrapping_add(1));
                bind(world, qp, register, stag, stag, 0);
                stag
            }
        }
    }

    fn is_of_one_stream(self) -> bool {
        matches!(self, Self::FastRegionOfOneStream | Self::RegionOfOneStream)
    }
}

#[test]
fn what_is_of_one_stream_is_not_associated_with_another() {
    for way in WAYS {
        let mut world = World::new(3, BAD);
        let (own, qp) = world.connect();
        let (other, other_qp) = world.connect();
        let stag = way.open(&mut world, qp, 1);
        write(&mut world, own, 1, stag);
        world
            .a
            .post_work(own, WrOpcode::Read, 2, 0, (stag, PLACE.0), 8);
        assert!(world.run_until(PATIENCE, |w| w.a.completion(2).is_some()));
        assert_eq!(status(&world.a, 2), Some(WcStatus::Success), "{way:?}");
        assert!(holds(&world, 1), "{way:?}");
        write(&mut world, other, 3, stag);
        world
            .a
            .post_work(other, WrOpcode::Read, 4, 0, (stag, PLACE.0), 8);
        assert!(world.run_until(PATIENCE, |w| w.a.completion(4).is_some()));
        let limited = way.is_of_one_stream();
        assert_eq!(holds(&world, 3), !limited, "{way:?}");
        if limited {
            assert!(holds(&world, 1), "nothing of the other stream's is placed");
            assert!(world.run_until(PATIENCE, |w| w.b.disconnected(other_qp).is_some()));
            let control = 0x1102;
            let sent = Some(DisconnectReason::TerminateSent { control });
            assert_eq!(world.b.disconnected(other_qp), sent, "{way:?}");
        } else {
            assert_eq!(status(&world.a, 4), Some(WcStatus::Success), "{way:?}");
        }
        assert!(world.b.disconnected(qp).is_none(), "the own stream goes on");
    }
}

/// RFC 5040 section 8.1.1, 7: what several streams use no peer may invalidate; what is of one, its
/// peer may.
#[test]
fn a_peer_invalidates_what_is_of_its_stream_beside_others_and_nothing_else() {
    for way in WAYS {
        let mut world = World::new(4, BAD);
        let (own, qp) = world.connect();
        world.connect();
        let stag = way.open(&mut world, qp, 1);
        world.b.completions.clear();
        world.b.post_recv(qp, 5, 0, 0);
        send_with_invalidate(&mut world, own, 1, stag);
        write(&mut world, own, 2, stag);
        assert!(world.run_until(PATIENCE, |w| w.b.disconnected(qp).is_some()));
        let limited = way.is_of_one_stream();
        let control = if limited { 0x1100 } else { 0x0109 };
        let sent = Some(DisconnectReason::TerminateSent { control });
        assert_eq!(world.b.disconnected(qp), sent, "{way:?}");
        let received = status(&world.b, 5).unwrap();
        assert_eq!(received == WcStatus::Success, limited, "{way:?}");
        assert!(!holds(&world, 2), "{way:?}");
    }
}

/// RFC 5041 section 8.3.1: when the command is done nothing changes any more, in the middle of a
/// message, placed in order or early.
#[test]
fn revoked_in_the_middle_of_a_write_is_final() {
    let mut cut = 0;
    for (seed, way) in WAYS.into_iter().cycle().take(2 * WAYS.len()).enumerate() {
        for by in ["the STag", "its region", "the queue pair"] {
            let mut world = World::new(seed as u64, BAD);
            world.markers = [seed >= WAYS.len(); 2];
            let (own, qp) = world.connect();
            let stag = way.open(&mut world, qp, 1);
            write(&mut world, own, 1, stag);
            let untouched = vec![0; PLACE.1];
            let begun = |w: &mut World| w.b.read(PLACE.0, PLACE.1) != untouched;
            assert!(world.run_until(PATIENCE, begun), "{way:?}");
            let own_memory = matches!(way, Way::RegionOfOneStream | Way::RegionRegisteredAgain);
            let command = match by {
                "the queue pair" => Command::RemoveQp { qp },
                "its region" if !own_memory => Command::RemoveRegion { stag: world.b.stag },
                _ => Command::RemoveRegion { stag },
            };
            execute(&mut world, command);
            let found = world.b.read(PLACE.0, PLACE.1);
            assert!(world.run_until(PATIENCE, |w| w.a.disconnected(own).is_some()));
            world.run_for(Duration::from_secs(1));
            let after = world.b.read(PLACE.0, PLACE.1);
            assert!(after == found, "{way:?} by {by}");
            cut += usize::from(!holds(&world, 1));
        }
    }
    assert!(cut > 20, "only {cut} of 30 were in the middle");
}

/// A doorbell alone has its turn at once, and such a turn does few pieces of local work: there is
/// nothing under way that would bring the next one about.
#[test]
fn all_local_work_of_one_doorbell_is_done() {
    const BINDINGS: u8 = 60;
    let mut world = World::new(5, Impairment::NONE);
    let (_, qp) = world.connect();
    alloc(&mut world, StagKind::WindowType1);
    let region = world.b.stag;
    world.run_for(Duration::from_secs(1));
    for key in 1..=BINDINGS {
        let stag = keyed(STAG, key);
        let work = binding(WrOpcode::BindWindow, key.into(), stag, region, 0);
        world.b.post(qp, &work);
    }
    // No time goes by.
    world.settle();
    for id in 1..=u64::from(BINDINGS) {
        assert_eq!(status(&world.b, id), Some(WcStatus::Success), "{id}");
    }
}
