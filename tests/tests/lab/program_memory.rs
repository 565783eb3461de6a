//! Memory that a program made itself, of every kind, registered over a daemon.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rnic::admin::MemoryKind;
use rnic::admin::{Kind, Object};
use rnic::embedded::{Device, DeviceConfig};
use rnic::{
    Access, Context, DisconnectReason, Error, MemoryRegion, ProtectionDomain, RefusalCode,
    WcStatus, WorkRequest,
};
use rnic_tests::daemon::{Daemon, DaemonOptions};
use rnic_tests::lab::{Family, Lab, LinkOptions};
use rnic_tests::pattern::Pattern;
use rnic_tests::verbs::{Endpoint, connect};

const PORT: u16 = 18515;
const PAGE: usize = 4096;
const ACCESS: Access = Access::READ_WRITE;

/// Among a program's data: not zero, so in no page of zeroes.
static DATA: [AtomicU64; 8] = [const { AtomicU64::new(1) }; 8];

/// Bytes of a program's that are no more than an address to this test.
fn register(pd: &ProtectionDomain, start: *mut u8, len: usize) -> Result<MemoryRegion, Error> {
    let start = NonNull::new(start).expect("memory");
    // SAFETY: each test keeps its memory longer than its regions, and reaches it by raw copies, by
    // atomics, or when nothing is under way.
    unsafe { pd.register_memory(start, len, ACCESS) }
}

struct Pair {
    at: SocketAddr,
    _lab: Lab,
    _daemon_a: Daemon,
    daemon_b: Daemon,
    peer: Endpoint,
    owner: Endpoint,
}

impl Pair {
    fn new(name: &str, len: usize) -> Self {
        let mut lab = Lab::new(name);
        let (a, b) = lab.pair(&LinkOptions::default());
        let daemon_a = Daemon::start(&lab, &a, &DaemonOptions::default());
        let daemon_b = Daemon::start(&lab, &b, &DaemonOptions::default());
        let (peer, owner) = (Endpoint::new(&daemon_a, len), Endpoint::new(&daemon_b, 64));
        let at = b.address(Family::V4, PORT);
        connect(&peer, &owner, at);
        Self {
            at,
            _lab: lab,
            _daemon_a: daemon_a,
            daemon_b,
            peer,
            owner,
        }
    }

    /// The owner's address, with another port.
    fn at(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.at.ip(), port)
    }

    #[track_caller]
    fn everything_works(&self, region: &MemoryRegion) {
        everything_works(&self.peer, &self.owner, region);
    }
}

/// A Write, a Read, a Send that comes, a Write that goes.
#[track_caller]
fn everything_works(peer: &Endpoint, owner: &Endpoint, region: &MemoryRegion) {
    let len = region.len();
    let remote = region.remote(0..len).expect("all of it");
    let all = [peer.element(0..len)];
    let written = |seed: u64| Pattern::bytes(seed, peer.region.len())[..len].to_vec();
    let there = || region.to_vec(0..len).expect("all");
    peer.fill(1);
    peer.post(WorkRequest::write(1, &all, remote));
    assert_eq!(peer.completion().status, WcStatus::Success);
    peer.fill(2);
    peer.post(WorkRequest::read(2, &all, remote));
    assert_eq!(peer.completion().status, WcStatus::Success);
    assert!(peer.content()[..len] == written(1));
    assert!(there() == written(1));

    peer.fill(3);
    let place = [region.slice(0..len).expect("all")];
    let receive = WorkRequest::recv(3, &place);
    owner.qp.post_recv(receive).expect("room");
    peer.post(WorkRequest::send(3, &all));
    assert_eq!(peer.completion().status, WcStatus::Success);
    assert_eq!(owner.completion().status, WcStatus::Success);
    assert!(there() == written(3));

    region.write(0, &written(4)).expect("all");
    owner.post(WorkRequest::write(4, &place, peer.remote()));
    assert_eq!(owner.completion().status, WcStatus::Success);
    // The peer knows when it has its answer.
    peer.post(WorkRequest::read(5, &all[..0], remote));
    assert_eq!(peer.completion().status, WcStatus::Success);
    assert!(peer.content()[..len] == written(4));
}

