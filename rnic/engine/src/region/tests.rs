use std::sync::Arc;

use rnic_crc::Words;
use rnic_ipc::shm::SharedMemory;

use super::*;

/// The same bytes by each accessor of memory that is mapped here.
fn both_kinds(len: usize) -> [RegionMemory; 2] {
    let memory = Arc::new(SharedMemory::private(len + 4).unwrap());
    let shared = RegionMemory::Shared {
        memory,
        offset: 4,
        len,
    };
    let local = RegionMemory::whole(Arc::new(SharedMemory::anonymous(len).unwrap()));
    assert!(matches!(local, RegionMemory::Local(_)));
    [shared, local]
}

#[test]
fn what_is_written_is_read_back() {
    for region in both_kinds(16) {
        assert_eq!(region.len(), 16);
        region.write(3, b"hello").unwrap();
        let mut out = [0; 7];
        region.read(2, &mut out).unwrap();
        assert_eq!(&out, b"\0hello\0");
        let mut checked = [0; 7];
        let checks = region
            .read_checked(2, Some(5), &mut checked, Words::NONE)
            .unwrap();
        assert_eq!(checked, out);
        assert_eq!(checks, rnic_crc::check(5, &out));
    }
}

#[test]
fn words_are_put_among_what_is_read_and_are_no_bytes_of_the_region() {
    for region in both_kinds(16) {
        region.write(0, b"0123456789abcdef").unwrap();
        let words = Words::new(2, 8, 0x7778_797a, 0);
        let mut out = [0; 24];
        let checks = region.read_checked(2, Some(5), &mut out, words).unwrap();
        assert_eq!(&out, b"23wxyz4567wxyz89abwxyzcd");
        assert_eq!(checks, rnic_crc::check(5, &out));
        region.read_checked(4, Some(5), &mut out, words).unwrap();
        assert!(region.read_checked(5, Some(5), &mut out, words).is_err());
    }
}

#[test]
fn a_slice_is_read_in_pieces_and_no_further() {
    for region in both_kinds(16) {
        region.write(0, b"0123456789abcdef").unwrap();
        assert!(region.slice(9, 8).is_err());
        assert!(region.slice(u64::MAX, 1).is_err());
        let slice = region.slice(2, 12).unwrap();
        let mut out = [0; 4];
        for at in 0..=8 {
            let checks = slice
                .read_checked(at, Some(5), &mut out, Words::NONE)
                .unwrap();
            assert_eq!(out, b"0123456789abcdef"[at + 2..][..4]);
            assert_eq!(checks, rnic_crc::check(5, &out));
        }
        for at in [9, 12, 13, usize::MAX - 1] {
            assert!(
                slice
                    .read_checked(at, Some(5), &mut out, Words::NONE)
                    .is_err()
            );
        }
        assert_eq!(&out, b"abcd", "a refused copy copies nothing");
    }
}

#[test]
fn a_slice_is_written_in_pieces_and_no_further() {
    for region in both_kinds(16) {
        region.write(0, b"0123456789abcdef").unwrap();
        let slice = region.slice(2, 12).unwrap();
        slice.write_bytes(8, &&b"WXYZ"[..]).unwrap();
        slice.write_bytes(0, &&b"S"[..]).unwrap();
        slice.write_bytes(12, &&b""[..]).unwrap();
        for at in [9, 12, 13, usize::MAX - 1] {
            assert!(slice.write_bytes(at, &&b"none"[..]).is_err());
        }
        let mut all = [0; 16];
        region.read(0, &mut all).unwrap();
        assert_eq!(&all, b"01S3456789WXYZef");
    }
}

#[test]
fn the_last_byte_is_inside_and_the_next_is_not() {
    for region in both_kinds(16) {
        region.write(15, b"x").unwrap();
        region.write(16, b"").unwrap();
        assert!(region.write(16, b"x").is_err());
        assert!(region.write(15, b"xy").is_err());
        assert!(region.read(0, &mut [0; 17]).is_err());
        let mut out = [1; 2];
        assert!(region.read(15, &mut out).is_err());
        assert!(
            region
                .read_checked(15, Some(0), &mut out, Words::NONE)
                .is_err()
        );
        assert_eq!(out, [1, 1], "a refused copy copies nothing");
    }
}

#[test]
fn an_offset_that_overflows_is_refused() {
    for region in both_kinds(16) {
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

    let aligned = [vec![4], vec![0, 8]];
    for (region, expected) in both_kinds(16).iter().zip(aligned) {
        let aligned: Vec<u64> = (0..20).filter(|at| region.word(*at).is_some()).collect();
        assert_eq!(aligned, expected);
        let first = expected[0];
        let word = region.word(first).unwrap();
        word.store(0x0102_0304_0506_0708, Ordering::Relaxed);
        let mut out = [0; 8];
        region.read(first, &mut out).unwrap();
        assert_eq!(u64::from_ne_bytes(out), 0x0102_0304_0506_0708);
        assert!(region.word(u64::MAX - 3).is_none());
    }
}

#[test]
fn memory_of_this_process_is_placed_into_directly_and_kept_until_its_region_is_gone() {
    let ours = Arc::new(SharedMemory::anonymous(5000).unwrap());
    let region = RegionMemory::whole(Arc::clone(&ours));
    region.write(4990, b"end of it!").unwrap();
    let mut out = [0; 10];
    ours.read(4990, &mut out).unwrap();
    assert_eq!(&out, b"end of it!");
    ours.write(0, b"ours").unwrap();
    assert_eq!(Arc::strong_count(&ours), 2);
    drop(ours);
    let mut out = [0; 4];
    region.read(0, &mut out).unwrap();
    assert_eq!(&out, b"ours");
    assert!(!region.is_broken());
}

#[test]
#[cfg_attr(miri, ignore)]
fn memory_that_another_process_may_have_is_no_local_memory() {
    let (memory, _fd) = SharedMemory::create("test", 4096).unwrap();
    let region = RegionMemory::whole(Arc::new(memory));
    assert!(matches!(
        region,
        RegionMemory::Shared {
            offset: 0,
            len: 4096,
            ..
        }
    ));
}
