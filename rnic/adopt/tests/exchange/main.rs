//! Pages adopted and given back while a program uses them.

#![allow(clippy::unwrap_used)]

mod forks;
mod pages;

use std::ops::Range;
use std::os::fd::AsFd;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use rnic_adopt::{Adopted, Needed, Neighbours, NotAdopted, PIECE, Place};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::pages::{PAGE, Pages, READ_WRITE, adopted, in_child, seen, sum};

/// From here on this thread, and those that it starts, are of a user without privilege, who has system
/// calls on what is exchanged fail. Of the whole process it can't be said: tests share it.
fn become_nobody() {
    const NOBODY: libc::c_long = 65_534;
    // SAFETY: takes plain numbers.
    let done = unsafe { libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) };
    assert_eq!(done, 0, "this needs root");
}

#[test]
fn threads_that_write_meanwhile_lose_nothing() {
    writers_lose_nothing();
}

#[test]
fn threads_that_write_meanwhile_lose_nothing_without_privilege() {
    become_nobody();
    writers_lose_nothing();
}

fn writers_lose_nothing() {
    const THREADS: usize = 4;
    let len = 3 * PIECE + 5 * PAGE;
    let pages = Pages::new(len);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let writers: Vec<_> = (0..THREADS)
            .map(|number| {
                let (pages, stop) = (&pages, &stop);
                scope.spawn(move || {
                    let mut written = 0_u64;
                    let words = pages.words().iter().skip(number).step_by(THREADS * 37);
                    for word in words.cycle() {
                        word.fetch_add(1, Ordering::Relaxed);
                        written += 1;
                        if stop.load(Ordering::Relaxed) {
                            break;
                        }
                    }
                    written
                })
            })
            .collect();
        for round in 0..20 {
            let (place, _) = adopted(pages.place(round..len - round));
            assert_eq!(pages.place(0..len).unwrap().offset() % PAGE as u64, 0);
            drop(place);
        }
        let (place, _) = adopted(pages.place(0..len));
        stop.store(true, Ordering::Relaxed);
        let written: u64 = writers.into_iter().map(|one| one.join().unwrap()).sum();
        assert!(written > 1000, "{written}");
        assert_eq!(sum(&place, len), written, "in the memfd");
        drop(place);
        let there: u64 = pages
            .words()
            .iter()
            .map(|word| word.load(Ordering::Relaxed))
            .sum();
        assert_eq!(there, written, "private again");
    });
}

#[test]
fn system_calls_that_meet_an_exchange_wait() {
    let (_, faults) = read_and_advise();
    assert_eq!(faults, 0, "this needs root");
}

/// And nothing else happens to them, nor to the bytes.
#[test]
fn system_calls_that_meet_an_exchange_fail_with_efault_without_privilege() {
    become_nobody();
    let (read, _) = read_and_advise();
    assert!(read > 0);
}

/// Calls that went well, and that failed with EFAULT.
fn read_and_advise() -> (u64, u64) {
    let len = 64 * PAGE;
    let pages = Pages::new(len);
    let stop = AtomicBool::new(false);
    let zeroes = std::fs::File::open("/dev/zero").unwrap();
    thread::scope(|scope| {
        let (pages, stop, zeroes) = (&pages, &stop, &zeroes);
        let caller = scope.spawn(move || {
            let (mut read, mut faults) = (0_u64, 0_u64);
            while !stop.load(Ordering::Relaxed) {
                // SAFETY: as many bytes are mapped there, of which atomics only are made.
                let into = unsafe { std::slice::from_raw_parts_mut(pages.start.cast::<u8>(), len) };
                match rustix::io::read(zeroes, into) {
                    Ok(_) => read += 1,
                    Err(Errno::FAULT) => faults += 1,
                    Err(other) => panic!("{other}"),
                }
            }
            (read, faults)
        });
        let advisor = scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                pages.advise(0..len, Advice::Normal);
                pages.advise(PAGE..2 * PAGE, Advice::LinuxDontNeed);
            }
        });
        for _ in 0..300 {
            drop(adopted(pages.place(0..len)));
        }
        stop.store(true, Ordering::Relaxed);
        let (read, faults) = caller.join().unwrap();
        advisor.join().unwrap();
        eprintln!("{read} calls, {faults} failed with EFAULT");
        (read, faults)
    })
}