#[test]
fn memory_of_every_kind_takes_and_gives_at_the_program_s_addresses() {
    const LEN: usize = 1_000_000;
    let pair = Pair::new("program-memory", LEN);
    let pd = &pair.owner.pd;
    let remote_regions = || pair.daemon_b.counter("held_remote_regions");

    // Odd bytes of a large allocation; a few in the middle of a page of the heap, twice; overlapping.
    let mut large = vec![0_u8; LEN + 100];
    let mut small = Box::new([0_u8; 300]);
    let large_start = large.as_mut_ptr();
    let small_start = small.as_mut_ptr();
    let regions = [
        register(pd, large_start.wrapping_add(33), LEN).expect("a large one"),
        register(pd, small_start.wrapping_add(7), 64).expect("a small one"),
        register(pd, small_start.wrapping_add(40), 100).expect("one that overlaps it"),
        register(pd, large_start.wrapping_add(500), 100_000).expect("a part"),
    ];
    assert_eq!(
        remote_regions(),
        0,
        "all of them have their pages in a memfd"
    );
    assert_eq!(regions[0].addr(), large_start.addr() as u64 + 33);
    regions
        .iter()
        .for_each(|region| pair.everything_works(region));
    drop(regions);
    // Private again, with what came.
    assert_eq!(large[500..700], Pattern::bytes(4, LEN)[..200]);

    let data = register(pd, DATA.as_ptr().cast_mut().cast(), 64).expect("a static");
    assert_eq!(
        remote_regions(),
        1,
        "a file's pages are reached by the accessor"
    );
    pair.everything_works(&data);
    let mut here = [0_u8; 256];
    let stack = register(pd, here.as_mut_ptr(), 256).expect("a stack");
    assert_eq!(remote_regions(), 2);
    pair.everything_works(&stack);
    drop((data, stack));
    assert_eq!(remote_regions(), 0);
    assert_eq!(pair.daemon_b.counter("memory_faults"), 0);
}

/// Threads write, read(2) into and madvise(2) pages while they are registered again and again, and a
/// peer writes beside them.
#[test]
fn a_busy_program_s_memory_comes_and_goes_whole() {
    const LEN: usize = 16 * PAGE;
    let pair = Pair::new("busy-memory", LEN);
    let mut memory = vec![0_u64; 4 * LEN / 8];
    let start = memory.as_mut_ptr();
    let words: &[AtomicU64] =
        // SAFETY: as many words, of which nothing but atomics is made as long as these are.
        unsafe { std::slice::from_raw_parts(start.cast(), memory.len()) };
    let (ours, theirs) = words.split_at(2 * LEN / 8);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|number| {
                let (stop, words) = (&stop, &ours[number..]);
                scope.spawn(move || {
                    let mut count = 0_u64;
                    for word in words.iter().step_by(2 * 61).cycle() {
                        word.fetch_add(1, Ordering::Relaxed);
                        count += 1;
                        if stop.load(Ordering::Relaxed) {
                            return count;
                        }
                    }
                    count
                })
            })
            .collect();
        let caller = scope.spawn(|| {
            let zeroes = std::fs::File::open("/dev/zero").expect("it is there");
            while !stop.load(Ordering::Relaxed) {
                // SAFETY: the last page but some bytes, which nobody else uses.
                let into = unsafe {
                    let last = theirs.as_ptr().cast_mut().cast::<u8>().add(2 * LEN - PAGE);
                    std::slice::from_raw_parts_mut(last, PAGE - 100)
                };
                match rustix::io::read(&zeroes, &mut *into) {
                    Ok(_) | Err(rustix::io::Errno::FAULT) => {}
                    Err(other) => panic!("{other}"),
                }
                let page = into.as_mut_ptr().map_addr(|at| at / PAGE * PAGE).cast();
                let advice = rustix::mm::Advice::Normal;
                // SAFETY: changes no byte.
                unsafe { rustix::mm::madvise(page, PAGE, advice) }.expect("mapped");
            }
        });
        for round in 0..60_u64 {
            let all = register(&pair.owner.pd, start.cast(), 4 * LEN).expect("it may be");
            let part = theirs.as_ptr().cast_mut().cast::<u8>();
            let part = register(&pair.owner.pd, part, LEN).expect("a part of it");
            pair.peer.fill(round);
            let remote = part.remote(0..LEN).expect("all");
            let element = [pair.peer.element(0..LEN)];
            pair.peer.post(WorkRequest::write(1, &element, remote));
            assert_eq!(pair.peer.completion().status, WcStatus::Success);
            pair.peer.post(WorkRequest::read(2, &element[..0], remote));
            assert_eq!(pair.peer.completion().status, WcStatus::Success);
            drop(all);
            assert!(part.to_vec(0..LEN).expect("all") == Pattern::bytes(round, LEN));
            drop(part);
        }
        stop.store(true, Ordering::Relaxed);
        let written: u64 = writers
            .into_iter()
            .map(|one| one.join().expect("no panic"))
            .sum();
        caller.join().expect("no panic");
        let there: u64 = ours.iter().map(|word| word.load(Ordering::Relaxed)).sum();
        assert_eq!(there, written);
    });
    assert_eq!(pair.daemon_b.counter("memory_faults"), 0);
}

