//! Registering memory.

use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_linger;

use super::*;

/// All of this process's memory as a region.
fn local(pd: PdId, access: Access, memory: &SharedMemory) -> RegionSpec {
    let base = memory.as_ptr().addr() as u64;
    RegionSpec::new(pd, access, base, memory.len() as u64)
}

#[test]
fn a_client_registers_only_memory_that_it_can_pass() {
    let bench = Bench::new(Runtime::Caller);
    let session = bench.client();
    let pd = pd(&session);
    for memory in [MemoryKind::None, MemoryKind::Local] {
        let spec = RegionSpec {
            memory,
            ..RegionSpec::new(pd, Access::READ_WRITE, 0, 8192)
        };
        let (reply, _) = session.request(Request::RegisterMemory(spec), vec![memfd(8192)]);
        assert_eq!(refused(reply), RefusalCode::Malformed, "{memory:?}");
    }
    assert_eq!(bench.level("held_regions"), 0);
}

#[test]
fn memory_is_registered_and_revoked() {
    for bench in both() {
        let session = bench.client();
        let pd = pd(&session);
        let stag = region(&session, pd);
        assert_ne!(stag, 0);
        assert_eq!(
            refused(ask(&session, Request::DeallocPd { pd })),
            RefusalCode::Busy
        );
        ask(&session, Request::DeregisterMemory { stag }).unwrap();
        let again = ask(&session, Request::DeregisterMemory { stag });
        assert_eq!(refused(again), RefusalCode::UnknownObject);
        ask(&session, Request::DeallocPd { pd }).unwrap();
    }
}

#[test]
fn who_asks_whether_a_region_may_be_is_told_and_holds_nothing() {
    let mut limits = Limits::default();
    limits.per_client.registered_bytes = 10_000;
    let bench = Bench::with_limits(Runtime::Caller, limits);
    let session = bench.client();
    let pd = pd(&session);
    let may = |length| ask(&session, Request::MayRegister { pd, length });
    may(10_000).unwrap();
    may(10_000).unwrap();
    assert_eq!(refused(may(10_001)), RefusalCode::Limit);
    region(&session, pd);
    assert_eq!(refused(may(2000)), RefusalCode::Limit);
    may(1000).unwrap();
    assert_eq!(bench.level("held_regions"), 1);
    ask(&session, Request::AllocPd).unwrap();
    let other = PdId(pd.0 + 100);
    let stranger = ask(
        &session,
        Request::MayRegister {
            pd: other,
            length: 1,
        },
    );
    assert_eq!(refused(stranger), RefusalCode::UnknownObject);
}

#[test]
fn an_stag_without_memory_is_allocated_and_goes_as_a_region_does() {
    for bench in both() {
        let session = bench.client();
        let pd = pd(&session);
        let kinds = [
            StagKind::WindowType1,
            StagKind::WindowType2B,
            StagKind::FastRegion,
        ];
        for kind in kinds {
            let stag = match ask(&session, Request::AllocStag { pd, kind }) {
                Ok(Response::Region { stag }) => stag,
                other => panic!("{other:?}"),
            };
            ask(&session, Request::DeregisterMemory { stag }).unwrap();
        }
        ask(&session, Request::DeallocPd { pd }).unwrap();
        for kind in kinds {
            let refusal = ask(&session, Request::AllocStag { pd, kind });
            assert_eq!(refused(refusal), RefusalCode::UnknownObject);
        }
    }
}

/// A region of one stream goes by itself: the queue pair's end only takes its rights.
#[test]
fn memory_is_registered_for_a_stream_that_there_is() {
    for bench in both() {
        let session = bench.client();
        let (pd, other) = (pd(&session), pd(&session));
        let cq = cq(&session);
        let qp = qp(&session, pd, cq);
        let asked = |pd, num| {
            let mut request = register(pd, 8192);
            if let Request::RegisterMemory(RegionSpec { stream, .. }) = &mut request {
                *stream = Some(num);
            }
            session.request(request, vec![memfd(8192)]).0
        };
        let elsewhere = asked(other, qp);
        assert_eq!(refused(elsewhere), RefusalCode::WrongPd);
        let unknown = asked(pd, QpNum(qp.0 + 1));
        assert_eq!(refused(unknown), RefusalCode::UnknownObject);
        let stag = match asked(pd, qp) {
            Ok(Response::Region { stag }) => stag,
            other => panic!("{other:?}"),
        };
        ask(&session, Request::DestroyQp { qp }).unwrap();
        assert_eq!(refused(asked(pd, qp)), RefusalCode::UnknownObject);
        ask(&session, Request::DeregisterMemory { stag }).unwrap();
        ask(&session, Request::DeallocPd { pd }).unwrap();
    }
}

