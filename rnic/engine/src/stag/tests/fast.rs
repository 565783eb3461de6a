//! Fast registration: regions that work makes valid again, and fast regions.

use super::*;

const FAST: Stag = Stag(0x0055_5500);

fn keyed(key: u8) -> Stag {
    Stag::from_parts(FAST.index(), key)
}

/// The region of [`table`] with another key.
fn again(key: u8) -> Stag {
    Stag::from_parts(STAG.index(), key)
}

fn own(key: u8, base: u64, len: u64, access: Access) -> (Stag, Binding) {
    let to = Binding {
        region: again(key),
        base: TaggedOffset(base),
        len,
        access,
    };
    (again(key), to)
}

/// A table with a region and a fast region of its second to third eight bytes.
fn registered(access: Access) -> StagTable {
    let mut table = table(ALL);
    table.add_unbound(FAST, PD, StagKind::FastRegion).unwrap();
    table
        .fast_register(keyed(1), USER, None, &part(access))
        .unwrap();
    table
}

fn sge(stag: Stag, at: u64, length: u32) -> Sge {
    Sge {
        addr: at,
        length,
        lkey: stag.0,
    }
}

#[test]
fn a_region_that_was_invalidated_is_registered_again_with_another_range_key_and_rights() {
    let mut table = table(ALL);
    let valid = own(0x57, BASE, 64, ALL);
    let refused = table.fast_register(valid.0, USER, None, &valid.1);
    assert_eq!(refused, Err(CannotBind::Valid { stag: valid.0 }));
    let written = table.remote_write(STAG, TaggedOffset(BASE + 8), 4, USER);
    written.unwrap().write(0, b"kept").unwrap();
    table.local_invalidate(STAG, USER).unwrap();
    let (stag, to) = own(0x57, BASE + 8, 16, READ);
    table.fast_register(stag, NEIGHBOUR, None, &to).unwrap();
    let mut found = [0; 4];
    let source = table.remote_read(stag, TaggedOffset(BASE + 8), 4, USER);
    source.unwrap().read(0, &mut found).unwrap();
    assert_eq!(&found, b"kept");
    for (at, len) in [(BASE + 7, 1), (BASE + 8, 17), (BASE, 8)] {
        let outside = may_read(&table, stag, at, len, USER);
        assert!(matches!(outside, Err(StagError::Bounds { .. })));
    }
    let write = table.remote_write(stag, TaggedOffset(BASE + 8), 4, USER);
    assert_eq!(write.unwrap_err(), StagError::AccessRights { stag });
    let invalid = Err(StagError::Invalid { stag: STAG });
    assert_eq!(may_read(&table, STAG, BASE + 8, 4, USER), invalid);
    // All of its memory is there again the next time.
    table.local_invalidate(stag, USER).unwrap();
    let (stag, to) = own(0x58, BASE, 64, ALL);
    table.fast_register(stag, USER, None, &to).unwrap();
    assert_eq!(may_read(&table, stag, BASE, 64, USER), Ok(()));
}

/// A peer that once had an STag doesn't get it back by an oversight.
#[test]
fn no_stag_is_valid_twice_in_a_row_under_one_key() {
    let mut table = table(ALL);
    table.local_invalidate(STAG, USER).unwrap();
    let (stag, to) = own(STAG.key(), BASE, 64, ALL);
    let refused = table.fast_register(stag, USER, None, &to);
    assert_eq!(refused, Err(CannotBind::OldKey { stag }));
    assert!(read(&table, BASE, 1).is_err());
    // The key that an STag without memory came with was not valid yet.
    table.add_unbound(FAST, PD, StagKind::FastRegion).unwrap();
    let (stag, to) = own(1, BASE, 64, ALL);
    table.fast_register(stag, USER, None, &to).unwrap();
    let to = Binding {
        region: stag,
        ..part(READ)
    };
    table.fast_register(FAST, USER, None, &to).unwrap();
}

/// What a command registered is the most that work can give, and one domain's is no other's.
#[test]
fn no_registration_reaches_beyond_what_was_granted() {
    let mut table = StagTable::new(4);
    let readable = Access::REMOTE_READ;
    table
        .add(STAG, PD, readable, TaggedOffset(BASE), memory())
        .unwrap();
    table.local_invalidate(STAG, USER).unwrap();
    let outside = [
        (BASE - 1, 8),
        (BASE, 65),
        (BASE + 64, 1),
        (BASE, 0),
        (BASE, u64::MAX),
        (u64::MAX, 2),
        (0, u64::MAX),
    ];
    for (base, len) in outside {
        let (stag, to) = own(1, base, len, READ);
        let found = table.fast_register(stag, USER, None, &to);
        assert!(matches!(found, Err(CannotBind::Range { .. })), "{found:?}");
    }
    let writes = [Access::LOCAL_WRITE, WRITE, READ | Access::REMOTE_ATOMIC];
    for access in writes {
        let (stag, to) = own(1, BASE, 64, access);
        let found = table.fast_register(stag, USER, None, &to);
        assert_eq!(found, Err(CannotBind::Rights { region: stag }));
    }
    let (stag, to) = own(1, BASE, 64, READ);
    let foreign = table.fast_register(stag, OTHER_USER, None, &to);
    assert_eq!(foreign, Err(CannotBind::Unfit { stag }));
    let of_another = Binding {
        region: again(2),
        ..to
    };
    let found = table.fast_register(stag, USER, None, &of_another);
    assert!(matches!(found, Err(CannotBind::Region(_))));
    table.fast_register(stag, USER, None, &to).unwrap();
}

