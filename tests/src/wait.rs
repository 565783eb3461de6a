//! Waiting for something to become true, with an end.

use std::time::{Duration, Instant};

/// Time between two looks.
pub const INTERVAL: Duration = Duration::from_millis(10);

/// Calls `check` until it gives a value, and panics after `limit` with `what`.
pub fn until<T>(what: &str, limit: Duration, mut check: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(value) = check() {
            return value;
        }
        assert!(
            begin.elapsed() < limit,
            "after {limit:?}, still waiting until {what}"
        );
        std::thread::sleep(INTERVAL);
    }
}
