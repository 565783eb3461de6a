//! Words that Atomic Operations change (RFC 7306 section 5): every order in which the operations
//! under way can have been done, given the values that were found in memory and the originals that
//! came back. Those of one stream are done in its order; a word is never anything but what one of
//! these orders makes of it.

use std::collections::BTreeMap;
use std::ops::Range;

use rnic_proto::rdmap::AtomicOperation;

use crate::memory::Party;

/// Bytes of a word.
pub const WORD: usize = 8;
/// Operations that may be under way on one word: no more orders than can be looked at.
const MOST: usize = 5;

#[derive(Default)]
pub struct Words {
    /// By where they lie in memory. A word is here while an operation is under way on it.
    words: BTreeMap<usize, Word>,
    /// What operations may have found that their responder will not do any more, if it did them.
    late: BTreeMap<u64, Vec<u64>>,
}

struct Word {
    pending: Vec<Pending>,
    worlds: Vec<World>,
}

/// An operation that nobody knows to be done.
#[derive(Clone, Copy)]
struct Pending {
    op: u64,
    by: Party,
    operation: AtomicOperation,
    /// The region or window through which it comes.
    via: usize,
}

#[derive(Clone, PartialEq, Eq)]
struct World {
    value: u64,
    /// Operations that were done, and what they found.
    done: Vec<(u64, u64)>,
}

/// What an operation makes of a value, bit by bit, as RFC 7306 sections 5.1.1 and 5.1.2 say.
fn outcome(operation: AtomicOperation, value: u64) -> u64 {
    let bit = |of: u64, at: u32| of >> at & 1;
    match operation {
        AtomicOperation::FetchAdd { add, mask } => {
            let (mut out, mut carry) = (0, 0);
            for at in 0..64 {
                let sum = bit(value, at) + bit(add, at) + carry;
                out |= (sum & 1) << at;
                // Out of a field nothing is carried.
                carry = if bit(mask, at) == 1 { 0 } else { sum >> 1 };
            }
            out
        }
        AtomicOperation::CompareSwap {
            swap,
            swap_mask,
            compare,
            compare_mask,
        } => {
            let differ = |at| bit(compare_mask, at) == 1 && bit(compare, at) != bit(value, at);
            if (0..64).any(differ) {
                return value;
            }
            let swapped = |at| match bit(swap_mask, at) {
                1 => bit(swap, at) << at,
                _ => bit(value, at) << at,
            };
            (0..64).map(swapped).sum()
        }
    }
}

impl World {
    fn has_done(&self, op: u64) -> bool {
        self.done.iter().any(|(done, _)| *done == op)
    }
}

impl Word {
    /// Every operation that can be done may be done now.
    fn expand(&mut self) {
        let mut at = 0;
        while let Some(world) = self.worlds.get(at).cloned() {
            at += 1;
            for (index, next) in self.pending.iter().enumerate() {
                let mut before = self.pending[..index].iter().filter(|p| p.by == next.by);
                if world.has_done(next.op) || !before.all(|p| world.has_done(p.op)) {
                    continue;
                }
                let mut then = world.clone();
                then.done.push((next.op, then.value));
                then.done.sort_unstable();
                then.value = outcome(next.operation, then.value);
                if !self.worlds.contains(&then) {
                    self.worlds.push(then);
                }
            }
        }
    }

    /// What is in memory at this moment.
    fn found(&mut self, at: usize, value: u64) {
        self.expand();
        self.worlds.retain(|world| world.value == value);
        assert!(
            !self.worlds.is_empty(),
            "the word at {at} is {value:#x}, which no order of its operations makes of it"
        );
    }

    /// What an operation may have found; it is under way no more.
    fn take(&mut self, op: u64) -> Vec<u64> {
        self.pending.retain(|pending| pending.op != op);
        let mut originals = Vec::new();
        for world in &mut self.worlds {
            let found = world.done.iter().find(|(done, _)| *done == op);
            originals.extend(found.map(|(_, original)| *original));
            world.done.retain(|(done, _)| *done != op);
        }
        let mut left = std::mem::take(&mut self.worlds);
        for world in left.drain(..) {
            if !self.worlds.contains(&world) {
                self.worlds.push(world);
            }
        }
        originals
    }
}

impl Words {
    fn over(&self, range: &Range<usize>) -> impl Iterator<Item = (&usize, &Word)> {
        let range = range.clone();
        let from = range.start.saturating_sub(WORD - 1);
        self.words
            .range(from..range.end.max(from))
            .filter(move |_| !range.is_empty())
    }

    pub fn is_over(&self, range: &Range<usize>) -> bool {
        self.over(range).next().is_some()
    }

    /// Whose operations are under way.
    pub fn users(&self, range: &Range<usize>) -> impl Iterator<Item = Party> {
        self.over(range)
            .flat_map(|(_, word)| word.pending.iter().map(|pending| pending.by))
    }

    /// Whose operations come through this region or window.
    pub fn users_through(&self, via: usize) -> Vec<Party> {
        let pending = self.words.values().flat_map(|word| &word.pending);
        let through = pending.filter(|pending| pending.via == via);
        through.map(|pending| pending.by).collect()
    }

    pub fn is_full(&self, at: usize) -> bool {
        self.words
            .get(&at)
            .is_some_and(|word| word.pending.len() >= MOST)
    }

