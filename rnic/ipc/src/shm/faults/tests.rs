//! Faults are made by truncating files that are not sealed, which nothing outside of this module could
//! map.

use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::ptr::NonNull;

use rustix::fs::MemfdFlags;

use super::super::{Backing, Mapping, SharedMemory};
use super::*;

const PAGE: usize = 4096;
/// Set, a test is its own victim.
const VICTIM: &str = "RNIC_TEST_VICTIM";

/// A mapping of `len` bytes that are all `byte`, of a file that can be truncated.
fn unsealed(len: usize, byte: u8) -> (SharedMemory, OwnedFd) {
    let (memory, fd) = unsealed_of(MemfdFlags::empty(), len).unwrap();
    memory.fill(0, len, byte).unwrap();
    (memory, fd)
}

/// The same of certain pages, as they come; none when the host has none such.
fn unsealed_of(pages: MemfdFlags, len: usize) -> Option<(SharedMemory, OwnedFd)> {
    let fd = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC | pages).ok()?;
    rustix::fs::ftruncate(&fd, len as u64).ok()?;
    let mapping = Mapping::new(std::os::fd::AsFd::as_fd(&fd), 0, len, None).ok()?;
    let memory = SharedMemory {
        base: mapping.pages.start,
        len,
        backing: Backing::Mapping(std::sync::Arc::new(mapping)),
    };
    Some((memory, fd))
}

/// Has the host allow so many pages of a kind, until it is dropped. It may have none to give.
struct Allowed(String, String);

impl Allowed {
    fn pages(kind: &str, number: &str) -> Option<Self> {
        let path = format!("/sys/kernel/mm/hugepages/hugepages-{kind}");
        let before = std::fs::read_to_string(&path).ok()?;
        std::fs::write(&path, number).ok()?;
        Some(Self(path, before))
    }
}

impl Drop for Allowed {
    fn drop(&mut self) {
        // What was there before is possible.
        let _ = std::fs::write(&self.0, &self.1);
    }
}

fn truncate(fd: &OwnedFd) {
    rustix::fs::ftruncate(fd, 0).unwrap();
}

fn byte(memory: &SharedMemory, at: usize) -> u8 {
    let mut out = [0xff];
    memory.read(at, &mut out).unwrap();
    out[0]
}

/// Runs the test of this name in a process of its own, as its own victim.
fn victim(name: &str) -> std::process::Output {
    std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("shm::faults::tests::{name}")])
        .env(VICTIM, "1")
        .output()
        .unwrap()
}

fn is_victim() -> bool {
    std::env::var_os(VICTIM).is_some()
}

#[test]
#[cfg_attr(miri, ignore)]
fn a_fault_breaks_its_mapping_and_no_other() {
    contain_faults().unwrap();
    let (before, _fd) = unsealed(3 * PAGE, 1);
    let (memory, fd) = unsealed(3 * PAGE, 2);
    let (behind, _fd) = unsealed(3 * PAGE, 3);
    let contained = faults_contained();
    truncate(&fd);
    assert!(!memory.is_broken(), "nothing was touched yet");
    assert_eq!(byte(&memory, PAGE + 5), 0);
    assert!(memory.is_broken());
    assert!(faults_contained() > contained);
    memory.write(2 * PAGE, b"to nowhere").unwrap();
    memory.atomic_u64(0).unwrap().store(1, Ordering::Relaxed);
    for (neighbour, bytes) in [(before, 1), (behind, 3)] {
        assert!(!neighbour.is_broken());
        for page in 0..3 {
            assert_eq!(byte(&neighbour, page * PAGE), bytes);
        }
    }
}

#[test]
#[cfg_attr(miri, ignore)]
fn a_write_faults_as_a_read_does() {
    contain_faults().unwrap();
    let (memory, fd) = unsealed(PAGE, 1);
    truncate(&fd);
    memory.write(100, b"to nowhere").unwrap();
    assert!(memory.is_broken());
    let (memory, fd) = unsealed(PAGE, 1);
    truncate(&fd);
    memory
        .atomic_u32(4)
        .unwrap()
        .fetch_add(1, Ordering::Relaxed);
    assert!(memory.is_broken());
}

