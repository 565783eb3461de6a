//! Registering memory that is in no memfd: whose descriptor, and who may.

use std::fs::File;

use rnic_prm::Quota;

use rnic_ipc::control::{MemoryKind, RegionSpec};

use super::*;

const LEN: u64 = 8192;

/// A bench whose clients may have so many of these regions.
fn bench(most: u32) -> Bench {
    let mut limits = Limits::default();
    limits.users.others.quota.remote_regions = most;
    limits.users.others.own_remote_regions = most;
    let remote_regions = most;
    limits.per_client = Quota {
        remote_regions,
        ..limits.per_client
    };
    Bench::with_limits(Runtime::Caller, limits)
}

fn open(path: impl AsRef<std::path::Path>) -> OwnedFd {
    let file = File::options().read(true).write(true).open(path);
    file.unwrap().into()
}

fn remote(pd: PdId, access: Access, address: u64) -> Request {
    Request::RegisterMemory(RegionSpec {
        pd,
        stream: None,
        access,
        base: address,
        length: LEN,
        offset: 0,
        memory: MemoryKind::Remote,
    })
}

fn address(bytes: &[u8]) -> u64 {
    assert_eq!(bytes.len() as u64, LEN);
    bytes.as_ptr().addr() as u64
}

#[test]
fn only_who_may_has_regions_outside_of_memfds() {
    let bytes = vec![0; LEN as usize];
    let request = |pd| remote(pd, Access::LOCAL_WRITE, address(&bytes));
    let bench = bench(2);
    let session = bench.client();
    let pd = pd(&session);
    let register = || session.request(request(pd), vec![open("/proc/self/mem")]).0;
    let first = register().unwrap();
    register().unwrap();
    assert_eq!(refused(register()), RefusalCode::Limit);
    let Response::Region { stag } = first else {
        panic!("{first:?}");
    };
    assert_eq!(bench.level("held_remote_regions"), 2);
    ask(&session, Request::DeregisterMemory { stag }).unwrap();
    assert_eq!(bench.level("held_remote_regions"), 1);
    register().unwrap();
    drop(session);
    assert_eq!(bench.level("held_remote_regions"), 0);

    let bench = self::bench(0);
    let session = bench.client();
    let pd = super::pd(&session);
    let (reply, _) = session.request(request(pd), vec![open("/proc/self/mem")]);
    let refusal = reply.unwrap_err();
    assert_eq!(refusal.code, RefusalCode::Limit);
    assert!(refusal.message.contains("remote_regions"), "{refusal}");
}

/// With our rights some files of procfs would take what the client could not write itself.
#[test]
fn nothing_but_memory_passes_for_memory() {
    let bytes = vec![0; LEN as usize];
    let bench = bench(9);
    let session = bench.client();
    let pd = pd(&session);
    let directory = tempfile::tempdir().unwrap();
    let imposter = directory.path().join("mem");
    std::fs::write(&imposter, [0; 100]).unwrap();
    let maps = File::open("/proc/self/maps").unwrap().into();
    let others = [
        open("/proc/self/comm"),
        open("/proc/self/oom_score_adj"),
        open(&imposter),
        open("/dev/null"),
        maps,
        memfd(LEN as usize),
    ];
    for fd in others {
        let name = format!("{fd:?}");
        let (reply, _) =
            session.request(remote(pd, Access::LOCAL_WRITE, address(&bytes)), vec![fd]);
        assert_eq!(refused(reply), RefusalCode::BadMemory, "{name}");
    }
    assert_eq!(bench.level("held_remote_regions"), 0);
}

#[test]
fn a_region_has_no_right_that_its_descriptor_has_not() {
    let bytes = vec![0; LEN as usize];
    let bench = bench(9);
    let session = bench.client();
    let pd = pd(&session);
    let to_read = || File::open("/proc/self/mem").unwrap().into();
    let ask = |access, fd| {
        session
            .request(remote(pd, access, address(&bytes)), vec![fd])
            .0
    };
    let reading = Access::REMOTE_READ;
    ask(reading, to_read()).unwrap();
    assert_eq!(
        refused(ask(Access::LOCAL_WRITE, to_read())),
        RefusalCode::BadMemory
    );
    ask(Access::LOCAL_WRITE, open("/proc/self/mem")).unwrap();
    let atomics = refused(ask(Access::ALL, open("/proc/self/mem")));
    assert_eq!(atomics, RefusalCode::Malformed);
}

#[test]
fn what_is_not_mapped_is_not_registered() {
    let bench = bench(9);
    let session = bench.client();
    let pd = pd(&session);
    for address in [0, 4096, u64::MAX - LEN, 1 << 63] {
        let request = remote(pd, Access::LOCAL_WRITE, address);
        let (reply, _) = session.request(request, vec![open("/proc/self/mem")]);
        assert_eq!(refused(reply), RefusalCode::BadMemory, "{address:#x}");
    }
}
