//! The device's counters: of the shards, of steering, of the capture, and levels of its own.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use rnic_engine::command::{Answer, Command};
use rnic_ipc::control::{CONTROL_MESSAGE_MAX, Refusal};
use rnic_ipc::heap;

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
        let mut all = Vec::new();
        let steering = self.interface.ports.with_claims(|claimed| {
            claimed
                .0
                .as_ref()
                .map(|steering| steering.counters())
                .unwrap_or_default()
        });
        all.extend(
            steering
                .into_iter()
                .map(|(name, count)| (format!("steering_{name}"), count)),
        );
        for (name, count) in [
            ("icmp_received", &self.interface.icmp.received),
            ("icmp_unusable", &self.interface.icmp.unusable),
            ("icmp_lost", &self.interface.icmp.lost),
        ] {
            all.push((name.to_owned(), count.load(Ordering::Relaxed)));
        }
        let unserved = self.interface.unserved_queues();
        all.push(("unserved_queues".to_owned(), unserved.into()));
        all.push(("stalled_shards".to_owned(), self.shards.stalled().into()));
        if let Some((taken, lost)) = self.captures().counts() {
            all.push(("capture_frames".to_owned(), taken));
            all.push(("capture_dropped".to_owned(), lost));
        }
        let prm = self.prm();
        all.push(("device_clients".to_owned(), prm.clients() as u64));
        all.extend(prm.held());
        all.extend(prm.refusals());
        all.push(("requests_delayed".to_owned(), prm.requests_delayed()));
        drop(prm);
        all.push(("memory_reserve_used".to_owned(), heap::times_given_back()));
        let refused = self.shared_prm().refused_for_memory();
        all.push(("refused_for_memory".to_owned(), refused));
        all.push((
            "device_ports".to_owned(),
            self.interface.ports.count() as u64,
        ));
        all
    }
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