#[test]
fn how_memory_is_reached_is_shown_and_a_terabyte_is_refused_at_once() {
    const TERABYTE: usize = 1 << 40;
    let pair = Pair::new("seen-memory", 4096);
    let mut memory = vec![0_u8; 10_000];
    let regions = [
        register(&pair.owner.pd, memory.as_mut_ptr(), 10_000).expect("a heap's"),
        register(&pair.owner.pd, DATA.as_ptr().cast_mut().cast(), 64).expect("a static's"),
    ];
    let kinds = || {
        let objects = pair.owner.context.inspect(Kind::Regions).expect("our own");
        let kind = |object| match object {
            Object::Region(region) => Some(region.memory),
            _ => None,
        };
        let mut kinds: Vec<_> = objects.into_iter().filter_map(kind).collect();
        kinds.sort_by_key(|kind| kind.name());
        kinds
    };
    // That of the endpoint is there too.
    let all = [MemoryKind::Adopted, MemoryKind::Memfd, MemoryKind::Remote];
    assert_eq!(kinds(), all);
    drop(regions);
    assert_eq!(kinds(), [MemoryKind::Memfd]);

    let flags = rustix::mm::MapFlags::PRIVATE | rustix::mm::MapFlags::NORESERVE;
    let access = rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE;
    // SAFETY: replaces nothing.
    let start =
        unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), TERABYTE, access, flags) }
            .expect("addresses");
    let begun = Instant::now();
    for made in [
        register(&pair.owner.pd, start.cast(), TERABYTE),
        pair.owner.pd.register(TERABYTE, ACCESS),
    ] {
        match made.map(drop) {
            Err(Error::Refused(refusal)) => assert_eq!(refusal.code, RefusalCode::Limit),
            other => panic!("{other:?}"),
        }
    }
    assert!(
        begun.elapsed() < Duration::from_secs(1),
        "{:?}",
        begun.elapsed()
    );
    let touched = std::fs::read_to_string("/proc/self/status").expect("our own");
    let resident = touched.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let resident = resident.and_then(|text| text.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    assert!(resident.expect("it is there") < 1 << 20, "{resident:?} KiB");
    // SAFETY: mapped above.
    unsafe { rustix::mm::munmap(start, TERABYTE) }.expect("mapped");
}

#[test]
fn an_rnic_of_the_program_s_own_process_reaches_its_memory_as_it_is() {
    const LEN: usize = 100_000;
    let device = Device::open(DeviceConfig::loopback()).expect("it needs nothing of the host");
    let end = |bytes| Endpoint::of(Context::embedded(&device).expect("a client"), bytes);
    let (peer, owner) = (end(LEN), end(64));
    connect(&peer, &owner, ([127, 0, 0, 1], PORT).into());
    let mut large = vec![0_u8; LEN];
    let mut here = [0_u8; 100];
    for (start, len) in [
        (large.as_mut_ptr().wrapping_add(11), LEN - 20),
        (here.as_mut_ptr().wrapping_add(1), 64),
        (DATA.as_ptr().cast_mut().cast(), 64),
    ] {
        let region = register(&owner.pd, start, len).expect("memory");
        everything_works(&peer, &owner, &region);
    }
    assert_eq!(large[11..500], Pattern::bytes(4, LEN)[..489]);
}

