//! An STag in the tables of two shards: what work does in one holds in the other.

use super::*;

const LATER: Stag = Stag(STAG.0 + 1);
const WINDOW: Stag = Stag(0x0077_7700);

fn keyed(key: u8) -> Stag {
    Stag::from_parts(WINDOW.index(), key)
}

/// Two shards with the region of [`table`].
fn shards() -> [StagTable; 2] {
    let word = StagWord::valid(STAG);
    [(); 2].map(|()| {
        let mut table = table(ALL);
        table.share(STAG, word.clone());
        table
    })
}

/// The same, with a window or fast region too.
fn with(kind: StagKind) -> [StagTable; 2] {
    let word = StagWord::unbound();
    shards().map(|mut table| {
        table.add_unbound(WINDOW, PD, kind).unwrap();
        table.share(WINDOW, word.clone());
        table
    })
}

/// All of the region, under its next key.
fn again() -> Binding {
    Binding {
        region: LATER,
        base: TaggedOffset(BASE),
        len: LEN as u64,
        access: ALL,
    }
}

fn reads(table: &StagTable, stag: Stag) -> bool {
    may_read(table, stag, BASE + 8, 8, USER).is_ok()
}

#[test]
fn a_region_is_valid_in_all_shards_until_work_of_one_invalidates_it_in_all() {
    let [mut a, b] = shards();
    assert!(reads(&a, STAG) && reads(&b, STAG));
    a.local_invalidate(STAG, USER).unwrap();
    let invalid = Err(StagError::Invalid { stag: STAG });
    assert_eq!(may_read(&a, STAG, BASE, 8, USER), invalid);
    assert_eq!(may_read(&b, STAG, BASE, 8, USER), invalid);
    assert!(!b.look(STAG.index()).unwrap().valid);
}

#[test]
fn a_region_that_is_registered_again_is_so_in_all_shards() {
    let [mut a, mut b] = shards();
    a.local_invalidate(STAG, USER).unwrap();
    let half = Binding {
        len: LEN as u64 / 2,
        access: READ,
        ..again()
    };
    b.fast_register(LATER, USER, None, &half).unwrap();
    for table in [&a, &b] {
        assert!(reads(table, LATER) && !reads(table, STAG));
        let end = BASE + LEN as u64 / 2;
        let outside = may_read(table, LATER, end, 1, USER);
        assert!(
            matches!(outside, Err(StagError::Bounds { .. })),
            "{outside:?}"
        );
        let written = table.remote_write(LATER, TaggedOffset(BASE), 8, USER);
        let refused = Err(StagError::AccessRights { stag: LATER });
        assert_eq!(written.map(|_| ()), refused);
    }
    // Neither shard may register it under another key: it is valid.
    let third = Stag(LATER.0 + 1);
    let to = Binding {
        region: third,
        ..again()
    };
    let refused = a.fast_register(third, USER, None, &to);
    assert_eq!(refused, Err(CannotBind::Valid { stag: third }));
    // Either may invalidate it.
    a.local_invalidate(LATER, USER).unwrap();
    assert!(!reads(&a, LATER) && !reads(&b, LATER));
    a.fast_register(third, USER, None, &to).unwrap();
    assert!(reads(&a, third) && reads(&b, third));
    a.stream_removed(USER);
    assert!(reads(&a, third) && reads(&b, third));
}

#[test]
fn what_is_registered_again_for_one_stream_is_no_other_s_in_any_shard() {
    let [mut a, mut b] = shards();
    a.local_invalidate(STAG, USER).unwrap();
    b.fast_register(LATER, USER, Some(USER.qp), &again())
        .unwrap();
    assert!(reads(&b, LATER));
    let refused = Err(StagError::NotAssociated { stag: LATER });
    for table in [&a, &b] {
        assert_eq!(may_read(table, LATER, BASE + 8, 8, NEIGHBOUR), refused);
    }
    let third = Stag(LATER.0 + 1);
    let refused = a.fast_register(third, NEIGHBOUR, None, &again());
    assert_eq!(refused, Err(CannotBind::Valid { stag: third }));
    assert!(a.local_invalidate(LATER, NEIGHBOUR).is_err());
    b.stream_ended(USER.qp);
    assert!(!reads(&b, LATER));
    let invalid = Err(StagError::Invalid { stag: LATER });
    assert_eq!(may_read(&a, LATER, BASE + 8, 8, NEIGHBOUR), invalid);
}

