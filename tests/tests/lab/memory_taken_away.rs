//! Clients that try to take away memory which the RNIC has, or to have it pay for theirs: nobody
//! punches a hole into a registered memfd, and what has no pages yet is not registered. Beside them
//! others transfer as if they were not there.

use std::os::fd::{AsFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rnic::{Access, Context, Error, Refusal, RefusalCode, WcStatus, WorkRequest};
use rnic_ipc::control::{MemoryKind, PROTOCOL_VERSION, RegionSpec, Request, Response};
use rnic_ipc::shm::SharedMemory;
use rnic_ipc::transport::Channel;
use rnic_tests::huge_pages::{self, HUGE_PAGE, HugePages};
use rnic_tests::lab::Family;
use rnic_tests::pair::Pair;
use rnic_tests::user::{open_to_all, run_as};
use rnic_tests::verbs::{Endpoint, FULL_ACCESS, connect};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;

const PORT: u16 = 18515;
const ATTACKER: u32 = 61_003;
/// Bytes of a memfd without pages.
const LARGE: usize = 512 << 20;
/// Bytes of a memfd in which a hole would take its time: half a second.
const PUNCHED: usize = 1 << 30;
/// Bytes at its end that a peer writes and reads.
const PIECE: usize = 4096;
/// How often it is tried.
const PUNCHES: usize = 5;
/// Between two times.
const PAUSE: Duration = Duration::from_millis(50);
/// How long a neighbour's Write and Read may take at the worst. Without the seal each hole keeps the
/// shard, and so the neighbour, longer than that.
const LONGEST: Duration = Duration::from_millis(300);

/// Says that it is over, also when what it stands beside panics.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Transfers between two clients that have done nothing wrong, until told to stop; each is verified.
/// How many, and how long the longest took.
fn transfer(pair: &Pair, port: u16, over: &AtomicBool) -> (u64, Duration) {
    let a = Endpoint::new(&pair.daemon_a, 50_000);
    let b = Endpoint::new(&pair.daemon_b, 50_000);
    connect(&a, &b, pair.b.address(Family::V4, port));
    let (mut count, mut longest) = (0, Duration::ZERO);
    loop {
        let began = Instant::now();
        a.fill(count);
        let all = [a.element(0..50_000)];
        a.post(WorkRequest::write(1, &all, b.remote()));
        assert_eq!(a.completion().status, WcStatus::Success);
        a.fill(count + 1000);
        a.post(WorkRequest::read(2, &all, b.remote()));
        assert_eq!(a.completion().status, WcStatus::Success);
        assert!(a.holds(count) && b.holds(count), "transfer {count}");
        count += 1;
        longest = longest.max(began.elapsed());
        if over.load(Ordering::Relaxed) {
            return (count, longest);
        }
    }
}

/// A memfd of ordinary pages that can't shrink. None of them is there yet.
fn sparse(len: usize) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = rustix::fs::memfd_create("rnic-tests", flags).expect("a memfd");
    rustix::fs::ftruncate(&fd, len as u64).expect("a size");
    rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK).expect("a seal");
    fd
}

/// Punches a hole of all of a memfd, which has all pages when that begins, again and again; what each
/// time came of it.
fn punch(memfd: &OwnedFd, len: usize) -> Vec<Result<(), Errno>> {
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let again = |_| {
        std::thread::sleep(PAUSE);
        let punched = rustix::fs::fallocate(memfd, hole, 0, len as u64);
        if punched.is_ok() {
            let pages = FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(memfd, pages, 0, len as u64).expect("pages");
        }
        punched
    };
    (0..PUNCHES).map(again).collect()
}