#[test]
fn ranges_that_overlap_or_meet_in_a_page_are_of_one_file() {
    let pages = Pages::new(64 * PAGE);
    let (first, a) = adopted(pages.place(100..PAGE * 3 + 7));
    let (second, b) = adopted(pages.place(PAGE * 3 + 7..PAGE * 9));
    let (third, c) = adopted(pages.place(0..64 * PAGE));
    let (fourth, d) = adopted(pages.place(16..32));
    let inode = |place: &Place| rustix::fs::fstat(place.fd()).unwrap().st_ino;
    for other in [&second, &third, &fourth] {
        assert_eq!(inode(other), inode(&first));
    }
    assert_eq!((a - c, b - c, d - c), (100, PAGE as u64 * 3 + 7, 16));
    // Each page stays as long as anybody holds it.
    drop((third, first));
    pages.words()[PAGE * 3 / 8].store(7, Ordering::Relaxed);
    let bytes = seen(&fourth, 16);
    assert_eq!(bytes, [0; 16]);
    pages.words()[2].store(u64::MAX, Ordering::Relaxed);
    assert_eq!(seen(&fourth, 8), [255; 8]);
    pages.words()[PAGE].store(9, Ordering::Relaxed);
    assert_eq!(
        seen(&second, 8 * PAGE - PAGE * 3 - 7).len(),
        8 * PAGE - PAGE * 3 - 7
    );
    drop((second, fourth));
    assert_eq!(pages.words()[2].load(Ordering::Relaxed), u64::MAX);
}

/// What allocators count on.
#[test]
fn pages_that_nobody_holds_are_private_again() {
    let pages = Pages::new(16 * PAGE);
    pages.words()[0].store(5, Ordering::Relaxed);
    let (place, _) = adopted(pages.place(0..16 * PAGE));
    pages.words()[1].store(6, Ordering::Relaxed);
    drop(place);
    let word = |index: usize| pages.words()[index].load(Ordering::Relaxed);
    assert_eq!((word(0), word(1)), (5, 6));
    pages.advise(0..PAGE, Advice::LinuxDontNeed);
    assert_eq!((word(0), word(1)), (0, 0));
}

#[test]
fn memory_that_was_mapped_again_is_never_taken_for_the_old() {
    let pages = Pages::new(8 * PAGE);
    pages.words()[0].store(1, Ordering::Relaxed);
    let (old, _) = adopted(pages.place(0..4 * PAGE));
    pages.map_again(0..4 * PAGE);
    pages.words()[0].store(2, Ordering::Relaxed);
    let (new, _) = adopted(pages.place(0..4 * PAGE));
    assert_eq!((sum(&old, 8), sum(&new, 8)), (1, 2));
    pages.words()[0].store(3, Ordering::Relaxed);
    assert_eq!((sum(&old, 8), sum(&new, 8)), (1, 3));
    // What the old one holds is not at its address any more: the new pages are left alone.
    drop(old);
    pages.words()[0].store(4, Ordering::Relaxed);
    assert_eq!(sum(&new, 8), 4);
    // Pages of two files are no range of one.
    let (_beside, _) = adopted(pages.place(5 * PAGE..6 * PAGE));
    drop(new);
    assert_eq!(pages.words()[0].load(Ordering::Relaxed), 4);
}

