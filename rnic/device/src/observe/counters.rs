//! The device's counters: of the shards, of steering, of the capture, and levels of its own.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use rnic_engine::command::{Answer, Command};
use rnic_engine::metrics::Counted;
use rnic_host::heap;
use rnic_ipc::control::{CONTROL_MESSAGE_MAX, Refusal};

use crate::device::core::Core;
use crate::sync::lock;
use crate::{Device, runtime};

/// Bytes that a counter takes in a message beside its name, at most: the length of the name and
/// the value, each as a variable-length integer.
const OVERHEAD: usize = 12;
/// Bytes of a message that its frame takes, at most.
const FRAME: usize = 32;

/// How often in a second the shard is asked for counters for clients, beyond as many at once. A client
/// that asks more often gets the last answer, which is at most one such interval old.
const ASKED_PER_SECOND: u32 = 50;

impl Device {
    /// Every counter of the device, in a fixed order.
    ///
    /// # Errors
    ///
    /// `ShuttingDown`.
    pub fn counters(&self) -> Result<Vec<(String, u64)>, Refusal> {
        self.core().counters()
    }
}

impl Core {
    /// Every counter, for a client: however often clients ask, it costs the shard little.
    pub(crate) fn counters_for_clients(&self) -> Result<Arc<[(String, u64)]>, Refusal> {
        // Held while the shard is asked: other threads that ask meanwhile want the same answer.
        let mut last = lock(&self.last_counters);
        if last.asked.take(ASKED_PER_SECOND, Instant::now()) || last.counters.is_empty() {
            last.counters = self.counters()?.into();
        }
        Ok(last.counters.clone())
    }

    /// Every counter, in a fixed order.
    pub(crate) fn counters(&self) -> Result<Vec<(String, u64)>, Refusal> {
        let mut of_shards = Vec::new();
        for done in self.shards.run_all(|| Command::QueryCounters) {
            if let (Answer::Counters(counters), _) = done? {
                of_shards.push(counters);
            }
        }
        let mut all = runtime::counters::sum(of_shards);
        all.extend(self.device_counters());
        Ok(all)
    }

    /// What is counted beside the shard, in a fixed order.
    pub(crate) fn device_counters(&self) -> Vec<(String, u64)> {
        let steering = self.interface.ports.with_claims(|claimed| {
            let steering = claimed.0.as_ref().map(|steering| steering.counters());
            steering.unwrap_or_default()
        });
        let steering = steering.into_iter();
        let steering = steering.map(|(name, count)| (format!("steering_{name}"), count));
        let own = self.named().into_iter().chain(OfPrm(self).named());
        let own = own.map(|(name, count)| (name.to_owned(), count));
        let mut all: Vec<_> = steering.chain(own).collect();
        let prm = self.prm();
        all.extend(prm.held());
        all.extend(prm.refusals());
        all
    }
}

// What the device counts beside its shards.
rnic_engine::counters! { for c: Core;
    "rnic_unserved_queues": "RX queues that the interface got after it was opened: the kernel gets their frames.",
        unserved_queues = u64::from(c.interface.unserved_queues());
    "rnic_stalled_shards": "Shards whose threads have not polled for 5 s, and do not sleep.",
        stalled_shards = u64::from(c.shards.stalled());
    "rnic_icmp_messages_total": "ICMP errors received for the RNIC's claims, those that it ignored, and those lost because the shard was busy.",
        icmp_received(result = "received") = c.interface.icmp.received.load(Ordering::Relaxed),
        icmp_unusable(result = "unusable") = c.interface.icmp.unusable.load(Ordering::Relaxed),
        icmp_lost(result = "lost") = c.interface.icmp.lost.load(Ordering::Relaxed);
    "rnic_capture_frames_total": "Frames of captures, by result.",
        capture_frames(result = "captured") = c.captures().counts().map(|(taken, _)| taken),
        capture_dropped(result = "dropped") = c.captures().counts().map(|(_, lost)| lost);
    "rnic_claimed_ports": "Local addresses and ports whose frames are the RNIC's.",
        device_ports = c.interface.ports.count() as u64;
}

/// What the Privileged Resource Manager counts: once for all devices of a process.
pub(crate) struct OfPrm<'a>(&'a Core);

rnic_engine::counters! { for c: OfPrm<'_>;
    "rnic_requests_delayed_total": "Clients' requests that waited, because their user makes more than it may in a second.",
        requests_delayed = c.0.prm().requests_delayed();
    "rnic_memory_refusals_total": "Requests refused because the process had no memory left for them.",
        refused_for_memory = c.0.shared_prm().refused_for_memory();
    "rnic_memory_reserve_used_total": "Times that an allocation failed and was served from the heap's reserve.",
        memory_reserve_used = heap::times_given_back();
    "rnic_clients": "Clients of the RNIC.", device_clients = c.0.prm().clients() as u64;
}

/// As many counters from number `first` on as fit one control message.
pub(crate) fn page(all: &[(String, u64)], first: u32) -> Vec<(String, u64)> {
    let mut room = CONTROL_MESSAGE_MAX - FRAME;
    all.iter()
        .skip(first as usize)
        .take_while(|(name, _)| {
            let left = room.checked_sub(name.len() + OVERHEAD);
            room = left.unwrap_or(0);
            left.is_some()
        })
        .cloned()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn many() -> Vec<(String, u64)> {
        (0..1000)
            .map(|number| (format!("counter_number_{number}"), u64::MAX))
            .collect()
    }

    #[test]
    fn pages_together_are_all_counters_once() {
        let mut found = Vec::new();
        loop {
            let page = page(&many(), found.len() as u32);
            if page.is_empty() {
                break;
            }
            found.extend(page);
        }
        assert_eq!(found, many());
    }

    #[test]
    fn a_page_fits_a_control_message() {
        let (ours, theirs) = rnic_ipc::transport::Channel::pair().unwrap();
        let reply: rnic_ipc::control::Reply =
            Ok(rnic_ipc::control::Response::Counters(page(&many(), 0)));
        ours.send(&reply, &[]).unwrap();
        let (found, _) = theirs.recv::<rnic_ipc::control::Reply>().unwrap().unwrap();
        assert_eq!(found, reply);
    }
}
