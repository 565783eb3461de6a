//! Calls that wait for their own completions, beside programs that poll the same queue.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rnic_ipc::control::Event;
use rnic_ipc::id::{CqId, QpNum};
use rnic_ipc::work::{Completion, WcStatus, WorkSlot, WrOpcode};

use super::fake::{Fake, queue_pair};
use crate::pending::PostedWork;
use crate::wait::LOOK_ROUND;
use crate::{
    CompletionQueue, Error, QpConfig, QueuePair, RemoteMemory, Sge, WorkCompletion, WorkRequest,
    block_on,
};

const SOON: Duration = Duration::from_secs(60);
const A_MOMENT: Duration = Duration::from_millis(20);

const LOCAL: [Sge; 1] = [Sge {
    addr: 0,
    length: 8,
    lkey: 1,
}];

const REMOTE: RemoteMemory = RemoteMemory {
    stag: 7,
    addr: 0,
    len: 8,
};

/// The RNIC's side of one queue pair and its completion queue.
struct Engine<'a> {
    fake: &'a Fake,
    qp: QpNum,
    cq: CqId,
}

/// What a completion says of the work that it is of.
#[derive(Clone, Copy)]
struct Work {
    wr_id: u64,
    flags: u16,
}

/// Of a program's own numbering.
impl From<u64> for Work {
    fn from(wr_id: u64) -> Self {
        Self { wr_id, flags: 0 }
    }
}

impl From<WorkSlot> for Work {
    fn from(slot: WorkSlot) -> Self {
        Self {
            wr_id: slot.wr_id,
            flags: slot.completion_flags(),
        }
    }
}

impl<'a> Engine<'a> {
    fn of(fake: &'a Fake, qp: &QueuePair, cq: &CompletionQueue) -> Self {
        let (qp, cq) = (qp.num(), cq.id());
        Self { fake, qp, cq }
    }

    /// The work that was posted next, and its opcode.
    fn take(&self) -> (Work, WrOpcode) {
        let slot = self.fake.take_send(self.qp).unwrap().slot;
        assert_ne!(slot.flags & rnic_ipc::work::WR_SIGNALED, 0);
        (slot.into(), WrOpcode::from_u8(slot.opcode).unwrap())
    }

    fn complete(&self, work: impl Into<Work>) {
        self.end(work, WcStatus::Success);
    }

    fn end(&self, work: impl Into<Work>, status: WcStatus) {
        let Work { wr_id, flags } = work.into();
        let completion = Completion {
            wr_id,
            flags,
            qp: self.qp.0,
            status: status as u8,
            ..Completion::default()
        };
        self.fake.put(self.cq, &completion);
    }
}

fn polled(cq: &CompletionQueue) -> Vec<u64> {
    let mut out = [WorkCompletion::default(); 32];
    let count = cq.poll(&mut out).unwrap();
    out[..count].iter().map(|done| done.wr_id).collect()
}

fn is_timeout(result: Result<WorkCompletion, Error>) -> bool {
    matches!(result, Err(Error::Timeout { .. }))
}

#[test]
fn each_call_gets_its_own_completion_and_polling_gets_the_others() {
    let (fake, context) = Fake::start();
    let (qp, cq) = queue_pair(&context);
    let engine = Engine::of(&fake, &qp, &cq);
    let mut write = qp.write(&LOCAL, REMOTE);
    let mut add = qp.submit(WorkRequest::immediate(5, 0).unsignaled());
    qp.post_send(WorkRequest::immediate(1, 0)).unwrap();
    let [(first, opcode), (second, _), (third, _)] = [(); 3].map(|()| engine.take());
    assert_eq!((opcode, third.wr_id, third.flags), (WrOpcode::Write, 1, 0));
    assert!(is_timeout(write.wait(Duration::ZERO)));

    // The call takes others out of the ring, and they stay in order.
    engine.complete(1);
    engine.complete(first);
    engine.complete(2);
    assert_eq!(write.wait(SOON).unwrap().wr_id, 0);
    engine.complete(3);
    assert!(!cq.is_empty() && cq.has_completions().unwrap());
    cq.readable().wait(Duration::ZERO).unwrap();
    assert_eq!(block_on(cq.next()).unwrap().wr_id, 1);
    assert_eq!(polled(&cq), [2, 3]);

    // Polling takes the call's out of the ring.
    engine.complete(second);
    assert!(!cq.has_completions().unwrap());
    assert!(matches!(
        cq.readable().wait(A_MOMENT),
        Err(Error::Timeout { .. })
    ));
    engine.complete(4);
    assert_eq!(polled(&cq), [4]);
    assert!(cq.is_empty());
    let added = add.wait(Duration::ZERO).unwrap();
    assert_eq!((added.wr_id, added.qp), (5, qp.num()));
}