/// The other process took its last range off it meanwhile, and takes it no more.
#[test]
fn a_file_that_was_refused_is_not_used_again() {
    let pages = Pages::new(8 * PAGE);
    let inode = |place: &Place| rustix::fs::fstat(place.fd()).unwrap().st_ino;
    let (first, _) = adopted(pages.place(0..4 * PAGE));
    let (refused, _) = adopted(pages.place(2 * PAGE..6 * PAGE));
    let old = inode(&refused);
    assert_eq!(inode(&first), old);
    refused.into_adopted().unwrap().abandon();
    // What is not in it needs nobody's leave.
    let (beside, _) = adopted(pages.place(6 * PAGE..8 * PAGE));
    assert_ne!(inode(&beside), old);
    // As long as another has these pages in it they can be in no other.
    let meets = pages.place(2 * PAGE..6 * PAGE);
    assert_eq!(meets.map(drop), Err(NotAdopted::Several));
    thread::scope(|scope| {
        let waiting = scope.spawn(|| adopted(pages.place(2 * PAGE..6 * PAGE)).0);
        thread::sleep(std::time::Duration::from_millis(50));
        drop(first);
        assert_ne!(inode(&waiting.join().unwrap()), old);
    });
}

#[test]
fn what_is_unmapped_meanwhile_stays_unmapped() {
    let pages = Pages::new(8 * PAGE);
    let (place, _) = adopted(pages.place(0..8 * PAGE));
    // SAFETY: nobody uses them.
    unsafe { rustix::mm::munmap(pages.start.byte_add(2 * PAGE), 2 * PAGE) }.unwrap();
    drop(place);
    let gone = pages.place(2 * PAGE..3 * PAGE);
    assert_eq!(gone.map(drop), Err(NotAdopted::NotMapped));
    pages.map_again(2 * PAGE..4 * PAGE);
    adopted(pages.place(0..8 * PAGE));
}

/// A lock may lie beside them, and a futex(2) that fails ends a program.
#[test]
fn bytes_beside_a_range_are_spared_where_their_system_calls_would_fail() {
    become_nobody();
    let pages = Pages::new(8 * PAGE);
    let place = |part: Range<usize>| {
        let start = pages.address() + part.start;
        // SAFETY: the pages stay mapped.
        unsafe { rnic_adopt::place(start, part.len(), Needed::ReadAndWrite, Neighbours::Spared) }
    };
    for beside in [1..PAGE, 0..100, PAGE + 8..PAGE + 16, 1..3 * PAGE] {
        assert_eq!(place(beside).map(drop), Err(NotAdopted::Neighbours));
    }
    let (_whole, _) = adopted(place(PAGE..2 * PAGE));
    adopted(place(PAGE + 8..PAGE + 16));
}

/// Holes can't be punched into a memfd that is registered: what was used once is not kept for ever.
#[test]
fn a_file_that_keeps_too_much_of_nobody_s_gets_no_more() {
    const STEP: usize = 16 << 20;
    let pages = Pages::new(10 * STEP);
    let inode = |place: &Place| rustix::fs::fstat(place.fd()).unwrap().st_ino;
    let (kept, _) = adopted(pages.place(0..PAGE));
    let mut files: Vec<_> = (1..10)
        .map(|step| inode(&adopted(pages.place(step * STEP..(step + 1) * STEP)).0))
        .collect();
    files.dedup();
    assert!(files.len() > 1, "{files:?}");
    // What lies in a file already is found there as before.
    assert_eq!(inode(&pages.place(0..PAGE).unwrap()), inode(&kept));
}

#[test]
fn several_threads_adopt_what_overlaps() {
    let pages = Pages::new(64 * PAGE);
    thread::scope(|scope| {
        for seed in 0..4_usize {
            let pages = &pages;
            scope.spawn(move || {
                let word = &pages.words()[seed];
                for round in 0..300_usize {
                    let start = (round * 7 + seed * 13) % 50 * PAGE / 2;
                    let (place, _) = adopted(pages.place(start..start + 9 * PAGE + seed));
                    let (all, _) = adopted(pages.place(0..64 * PAGE));
                    word.store(round as u64, Ordering::Relaxed);
                    let bytes = seen(&all, 64);
                    assert_eq!(bytes[seed * 8..][..8], round.to_ne_bytes());
                    drop((place, all));
                    assert_eq!(word.load(Ordering::Relaxed), round as u64);
                }
            });
        }
    });
}

