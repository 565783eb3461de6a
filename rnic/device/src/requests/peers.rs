//! Allow-lists of peers: what the PRM says goes to the shard with each listener, and again when the limits
//! change; connections that clients begin are judged before a frame is sent for them.
//!
//! Connections within this host, over the loopback and internal links, are not peers' in this sense.

use std::net::{IpAddr, SocketAddr};
use std::sync::MutexGuard;
use std::time::Duration;

use rnic_engine::command::Command;
use rnic_ipc::control::Refusal;
use rnic_ipc::id::ClientId;
use rnic_net::PeerRules;

use crate::device::core::{Core, log_refusal};
use crate::interface::paths::Route;
use crate::sync::lock;

/// While there is one, nobody else gives the shard rules for peers. It is kept until the shard and the PRM
/// both have what the rules are for: so no older rules come after newer ones.
pub(crate) type RulesTurn<'a> = MutexGuard<'a, ()>;

impl Core {
    pub(crate) fn rules_turn(&self) -> RulesTurn<'_> {
        lock(&self.giving_rules)
    }

    /// What holds for peers of a client's listener.
    pub(crate) fn listener_rules(
        &self,
        _: &RulesTurn<'_>,
        client: ClientId,
        local: SocketAddr,
    ) -> PeerRules {
        self.prm()
            .listener_rules(client, local, &self.config.interface)
    }

    /// The PRM may have other lists: each listener gets its own again.
    pub(crate) fn renew_peer_rules(&self) {
        let turn = self.rules_turn();
        let all: Vec<_> = self.prm().live_listeners().collect();
        // The PRM is of all devices.
        let ours = all.iter().filter(|one| self.client(one.client).is_some());
        for one in ours {
            let peers = self.listener_rules(&turn, one.client, one.local);
            let listener = one.listener;
            let set = self.shards.all_do(|| Command::SetPeerRules {
                listener,
                peers: peers.clone(),
            });
            log_refusal("the rules for a listener's peers", set);
        }
    }

    /// The way of a client's connection to `remote`, from `local` if that is asked for: within this host, or
    /// over the interface if the client may have that peer.
    pub(crate) fn allowed_way(
        &self,
        client: ClientId,
        remote: IpAddr,
        local: Option<IpAddr>,
        timeout: Duration,
    ) -> Result<Route, Refusal> {
        if let Some(way) = self.inner_way(remote, local) {
            return way;
        }
        let interface = &self.config.interface;
        self.prm().may_connect_to(client, remote, interface)?;
        self.outward_way(remote, local, Some(timeout))
            .map_err(|refusal| self.with_link(refusal))
    }
}
