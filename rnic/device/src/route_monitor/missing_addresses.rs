//! Addresses that connections use and the interface has not.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// For so long an address may be missing: who changes an address takes it away and gives it back, and an
/// interface that comes up again gets its addresses a moment later.
const GRACE: Duration = Duration::from_secs(3);

/// Since when they have been missing.
#[derive(Debug, Default)]
pub(super) struct MissingAddresses {
    since: HashMap<IpAddr, Instant>,
}

impl MissingAddresses {
    pub(super) fn is_empty(&self) -> bool {
        self.since.is_empty()
    }

    /// None is missing as far as is known: an interface is down.
    pub(super) fn forget(&mut self) {
        self.since.clear();
    }

    /// How long until one has been missing for too long; `None` when none is missing.
    pub(super) fn patience(&self, now: Instant) -> Option<Duration> {
        let first = self.since.values().min()?;
        Some((*first + GRACE).saturating_duration_since(now))
    }

    /// These are missing now. Gives those that have been for too long, once each.
    pub(super) fn update(
        &mut self,
        missing: impl Iterator<Item = IpAddr>,
        now: Instant,
    ) -> Vec<IpAddr> {
        let before = std::mem::take(&mut self.since);
        let since = |address| (address, before.get(&address).copied().unwrap_or(now));
        self.since = missing.map(since).collect();
        let is_over = |_: &IpAddr, since: &mut Instant| now >= *since + GRACE;
        self.since
            .extract_if(is_over)
            .map(|(address, _)| address)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_comes_back_in_time_is_missing_no_more() {
        let (a, b) = ([198, 18, 0, 1].into(), [198, 18, 0, 2].into());
        let mut missing = MissingAddresses::default();
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