#[test]
fn memory_of_other_kinds_is_left_as_it_is() {
    static DATA: [AtomicU64; 4] = [const { AtomicU64::new(1) }; 4];
    static READ_ONLY: [u64; 4] = [1, 2, 3, 4];
    let place_for = |address: usize, len, needed| {
        // SAFETY: mapped, if at all, until the end of the process.
        unsafe { rnic_adopt::place(address, len, needed, Neighbours::Exchanged) }.map(drop)
    };
    let place = |address, len| place_for(address, len, Needed::ReadAndWrite);
    assert!(matches!(
        place(DATA.as_ptr().addr(), 32),
        Err(NotAdopted::Kind(_))
    ));
    let read_only = READ_ONLY.as_ptr().addr();
    assert!(matches!(
        place_for(read_only, 32, Needed::Read),
        Err(NotAdopted::Kind(_))
    ));
    assert_eq!(
        place(read_only, 32),
        Err(NotAdopted::NotPermitted("writing"))
    );
    assert_eq!(place(0, 10), Err(NotAdopted::NotMapped));
    assert_eq!(place(1 << 50, 10), Err(NotAdopted::NotMapped));
    assert_eq!(place(usize::MAX - 10, 100), Err(NotAdopted::NotMapped));
    assert_eq!(place(PAGE, 0), Err(NotAdopted::NotMapped));
    // A thread's own stack: tests run in threads.
    let here = [0_u8; 64];
    assert_eq!(place(here.as_ptr().addr(), 64), Err(NotAdopted::Stack));
}

#[test]
fn a_memfd_that_the_program_mapped_is_taken_as_it_is() {
    let fd = rustix::fs::memfd_create("own", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&fd, 8 * PAGE as u64).unwrap();
    let map = || {
        // SAFETY: replaces nothing.
        let start = unsafe {
            let flags = MapFlags::SHARED;
            rustix::mm::mmap(
                ptr::null_mut(),
                4 * PAGE,
                READ_WRITE,
                flags,
                fd.as_fd(),
                PAGE as u64,
            )
        };
        Pages {
            start: start.unwrap(),
            len: 4 * PAGE,
        }
    };
    let pages = map();
    assert!(
        matches!(pages.place(0..100), Err(NotAdopted::Kind(_))),
        "it can shrink"
    );
    rustix::fs::fcntl_add_seals(&fd, rustix::fs::SealFlags::SHRINK).unwrap();
    let place = pages.place(10..PAGE + 20).unwrap();
    assert!(!place.is_adopted());
    assert_eq!(place.offset(), PAGE as u64 + 10);
    let inode = |fd: std::os::fd::BorrowedFd<'_>| rustix::fs::fstat(fd).unwrap().st_ino;
    assert_eq!(inode(place.fd()), inode(fd.as_fd()));
    assert!(place.into_adopted().is_none());
}

