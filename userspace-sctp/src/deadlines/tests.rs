use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::Deadlines;

proptest! {
    /// Whatever is set, moved and taken away: the earliest comes first, and each once.
    #[test]
    fn deadlines_come_in_their_order(steps in prop::collection::vec((0_u32..20, prop::option::of(0_u64..50)), 0..200)) {
        let mut deadlines = Deadlines::default();
        let mut model = BTreeMap::new();
        for (index, at) in steps {
            let at = at.map(Duration::from_millis);
            deadlines.set(index, at);
            match at {
                Some(at) => model.insert(index, at),
                None => model.remove(&index),
            };
            prop_assert_eq!(deadlines.next(), model.values().min().copied());
        }
        let now = Duration::from_millis(25);
        let mut last = Duration::ZERO;
        while let Some(index) = deadlines.pop(now) {
            let at = model.remove(&index);
            prop_assert!(at.is_some_and(|at| at >= last && at <= now), "{:?}", at);
            last = at.unwrap_or_default();
        }
        prop_assert!(model.values().all(|at| *at > now));
    }
}
