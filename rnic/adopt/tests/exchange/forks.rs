//! What a child has of adopted pages, and what fork(2) may meet.

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use rnic_adopt::{PIECE, adopted_bytes};
use rustix::mm::Advice;

use crate::pages::{PAGE, Pages, adopted, in_child, sum};

#[test]
fn a_child_has_private_copies() {
    let pages = Pages::new(4 * PAGE);
    pages.words()[0].store(1, Ordering::Relaxed);
    let (place, _) = adopted(pages.place(0..4 * PAGE));
    in_child(|| {
        let before = pages.words()[0].swap(2, Ordering::Relaxed);
        before == 1 && adopted_bytes() == 0
    });
    assert_eq!(sum(&place, 8), 1, "what the child wrote is its own");
    pages.words()[0].store(3, Ordering::Relaxed);
    assert_eq!(sum(&place, 8), 3, "and the parent goes on");
}

/// What a child finds in the words that its parent stores to as soon as fork(2) has returned, `rounds` times.
fn stores_after_fork_are_not_the_childs(pages: &Pages, rounds: u64) {
    let words = pages.words();
    let ends = [&words[0], &words[words.len() - 1]];
    for round in 0..rounds {
        let store = |value| {
            ends.iter()
                .for_each(|word| word.store(value, Ordering::Relaxed))
        };
        store(round);
        // SAFETY: the child ends at once.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let sound = ends
                .iter()
                .all(|word| word.load(Ordering::Relaxed) == round);
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(!sound)) };
        }
        store(round + 1000);
        assert_eq!(status_of(child), 0, "round {round}");
    }
}

fn status_of(child: libc::pid_t) -> i32 {
    assert!(child > 0);
    let mut status = 0;
    // SAFETY: a child of this process.
    let waited = unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(waited, child);
    status
}

#[test]
fn a_child_sees_nothing_that_its_parent_stores_after_fork() {
    for len in [PAGE, 4 * PIECE] {
        let pages = Pages::new(len);
        let (place, _) = adopted(pages.place(0..len));
        stores_after_fork_are_not_the_childs(&pages, 100);
        assert_eq!(sum(&place, 8), 1099, "the parent's are in the memfd");
    }
}

/// Parts that are mapped again, unmapped or not to be copied (`MADV_DONTFORK`), beside some that are.
#[test]
fn a_child_has_what_is_mapped_and_nothing_in_the_place_of_the_rest() {
    let pages = Pages::new(6 * PAGE);
    let words = pages.words();
    words
        .iter()
        .for_each(|word| word.store(7, Ordering::Relaxed));
    let (place, _) = adopted(pages.place(0..6 * PAGE));
    pages.map_again(PAGE..2 * PAGE);
    pages.advise(3 * PAGE..4 * PAGE, Advice::LinuxDontFork);
    let of_page = |page: usize| &words[page * PAGE / 8];
    of_page(1).store(8, Ordering::Relaxed);
    in_child(|| {
        let found = [0, 1, 2, 4, 5].map(|page| of_page(page).swap(9, Ordering::Relaxed));
        let mut held = [0_u8; 1];
        // A system call on what is not mapped fails.
        let left_out = (pages.address() + 3 * PAGE) as u64;
        let own = std::fs::File::open("/proc/self/mem").unwrap();
        let left_out = std::os::unix::fs::FileExt::read_at(&own, &mut held, left_out);
        found == [7, 8, 7, 7, 7] && left_out.is_err()
    });
    let found = [0, 1, 2, 3, 4, 5].map(|page| of_page(page).load(Ordering::Relaxed));
    assert_eq!(found, [7, 8, 7, 7, 7, 7]);
    drop(place);
}

/// A child that is stopped or killed as soon as it is there holds nobody up.
#[test]
fn a_parent_waits_for_no_child() {
    let pages = Pages::new(4 * PIECE);
    let (place, _) = adopted(pages.place(0..4 * PIECE));
    for signal in [libc::SIGKILL, libc::SIGSTOP] {
        for _ in 0..20 {
            // SAFETY: the child ends at once.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // SAFETY: ends the child.
                unsafe { libc::_exit(0) };
            }
            for signal in [signal, libc::SIGKILL, libc::SIGCONT] {
                // SAFETY: a child of this process.
                unsafe { libc::kill(child, signal) };
            }
            status_of(child);
        }
    }
    pages.words()[0].store(5, Ordering::Relaxed);
    assert_eq!(sum(&place, 8), 5);
}

/// Forks in a signal's handler, which comes to a thread that adopts, allocates and gives back.
#[test]
fn a_signal_s_handler_may_fork_in_the_midst_of_an_exchange() {
    static FORKS: AtomicU64 = AtomicU64::new(0);
    extern "C" fn forks(_: libc::c_int) {
        // SAFETY: a child that ends at once.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: ends the child.
            unsafe { libc::_exit(0) };
        }
        let mut status = 0;
        // SAFETY: a child of this process.
        let waited = unsafe { libc::waitpid(child, &mut status, 0) };
        FORKS.fetch_add(u64::from(waited == child && status == 0), Ordering::Relaxed);
    }
    // In a process with one thread: others may hold the locks of malloc's that glibc takes in fork(2).
    in_child(|| {
        // SAFETY: the end of a child that hangs.
        unsafe { libc::alarm(60) };
        // SAFETY: a handler for this process, and a timer that calls it.
        unsafe {
            libc::signal(libc::SIGPROF, forks as *const () as libc::sighandler_t);
            let every = libc::timeval {
                tv_sec: 0,
                tv_usec: 500,
            };
            let timer = libc::itimerval {
                it_interval: every,
                it_value: every,
            };
            libc::setitimer(libc::ITIMER_PROF, &timer, ptr::null_mut());
        }
        let kept = Pages::new(PAGE);
        let (kept, _) = adopted(kept.place(0..PAGE));
        let mut round = 0;
        while FORKS.load(Ordering::Relaxed) < 100 {
            let pages = Pages::new(64 * PAGE);
            let (place, _) = adopted(pages.place(0..64 * PAGE));
            pages.words()[0].store(round, Ordering::Relaxed);
            drop(place);
            if pages.words()[0].load(Ordering::Relaxed) != round {
                return false;
            }
            round += 1;
        }
        drop(kept);
        true
    });
}

#[test]
fn threads_fork_while_others_adopt() {
    let stop = AtomicBool::new(false);
    let pages = Pages::new(PIECE);
    let (place, _) = adopted(pages.place(0..PIECE));
    let other = Pages::new(PAGE);
    let (held, _) = adopted(other.place(0..PAGE));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let own = Pages::new(16 * PAGE);
                    drop(adopted(own.place(0..16 * PAGE)));
                }
            });
        }
        scope
            .spawn(|| stores_after_fork_are_not_the_childs(&other, 50))
            .join()
            .unwrap();
        stores_after_fork_are_not_the_childs(&pages, 50);
        stop.store(true, Ordering::Relaxed);
    });
    drop((place, held));
}
