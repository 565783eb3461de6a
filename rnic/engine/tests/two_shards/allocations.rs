//! The data path does not allocate: the heap of this test binary counts what is asked of it while a
//! shard is polled.
//!
//! Unsafe only to stand between Rust and the system's allocator, which does all the work.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::backtrace::Backtrace;
use std::cell::{Cell, RefCell};
use std::time::Duration;

use rnic_ipc::work::WrOpcode;

use crate::impairment::Impairment;
use crate::side::SideConfig;
use crate::world::World;

struct Counting;

#[global_allocator]
static HEAP: Counting = Counting;

thread_local! {
    /// Whether this thread is in [`counted`], and in none of the tests that do not ask.
    static WATCHING: Cell<bool> = const { Cell::new(false) };
    static COUNT: Cell<u64> = const { Cell::new(0) };
    /// Where the first were asked for.
    static WHERE: RefCell<Vec<Backtrace>> = const { RefCell::new(Vec::new()) };
}

/// Traces that a failure shows.
const TRACES: u64 = 12;

fn count() {
    if !WATCHING.replace(false) {
        return;
    }
    let count = COUNT.get() + 1;
    COUNT.set(count);
    if count <= TRACES {
        WHERE.with_borrow_mut(|all| all.push(Backtrace::force_capture()));
    }
    WATCHING.set(true);
}

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as the caller promised.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as the caller promised.
        unsafe { System.realloc(at, layout, size) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(at, layout) }
    }
}

/// Counts what is asked of the heap in `act`, when `watching`.
pub fn counted<R>(watching: bool, act: impl FnOnce() -> R) -> R {
    WATCHING.set(watching);
    let result = act();
    WATCHING.set(false);
    result
}

/// How often `act` asks the heap for memory.
pub fn allocations_of(act: impl FnOnce()) -> u64 {
    COUNT.set(0);
    WHERE.take();
    counted(true, act);
    COUNT.get()
}

/// Work between two hosts, always as much under way.
struct Steady {
    world: World,
    opcode: WrOpcode,
    len: usize,
    qps: Vec<(rnic_ipc::id::QpNum, rnic_ipc::id::QpNum)>,
    posted: u64,
    done: u64,
}

/// Work under way on each queue pair.
const IN_FLIGHT: u64 = 16;

impl Steady {
    fn new(mut world: World, opcode: WrOpcode, len: usize, queue_pairs: usize) -> Self {
        let qps: Vec<_> = (0..queue_pairs).map(|_| world.connect()).collect();
        world.a.fill(0, len, 1);
        world.b.fill(0, len, 1);
        Self {
            world,
            opcode,
            len,
            qps,
            posted: 0,
            done: 0,
        }
    }

    /// Until so much more work has completed.
    fn work(&mut self, count: u64) {
        let (end, stag) = (self.done + count, self.world.b.stag);
        let sends = self.opcode == WrOpcode::Send;
        while self.done < end {
            while self.posted < self.done + IN_FLIGHT * self.qps.len() as u64 {
                let (qp_a, qp_b) = self.qps[(self.posted % self.qps.len() as u64) as usize];
                let (id, len) = (self.posted, self.len);
                let sink = 2 << 20;
                let (local, remote) = match self.opcode {
                    WrOpcode::Read | WrOpcode::AtomicFetchAdd => (sink, 0),
                    _ => (0, sink),
                };
                if sends {
                    self.world.b.post_recv(qp_b, id, sink, len);
                }
                let remote = (stag, remote);
                self.world
                    .a
                    .post_work(qp_a, self.opcode, id, local, remote, len);
                self.posted += 1;
            }
            self.world.step();
            let (a, b) = (&mut self.world.a, &mut self.world.b);
            // A Send has ended when both sides say so: then there is room for another receive.
            let ended = match sends {
                true => &b.completions,
                false => &a.completions,
            };
            self.done += ended.len() as u64;
            for completion in a.completions.drain(..).chain(b.completions.drain(..)) {
                assert_eq!(completion.status, 0, "{completion:?}");
            }
        }
    }

    /// Not one request of the heap while all queue pairs work over such a link, once one of them has
    /// worked over a good one.
    fn assert_no_allocation(mut self, link: Impairment) -> World {
        let name = format!("{:?} of {}", self.opcode, self.len);
        let others = self.qps.split_off(1);
        self.work(100);
        self.qps.extend(others);
        self.world.a_to_b.impairment = link;
        self.world.b_to_a.impairment = link;
        COUNT.set(0);
        WHERE.take();
        self.world.watched = true;
        self.work(1000);
        self.world.watched = false;
        let traces = WHERE.take();
        let count = COUNT.get();
        assert_eq!(count, 0, "{name}: allocations at {traces:#?}");
        self.world
    }
}

const BAD: Impairment = Impairment {
    loss: 10,
    reorder: 30,
    delay: Duration::from_micros(100),
    ..Impairment::NONE
};

const OPERATIONS: [WrOpcode; 4] = [
    WrOpcode::Write,
    WrOpcode::Send,
    WrOpcode::Read,
    WrOpcode::AtomicFetchAdd,
];

#[test]
fn work_in_order_allocates_nothing() {
    for opcode in OPERATIONS {
        for len in [8, 5000] {
            let world = World::new(1, Impairment::NONE);
            if opcode == WrOpcode::AtomicFetchAdd && len != 8 {
                continue;
            }
            Steady::new(world, opcode, len, 4).assert_no_allocation(Impairment::NONE);
        }
    }
}

#[test]
fn work_over_a_bad_link_allocates_nothing() {
    for opcode in [WrOpcode::Write, WrOpcode::Send, WrOpcode::Read] {
        for markers in [true, false] {
            let mut world = World::new(2, Impairment::NONE);
            world.markers = [markers; 2];
            let mut world = Steady::new(world, opcode, 5000, 2).assert_no_allocation(BAD);
            let sides = [&mut world.a, &mut world.b];
            let early: u64 = sides
                .map(|side| side.counter("bytes_placed_early"))
                .iter()
                .sum();
            assert_eq!(early > 0, markers, "{early} bytes placed early");
        }
    }
}

#[test]
fn work_in_frames_of_several_chunks_allocates_nothing() {
    for (markers, impairment) in [(false, Impairment::NONE), (false, BAD), (true, BAD)] {
        let mut world = World::of_mtu(4, Impairment::NONE, 9000);
        world.markers = [markers; 2];
        Steady::new(world, WrOpcode::Write, 20_000, 2).assert_no_allocation(impairment);
    }
}

/// Where frames are so few that what waits is copied.
#[test]
fn the_first_bytes_that_bounce_allocate_nothing() {
    let few = || {
        let mut side = SideConfig {
            frames: 96,
            wire_depth: 32,
            ..SideConfig::default()
        };
        side.shard.receive_reserve = 48;
        side
    };
    let world = World::with(3, Impairment::NONE, few(), few(), false);
    let mut world = Steady::new(world, WrOpcode::Write, 5000, 2).assert_no_allocation(BAD);
    assert!(world.b.counter("bounced") > 0);
}
