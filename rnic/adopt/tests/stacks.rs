//! Stacks: those of threads are left alone, and threads live on while others are exchanged.

#![allow(clippy::unwrap_used)]

use std::cell::Cell;
use std::ffi::c_void;
use std::ops::Range;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rnic_adopt::{Needed, Neighbours, NotAdopted, adopted_bytes};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};

const PAGE: usize = 4096;

/// Exchanges the pages of a range, and gives them back.
fn place(range: Range<usize>) -> Result<(), NotAdopted> {
    // SAFETY: the tests have the ranges mapped meanwhile.
    unsafe {
        rnic_adopt::place(
            range.start,
            range.len(),
            Needed::ReadAndWrite,
            Neighbours::Exchanged,
        )
    }
    .map(drop)
}

/// See `exchange.rs`. Reading where threads stand asks for no privilege, but for a process that may be
/// looked into, which one that gave up its user is not.
fn become_nobody() {
    const NOBODY: libc::c_long = 65_534;
    // SAFETY: takes plain numbers.
    let done = unsafe { libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) };
    assert_eq!(done, 0, "this needs root");
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::Dumpable).unwrap();
}

/// Private pages, with a page without rights below them.
struct Stack {
    start: *mut c_void,
    len: usize,
}

impl Stack {
    fn new(len: usize) -> Self {
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: replaces nothing; the first and the last page are of nobody's use.
        let start = unsafe {
            let whole = len + 2 * PAGE;
            let start =
                rustix::mm::mmap_anonymous(ptr::null_mut(), whole, rights, MapFlags::PRIVATE)
                    .unwrap();
            for page in [start, start.byte_add(PAGE + len)] {
                rustix::mm::mprotect(page, PAGE, MprotectFlags::empty()).unwrap();
            }
            start.byte_add(PAGE)
        };
        Self { start, len }
    }

    fn range(&self) -> Range<usize> {
        let start = self.start.expose_provenance();
        start..start + self.len
    }

    /// The page below them can be read: it looks like no guard.
    fn without_guard(self) -> Self {
        let rights = MprotectFlags::READ;
        // SAFETY: the first page, which nobody uses.
        unsafe { rustix::mm::mprotect(self.start.byte_sub(PAGE), PAGE, rights) }.unwrap();
        self
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: what `new` mapped; nobody stands there any more.
        unsafe { rustix::mm::munmap(self.start.byte_sub(PAGE), self.len + 2 * PAGE) }.unwrap();
    }
}

// SAFETY: an address.
unsafe impl Sync for Stack {}

thread_local! {
    static LOCAL: [AtomicU64; 8] = const { [const { AtomicU64::new(0) }; 8] };
    static ON_FIBER: Cell<Option<&'static dyn Fn()>> = const { Cell::new(None) };
}

/// Runs `work` on the stack, as a fiber.
fn on_fiber(stack: &Stack, work: &dyn Fn()) {
    extern "C" fn enter() {
        let work = ON_FIBER.take().unwrap();
        work();
    }
    // SAFETY: the fiber ends before this function does, and with it the use of `work`; both contexts
    // are filled in by getcontext before they are used.
    unsafe {
        ON_FIBER.set(Some(std::mem::transmute::<&dyn Fn(), &'static dyn Fn()>(
            work,
        )));
        let mut here: libc::ucontext_t = std::mem::zeroed();
        let mut there: libc::ucontext_t = std::mem::zeroed();
        assert_eq!(libc::getcontext(&mut there), 0);
        there.uc_stack.ss_sp = stack.start;
        there.uc_stack.ss_size = stack.len;
        there.uc_link = &raw mut here;
        libc::makecontext(&mut there, enter, 0);
        assert_eq!(libc::swapcontext(&mut here, &there), 0);
    }
}

/// Has `work` done by a thread whose stack is memory of the program's.
fn on_own_stack(stack: &Stack, work: &(dyn Fn() + Sync)) {
    extern "C" fn enter(work: *mut c_void) -> *mut c_void {
        // SAFETY: a reference to what the caller waits with.
        let work = unsafe { *work.cast::<&(dyn Fn() + Sync)>() };
        work();
        ptr::null_mut()
    }
    // SAFETY: the thread ends before this function does.
    unsafe {
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        assert_eq!(libc::pthread_attr_init(&mut attributes), 0);
        let set = libc::pthread_attr_setstack(&mut attributes, stack.start, stack.len);
        assert_eq!(set, 0);
        let mut made: libc::pthread_t = 0;
        let argument = (&raw const work).cast_mut().cast();
        let started = libc::pthread_create(&mut made, &attributes, enter, argument);
        assert_eq!(started, 0);
        assert_eq!(libc::pthread_join(made, ptr::null_mut()), 0);
        libc::pthread_attr_destroy(&mut attributes);
    }
}

/// What a thread has told another.
fn told(cell: &AtomicUsize) -> usize {
    let since = Instant::now();
    while cell.load(Ordering::Acquire) == 0 {
        assert!(since.elapsed() < Duration::from_secs(10), "told nothing");
        thread::yield_now();
    }
    cell.load(Ordering::Acquire)
}

