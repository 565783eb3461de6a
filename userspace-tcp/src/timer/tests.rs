use super::*;

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

#[test]
fn entries_come_out_in_order_of_time() {
    let mut deadlines = Deadlines::default();
    for (index, time) in [(0, 50), (1, 10), (2, 40), (3, 20), (4, 30)] {
        deadlines.set(index, Some(at(time)));
    }
    let order: Vec<u32> = std::iter::from_fn(|| deadlines.pop(at(45))).collect();
    assert_eq!(order, [1, 3, 4, 2]);
    assert_eq!(deadlines.next(), Some(at(50)));
}

#[test]
fn an_earlier_deadline_replaces_a_later_one_stays() {
    let mut deadlines = Deadlines::default();
    deadlines.set(7, Some(at(50)));
    deadlines.set(7, Some(at(20)));
    assert_eq!(deadlines.next(), Some(at(20)));
    deadlines.set(7, Some(at(90)));
    assert_eq!(deadlines.next(), Some(at(20)));
    assert_eq!(
        (deadlines.pop(at(20)), deadlines.pop(at(1000))),
        (Some(7), None)
    );
}

#[test]
fn a_removed_deadline_never_comes() {
    let mut deadlines = Deadlines::default();
    for index in 0..10 {
        deadlines.set(index, Some(at(u64::from(100 - index))));
    }
    for index in (0..10).step_by(2) {
        deadlines.set(index, None);
        deadlines.set(index, None);
    }
    let order: Vec<u32> = std::iter::from_fn(|| deadlines.pop(at(1000))).collect();
    assert_eq!(order, [9, 7, 5, 3, 1]);
    assert_eq!(deadlines.next(), None);
}
