//! What may be registered of a memfd, and what nobody can do to it afterwards.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{FallocateFlags, MemfdFlags, Mode};

use super::super::SharedMemory;
use super::*;

const PAGE: usize = 4096;
const USER: u32 = 1000;

/// A memfd of so many pages, all of them there, sealed with `F_SEAL_SHRINK`; its owner's mapping.
fn memfd(pages: usize) -> (SharedMemory, OwnedFd) {
    let fd = sparse((pages * PAGE) as u64);
    let memory = SharedMemory::map(&fd, 0, (pages * PAGE) as u64).unwrap();
    memory.populate().unwrap();
    (memory, fd)
}

fn sparse(bytes: u64) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = rustix::fs::memfd_create("test", flags).unwrap();
    rustix::fs::ftruncate(&fd, bytes).unwrap();
    rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK).unwrap();
    fd
}

fn punch(fd: &OwnedFd) -> rustix::io::Result<()> {
    let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(fd, how, 0, PAGE as u64)
}

fn register(fd: impl AsFd, from: usize, pages: usize) -> Result<SharedMemory, ShmError> {
    SharedMemory::map_registered(USER, fd, (from * PAGE) as u64, (pages * PAGE) as u64)
}

#[test]
#[cfg_attr(miri, ignore)]
fn nobody_punches_a_hole_into_registered_memory() {
    let (owner, fd) = memfd(3);
    let registered = register(&fd, 0, 3).unwrap();
    assert_eq!(punch(&fd), Err(Errno::PERM));
    let remove = rustix::mm::Advice::LinuxRemove;
    // SAFETY: a page of the owner's mapping; nobody has a reference to it.
    let removed = unsafe { rustix::mm::madvise(owner.as_ptr().cast(), PAGE, remove) };
    assert_eq!(removed, Err(Errno::PERM));
    assert_eq!(rustix::io::write(&fd, b"x"), Err(Errno::PERM));
    owner.write(PAGE, b"still written").unwrap();
    let mut found = [0; 13];
    registered.read(PAGE, &mut found).unwrap();
    assert_eq!(&found, b"still written");
}

#[test]
#[cfg_attr(miri, ignore)]
fn registering_leaves_the_position_of_the_owners_descriptor_where_it_is() {
    let (_owner, fd) = memfd(4);
    rustix::fs::seek(&fd, SeekFrom::Start(7)).unwrap();
    let registered = register(&fd, 1, 3).unwrap();
    assert_eq!(rustix::fs::tell(&fd), Ok(7));
    drop(registered);
    let sparse = sparse(4 * PAGE as u64);
    rustix::fs::seek(&sparse, SeekFrom::Start(9)).unwrap();
    register(&sparse, 0, 1).unwrap_err();
    assert_eq!(rustix::fs::tell(&sparse), Ok(9));
}

#[test]
#[cfg_attr(miri, ignore)]
fn registrations_of_a_file_share_one_mapping_as_long_as_there_is_one() {
    let (_owner, fd) = memfd(4);
    let first = register(&fd, 0, 1).unwrap();
    let second = register(&fd, 2, 2).unwrap();
    drop(first);
    let third = register(&fd, 0, 4).unwrap();
    second.write(5, b"same").unwrap();
    let mut found = [0; 4];
    third.read(2 * PAGE + 5, &mut found).unwrap();
    assert_eq!(&found, b"same");
    drop((second, third));
    let again = register(&fd, 0, 1).unwrap_err();
    assert!(matches!(again, ShmError::SealedWrites), "{again}");
}

#[test]
#[cfg_attr(miri, ignore)]
fn another_user_does_not_come_by_the_mapping_to_what_the_seal_forbids() {
    let (_owner, fd) = memfd(1);
    let _first = register(&fd, 0, 1).unwrap();
    let theirs = SharedMemory::map_registered(USER + 1, &fd, 0, PAGE as u64).unwrap_err();
    assert!(matches!(theirs, ShmError::SealedWrites), "{theirs}");
}

#[test]
#[cfg_attr(miri, ignore)]
fn a_descriptor_for_reading_gives_no_memory_to_write() {
    let (_owner, fd) = memfd(1);
    let _first = register(&fd, 0, 1).unwrap();
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let reading = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).unwrap();
    let error = register(&reading, 0, 1).unwrap_err();
    assert!(matches!(error, ShmError::ReadOnly), "{error}");
}

