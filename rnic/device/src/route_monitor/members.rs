//! Receive queues that the interface got after it was opened (`ethtool -L`; some drivers add some when an XDP
//! program is attached). No socket serves them, so the kernel gets their frames. It lets nobody take away queues
//! that have sockets.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::core::Core;
use crate::host::Sockets;
use crate::vlan::Lan;

/// Between two looks: the kernel's route messages don't tell of channels.
const INTERVAL: Duration = Duration::from_secs(5);

/// When to look next.
#[derive(Debug)]
pub(super) struct UnservedQueues {
    next: Instant,
}

impl UnservedQueues {
    /// The first look is due.
    pub(super) fn new(now: Instant) -> Self {
        Self { next: now }
    }

    /// How long until the next look.
    pub(super) fn patience(&self, now: Instant) -> Duration {
        self.next.saturating_duration_since(now)
    }

    /// Counts them, if it is time. Says when there are others than before.
    pub(super) fn look(&mut self, core: &Core, lans: &[Lan], now: Instant) {
        if now < self.next {
            return;
        }
        self.next = now + INTERVAL;
        // The interface may be gone, which is told otherwise.
        let Some(Lan { interface, .. }) = lans.first() else {
            return;
        };
        let Ok(found) = Sockets::queues(interface) else {
            return;
        };
        let served = core.queues;
        let unserved = found.saturating_sub(served);
        let before = core.unserved_queues.load(Ordering::Relaxed);
        if unserved > 0 && unserved != before {
            log::error!(
                "interface {name} has {found} RX queues now, of which {served} are served: the kernel gets what \
                 comes on the others, and connections break; set {served} by `ethtool -L {name}` again, or restart \
                 the RNIC",
                name = interface.name
            );
        } else if unserved == 0 && before > 0 {
            log::info!(
                "all RX queues of interface {} are served again",
                interface.name
            );
        }
        // Who sees the number finds in the log what it means.
        core.unserved_queues.store(unserved, Ordering::Release);
    }
}