/// The words of a heap are used by allocators of many threads.
#[test]
fn parts_of_pages_of_a_heap_that_is_in_use_come_and_go() {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for seed in 0..2_usize {
            let stop = &stop;
            scope.spawn(move || {
                let mut kept: Vec<Vec<u8>> = Vec::new();
                for round in seed.. {
                    kept.push(vec![round as u8; round % 700 + 1]);
                    if kept.len() > 300 {
                        let old = kept.swap_remove(round % 300);
                        assert!(old.iter().all(|byte| *byte == old[0]));
                    }
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
        }
        let mut held: Vec<(Box<[u64; 8]>, Adopted)> = Vec::new();
        for round in 0..400_u64 {
            let memory = Box::new([round; 8]);
            let start = ptr::from_ref(&*memory).expose_provenance();
            // SAFETY: the box is dropped after what was adopted.
            let place = unsafe {
                rnic_adopt::place(start, 64, Needed::ReadAndWrite, Neighbours::Exchanged)
            }
            .unwrap();
            assert_eq!(seen(&place, 8), round.to_ne_bytes());
            held.push((memory, place.into_adopted().unwrap()));
            if held.len() > 20 {
                let (memory, adopted) = held.swap_remove(round as usize % 20);
                drop(adopted);
                assert!(memory.iter().all(|word| *word == memory[0]));
            }
        }
        stop.store(true, Ordering::Relaxed);
        held.into_iter().for_each(|(_, adopted)| drop(adopted));
    });
}

/// mlockall(2) has new mappings populated, and a window is long.
#[test]
fn a_program_that_locks_its_memory_pays_for_what_it_registers_only() {
    in_child(|| {
        rustix::mm::mlockall(rustix::mm::MlockAllFlags::FUTURE).unwrap();
        let pages = Pages::new(4 * PAGE);
        let (place, _) = adopted(pages.place(0..4 * PAGE));
        let taken = rustix::fs::fstat(place.fd()).unwrap().st_blocks * 512;
        taken == 4 * PAGE as i64
    });
}

/// Malloc fails in a program that has all of them.
#[test]
fn a_program_keeps_half_of_its_mappings() {
    in_child(|| {
        let most = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap();
        let most: usize = most.trim().parse().unwrap();
        let crowd = Pages::new(most.next_multiple_of(2) * PAGE);
        for page in (0..most).step_by(2) {
            // SAFETY: a page that nobody uses.
            let made = unsafe {
                let none = rustix::mm::MprotectFlags::empty();
                rustix::mm::mprotect(crowd.start.byte_add(page * PAGE), PAGE, none)
            };
            if made.is_err() || page > most / 2 + 10 {
                break;
            }
        }
        let pages = Pages::new(PAGE);
        let refused = pages.place(0..PAGE).map(drop) == Err(NotAdopted::Mappings);
        drop(crowd);
        // They are counted again some time.
        refused && (0..2000).any(|_| pages.place(0..PAGE).is_ok())
    });
}

#[test]
fn pages_come_where_there_can_be_some() {
    let file = tempfile_of(PAGE);
    let map = |rights, flags| {
        // SAFETY: replaces nothing.
        unsafe { rustix::mm::mmap(ptr::null_mut(), 2 * PAGE, rights, flags, &file, 0) }.unwrap()
    };
    for flags in [MapFlags::SHARED, MapFlags::PRIVATE] {
        let at = map(READ_WRITE, flags).expose_provenance();
        for needed in [Needed::Read, Needed::ReadAndWrite] {
            assert_eq!(rnic_adopt::populate(at, PAGE, needed), Ok(()));
            let past = rnic_adopt::populate(at + PAGE, 1, needed);
            assert!(matches!(past, Err(NotAdopted::NoPage(_))), "{past:?}");
        }
    }
    let read_only = map(ProtFlags::READ, MapFlags::SHARED).expose_provenance();
    assert_eq!(rnic_adopt::populate(read_only, PAGE, Needed::Read), Ok(()));
    let written = rnic_adopt::populate(read_only, PAGE, Needed::ReadAndWrite);
    assert!(matches!(written, Err(NotAdopted::NoPage(_))), "{written:?}");
    let nothing = rnic_adopt::populate(PAGE, 1, Needed::Read);
    assert_eq!(nothing, Err(NotAdopted::NotMapped));
}

/// A file of so many bytes, without a name.
fn tempfile_of(len: usize) -> std::os::fd::OwnedFd {
    let fd = rustix::fs::memfd_create("file", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&fd, len as u64).unwrap();
    fd
}
