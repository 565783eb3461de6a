//! One client's objects over several shards.

use rnic_engine::capture::{Capture, SeenFrame};
use rnic_engine::command::{Answer, Command};
use rnic_ipc::capture::Filter;
use rnic_ipc::control::QpState;

use super::*;
use crate::Polling;
use crate::runtime::To;

const SHARDS: u8 = 3;

fn queue_pairs_of(bench: &Bench, shard: usize) -> u64 {
    let shards = &bench.device.core().shards;
    let (Answer::Counters(counters), _) = shards
        .run(To::Shard(shard), Command::QueryCounters)
        .unwrap()
    else {
        panic!()
    };
    let found = counters.iter().find(|(name, _)| name == "queue_pairs");
    found.unwrap().1
}

#[test]
fn a_client_gets_a_kick_for_each_shard_and_a_queue_for_all() {
    let bench = Bench::with_shards(SHARDS);
    let session = bench.stranger();
    let (reply, fds) = session.request(HELLO, Vec::new());
    let Ok(Response::Welcome {
        shards: SHARDS,
        doorbells,
        ..
    }) = reply
    else {
        panic!("{reply:?}")
    };
    assert_eq!(fds.len(), 2 + usize::from(SHARDS));
    let mut fds = fds.into_iter().skip(1);
    let rings = usize::from(SHARDS);
    rnic_ipc::ring::DoorbellProducer::attach_fd(fds.next().unwrap(), doorbells, rings).unwrap();
    let create = Request::CreateCq { depth: 16 };
    let (reply, fds) = session.request(create, Vec::new());
    let Ok(Response::Cq { depth, .. }) = reply else {
        panic!("{reply:?}")
    };
    let memory = fds.into_iter().next().unwrap();
    let queues = rnic_ipc::ring::CqMemory::attach_fd(memory, depth, rings).unwrap();
    assert_eq!(queues.len(), rings);
    // A limit is the same however many shards there are; the memory is not.
    assert_eq!(bench.level("held_ring_entries"), 16);
    let prm = bench.device.core().prm();
    assert_eq!(prm.ring_entries(), 16 * u64::from(SHARDS));
}

#[test]
fn queue_pairs_are_spread_evenly_and_found_where_they_are() {
    let bench = Bench::with_shards(SHARDS);
    let session = bench.client();
    let (pd, cq) = (pd(&session), cq(&session));
    let all: Vec<_> = (0..7).map(|_| qp(&session, pd, cq)).collect();
    let mut counts: Vec<_> = (0..3).map(|shard| queue_pairs_of(&bench, shard)).collect();
    counts.sort_unstable();
    assert_eq!(counts, [2, 2, 3]);
    for qp in &all {
        let state = ask(&session, Request::QueryQp { qp: *qp });
        assert_eq!(state, Ok(Response::QpState(QpState::Idle)));
    }
    for qp in &all {
        ask(&session, Request::DestroyQp { qp: *qp }).unwrap();
    }
    assert_eq!(bench.level("queue_pairs"), 0);
    ask(&session, Request::DestroyCq { cq }).unwrap();
}

#[test]
fn a_queue_pair_is_brought_to_another_shard_with_what_was_posted_to_it() {
    let bench = Bench::with_shards(SHARDS);
    let session = bench.client();
    let (pd, cq) = (pd(&session), cq(&session));
    let qp = qp(&session, pd, cq);
    let shards = &bench.device.core().shards;
    let home = shards.placement().shard_of(qp);
    let to = (home + 1) % usize::from(SHARDS);
    shards.bring(qp, to).unwrap();
    assert_eq!(shards.placement().shard_of(qp), to);
    assert_eq!(queue_pairs_of(&bench, home), 0);
    assert_eq!(queue_pairs_of(&bench, to), 1);
    let state = ask(&session, Request::QueryQp { qp });
    assert_eq!(state, Ok(Response::QpState(QpState::Idle)));
    // One that is not Idle any more stays.
    let state = QpState::Error;
    ask(&session, Request::ModifyQp { qp, state }).unwrap();
    assert!(shards.bring(qp, home).is_err());
    ask(&session, Request::DestroyQp { qp }).unwrap();
}

#[test]
fn memory_is_in_all_shards_and_revoked_in_all() {
    let bench = Bench::with_shards(SHARDS);
    let session = bench.client();
    let pd = pd(&session);
    let stag = region(&session, pd);
    let regions = |shard| {
        let shards = &bench.device.core().shards;
        let (Answer::Counters(counters), _) = shards
            .run(To::Shard(shard), Command::QueryCounters)
            .unwrap()
        else {
            panic!()
        };
        let found = counters.iter().find(|(name, _)| name == "regions");
        found.unwrap().1
    };
    assert_eq!([0, 1, 2].map(regions), [1, 1, 1]);
    assert_eq!(bench.level("regions"), 1);
    ask(&session, Request::DeregisterMemory { stag }).unwrap();
    assert_eq!([0, 1, 2].map(regions), [0, 0, 0]);
}