#[test]
fn a_fast_region_is_part_of_a_region_for_peers_and_local_work() {
    let table = registered(ALL);
    let (stag, at) = (keyed(1), BASE + 8);
    let sink = table.local_write(&sge(stag, at, 16), NEIGHBOUR);
    sink.unwrap().write(0, b"0123456789abcdef").unwrap();
    let mut found = [0; 18];
    let region = table.remote_read(STAG, TaggedOffset(BASE + 7), 18, USER);
    region.unwrap().read(0, &mut found).unwrap();
    assert_eq!(&found, b"\x000123456789abcdef\0");
    assert!(table.local_read(&sge(stag, at, 16), USER).is_ok());
    assert!(
        table
            .remote_write(stag, TaggedOffset(at), 16, NEIGHBOUR)
            .is_ok()
    );
    for (at, len) in [(BASE + 7, 1), (BASE + 8, 17), (BASE + 24, 1)] {
        let outside = table.local_read(&sge(stag, at, len), USER).unwrap_err();
        assert!(matches!(outside, StagError::Bounds { .. }));
    }
    let foreign = may_read(&table, stag, at, 1, OTHER_USER);
    assert_eq!(foreign, Err(StagError::NotAssociated { stag }));
}

#[test]
fn a_fast_region_gives_the_rights_of_its_registration() {
    let table = registered(READ);
    let (stag, at) = (keyed(1), BASE + 8);
    let rights = StagError::AccessRights { stag };
    assert!(table.local_read(&sge(stag, at, 8), USER).is_ok());
    let written = table.local_write(&sge(stag, at, 8), USER);
    assert_eq!(written.unwrap_err(), rights);
    let written = table.remote_write(stag, TaggedOffset(at), 8, USER);
    assert_eq!(written.unwrap_err(), rights);
    let mut guarded = super::table(READ);
    guarded.add_unbound(FAST, PD, StagKind::FastRegion).unwrap();
    let found = guarded.fast_register(keyed(1), USER, None, &part(Access::LOCAL_WRITE));
    assert_eq!(found, Err(CannotBind::Rights { region: STAG }));
}

#[test]
fn a_fast_region_is_for_one_stream_when_the_work_says_so() {
    let mut table = registered(READ);
    table.stream_added(USER);
    table.stream_added(NEIGHBOUR);
    let shared = table.invalidate(keyed(1), USER);
    assert!(shared.is_err(), "the domain has another stream");
    table.local_invalidate(keyed(1), USER).unwrap();
    let limited = table.fast_register(keyed(2), USER, Some(USER.qp), &part(READ));
    limited.unwrap();
    let other = Err(StagError::NotAssociated { stag: keyed(2) });
    let at = BASE + 8;
    assert_eq!(may_read(&table, keyed(2), at, 8, NEIGHBOUR), other);
    let local = table.local_read(&sge(keyed(2), at, 8), NEIGHBOUR);
    assert_eq!(local.map(|_| ()), other);
    assert_eq!(may_read(&table, keyed(2), at, 8, USER), Ok(()));
    assert_eq!(table.invalidate(keyed(2), USER), Ok(()));
    let wide = table.fast_register(keyed(3), NEIGHBOUR, None, &part(READ));
    wide.unwrap();
    assert_eq!(may_read(&table, keyed(3), at, 8, USER), Ok(()));
}

/// RFC 5041 section 8.3.1: a registration that ended is not reached by what was bound to it, also
/// when the region is registered again.
#[test]
fn what_was_bound_to_a_region_ends_with_its_registration() {
    let mut table = registered(READ);
    let window = Stag::from_parts(0x33, 1);
    table
        .add_unbound(window, PD, StagKind::WindowType1)
        .unwrap();
    table.bind(window, USER, &part(READ)).unwrap();
    table.local_invalidate(STAG, USER).unwrap();
    let gone = |table: &StagTable| {
        for stag in [keyed(1), window] {
            let invalid = Err(StagError::Invalid { stag });
            assert_eq!(may_read(table, stag, BASE + 8, 8, USER), invalid);
        }
    };
    gone(&table);
    let (stag, to) = own(1, BASE, 64, ALL);
    table.fast_register(stag, USER, None, &to).unwrap();
    gone(&table);
    // What gives nothing need not be invalidated.
    let anew = Binding {
        region: stag,
        ..part(READ)
    };
    table.fast_register(keyed(2), USER, None, &anew).unwrap();
    table.bind(Stag::from_parts(0x33, 2), USER, &anew).unwrap();
    assert_eq!(may_read(&table, keyed(2), BASE + 8, 8, USER), Ok(()));
    assert!(table.remove(STAG));
    let invalid = Err(StagError::Invalid { stag: keyed(2) });
    assert_eq!(may_read(&table, keyed(2), BASE + 8, 8, USER), invalid);
}

#[test]
fn only_regions_with_memory_of_their_own_are_bound_to() {
    let mut table = registered(ALL);
    let window = Stag::from_parts(0x33, 1);
    table
        .add_unbound(window, PD, StagKind::WindowType1)
        .unwrap();
    let fast = Binding {
        region: keyed(1),
        ..part(READ)
    };
    let invalid = CannotBind::Region(StagError::Invalid { stag: keyed(1) });
    assert_eq!(table.bind(window, USER, &fast), Err(invalid));
    let unfit = CannotBind::Unfit { stag: window };
    let registered = table.fast_register(window, USER, None, &part(READ));
    assert_eq!(registered, Err(unfit), "a window is bound");
    let bound = table.bind(keyed(2), USER, &part(READ));
    assert_eq!(bound, Err(CannotBind::Unfit { stag: keyed(2) }));
    table.local_invalidate(keyed(1), USER).unwrap();
    let itself = Binding {
        region: keyed(2),
        ..part(READ)
    };
    let found = table.fast_register(keyed(2), USER, None, &itself);
    assert!(matches!(found, Err(CannotBind::Region(_))));
}
