//! What a program may post: many elements, its bytes inline, work that completes silently,
//! receives for several queue pairs, wake-ups, and the states of a queue pair.

use std::time::Duration;

use rnic::embedded::{Device, DeviceConfig, Runtime};
use rnic::{
    CompletionQueue, Context, DisconnectReason, Error, MAX_INLINE, MAX_SGE, QpConfig, QpState, Sge,
    SrqConfig, WcStatus, WorkRequest,
};
use rnic_tests::daemon::{Daemon, DaemonOptions};
use rnic_tests::lab::{Family, INTERFACE, Lab, LinkOptions};
use rnic_tests::pair::Pair;
use rnic_tests::verbs::{Endpoint, FULL_ACCESS, LIMIT, connect};
use rustix::event::{PollFd, PollFlags, poll};

const PORT: u16 = 18515;
const BYTES: usize = 64 * 1024;

/// Two endpoints whose queue pairs are made to a measure, connected; `a` has the pattern of seed 1,
/// `b` that of seed 2.
fn endpoints(pair: &Pair, config: QpConfig) -> (Endpoint, Endpoint) {
    let end = |daemon, seed| {
        let mut end = Endpoint::new(daemon, BYTES);
        end.qp = end
            .pd
            .create_qp(&end.cq, &end.cq, config.clone())
            .expect("a queue pair");
        end.fill(seed);
        end
    };
    let (a, b) = (end(&pair.daemon_a, 1), end(&pair.daemon_b, 2));
    connect(&a, &b, pair.b.address(Family::V4, PORT));
    (a, b)
}

/// As many elements as there can be, from the last place to the first, each a little longer than
/// the one before.
fn many(end: &Endpoint) -> Vec<Sge> {
    (0..MAX_SGE)
        .map(|n| {
            let at = (MAX_SGE - 1 - n) * 1000;
            end.element(at..at + 100 + n)
        })
        .collect()
}

/// The bytes of elements, one after the other.
fn gathered(end: &Endpoint, sges: &[Sge]) -> Vec<u8> {
    let content = end.content();
    let bytes = sges.iter().flat_map(|sge| {
        let at = (sge.addr - end.region.addr()) as usize;
        content[at..at + sge.length as usize].to_vec()
    });
    bytes.collect()
}

#[test]
fn sends_receives_writes_and_reads_take_as_many_elements_as_there_can_be() {
    let pair = Pair::new("elements");
    let config = QpConfig::default().max_sge(MAX_SGE as u32);
    let (a, b) = endpoints(&pair, config);
    let (ours, theirs) = (many(&a), many(&b));
    let bytes = gathered(&a, &ours);

    b.qp.post_recv(WorkRequest::recv(1, &theirs)).expect("room");
    a.post(WorkRequest::send(2, &ours));
    assert_eq!(a.completion().status, WcStatus::Success);
    let received = b.completion();
    assert_eq!(received.byte_len as usize, bytes.len());
    assert_eq!(gathered(&b, &theirs), bytes);

    a.post(WorkRequest::write(3, &ours, b.remote().offset(40_000)));
    // After the Write: it brings what the Write placed.
    a.fill(3);
    a.post(WorkRequest::read(4, &ours, b.remote().offset(40_000)));
    assert_eq!(a.completion().wr_id, 3);
    let read = a.completion();
    assert_eq!(
        (read.wr_id, read.status, read.byte_len as usize),
        (4, WcStatus::Success, bytes.len())
    );
    assert_eq!(
        gathered(&a, &ours),
        b.content()[40_000..40_000 + bytes.len()]
    );
}

