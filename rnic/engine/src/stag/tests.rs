use std::sync::Arc;

use rnic_ipc::shm::SharedMemory;

use super::*;

mod fast;
mod random;
mod shared;
mod streams;
mod type_1;
mod windows;

const PD: PdId = PdId(1);
const OTHER_PD: PdId = PdId(2);
const USER: User = User {
    pd: PD,
    qp: QpNum(7),
};
const OTHER_USER: User = User {
    pd: OTHER_PD,
    qp: QpNum(8),
};
/// Another stream of the same protection domain.
const NEIGHBOUR: User = User {
    pd: PD,
    qp: QpNum(9),
};
const STAG: Stag = Stag(0x0012_3456);
const BASE: u64 = 0x1000;
const LEN: usize = 64;

const ALL: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_ATOMIC);

const READ: Access = Access::REMOTE_READ;
const WRITE: Access = READ.union(Access::REMOTE_WRITE);

fn memory() -> RegionMemory {
    RegionMemory::Shared {
        memory: Arc::new(SharedMemory::private(LEN).unwrap()),
        offset: 0,
        len: LEN,
    }
}

fn table(access: Access) -> StagTable {
    let mut table = StagTable::new(4);
    table
        .add(STAG, PD, access, TaggedOffset(BASE), memory())
        .unwrap();
    table
}

/// The second to the third eight bytes of the region.
fn part(access: Access) -> Binding {
    Binding {
        region: STAG,
        base: TaggedOffset(BASE + 8),
        len: 16,
        access,
    }
}

fn may_read(table: &StagTable, stag: Stag, at: u64, len: u32, user: User) -> Result<(), StagError> {
    let found = table.remote_read(stag, TaggedOffset(at), len, user);
    found.map(|_| ())
}

fn read(table: &StagTable, to: u64, len: u32) -> Result<(), StagError> {
    table
        .remote_read(STAG, TaggedOffset(to), len, USER)
        .map(|_| ())
}

fn write(table: &StagTable, to: u64, len: u32) -> Result<(), StagError> {
    table
        .remote_write(STAG, TaggedOffset(to), len, USER)
        .map(|_| ())
}

#[test]
fn an_unknown_stag_is_invalid_and_so_is_a_wrong_key() {
    let table = table(ALL);
    for stag in [Stag(0), Stag(STAG.0 + 1), Stag(STAG.0 ^ 0x100)] {
        let found = table.remote_read(stag, TaggedOffset(BASE), 1, USER);
        assert_eq!(found.unwrap_err(), StagError::Invalid { stag });
    }
}

#[test]
fn another_protection_domain_is_not_associated() {
    let table = table(ALL);
    let found = table.remote_read(STAG, TaggedOffset(BASE), 1, OTHER_USER);
    assert_eq!(found.unwrap_err(), StagError::NotAssociated { stag: STAG });
    let sge = Sge {
        addr: BASE,
        length: 1,
        lkey: STAG.0,
    };
    let found = table.local_read(&sge, OTHER_USER);
    assert_eq!(found.unwrap_err(), StagError::NotAssociated { stag: STAG });
}

#[test]
fn each_right_is_its_own() {
    let rights = [
        (Access::REMOTE_READ, true, false, false),
        (Access::REMOTE_WRITE, false, true, false),
        (Access::LOCAL_WRITE, false, false, true),
        (Access::default(), false, false, false),
    ];
    let sge = Sge {
        addr: BASE,
        length: 1,
        lkey: STAG.0,
    };
    for (access, may_read, may_write, local_write) in rights {
        let table = table(access);
        assert_eq!(read(&table, BASE, 1).is_ok(), may_read);
        assert_eq!(write(&table, BASE, 1).is_ok(), may_write);
        assert_eq!(table.local_write(&sge, USER).is_ok(), local_write);
        assert!(table.local_read(&sge, USER).is_ok(), "always allowed");
    }
}

#[test]
fn bounds_are_exact_at_both_ends() {
    let table = table(ALL);
    let at = |to, len| write(&table, to, len);
    assert_eq!(at(BASE, LEN as u32), Ok(()));
    assert_eq!(at(BASE + 63, 1), Ok(()));
    for (to, len) in [
        (BASE - 1, 1),
        (BASE, 65),
        (BASE + 64, 1),
        (0, 1),
        (BASE, u32::MAX),
    ] {
        let bounds = StagError::Bounds {
            stag: STAG,
            to: TaggedOffset(to),
            len,
        };
        assert_eq!(at(to, len), Err(bounds));
    }
}