#[test]
fn nobody_punches_holes_into_registered_memory_of_any_pages() {
    const HUGE: usize = 2 * HUGE_PAGE;
    let pair = Pair::new("taken-away");
    let _more = HugePages::more(4);
    let over = AtomicBool::new(false);
    let memfds = [
        (sparse(PUNCHED), PUNCHED),
        (huge_pages::memfd(HUGE / HUGE_PAGE), HUGE),
    ];
    let (mut punched, mut sound) = (Vec::new(), true);
    let (transfers, longest) = std::thread::scope(|scope| {
        let neighbour = scope.spawn(|| transfer(&pair, PORT + 99, &over));
        let end = Over(&over);
        for (number, &(ref memfd, len)) in memfds.iter().enumerate() {
            let owner = Endpoint::new(&pair.daemon_b, 64);
            let region = owner.pd.register_fd(memfd, 0, len, FULL_ACCESS);
            let region = region.expect("a sealed memfd is memory, whatever its pages are");
            let peer = Endpoint::new(&pair.daemon_a, PIECE);
            connect(
                &peer,
                &owner,
                pair.b.address(Family::V4, PORT + number as u16),
            );
            peer.fill(1);
            let all = [peer.element(0..PIECE)];
            // The last page that a hole takes.
            let remote = region.remote(len - PIECE..len).expect("the end");
            let puncher = scope.spawn(move || punch(memfd, len));
            loop {
                let last = puncher.is_finished();
                peer.post(WorkRequest::write(1, &all, remote));
                assert_eq!(peer.completion().status, WcStatus::Success);
                peer.post(WorkRequest::read(2, &all, remote));
                assert_eq!(peer.completion().status, WcStatus::Success);
                if last {
                    break;
                }
            }
            sound &= peer.holds(1);
            punched.push(puncher.join().expect("no panic"));
        }
        drop(end);
        neighbour.join().expect("the neighbour is well")
    });
    println!("{transfers} transfers beside it, the longest of {longest:?}");
    assert!(transfers > 0);
    assert!(
        longest < LONGEST,
        "the longest of {transfers} took {longest:?}"
    );
    assert!(sound, "what was written was not read");
    assert_eq!(punched, vec![vec![Err(Errno::PERM); PUNCHES]; 2]);
    let _ = pair.daemon_b.stop();
}

#[test]
fn memory_without_pages_is_refused_and_costs_the_daemon_nothing() {
    let pair = Pair::new("sparse-memory");
    let daemon = &pair.daemon_a;
    let channel = Channel::connect(daemon.socket()).expect("it serves");
    let ask = |request: &Request, fds: &[_]| {
        channel.send(request, fds).expect("it listens");
        let (reply, _) = channel.recv_reply().expect("sound").expect("an answer");
        reply
    };
    let version = PROTOCOL_VERSION;
    ask(&Request::Hello { version }, &[]).expect("a welcome");
    let Ok(Response::Pd(pd)) = ask(&Request::AllocPd, &[]) else {
        panic!("no domain");
    };
    let memfd = sparse(LARGE);
    let register = Request::RegisterMemory(RegionSpec {
        pd,
        stream: None,
        access: Access::ALL,
        base: 0,
        offset: 0,
        length: LARGE as u64,
        memory: MemoryKind::Memfd,
    });
    let before = daemon.resident_bytes();
    let refusal = ask(&register, &[memfd.as_fd()]).expect_err("no page is there");
    assert_eq!(refusal.code, RefusalCode::BadMemory);
    assert!(
        refusal
            .message
            .contains("536870912 bytes of the memfd have no page yet"),
        "{refusal}"
    );
    assert_eq!(rustix::fs::fstat(&memfd).expect("a file").st_blocks, 0);
    // All but the last page.
    let owner = SharedMemory::map(&memfd, 0, LARGE as u64).expect("mapped");
    for page in (0..LARGE - 4096).step_by(4096) {
        owner.write(page, b"x").expect("a page");
    }
    let refusal = ask(&register, &[memfd.as_fd()]).expect_err("a page is not there");
    assert!(refusal.message.contains("at offset 536866816"), "{refusal}");
    owner.populate().expect("pages");
    ask(&register, &[memfd.as_fd()]).expect("all is there");
    let grown = daemon.resident_bytes().saturating_sub(before);
    assert!(grown < 1 << 20, "the daemon has {grown} bytes more");
}