/// Only a user who may have the host make huge pages can test this; the line says which were not tested.
#[test]
#[cfg_attr(miri, ignore)]
fn faults_of_huge_pages_are_contained_as_others_are() {
    contain_faults().unwrap();
    // 2 MiB pages beyond the number of others' tests; of 1 GiB there is no such allowance.
    for (size, kind, number, flag) in [
        (
            2 << 20,
            "2048kB/nr_overcommit_hugepages",
            "8",
            MemfdFlags::HUGE_2MB,
        ),
        (1 << 30, "1048576kB/nr_hugepages", "1", MemfdFlags::HUGE_1GB),
    ] {
        let _allowed = Allowed::pages(kind, number);
        let Some((memory, fd)) = unsealed_of(MemfdFlags::HUGETLB | flag, size) else {
            println!("NOT TESTED: faults of pages of {size} bytes: the host gives none");
            continue;
        };
        memory.write(size - 1, &[7]).unwrap();
        assert_eq!(byte(&memory, size - 1), 7);
        truncate(&fd);
        assert!(!memory.is_broken(), "nothing was touched yet");
        assert_eq!(byte(&memory, size - 1), 0);
        assert!(memory.is_broken());
        memory.write(size / 2, b"to nowhere").unwrap();
        drop(memory);
        println!("faults of pages of {size} bytes are contained");
    }
}

#[test]
#[cfg_attr(miri, ignore)]
fn a_mapping_in_the_place_of_a_broken_one_is_whole() {
    contain_faults().unwrap();
    for _ in 0..100 {
        let (memory, fd) = unsealed(PAGE, 1);
        assert!(!memory.is_broken());
        truncate(&fd);
        assert_eq!(byte(&memory, 0), 0);
        assert!(memory.is_broken());
    }
}

/// Mappings come and go beside those that fault: no fault takes the place of another's.
#[test]
#[cfg_attr(miri, ignore)]
fn faults_keep_to_their_mappings_while_others_come_and_go() {
    contain_faults().unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for number in 1..=3 {
            let over = &over;
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    let kept: Vec<_> = (1..=5).map(|n| unsealed(n * PAGE, number)).collect();
                    for (memory, _) in &kept {
                        assert!(!memory.is_broken());
                        assert_eq!(byte(memory, memory.len() - 1), number);
                    }
                }
            });
        }
        for _ in 0..300 {
            let (memory, fd) = unsealed(2 * PAGE, 9);
            truncate(&fd);
            assert_eq!(byte(&memory, PAGE), 0);
            assert!(memory.is_broken());
        }
        over.store(true, Ordering::Relaxed);
    });
}

#[test]
#[cfg_attr(miri, ignore)]
fn a_fault_elsewhere_ends_the_process() {
    if is_victim() {
        contain_faults().unwrap();
        let (memory, fd) = unsealed(PAGE, 1);
        let elsewhere = super::super::map_shared(std::os::fd::AsFd::as_fd(&fd), 0, PAGE).unwrap();
        truncate(&fd);
        // SAFETY: mapped, as far as the compiler knows.
        let found = unsafe { elsewhere.start.read_volatile() };
        panic!("{found} was read from nowhere, {memory:?}");
    }
    let ended = victim("a_fault_elsewhere_ends_the_process");
    assert_eq!(
        ended.status.signal(),
        Some(Signal::SIGBUS as i32),
        "{ended:?}"
    );
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(said.contains("SIGBUS outside of shared memory"), "{said}");
}

#[test]
#[cfg_attr(miri, ignore)]
fn a_signal_that_somebody_sends_ends_the_process() {
    if is_victim() {
        contain_faults().unwrap();
        nix::sys::signal::raise(Signal::SIGBUS).unwrap();
        panic!("the signal went by");
    }
    let ended = victim("a_signal_that_somebody_sends_ends_the_process");
    assert_eq!(
        ended.status.signal(),
        Some(Signal::SIGBUS as i32),
        "{ended:?}"
    );
}

#[test]
fn a_full_table_takes_no_more_and_its_places_are_used_again() {
    let mut bytes = [0_u8; 16];
    let start = NonNull::from(&mut bytes[0]).as_ptr();
    let mut watches: Vec<_> = std::iter::from_fn(|| Watch::begin(start, 0)).collect();
    assert!(watches.len() > MAPPINGS_MAX / 2);
    assert!(Watch::begin(start, 0).is_none());
    watches.drain(..).for_each(|watch| watch.end());
    let watch = Watch::begin(start, 0).expect("there is room again");
    watch.end();
}
