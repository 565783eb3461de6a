//! Which seeds a random test runs, and how a failed one is run again.

/// `RNIC_TEST_SEEDS` seeds, or `few`, from `RNIC_TEST_FIRST_SEED` on, or from 0.
pub fn seeds(few: u64) -> std::ops::Range<u64> {
    let number = |name| {
        let text = std::env::var(name).ok()?;
        Some(text.parse::<u64>().expect("a number of seeds"))
    };
    let first = number("RNIC_TEST_FIRST_SEED").unwrap_or(0);
    first..first.saturating_add(number("RNIC_TEST_SEEDS").unwrap_or(few))
}

/// Says how to run a seed again, if it fails.
pub struct Replay {
    pub seed: u64,
    /// The file under `tests/`.
    pub test: &'static str,
}

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self { seed, test } = self;
            let package = env!("CARGO_PKG_NAME");
            eprintln!(
                "replay: RNIC_TEST_FIRST_SEED={seed} RNIC_TEST_SEEDS=1 cargo test -p {package} --test {test}"
            );
        }
    }
}
