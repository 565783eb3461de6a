//! Memory windows of type 1: for all streams of their protection domain.

use super::*;

const WINDOW: Stag = Stag(0x0077_7700);
const NOTHING: Binding = Binding {
    region: Stag(0),
    base: TaggedOffset(0),
    len: 0,
    access: Access::LOCAL_WRITE,
};

fn keyed(key: u8) -> Stag {
    Stag::from_parts(WINDOW.index(), key)
}

fn bound(access: Access) -> StagTable {
    let mut table = table(ALL);
    let kind = StagKind::WindowType1;
    table.add_unbound(WINDOW, PD, kind).unwrap();
    table.bind(keyed(1), USER, &part(access)).unwrap();
    table
}

#[test]
fn every_stream_of_the_domain_may_use_it_and_no_other() {
    let mut table = bound(WRITE);
    assert_eq!(may_read(&table, keyed(1), BASE + 8, 16, USER), Ok(()));
    assert_eq!(may_read(&table, keyed(1), BASE + 8, 16, NEIGHBOUR), Ok(()));
    let foreign = StagError::NotAssociated { stag: keyed(1) };
    let found = may_read(&table, keyed(1), BASE + 8, 16, OTHER_USER);
    assert_eq!(found, Err(foreign));
    let beside = may_read(&table, keyed(1), BASE + 7, 1, NEIGHBOUR);
    assert!(matches!(beside, Err(StagError::Bounds { .. })));
    table.stream_added(USER);
    table.stream_removed(USER);
    let found = may_read(&table, keyed(1), BASE + 8, 16, NEIGHBOUR);
    assert_eq!(found, Ok(()), "it outlives the queue pair that bound it");
}

#[test]
fn it_gives_no_right_to_local_work() {
    let table = bound(Access::ALL);
    let sge = Sge {
        addr: BASE + 8,
        length: 8,
        lkey: keyed(1).0,
    };
    let rights = StagError::AccessRights { stag: keyed(1) };
    assert_eq!(table.local_read(&sge, USER).unwrap_err(), rights);
    assert_eq!(table.local_write(&sge, USER).unwrap_err(), rights);
}

/// Of a window of type 1 no stream is the only user, and its bindings end by bindings.
#[test]
fn no_peer_and_no_local_invalidate_ends_it() {
    let mut table = bound(READ);
    table.stream_added(USER);
    let rights = Err(StagError::AccessRights { stag: keyed(1) });
    assert_eq!(table.invalidate(keyed(1), USER), rights, "a single stream");
    assert_eq!(table.local_invalidate(keyed(1), USER).map(|_| ()), rights);
    assert_eq!(may_read(&table, keyed(1), BASE + 8, 16, USER), Ok(()));
}

#[test]
fn it_is_bound_anew_in_one_step_under_another_key() {
    let mut table = bound(READ);
    let same = table.bind(keyed(1), USER, &part(WRITE));
    assert_eq!(same, Err(CannotBind::OldKey { stag: keyed(1) }));
    let outside = Binding {
        len: 999,
        ..part(READ)
    };
    assert!(table.bind(keyed(2), USER, &outside).is_err());
    let still = may_read(&table, keyed(1), BASE + 8, 16, USER);
    assert_eq!(still, Ok(()), "what was refused changes nothing");
    let elsewhere = Binding {
        base: TaggedOffset(BASE + 32),
        ..part(READ)
    };
    table.bind(keyed(2), NEIGHBOUR, &elsewhere).unwrap();
    let invalid = Err(StagError::Invalid { stag: keyed(1) });
    assert_eq!(may_read(&table, keyed(1), BASE + 8, 16, USER), invalid);
    assert_eq!(may_read(&table, keyed(2), BASE + 32, 16, USER), Ok(()));
    assert!(may_read(&table, keyed(2), BASE + 8, 16, USER).is_err());
}

#[test]
fn binding_it_to_no_byte_ends_it_and_its_key() {
    let mut table = bound(READ);
    let foreign = table.bind(keyed(2), OTHER_USER, &NOTHING);
    assert_eq!(foreign, Err(CannotBind::Unfit { stag: keyed(2) }));
    table.bind(keyed(2), NEIGHBOUR, &NOTHING).unwrap();
    for key in [1, 2] {
        let invalid = Err(StagError::Invalid { stag: keyed(key) });
        assert_eq!(may_read(&table, keyed(key), BASE + 8, 1, USER), invalid);
    }
    table.bind(keyed(2), NEIGHBOUR, &NOTHING).unwrap();
    let old = table.bind(keyed(1), USER, &part(READ));
    assert_eq!(old, Err(CannotBind::OldKey { stag: keyed(1) }));
    table.bind(keyed(2), USER, &part(READ)).unwrap();
    assert_eq!(may_read(&table, keyed(2), BASE + 8, 16, USER), Ok(()));
}

#[test]
fn it_gives_nothing_without_its_region() {
    let mut table = bound(READ);
    table.local_invalidate(STAG, USER).unwrap();
    let invalid = Err(StagError::Invalid { stag: keyed(1) });
    assert_eq!(may_read(&table, keyed(1), BASE + 8, 16, USER), invalid);
    assert!(table.remove(STAG));
    table
        .add(STAG, PD, ALL, TaggedOffset(BASE), memory())
        .unwrap();
    assert_eq!(may_read(&table, keyed(1), BASE + 8, 16, USER), invalid);
}

/// RFC 5040 section 8.1.1, 2: what one stream may use is not given to all of the domain.
#[test]
fn it_is_not_bound_to_a_region_of_one_stream() {
    let mut table = StagTable::new(4);
    let (access, base) = (ALL, TaggedOffset(BASE));
    table
        .add_for_stream(STAG, USER, access, base, memory())
        .unwrap();
    let kind = StagKind::WindowType1;
    table.add_unbound(WINDOW, PD, kind).unwrap();
    let wider = table.bind(keyed(1), USER, &part(READ));
    let limited = StagError::NotAssociated { stag: STAG };
    assert_eq!(wider, Err(CannotBind::Region(limited)));
    assert!(table.bind(keyed(1), NEIGHBOUR, &part(READ)).is_err());
    let own = Stag::from_parts(5, 0);
    table.add_unbound(own, PD, StagKind::WindowType2B).unwrap();
    table.bind(own, USER, &part(READ)).unwrap();
}
