//! How fast counters grow between two looks.

use std::time::Duration;

/// The names that are levels and go up and down: their value is told, not a rate.
const LEVELS: [&str; 8] = [
    "connections",
    "queue_pairs",
    "regions",
    "frames_free",
    "frames_held",
    "frames_on_link",
    "device_clients",
    "device_ports",
];

/// How a counter changed between two readings.
#[derive(Clone, Debug, PartialEq)]
pub struct Rate {
    pub name: String,
    /// Its value at the second look.
    pub value: u64,
    /// Its growth a second; none for a level, and for a counter that started over.
    pub per_second: Option<f64>,
}

/// The rates of all counters of the second look.
pub fn rates(before: &[(String, u64)], now: &[(String, u64)], between: Duration) -> Vec<Rate> {
    let seconds = between.as_secs_f64();
    now.iter()
        .map(|(name, value)| {
            let old = before.iter().find(|(found, _)| found == name);
            let growth = old.and_then(|(_, old)| value.checked_sub(*old));
            // Of several devices each counter has its interface before its name.
            let plain = name.rsplit(':').next().unwrap_or(name);
            let counts = !LEVELS.contains(&plain) && seconds > 0.0;
            Rate {
                name: name.clone(),
                value: *value,
                per_second: growth
                    .filter(|_| counts)
                    .map(|growth| growth as f64 / seconds),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(counters: &[(&str, u64)]) -> Vec<(String, u64)> {
        let own = |(name, value): &(&str, u64)| ((*name).to_owned(), *value);
        counters.iter().map(own).collect()
    }

    #[test]
    fn a_counter_has_a_rate_and_a_level_or_a_counter_that_began_anew_has_none() {
        let before = look(&[
            ("sends_sent", 10),
            ("connections", 4),
            ("sends_received", 9),
        ]);
        let now = look(&[
            ("sends_sent", 30),
            ("connections", 2),
            ("sends_received", 1),
        ]);
        let rates = rates(&before, &now, Duration::from_secs(2));
        let found: Vec<_> = rates.iter().map(|rate| rate.per_second).collect();
        assert_eq!(found, [Some(10.0), None, None]);
        assert_eq!(rates[1].value, 2);
    }
}
