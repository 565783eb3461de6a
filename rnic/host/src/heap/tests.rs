use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::*;

#[global_allocator]
static OURS: Heap = Heap;

/// Lets this process have so many bytes of addresses beyond those that it has.
struct Limit(Rlimit);

impl Limit {
    fn to(more: u64) -> Self {
        let before = getrlimit(Resource::As);
        let status = std::fs::read_to_string("/proc/self/statm").unwrap();
        let pages: u64 = status.split(' ').next().unwrap().parse().unwrap();
        let current = Some(pages * rustix::param::page_size() as u64 + more);
        let maximum = before.maximum;
        setrlimit(Resource::As, Rlimit { current, maximum }).unwrap();
        Self(before)
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        setrlimit(Resource::As, self.0).unwrap();
    }
}

#[test]
fn an_allocation_that_fails_gets_the_reserve_and_it_is_taken_again_when_there_is_memory() {
    alone(|| {
        const BLOCK: usize = 1 << 20;
        assert!(keep_reserves());
        let mut blocks: Vec<Vec<u8>> = Vec::with_capacity(128);
        let limit = Limit::to(BLOCK as u64 / 2);
        // What the heap has left of its own.
        while has(BLOCK) {
            blocks.push(vec![1; BLOCK]);
        }
        assert_eq!(times_given_back(), 0, "who only asks does not use it");
        for _ in 0..HEAP_RESERVE / BLOCK / 2 {
            blocks.push(vec![1; BLOCK]);
        }
        assert_eq!(times_given_back(), 1);
        assert!(!keep_reserves(), "it is in use");
        blocks.clear();
        drop(limit);
        assert!(keep_reserves());
        assert!(has(BLOCK));
    });
}

#[test]
fn a_thread_begins_or_is_refused_wherever_the_limit_is() {
    alone(|| {
        assert!(keep_reserves());
        let (mut begun, mut refused) = (0, 0);
        // The first limits leave room for the reserve alone, and all of it is used; then there is none.
        let mut threads = Vec::with_capacity(256);
        let (end, wait) = std::sync::mpsc::channel::<()>();
        let wait = std::sync::Arc::new(std::sync::Mutex::new(wait));
        for step in 0..64 {
            let _limit = Limit::to(step * 4096);
            // A size of its own, for which glibc keeps no stack.
            let stack = STACK + step as usize * 4096;
            let wait = wait.clone();
            match start_thread("test", stack, move || wait.lock().unwrap().recv().is_err()) {
                Ok(thread) => {
                    begun += 1;
                    threads.push(thread);
                }
                Err(error) => {
                    assert_eq!(error.raw_os_error(), Some(Errno::NOMEM.raw_os_error()));
                    refused += 1;
                }
            }
        }
        assert!(begun > 0 && refused > 0, "{begun} and {refused}");
        drop(end);
        for thread in threads {
            assert!(thread.join().unwrap());
        }
    });
}

#[test]
fn a_reserve_is_not_taken_while_a_thread_starts() {
    alone(|| {
        assert!(keep_reserves());
        assert!(THREADS.give_back());
        let starts = shm::no_mapping();
        let (taken, is_taken) = std::sync::mpsc::channel();
        let taker = std::thread::spawn(move || taken.send(keep_reserves()));
        let early = is_taken.recv_timeout(Duration::from_millis(300));
        drop(starts);
        assert!(early.is_err(), "it took what a thread was promised");
        assert!(is_taken.recv().unwrap(), "it waits no longer than that");
        taker.join().unwrap().unwrap();
    });
}

#[test]
fn threads_begin_while_reserves_are_taken_again() {
    alone(|| {
        assert!(keep_reserves());
        let (stop, is_stopped) = std::sync::mpsc::channel::<()>();
        let empty = Err(std::sync::mpsc::TryRecvError::Empty);
        let (begins, has_begun) = std::sync::mpsc::channel();
        let taker = std::thread::spawn(move || {
            begins.send(()).unwrap();
            while is_stopped.try_recv() == empty {
                keep_reserves();
            }
        });
        // Before any limit: std ends the process when a thread of its own finds no memory to begin with.
        has_begun.recv().unwrap();
        for step in 1..=500 {
            assert!(keep_reserves());
            // A size of its own, for which glibc keeps no stack. Without the reserve there is room for it, and
            // for some pages.
            let stack = STACK + step * 4096;
            let _limit = Limit::to((stack + step / 7 % 8 * 4096) as u64);
            let thread = start_thread("test", stack, || ());
            thread.expect("the reserve is for it").join().unwrap();
        }
        drop(stop);
        taker.join().unwrap();
    });
}

#[test]
fn a_panic_whose_backtrace_finds_no_memory_ends_the_process() {
    let Some(Ended { status, stderr, .. }) = in_a_process_of_its_own(panic_without_memory) else {
        return;
    };
    let abort = rustix::process::Signal::ABORT.as_raw();
    assert_eq!(status.signal(), Some(abort), "{stderr}");
    assert!(stderr.contains("the reserve is used up"), "{stderr}");
}

/// The limit is one of data, with which files can be mapped: a backtrace begins to read debug
/// information, and fails later.
fn panic_without_memory() {
    assert!(keep_reserves());
    let mut blocks: Vec<Vec<u8>> = Vec::with_capacity(1 << 20);
    // Of 0 the kernel makes none (a workaround for Valgrind).
    let (current, maximum) = (Some(1), getrlimit(Resource::Data).maximum);
    setrlimit(Resource::Data, Rlimit { current, maximum }).unwrap();
    assert!(HEAP.give_back());
    while has(4096) {
        blocks.push(vec![1; 4096]);
    }
    panic!("its backtrace finds no memory");
}

/// Runs a test's work in a process of its own: the reserves and the limits are the process's, and other tests would
/// change them, or fail by them.
#[track_caller]
fn alone(work: impl FnOnce()) {
    if let Some(ended) = in_a_process_of_its_own(work) {
        let passed = ended.status.success() && ended.stdout.contains("1 passed");
        assert!(passed, "{ended:?}");
    }
}

/// Set in such a process.
const ALONE: &str = "RNIC_TEST_ALONE";
/// How long such a process may take.
const LIMIT: Duration = Duration::from_secs(60);

/// How a process ended, and what it said.
#[derive(Debug)]
struct Ended {
    status: ExitStatus,
    stdout: String,
    stderr: String,
}

/// Runs the test whose work this is in another process, and tells how that ended; there, does the work.
fn in_a_process_of_its_own<F: FnOnce()>(work: F) -> Option<Ended> {
    if std::env::var_os(ALONE).is_some() {
        work();
        return None;
    }
    let test = std::thread::current().name().unwrap().to_owned();
    let child = Command::new(std::env::current_exe().unwrap())
        .args([&test, "--exact", "--nocapture"])
        .env(ALONE, "1")
        .env("RUST_BACKTRACE", "full")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.unwrap();
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > LIMIT {
            child.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let ended = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Some(Ended {
        status: ended.status,
        stdout: text(&ended.stdout),
        stderr: text(&ended.stderr),
    })
}
