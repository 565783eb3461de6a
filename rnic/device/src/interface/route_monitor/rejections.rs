//! Connections between addresses between which the host's routes or rules let nothing go any more end, and their peers get
//! no answer. The shards are told the pairs of addresses; the kernel is asked for each pair in use when something
//! changed, and not for each connection.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rnic_engine::command::{Answer, Command};
use rnic_host::rejecting::Rejecting;
use rnic_net::RejectedPaths;

use super::super::paths::L2Interface;
use super::super::{OpenInterface, Served};
use super::persisting::Persisting;
use super::{paths_in_use, present_addresses};
use crate::sync::lock;

/// For so long routes may reject what connections send: who changes routes takes one away before there is the next, and
/// then a wider one of these kinds is met.
const GRACE: Duration = Duration::from_secs(1);

/// Our address and the peer's.
pub(super) type Pair = (IpAddr, IpAddr);

/// What is known of them.
#[derive(Debug)]
pub(super) struct FollowedRejections {
    /// Pairs that are rejected, but not yet for long.
    new: Persisting<Pair>,
    sent: RejectedPaths,
}

impl FollowedRejections {
    pub(super) fn new() -> Self {
        Self {
            new: Persisting::new(GRACE),
            sent: RejectedPaths::default(),
        }
    }

    /// Whether some are to be looked at again even if nothing changes, and when.
    pub(super) fn patience(&self, now: Instant) -> Option<Duration> {
        self.new.patience(now)
    }

    /// Reads which routes and rules reject.
    pub(super) fn read(served: &Served) {
        match Rejecting::find() {
            Ok(found) => *lock(&served.interface.rejecting) = Arc::new(found),
            Err(error) => log::warn!(
                "interface {}: the host's routes and rules that reject packets can't be read, so those read last \
                 hold, or none: {error}",
                served.interface.config.interface
            ),
        }
    }

    /// Judges all pairs in use, and those that were rejected before. `refused` are pairs with which a connection was
    /// refused: they wait for nothing.
    pub(super) fn update(
        &mut self,
        served: &Served,
        l2_interfaces: &[L2Interface],
        refused: &HashSet<Pair>,
    ) {
        if lock(&served.interface.rejecting).is_empty() && self.sent.is_empty() {
            return self.new.forget();
        }
        // While an interface is down its routes are gone: that is no rejection.
        let Some(present) = present_addresses(served, l2_interfaces) else {
            return self.new.forget();
        };
        let Some(paths) = paths_in_use(served) else {
            return;
        };
        let mut pairs: HashSet<Pair> = self.sent.pairs().chain(refused.iter().copied()).collect();
        pairs.extend(paths.iter().map(|path| (path.local, path.remote)));
        pairs.retain(|(local, _)| present.contains(local));
        let by = |pair: Pair| served.interface.rejected_by(pair).map(|rule| (pair, rule));
        let mut found: HashMap<Pair, Arc<str>> = pairs.into_iter().filter_map(by).collect();
        let known: HashSet<Pair> = self.sent.pairs().chain(refused.iter().copied()).collect();
        let new = found.keys().copied().filter(|pair| !known.contains(pair));
        let lasted: HashSet<Pair> = self.new.update(new, Instant::now()).into_iter().collect();
        found.retain(|pair, _| known.contains(pair) || lasted.contains(pair));
        let rejected = RejectedPaths::new(found);
        if rejected == self.sent {
            return;
        }
        self.sent = rejected;
        self.send(served);
    }

    /// Gives them to the shards, which end a number of connections at a time.
    fn send(&self, served: &Served) {
        loop {
            let results = served
                .shards
                .run_all(|| Command::SetRejectedPaths(self.sent.clone()));
            let more = |one: &Result<(Answer, _), _>| {
                matches!(one, Ok((Answer::Rejected { more: true }, _)))
            };
            if !results.iter().any(more) {
                return;
            }
        }
    }
}

impl OpenInterface {
    /// Whether the host rejects no packets at all, as far as is known.
    pub(crate) fn rejects_nothing(&self) -> bool {
        lock(&self.rejecting).is_empty()
    }

    /// The route or rule by which the host rejects what goes between these addresses, for people.
    pub(crate) fn rejected_by(&self, (local, remote): Pair) -> Option<Arc<str>> {
        let rejecting = lock(&self.rejecting).clone();
        let netlink = self.netlink.as_ref()?;
        let interface = self.l2_of(local).interface;
        rejecting.find_for((netlink, &interface), (local, remote))
    }
}
