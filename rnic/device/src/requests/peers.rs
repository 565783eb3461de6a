//! Allow-lists of peers: the shards get the PRM's rules with each listener, and again when the limits change.
//! Connections that clients begin are checked before a frame is sent for them.
//!
//! Connections within this host, over the loopback and internal links, are not peers' in this sense.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use rnic_engine::command::Command;
use rnic_ipc::control::Refusal;
use rnic_ipc::id::ClientId;
use rnic_net::PeerRules;

use crate::device::core::{Core, PeerRulesLock};
use crate::interface::paths::PathToPeer;
use crate::runtime::log_refusal;

impl Core {
    /// What holds for peers of a client's listener.
    pub(crate) fn listener_rules(
        &self,
        _: &PeerRulesLock<'_>,
        client: ClientId,
        local: SocketAddr,
    ) -> PeerRules {
        self.prm()
            .listener_rules(client, local, &self.interface.config.interface)
    }

    /// The PRM may have other lists: each listener gets its own again.
    pub(crate) fn apply_peer_rules(&self) {
        let rules = self.lock_peer_rules();
        let all: Vec<_> = self.prm().live_listeners().collect();
        // The PRM is of all devices.
        let ours = all.iter().filter(|one| self.clients.has(one.client));
        for one in ours {
            let peers = self.listener_rules(&rules, one.client, one.local);
            let listener = one.listener;
            let set = self.shards.all_do(|| Command::SetPeerRules {
                listener,
                peers: peers.clone(),
            });
            log_refusal("the rules for a listener's peers", set);
        }
        drop(rules);
        self.apply_join_rules();
    }

    /// Whether a client's connection to `remote` need not wait for a neighbour, who is asked otherwise. `waited`: since
    /// when the client has asked.
    pub(crate) fn is_resolved(
        &self,
        client: ClientId,
        remote: IpAddr,
        local: Option<IpAddr>,
        waited: Duration,
    ) -> Result<bool, Refusal> {
        if let Some(path) = self.interface.inner_path(remote, local) {
            return path.map(|_| true);
        }
        let interface = &self.interface.config.interface;
        self.prm().may_connect_to(client, remote, interface)?;
        self.interface
            .is_resolved(remote, local, waited)
            .map_err(|refusal| self.interface.with_link(refusal))
    }

    /// The path of a client's connection to `remote`, from `local` if that is asked for: within this host, or
    /// over the interface if the client may have that peer.
    pub(crate) fn allowed_path(
        &self,
        client: ClientId,
        remote: IpAddr,
        local: Option<IpAddr>,
        timeout: Duration,
    ) -> Result<PathToPeer, Refusal> {
        if let Some(path) = self.interface.inner_path(remote, local) {
            return path;
        }
        let interface = &self.interface.config.interface;
        self.prm().may_connect_to(client, remote, interface)?;
        self.interface
            .outward_path(remote, local, Some(timeout))
            .map_err(|refusal| self.interface.with_link(refusal))
    }
}
