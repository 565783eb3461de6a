//! What is accepted as shared memory, and that no access leaves it.

use super::*;

const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

fn memfd(len: u64, flags: MemfdFlags, seals: SealFlags) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | flags;
    let fd = rustix::fs::memfd_create("test", flags).unwrap();
    rustix::fs::ftruncate(&fd, len).unwrap();
    rustix::fs::fcntl_add_seals(&fd, seals).unwrap();
    fd
}

#[test]
#[cfg_attr(miri, ignore)]
fn created_memory_is_zero_and_neither_shrinks_nor_grows() {
    let (memory, fd) = SharedMemory::create("test", 5000).unwrap();
    let mut bytes = vec![1; 5000];
    memory.read(0, &mut bytes).unwrap();
    assert_eq!(bytes, vec![0; 5000]);
    assert!(rustix::fs::fcntl_get_seals(&fd).unwrap().contains(SEALS));
    assert_eq!(rustix::fs::ftruncate(&fd, 4096), Err(Errno::PERM));
    assert_eq!(rustix::fs::ftruncate(&fd, 8192), Err(Errno::PERM));
}

#[test]
#[cfg_attr(miri, ignore)]
fn two_mappings_are_one_memory() {
    let (ours, fd) = SharedMemory::create("test", 4096).unwrap();
    let theirs = SharedMemory::map(&fd, 0, 4096).unwrap();
    drop(fd);
    ours.write(17, b"hello").unwrap();
    let mut bytes = [0; 5];
    theirs.read(17, &mut bytes).unwrap();
    assert_eq!(&bytes, b"hello");
    theirs.fill(17, 2, b'x').unwrap();
    ours.read(17, &mut bytes).unwrap();
    assert_eq!(&bytes, b"xxllo");
}

#[test]
#[cfg_attr(miri, ignore)]
fn a_range_off_page_boundaries_keeps_its_place() {
    let (whole, fd) = SharedMemory::create("test", 3 * 4096).unwrap();
    let part = SharedMemory::map(&fd, 4000, 5000).unwrap();
    assert_eq!(part.len(), 5000);
    whole.write(4000, b"first").unwrap();
    whole.write(8999, b"!").unwrap();
    let mut bytes = [0; 5];
    part.read(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"first");
    part.read(4999, &mut bytes[..1]).unwrap();
    assert_eq!(bytes[0], b'!');
}

#[test]
#[cfg_attr(miri, ignore)]
fn memory_that_its_owner_can_truncate_is_refused() {
    let unsealed = memfd(4096, MemfdFlags::empty(), SealFlags::GROW);
    assert!(matches!(
        SharedMemory::map(&unsealed, 0, 4096),
        Err(ShmError::NotSealed)
    ));
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    assert!(matches!(
        SharedMemory::map(&file, 0, 16),
        Err(ShmError::NotMemfd)
    ));
    let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    assert!(matches!(
        SharedMemory::map(&socket, 0, 16),
        Err(ShmError::NotMemfd)
    ));
}

#[test]
#[cfg_attr(miri, ignore)]
fn a_range_that_the_memfd_does_not_have_is_refused() {
    let fd = memfd(4096, MemfdFlags::empty(), SealFlags::SHRINK);
    for (offset, len) in [
        (0, 4097),
        (4096, 1),
        (1, 4096),
        (u64::MAX, 1),
        (u64::MAX - 10, 100),
    ] {
        assert!(
            matches!(
                SharedMemory::map(&fd, offset, len),
                Err(ShmError::TooShort { .. })
            ),
            "{offset} {len}"
        );
    }
    for len in [0, MAPPING_MAX + 1, u64::MAX] {
        assert!(
            matches!(SharedMemory::map(&fd, 0, len), Err(ShmError::Length { .. })),
            "{len}"
        );
    }
}

