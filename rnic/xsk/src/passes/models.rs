//! Models of a change that another shard may not see in time: loom runs each through every order of its atomics'
//! effects. `scripts/loom` runs them.

use std::sync::Arc;

use loom::thread;

use super::Passes;
use crate::sync::{AtomicBool, AtomicUsize, Ordering};

/// A shard looks a right up and uses it, twice. Another takes the right away: when that is relied on, nothing is used.
fn taken_away(sleeps: bool) {
    loom::model(move || {
        let [a, b] = <[Passes; 2]>::try_from(Passes::among(2)).ok().unwrap();
        let right = Arc::new(AtomicBool::new(true));
        let relied_on = Arc::new(AtomicBool::new(false));
        let uses = Arc::new(AtomicUsize::new(0));
        let user = {
            let (right, relied_on, uses) = (right.clone(), relied_on.clone(), uses.clone());
            thread::spawn(move || {
                for _ in 0..2 {
                    b.begin();
                    if right.load(Ordering::Relaxed) {
                        assert!(
                            !relied_on.load(Ordering::Relaxed),
                            "used after it was relied on"
                        );
                        uses.fetch_add(1, Ordering::Relaxed);
                    }
                    if sleeps {
                        b.sleep();
                    }
                }
            })
        };
        right.store(false, Ordering::Relaxed);
        let mut then = Vec::new();
        a.look(&mut then);
        if a.have_moved_on(&then) {
            let before = uses.load(Ordering::Relaxed);
            relied_on.store(true, Ordering::Relaxed);
            assert_eq!(uses.load(Ordering::Relaxed), before);
        }
        user.join().unwrap();
    });
}

#[test]
fn a_right_that_was_taken_away_is_not_used_once_all_have_moved_on() {
    taken_away(false);
}

#[test]
fn a_right_that_was_taken_away_is_not_used_by_a_shard_that_wakes() {
    taken_away(true);
}
