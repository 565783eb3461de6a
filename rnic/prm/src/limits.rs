//! What a client, and all clients together, may hold.
//!
//! Every table of the RNIC is bounded by one of these; a request beyond one is refused by its
//! name, and nothing else happens.

use rnic_ipc::control::{Refusal, RefusalCode};
use rnic_ipc::work::{MAX_INLINE, MAX_SGE};

/// All limits of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Clients at one time.
    pub clients: u32,
    /// What one client may hold.
    pub per_client: Quota,
    /// What all clients together may hold.
    pub device: Quota,
    /// Deepest work queue, in work requests.
    pub queue_depth: u32,
    /// Deepest completion queue, in entries.
    pub cq_depth: u32,
    /// Scatter/gather elements of one work request, at most [`MAX_SGE`].
    pub sges: u32,
    /// Octets that one work request may carry itself, at most [`MAX_INLINE`].
    pub inline_octets: u32,
    /// Connection requests that may wait at one listener.
    pub backlog: u32,
}

/// How much of everything somebody may hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Protection domains.
    pub protection_domains: u32,
    /// Memory regions, that is STags. Each is a mapping of the process's, as each ring is one, and
    /// Linux gives a process 65,530 (`vm.max_map_count`).
    pub regions: u32,
    /// Octets in all memory regions.
    pub registered_octets: u64,
    /// Completion queues.
    pub completion_queues: u32,
    /// Shared receive queues.
    pub shared_receive_queues: u32,
    /// Queue pairs.
    pub queue_pairs: u32,
    /// Entries in all completion queues and slots in all work queues.
    pub ring_entries: u64,
    /// Listeners.
    pub listeners: u32,
    /// Connection requests that wait for an answer.
    pub connection_requests: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            clients: 256,
            per_client: Quota {
                protection_domains: 64,
                regions: 4096,
                registered_octets: 1 << 36,
                completion_queues: 1024,
                shared_receive_queues: 256,
                queue_pairs: 1024,
                ring_entries: 1 << 20,
                listeners: 64,
                connection_requests: 1024,
            },
            device: Quota {
                protection_domains: 4096,
                regions: 32_768,
                registered_octets: 1 << 38,
                completion_queues: 4096,
                shared_receive_queues: 1024,
                queue_pairs: 4096,
                ring_entries: 1 << 22,
                listeners: 1024,
                connection_requests: 4096,
            },
            queue_depth: 16_384,
            cq_depth: 65_536,
            sges: MAX_SGE as u32,
            inline_octets: MAX_INLINE as u32,
            backlog: 1024,
        }
    }
}

/// What is counted against a [`Quota`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resource {
    ProtectionDomains,
    Regions,
    RegisteredOctets,
    CompletionQueues,
    SharedReceiveQueues,
    QueuePairs,
    RingEntries,
    Listeners,
    ConnectionRequests,
}

impl Resource {
    const COUNT: usize = Resource::ConnectionRequests as usize + 1;

    fn name(self) -> &'static str {
        match self {
            Self::ProtectionDomains => "protection_domains",
            Self::Regions => "regions",
            Self::RegisteredOctets => "registered_octets",
            Self::CompletionQueues => "completion_queues",
            Self::SharedReceiveQueues => "shared_receive_queues",
            Self::QueuePairs => "queue_pairs",
            Self::RingEntries => "ring_entries",
            Self::Listeners => "listeners",
            Self::ConnectionRequests => "connection_requests",
        }
    }

    fn limit(self, quota: &Quota) -> u64 {
        match self {
            Self::ProtectionDomains => quota.protection_domains.into(),
            Self::Regions => quota.regions.into(),
            Self::RegisteredOctets => quota.registered_octets,
            Self::CompletionQueues => quota.completion_queues.into(),
            Self::SharedReceiveQueues => quota.shared_receive_queues.into(),
            Self::QueuePairs => quota.queue_pairs.into(),
            Self::RingEntries => quota.ring_entries,
            Self::Listeners => quota.listeners.into(),
            Self::ConnectionRequests => quota.connection_requests.into(),
        }
    }
}

/// What somebody holds.
#[derive(Debug, Default)]
pub(crate) struct Usage([u64; Resource::COUNT]);

impl Usage {
    /// Whether `amount` more would stay within `quota`; `whose` goes into the refusal.
    pub(crate) fn check(
        &self,
        quota: &Quota,
        whose: &str,
        resource: Resource,
        amount: u64,
    ) -> Result<(), Refusal> {
        let held = self.0[resource as usize];
        let limit = resource.limit(quota);
        if held.checked_add(amount).is_some_and(|sum| sum <= limit) {
            return Ok(());
        }
        Err(Refusal {
            code: RefusalCode::Limit,
            message: format!(
                "{amount} more of {name} asked, but {whose} limit {name} is {limit} and {held} are \
                 held: release some, or raise the limit",
                name = resource.name(),
            ),
        })
    }

    pub(crate) fn add(&mut self, resource: Resource, amount: u64) {
        let held = &mut self.0[resource as usize];
        *held = held.saturating_add(amount);
    }

    pub(crate) fn subtract(&mut self, resource: Resource, amount: u64) {
        let held = &mut self.0[resource as usize];
        debug_assert!(*held >= amount, "{resource:?} was not counted");
        *held = held.saturating_sub(amount);
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|held| *held == 0)
    }
}
