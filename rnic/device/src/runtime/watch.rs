//! Checks that all shards make progress. One that does not delays its own connections, and all requests that
//! register or revoke memory: so the log names it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::runtime::driver::{Beat, Seen, thread_name};
use crate::sync::lock;

/// Between two checks.
pub(crate) const WATCH_INTERVAL: Duration = Duration::from_secs(1);
/// Checks in a row that find a shard where it was, until that is logged.
const CHECKS: u32 = 5;

/// What was seen of each shard.
#[derive(Debug)]
pub(crate) struct Watch {
    seen: Mutex<Vec<Seen>>,
    stalled: AtomicU32,
}

impl Watch {
    /// For so many shards.
    pub(super) fn new(shards: usize) -> Self {
        Self {
            seen: Mutex::new(vec![Seen::default(); shards]),
            stalled: AtomicU32::new(0),
        }
    }

    /// Shards that make no progress.
    pub(crate) fn stalled(&self) -> u32 {
        self.stalled.load(Ordering::Relaxed)
    }

    /// Checks all shards, by their beats. Calls `report` for those that stopped making progress, or make it again.
    pub(super) fn check<'b>(
        &self,
        beats: impl Iterator<Item = &'b Beat>,
        mut report: impl FnMut(usize, Change),
    ) {
        let mut stalled = 0;
        for (shard, (seen, beat)) in lock(&self.seen).iter_mut().zip(beats).enumerate() {
            let stood = seen.unchanged >= CHECKS;
            *seen = beat.observe(*seen);
            let stands = seen.unchanged >= CHECKS;
            stalled += u32::from(stands);
            match (stood, stands) {
                (false, true) => report(shard, Change::Stalled),
                (true, false) => report(shard, Change::Resumed),
                _ => {}
            }
        }
        self.stalled.store(stalled, Ordering::Relaxed);
    }
}

/// How the state of a shard changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Stalled,
    Resumed,
}

impl Change {
    /// Logs it for a shard of an interface.
    pub(super) fn log(self, interface: &str, shard: usize) {
        match self {
            Self::Stalled => log::error!(
                "shard {shard} of interface {interface} (thread {}) has not polled for {} s: its connections stand \
                 still, and requests that need all shards wait. See what the thread waits for (/proc/PID/task/TID/stack); \
                 if it does not go on, restart rnicd",
                thread_name(shard),
                WATCH_INTERVAL.as_secs() * u64::from(CHECKS)
            ),
            Self::Resumed => log::warn!("shard {shard} of interface {interface} polls again"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_that_stalls_is_reported_once_and_again_when_it_resumes() {
        let beats = [Beat::default(), Beat::default()];
        let watch = Watch::new(2);
        let mut reported = Vec::new();
        for check in 0..2 * CHECKS {
            beats[0].iteration();
            if check == CHECKS + 2 {
                assert_eq!(watch.stalled(), 1);
                beats[1].iteration();
            }
            watch.check(beats.iter(), |shard, change| {
                reported.push((check, shard, change))
            });
        }
        let (stood, went) = (CHECKS - 1, CHECKS + 2);
        assert_eq!(
            reported,
            [(stood, 1, Change::Stalled), (went, 1, Change::Resumed)]
        );
        assert_eq!(watch.stalled(), 0);
    }
}