    pub fn expect(
        &mut self,
        (op, by, via): (u64, Party, usize),
        at: usize,
        value: u64,
        operation: AtomicOperation,
    ) {
        let word = self.words.entry(at).or_insert_with(|| Word {
            pending: Vec::new(),
            worlds: vec![World {
                value,
                done: Vec::new(),
            }],
        });
        word.found(at, value);
        word.pending.push(Pending {
            op,
            by,
            operation,
            via,
        });
    }

    pub fn places(&self) -> Vec<usize> {
        self.words.keys().copied().collect()
    }

    pub fn found(&mut self, at: usize, value: u64) {
        if let Some(word) = self.words.get_mut(&at) {
            word.found(at, value);
        }
    }

    /// An operation was done and has found this, says its response if it is still there to be looked
    /// at. What its word is was told just before.
    pub fn done(&mut self, op: u64, original: Option<u64>) {
        let is = |found: u64| original.is_none_or(|original| original == found);
        let Some(at) = self.place_of(op) else {
            let late = self.late.remove(&op).unwrap_or_default();
            assert!(
                late.iter().any(|found| is(*found)),
                "{original:x?} is not in {late:x?}"
            );
            return;
        };
        let word = self.words.get_mut(&at).unwrap();
        word.worlds
            .retain(|world| world.done.iter().any(|(of, found)| *of == op && is(*found)));
        assert!(
            !word.worlds.is_empty(),
            "operation {op} has found {original:x?}, but in no order of the operations"
        );
        word.take(op);
        self.tidy(at);
    }

    /// The responder will not do this operation any more. What its word is was told just before.
    pub fn give_up(&mut self, op: u64) {
        let Some(at) = self.place_of(op) else {
            return;
        };
        let originals = self.words.get_mut(&at).unwrap().take(op);
        self.late.insert(op, originals);
        self.tidy(at);
    }

    /// The same for all operations on these bytes, or those through this region or window.
    pub fn give_up_all(&mut self, range: &Range<usize>, via: Option<usize>) {
        let through = |pending: &&Pending| via.is_none_or(|via| pending.via == via);
        let ops: Vec<u64> = self
            .over(range)
            .flat_map(|(_, word)| word.pending.iter().filter(through))
            .map(|pending| pending.op)
            .collect();
        for op in ops {
            self.give_up(op);
        }
    }

    /// What the word is when all of this party's operations on it are done; none when there are
    /// others'.
    pub fn in_the_end(&self, by: Party, at: usize) -> Option<u64> {
        let word = &self.words[&at];
        if word.pending.iter().any(|pending| pending.by != by) {
            return None;
        }
        let world = &word.worlds[0];
        let left = word.pending.iter().filter(|p| !world.has_done(p.op));
        Some(left.fold(world.value, |value, next| outcome(next.operation, value)))
    }

    /// The words over these bytes.
    pub fn places_over(&self, range: &Range<usize>) -> Vec<usize> {
        self.over(range).map(|(at, _)| *at).collect()
    }

    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    fn place_of(&self, op: u64) -> Option<usize> {
        let has = |word: &Word| word.pending.iter().any(|pending| pending.op == op);
        let mut words = self.words.iter();
        words.find(|(_, word)| has(word)).map(|(at, _)| *at)
    }

    fn tidy(&mut self, at: usize) {
        if self.words[&at].pending.is_empty() {
            self.words.remove(&at);
        }
    }
}

/// The model itself can fail.
mod tests {
    use super::*;

    const ONE: Party = Party { stream: 0, end: 0 };
    const OTHER: Party = Party { stream: 1, end: 0 };

    fn add(add: u64) -> AtomicOperation {
        AtomicOperation::FetchAdd { add, mask: 0 }
    }

    fn two(by: [Party; 2]) -> Words {
        let mut words = Words::default();
        words.expect((1, by[0], 0), 8, 100, add(1));
        words.expect((2, by[1], 0), 8, 100, add(10));
        words
    }

    fn fails(what: impl FnOnce() + std::panic::UnwindSafe) {
        assert!(std::panic::catch_unwind(what).is_err());
    }

    #[test]
    fn operations_of_two_streams_are_done_in_either_order() {
        for (second, first, step) in [(1, 2, 10), (2, 1, 1)] {
            let mut words = two([ONE, OTHER]);
            words.found(8, 111);
            words.done(second, Some(100 + step));
            words.done(first, Some(100));
            assert!(words.is_empty());
        }
    }

    #[test]
    fn operations_of_one_stream_are_done_in_its_order() {
        let mut words = two([ONE; 2]);
        words.found(8, 111);
        words.done(1, Some(100));
        words.done(2, Some(101));
        fails(|| {
            let mut words = two([ONE; 2]);
            words.found(8, 111);
            words.done(1, Some(110));
        });
        fails(|| two([ONE; 2]).found(8, 110));
    }

    #[test]
    fn an_operation_is_done_once_and_by_its_own_value() {
        fails(|| two([ONE, OTHER]).found(8, 102));
        fails(|| two([ONE, OTHER]).done(1, Some(100)));
        fails(|| {
            let mut words = two([ONE, OTHER]);
            words.found(8, 111);
            words.done(1, Some(100));
            words.done(2, Some(100));
        });
    }

    #[test]
    fn what_was_given_up_is_not_done() {
        let mut words = two([ONE, OTHER]);
        words.give_up(1);
        words.found(8, 110);
        fails(move || words.found(8, 111));
        let mut words = two([ONE, OTHER]);
        words.found(8, 101);
        words.give_up(1);
        words.done(1, Some(100));
        fails(move || words.done(1, Some(100)));
    }
}
