//! What is done about events of the shards. Never waits for a shard.

use std::net::IpAddr;

use rnic_engine::command::{Command, ShardEvent};
use rnic_host::ports::LocalPort;
use rnic_ipc::control::Event;
use rnic_ipc::id::ClientId;

use super::core::Core;
use crate::clients::audit::{self, RefusedPeer};
use crate::interface::paths::PathToPeer;
use crate::joins::{Message, OWNER};
use crate::runtime::To;
use crate::runtime::driver::ShardMessage;

impl Core {
    pub(crate) fn handle(&self, message: ShardMessage) {
        match message.event {
            ShardEvent::Client {
                client: OWNER,
                event,
            } => self.joins.listener_event(event),
            ShardEvent::Client { client, event } => self.client_event(client, event),
            ShardEvent::Join { qp, event } => self.joins.send(Message::Qp { qp, event }),
            ShardEvent::RequestGone { request, reason } => {
                self.shards.placement().request_over(request);
                let gone = self.prm().request_gone(request);
                let Some((client, listener)) = gone else {
                    return self.joins.send(Message::RequestGone(request));
                };
                log::debug!("connection request {request} went away: {reason:?}");
                self.client_event(client, Event::RequestGone { listener, request });
            }
            ShardEvent::Released { transport, local } => {
                let at = LocalPort::new(transport, local);
                self.interface.ports.released(at, message.stamp);
            }
            ShardEvent::PathDoubtful { local, remote } => self.find_path_again(local, remote),
            ShardEvent::PeerRefused {
                client,
                listener,
                local,
                remote,
                list,
                untold,
            } => audit::log_refused_peer(
                &self.clients,
                self.interface.name(),
                &RefusedPeer {
                    client,
                    listener,
                    local,
                    remote,
                    list,
                    untold,
                },
            ),
            ShardEvent::RegionFault { client, stag } => log::warn!(
                "client {client}: the memory of its region with STag {stag} is gone: it was unmapped, or the \
                 host could not give a page back. The stream that used it has ended, and nobody may use the \
                 region; leave memory as it is while the RNIC has it"
            ),
            ShardEvent::HostPolicyDropped {
                local,
                remote,
                by,
                rule,
                untold,
            } => audit::log_host_policy_dropped((local, remote), (by, &rule), untold),
            ShardEvent::GuessesPaused {
                client,
                remote,
                streams,
                pause,
                untold,
            } => audit::log_guesses(&self.clients, client, remote, (streams, pause), untold),
            ShardEvent::ClientFault {
                client,
                code,
                message,
            } => {
                if let Some(client) = self.clients.get(client) {
                    self.clients.evict(&client, code, &message);
                }
            }
        }
    }

    /// Has the host look for the path to a peer that is silent, or to a further address of a peer.
    fn find_path_again(&self, local: IpAddr, remote: IpAddr) {
        let Some(link) = &self.interface.config.udp else {
            return self.interface.stale_neighbors.add(local, remote);
        };
        // Without one, packets go where the last ones went.
        if let Ok(PathToPeer { path, .. }) = self.interface.udp_path(link, remote, Some(local)) {
            self.shards.try_post_all(|| Command::MovePath {
                local,
                remote,
                path,
            });
        }
    }

    fn client_event(&self, id: ClientId, event: Event) {
        if let Event::ConnectRequest {
            listener, request, ..
        } = event
        {
            let known = self.prm().connection_requested(id, listener, request);
            if let Err(refused) = known {
                log::info!(
                    "client {id}: connection request {request} rejected: {}",
                    refused.refusal
                );
                let request = *refused.grant.request();
                self.shards
                    .post(To::Request(request), Command::Refuse { request });
                return;
            }
        }
        if let Event::CqError { cq } = event {
            // Shards in which it has failed already report it no more.
            self.shards.try_post_all(|| Command::FailCq { cq });
        }
        if let Some(client) = self.clients.get(id) {
            self.clients
                .send(&client, self.interface.with_link_state(event));
        }
    }
}