#[test]
fn inline_bytes_go_without_registered_memory_and_their_place_is_free_at_once() {
    let pair = Pair::new("inline");
    let config = QpConfig::default().max_inline(MAX_INLINE as u32);
    let (a, b) = endpoints(&pair, config);
    assert_eq!(
        a.context.device_info().expect("it answers").max_inline as usize,
        MAX_INLINE
    );
    let mut bytes = vec![0; MAX_INLINE];
    for len in [0, 1, 33, MAX_INLINE] {
        b.post_recv(1, 0..1000);
        bytes.fill(len as u8 ^ 0x5a);
        a.post(WorkRequest::send(2, &[]).inline(&bytes[..len]));
        a.post(WorkRequest::write(3, &[], b.remote().offset(2000)).inline(&bytes[..len]));
        bytes.fill(0);
        assert_eq!(a.completion().wr_id, 2);
        assert_eq!(a.completion().wr_id, 3);
        let received = b.completion();
        assert_eq!(received.byte_len as usize, len);
        let sent = vec![len as u8 ^ 0x5a; len];
        assert_eq!(b.content()[..len], sent);
        // The Write has no completion there: a Send behind it tells.
        b.post_recv(4, 0..8);
        a.post(WorkRequest::send(5, &[]));
        assert_eq!(a.completion().wr_id, 5);
        assert_eq!(b.completion().wr_id, 4);
        assert_eq!(b.content()[2000..2000 + len], sent);
    }
    let long = [0; MAX_INLINE + 1];
    let refused = a.qp.post_send(WorkRequest::send(1, &[]).inline(&long));
    assert!(matches!(refused, Err(Error::InlineTooLong { .. })));
    let config = QpConfig::default().max_inline(MAX_INLINE as u32 + 1);
    let refused = a.pd.create_qp(&a.cq, &a.cq, config).expect_err("too much");
    assert!(refused.to_string().contains("inline_bytes"), "{refused}");
}

#[test]
fn unsignalled_work_completes_silently_and_what_is_behind_it_tells() {
    const EACH: u64 = 16;
    let pair = Pair::new("unsignalled");
    let config = QpConfig::default().sq_depth(8);
    let (a, b) = endpoints(&pair, config);
    for round in 0..200 {
        for n in 1..=EACH {
            let at = (round * EACH + n) % 60 * 1000;
            let sges = [a.element(at as usize..at as usize + 1000)];
            let work = WorkRequest::write(round * EACH + n, &sges, b.remote().offset(at));
            let work = if n < EACH { work.unsignaled() } else { work };
            // Its places come back without a completion.
            while let Err(error) = a.qp.post_send(work) {
                assert!(matches!(error, Error::QueueFull), "{error}");
                std::thread::yield_now();
            }
        }
        let told = a.completion();
        assert_eq!(
            (told.wr_id, told.status),
            ((round + 1) * EACH, WcStatus::Success)
        );
    }
    // An error is told, signalled or not, and so is what is flushed behind it.
    let wrong = b.remote().offset(BYTES as u64 - 10);
    let sges = [a.element(0..1000)];
    a.post(WorkRequest::write(1, &sges, wrong).unsignaled());
    a.post(WorkRequest::read(2, &sges, b.remote()).unsignaled());
    let failed = a.completion();
    assert_ne!(failed.status, WcStatus::Success);
    assert_eq!(failed.wr_id, 2, "the Write was sent, and so succeeded");
    assert!(a.qp.disconnected().wait(LIMIT).is_err());
}

