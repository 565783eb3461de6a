use super::*;

fn three() -> [Passes; 3] {
    Passes::among(3).try_into().unwrap()
}

#[test]
fn a_change_is_waited_for_until_each_other_shard_has_begun_a_pass() {
    let [a, b, c] = three();
    let mut then = Vec::new();
    a.look(&mut then);
    assert!(!a.have_moved_on(&then));
    b.begin();
    assert!(!a.have_moved_on(&then));
    c.begin();
    assert!(a.have_moved_on(&then));
    a.look(&mut then);
    assert!(!a.have_moved_on(&then), "that was before");
}

#[test]
fn a_shard_that_sleeps_is_not_waited_for_and_one_that_falls_asleep_has_moved_on() {
    let [a, b, c] = three();
    let mut then = Vec::new();
    b.sleep();
    a.look(&mut then);
    assert!(!a.have_moved_on(&then));
    c.sleep();
    assert!(a.have_moved_on(&then));
    b.begin();
    assert!(a.have_moved_on(&then), "what it looks up now is the change");
    a.look(&mut then);
    assert!(!a.have_moved_on(&then), "it is awake");
}

#[test]
fn one_shard_waits_for_nobody() {
    let [alone] = <[Passes; 1]>::try_from(Passes::among(1)).unwrap();
    let mut then = Vec::new();
    alone.look(&mut then);
    assert!(alone.have_moved_on(&then));
}
