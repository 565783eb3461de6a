//! Memory windows of type 2B: bound to part of a region, for one stream.

use super::*;

const KIND: StagKind = StagKind::WindowType2B;
const WINDOW: Stag = Stag(0x0077_7700);

fn keyed(key: u8) -> Stag {
    Stag::from_parts(WINDOW.index(), key)
}

/// A table with a window of the second to the third eight bytes of the region, for [`USER`].
fn bound(access: Access) -> StagTable {
    let mut table = table(ALL);
    table.add_unbound(WINDOW, PD, KIND).unwrap();
    table.bind(keyed(1), USER, &part(access)).unwrap();
    table
}

#[test]
fn a_window_gives_its_part_of_the_region_and_nothing_beside_it() {
    let table = bound(WRITE);
    let sink = table.remote_write(keyed(1), TaggedOffset(BASE + 8), 16, USER);
    sink.unwrap().write(0, b"0123456789abcdef").unwrap();
    let mut found = [0; 18];
    let region = table.remote_read(STAG, TaggedOffset(BASE + 7), 18, USER);
    region.unwrap().read(0, &mut found).unwrap();
    assert_eq!(&found, b"\x000123456789abcdef\0");
    for (at, len) in [(BASE + 7, 1), (BASE + 8, 17), (BASE + 24, 1)] {
        let found = may_read(&table, keyed(1), at, len, USER);
        assert!(matches!(found, Err(StagError::Bounds { .. })), "{found:?}");
    }
}

#[test]
fn a_window_gives_the_rights_of_its_binding_and_none_locally() {
    let table = bound(READ);
    let at = TaggedOffset(BASE + 8);
    assert!(table.remote_read(keyed(1), at, 8, USER).is_ok());
    let rights = StagError::AccessRights { stag: keyed(1) };
    let written = table.remote_write(keyed(1), at, 8, USER);
    assert_eq!(written.unwrap_err(), rights);
    assert_eq!(table.remote_atomic(keyed(1), at, USER).unwrap_err(), rights);
    let sge = Sge {
        addr: at.0,
        length: 8,
        lkey: keyed(1).0,
    };
    assert_eq!(table.local_read(&sge, USER).unwrap_err(), rights);
    assert_eq!(table.local_write(&sge, USER).unwrap_err(), rights);
}

/// RFC 5040 section 8.1.1: an STag of one stream is no other stream's, though the domain is theirs.
#[test]
fn a_window_is_of_the_stream_that_bound_it() {
    let mut table = bound(READ);
    let other = Err(StagError::NotAssociated { stag: keyed(1) });
    assert_eq!(may_read(&table, keyed(1), BASE + 8, 8, NEIGHBOUR), other);
    assert_eq!(table.invalidate(keyed(1), NEIGHBOUR), other);
    assert_eq!(
        table.local_invalidate(keyed(1), NEIGHBOUR).map(|_| ()),
        other
    );
    assert_eq!(may_read(&table, keyed(1), BASE + 8, 8, USER), Ok(()));
}

/// RFC 5040 section 8.1.1, 7: the peer of its stream may, however many streams the domain has.
#[test]
fn a_windows_own_stream_may_invalidate_it_beside_others() {
    let mut table = bound(READ);
    table.stream_added(USER);
    table.stream_added(NEIGHBOUR);
    let region = table.invalidate(STAG, USER);
    assert!(region.is_err(), "the region is of both");
    assert_eq!(table.invalidate(keyed(1), USER), Ok(()));
    let invalid = Err(StagError::Invalid { stag: keyed(1) });
    assert_eq!(may_read(&table, keyed(1), BASE + 8, 8, USER), invalid);
    assert_eq!(table.invalidate(keyed(1), USER), invalid);
}

#[test]
fn a_window_that_is_bound_again_has_another_key_and_not_the_old_one() {
    let mut table = bound(READ);
    let again = table.bind(keyed(2), USER, &part(READ));
    assert_eq!(again, Err(CannotBind::Valid { stag: keyed(2) }));
    table.local_invalidate(keyed(1), USER).unwrap();
    let old = table.bind(keyed(1), USER, &part(READ));
    assert_eq!(old, Err(CannotBind::OldKey { stag: keyed(1) }));
    table.bind(keyed(2), NEIGHBOUR, &part(READ)).unwrap();
    let invalid = Err(StagError::Invalid { stag: keyed(1) });
    assert_eq!(may_read(&table, keyed(1), BASE + 8, 8, USER), invalid);
    assert_eq!(may_read(&table, keyed(2), BASE + 8, 8, NEIGHBOUR), Ok(()));
}

/// RFC 5041 section 8.3.1: revoked means revoked, through windows too, and for good.
#[test]
fn a_region_that_was_removed_is_not_reached_by_its_windows() {
    let mut table = bound(READ);
    assert!(table.remove(STAG));
    let invalid = Err(StagError::Invalid { stag: keyed(1) });
    assert_eq!(may_read(&table, keyed(1), BASE + 8, 8, USER), invalid);
    table
        .add(STAG, PD, ALL, TaggedOffset(BASE), memory())
        .unwrap();
    let found = may_read(&table, keyed(1), BASE + 8, 8, USER);
    assert_eq!(found, invalid, "another region under the same STag");
}