/// In the program's own process nothing contains a fault, so the same is asked.
#[test]
fn an_rnic_of_the_program_s_own_process_takes_only_what_is_mapped_for_its_rights() {
    let device = Device::open(DeviceConfig::loopback()).expect("it needs nothing of the host");
    let context = Context::embedded(&device).expect("a client");
    let pd = context.alloc_pd().expect("a domain");
    let start = shared(3 * PAGE);
    let protect = |page: usize, flags| {
        // SAFETY: pages that nobody uses.
        unsafe { rustix::mm::mprotect(start.wrapping_add(page * PAGE).cast(), PAGE, flags) }
            .expect("mapped");
    };
    let read = |page: usize, len, access| {
        let start = NonNull::new(start.wrapping_add(page * PAGE)).expect("memory");
        // SAFETY: mapped until the end of the test, where it is registered.
        let region = unsafe { pd.register_memory(start, len, access) };
        match region.map(drop) {
            Err(Error::Refused(refusal)) => Err(refusal.code),
            other => {
                other.expect("a region or a refusal");
                Ok(())
            }
        }
    };
    let reads = Access::REMOTE_READ;
    protect(1, rustix::mm::MprotectFlags::READ);
    assert_eq!(read(0, 2 * PAGE, reads), Ok(()));
    assert_eq!(read(0, 2 * PAGE, ACCESS), Err(RefusalCode::BadMemory));
    protect(1, rustix::mm::MprotectFlags::empty());
    assert_eq!(read(1, 1, reads), Err(RefusalCode::BadMemory));
    // SAFETY: a page that nobody uses.
    unsafe { rustix::mm::munmap(start.wrapping_add(PAGE).cast(), PAGE) }.expect("mapped");
    assert_eq!(read(0, 3 * PAGE, ACCESS), Err(RefusalCode::BadMemory));
    assert_eq!(read(2, PAGE, ACCESS), Ok(()));
}

#[test]
fn what_is_not_there_is_refused_and_nothing_else_suffers() {
    let pair = Pair::new("no-memory", 4096);
    for address in [16_usize, 1 << 46] {
        let start = std::ptr::without_provenance_mut(address);
        match register(&pair.owner.pd, start, 4096).map(drop) {
            Err(Error::Refused(refusal)) => assert_eq!(refusal.code, RefusalCode::BadMemory),
            other => panic!("{address:#x}: {other:?}"),
        }
    }
    let mut memory = vec![0_u8; 4096];
    let region = register(&pair.owner.pd, memory.as_mut_ptr(), 4096).expect("memory");
    pair.everything_works(&region);
}

/// Shared memory without a descriptor, which a daemon reaches by the accessor.
fn shared(len: usize) -> *mut u8 {
    let flags = rustix::mm::MapFlags::SHARED;
    let access = rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE;
    // SAFETY: replaces nothing.
    let start = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, access, flags) };
    start.expect("addresses").cast()
}

/// What is unmapped while it is registered ends its region and the stream that meets it. The client goes on,
/// and so do its other connections.
#[test]
fn memory_that_is_unmapped_costs_a_stream_and_its_region_only() {
    const LEN: usize = 8 * PAGE;
    let pair = Pair::new("unmapped-memory", LEN);
    let (second_peer, second) = (
        Endpoint::of(pair.peer.context.clone(), LEN),
        Endpoint::of(pair.owner.context.clone(), LEN),
    );
    connect(&second_peer, &second, pair.at(PORT + 1));
    let start = shared(LEN);
    let region = register(&pair.owner.pd, start, LEN).expect("shared memory");
    assert_eq!(pair.daemon_b.counter("held_remote_regions"), 1);
    pair.everything_works(&region);
    // SAFETY: mapped above, and used by nobody but the RNIC.
    unsafe { rustix::mm::munmap(start.cast(), LEN) }.expect("mapped");
    let remote = region.remote(0..LEN).expect("all of it");
    let all = [pair.peer.element(0..LEN)];
    pair.peer.post(WorkRequest::write(9, &all, remote));
    assert_ne!(pair.owner.ending(), DisconnectReason::Graceful);
    assert_eq!(pair.daemon_b.counter("memory_faults"), 1);
    assert_eq!(pair.daemon_b.counter("client_faults"), 0);

    let mut memory = vec![0_u8; LEN];
    let another = register(&second.pd, memory.as_mut_ptr(), LEN).expect("the client goes on");
    everything_works(&second_peer, &second, &another);
    drop(region);
    assert_eq!(pair.daemon_b.counter("held_remote_regions"), 0);
    let log = pair.daemon_b.log();
    assert!(log.contains("the memory of its region with STag"), "{log}");
}