#[test]
#[cfg_attr(miri, ignore)]
fn pages_that_are_not_there_are_named_and_may_still_come() {
    let fd = sparse(9000 * PAGE as u64);
    let owner = SharedMemory::map(&fd, 0, 9000 * PAGE as u64).unwrap();
    for page in (0..9000).filter(|page| ![5, 8191, 8999].contains(page)) {
        owner.write(page * PAGE, b"x").unwrap();
    }
    let error = register(&fd, 0, 9000).unwrap_err();
    let ShmError::NotPopulated { missing, offset } = error else {
        panic!("{error}");
    };
    assert_eq!((missing, offset), (PAGE as u64, 5 * PAGE as u64));
    let across = SharedMemory::map_registered(USER, &fd, 5 * PAGE as u64 - 1, 2).unwrap_err();
    assert!(
        matches!(across, ShmError::NotPopulated { offset: 20480, .. }),
        "{across}"
    );
    owner.populate().unwrap();
    assert!(register(&fd, 0, 9000).is_ok());
}

/// Of another's file that forbids writing mincore(2) says that all pages are there. Needs root.
#[test]
#[cfg_attr(miri, ignore)]
fn a_file_whose_mode_forbids_all_hides_no_missing_pages() {
    let fd = sparse(16 * PAGE as u64);
    rustix::fs::fchmod(&fd, Mode::empty()).unwrap();
    let registered = std::thread::scope(|scope| {
        let daemon = scope.spawn(|| {
            // Of this thread alone, which with that has no capabilities.
            rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(65534))
                .expect("root may");
            register(&fd, 0, 16)
        });
        daemon.join().expect("it ends well")
    });
    let error = registered.expect_err("no page is there");
    assert!(
        matches!(
            error,
            ShmError::NotPopulated {
                missing: 65536,
                offset: 0
            }
        ),
        "{error}"
    );
}

/// Else the memory would be the daemon's, and not its owner's.
#[test]
#[cfg_attr(miri, ignore)]
fn no_page_comes_by_looking_for_it() {
    let fd = sparse(1000 * PAGE as u64);
    assert!(register(&fd, 0, 1000).is_err());
    assert_eq!(Memfd::of(fd.as_fd()).unwrap().allocated, 0);
}

#[test]
#[cfg_attr(miri, ignore)]
fn seals_that_leave_holes_possible_are_refused() {
    let (_owner, fd) = memfd(1);
    rustix::fs::fcntl_add_seals(&fd, SealFlags::SEAL).unwrap();
    let error = register(&fd, 0, 1).unwrap_err();
    assert!(matches!(error, ShmError::SealedSeals), "{error}");
    let (_owner, fd) = memfd(1);
    rustix::fs::fcntl_add_seals(&fd, SealFlags::FUTURE_WRITE).unwrap();
    let error = register(&fd, 0, 1).unwrap_err();
    assert!(matches!(error, ShmError::SealedWrites), "{error}");
}

#[test]
#[cfg_attr(miri, ignore)]
fn a_file_that_grew_is_not_mapped_anew() {
    let (_owner, fd) = memfd(2);
    let _first = register(&fd, 0, 2).unwrap();
    rustix::fs::ftruncate(&fd, 4 * PAGE as u64).unwrap();
    let error = register(&fd, 1, 2).unwrap_err();
    assert!(
        matches!(error, ShmError::Grown { size: 8192, .. }),
        "{error}"
    );
}

#[test]
#[cfg_attr(miri, ignore)]
fn one_user_does_not_take_all_addresses() {
    let of_half = || {
        let fd = sparse(USER_FILES_MAX / 2);
        let first = SharedMemory::map(&fd, 0, PAGE as u64).unwrap();
        first.populate().unwrap();
        fd
    };
    let user = USER + 2;
    let register = |fd: &OwnedFd| SharedMemory::map_registered(user, fd, 0, PAGE as u64);
    let files = [of_half(), of_half(), of_half()];
    let kept = [register(&files[0]).unwrap(), register(&files[1]).unwrap()];
    let error = register(&files[2]).unwrap_err();
    assert!(matches!(error, ShmError::TooManyFiles { .. }), "{error}");
    drop(kept);
    assert!(register(&files[2]).is_ok());
}