fn page_of(address: usize) -> Range<usize> {
    let start = address / PAGE * PAGE;
    start..start + PAGE
}

#[test]
fn another_thread_s_stack_is_left_alone() {
    stacks_are_left_alone();
}

#[test]
fn another_thread_s_stack_is_left_alone_without_privilege() {
    become_nobody();
    stacks_are_left_alone();
}

fn stacks_are_left_alone() {
    let (here, local, stop) = (
        AtomicUsize::new(0),
        AtomicUsize::new(0),
        AtomicBool::new(false),
    );
    // One that runs, so that its stack pointer is not told.
    let run = || {
        let bytes = [7_u8; 64];
        LOCAL.with(|words| local.store(words.as_ptr().addr(), Ordering::Release));
        here.store(bytes.as_ptr().addr(), Ordering::Release);
        while !stop.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    };
    let stack = Stack::new(2 << 20).without_guard();
    let check = |deep: usize| {
        let at = told(&here);
        let addresses = [at, at - deep, told(&local)];
        let pages = addresses.map(|address| place(page_of(address)));
        let words = addresses.map(|address| place(address..address + 8));
        let lowest = place(page_of(stack.range().start));
        stop.store(true, Ordering::Relaxed);
        assert_eq!(pages, [const { Err(NotAdopted::Stack) }; 3]);
        assert_eq!(words, [const { Err(NotAdopted::Stack) }; 3]);
        // Far below a stack without a guard other memory may lie.
        assert_eq!(lowest, Ok(()));
    };
    thread::scope(|scope| {
        scope.spawn(run);
        check(1 << 20);
    });
    for cell in [&here, &local] {
        cell.store(0, Ordering::Relaxed);
    }
    stop.store(false, Ordering::Relaxed);
    thread::scope(|scope| {
        scope.spawn(|| on_own_stack(&stack, &run));
        check(128 << 10);
    });
    assert_eq!(place(stack.range()), Ok(()), "nobody stands on it any more");
}

/// Keeps what is logged, and needs the table meanwhile.
struct Logger(Mutex<Vec<String>>);

static LOGGER: Logger = Logger(Mutex::new(Vec::new()));

impl log::Log for Logger {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let line = format!("{}: {}", adopted_bytes(), record.args());
        self.0.lock().unwrap().push(line);
    }

    fn flush(&self) {}
}

#[test]
fn pages_that_became_a_stack_stay_in_the_memfd_and_the_log_says_so() {
    log::set_logger(&LOGGER).unwrap();
    log::set_max_level(log::LevelFilter::Warn);
    let stack = Stack::new(256 << 10);
    let range = stack.range();
    // SAFETY: the pages stay mapped.
    let held = unsafe {
        rnic_adopt::place(
            range.start,
            range.len(),
            Needed::ReadAndWrite,
            Neighbours::Exchanged,
        )
    };
    let held = Mutex::new(Some(held.unwrap()));
    on_own_stack(&stack, &|| drop(held.lock().unwrap().take()));
    assert_eq!(adopted_bytes(), 256 << 10);
    let logged = LOGGER.0.lock().unwrap();
    let expected = format!(
        "{0}: {0} bytes at {1:#x} stay in a memfd after they were deregistered: \
         a part of it is a thread's stack",
        256 << 10,
        range.start
    );
    assert_eq!(*logged, [expected]);
}

/// Where system calls fail, what comes back from one must find its stack.
#[test]
fn a_fiber_that_waits_in_a_system_call_is_left_alone_without_privilege() {
    become_nobody();
    for guarded in [true, false] {
        let stack = match Stack::new(256 << 10) {
            stack if guarded => stack,
            stack => stack.without_guard(),
        };
        let (here, id) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let (read, write) = std::io::pipe().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                on_fiber(&stack, &|| {
                    let mut bytes = [0_u8; 64];
                    id.store(
                        rustix::thread::gettid().as_raw_pid() as usize,
                        Ordering::Release,
                    );
                    here.store(bytes.as_ptr().addr(), Ordering::Release);
                    assert_eq!(rustix::io::read(&read, &mut bytes).unwrap(), 1);
                });
            });
            let (at, id) = (told(&here), told(&id));
            let waits = || {
                let call = std::fs::read_to_string(format!("/proc/self/task/{id}/syscall"));
                !call.unwrap().starts_with("running")
            };
            while !waits() {
                thread::yield_now();
            }
            let near = place(at..at + 64);
            let lowest = place(page_of(stack.range().start));
            rustix::io::write(&write, &[1]).unwrap();
            assert_eq!(near, Err(NotAdopted::Stack));
            let expected = if guarded {
                Err(NotAdopted::Stack)
            } else {
                Ok(())
            };
            assert_eq!(lowest, expected);
        });
        assert_eq!(place(stack.range()), Ok(()));
    }
}

/// Pages that a fiber stands on, or that its thread has for signals, are taken where it waits for them.
#[test]
fn threads_live_on_while_any_stack_is_exchanged() {
    storm(true);
}

