//! Which pages are held, and by how many.

use std::collections::BTreeMap;
use std::ops::Range;

/// Disjoint runs of pages by their first address, each with how many hold it. What one holder added
/// whole is one run until another cuts it.
#[derive(Debug, Default)]
pub(crate) struct Runs(BTreeMap<usize, Run>);

#[derive(Clone, Copy, Debug)]
struct Run {
    end: usize,
    holders: usize,
    /// Where its copy for a child is while the process forks ([`Runs::lay_out`]).
    copy: usize,
}

impl Runs {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes of all runs.
    pub(crate) fn bytes(&self) -> usize {
        self.0.iter().map(|(start, run)| run.end - start).sum()
    }

    /// Gives each run a place for its copy, one after the other from `at` on. Returns where the last ends.
    pub(crate) fn lay_out(&mut self, at: usize) -> usize {
        self.0.iter_mut().fold(at, |at, (start, run)| {
            run.copy = at;
            at + (run.end - start)
        })
    }

    /// The parts of `range` that are in a run, each with the place of its copy.
    pub(crate) fn copies(
        &self,
        range: &Range<usize>,
    ) -> impl Iterator<Item = (Range<usize>, usize)> {
        let before = self.0.range(..range.start).next_back();
        let runs = before.into_iter().chain(self.0.range(range.clone()));
        let range = range.clone();
        runs.filter_map(move |(&start, run)| {
            let part = start.max(range.start)..run.end.min(range.end);
            (!part.is_empty()).then(|| (part.clone(), run.copy + (part.start - start)))
        })
    }

    /// Whether a page of `range` is in a run.
    pub(crate) fn meets(&self, range: &Range<usize>) -> bool {
        self.gaps(range) != [range.clone()]
    }

    /// What of `range` is in no run.
    pub(crate) fn gaps(&self, range: &Range<usize>) -> Vec<Range<usize>> {
        let mut gaps = Vec::new();
        let mut at = range.start;
        let before = self.0.range(..range.start).next_back();
        for (&start, run) in before.into_iter().chain(self.0.range(range.clone())) {
            if start > at {
                gaps.push(at..start);
            }
            at = at.max(run.end);
        }
        if at < range.end {
            gaps.push(at..range.end);
        }
        gaps
    }

    /// Whether anybody holds a page of `range`.
    pub(crate) fn are_held(&self, range: &Range<usize>) -> bool {
        let before = self.0.range(..range.start).next_back();
        let before = before.filter(|(_, run)| run.end > range.start);
        let mut runs = before.into_iter().chain(self.0.range(range.clone()));
        runs.any(|(_, run)| run.holders > 0)
    }

    /// One more holds all of `range`.
    pub(crate) fn hold(&mut self, range: &Range<usize>) {
        for gap in self.gaps(range) {
            let run = Run {
                end: gap.end,
                holders: 0,
                copy: 0,
            };
            self.0.insert(gap.start, run);
        }
        self.cut(range);
        for (_, run) in self.0.range_mut(range.clone()) {
            run.holders += 1;
        }
    }

    /// One less does. Gives the runs that nobody holds any more; they stay until [`Self::remove`].
    pub(crate) fn release(&mut self, range: &Range<usize>) -> Vec<Range<usize>> {
        self.cut(range);
        let mut free = Vec::new();
        for (&start, run) in self.0.range_mut(range.clone()) {
            run.holders = run.holders.saturating_sub(1);
            if run.holders == 0 {
                free.push(start..run.end);
            }
        }
        free
    }

    /// `range` is in no run any more.
    pub(crate) fn remove(&mut self, range: &Range<usize>) {
        self.cut(range);
        self.0.retain(|start, _| !range.contains(start));
    }

    /// Has runs end where `range` begins and ends.
    fn cut(&mut self, range: &Range<usize>) {
        for at in [range.start, range.end] {
            let Some((_, run)) = self.0.range_mut(..at).next_back() else {
                continue;
            };
            if run.end > at {
                let rest = *run;
                run.end = at;
                self.0.insert(at, rest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The same as a count for each page.
        #[test]
        fn runs_count_as_pages_do(steps in prop::collection::vec((0_usize..40, 1_usize..12), 1..40)) {
            let mut runs = Runs::default();
            let mut pages = [0_usize; 64];
            let mut held = Vec::new();
            for (number, (start, len)) in steps.into_iter().enumerate() {
                let range = start..start + len;
                if number % 3 == 2 && !held.is_empty() {
                    let range: Range<usize> = held.swap_remove(start % held.len());
                    let mut freed = Vec::new();
                    for page in range.clone() {
                        pages[page] -= 1;
                        if pages[page] == 0 {
                            freed.push(page);
                        }
                    }
                    let free = runs.release(&range);
                    prop_assert_eq!(free.iter().cloned().flatten().collect::<Vec<_>>(), freed);
                    free.iter().for_each(|run| runs.remove(run));
                } else {
                    let gaps: Vec<_> = runs.gaps(&range).into_iter().flatten().collect();
                    let missing: Vec<_> = range.clone().filter(|page| pages[*page] == 0).collect();
                    prop_assert_eq!(runs.meets(&range), missing.len() < range.len());
                    prop_assert_eq!(gaps, missing);
                    let any = range.clone().any(|page| pages[page] > 0);
                    prop_assert_eq!(runs.are_held(&range), any);
                    prop_assert_eq!(runs.lay_out(1000), 1000 + runs.bytes());
                    let copies: Vec<_> = runs.copies(&range).collect();
                    let here: Vec<_> = range.clone().filter(|page| pages[*page] > 0).collect();
                    prop_assert_eq!(copies.iter().flat_map(|(part, _)| part.clone()).collect::<Vec<_>>(), here);
                    for (part, copy) in copies {
                        let before = pages[..part.start].iter().filter(|holders| **holders > 0).count();
                        prop_assert_eq!(copy, 1000 + before);
                    }
                    runs.hold(&range);
                    range.clone().for_each(|page| pages[page] += 1);
                    held.push(range);
                }
                let there = pages.iter().filter(|holders| **holders > 0).count();
                prop_assert_eq!(runs.bytes(), there);
                prop_assert_eq!(runs.is_empty(), there == 0);
            }
        }
    }
}