#[test]
fn queue_pairs_share_receives_and_the_limit_is_told_before_they_run_out() {
    const RECEIVES: usize = 20;
    const EACH: usize = 1000;
    let pair = Pair::new("shared");
    let context = pair.daemon_b.open();
    let pd = context.alloc_pd().expect("a protection domain");
    let cq = context.create_cq(256).expect("a completion queue");
    let config = SrqConfig::default().depth(RECEIVES as u32).max_sge(1);
    let srq = pd.create_srq(config).expect("a shared receive queue");
    let config = QpConfig::default();
    let ends = [1, 2, 3].map(|seed| {
        let theirs = Endpoint {
            qp: pd
                .create_qp(&cq, &cq, config.clone().srq(srq.clone()))
                .expect("a queue pair"),
            cq: cq.clone(),
            region: pd.register(EACH, FULL_ACCESS).expect("a region"),
            pd: pd.clone(),
            context: context.clone(),
        };
        let ours = Endpoint::new(&pair.daemon_a, EACH);
        ours.fill(seed);
        connect(&ours, &theirs, pair.b.address(Family::V4, PORT));
        (ours, theirs)
    });
    let region = pd
        .register(RECEIVES * EACH, FULL_ACCESS)
        .expect("a region for all receives");
    for n in 0..RECEIVES {
        let sges = [region.slice(n * EACH..(n + 1) * EACH).expect("in it")];
        srq.post_recv(WorkRequest::recv(n as u64, &sges))
            .expect("room for a receive");
    }
    srq.arm_limit(RECEIVES as u32 / 2).expect("it is there");
    let mut taken = Vec::new();
    for n in 0..RECEIVES {
        // The first time that fewer wait than the limit, and only then.
        if n == RECEIVES / 2 + 1 {
            srq.limit_reached().wait(LIMIT).expect("the limit's event");
        }
        let told = srq.take_limit_event().expect("the daemon serves");
        assert!(!told, "after {n} receives");
        let (ours, theirs) = &ends[n % 3];
        ours.post(WorkRequest::send(1, &[ours.element(0..EACH)]));
        assert_eq!(ours.completion().status, WcStatus::Success);
        let received = theirs.completion();
        assert_eq!(
            (received.status, received.byte_len),
            (WcStatus::Success, EACH as u32)
        );
        assert_eq!(received.qp, theirs.qp.num(), "whoever took it completes it");
        taken.push(received.wr_id as usize);
        let bytes = region.to_vec(n * EACH..(n + 1) * EACH).expect("in it");
        assert_eq!(bytes, ours.content());
    }
    assert_eq!(taken, (0..RECEIVES).collect::<Vec<_>>(), "oldest first");

    // The queue is empty: one more Send ends its own connection.
    let (ours, _) = &ends[0];
    ours.post(WorkRequest::send(1, &[]));
    let _ = ours.ending();
    srq.post_recv(WorkRequest::recv(99, &[])).expect("room");
    let (ours, theirs) = &ends[1];
    ours.post(WorkRequest::send(1, &[]));
    assert_eq!(theirs.completion().wr_id, 99);
}

/// Whether the completion queue's descriptor is readable, that is a wake-up came.
fn woken(cq: &CompletionQueue, patience: Duration) -> bool {
    let fd = cq.fd();
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    let patience = patience.try_into().expect("a short time");
    poll(&mut fds, Some(&patience)).expect("a sound descriptor") == 1
}

/// RFC 5040 section 4.3.
#[test]
fn a_client_that_waits_for_solicited_completions_is_woken_by_those_and_by_errors() {
    const SHORT: Duration = Duration::from_millis(200);
    let pair = Pair::new("solicited");
    let (a, b) = endpoints(&pair, QpConfig::default());
    for n in 0..6 {
        b.post_recv(n, 0..100);
    }
    let send = |solicited| {
        let sges = [a.element(0..100)];
        let work = WorkRequest::send(1, &sges);
        a.post(if solicited { work.solicited() } else { work });
        assert_eq!(a.completion().status, WcStatus::Success);
    };
    b.cq.arm(true);
    send(false);
    assert!(!woken(&b.cq, SHORT), "not solicited");
    assert!(!b.completion().solicited);
    b.cq.arm(true);
    send(true);
    assert!(woken(&b.cq, LIMIT));
    assert!(b.completion().solicited);
    b.cq.arm(false);
    send(false);
    assert!(woken(&b.cq, LIMIT), "the next of any kind");
    assert_eq!(b.completion().wr_id, 2);
    b.cq.arm(false);
    send(true);
    assert!(woken(&b.cq, LIMIT));
    b.cq.arm(true);
    assert_eq!(b.completion().wr_id, 3, "it came before the arming");
    assert!(!woken(&b.cq, Duration::ZERO));
    b.cq.arm(true);
    a.qp.abort().expect("it is connected");
    assert!(woken(&b.cq, LIMIT), "flushed work is an error");
    assert_eq!(b.completion().status, WcStatus::WorkRequestFlushed);
}