#[test]
fn shared_receives_and_their_queue_pairs_are_in_the_first_shard() {
    let bench = Bench::with_shards(SHARDS);
    let session = bench.client();
    let (pd, cq) = (pd(&session), cq(&session));
    let create = Request::CreateSrq {
        pd,
        depth: 8,
        max_sge: 2,
    };
    let (reply, _) = session.request(create, Vec::new());
    let Ok(Response::Srq { srq, .. }) = reply else {
        panic!("{reply:?}")
    };
    let shards = &bench.device.core().shards;
    let sharing: Vec<_> = (0..4)
        .map(|_| {
            let attributes = QpAttributes {
                srq: Some(srq),
                ..attributes(pd, cq)
            };
            let (reply, _) = session.request(Request::CreateQp(attributes), Vec::new());
            let Ok(Response::Qp { qp, .. }) = reply else {
                panic!("{reply:?}")
            };
            qp
        })
        .collect();
    for qp in sharing {
        assert_eq!(shards.placement().shard_of(qp), 0);
        assert!(shards.bring(qp, 1).is_err());
    }
    ask(&session, Request::ArmSrq { srq, limit: 2 }).unwrap();
}

#[test]
fn a_client_that_goes_leaves_nothing_in_any_shard() {
    let bench = Bench::with_shards(SHARDS);
    let session = bench.client();
    let (pd, cq) = (pd(&session), cq(&session));
    for _ in 0..6 {
        qp(&session, pd, cq);
    }
    region(&session, pd);
    listen(&session, "127.0.0.1:0").unwrap();
    drop(session);
    for level in ["queue_pairs", "regions", "device_clients", "device_ports"] {
        bench.until(level, || bench.level(level) == 0);
    }
    // All numbers and places may be used again.
    let session = bench.client();
    let cq = self::cq(&session);
    qp(&session, self::pd(&session), cq);
}

/// Holds up the shard until it is let go.
#[derive(Debug)]
struct Holds(crossbeam::channel::Receiver<()>);

impl Capture for Holds {
    fn frame(&mut self, _: &SeenFrame<'_>) {
        let _ = self.0.recv();
    }
}

#[test]
fn a_shard_that_stands_still_is_noticed_and_the_others_go_on() {
    let bench = Bench::with_shards(SHARDS);
    let session = bench.client();
    let (pd, cq) = (pd(&session), cq(&session));
    let shards = &bench.device.core().shards;
    let (let_go, held) = crossbeam::channel::bounded(0);
    let hold = Command::AddCapture {
        number: 9,
        filter: Filter::default(),
        sink: Box::new(Holds(held)),
    };
    shards.run(To::Shard(0), hold).unwrap();
    // One to be counted there before, the next go to the others.
    qp(&session, pd, cq);
    let elsewhere = shards.placement().home(false);
    assert_ne!(elsewhere, 0);
    assert!(bench.wire.push(&[0; 60]));
    bench.until("it is noticed", || shards.stalled() == 1);
    shards
        .run(To::Shard(elsewhere), Command::QueryCounters)
        .unwrap();
    drop(let_go);
    bench.until("it goes on", || shards.stalled() == 0);
    assert_eq!(bench.level("stalled_shards"), 0);
}

/// A kick is a system call of the client's.
#[test]
fn a_shard_that_polls_again_wants_no_kick() {
    let bench = Bench::new(Runtime::Thread);
    let session = bench.stranger();
    let (reply, mut fds) = session.request(HELLO, Vec::new());
    let Ok(Response::Welcome { doorbells, .. }) = reply else {
        panic!("{reply:?}")
    };
    let memory = fds.remove(1);
    let doorbells = rnic_ipc::ring::DoorbellProducer::attach_fd(memory, doorbells, 1);
    let mut doorbells = doorbells.unwrap().remove(0);
    let set_polling = |polling| bench.device.core().shards.set_polling(polling).unwrap();
    set_polling(Polling::Event);
    // The shard learns of the client with its second request.
    ask(&session, Request::QueryDevice).unwrap();
    bench.until("the shard sleeps", || doorbells.take_sleeping());
    // Now it says so again.
    pd(&session);
    cq(&session);
    std::thread::sleep(Duration::from_millis(50));
    set_polling(Polling::Spin);
    // What answers this is awake.
    qp(&session, pd(&session), cq(&session));
    assert!(!doorbells.take_sleeping());
}
