//! Where the threads of this process stand: stacks, and what the kernel writes of its own accord.
//!
//! Such pages are not exchanged. A thread that finds its own stack gone waits for itself. Where the
//! kernel's page faults can't wait, a signal that comes to a thread without its stack ends the process,
//! and so does a preemption without its rseq(2) area. And nobody wakes who joins a thread that could not
//! clear its number at its end.

use std::ops::Range;

use crate::maps::{Part, Run};
use crate::sys;

/// Bytes of the caller's descriptor (`struct pthread` of glibc's) that it may use meanwhile.
const DESCRIPTOR: usize = 2304;
/// Bytes of the head of a list of robust mutexes. A thread's number lies before it in its descriptor.
const LIST: usize = 24;
/// Bytes of a thread's rseq(2) area that the kernel writes.
const RSEQ: usize = 32;
/// Bytes below a descriptor that are its thread's stack where no guard tells how long that is.
const NO_GUARD: usize = 256 << 10;
/// Bytes on either side of a stack pointer that its thread may be about to use, or has in a system call.
const NEAR: usize = 16 << 10;
/// Bytes below the caller's own stack pointer that the exchange itself may use.
const OWN: usize = 64 << 10;
/// The most bytes of a guard. Allocators keep larger ranges without rights below what they give out.
const GUARD_MAX: usize = 64 << 10;

/// What threads stand on, as it was when it was asked for.
#[derive(Debug, Default)]
pub(crate) struct Threads {
    /// Neither stack nor descriptor of these is to go away.
    areas: Vec<Range<usize>>,
    /// Where descriptors begin that lie at the end of a stack.
    descriptors: Vec<usize>,
    /// Stack pointers of threads that wait in the kernel.
    pointers: Vec<usize>,
    count: usize,
}

impl Threads {
    /// All of now. Stack pointers are looked for only where they matter: where system calls fail, and
    /// signals end the process, when they meet an exchange.
    pub(crate) fn now(system_calls_fail: bool) -> Self {
        let own = sys::OwnThread::now();
        let mut found = Self::default();
        found.add_own(&own);
        let offset = sys::robust_list(0).map(|list| list.wrapping_sub(own.descriptor));
        let rseq = sys::rseq_offset();
        for id in all() {
            found.count += 1;
            if let Some((list, offset)) = sys::robust_list(id).zip(offset) {
                found.add(id, list.wrapping_sub(offset), list, rseq);
            }
            if system_calls_fail && id != own.id {
                found.pointers.extend(stack_pointer(id));
            }
        }
        found
    }

    /// What the caller uses while it exchanges pages.
    fn add_own(&mut self, own: &sys::OwnThread) {
        let stack = own.stack.clone();
        let (low, high) = (own.pointer.saturating_sub(OWN), own.pointer + NEAR);
        let here = stack.clone().filter(|stack| stack.contains(&own.pointer));
        let here = here.unwrap_or(low..high);
        let storage = own.storage.min(own.descriptor)..own.descriptor + DESCRIPTOR;
        self.areas.extend([here, stack.unwrap_or(storage)]);
    }

    /// What the kernel and the thread library keep of a thread.
    fn add(&mut self, id: u32, descriptor: usize, list: usize, rseq: Option<isize>) {
        let rseq = rseq.map(|offset| descriptor.wrapping_add_signed(offset));
        self.areas.push(descriptor..list.saturating_add(LIST));
        self.areas
            .extend(rseq.map(|at| at..at.saturating_add(RSEQ)));
        // That of the process's first thread is not on its stack.
        if id != std::process::id() {
            self.descriptors.push(descriptor);
        }
    }

    /// Whether there is another thread than the caller's.
    pub(crate) fn are_several(&self) -> bool {
        self.count > 1
    }

    /// Whether one of them stands on the part.
    pub(crate) fn stand_on(&self, Part { range, run, .. }: &Part) -> bool {
        let meets = |area: &Range<usize>| area.start < range.end && range.start < area.end;
        let in_run = |at: &&usize| run.range.contains(at);
        let descriptors = self.descriptors.iter().filter(in_run);
        let stacks = descriptors.map(|at| self.stack_below(*at, run));
        let pointers = self.pointers.iter().filter(in_run);
        let near = pointers.map(|at| self.stack_around(*at, run));
        self.areas.iter().any(meets) || stacks.chain(near).any(|area| meets(&area))
    }

    fn stack_below(&self, descriptor: usize, run: &Run) -> Range<usize> {
        let start = match run.guard > 0 && self.is_lowest(descriptor, run) {
            true => run.range.start,
            false => descriptor.saturating_sub(NO_GUARD),
        };
        start..descriptor
    }