#[test]
fn a_queue_pair_is_terminated_reset_and_connected_again() {
    let pair = Pair::new("states");
    let (a, b) = endpoints(&pair, QpConfig::default());
    let state = |end: &Endpoint| end.qp.state().expect("the daemon serves");
    let refused = a.qp.reset().expect_err("it is connected");
    assert!(refused.to_string().contains("Rts"), "{refused}");
    for round in 0..2 {
        assert_eq!(state(&a), QpState::Rts);
        b.post_recv(1, 0..100);
        a.post(WorkRequest::send(2, &[a.element(0..100)]));
        assert_eq!(a.completion().status, WcStatus::Success);
        assert_eq!(b.completion().status, WcStatus::Success);
        b.post_recv(3, 0..100);
        if round == 0 {
            a.qp.terminate().expect("it is Ready to send");
            let control = 0;
            assert_eq!(b.ending(), DisconnectReason::TerminateReceived { control });
        } else {
            a.qp.fail().expect("any state will do");
            assert_eq!(b.ending(), DisconnectReason::Reset);
        }
        assert_eq!(a.ending(), DisconnectReason::Aborted);
        assert_eq!(b.completion().status, WcStatus::WorkRequestFlushed);
        for end in [&a, &b] {
            assert_eq!(state(end), QpState::Error);
            end.qp.reset().expect("it is in Error");
            assert_eq!(state(end), QpState::Idle);
        }
        connect(&a, &b, pair.b.address(Family::V4, PORT));
    }
}

/// The same without a daemon on one side, where the RNIC runs in the calls of this very thread.
#[test]
fn an_embedded_rnic_does_it_all_too() {
    let mut lab = Lab::new("verbs-embedded");
    let (here, there) = lab.pair(&LinkOptions::default());
    let daemon = Daemon::start(&lab, &there, &DaemonOptions::default());
    here.namespace.in_thread(|| {
        let mut config = DeviceConfig::new(INTERFACE);
        config.runtime = Runtime::Caller;
        let device = Device::open(config).expect("the interface is there");
        let context = Context::embedded(&device).expect("an RNIC of our own");
        let mut a = Endpoint::of(context, BYTES);
        let srq = a.pd.create_srq(SrqConfig::default()).expect("a queue");
        let config = QpConfig::default()
            .max_sge(MAX_SGE as u32)
            .max_inline(MAX_INLINE as u32);
        a.qp =
            a.pd.create_qp(&a.cq, &a.cq, config.clone().srq(srq.clone()))
                .expect("a queue pair");
        let b = Endpoint::new(&daemon, BYTES);
        b.fill(2);
        connect(&a, &b, there.address(Family::V4, PORT));

        // The initiator speaks first: bytes of its own, behind silent work.
        b.post_recv(1, 0..100);
        a.post(
            WorkRequest::write(1, &[], b.remote().offset(1000))
                .inline(&[7; 500])
                .unsignaled(),
        );
        a.post(WorkRequest::send(2, &[]).inline(b"hello"));
        let sent = a.completion();
        assert_eq!((sent.wr_id, sent.status), (2, WcStatus::Success));
        assert_eq!(b.completion().byte_len, 5);
        assert_eq!(b.content()[1000..1500], [7; 500]);

        let sges = many(&a);
        a.post(WorkRequest::read(3, &sges, b.remote().offset(2000)));
        let read = a.completion();
        assert_eq!((read.wr_id, read.status), (3, WcStatus::Success));
        let bytes = gathered(&a, &sges);
        assert_eq!(bytes, b.content()[2000..2000 + bytes.len()]);

        srq.arm_limit(1).expect("it is there");
        srq.limit_reached().wait(LIMIT).expect("none waits");
        srq.post_recv(WorkRequest::recv(4, &[a.element(0..100)]))
            .expect("room");
        srq.arm_limit(1).expect("it is there");
        b.post(WorkRequest::send(5, &[b.element(0..100)]));
        assert_eq!(a.completion().wr_id, 4);
        srq.limit_reached()
            .wait(LIMIT)
            .expect("none waits any more");

        a.qp.fail().expect("any state will do");
        assert_eq!(a.qp.state().expect("it answers"), QpState::Error);
        assert_eq!(a.ending(), DisconnectReason::Aborted);
        assert_eq!(b.ending(), DisconnectReason::Reset);
        a.qp.reset().expect("it is in Error");
    });
}