#[test]
fn an_invalidated_region_is_not_reached_by_its_windows() {
    let mut table = bound(READ);
    table.local_invalidate(STAG, USER).unwrap();
    let invalid = Err(StagError::Invalid { stag: keyed(1) });
    assert_eq!(may_read(&table, keyed(1), BASE + 8, 8, USER), invalid);
}

#[test]
fn a_windows_rights_end_with_its_queue_pair() {
    let mut table = bound(READ);
    table.stream_added(USER);
    table.stream_removed(USER);
    let invalid = Err(StagError::Invalid { stag: keyed(1) });
    assert_eq!(may_read(&table, keyed(1), BASE + 8, 8, USER), invalid);
    table.bind(keyed(2), NEIGHBOUR, &part(READ)).unwrap();
}

#[test]
fn a_window_is_removed_whatever_its_key() {
    let mut table = bound(READ);
    assert!(table.remove(WINDOW), "by the name that it came with");
    let invalid = Err(StagError::Invalid { stag: keyed(1) });
    assert_eq!(may_read(&table, keyed(1), BASE + 8, 8, USER), invalid);
    assert!(table.first_of.is_empty());
}

/// RFC 5040 section 8.1.1, 2: the next connection of a queue pair is another stream.
#[test]
fn a_windows_rights_end_with_its_stream_and_others_keep_theirs() {
    let mut table = bound(READ);
    let other = Stag::from_parts(0x8888, 5);
    table.add_unbound(other, PD, KIND).unwrap();
    table.bind(other, NEIGHBOUR, &part(READ)).unwrap();
    table.stream_ended(USER.qp);
    let invalid = Err(StagError::Invalid { stag: keyed(1) });
    assert_eq!(may_read(&table, keyed(1), BASE + 8, 8, USER), invalid);
    assert_eq!(may_read(&table, other, BASE + 8, 8, NEIGHBOUR), Ok(()));
    table.bind(keyed(2), USER, &part(READ)).unwrap();
    table.stream_ended(NEIGHBOUR.qp);
    assert_eq!(may_read(&table, keyed(2), BASE + 8, 8, USER), Ok(()));
}

#[test]
fn a_window_whose_region_is_gone_can_be_bound_again_and_ends_once() {
    let mut table = bound(READ);
    assert!(table.remove(STAG));
    table
        .add(STAG, PD, ALL, TaggedOffset(BASE), memory())
        .unwrap();
    assert_eq!(table.bind(keyed(2), NEIGHBOUR, &part(READ)), Ok(None));
    table.stream_ended(USER.qp);
    assert_eq!(may_read(&table, keyed(2), BASE + 8, 8, NEIGHBOUR), Ok(()));
    table.stream_ended(NEIGHBOUR.qp);
    let invalid = Err(StagError::Invalid { stag: keyed(2) });
    assert_eq!(may_read(&table, keyed(2), BASE + 8, 8, NEIGHBOUR), invalid);
    assert!(table.first_of.is_empty());
}

#[test]
fn what_a_window_cannot_be_bound_to_is_named() {
    let mut table = table(ALL);
    table.add_unbound(WINDOW, PD, KIND).unwrap();
    let other = Stag::from_parts(0x9999, 0);
    table.add_unbound(other, PD, KIND).unwrap();
    let mut refused =
        |window, user, binding: Binding| table.bind(window, user, &binding).unwrap_err();
    let no_window = |stag| CannotBind::Unfit { stag };
    assert_eq!(refused(STAG, USER, part(READ)), no_window(STAG));
    assert_eq!(
        refused(keyed(1), OTHER_USER, part(READ)),
        no_window(keyed(1))
    );
    let to = |base, len| Binding {
        base: TaggedOffset(base),
        len,
        ..part(READ)
    };
    let outside = [
        (BASE - 1, 8),
        (BASE, 65),
        (BASE + 64, 1),
        (BASE, 0),
        (BASE, u64::MAX),
        (u64::MAX, 2),
    ];
    for (base, len) in outside {
        let found = refused(keyed(1), USER, to(base, len));
        assert!(matches!(found, CannotBind::Range { .. }), "{found:?}");
    }
    let window_of_window = Binding {
        region: other,
        ..part(READ)
    };
    let found = refused(keyed(1), USER, window_of_window);
    assert!(matches!(
        found,
        CannotBind::Region(StagError::Invalid { .. })
    ));
    let mut guarded = super::table(READ);
    guarded.add_unbound(WINDOW, PD, KIND).unwrap();
    let found = guarded.bind(keyed(1), USER, &part(WRITE));
    assert_eq!(found, Err(CannotBind::Rights { region: STAG }));
    assert_eq!(guarded.bind(keyed(1), USER, &part(READ)), Ok(None));
}

#[test]
fn a_look_tells_windows_from_regions() {
    let table = bound(READ);
    let is_window = |stag: Stag| table.look(stag.index()).unwrap().window;
    assert!(is_window(WINDOW));
    assert!(!is_window(STAG));
}
