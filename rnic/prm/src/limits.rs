//! What a client, a user, and all clients together may hold.
//!
//! Every table of the RNIC is bounded by one of these; a request beyond one is refused by its
//! name, and nothing else happens.

use std::collections::HashMap;

use rnic_ipc::control::Refusal;
use rnic_ipc::ring::RING_SLOTS_MAX;
use rnic_ipc::work::{MAX_INLINE, MAX_SGE};
use rnic_net::AllowList;

use crate::peers::ListenerPeers;
use crate::refusal;
use crate::users::{PortRanges, UserLimits, Users};

/// All limits of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Clients at one time.
    pub clients: u32,
    /// What one client may hold.
    pub per_client: Quota,
    /// What all clients of one user together may hold and do.
    pub users: Users,
    /// What all clients together may hold.
    pub device: Quota,
    /// Deepest work queue, in work requests.
    pub queue_depth: u32,
    /// Deepest completion queue, in entries.
    pub cq_depth: u32,
    /// Scatter/gather elements of one work request, at most [`MAX_SGE`].
    pub sges: u32,
    /// Bytes that one work request may carry itself, at most [`MAX_INLINE`].
    pub inline_bytes: u32,
    /// Connection requests that may wait at one listener.
    pub backlog: u32,
    /// The peers of connections over an interface, by its name, whichever end begins them; of an interface that is
    /// not here all.
    pub interface_peers: HashMap<String, AllowList>,
    /// Which peers may connect to listeners, by their addresses: each that is of a listener must allow them.
    pub listener_peers: Vec<ListenerPeers>,
}

macro_rules! quota {
    ($(
        $(#[$doc:meta])*
        $resource:ident $field:ident: $type:ty = $client:expr, $user:expr, $device:expr;
        at most $most:expr;
    )*) => {
        /// How much of everything somebody may hold.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Quota { $($(#[$doc])* pub $field: $type,)* }

        /// What is counted against a [`Quota`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Resource { $($(#[$doc])* $resource,)* }

        impl Resource {
            pub const ALL: [Self; [$(Self::$resource),*].len()] = [$(Self::$resource),*];

            /// Its name, the same as the field's of [`Quota`].
            pub fn name(self) -> &'static str {
                match self { $(Self::$resource => stringify!($field),)* }
            }

            /// The greatest limit that tables are made for.
            pub fn most(self) -> u64 {
                match self { $(Self::$resource => $most,)* }
            }
        }

        impl Quota {
            /// What one client may hold when nothing else is said.
            pub const PER_CLIENT: Self = Self { $($field: $client,)* };
            /// What one user may hold when nothing else is said: no more than a quarter of
            /// everything, so that no user can do without the others' leave.
            pub const PER_USER: Self = Self { $($field: $user,)* };
            /// What all together may hold when nothing else is said.
            pub const DEVICE: Self = Self { $($field: $device,)* };

            /// The limit of one resource.
            pub fn get(&self, resource: Resource) -> u64 {
                match resource { $(Resource::$resource => u64::from(self.$field),)* }
            }

            /// Sets the limit of one resource; beyond [`Resource::most`] it is that.
            pub fn set(&mut self, resource: Resource, limit: u64) {
                let limit = limit.min(resource.most());
                match resource {
                    // What tables are made for fits the field.
                    $(Resource::$resource => {
                        self.$field = <$type>::try_from(limit).unwrap_or(<$type>::MAX);
                    })*
                }
            }
        }
    };
}