#[test]
fn a_key_that_was_valid_in_one_shard_is_an_old_one_in_all() {
    let [mut a, mut b] = shards();
    a.local_invalidate(STAG, USER).unwrap();
    b.fast_register(LATER, USER, None, &again()).unwrap();
    b.local_invalidate(LATER, USER).unwrap();
    let refused = a.fast_register(LATER, USER, None, &again());
    assert_eq!(refused, Err(CannotBind::OldKey { stag: LATER }));
}

#[test]
fn a_window_of_one_stream_is_bound_in_one_shard_at_a_time() {
    let [mut a, mut b] = with(StagKind::WindowType2B);
    a.bind(keyed(1), USER, &part(READ)).unwrap();
    let refused = b.bind(keyed(2), NEIGHBOUR, &part(READ));
    assert_eq!(refused, Err(CannotBind::Valid { stag: keyed(2) }));
    a.stream_ended(USER.qp);
    b.bind(keyed(2), NEIGHBOUR, &part(READ)).unwrap();
    assert!(may_read(&b, keyed(2), BASE + 8, 8, NEIGHBOUR).is_ok());
    assert!(!reads(&a, keyed(1)) && !reads(&a, keyed(2)));
}

#[test]
fn a_window_of_the_domain_is_bound_in_all_shards_to_what_one_bound_it_to_last() {
    let [mut a, mut b] = with(StagKind::WindowType1);
    a.bind(keyed(1), USER, &part(READ)).unwrap();
    assert!(reads(&a, keyed(1)) && reads(&b, keyed(1)));
    b.bind(keyed(2), NEIGHBOUR, &part(READ)).unwrap();
    for table in [&a, &b] {
        assert!(!reads(table, keyed(1)) && reads(table, keyed(2)));
    }
    let nothing = Binding {
        len: 0,
        ..part(READ)
    };
    a.bind(keyed(2), USER, &nothing).unwrap();
    assert!(!reads(&a, keyed(2)) && !reads(&b, keyed(2)));
}

/// Each registration of a region has windows of its own, whatever shard makes them.
#[test]
fn a_window_ends_with_the_registration_that_it_was_bound_to_in_all_shards() {
    let [mut a, mut b] = with(StagKind::WindowType1);
    a.local_invalidate(STAG, USER).unwrap();
    a.fast_register(LATER, USER, None, &again()).unwrap();
    let to = Binding {
        region: LATER,
        ..part(READ)
    };
    // This shard has to take the region over first; the other one its own registration's window.
    b.bind(keyed(1), USER, &to).unwrap();
    assert!(reads(&a, keyed(1)) && reads(&b, keyed(1)));
    b.local_invalidate(LATER, USER).unwrap();
    assert!(!reads(&a, keyed(1)) && !reads(&b, keyed(1)));
    let third = Stag(LATER.0 + 1);
    let to = Binding {
        region: third,
        ..again()
    };
    b.fast_register(third, USER, None, &to).unwrap();
    for table in [&a, &b] {
        assert!(reads(table, third));
        assert!(!reads(table, keyed(1)), "it was bound to what was before");
    }
}