/// What of a file is mapped, shared, with its descriptor: a memfd that may shrink, or a file of /dev/shm.
fn shrinkable(of_shm: bool, len: usize) -> (OwnedFd, *mut u8) {
    use rustix::fs::{MemfdFlags, Mode, OFlags};
    let fd = match of_shm {
        true => {
            let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
            rustix::fs::open("/dev/shm", flags, Mode::RUSR | Mode::WUSR)
        }
        false => rustix::fs::memfd_create("rnic-tests", MemfdFlags::CLOEXEC),
    };
    let fd = fd.expect("a file in memory");
    rustix::fs::ftruncate(&fd, len as u64).expect("a size");
    let flags = rustix::mm::MapFlags::SHARED;
    let access = rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE;
    // SAFETY: replaces nothing.
    let start = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, access, flags, &fd, 0) };
    (fd, start.expect("addresses").cast())
}

/// A file that shrinks below a registered mapping takes its pages away: whoever touches one gets SIGBUS. That is
/// neither the daemon's end nor the client's: it ends the region and the stream that meets it.
#[test]
fn a_file_that_shrinks_below_a_region_costs_a_stream_and_the_region_only() {
    const LEN: usize = 8 * PAGE;
    let mut pair = Pair::new("shrinking-memory", LEN);
    let (second_peer, second) = (
        Endpoint::of(pair.peer.context.clone(), LEN),
        Endpoint::of(pair.owner.context.clone(), LEN),
    );
    connect(&second_peer, &second, pair.at(PORT + 1));
    let mut faults = 0;
    for (of_shm, is_read) in [(false, false), (false, true), (true, false), (true, true)] {
        let case = format!("/dev/shm: {of_shm}, by a Read: {is_read}");
        let peer = Endpoint::of(pair.peer.context.clone(), LEN);
        let owner = Endpoint::of(pair.owner.context.clone(), LEN);
        connect(&peer, &owner, pair.at(PORT + 2 + faults as u16));
        let (file, start) = shrinkable(of_shm, LEN);
        let region = register(&owner.pd, start, LEN).expect("shared memory");
        everything_works(&peer, &owner, &region);
        // The second half.
        rustix::fs::ftruncate(&file, LEN as u64 / 2).expect("a smaller size");
        let remote = region.remote(0..LEN).expect("all of it");
        let all = [peer.element(0..LEN)];
        peer.post(match is_read {
            true => WorkRequest::read(9, &all, remote),
            false => WorkRequest::write(9, &all, remote),
        });
        assert_ne!(owner.ending(), DisconnectReason::Graceful, "{case}");
        faults += 1;
        assert_eq!(pair.daemon_b.counter("memory_faults"), faults, "{case}");
        assert_eq!(pair.daemon_b.counter("client_faults"), 0, "{case}");
        // The same client's memory and connections are well, and so is the daemon.
        let mut memory = vec![0_u8; LEN];
        let another = register(&second.pd, memory.as_mut_ptr(), LEN).expect("the client goes on");
        everything_works(&second_peer, &second, &another);
        drop(region);
        assert_eq!(pair.daemon_b.counter("held_remote_regions"), 0, "{case}");
        // SAFETY: mapped above, and used by nobody.
        unsafe { rustix::mm::munmap(start.cast(), LEN) }.expect("mapped");
    }
    pair.daemon_b.assert_alive();
}