#[test]
fn an_offset_that_wraps_has_its_own_name() {
    let table = table(ALL);
    let to = TaggedOffset(u64::MAX - 3);
    let found = write(&table, to.0, 8);
    assert_eq!(
        found,
        Err(StagError::Wrap {
            stag: STAG,
            to,
            len: 8
        })
    );
}

#[test]
fn a_region_whose_end_wraps_is_not_added() {
    let mut table = StagTable::new(4);
    let base = TaggedOffset(u64::MAX - 62);
    let found = table.add(STAG, PD, ALL, base, memory());
    assert_eq!(found, Err(AddRegionError::Wrap { base, len: 64 }));
}

#[test]
fn what_was_granted_is_copied_and_nothing_beside_it() {
    let table = table(ALL);
    let sink = table
        .remote_write(STAG, TaggedOffset(BASE + 8), 8, USER)
        .unwrap();
    sink.write(0, b"12345678").unwrap();
    assert!(sink.write(1, b"12345678").is_err());
    assert!(sink.write(u64::MAX, b"1").is_err());
    let source = table
        .remote_read(STAG, TaggedOffset(BASE + 7), 10, USER)
        .unwrap();
    let mut out = [0; 10];
    source.read(0, &mut out).unwrap();
    assert_eq!(&out, b"\x0012345678\0");
    assert!(source.read(1, &mut out).is_err());
    assert!(source.read(u64::MAX, &mut out).is_err());
}

#[test]
fn a_removed_stag_is_invalid_and_can_be_added_again() {
    let mut table = table(ALL);
    assert!(table.remove(STAG));
    assert!(!table.remove(STAG));
    assert!(read(&table, BASE, 1).is_err());
    table
        .add(STAG, PD, ALL, TaggedOffset(BASE), memory())
        .unwrap();
    let again = table.add(STAG, PD, ALL, TaggedOffset(BASE), memory());
    assert_eq!(again, Err(AddRegionError::InUse { stag: STAG }));
}

#[test]
fn a_full_table_says_so() {
    let mut table = StagTable::new(2);
    for index in 0..2 {
        table
            .add(
                Stag::from_parts(index, 0),
                PD,
                ALL,
                TaggedOffset(0),
                memory(),
            )
            .unwrap();
    }
    let found = table.add(Stag::from_parts(2, 0), PD, ALL, TaggedOffset(0), memory());
    assert_eq!(found, Err(AddRegionError::Full { capacity: 2 }));
}

/// A shard that registers does not move all its STags while segments wait.
#[test]
fn a_table_has_a_place_for_each_stag_from_the_beginning() {
    const COUNT: u32 = 1000;
    let mut table = StagTable::new(COUNT as usize);
    let places = table.entries.capacity();
    for index in 0..COUNT {
        let stag = Stag::from_parts(index, 0);
        let added = table.add(stag, PD, ALL, TaggedOffset(0), memory());
        added.unwrap();
    }
    assert_eq!(table.entries.capacity(), places);
}

#[test]
fn only_the_single_stream_of_its_domain_may_invalidate_an_stag() {
    let mut table = table(ALL);
    assert!(table.invalidate(STAG, USER).is_err(), "no stream at all");
    table.stream_added(USER);
    table.stream_added(USER);
    assert_eq!(
        table.invalidate(STAG, USER),
        Err(StagError::NotAssociated { stag: STAG })
    );
    table.stream_removed(USER);
    assert_eq!(
        table.invalidate(STAG, OTHER_USER),
        Err(StagError::NotAssociated { stag: STAG })
    );
    assert_eq!(table.invalidate(STAG, USER), Ok(()));
    let invalid = Err(StagError::Invalid { stag: STAG });
    assert_eq!(read(&table, BASE, 1), invalid);
    assert_eq!(table.invalidate(STAG, USER), invalid);
    assert!(table.remove(STAG), "the owner can still take it away");
}

