//! Many cases in one test, where what they need is too dear to be made for each: all are run, a
//! table gives the result of each, and the test fails when one did.

use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// After so many failed cases no more are run, for what they share may be broken; they fail unrun.
const FAILURES_MAX: usize = 6;

/// The cases of a test. [`Cases::finish`] is what makes a failed one count.
#[derive(Debug)]
#[must_use]
pub struct Cases {
    title: String,
    /// What stands before the names of the next cases.
    group: String,
    results: Vec<Outcome>,
}

#[derive(Debug)]
struct Outcome {
    name: String,
    took: Duration,
    /// The first line of what a failed case said.
    failure: Option<String>,
}

impl Cases {
    /// No case yet.
    pub fn new(title: &str) -> Self {
        Self {
            title: title.to_owned(),
            group: String::new(),
            results: Vec::new(),
        }
    }

    /// Runs a case; its panic is its failure.
    pub fn run(&mut self, name: impl Display, case: impl FnOnce()) {
        let name = format!("{}{name}", self.group);
        let begin = Instant::now();
        let failure = if self.failed().count() >= FAILURES_MAX {
            Some(format!("not run, as {FAILURES_MAX} before it failed"))
        } else {
            eprintln!("{}: {name}", self.title);
            catch_unwind(AssertUnwindSafe(case))
                .err()
                .map(|panic| said(&*panic))
        };
        self.results.push(Outcome {
            name,
            took: begin.elapsed(),
            failure,
        });
    }

    /// Begins a group of cases; the title stands before their names.
    pub fn group(&mut self, group: &str) {
        self.group = format!("{group}: ");
    }

    /// How many were run or left out until now.
    #[must_use]
    pub fn count(&self) -> usize {
        self.results.len()
    }

    /// Prints the table. Panics when there was no case, or one failed.
    #[track_caller]
    pub fn finish(self) {
        let width = self.results.iter().map(|case| case.name.len()).max();
        let width = width.unwrap_or_else(|| panic!("{}: no case was run", self.title));
        println!("{}", self.title);
        for case in &self.results {
            let failure = case.failure.as_ref();
            let came = failure.map_or("ok".into(), |said| format!("FAILED: {said}"));
            let (name, seconds) = (&case.name, case.took.as_secs_f64());
            println!("  {name:width$}  {seconds:6.2} s  {came}");
        }
        // With what each said: of a long log its end may be all that is kept.
        let failed: Vec<String> = self.failed().map(Outcome::told).collect();
        let (count, all) = (failed.len(), self.results.len());
        assert!(
            failed.is_empty(),
            "{}: {count} of {all} cases failed: {}",
            self.title,
            failed.join("; ")
        );
    }

    fn failed(&self) -> impl Iterator<Item = &Outcome> {
        self.results.iter().filter(|case| case.failure.is_some())
    }
}

impl Outcome {
    fn told(&self) -> String {
        let said = self.failure.as_deref().unwrap_or("ok");
        format!("{} ({said})", self.name)
    }
}

/// The first line of a panic's message.
fn said(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied());
    let first = text.and_then(|text| text.lines().next());
    first.unwrap_or("a panic without a message").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(cases: Cases) -> String {
        let panic = catch_unwind(AssertUnwindSafe(|| cases.finish())).expect_err("a panic");
        said(&*panic)
    }

    #[test]
    fn a_failed_case_fails_the_test_after_all_cases_were_run() {
        let (mut cases, mut run) = (Cases::new("three"), 0);
        cases.run("good", || run += 1);
        cases.run("bad", || panic!("no"));
        cases.run("good too", || run += 1);
        assert_eq!(run, 2);
        assert_eq!(message(cases), "three: 1 of 3 cases failed: bad (no)");
    }

    #[test]
    fn what_is_not_run_any_more_has_failed() {
        let mut cases = Cases::new("all");
        for _ in 0..FAILURES_MAX {
            cases.run("bad", || panic!("no"));
        }
        cases.run("unrun", || unreachable!("too many failed before"));
        assert!(message(cases).contains("; unrun (not run"));
    }

    #[test]
    fn no_case_is_no_success() {
        assert!(message(Cases::new("none")).contains("no case"));
    }
}
