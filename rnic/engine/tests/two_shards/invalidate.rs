//! Work that invalidates an STag is complete when no shard of the interface uses the STag any more.

use std::time::Duration;

use rnic_engine::command::Command;
use rnic_engine::region::RegionMemory;
use rnic_engine::stag::StagWord;
use rnic_ipc::control::{Access, RegionSpec, Transport};
use rnic_ipc::id::QpNum;
use rnic_ipc::ring::WorkRequest;
use rnic_ipc::work::{WR_SIGNALED, WcStatus, WrOpcode};
use rnic_proto::Stag;

use crate::siblings::Astray;
use crate::side::{BASE, PD};

const STAG: Stag = Stag(0x0077_7700);

/// A queue pair of one shard, and a region that both shards have.
fn shared() -> (Astray, QpNum) {
    let mut it = Astray::new(Transport::Tcp, 1500);
    let (theirs, qp) = it.world.connect();
    // A responder does no work before the initiator's first message (RFC 5044 section 7.1.2).
    let stag = it.world.b.stag;
    let a = &mut it.world.a;
    a.fill(0, 8, 3);
    a.post_work(theirs, WrOpcode::Write, 9, 0, (stag, 0), 8);
    it.steps(|it| it.world.b.read(0, 8) == it.world.a.read(0, 8));
    let word = StagWord::valid(STAG);
    let memory = RegionMemory::Shared {
        memory: it.world.b.memory.clone(),
        offset: 0,
        len: 4096,
    };
    let now = it.world.now;
    for shard in [&mut it.world.b.shard, &mut it.other] {
        let add = Command::AddRegion {
            stag: STAG,
            spec: RegionSpec::new(PD, Access::ALL, BASE, memory.len()),
            memory: memory.clone(),
            word: Some(word.clone()),
        };
        shard.execute(add, now).unwrap();
    }
    (it, qp)
}

fn invalidate(it: &mut Astray, qp: QpNum, wr_id: u64) {
    let mut work = WorkRequest::new(WrOpcode::LocalInvalidate, wr_id);
    work.slot.flags = WR_SIGNALED;
    work.slot.rkey = STAG.0;
    it.world.b.post(qp, &work);
}

/// The shard of the work polls, and the other does not.
fn polls_alone(it: &mut Astray) {
    for _ in 0..50 {
        it.world.now += Duration::from_micros(10);
        it.world.b.shard.poll(it.world.now);
        it.world.b.collect();
    }
}

fn succeeded(it: &Astray, wr_id: u64) -> bool {
    let done = it.world.b.completion(wr_id);
    done.is_some_and(|done| done.status == WcStatus::Success as u8)
}

#[test]
fn it_waits_until_the_other_shard_has_begun_a_pass() {
    let (mut it, qp) = shared();
    invalidate(&mut it, qp, 1);
    polls_alone(&mut it);
    assert!(
        it.world.b.completion(1).is_none(),
        "the other may be placing"
    );
    assert!(!it.world.b.shard.prepare_sleep(), "it is to look again");
    it.other.poll(it.world.now);
    polls_alone(&mut it);
    assert!(succeeded(&it, 1));
    // It is invalid in the other, too.
    let command = Command::InspectStags { stags: vec![STAG] };
    let now = it.world.now;
    let Ok(rnic_engine::command::Answer::Stags(found)) = it.other.execute(command, now) else {
        panic!()
    };
    assert!(!found[0].1.valid);
}

#[test]
fn it_does_not_wait_for_a_shard_that_sleeps() {
    let (mut it, qp) = shared();
    while !it.other.prepare_sleep() {
        it.other.poll(it.world.now);
    }
    invalidate(&mut it, qp, 1);
    polls_alone(&mut it);
    assert!(succeeded(&it, 1));
}

#[test]
fn a_queue_pair_that_ends_meanwhile_flushes_it() {
    let (mut it, qp) = shared();
    invalidate(&mut it, qp, 1);
    polls_alone(&mut it);
    let abort = true;
    let disconnect = Command::Disconnect { qp, abort };
    it.world.b.shard.execute(disconnect, it.world.now).unwrap();
    polls_alone(&mut it);
    let done = it.world.b.completion(1).expect("it is told of");
    assert_eq!(done.status, WcStatus::WorkRequestFlushed as u8);
}