/// RFC 7306 section 5.2.1: the tagged offset may be any, the memory is what has to be aligned.
#[test]
fn an_atomic_is_aligned_by_its_memory_and_not_by_its_tagged_offset() {
    let mut table = StagTable::new(1);
    let base = TaggedOffset(0x1003);
    table.add(STAG, PD, ALL, base, memory()).unwrap();
    for offset in 0..56 {
        let found = table.remote_atomic(STAG, TaggedOffset(base.0 + offset), USER);
        let misaligned = matches!(found, Err(StagError::Misaligned { .. }));
        assert_eq!(misaligned, offset % 8 != 0, "{offset}");
        assert_eq!(found.is_ok(), offset % 8 == 0, "{offset}");
    }
}

/// One instruction does what the RFC's arithmetic says.
#[test]
fn atomics_in_one_step_are_those_of_the_rfc() {
    use rnic_proto::rdmap::AtomicOperation;

    let shared = Arc::new(SharedMemory::private(64).unwrap());
    let memory = RegionMemory::Shared {
        memory: shared.clone(),
        offset: 0,
        len: 64,
    };
    let mut table = StagTable::new(1);
    table.add(STAG, PD, ALL, TaggedOffset(0), memory).unwrap();
    let words = [0, 7, 1 << 31, 1 << 63, u64::MAX];
    for (original, operand) in words.iter().flat_map(|a| words.map(|b| (*a, b))) {
        let add = words.map(|mask| AtomicOperation::FetchAdd { add: operand, mask });
        let masks = words.iter().flat_map(|a| words.map(|b| (*a, b)));
        let swap = masks.map(|(swap_mask, compare_mask)| AtomicOperation::CompareSwap {
            swap: !operand,
            swap_mask,
            compare: operand,
            compare_mask,
        });
        for operation in add.into_iter().chain(swap) {
            shared.write(0, &original.to_ne_bytes()).unwrap();
            let target = table.remote_atomic(STAG, TaggedOffset(0), USER).unwrap();
            assert_eq!(target.apply(operation), Ok(Some(original)), "{operation:?}");
            let mut word = [0; 8];
            shared.read(0, &mut word).unwrap();
            let wanted = operation.apply(original);
            assert_eq!(u64::from_ne_bytes(word), wanted, "{operation:?}");
        }
    }
}

/// RFC 7306 section 5.3: two operations on one word are one after the other, whoever does them.
#[test]
fn atomics_on_one_word_from_two_threads_are_never_lost() {
    use rnic_proto::rdmap::AtomicOperation;

    const ROUNDS: u64 = 20_000;
    let shared = Arc::new(SharedMemory::private(64).unwrap());
    std::thread::scope(|scope| {
        for add in [1, 1 << 32] {
            let memory = RegionMemory::Shared {
                memory: shared.clone(),
                offset: 0,
                len: 64,
            };
            scope.spawn(move || {
                let mut table = StagTable::new(1);
                table.add(STAG, PD, ALL, TaggedOffset(0), memory).unwrap();
                for _ in 0..ROUNDS {
                    let target = table.remote_atomic(STAG, TaggedOffset(8), USER).unwrap();
                    let added = target.apply(AtomicOperation::FetchAdd { add, mask: 1 << 31 });
                    added.expect("the memory is there").expect("two write it");
                }
            });
        }
    });
    let mut word = [0; 8];
    shared.read(8, &mut word).unwrap();
    assert_eq!(u64::from_ne_bytes(word), ROUNDS << 32 | ROUNDS);
}

/// RFC 7306 section 8.2: the right to Atomic Operations is one of its own.
#[test]
fn the_right_to_atomics_is_not_that_to_write() {
    let atomic = READ | Access::REMOTE_ATOMIC;
    let refused = StagError::AccessRights { stag: STAG };
    let to = TaggedOffset(BASE);
    for (access, may_write) in [(WRITE, true), (atomic, false)] {
        let table = table(access);
        let write = table.remote_write(STAG, to, 8, USER).map(|_| ());
        let operation = table.remote_atomic(STAG, to, USER).map(|_| ());
        let (given, other) = match may_write {
            true => (write, operation),
            false => (operation, write),
        };
        assert_eq!((given, other), (Ok(()), Err(refused)), "{access:?}");
    }
}