#[test]
fn memory_that_could_vanish_is_refused() {
    let bench = Bench::new(Runtime::Caller);
    let session = bench.client();
    let pd = pd(&session);
    let unsealed =
        rustix::fs::memfd_create("unsealed", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
            .unwrap();
    rustix::fs::ftruncate(&unsealed, 8192).unwrap();
    let sealed = unsealed.as_fd().try_clone_to_owned().unwrap();
    let file = tempfile::tempfile().unwrap();
    file.set_len(8192).unwrap();
    let bad = |fd| refused(session.request(register(pd, 8192), vec![fd]).0);
    assert_eq!(bad(unsealed), RefusalCode::BadMemory);
    assert_eq!(bad(OwnedFd::from(file)), RefusalCode::BadMemory);
    assert_eq!(bad(memfd(4096)), RefusalCode::BadMemory);
    rustix::fs::fcntl_add_seals(&sealed, SealFlags::SHRINK).unwrap();
    let again = || sealed.try_clone().unwrap();
    // Its pages would be the RNIC's, and not the client's.
    assert_eq!(bad(again()), RefusalCode::BadMemory);
    let owner = SharedMemory::map(&sealed, 0, 8192).unwrap();
    owner.populate().unwrap();
    for _ in 0..2 {
        let registered = session.request(register(pd, 8192), vec![again()]).0;
        registered.unwrap();
    }
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let punched = rustix::fs::fallocate(&sealed, hole, 0, 4096);
    assert_eq!(punched, Err(Errno::PERM));
}

/// The rings that a request brings are sealed by the next one, which says that they are mapped.
#[test]
fn nobody_punches_holes_into_rings_once_they_are_mapped() {
    let bench = Bench::new(Runtime::Caller);
    let session = bench.stranger();
    let mut rings = Vec::new();
    let mut keep = |(reply, mut fds): (Reply, Vec<OwnedFd>), ring: usize| {
        rings.push(fds.swap_remove(ring));
        reply.unwrap()
    };
    let ask_for = |request| session.request(request, Vec::new());
    keep(ask_for(HELLO), 1);
    let Response::Pd(pd) = ask(&session, Request::AllocPd).unwrap() else {
        panic!("no domain");
    };
    let Response::Cq { cq, .. } = keep(ask_for(Request::CreateCq { depth: 4 }), 0) else {
        panic!("no queue");
    };
    let (depth, max_sge) = (4, 1);
    keep(ask_for(Request::CreateSrq { pd, depth, max_sge }), 0);
    keep(ask_for(Request::CreateQp(attributes(pd, cq))), 0);
    ask(&session, Request::QueryDevice).unwrap();
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    for (number, ring) in rings.iter().enumerate() {
        let punched = rustix::fs::fallocate(ring, hole, 0, 4096);
        assert_eq!(punched, Err(Errno::PERM), "ring {number}");
    }
}

#[test]
fn a_client_that_keeps_its_ring_from_being_sealed_is_taken_away() {
    let bench = Bench::new(Runtime::Caller);
    let session = bench.client();
    let (reply, fds) = session.request(Request::CreateCq { depth: 4 }, Vec::new());
    reply.unwrap();
    rustix::fs::fcntl_add_seals(&fds[0], SealFlags::SEAL).unwrap();
    for _ in 0..2 {
        let reply = ask(&session, Request::AllocPd);
        assert_eq!(refused(reply), RefusalCode::BadMemory);
    }
}

#[test]
fn a_refused_registration_leaves_nothing_behind() {
    let bench = Bench::new(Runtime::Caller);
    let session = bench.client();
    let pd = pd(&session);
    let (reply, _) = session.request(register(pd, 8192), vec![memfd(4096)]);
    assert_eq!(refused(reply), RefusalCode::BadMemory);
    ask(&session, Request::DeallocPd { pd }).unwrap();
}

#[test]
fn another_clients_domain_and_stag_are_unknown() {
    for bench in both() {
        let (us, them) = (bench.client(), bench.client());
        let theirs = pd(&them);
        let stag = region(&them, theirs);
        let (reply, _) = us.request(register(theirs, 8192), vec![memfd(8192)]);
        assert_eq!(refused(reply), RefusalCode::UnknownObject);
        let reply = ask(&us, Request::DeregisterMemory { stag });
        assert_eq!(refused(reply), RefusalCode::UnknownObject);
        ask(&them, Request::DeregisterMemory { stag }).unwrap();
    }
}

/// Memory of this process, and who else holds it.
fn own(bytes: usize) -> Arc<SharedMemory> {
    Arc::new(SharedMemory::anonymous(bytes).unwrap())
}

#[test]
fn memory_of_this_process_is_held_until_it_is_deregistered() {
    for bench in both() {
        let session = bench.client();
        let pd = pd(&session);
        let memory = own(8192);
        let reply = session.register_local(local(pd, Access::ALL, &memory), memory.clone());
        let Ok(Response::Region { stag }) = reply else {
            panic!("{reply:?}");
        };
        // The shard has it, and the PRM counts it.
        assert_eq!(Arc::strong_count(&memory), 3);
        assert_eq!(bench.level("regions"), 1);
        ask(&session, Request::DeregisterMemory { stag }).unwrap();
        assert_eq!(Arc::strong_count(&memory), 1);
        assert_eq!(bench.level("regions"), 0);
        let again = ask(&session, Request::DeregisterMemory { stag });
        assert_eq!(refused(again), RefusalCode::UnknownObject);
        ask(&session, Request::DeallocPd { pd }).unwrap();
    }
}

#[test]
fn a_client_that_ends_lets_memory_of_this_process_go() {
    for bench in both() {
        let (ending, staying) = (bench.client(), bench.client());
        let memories = [&ending, &staying].map(|session| {
            let memory = own(8192);
            let (pd, access) = (pd(session), Access::LOCAL_WRITE);
            let reply = session.register_local(local(pd, access, &memory), memory.clone());
            assert!(reply.is_ok(), "{reply:?}");
            memory
        });
        drop(ending);
        assert_eq!(Arc::strong_count(&memories[0]), 1);
        assert_eq!(Arc::strong_count(&memories[1]), 3);
        // Without anybody's word, when the device ends.
        bench.device.shutdown();
        drop(staying);
        drop(bench);
        assert_eq!(Arc::strong_count(&memories[1]), 1);
    }
}

#[test]
fn memory_of_this_process_is_registered_by_the_same_rules_as_any() {
    let mut limits = Limits::default();
    limits.per_client.registered_bytes = 10_000;
    let bench = Bench::with_limits(Runtime::Caller, limits);
    let (us, them) = (bench.client(), bench.client());
    let (ours, theirs) = (pd(&us), pd(&them));
    let ask_for = |session: &ClientSession, pd, memory: &Arc<SharedMemory>| {
        session.register_local(local(pd, Access::LOCAL_WRITE, memory), memory.clone())
    };
    let memory = own(8192);
    let stranger = ask_for(&bench.stranger(), ours, &memory);
    assert_eq!(refused(stranger), RefusalCode::WrongState);
    let elsewhere = ask_for(&us, theirs, &memory);
    assert_eq!(refused(elsewhere), RefusalCode::UnknownObject);
    assert!(ask_for(&us, ours, &memory).is_ok());
    let too_much = ask_for(&us, ours, &memory);
    assert_eq!(refused(too_much), RefusalCode::Limit);
    assert_eq!(Arc::strong_count(&memory), 3, "refusals hold nothing");
    bench.device.shutdown();
    let late = ask_for(&them, theirs, &memory);
    assert_eq!(refused(late), RefusalCode::ShuttingDown);
}

/// A TCP socket that close(2) holds up for a minute, and its peer, which ends that when dropped.
fn slow_to_close() -> (OwnedFd, TcpStream) {
    use std::io::Write;
    let listener = TcpListener::bind(LOCALHOST).unwrap();
    let mut slow = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (peer, _) = listener.accept().unwrap();
    slow.set_nonblocking(true).unwrap();
    while slow.write(&[0; 65536]).is_ok() {}
    slow.set_nonblocking(false).unwrap();
    set_socket_linger(&slow, Some(Duration::from_secs(60))).unwrap();
    (slow.into(), peer)
}

#[test]
fn a_descriptor_that_is_slow_to_close_holds_up_nobody_but_its_client() {
    let bench = Bench::new(Runtime::Thread);
    let session = bench.client();
    let neighbour = bench.client();
    let pd = pd(&session);
    let (slow, peer) = slow_to_close();
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| session.request(register(pd, 8192), vec![slow]).0);
        std::thread::sleep(Duration::from_millis(50));
        let started = Instant::now();
        ask(&neighbour, Request::AllocPd).unwrap();
        bench.device.shutdown();
        assert!(started.elapsed() < Duration::from_secs(10));
        assert!(!asking.is_finished());
        drop(peer);
        assert_eq!(refused(asking.join().unwrap()), RefusalCode::BadMemory);
    });
}
