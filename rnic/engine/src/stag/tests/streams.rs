//! STags of one stream (RFC 5040 section 8.1.1, 2; RFC 5041 section 8.2).

use super::*;

fn user(qp: u32) -> User {
    User {
        pd: PD,
        qp: QpNum(qp),
    }
}

fn of(user: User, indexes: &[u32]) -> Vec<Stag> {
    let stag = |index: &u32| Stag::from_parts(*index, user.qp.0 as u8);
    indexes.iter().map(stag).collect()
}

fn add_for(table: &mut StagTable, stag: Stag, user: User) {
    let base = TaggedOffset(BASE);
    table
        .add_for_stream(stag, user, ALL, base, memory())
        .unwrap();
}

#[test]
fn a_region_of_one_stream_is_no_other_streams() {
    let mut table = StagTable::new(1);
    table.stream_added(USER);
    table.stream_added(NEIGHBOUR);
    add_for(&mut table, STAG, USER);
    let other = Err(StagError::NotAssociated { stag: STAG });
    assert_eq!(may_read(&table, STAG, BASE, 8, NEIGHBOUR), other);
    let sge = Sge {
        addr: BASE,
        length: 8,
        lkey: STAG.0,
    };
    assert_eq!(table.local_read(&sge, NEIGHBOUR).map(|_| ()), other);
    assert_eq!(table.local_write(&sge, NEIGHBOUR).map(|_| ()), other);
    assert_eq!(table.invalidate(STAG, NEIGHBOUR), other);
    assert_eq!(table.local_invalidate(STAG, NEIGHBOUR).map(|_| ()), other);
    assert!(table.local_write(&sge, USER).is_ok());
    // Its own peer may, however many streams the domain has.
    assert_eq!(table.invalidate(STAG, USER), Ok(()));
    let invalid = Err(StagError::Invalid { stag: STAG });
    assert_eq!(may_read(&table, STAG, BASE, 8, USER), invalid);
}

/// RFC 5040 section 8.1.1, 2: another connection of the same queue pair is another stream.
#[test]
fn what_was_of_a_stream_is_of_none_after_it() {
    let mut table = StagTable::new(1);
    add_for(&mut table, STAG, USER);
    table.stream_ended(USER.qp);
    let invalid = Err(StagError::Invalid { stag: STAG });
    assert_eq!(may_read(&table, STAG, BASE, 8, USER), invalid);
    assert_eq!(may_read(&table, STAG, BASE, 8, NEIGHBOUR), invalid);
    let stag = Stag::from_parts(STAG.index(), 1);
    let to = Binding {
        region: stag,
        ..part(READ)
    };
    table.fast_register(stag, USER, Some(USER.qp), &to).unwrap();
    assert_eq!(may_read(&table, stag, BASE + 8, 8, USER), Ok(()));
}

/// The list of a stream's STags is right whatever leaves it in which order.
#[test]
fn the_end_of_a_stream_ends_all_that_is_of_it_and_nothing_else() {
    let leavers: [&[u32]; 6] = [&[], &[1], &[5], &[3], &[5, 1, 3], &[1, 2, 3, 4, 5]];
    for gone in leavers {
        let mut table = StagTable::new(16);
        let (ours, theirs) = (user(7), user(9));
        for index in 1..6 {
            for stag in of(ours, &[index])
                .into_iter()
                .chain(of(theirs, &[index + 8]))
            {
                let user = if index + 8 == stag.index() {
                    theirs
                } else {
                    ours
                };
                add_for(&mut table, stag, user);
            }
        }
        let shared = Stag::from_parts(16, 0);
        table
            .add(shared, PD, ALL, TaggedOffset(BASE), memory())
            .unwrap();
        for (turn, stag) in of(ours, gone).into_iter().enumerate() {
            match turn % 2 {
                0 => assert!(table.remove(stag)),
                _ => assert_eq!(table.local_invalidate(stag, ours).map(|_| ()), Ok(())),
            }
        }
        table.stream_removed(ours);
        for stag in of(ours, &[1, 2, 3, 4, 5]) {
            let invalid = Err(StagError::Invalid { stag });
            assert_eq!(may_read(&table, stag, BASE, 8, ours), invalid, "{gone:?}");
        }
        for stag in of(theirs, &[9, 10, 11, 12, 13]) {
            assert_eq!(may_read(&table, stag, BASE, 8, theirs), Ok(()));
        }
        assert_eq!(may_read(&table, shared, BASE, 8, ours), Ok(()));
        table.stream_removed(theirs);
        assert!(table.first_of.is_empty(), "{gone:?}");
    }
}
