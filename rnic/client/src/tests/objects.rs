//! Objects: made, used, refused, given back in an order that the RNIC accepts.

use std::time::Duration;

use rnic_ipc::control::{Event, RefusalCode, RegionSpec, Request};
use rnic_ipc::id::QpNum;
use rnic_ipc::work::{WR_FENCE, WR_INLINE, WR_SIGNALED, WR_SOLICITED, WrOpcode};

use super::fake::{Fake, queue_pair, refusal};
use crate::{
    Access, Daemon, Error, MemoryRegion, QpConfig, QueuePair, RemoteMemory, Sge, SrqConfig,
    WorkRequest,
};

#[test]
fn a_missing_daemon_is_named_with_what_to_do() {
    let error = Daemon::at("/nonexistent/rnicd.sock")
        .and_then(|it| it.open(None))
        .unwrap_err();
    assert!(matches!(error, Error::NoDaemon(_)));
    let message = error.to_string();
    assert!(message.contains("rnicd --interface"), "{message}");
    assert!(
        message.contains("--socket /nonexistent/rnicd.sock"),
        "{message}"
    );
}

#[test]
fn a_daemon_of_another_version_is_a_refusal() {
    let (_fake, context) = Fake::start_judging(Box::new(|_| Some(refusal(RefusalCode::Version))));
    match context {
        Err(Error::Refused(refusal)) => assert_eq!(refusal.code, RefusalCode::Version),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_refusal_says_why_and_spoils_nothing() {
    let (fake, context) = Fake::start();
    let pd = context.alloc_pd().unwrap();
    fake.refuse(|request| {
        matches!(request, Request::RegisterMemory(_)).then(|| refusal(RefusalCode::Limit))
    });
    let error = pd.register(4096, Access::LOCAL_WRITE).unwrap_err();
    assert!(matches!(&error, Error::Refused(refusal) if refusal.code == RefusalCode::Limit));
    assert_eq!(error.to_string(), "the fake says no");
    fake.refuse(|_| None);
    pd.register(4096, Access::LOCAL_WRITE).unwrap();
}

#[test]
fn information_comes_whole() {
    let (_fake, context) = Fake::start();
    assert_eq!(context.device_info().unwrap().interface, "fake0");
    // The fake gives two counters a page.
    let counters = context.counters().unwrap();
    assert_eq!(counters.len(), 5);
    assert_eq!(counters[4], ("counter_4".to_owned(), 4));
}

#[test]
fn a_region_is_one_memory_on_both_sides() {
    let (fake, context) = Fake::start();
    let pd = context.alloc_pd().unwrap();
    let region = pd.register(10_000, Access::ALL).unwrap();
    region.write(9_000, b"from us").unwrap();
    let mut bytes = [0; 7];
    fake.with(|state| {
        let theirs = &state.regions[&region.stag()];
        theirs.read(9_000, &mut bytes).unwrap();
        theirs.write(0, b"from the peer").unwrap();
    });
    assert_eq!(&bytes, b"from us");
    assert_eq!(region.to_vec(0..13).unwrap(), b"from the peer");
    region.fill(0..4, b'x').unwrap();
    assert_eq!(region.to_vec(0..8).unwrap(), b"xxxx the");
}

#[test]
fn memory_of_the_programs_own_is_registered_from_its_descriptor() {
    let (fake, context) = Fake::start();
    let pd = context.alloc_pd().unwrap();
    let (memory, fd) = rnic_ipc::shm::SharedMemory::create("own", 8192).unwrap();
    let region = pd.register_fd(&fd, 5000, 100, Access::ALL).unwrap();
    memory.write(5000, b"mine").unwrap();
    assert_eq!(region.to_vec(0..4).unwrap(), b"mine");
    let wanted = |request: &Request| {
        matches!(request, Request::RegisterMemory(RegionSpec { base, offset: 5000, length: 100, .. })
            if *base == region.addr())
    };
    assert!(fake.asked().iter().any(wanted));
}

#[test]
fn ranges_outside_a_region_are_errors() {
    let (_fake, context) = Fake::start();
    let pd = context.alloc_pd().unwrap();
    let region = pd.register(100, Access::ALL).unwrap();
    #[expect(clippy::reversed_empty_ranges)]
    for range in [0..101, 101..101, 60..50, usize::MAX - 1..usize::MAX] {
        assert!(
            matches!(region.slice(range.clone()), Err(Error::Range { .. })),
            "{range:?}"
        );
        assert!(region.remote(range.clone()).is_err());
        assert!(region.to_vec(range.clone()).is_err());
        assert!(region.fill(range, 0).is_err());
    }
    let element = region.slice(10..30).unwrap();
    assert_eq!(
        element,
        Sge {
            addr: region.addr() + 10,
            length: 20,
            lkey: region.stag()
        }
    );
    let remote = region.remote(10..30).unwrap();
    assert_eq!(RemoteMemory::from_bytes(remote.to_bytes()), remote);
    assert_eq!(
        RemoteMemory::try_from(&remote.to_bytes()[..]).unwrap(),
        remote
    );
    let short = RemoteMemory::try_from(&remote.to_bytes()[..19]);
    assert!(
        matches!(short, Err(Error::NotRemoteMemory { found: 19, .. })),
        "{short:?}"
    );
    assert_eq!(remote.offset(5).addr, region.addr() + 15);
    assert_eq!(remote.offset(5).len, 15);
}

#[test]
fn posted_work_reaches_the_engine_as_written() {
    let (fake, context) = Fake::start();
    let (qp, _cq) = queue_pair(&context);
    let sges = [
        Sge {
            addr: 1,
            length: 2,
            lkey: 3,
        },
        Sge {
            addr: 4,
            length: 5,
            lkey: 6,
        },
    ];
    let remote = RemoteMemory {
        stag: 77,
        addr: 88,
        len: 99,
    };
    qp.post_send(WorkRequest::send(1, &sges).solicited().unsignaled())
        .unwrap();
    qp.post_send(WorkRequest::send_with_invalidate(2, &[], 55))
        .unwrap();
    qp.post_write(3, &sges[..1], remote).unwrap();
    qp.post_send(WorkRequest::read(4, &sges, remote).fenced())
        .unwrap();
    let expected = [
        (1, WrOpcode::Send, WR_SOLICITED, 0, 0, 2),
        (2, WrOpcode::SendInvalidate, WR_SIGNALED, 55, 0, 0),
        (3, WrOpcode::Write, WR_SIGNALED, 77, 88, 1),
        (4, WrOpcode::Read, WR_SIGNALED | WR_FENCE, 77, 88, 2),
    ];
    for (wr_id, opcode, flags, rkey, remote_addr, num_sge) in expected {
        let work = fake.take_send(qp.num()).unwrap();
        let slot = work.slot;
        assert_eq!(
            (slot.wr_id, work.opcode(), slot.flags),
            (wr_id, Some(opcode), flags)
        );
        assert_eq!((slot.rkey, slot.remote_addr), (rkey, remote_addr));
        assert_eq!(work.sges(), &sges[..num_sge]);
    }
    assert!(fake.take_send(qp.num()).is_none());
}

#[test]
fn work_that_is_to_be_posted_whole_is_posted_whole_or_not_at_all() {
    let (fake, context) = Fake::start();
    let (qp, _cq) = queue_pair(&context);
    let bytes = [7; 32];
    let mut room = 0;
    while qp.post_send(WorkRequest::send(0, &[])).is_ok() {
        room += 1;
    }
    while fake.take_send(qp.num()).is_some() {}
    let work: Vec<_> = (1..=room)
        .map(|wr_id| WorkRequest::send(wr_id, &[]))
        .collect();
    let more: Vec<_> = work.iter().chain(&work[..1]).copied().collect();
    assert!(matches!(qp.post_send_all(&more), Err(Error::QueueFull)));
    assert!(fake.take_send(qp.num()).is_none());
    qp.post_send_all(&work).unwrap();
    for wr_id in 1..=room {
        assert_eq!(fake.take_send(qp.num()).unwrap().slot.wr_id, wr_id);
    }
    // With its bytes and its operand each of these takes two slots.
    let remote = RemoteMemory {
        stag: 77,
        addr: 88,
        len: 99,
    };
    let wide = WorkRequest::write_with_immediate(0, &[], remote, 7).inline(&bytes);
    let wide = vec![wide; room as usize];
    let (half, more) = (&wide[..wide.len() / 2], &wide[..wide.len() / 2 + 1]);
    assert!(matches!(qp.post_send_all(more), Err(Error::QueueFull)));
    qp.post_send_all(half).unwrap();
    let one = WorkRequest::send(0, &[]);
    assert!(matches!(qp.post_send_all(&[one]), Err(Error::QueueFull)));
}

#[test]
fn inline_bytes_are_copied_when_the_work_is_posted() {
    let (fake, context) = Fake::start();
    let (qp, _cq) = queue_pair(&context);
    let mut bytes = *b"thirty-two bytes go in one slot.";
    qp.post_send(WorkRequest::send(1, &[]).inline(&bytes))
        .unwrap();
    bytes.fill(0);
    let remote = RemoteMemory {
        stag: 77,
        addr: 88,
        len: 99,
    };
    qp.post_send(WorkRequest::write(2, &[], remote).inline(&[]))
        .unwrap();
    let work = fake.take_send(qp.num()).unwrap();
    assert_eq!(work.slot.flags, WR_SIGNALED | WR_INLINE);
    assert_eq!((work.total_length(), work.num_sge()), (32, 2));
    work.copy_inline(0, &mut bytes);
    assert_eq!(bytes, *b"thirty-two bytes go in one slot.");
    let work = fake.take_send(qp.num()).unwrap();
    assert_eq!((work.total_length(), work.num_sge()), (0, 0));
    assert!(work.is_inline());
}

#[test]
fn inline_bytes_that_a_queue_pair_cannot_take_are_refused_at_once() {
    let (fake, context) = Fake::start();
    let (qp, _cq) = queue_pair(&context);
    let bytes = [0; 33];
    let long = WorkRequest::send(1, &[]).inline(&bytes);
    assert!(matches!(
        qp.post_send(long),
        Err(Error::InlineTooLong { found: 33, max: 32 })
    ));
    let remote = RemoteMemory {
        stag: 77,
        addr: 88,
        len: 99,
    };
    let read = WorkRequest::read(1, &[], remote).inline(&bytes[..8]);
    assert!(matches!(qp.post_send(read), Err(Error::NotInline)));
    let recv = WorkRequest::recv(1, &[]).inline(&bytes[..8]);
    assert!(matches!(qp.post_recv(recv), Err(Error::NotInline)));
    assert!(fake.take_send(qp.num()).is_none());
}

#[test]
fn receives_of_a_shared_queue_reach_the_engine_and_go_nowhere_else() {
    let (fake, context) = Fake::start();
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(16).unwrap();
    let config = SrqConfig {
        depth: 2,
        max_sge: 2,
    };
    let srq = pd.create_srq(config).unwrap();
    let config = QpConfig::default();
    let qp = pd.create_qp(&cq, &cq, config.srq(srq.clone())).unwrap();
    let sges = [Sge::default(); 3];
    srq.post_recv(WorkRequest::recv(1, &sges[..2])).unwrap();
    srq.post_recv(WorkRequest::recv(2, &[])).unwrap();
    let full = srq.post_recv(WorkRequest::recv(3, &[]));
    assert!(matches!(full, Err(Error::QueueFull)));
    let wrong = srq.post_recv(WorkRequest::send(3, &[]));
    assert!(matches!(wrong, Err(Error::WrongQueue { queue: "receive" })));
    let long = srq.post_recv(WorkRequest::recv(3, &sges));
    assert!(matches!(long, Err(Error::TooManySges { found: 3, max: 2 })));
    let own = qp.post_recv(WorkRequest::recv(3, &[]));
    assert!(matches!(own, Err(Error::SharedReceives)));
    fake.with(|state| {
        let ring = state.srqs.values_mut().next().unwrap();
        let mut found = rnic_ipc::ring::WorkRequest::default();
        assert_eq!(ring.waiting(), Ok(2));
        assert!(ring.pop(&mut found).unwrap());
        assert_eq!((found.slot.wr_id, found.num_sge()), (1, 2));
    });
}

#[test]
fn a_shared_queues_limit_is_told_once_to_whoever_asks() {
    let (fake, context) = Fake::start();
    let pd = context.alloc_pd().unwrap();
    let srq = pd.create_srq(SrqConfig::default()).unwrap();
    let other = pd.create_srq(SrqConfig::default()).unwrap();
    srq.arm_limit(7).unwrap();
    let armed = Request::ArmSrq {
        srq: srq.id(),
        limit: 7,
    };
    assert_eq!(fake.asked().last(), Some(&armed));
    assert!(!srq.take_limit_event().unwrap());
    fake.tell(&Event::SrqLimit { srq: srq.id() });
    srq.limit_reached().wait(Duration::from_secs(30)).unwrap();
    assert!(!srq.take_limit_event().unwrap());
    fake.tell(&Event::SrqLimit { srq: srq.id() });
    while !srq.take_limit_event().unwrap() {}
    assert!(!other.take_limit_event().unwrap());
    let waited = other.limit_reached().wait(Duration::ZERO);
    assert!(matches!(waited, Err(Error::Timeout { .. })));
}

#[test]
fn a_shared_queue_goes_after_the_queue_pairs_that_take_from_it() {
    let (fake, context) = Fake::start();
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(16).unwrap();
    let srq = pd.create_srq(SrqConfig::default()).unwrap();
    let config = QpConfig::default();
    let qp = pd.create_qp(&cq, &cq, config.srq(srq.clone())).unwrap();
    let id = srq.id();
    drop((srq, pd, cq));
    drop(qp);
    let asked = fake.asked();
    let at = |wanted: &dyn Fn(&Request) -> bool| asked.iter().position(wanted).unwrap();
    let destroyed = at(&|request| *request == Request::DestroySrq { srq: id });
    assert!(at(&|request| matches!(request, Request::DestroyQp { .. })) < destroyed);
    assert!(destroyed < at(&|request| matches!(request, Request::DeallocPd { .. })));
}

#[test]
fn a_queue_pair_rings_once_until_it_is_answered_and_kicks_only_a_sleeper() {
    let (fake, context) = Fake::start();
    let (qp, _cq) = queue_pair(&context);
    let rung = |fake: &Fake| fake.with(|state| state.doorbells.as_mut().unwrap().pop().unwrap());
    let kicked = |fake: &Fake| {
        let mut count = [0; 8];
        fake.with(|state| rustix::io::read(state.kick.as_ref().unwrap(), &mut count).is_ok())
    };
    qp.post_recv(WorkRequest::recv(1, &[])).unwrap();
    qp.post_send(WorkRequest::send(2, &[])).unwrap();
    assert_eq!(rung(&fake), Some(qp.num()));
    assert_eq!(rung(&fake), None);
    assert!(!kicked(&fake));
    assert!(fake.take_send(qp.num()).is_some());
    assert!(fake.with(|state| state.doorbells.as_mut().unwrap().prepare_sleep()));
    qp.post_send(WorkRequest::send(3, &[])).unwrap();
    assert!(kicked(&fake));
    assert_eq!(rung(&fake), Some(qp.num()));
}

#[test]
fn work_that_a_queue_pair_cannot_take_is_refused_at_once() {
    let (fake, context) = Fake::start();
    let (qp, _cq) = queue_pair(&context);
    let sges = [Sge::default(); 3];
    let error = qp.post_send(WorkRequest::send(1, &sges)).unwrap_err();
    assert!(matches!(error, Error::TooManySges { found: 3, max: 2 }));
    let recv = WorkRequest::recv(1, &[]);
    assert!(matches!(
        qp.post_send(recv),
        Err(Error::WrongQueue { queue: "send" })
    ));
    let send = WorkRequest::send(1, &[]);
    assert!(matches!(
        qp.post_recv(send),
        Err(Error::WrongQueue { queue: "receive" })
    ));
    assert_eq!(qp.post_send_batch(&[send; 10]).unwrap(), 8);
    assert!(matches!(qp.post_send(send), Err(Error::QueueFull)));
    assert!(fake.take_send(qp.num()).is_some());
    qp.post_send(send).unwrap();
}

#[test]
fn objects_dropped_in_any_order_are_given_back_users_first() {
    let (fake, context) = Fake::start();
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(16).unwrap();
    let qp = pd.create_qp(&cq, &cq, Default::default()).unwrap();
    let region: MemoryRegion = pd.register(1, Access::LOCAL_WRITE).unwrap();
    let before = fake.asked().len();
    drop((context, pd, cq));
    assert_eq!(fake.asked().len(), before, "all of it is in use");
    let num: QpNum = qp.num();
    drop(qp);
    let stag = region.stag();
    drop(region);
    let asked = fake.asked().split_off(before);
    assert!(
        matches!(
            asked.as_slice(),
            [
                Request::DestroyQp { qp },
                Request::DestroyCq { .. },
                Request::DeregisterMemory { stag: gone },
                Request::DeallocPd { .. },
            ] if *qp == num && *gone == stag
        ),
        "{asked:?}"
    );
}

/// The order of the operands is that of the fields of RFC 7306 Figure 4: data, mask, compare data,
/// compare mask.
#[test]
fn operands_of_immediate_data_and_atomics_reach_the_engine_as_written() {
    let (fake, context) = Fake::start();
    let (qp, _cq) = queue_pair(&context);
    let remote = RemoteMemory {
        stag: 77,
        addr: 88,
        len: 8,
    };
    let place = Sge {
        addr: 5,
        length: 8,
        lkey: 6,
    };
    let all = u64::MAX;
    let immediate = (WrOpcode::Immediate, [1, 0, 0, 0]);
    let written = (WrOpcode::WriteImmediate, [2, 0, 0, 0]);
    let add = WrOpcode::AtomicFetchAdd;
    let swap = WrOpcode::AtomicCompareSwap;
    let cases = [
        (WorkRequest::immediate(9, 1), immediate),
        (
            WorkRequest::write_with_immediate(9, std::slice::from_ref(&place), remote, 2),
            written,
        ),
        (
            WorkRequest::atomic_fetch_add(9, &place, remote, 3),
            (add, [3, 0, 0, 0]),
        ),
        (
            WorkRequest::masked_fetch_add(9, &place, remote, 4, 5),
            (add, [4, 5, 0, 0]),
        ),
        (
            WorkRequest::atomic_compare_swap(9, &place, remote, 6, 7),
            (swap, [7, all, 6, all]),
        ),
        (
            WorkRequest::masked_compare_swap(9, &place, remote, (1, 2), (3, 4)),
            (swap, [3, 4, 1, 2]),
        ),
        (
            WorkRequest::atomic_swap(9, &place, remote, 8),
            (swap, [8, all, 0, 0]),
        ),
        (
            WorkRequest::write_with_immediate(9, &[], remote, 2).inline(b"seventeen bytes.."),
            written,
        ),
    ];
    for (work, (opcode, operands)) in cases {
        qp.post_send(work).unwrap();
        let found = fake.take_send(qp.num()).unwrap();
        assert_eq!(found.opcode(), Some(opcode));
        assert_eq!(found.operands(), Some(operands), "{opcode:?}");
        if found.is_inline() {
            let mut bytes = [0; 17];
            found.copy_inline(0, &mut bytes);
            assert_eq!(&bytes, b"seventeen bytes..");
        } else if opcode != WrOpcode::Immediate {
            assert_eq!(found.sges(), [place]);
            assert_eq!((found.slot.rkey, found.slot.remote_addr), (77, 88));
        }
    }
    let short = Sge { length: 4, ..place };
    let refused = qp.post_send(WorkRequest::atomic_fetch_add(9, &short, remote, 3));
    assert!(matches!(refused, Err(Error::AtomicLength { found: 4 })));
}

#[test]
fn objects_of_two_contexts_are_not_put_together() {
    let ((_fakes, one), (_others, other)) = (Fake::start(), Fake::start());
    let pd = one.alloc_pd().unwrap();
    let (near, far) = (one.create_cq(4).unwrap(), other.create_cq(4).unwrap());
    let far_pd = other.alloc_pd().unwrap();
    let srq = far_pd.create_srq(SrqConfig::default()).unwrap();
    let config = QpConfig::default();
    for (made, what) in [
        (
            pd.create_qp(&far, &near, config.clone()),
            "the send completion queue",
        ),
        (
            pd.create_qp(&near, &far, config.clone()),
            "the receive completion queue",
        ),
        (
            pd.create_qp(&near, &near, config.srq(srq.clone())),
            "the shared receive queue",
        ),
    ] {
        let error = made.unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "{what} is of another context than the protection domain: make both from one context"
            )
        );
    }
}

#[test]
fn a_send_is_refused_before_a_connection_was_begun_and_a_receive_is_not() {
    let (_fake, context) = Fake::start();
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(16).unwrap();
    let qp = pd.create_qp(&cq, &cq, QpConfig::default()).unwrap();
    let refused = |qp: &QueuePair| {
        let posted = qp.post_send(WorkRequest::send(1, &[]));
        assert!(matches!(posted, Err(Error::NotConnected)), "{posted:?}");
    };
    refused(&qp);
    qp.post_recv(WorkRequest::recv(2, &[])).unwrap();
    let remote: std::net::SocketAddr = "198.18.7.2:7".parse().unwrap();
    qp.connect(remote, crate::ConnectOptions::default())
        .detach()
        .unwrap();
    qp.post_send(WorkRequest::send(1, &[])).unwrap();
    qp.reset().unwrap();
    refused(&qp);
    qp.fail().unwrap();
    qp.post_send(WorkRequest::send(1, &[])).unwrap();
}