#[test]
fn no_copy_leaves_the_memory() {
    for memory in [SharedMemory::private(100), SharedMemory::anonymous(100)] {
        let memory = memory.unwrap();
        let mut bytes = [1; 10];
        memory.read(90, &mut bytes).unwrap();
        assert_eq!(bytes, [0; 10]);
        for offset in [91, 100, 101, usize::MAX, usize::MAX - 5] {
            assert!(memory.read(offset, &mut bytes).is_err(), "{offset}");
            assert!(memory.write(offset, &bytes).is_err(), "{offset}");
            assert!(memory.fill(offset, 10, 1).is_err(), "{offset}");
        }
        memory.write(90, &[7; 10]).unwrap();
        memory.read(90, &mut bytes).unwrap();
        assert_eq!(bytes, [7; 10]);
        memory.read(100, &mut []).unwrap();
    }
}

#[test]
#[cfg_attr(miri, ignore)]
fn pages_of_no_file_are_this_processs_alone() {
    let memory = SharedMemory::anonymous(3 * 4096).unwrap();
    memory.populate().unwrap();
    assert!(memory.is_private() && !memory.is_broken());
    let (shared, _fd) = SharedMemory::create("test", 4096).unwrap();
    assert!(!shared.is_private());
    let maps = || std::fs::read_to_string("/proc/self/maps").unwrap();
    let within = |line: &str| {
        let (range, rest) = line.split_once(' ').unwrap();
        let (from, to) = range.split_once('-').unwrap();
        let [from, to] = [from, to].map(|text| usize::from_str_radix(text, 16).unwrap());
        let start = memory.as_ptr().addr();
        (from..to).contains(&start).then(|| rest.to_owned())
    };
    let mapped = maps().lines().find_map(within).expect("it is mapped");
    assert!(mapped.starts_with("rw-p"), "not private: {mapped}");
    assert!(!mapped.contains('/'), "of a file: {mapped}");
}

#[test]
#[cfg_attr(miri, ignore)]
fn more_huge_pages_than_there_are_is_an_error_that_says_how_many() {
    // As much as no host has.
    let bytes = 1 << 39;
    for error in [
        SharedMemory::anonymous_huge(bytes).unwrap_err(),
        SharedMemory::create_huge("test", bytes).unwrap_err(),
    ] {
        let pages = bytes / HUGE_PAGE;
        assert!(
            matches!(error, ShmError::NoHugePages { pages: found } if found == pages),
            "{error}"
        );
    }
}

#[test]
fn words_are_aligned_and_inside() {
    let memory = SharedMemory::private(16).unwrap();
    assert!(memory.atomic_u32(12).is_ok());
    assert!(memory.atomic_u32(13).is_err());
    assert!(memory.atomic_u32(16).is_err());
    assert!(memory.atomic_u64(8).is_ok());
    assert!(memory.atomic_u64(4).is_err());
    assert!(memory.atomic_u64(usize::MAX - 7).is_err());
}

#[test]
#[cfg_attr(miri, ignore)]
fn populated_memory_has_its_pages_before_the_first_access() {
    let len = 64 * 4096;
    let (memory, fd) = SharedMemory::create("test", len).expect("a memfd can be made");
    let blocks = || rustix::fs::fstat(&fd).expect("fstat works").st_blocks;
    assert_eq!(blocks(), 0);
    memory.populate().expect("pages can be had");
    assert_eq!(blocks() * 512, len as i64);
}

/// The flags of the mapping that begins there (proc_pid_smaps(5)).
fn flags_of(memory: &SharedMemory) -> String {
    let start = format!("{:x}-", memory.as_ptr().addr());
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut lines = smaps.lines().skip_while(|line| !line.starts_with(&start));
    let flags = lines.find_map(|line| line.strip_prefix("VmFlags: "));
    flags.unwrap().to_owned()
}

#[test]
#[cfg_attr(miri, ignore)]
fn rings_and_registered_memory_are_in_no_core_dump() {
    let left_out = |memory: &SharedMemory| flags_of(memory).split(' ').any(|flag| flag == "dd");
    let (ring, _fd) = SharedMemory::create_ring("test", 4096).unwrap();
    assert!(left_out(&ring));
    let (own, fd) = SharedMemory::create("test", 4096).unwrap();
    assert!(!left_out(&own), "a program's own dump has its memory");
    own.populate().unwrap();
    assert!(left_out(
        &SharedMemory::map_registered(0, &fd, 0, 4096).unwrap()
    ));
}
