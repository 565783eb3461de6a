//! Listeners, and the connection requests of peers that wait at them.

use std::net::SocketAddr;

use rnic_ipc::control::{ListenSpec, Refusal};
use rnic_ipc::id::{ClientId, ConnRequestId, ListenerId, QpNum};

use super::{Listener, Prm, Request};
use crate::grant::{AcceptGrant, ListenGrant, ListenerRemoval, RejectGrant};
use crate::limits::Resource;
use crate::refusal::{self, Kind};
use crate::refused::Single;
use crate::table::Phase;

const LISTENER: [(Resource, u64); 1] = [(Resource::Listeners, 1)];
const REQUEST: [(Resource, u64); 1] = [(Resource::ConnectionRequests, 1)];

impl Prm {
    /// A new listener at the port of `spec`, or at any when that is 0: then [`Self::may_listen_at`] is to be asked
    /// when the port is known. Whether the address is local and the port free is for the caller to
    /// check.
    ///
    /// # Errors
    ///
    /// `Malformed` for a backlog of 0; `Limit`; `NotPermitted` for a port that is not the user's to listen at.
    pub fn listen(&mut self, client: ClientId, spec: &ListenSpec) -> Result<ListenGrant, Refusal> {
        let port = spec.local.port();
        self.check_backlog(spec.backlog)?;
        if port != 0 {
            self.check_port(client, port)?;
        }
        self.check_quota(client, &LISTENER)?;
        let id = self
            .listeners
            .insert(
                client,
                Phase::Coming,
                Listener {
                    transport: spec.transport,
                    local: None,
                },
            )
            .ok_or_else(|| refusal::full(Kind::Listener, self.limits.device.listeners))?;
        self.charge(client, &LISTENER);
        Ok(ListenGrant {
            client,
            listener: ListenerId(id),
            spec: *spec,
        })
    }

    pub(super) fn check_backlog(&mut self, backlog: u32) -> Result<(), Refusal> {
        self.check_range("a backlog", backlog, Single::Backlog)
    }

    /// Whether the listener may be at the port that was found for it.
    ///
    /// # Errors
    ///
    /// `NotPermitted` when the port is not the user's to listen at.
    pub fn may_listen_at(&mut self, grant: &ListenGrant, port: u16) -> Result<(), Refusal> {
        self.check_port(grant.client, port)
    }

    /// The shard listens at `local`.
    pub fn listening(&mut self, grant: ListenGrant, local: SocketAddr) {
        if let Some(slot) = self.listeners.get_mut(grant.listener.0) {
            slot.object.local = Some(local);
            slot.phase = Phase::Live;
        }
    }

    /// The listener did not come about.
    pub fn listen_failed(&mut self, grant: ListenGrant) {
        self.forget_listener(grant.listener);
    }

    /// Begins to close a listener. Requests that came before are answered as if it was there.
    ///
    /// # Errors
    ///
    /// `UnknownObject`.
    pub fn unlisten(
        &mut self,
        client: ClientId,
        listener: ListenerId,
    ) -> Result<ListenerRemoval, Refusal> {
        let unknown = || refusal::unknown(Kind::Listener, listener);
        let slot = self
            .listeners
            .live_mut(client, listener.0)
            .ok_or_else(unknown)?;
        let transport = slot.object.transport;
        let local = slot.object.local.ok_or_else(unknown)?;
        slot.phase = Phase::Leaving;
        Ok(ListenerRemoval {
            listener,
            transport,
            local,
        })
    }

    /// The shard listens no more.
    pub fn unlistened(&mut self, removal: ListenerRemoval) {
        self.forget_listener(removal.listener);
    }

    /// A peer's request came to a listener of `client`. It may come before [`Prm::listening`].
    ///
    /// # Errors
    ///
    /// When the listener is gone, or a limit is reached: the request is to be rejected.
    pub fn connection_requested(
        &mut self,
        client: ClientId,
        listener: ListenerId,
        request: ConnRequestId,
    ) -> Result<(), RefusedRequest> {
        let known = self
            .listeners
            .get_mut(listener.0)
            .is_some_and(|slot| slot.owner == client && slot.phase != Phase::Leaving);
        let refused = |refusal| RefusedRequest {
            grant: RejectGrant { request },
            refusal,
        };
        if !known {
            return Err(refused(refusal::unknown(Kind::Listener, listener)));
        }
        self.check_quota(client, &REQUEST).map_err(refused)?;
        if self
            .requests
            .insert(request, Request { client, listener })
            .is_none()
        {
            self.charge(client, &REQUEST);
        }
        Ok(())
    }

    /// A request went away before it was answered; of whose listener it was. None when it was not known
    /// (any more).
    pub fn request_gone(&mut self, request: ConnRequestId) -> Option<(ClientId, ListenerId)> {
        let Request { client, listener } = self.requests.remove(&request)?;
        self.discharge(client, &REQUEST);
        Some((client, listener))
    }

    /// Leave to accept a request with a queue pair; the request is answered by that.
    ///
    /// # Errors
    ///
    /// `UnknownObject` for either.
    pub fn accept(
        &self,
        client: ClientId,
        request: ConnRequestId,
        qp: QpNum,
    ) -> Result<AcceptGrant, Refusal> {
        self.use_qp(client, qp).map(|_| ())?;
        self.check_request(client, request)?;
        Ok(AcceptGrant { request, qp })
    }

    /// Leave to reject a request; the request is answered by that.
    ///
    /// # Errors
    ///
    /// `UnknownObject`.
    pub fn reject(&self, client: ClientId, request: ConnRequestId) -> Result<RejectGrant, Refusal> {
        self.check_request(client, request)?;
        Ok(RejectGrant { request })
    }

    /// The shard took the reject: the request is gone.
    pub fn rejected(&mut self, grant: RejectGrant) {
        self.request_gone(grant.request);
    }

    /// The shard took the accept: the request is gone.
    pub fn accepted(&mut self, grant: AcceptGrant) {
        self.request_gone(grant.request);
    }

    fn check_request(&self, client: ClientId, request: ConnRequestId) -> Result<(), Refusal> {
        match self.requests.get(&request) {
            Some(found) if found.client == client => Ok(()),
            _ => Err(refusal::unknown(Kind::Request, request)),
        }
    }

    pub(super) fn forget_requests_of(&mut self, client: ClientId) {
        let gone: Vec<_> = self
            .requests
            .iter()
            .filter(|(_, request)| request.client == client)
            .map(|(id, _)| *id)
            .collect();
        for request in gone {
            self.request_gone(request);
        }
    }

    pub(super) fn forget_listener(&mut self, listener: ListenerId) {
        if let Some(slot) = self.listeners.remove(listener.0) {
            self.discharge(slot.owner, &LISTENER);
        }
    }
}

/// A peer's request that can't be kept for a client.
#[derive(Debug)]
pub struct RefusedRequest {
    pub grant: RejectGrant,
    pub refusal: Refusal,
}