#[test]
fn threads_live_on_while_stacks_are_registered_without_privilege() {
    become_nobody();
    storm(false);
}

static SIGNALS: AtomicU64 = AtomicU64::new(0);

extern "C" fn on_signal(_: libc::c_int) {
    SIGNALS.fetch_add(1, Ordering::Relaxed);
}

/// Has the calling thread handle signals on the stack.
fn signals_on(stack: &Stack) {
    let alternate = libc::stack_t {
        ss_sp: stack.start,
        ss_flags: 0,
        ss_size: stack.len,
    };
    // SAFETY: the stack lives until the thread takes it back.
    assert_eq!(unsafe { libc::sigaltstack(&alternate, ptr::null_mut()) }, 0);
}

fn signals_off() {
    let none = libc::stack_t {
        ss_sp: ptr::null_mut(),
        ss_flags: libc::SS_DISABLE,
        ss_size: 0,
    };
    // SAFETY: no handler runs there.
    assert_eq!(unsafe { libc::sigaltstack(&none, ptr::null_mut()) }, 0);
}

/// What a thread that is in the storm has told of itself.
#[derive(Default)]
struct Told {
    thread: AtomicUsize,
    buffer: AtomicUsize,
}

/// System calls with buffers on the stack, each of which must give what was written.
fn use_stack(told: &Told, own: bool, stop: &AtomicBool) {
    let mut bytes = [0_u8; 3 * PAGE];
    let (read, write) = std::io::pipe().unwrap();
    // SAFETY: gives this thread's name.
    let thread = unsafe { libc::pthread_self() } as usize;
    told.buffer.store(bytes.as_ptr().addr(), Ordering::Release);
    told.thread.store(thread, Ordering::Release);
    let at = bytes.as_ptr().addr();
    for round in 0_u64.. {
        bytes.fill(round as u8);
        assert_eq!(rustix::io::write(&write, &bytes), Ok(bytes.len()));
        bytes.fill(0);
        let mut there = 0;
        while there < bytes.len() {
            match rustix::io::read(&read, &mut bytes[there..]) {
                Ok(count) => there += count,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => panic!("{error}"),
            }
        }
        assert!(bytes.iter().all(|byte| *byte == round as u8), "{round}");
        if own && round.is_multiple_of(16) {
            let _ = place(at..at + bytes.len());
        }
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
}

/// Threads on stacks of all kinds that take signals, while they and another have the stacks exchanged:
/// those of fibers and of signals by `any` only.
fn storm(any: bool) {
    let time = Duration::from_secs(3);
    // A busy machine takes longer for as many.
    let limit = 20 * time;
    // SAFETY: a handler that only counts.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_signal as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = libc::SA_ONSTACK | libc::SA_RESTART;
        let set = libc::sigaction(libc::SIGUSR1, &action, ptr::null_mut());
        assert_eq!(set, 0);
    }
    let stop = AtomicBool::new(false);
    let all: [Told; 4] = Default::default();
    let alternate = Stack::new(64 << 10).without_guard();
    let fiber = Stack::new(256 << 10).without_guard();
    let own = Stack::new(512 << 10).without_guard();
    thread::scope(|scope| {
        let (stop, alternate, fiber, own) = (&stop, &alternate, &fiber, &own);
        let [plain, signalled, on_a_fiber, given] = &all;
        scope.spawn(move || use_stack(plain, true, stop));
        scope.spawn(move || {
            signals_on(alternate);
            use_stack(signalled, true, stop);
            // Of its own it can be exchanged by anybody: its signals wait.
            assert_eq!(place(alternate.range()), Ok(()));
            signals_off();
        });
        scope.spawn(move || on_fiber(fiber, &|| use_stack(on_a_fiber, true, stop)));
        scope.spawn(move || on_own_stack(own, &|| use_stack(given, true, stop)));
        let threads: Vec<_> = all.iter().map(|one| told(&one.thread)).collect();
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                for thread in &threads {
                    // SAFETY: it ends when it is told to stop; a signal after that finds a thread that is
                    // not joined.
                    unsafe { libc::pthread_kill(*thread as libc::pthread_t, libc::SIGUSR1) };
                }
            }
        });
        let since = Instant::now();
        let mut exchanged = 0;
        let enough = |exchanged| !any || exchanged > 100 || since.elapsed() > limit;
        while since.elapsed() < time || !enough(exchanged) {
            for (number, one) in all.iter().enumerate() {
                let at = told(&one.buffer);
                let is_fiber = number == 2;
                if any || !is_fiber {
                    let done = place(at..at + 3 * PAGE);
                    match is_fiber {
                        true => assert!(matches!(done, Ok(()) | Err(NotAdopted::Stack))),
                        false => assert_eq!(done, Err(NotAdopted::Stack)),
                    }
                    exchanged += u64::from(done.is_ok());
                }
            }
            if any {
                exchanged += u64::from(place(alternate.range()).is_ok());
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert_eq!(any, exchanged > 100, "{exchanged}");
    });
    let signals = SIGNALS.load(Ordering::Relaxed);
    assert!(signals > 100, "{signals}");
}