#[test]
fn memory_of_huge_pages_needs_some_and_says_how_to_get_them() {
    let pair = Pair::new("huge-pages");
    let context = pair.daemon_a.open();
    let pd = context.alloc_pd().expect("a domain");
    let _more = HugePages::more(4);
    let region = pd
        .register_huge(3 << 20, FULL_ACCESS)
        .expect("there are pages");
    assert_eq!(region.len(), 3 << 20);
    drop(region);
    let _taken = huge_pages::take_all();
    let error = pd.register_huge(1, FULL_ACCESS).map(drop);
    let error = error.expect_err("no page is left").to_string();
    assert!(
        error.contains("1 huge pages") && error.contains("vm.nr_hugepages"),
        "{error}"
    );
}

/// Shared memory without a seal is in no memfd that the daemon takes. Who punches holes into it, or locks its
/// address space, keeps whoever reaches it by `/proc/self/mem` for as long; so another user has none.
#[test]
fn another_user_s_memory_keeps_no_neighbour_waiting() {
    let pair = Pair::new("waited-for");
    open_to_all(&pair.daemon_b);
    let over = AtomicBool::new(false);
    let (refusal, (transfers, longest)) = std::thread::scope(|scope| {
        let neighbour = scope.spawn(|| transfer(&pair, PORT + 99, &over));
        let end = Over(&over);
        let refusal = have_it_wait(&pair);
        drop(end);
        (refusal, neighbour.join().expect("the neighbour is well"))
    });
    println!("{transfers} transfers beside it, the longest of {longest:?}");
    assert!(
        longest < LONGEST,
        "the longest of {transfers} took {longest:?}"
    );
    let refusal = refusal.expect("memory that makes others wait");
    assert_eq!(refusal.code, RefusalCode::Limit, "{refusal}");
    for words in ["remote_regions is 0", "[user.NAME]"] {
        assert!(refusal.message.contains(words), "{refusal}");
    }
    // What a program gets of malloc(3) it registers as ever.
    let pages = vec![0_u8; 10 * PIECE];
    let owner = Endpoint::of(attacker(&pair), 64);
    let start = NonNull::new(pages.as_ptr().cast_mut()).expect("memory");
    // SAFETY: nobody uses it.
    let region = unsafe {
        owner
            .pd
            .register_memory(start, pages.len(), Access::READ_WRITE)
    };
    drop(region.expect("memory of the heap"));
    assert_eq!(pair.daemon_b.counter("held_remote_regions"), 0);
    let _ = pair.daemon_b.stop();
}

/// A client of another user's than the daemon's. This process stays who it is.
fn attacker(pair: &Pair) -> Context {
    let socket = pair.daemon_b.socket();
    run_as(ATTACKER, || {
        rnic::Daemon::at(socket).and_then(|it| it.open(None))
    })
    .expect("the daemon serves")
}

/// Registers a large file's shared mapping, and punches holes while a peer writes into it; or the refusal.
fn have_it_wait(pair: &Pair) -> Option<Refusal> {
    let file = rustix::fs::memfd_create("rnic-tests", MemfdFlags::CLOEXEC).expect("a memfd");
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, PUNCHED as u64).expect("pages");
    let rights = rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE;
    let shared = rustix::mm::MapFlags::SHARED;
    // SAFETY: replaces nothing.
    let start = unsafe { rustix::mm::mmap(ptr::null_mut(), PUNCHED, rights, shared, &file, 0) };
    let start = NonNull::new(start.expect("addresses").cast::<u8>()).expect("memory");
    let owner = Endpoint::of(attacker(pair), 64);
    let peer = Endpoint::new(&pair.daemon_a, PIECE);
    connect(&peer, &owner, pair.b.address(Family::V4, PORT));
    // SAFETY: mapped as long as this process lives, and reached by nobody else.
    let region = unsafe { owner.pd.register_memory(start, PUNCHED, Access::READ_WRITE) };
    let region = match region {
        Err(Error::Refused(refusal)) => return Some(refusal),
        region => region.expect("a region or a refusal"),
    };
    let all = [peer.element(0..PIECE)];
    let remote = region.remote(PUNCHED - PIECE..PUNCHED).expect("the end");
    std::thread::scope(|scope| {
        let puncher = scope.spawn(|| punch(&file, PUNCHED));
        while !puncher.is_finished() {
            peer.post(WorkRequest::write(1, &all, remote));
            assert_eq!(peer.completion().status, WcStatus::Success);
        }
    });
    None
}
