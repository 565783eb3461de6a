//! What the interface's queues are at present, beside those that are served.
//!
//! Of a bond, the kernel tells which members carry frames: frames leave by no other. Members and queues that came after
//! the interface was opened (`ip link set master`, `ethtool -L`; some drivers add queues when an XDP program is attached)
//! have no sockets, so the kernel gets their frames. It does not let queues that have sockets be removed.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rnic_engine::command::Command;
use rnic_host::{Interface, Members};

use super::super::Served;
use crate::DedicatedQueues;

/// Between two look-ups: the kernel's route messages don't report channels.
const INTERVAL: Duration = Duration::from_secs(5);

/// What was found last, and when to look it up next.
#[derive(Debug)]
pub(super) struct FollowedMembers {
    next: Instant,
    /// Of each served queue, whether it carried frames.
    carried: Vec<bool>,
}

impl FollowedMembers {
    /// The first look-up is due.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            next: now,
            carried: Vec::new(),
        }
    }

    /// How long until the next look-up.
    pub(super) fn patience(&self, now: Instant) -> Duration {
        self.next.saturating_duration_since(now)
    }

    /// Looks the members up, if it is time or something `changed`.
    pub(super) fn update(
        &mut self,
        device: &Served,
        interface: &Interface,
        changed: bool,
        now: Instant,
    ) {
        let (Some(served), Some(netlink)) = (&device.interface.members, &device.interface.netlink)
        else {
            return;
        };
        if now < self.next && !(changed && served.is_bond) {
            return;
        }
        self.next = now + INTERVAL;
        // The interface may be gone, which the monitor finds by itself. Without any member that is up all stays as it is.
        let dedicated = device.interface.config.dedicated_queues.as_ref();
        let dedicated = dedicated.map(DedicatedQueues::as_slice);
        let found = Members::of(netlink, interface).and_then(|found| found.only(dedicated));
        let Ok(found) = found else { return };
        if served.is_bond
            && let Some(before) = self.note(served.all_exits(&found))
        {
            self.follow(device, served, &found, (interface, &before));
        }
        count_unserved(device, served, &found, interface);
    }

    /// Which queues carry frames: which did before, if they are others.
    fn note(&mut self, carried: Vec<bool>) -> Option<Vec<bool>> {
        (carried != self.carried).then(|| std::mem::replace(&mut self.carried, carried))
    }

    /// Has frames leave by the members that carry them.
    fn follow(
        &self,
        device: &Served,
        served: &Members,
        found: &Members,
        (interface, before): (&Interface, &[bool]),
    ) {
        let shards = device.shards.count();
        let commands = (0..shards).map(|shard| Command::SetExits {
            carry: served.exits(shard, shards, found),
        });
        for done in device.shards.run_each(commands) {
            // A shard that has stopped sends nothing.
            if let Err(refusal) = done {
                log::debug!("members of {}: {refusal}", interface.name);
            }
        }
        if !self.carried.contains(&true) {
            log::warn!(
                "bond {}: no member that is served carries frames",
                interface.name
            );
        } else if !before.is_empty() {
            log::info!(
                "bond {}: frames leave by {}",
                interface.name,
                found.carrying()
            );
        }
    }
}

/// Counts queues that are not served. Logs when their number changed.
fn count_unserved(device: &Served, served: &Members, found: &Members, interface: &Interface) {
    let unserved = served.missing(found);
    let before = device.interface.unserved_queues.load(Ordering::Relaxed);
    let name = &interface.name;
    if unserved > 0 && unserved != before {
        let (all, served) = (found.queues(), served.queues());
        log::error!(
            "interface {name} has {all} RX queues now, of which {served} are served: the kernel gets what comes on the \
             others, and connections break; set as many as before by `ethtool -L`, or have the interface opened again, \
             which is done when no program uses it, or by `rnicctl reopen {name}`"
        );
    } else if unserved == 0 && before > 0 {
        log::info!("all RX queues of interface {name} are served again");
    }
    // The log line comes before the number that it explains.
    device
        .interface
        .unserved_queues
        .store(unserved, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_leave_by_others_only_when_others_carry_them() {
        let mut followed = FollowedMembers::new(Instant::now());
        assert_eq!(followed.note(vec![true, false]), Some(Vec::new()));
        assert_eq!(followed.note(vec![true, false]), None);
        let both = Some(vec![true, false]);
        assert_eq!(followed.note(vec![false, true]), both);
        assert_eq!(followed.note(vec![false, true]), None);
    }
}