    /// A stack that a thread stands on.
    fn stack_around(&self, pointer: usize, run: &Run) -> Range<usize> {
        if !(is_guard(run.guard) && self.is_lowest(pointer, run)) {
            return pointer.saturating_sub(NEAR)..pointer.saturating_add(NEAR);
        }
        let above = self
            .descriptors
            .iter()
            .filter(|at| (pointer..run.range.end).contains(at));
        run.range.start..above.min().map_or(run.range.end, |at| *at)
    }

    /// Whether no other thread's stack is between an address and the beginning of its run.
    fn is_lowest(&self, address: usize, run: &Run) -> bool {
        let below = run.range.start..address;
        !self.descriptors.iter().any(|at| below.contains(at))
    }
}

/// Whether so many bytes without rights are what lies below a stack.
fn is_guard(bytes: usize) -> bool {
    (1..=GUARD_MAX).contains(&bytes)
}

/// The numbers of this process's threads.
fn all() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// Of a thread that waits in the kernel.
fn stack_pointer(id: u32) -> Option<usize> {
    let text = std::fs::read_to_string(format!("/proc/self/task/{id}/syscall")).ok()?;
    parse(&text)
}

/// What is next to last in proc_pid_syscall(5). Of a thread that runs it says just so.
fn parse(text: &str) -> Option<usize> {
    let pointer = text.split_ascii_whitespace().rev().nth(1)?;
    usize::from_str_radix(pointer.strip_prefix("0x")?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maps::{May, What};

    const MAY: May = May {
        read: true,
        write: true,
    };

    #[test]
    fn threads_that_wait_tell_their_stack_pointers() {
        assert_eq!(
            parse("0 0x3 0x7ff0 0x40 0x0 0x0 0x0 0x7ffc0 0x7f00\n"),
            Some(0x7_ffc0)
        );
        assert_eq!(parse("-1 0x7ffc0 0x7f00\n"), Some(0x7_ffc0));
        assert_eq!(parse("running\n"), None);
        assert_eq!(parse(""), None);
    }

    /// A part of a run of 1 MiB to 5 MiB with a guard of so many bytes.
    fn part(range: Range<usize>, guard: usize) -> Part {
        let run = Run {
            range: 1 << 20..5 << 20,
            guard,
        };
        Part {
            range,
            what: What::Private,
            may: MAY,
            run,
        }
    }

    #[test]
    fn a_stack_reaches_from_its_guard_to_the_descriptor() {
        const TOP: usize = 3 << 20;
        let mut threads = Threads {
            descriptors: vec![TOP],
            ..Threads::default()
        };
        threads.areas.push(TOP..TOP + LIST);
        let deep = (1 << 20)..(1 << 20) + 4096;
        let shallow = TOP - 4096..TOP;
        let above = TOP + 4096..TOP + 8192;
        for guard in [4096, 1 << 30] {
            assert!(threads.stand_on(&part(deep.clone(), guard)));
            assert!(threads.stand_on(&part(shallow.clone(), guard)));
            assert!(!threads.stand_on(&part(above.clone(), guard)));
        }
        assert!(!threads.stand_on(&part(deep.clone(), 0)));
        assert!(threads.stand_on(&part(shallow.clone(), 0)));
        let next_run = Part {
            range: TOP - 4096..TOP,
            what: What::Private,
            may: MAY,
            run: Run {
                range: 1 << 20..TOP,
                guard: 0,
            },
        };
        assert!(!threads.stand_on(&next_run));
        // One without a guard above one with a guard.
        threads.descriptors.push(4 << 20);
        let between = above.end..above.end + 4096;
        for (part_of, stands) in [(deep, true), (shallow, true), (between, false)] {
            assert_eq!(threads.stand_on(&part(part_of, 4096)), stands);
        }
    }

    #[test]
    fn a_thread_that_waits_stands_on_all_of_a_guarded_stack_or_near_its_pointer() {
        const AT: usize = 3 << 20;
        let threads = Threads {
            pointers: vec![AT],
            ..Threads::default()
        };
        let far = (1 << 20)..(1 << 20) + 4096;
        assert!(threads.stand_on(&part(far.clone(), 4096)));
        // An allocator's reserve.
        assert!(!threads.stand_on(&part(far.clone(), 1 << 30)));
        assert!(!threads.stand_on(&part(far, 0)));
        assert!(threads.stand_on(&part(AT + 4096..AT + 8192, 0)));
        assert!(threads.stand_on(&part(AT - NEAR..AT - NEAR + 4096, 0)));
        assert!(!threads.stand_on(&part(AT + NEAR..AT + 2 * NEAR, 0)));
        let above = Threads {
            descriptors: vec![2 << 20],
            ..threads
        };
        assert!(above.stand_on(&part(AT..AT + 4096, 4096)));
        assert!(!above.stand_on(&part(AT + NEAR..AT + 2 * NEAR, 4096)));
    }
}
