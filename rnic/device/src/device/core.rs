//! The parts of an open device together.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use rnic_ipc::control::Refusal;
use rnic_prm::{Pace, Prm};

use crate::capture::Captures;
use crate::clients::registry::Clients;
use crate::clients::request_metrics::RequestMetrics;
use crate::clients::shared_prm::SharedPrm;
use crate::interface::open::Started;
use crate::interface::{OpenInterface, Served};
use crate::joins::Joins;
use crate::runtime::Shards;
use crate::sync::lock;

/// The parts of an open device.
///
/// The PRM's lock is never held while a thread waits for the shard or the host.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) interface: Arc<OpenInterface>,
    pub(crate) shards: Arc<Shards>,
    pub(crate) clients: Clients,
    pub(crate) joins: Joins,
    shared_prm: Arc<SharedPrm>,
    captures: Mutex<Captures>,
    pub(crate) request_metrics: RequestMetrics,
    pub(crate) last_counters: Mutex<LastCounters>,
    /// Held until the shard and the PRM both have the peer rules that are being set, so that no older ones come after
    /// newer ones.
    peer_rules: Mutex<()>,
    /// Why nothing begins any more, while what is there may end.
    draining: OnceLock<Refusal>,
}

/// The counters as the shards gave them last.
#[derive(Debug, Default)]
pub(crate) struct LastCounters {
    pub(crate) asked: Pace,
    pub(crate) counters: Arc<[(String, u64)]>,
}

/// [`Core::lock_peer_rules`].
pub(crate) type PeerRulesLock<'a> = MutexGuard<'a, ()>;

impl Core {
    pub(crate) fn new(started: Started, shared_prm: Arc<SharedPrm>) -> Self {
        Self {
            interface: Arc::new(started.interface),
            shards: Arc::new(started.shards),
            clients: Clients::default(),
            joins: Joins::default(),
            shared_prm,
            captures: Mutex::new(Captures::new(started.capture)),
            request_metrics: RequestMetrics::default(),
            last_counters: Mutex::default(),
            peer_rules: Mutex::default(),
            draining: OnceLock::new(),
        }
    }

    /// The interface with its shards.
    pub(crate) fn served(&self) -> Served {
        Served {
            interface: self.interface.clone(),
            shards: self.shards.clone(),
        }
    }

    /// The PRM. Not to be held while waiting for anything.
    pub(crate) fn prm(&self) -> MutexGuard<'_, Prm> {
        self.shared_prm.prm()
    }

    /// What this device has in common with others.
    pub(crate) fn shared_prm(&self) -> &SharedPrm {
        &self.shared_prm
    }

    pub(crate) fn captures(&self) -> MutexGuard<'_, Captures> {
        lock(&self.captures)
    }

    /// While it is held, no other thread gives the shards rules for peers.
    pub(crate) fn lock_peer_rules(&self) -> PeerRulesLock<'_> {
        lock(&self.peer_rules)
    }

    /// Why nothing may begin any more, if that is so.
    pub(crate) fn draining(&self) -> Option<&Refusal> {
        self.draining.get()
    }

    /// Nothing may begin any more, for this reason.
    pub(crate) fn begin_draining(&self, why: Refusal) {
        // The first reason stays.
        let _ = self.draining.set(why);
    }
}