quota! {
    ProtectionDomains protection_domains: u32 = 64, 1024, 4096;
    at most 1 << 20;
    /// Memory regions and windows, that is STags. Each region is a mapping of the process's, as
    /// each ring is one, and Linux gives a process 65,530 (`vm.max_map_count`).
    Regions regions: u32 = 4096, 8192, 32_768;
    at most crate::STAGS_MAX.into();
    /// Bytes in all memory regions.
    RegisteredBytes registered_bytes: u64 = 1 << 36, 1 << 36, 1 << 38;
    at most u64::MAX;
    /// Memory regions that are not in a memfd: each access waits for its client's page faults, and the
    /// shard with it. So nobody has some but the daemon's own user
    /// ([`own_remote_regions`](crate::UserLimits::own_remote_regions)), unless it is said. Each takes a
    /// descriptor.
    RemoteRegions remote_regions: u32 = 32, 0, 1024;
    at most crate::STAGS_MAX.into();
    CompletionQueues completion_queues: u32 = 1024, 1024, 4096;
    at most 1 << 16;
    SharedReceiveQueues shared_receive_queues: u32 = 256, 256, 1024;
    at most 1 << 16;
    QueuePairs queue_pairs: u32 = 1024, 1024, 4096;
    at most 1 << 16;
    /// Entries in all completion queues and slots in all work queues.
    RingEntries ring_entries: u64 = 1 << 20, 1 << 20, 1 << 22;
    at most 1 << 32;
    /// Work requests that may be outstanding: the depths of all work queues together.
    OutstandingWork outstanding_work: u64 = 1 << 20, 1 << 20, 1 << 22;
    at most 1 << 32;
    Listeners listeners: u32 = 64, 256, 1024;
    at most 1 << 16;
    /// Connection requests that wait for an answer.
    ConnectionRequests connection_requests: u32 = 1024, 1024, 4096;
    at most 1 << 16;
}

impl Resource {
    /// Whether tables are made for as many as all clients together may hold.
    pub(crate) fn has_table(self) -> bool {
        match self {
            Self::ProtectionDomains
            | Self::Regions
            | Self::CompletionQueues
            | Self::SharedReceiveQueues
            | Self::QueuePairs
            | Self::Listeners => true,
            Self::RegisteredBytes
            | Self::RemoteRegions
            | Self::RingEntries
            | Self::OutstandingWork
            | Self::ConnectionRequests => false,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            clients: 256,
            per_client: Quota::PER_CLIENT,
            users: Users::default(),
            device: Quota::DEVICE,
            queue_depth: 16_384,
            // As much as libfabric's ofi_rxm asks for: 256 entries for each of 1024 peers.
            cq_depth: RING_SLOTS_MAX,
            sges: MAX_SGE as u32,
            inline_bytes: MAX_INLINE as u32,
            backlog: 1024,
            interface_peers: HashMap::new(),
            listener_peers: Vec::new(),
        }
    }
}

impl Limits {
    /// For one user alone, with no other to protect: everything that tables are made for, at any
    /// rate, and as much memory as the host gives.
    #[must_use]
    pub fn of_one_user() -> Self {
        let mut all = Quota::DEVICE;
        all.set(Resource::RegisteredBytes, Resource::RegisteredBytes.most());
        let limits = Self::default();
        let user = UserLimits {
            clients: limits.clients,
            own_remote_regions: all.remote_regions,
            quota: all.clone(),
            listen_ports: PortRanges::all(),
            connects_per_second: u32::MAX,
            requests_per_second: u32::MAX,
            allowed_peers: None,
        };
        Self {
            per_client: all.clone(),
            users: Users {
                others: user,
                by_uid: HashMap::new(),
                by_gid: HashMap::new(),
            },
            device: all,
            ..limits
        }
    }
}

/// What is kept for administrators of a limit of the device: one in 64, rounded up, and never all.
/// So an administrator who is to see what fills a device, and to end it, always has a place.
pub fn kept_for_administrators(limit: u64) -> u64 {
    const ONE_IN: u64 = 64;
    limit.div_ceil(ONE_IN).min(limit.saturating_sub(1))
}

/// What somebody holds.
#[derive(Debug, Default)]
pub(crate) struct Usage([u64; Resource::ALL.len()]);

impl Usage {
    /// Whether `amount` more would stay within `limit`, of which `kept` are not for this client;
    /// `whose` goes into the refusal.
    pub(crate) fn check(
        &self,
        (limit, kept): (u64, u64),
        whose: impl std::fmt::Display,
        resource: Resource,
        amount: u64,
    ) -> Result<(), Refusal> {
        let held = self.0[resource as usize];
        let most = limit.saturating_sub(kept);
        if held.checked_add(amount).is_some_and(|sum| sum <= most) {
            return Ok(());
        }
        Err(refusal::limit(format!(
            "{amount} more of {name} asked, but {whose} limit {name} is {limit}{kept} and {held} are \
             held: release some, or raise the limit",
            name = resource.name(),
            kept = refusal::kept(kept),
        )))
    }

    /// How much of it is held.
    pub(crate) fn held(&self, resource: Resource) -> u64 {
        self.0[resource as usize]
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
