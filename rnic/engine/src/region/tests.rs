use std::ptr::NonNull;
use std::sync::Arc;

use rnic_ipc::shm::SharedMemory;

use super::*;

fn both_kinds(len: usize, backing: &mut [u8]) -> [RegionMemory; 2] {
    assert_eq!(backing.len(), len + 8);
    let memory = Arc::new(SharedMemory::private(len + 8).unwrap());
    let start = NonNull::from(&mut backing[4]).cast();
    // SAFETY: `backing` outlives the regions in each test and is not used meanwhile.
    let local = unsafe { RegionMemory::local(start, len) };
    [
        RegionMemory::Shared {
            memory,
            offset: 4,
            len,
        },
        local,
    ]
}

#[test]
fn what_is_written_is_read_back() {
    let mut backing = [0; 24];
    for region in both_kinds(16, &mut backing) {
        assert_eq!(region.len(), 16);
        region.write(3, b"hello").unwrap();
        let mut out = [0; 7];
        region.read(2, &mut out).unwrap();
        assert_eq!(&out, b"\0hello\0");
    }
}

#[test]
fn the_last_octet_is_inside_and_the_next_is_not() {
    let mut backing = [0; 24];
    for region in both_kinds(16, &mut backing) {
        region.write(15, b"x").unwrap();
        region.write(16, b"").unwrap();
        assert!(region.write(16, b"x").is_err());
        assert!(region.write(15, b"xy").is_err());
        assert!(region.read(0, &mut [0; 17]).is_err());
        let mut out = [1; 2];
        assert!(region.read(15, &mut out).is_err());
        assert_eq!(out, [1, 1], "a refused copy copies nothing");
    }
}

#[test]
fn an_offset_that_overflows_is_refused() {
    let mut backing = [0; 24];
    for region in both_kinds(16, &mut backing) {
        assert!(region.write(u64::MAX, b"x").is_err());
        assert!(region.write(u64::MAX - 1, b"xyz").is_err());
        assert!(region.read(u64::MAX, &mut [0]).is_err());
    }
}

#[test]
fn a_mapping_shorter_than_its_region_is_refused_not_exceeded() {
    let memory = Arc::new(SharedMemory::private(8).unwrap());
    let region = RegionMemory::Shared {
        memory,
        offset: 4,
        len: 16,
    };
    assert!(region.write(0, &[1; 8]).is_err());
    assert!(region.write(0, &[1; 4]).is_ok());
}

/// RFC 7306 section 5: what is aligned is the memory, not the offset in the region.
#[test]
fn a_word_is_reached_where_the_memory_is_aligned() {
    use std::sync::atomic::Ordering;

    let mut backing = [0u64; 4].map(u64::to_ne_bytes).concat();
    backing.truncate(24);
    for region in both_kinds(16, &mut backing) {
        let aligned: Vec<u64> = (0..20).filter(|at| region.word(*at).is_some()).collect();
        let [first] = aligned[..] else {
            panic!("one word of 16 octets from the fourth on: {aligned:?}");
        };
        let word = region.word(first).unwrap();
        word.store(0x0102_0304_0506_0708, Ordering::Relaxed);
        let mut out = [0; 8];
        region.read(first, &mut out).unwrap();
        assert_eq!(u64::from_ne_bytes(out), 0x0102_0304_0506_0708);
        assert!(region.word(u64::MAX - 3).is_none());
    }
}
