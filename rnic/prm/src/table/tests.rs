use super::*;

const ALICE: ClientId = ClientId(1);
const BOB: ClientId = ClientId(2);

#[test]
fn zero_is_never_a_number() {
    let mut table = Table::new(2);
    assert_eq!(table.insert(ALICE, Phase::Live, ()), Some(1));
    assert!(table.live(ALICE, 0).is_none());
    assert!(table.remove(0).is_none());
}

#[test]
fn a_full_table_takes_no_more() {
    let mut table = Table::new(1);
    assert_eq!(table.insert(ALICE, Phase::Live, ()), Some(1));
    assert_eq!(table.insert(ALICE, Phase::Live, ()), None);
}

#[test]
fn the_longest_free_number_is_reused_first() {
    let mut table = Table::new(3);
    for _ in 0..3 {
        table.insert(ALICE, Phase::Live, ());
    }
    table.remove(2);
    table.remove(1);
    assert_eq!(table.insert(ALICE, Phase::Live, ()), Some(2));
    assert_eq!(table.insert(ALICE, Phase::Live, ()), Some(1));
    assert_eq!(table.insert(ALICE, Phase::Live, ()), None);
}

#[test]
fn a_freed_number_rests_while_fresh_ones_are_left() {
    let mut table = Table::new(2);
    table.insert(ALICE, Phase::Live, ());
    table.remove(1);
    assert_eq!(table.insert(ALICE, Phase::Live, ()), Some(2));
    assert_eq!(table.insert(ALICE, Phase::Live, ()), Some(1));
}

#[test]
fn objects_that_come_and_go_leave_a_table_as_long_as_the_numbers_that_rest() {
    let mut table = Table::new(u32::MAX);
    let stays = table.insert(ALICE, Phase::Live, ()).unwrap();
    let mut last = stays;
    for _ in 0..10 * RESTING {
        let id = table.insert(BOB, Phase::Live, ()).unwrap();
        assert_ne!(id, last);
        table.remove(id);
        last = id;
    }
    assert_eq!(table.slots.len(), 1 + RESTING);
    assert!(table.live(ALICE, stays).is_some());
}

#[test]
fn another_owner_or_phase_is_as_good_as_nothing() {
    let mut table = Table::new(2);
    let id = table.insert(ALICE, Phase::Coming, ()).unwrap();
    assert!(table.live(ALICE, id).is_none());
    table.get_mut(id).unwrap().phase = Phase::Live;
    assert!(table.live(ALICE, id).is_some());
    assert!(table.live(BOB, id).is_none());
    assert!(table.live(ALICE, 77).is_none());
    table.get_mut(id).unwrap().phase = Phase::Leaving;
    assert!(table.live_mut(ALICE, id).is_none());
}

#[test]
fn removing_twice_frees_once() {
    let mut table = Table::new(1);
    let id = table.insert(ALICE, Phase::Live, ()).unwrap();
    assert!(table.remove(id).is_some());
    assert!(table.remove(id).is_none());
    assert!(table.insert(ALICE, Phase::Live, ()).is_some());
    assert_eq!(table.insert(ALICE, Phase::Live, ()), None);
}
