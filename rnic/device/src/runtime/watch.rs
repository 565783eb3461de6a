//! Looks whether all shards go on. One that does not holds up its own connections, and everybody who registers or
//! revokes memory: so it is named.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::runtime::driver::{Beat, Seen};
use crate::sync::lock;

/// Between two looks.
pub(crate) const LOOK: Duration = Duration::from_secs(1);
/// Looks in a row that find a shard where it was, until that is told.
const LOOKS: u32 = 5;

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

    /// Shards that stand still.
    pub(crate) fn stalled(&self) -> u32 {
        self.stalled.load(Ordering::Relaxed)
    }

    /// Looks at all shards, by their beats. Tells by `say` of those that began to stand still or to go on.
    pub(super) fn look<'b>(
        &self,
        beats: impl Iterator<Item = &'b Beat>,
        mut say: impl FnMut(usize, News),
    ) {
        let mut stalled = 0;
        for (shard, (seen, beat)) in lock(&self.seen).iter_mut().zip(beats).enumerate() {
            let stood = seen.unchanged >= LOOKS;
            *seen = beat.look(*seen);
            let stands = seen.unchanged >= LOOKS;
            stalled += u32::from(stands);
            match (stood, stands) {
                (false, true) => say(shard, News::StandsStill),
                (true, false) => say(shard, News::GoesOn),
                _ => {}
            }
        }
        self.stalled.store(stalled, Ordering::Relaxed);
    }
}

/// What is new of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    StandsStill,
    GoesOn,
}

impl News {
    /// Logs it of a shard of an interface.
    pub(super) fn log(self, interface: &str, shard: usize) {
        match self {
            Self::StandsStill => log::error!(
                "shard {shard} of interface {interface} (thread {}) has not polled for {} s: its connections stand \
                 still, and requests that need all shards wait. See what the thread waits for (/proc/PID/task/TID/stack); \
                 if it does not go on, restart rnicd",
                thread_name(shard),
                LOOK.as_secs() * u64::from(LOOKS)
            ),
            Self::GoesOn => log::warn!("shard {shard} of interface {interface} polls again"),
        }
    }
}

/// The name of a shard's thread.
pub(crate) fn thread_name(shard: usize) -> String {
    match shard {
        0 => "rnic-shard".to_owned(),
        number => format!("rnic-shard-{number}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_that_stands_still_is_told_of_once_and_again_when_it_goes_on() {
        let beats = [Beat::default(), Beat::default()];
        let watch = Watch::new(2);
        let mut told = Vec::new();
        for look in 0..2 * LOOKS {
            beats[0].turn();
            if look == LOOKS + 2 {
                assert_eq!(watch.stalled(), 1);
                beats[1].turn();
            }
            watch.look(beats.iter(), |shard, news| told.push((look, shard, news)));
        }
        let (stood, went) = (LOOKS - 1, LOOKS + 2);
        assert_eq!(
            told,
            [(stood, 1, News::StandsStill), (went, 1, News::GoesOn)]
        );
        assert_eq!(watch.stalled(), 0);
    }

    #[test]
    fn the_kernel_shows_all_of_a_thread_s_name() {
        assert!(thread_name(63).len() <= 15);
    }
}
