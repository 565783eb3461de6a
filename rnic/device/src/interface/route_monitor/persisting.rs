//! What is wrong with the host and may be right again in a moment, as while somebody changes it: it counts when it has
//! lasted.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// Since when each has been wrong.
#[derive(Debug)]
pub(super) struct Persisting<T> {
    grace: Duration,
    since: HashMap<T, Instant>,
}

impl<T: Copy + Eq + Hash> Persisting<T> {
    /// Nothing is wrong. For so long something may be.
    pub(super) fn new(grace: Duration) -> Self {
        Self {
            grace,
            since: HashMap::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.since.is_empty()
    }

    /// Nothing is wrong as far as is known: an interface is down.
    pub(super) fn forget(&mut self) {
        self.since.clear();
    }

    /// How long until something has been wrong for too long; `None` when nothing is.
    pub(super) fn patience(&self, now: Instant) -> Option<Duration> {
        let first = self.since.values().min()?;
        Some((*first + self.grace).saturating_duration_since(now))
    }

    /// These are wrong now. Gives those that have been for too long, once each.
    pub(super) fn update(&mut self, wrong: impl Iterator<Item = T>, now: Instant) -> Vec<T> {
        let before = std::mem::take(&mut self.since);
        let since = |it| (it, before.get(&it).copied().unwrap_or(now));
        self.since = wrong.map(since).collect();
        let grace = self.grace;
        let is_over = |_: &T, since: &mut Instant| now >= *since + grace;
        self.since.extract_if(is_over).map(|(it, _)| it).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    #[test]
    fn an_address_that_comes_back_in_time_is_missing_no_more() {
        let (a, b): (IpAddr, IpAddr) = ([198, 18, 0, 1].into(), [198, 18, 0, 2].into());
        let mut missing = Persisting::new(Duration::from_secs(3));
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(missing.patience(at(0)), None);
        assert!(missing.update([a, b].into_iter(), at(0)).is_empty());
        assert_eq!(missing.patience(at(1)), Some(Duration::from_secs(2)));
        assert!(missing.update([a].into_iter(), at(1)).is_empty());
        // Another time from the beginning.
        assert!(missing.update([a, b].into_iter(), at(2)).is_empty());
        assert_eq!(missing.update([a, b].into_iter(), at(3)), [a]);
        assert_eq!(missing.update([b].into_iter(), at(5)), [b]);
        assert!(missing.is_empty());
        // The time that an interface is down does not count.
        assert!(missing.update([a].into_iter(), at(6)).is_empty());
        missing.forget();
        assert_eq!(missing.patience(at(7)), None);
        assert!(missing.update([a].into_iter(), at(9)).is_empty());
    }
}