#[test]
fn reads_sends_and_receives_are_waited_for_alike() {
    let (fake, context) = Fake::start();
    let (qp, cq) = queue_pair(&context);
    let engine = Engine::of(&fake, &qp, &cq);
    let (receive, read, send) = (qp.receive(&LOCAL), qp.read(&LOCAL, REMOTE), qp.send(&LOCAL));
    let receiving = fake.with(|state| {
        let mut work = rnic_ipc::ring::WorkRequest::default();
        let (_, rq) = state.qps.get_mut(&qp.num()).unwrap();
        assert!(rq.pop(&mut work).unwrap());
        Work::from(work.slot)
    });
    let [(reading, read_opcode), (sending, send_opcode)] = [(); 2].map(|()| engine.take());
    assert_eq!((read_opcode, send_opcode), (WrOpcode::Read, WrOpcode::Send));
    for work in [sending, reading, receiving] {
        engine.complete(work);
    }
    for waited in [receive, read, send] {
        assert_eq!(block_on(waited).unwrap().status, WcStatus::Success);
    }
    assert!(cq.is_empty());
}

#[test]
fn work_that_fails_is_an_error_that_names_it() {
    let (fake, context) = Fake::start();
    let (qp, cq) = queue_pair(&context);
    let engine = Engine::of(&fake, &qp, &cq);
    let mut write = qp.submit(WorkRequest::write(77, &LOCAL, REMOTE));
    engine.end(engine.take().0, WcStatus::RemoteAccess);
    let error = write.wait(SOON).unwrap_err();
    let Error::Work(failed) = &error else {
        panic!("{error}");
    };
    assert_eq!((failed.wr_id, failed.qp), (77, qp.num()));
    assert_eq!(failed.status, WcStatus::RemoteAccess);
    let text = error.to_string();
    assert!(text.contains("77") && text.contains("refused"), "{text}");
}

#[test]
fn an_error_of_posting_is_found_by_waiting_and_leaves_nothing_tracked() {
    let (fake, context) = Fake::start();
    let (qp, cq) = queue_pair(&context);
    let engine = Engine::of(&fake, &qp, &cq);
    let long = [LOCAL[0]; 3];
    let error = block_on(qp.write(&long, REMOTE)).unwrap_err();
    assert!(matches!(error, Error::TooManySges { .. }), "{error}");
    assert!(!cq.has_tracked());
    engine.complete(0);
    assert_eq!(polled(&cq), [0]);
}

#[test]
fn a_program_may_number_its_work_as_this_crate_does() {
    let (fake, context) = Fake::start();
    let (qp, cq) = queue_pair(&context);
    let engine = Engine::of(&fake, &qp, &cq);
    let mut write = qp.write(&LOCAL, REMOTE);
    let tracked = engine.take().0;
    qp.post_send(WorkRequest::immediate(tracked.wr_id, 0))
        .unwrap();
    let own = engine.take().0;
    assert_eq!(own.wr_id, tracked.wr_id);
    engine.complete(own);
    assert!(is_timeout(write.wait(Duration::ZERO)));
    assert_eq!(polled(&cq), [own.wr_id]);
    engine.complete(tracked);
    write.wait(SOON).unwrap();
    assert_eq!(polled(&cq), []);
}

#[test]
fn work_that_nobody_waits_for_any_more_leaves_no_completion_behind() {
    let (fake, context) = Fake::start();
    let (qp, cq) = queue_pair(&context);
    let engine = Engine::of(&fake, &qp, &cq);
    drop(qp.write(&LOCAL, REMOTE));
    engine.complete(engine.take().0);
    engine.complete(1);
    assert_eq!(polled(&cq), [1]);
    assert!(!cq.has_tracked());

    // It had come, and was not fetched.
    let write = qp.write(&LOCAL, REMOTE);
    engine.complete(engine.take().0);
    assert_eq!(polled(&cq), []);
    drop(write);
    assert!(!cq.has_tracked());

    // It is in the ring when its queue pair goes.
    let (gone, _) = (qp.write(&LOCAL, REMOTE), engine.complete(2));
    let wr_id = engine.take().0;
    drop(gone);
    engine.complete(wr_id);
    drop(qp);
    assert_eq!(polled(&cq), [2]);
    assert!(!cq.has_tracked());
}

#[test]
fn a_queue_pair_that_goes_takes_its_own_work_along_and_no_others() {
    let (fake, context) = Fake::start();
    let (stays, cq) = queue_pair(&context);
    let pd = context.alloc_pd().unwrap();
    let config = QpConfig {
        early_sends: true,
        ..QpConfig::default()
    };
    let goes = pd.create_qp(&cq, &cq, config).unwrap();
    let mut waits = stays.write(&LOCAL, REMOTE);
    drop(goes.write(&LOCAL, REMOTE));
    drop(goes);
    let engine = Engine::of(&fake, &stays, &cq);
    engine.complete(engine.take().0);
    assert!(waits.wait(SOON).is_ok());
    assert!(!cq.has_tracked());
}

#[test]
fn as_many_as_the_queue_has_entries_are_kept_for_polling() {
    let (fake, context) = Fake::start();
    let (qp, cq) = queue_pair(&context);
    let engine = Engine::of(&fake, &qp, &cq);
    let depth = u64::from(cq.depth());
    let mut write = qp.write(&LOCAL, REMOTE);
    let number = engine.take().0;
    for wr_id in 0..depth {
        engine.complete(wr_id);
    }
    assert!(is_timeout(write.wait(Duration::ZERO)));
    engine.complete(number);
    assert!(matches!(write.wait(SOON), Err(Error::CqOverflow)));
    assert_eq!(polled(&cq), (0..depth).collect::<Vec<_>>());
    write.wait(SOON).unwrap();
}