/// A shard that has looked at neither, or at the region only, when the region has another registration.
#[test]
fn a_shard_that_looks_late_gives_nothing_of_what_a_window_was_never_bound_to() {
    for looks_at_region_first in [false, true] {
        for kind in [StagKind::WindowType1, StagKind::FastRegion] {
            let [mut a, b] = with(kind);
            match kind {
                StagKind::FastRegion => a.fast_register(keyed(1), USER, None, &part(READ)).unwrap(),
                _ => drop(a.bind(keyed(1), USER, &part(READ)).unwrap()),
            }
            a.local_invalidate(STAG, USER).unwrap();
            a.fast_register(LATER, USER, None, &again()).unwrap();
            if looks_at_region_first {
                assert!(reads(&b, LATER));
            }
            let invalid = Err(StagError::Invalid { stag: keyed(1) });
            assert_eq!(may_read(&b, keyed(1), BASE + 8, 8, USER), invalid);
            assert!(reads(&b, LATER) && !reads(&a, keyed(1)));
        }
    }
}

#[test]
fn a_window_whose_region_is_gone_gives_nothing_in_any_shard() {
    let [mut a, mut b] = with(StagKind::WindowType1);
    a.bind(keyed(1), USER, &part(READ)).unwrap();
    a.remove(STAG);
    b.remove(STAG);
    let invalid = Err(StagError::Invalid { stag: keyed(1) });
    assert_eq!(may_read(&a, keyed(1), BASE + 8, 8, USER), invalid);
    assert_eq!(may_read(&b, keyed(1), BASE + 8, 8, USER), invalid);
}

/// What others may have taken over is waited for.
#[test]
fn taking_rights_away_waits_for_the_other_shards_whoever_gave_them() {
    let [mut a, mut b] = with(StagKind::WindowType1);
    let mut passes = rnic_xsk::Passes::among(2).into_iter();
    a.join(passes.next().unwrap());
    b.join(passes.next().unwrap());
    assert!(a.bind(keyed(1), USER, &part(READ)).unwrap().is_none());
    assert!(a.bind(keyed(2), USER, &part(READ)).unwrap().is_some());
    assert!(b.bind(keyed(3), USER, &part(READ)).unwrap().is_some());
    let nothing = Binding {
        len: 0,
        ..part(READ)
    };
    assert!(a.bind(keyed(3), USER, &nothing).unwrap().is_some());
    assert!(a.bind(keyed(3), USER, &nothing).unwrap().is_none());
}

#[test]
fn what_is_bound_to_a_region_ends_when_another_shard_invalidates_the_region() {
    for kind in [StagKind::WindowType2B, StagKind::FastRegion] {
        let [mut a, mut b] = with(kind);
        match kind {
            StagKind::FastRegion => a.fast_register(keyed(1), USER, None, &part(READ)).unwrap(),
            _ => drop(a.bind(keyed(1), USER, &part(READ)).unwrap()),
        }
        assert!(reads(&a, keyed(1)));
        // The same stream, as if it were there.
        assert!(reads(&b, keyed(1)), "{kind:?}");
        b.local_invalidate(STAG, USER).unwrap();
        assert!(!reads(&a, keyed(1)) && !reads(&b, keyed(1)), "{kind:?}");
    }
}

#[test]
fn a_stream_s_region_ends_with_the_stream_in_all_shards() {
    let word = StagWord::valid(STAG);
    let [mut a, b] = [(); 2].map(|()| {
        let mut table = StagTable::new(4);
        let base = TaggedOffset(BASE);
        table
            .add_for_stream(STAG, USER, ALL, base, memory())
            .unwrap();
        table.share(STAG, word.clone());
        table
    });
    assert!(reads(&a, STAG) && reads(&b, STAG));
    a.stream_ended(USER.qp);
    assert!(!reads(&a, STAG) && !reads(&b, STAG));
}

/// RFC 5040 section 8.1.1, 7: streams of other shards count.
#[test]
fn a_peer_invalidates_no_stag_that_a_stream_of_another_shard_may_use() {
    let [mut a, mut b] = shards();
    for table in [&mut a, &mut b] {
        table.stream_added(USER);
        table.stream_added(NEIGHBOUR);
    }
    let refused = Err(StagError::NotAssociated { stag: STAG });
    assert_eq!(a.invalidate(STAG, USER), refused);
    for table in [&mut a, &mut b] {
        table.stream_removed(NEIGHBOUR);
    }
    a.invalidate(STAG, USER).unwrap();
    assert!(!reads(&b, STAG));
}
