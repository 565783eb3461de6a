//! How long work that took rights away from other shards waits until none of them uses these any more.
//!
//! Several works may wait for one look at the passes of the others, and those that come meanwhile for the next look. So
//! nothing is allocated for any of them, and each waits for two passes of the others at most.

use rnic_xsk::Passes;

use super::StagTable;

/// The number of a look, for whose end is waited.
pub(crate) type Look = u32;

/// The passes of the other shards, as far as somebody waits for them.
#[derive(Debug)]
pub(super) struct Grace {
    passes: Passes,
    /// As they were at the look that is under way.
    counts: Vec<usize>,
    /// Looks that were begun, that are over, and that somebody waits for: each at most one ahead of the one before it.
    begun: Look,
    over: Look,
    wanted: Look,
}

impl Grace {
    fn begin(&mut self) {
        self.passes.look(&mut self.counts);
        self.begun = self.begun.wrapping_add(1);
    }

    fn is_under_way(&self) -> bool {
        self.begun != self.over
    }

    fn for_now(&mut self) -> Look {
        // What is under way began before this.
        if !self.is_under_way() {
            self.begin();
            self.wanted = self.begun;
        } else {
            self.wanted = self.begun.wrapping_add(1);
        }
        self.wanted
    }

    fn has_passed(&mut self, look: Look) -> bool {
        if self.is_under_way() && self.passes.have_moved_on(&self.counts) {
            self.over = self.begun;
            if self.wanted != self.over {
                self.begin();
            }
        }
        // Of two numbers that are less than half of all apart, the one before.
        self.over.wrapping_sub(look) < Look::MAX / 2
    }
}

impl StagTable {
    /// The table is one of several shards', with these passes.
    pub fn join(&mut self, passes: Passes) {
        self.grace = Some(Grace {
            counts: Vec::with_capacity(crate::shard::SHARDS_MAX),
            passes,
            begun: 0,
            over: 0,
            wanted: 0,
        });
    }

    /// Rights were taken away that other shards may be using: what is to be waited for.
    pub(super) fn wait_for_others(&mut self) -> Option<Look> {
        self.grace.as_mut().map(Grace::for_now)
    }

    /// Whether no shard uses any more what was taken away before this was given out.
    pub(crate) fn others_have_moved_on(&mut self, look: Look) -> bool {
        let grace = self.grace.as_mut();
        grace.is_none_or(|grace| grace.has_passed(look))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> (StagTable, Passes) {
        let mut both = Passes::among(2).into_iter();
        let mut table = StagTable::new(1);
        table.join(both.next().unwrap());
        (table, both.next().unwrap())
    }

    #[test]
    fn what_was_taken_away_during_a_look_waits_for_the_next_one() {
        let (mut table, other) = two();
        let first = table.wait_for_others().unwrap();
        let second = table.wait_for_others().unwrap();
        assert_eq!(table.wait_for_others(), Some(second), "the same look");
        assert!(!table.others_have_moved_on(first));
        other.begin();
        assert!(table.others_have_moved_on(first));
        assert!(!table.others_have_moved_on(second), "it began before that");
        other.begin();
        assert!(table.others_have_moved_on(second));
        let third = table.wait_for_others().unwrap();
        assert!(!table.others_have_moved_on(third));
        other.sleep();
        assert!(table.others_have_moved_on(third));
    }

    #[test]
    fn numbers_go_round() {
        let (mut table, other) = two();
        if let Some(grace) = &mut table.grace {
            (grace.begun, grace.over, grace.wanted) = (Look::MAX, Look::MAX, Look::MAX);
        }
        let look = table.wait_for_others().unwrap();
        assert!(!table.others_have_moved_on(look));
        other.begin();
        assert!(table.others_have_moved_on(look));
        assert!(table.others_have_moved_on(Look::MAX));
    }

    #[test]
    fn without_siblings_nobody_waits() {
        let mut table = StagTable::new(1);
        assert_eq!(table.wait_for_others(), None);
        assert!(table.others_have_moved_on(7));
    }
}
