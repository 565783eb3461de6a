//! Rounds, medians and a table.

use std::time::{Duration, Instant};

/// Rounds of each benchmark, after some that warm up.
const ROUNDS: usize = 40;
const WARM_UP: usize = 5;

pub struct Bench {
    rounds: usize,
    only: Vec<String>,
}

/// The time of one round, without what is around it.
#[derive(Default)]
pub struct Timer(Duration);

impl Timer {
    pub fn time(&mut self, what: impl FnOnce()) {
        let start = Instant::now();
        what();
        self.0 += start.elapsed();
    }
}

impl Bench {
    pub fn from_arguments() -> Self {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        let full = arguments.iter().any(|argument| argument == "--bench");
        let only = arguments.into_iter().filter(|a| !a.starts_with("--"));
        let bench = Self {
            rounds: if full { ROUNDS } else { 1 },
            only: only.collect(),
        };
        println!(
            "{:<62} {:>8} {:>8}",
            "ns for each segment", "median", "least"
        );
        bench
    }

    pub fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| name.contains(only.as_str()))
    }

    /// `round` handles `segments` of them and times what counts.
    pub fn run(&self, name: &str, segments: usize, mut round: impl FnMut(&mut Timer)) {
        if !self.wants(name) {
            return;
        }
        let mut all = Vec::with_capacity(self.rounds);
        for i in 0..self.rounds + WARM_UP.min(self.rounds) {
            let mut timer = Timer::default();
            round(&mut timer);
            if i >= WARM_UP.min(self.rounds) {
                all.push(timer.0.as_nanos() as f64 / segments as f64);
            }
        }
        all.sort_by(f64::total_cmp);
        let median = all[all.len() / 2];
        println!("{name:<62} {median:>8.1} {:>8.1}", all[0]);
    }
}