#[test]
fn trouble_ends_a_wait_after_the_last_completion() {
    let (mut fake, context) = Fake::start();
    let (qp, cq) = queue_pair(&context);
    let [mut first, mut second] = [(); 2].map(|()| qp.write(&LOCAL, REMOTE));
    let engine = Engine::of(&fake, &qp, &cq);
    engine.complete(engine.take().0);
    // Another's completion keeps no call waiting.
    engine.complete(1);
    fake.tell(&Event::CqError { cq: cq.id() });
    first.wait(SOON).unwrap();
    assert!(matches!(second.wait(SOON), Err(Error::CqOverflow)));
    assert_eq!(polled(&cq), [1]);

    let (qp, _cq) = queue_pair(&context);
    let mut write = qp.write(&LOCAL, REMOTE);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| write.wait(SOON));
        std::thread::sleep(A_MOMENT);
        fake.kill();
        assert!(matches!(waiting.join().unwrap(), Err(Error::DaemonGone)));
    });
    let error = block_on(qp.write(&LOCAL, REMOTE));
    assert!(matches!(error, Err(Error::DaemonGone)));
}

/// Waiters that block, one that awaits, and programs that poll, wait and await: all at once.
#[test]
fn nobody_misses_a_wake_up_that_another_took() {
    const ROUNDS: u64 = 300;
    const UNPOLLED_MAX: u64 = 4;
    let (fake, context) = Fake::start();
    let (qp, cq) = queue_pair(&context);
    let engine = Engine::of(&fake, &qp, &cq);
    let unpolled = AtomicU64::new(0);
    let (begin, over) = (Barrier::new(4), AtomicBool::new(false));
    let started = Instant::now();
    std::thread::scope(|scope| {
        let wait = |each: fn(PostedWork<'_>)| {
            let (begin, qp) = (&begin, &qp);
            move || {
                begin.wait();
                for _ in 0..ROUNDS {
                    each(qp.write(&LOCAL, REMOTE));
                }
            }
        };
        let calls = [
            scope.spawn(wait(|mut write| {
                assert_eq!(write.wait(SOON).unwrap().wr_id, 0)
            })),
            scope.spawn(wait(|write| assert_eq!(block_on(write).unwrap().wr_id, 0))),
        ];
        let polls = scope.spawn(|| {
            begin.wait();
            let mut next = 0;
            while next < ROUNDS {
                cq.readable().wait(SOON).unwrap();
                for wr_id in polled(&cq) {
                    assert_eq!(wr_id, next);
                    next += 1;
                    unpolled.fetch_sub(1, Ordering::SeqCst);
                }
            }
        });
        let plays = scope.spawn(|| {
            begin.wait();
            let mut others = 0..ROUNDS;
            while !over.load(Ordering::SeqCst) && started.elapsed() < SOON {
                fake.with(|state| state.doorbells.as_mut().unwrap().pop().unwrap());
                if let Some(work) = fake.take_send(qp.num()) {
                    engine.complete(work.slot);
                }
                // A thread that polls may not run for long: the queue must not overflow meanwhile.
                if unpolled.load(Ordering::SeqCst) < UNPOLLED_MAX
                    && let Some(other) = others.next()
                {
                    unpolled.fetch_add(1, Ordering::SeqCst);
                    engine.complete(other);
                }
                std::thread::yield_now();
            }
        });
        for thread in calls.into_iter().chain([polls]) {
            thread.join().unwrap();
        }
        over.store(true, Ordering::SeqCst);
        plays.join().unwrap();
    });
    assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
}

/// A call that waits for its own completion takes a wake-up off the descriptor just before another thread would
/// sleep on it. Of several rounds, because the machine may be busy.
#[test]
fn a_thread_that_waits_for_any_completion_sleeps_through_none() {
    const ROUNDS: u32 = 8;
    let (fake, context) = Fake::start();
    let (qp, cq) = queue_pair(&context);
    let engine = Engine::of(&fake, &qp, &cq);
    let _write = qp.write(&LOCAL, REMOTE);
    let mut soonest = SOON;
    for _ in 0..ROUNDS {
        std::thread::scope(|scope| {
            // It holds the thread up after its last look at the ring.
            let held = context.inner().events().inboxes();
            let waiting = scope.spawn(|| cq.readable().wait(SOON));
            std::thread::sleep(A_MOMENT);
            engine.complete(1);
            cq.arm_for(&cq.watch().unwrap().slot());
            drop(held);
            let begin = Instant::now();
            waiting.join().unwrap().unwrap();
            soonest = soonest.min(begin.elapsed());
        });
        assert_eq!(polled(&cq), [1]);
    }
    assert!(soonest < LOOK_ROUND / 2, "{soonest:?}");
}
