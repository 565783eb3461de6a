//! The Privileged Resource Manager itself: who the clients are, and what they hold.

mod connections;
mod domains;
mod queues;
mod regions;
mod shared;
mod teardown;
#[cfg(test)]
mod tests;

pub use connections::RefusedRequest;

use std::collections::HashMap;
use std::net::SocketAddr;

use rnic_ipc::control::{QpAttributes, Refusal};
use rnic_ipc::id::{ClientId, ConnRequestId, ListenerId, PdId};

use crate::credentials::Credentials;
use crate::grant::ClientGrant;
use crate::limits::{Limits, Resource, Usage};
use crate::refusal::{self, Kind};
use crate::table::{Phase, Table};

/// All clients of a device and all of their objects.
#[derive(Debug)]
pub struct Prm {
    limits: Limits,
    clients: Table<Client>,
    pds: Table<Pd>,
    regions: Table<Region>,
    cqs: Table<Cq>,
    srqs: Table<Srq>,
    qps: Table<Qp>,
    listeners: Table<Listener>,
    requests: HashMap<ConnRequestId, Request>,
    usage: Usage,
}

#[derive(Debug)]
struct Client {
    credentials: Credentials,
    usage: Usage,
}

#[derive(Debug)]
struct Pd;

#[derive(Debug)]
struct Region {
    key: u8,
    pd: PdId,
    length: u64,
}

#[derive(Debug)]
struct Cq {
    depth: u32,
}

#[derive(Debug)]
struct Srq {
    pd: PdId,
    depth: u32,
    max_sge: u32,
}

#[derive(Debug)]
struct Qp {
    attributes: QpAttributes,
}

#[derive(Debug)]
struct Listener {
    /// Known when the listener is there.
    local: Option<SocketAddr>,
}

/// A connection request that waits for its client's answer.
#[derive(Debug)]
struct Request {
    client: ClientId,
    listener: ListenerId,
}

impl Prm {
    /// No clients yet.
    pub fn new(limits: Limits) -> Self {
        Self {
            clients: Table::new(limits.clients),
            pds: Table::new(limits.device.protection_domains),
            regions: Table::new(limits.device.regions.min(rnic_proto::Stag::INDEX_MAX)),
            cqs: Table::new(limits.device.completion_queues),
            srqs: Table::new(limits.device.shared_receive_queues),
            qps: Table::new(limits.device.queue_pairs),
            listeners: Table::new(limits.device.listeners),
            requests: HashMap::new(),
            usage: Usage::default(),
            limits,
        }
    }

    /// The limits that hold.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Takes a new client.
    ///
    /// # Errors
    ///
    /// `Limit` when there are as many clients as there may be.
    pub fn add_client(&mut self, credentials: Credentials) -> Result<ClientGrant, Refusal> {
        // A client owns itself; the number is not known before it is in the table.
        let client = Client {
            credentials,
            usage: Usage::default(),
        };
        let id = self
            .clients
            .insert(ClientId(0), Phase::Live, client)
            .ok_or_else(|| refusal::full(Kind::Client, self.limits.clients))?;
        let owner = ClientId(id);
        if let Some(slot) = self.clients.get_mut(id) {
            slot.owner = owner;
        }
        Ok(ClientGrant { client: owner })
    }

    /// Who a client is; `None` when it is gone.
    pub fn credentials(&self, client: ClientId) -> Option<Credentials> {
        self.clients
            .live(client, client.0)
            .map(|slot| slot.object.credentials)
    }

    /// How many clients there are.
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// That the client and the device have room for all of `amounts`. Counts nothing.
    fn check_quota(&self, client: ClientId, amounts: &[(Resource, u64)]) -> Result<(), Refusal> {
        let slot = self
            .clients
            .live(client, client.0)
            .ok_or_else(|| refusal::unknown(Kind::Client, client))?;
        for &(resource, amount) in amounts {
            slot.object
                .usage
                .check(&self.limits.per_client, "this client's", resource, amount)?;
            self.usage
                .check(&self.limits.device, "the device's", resource, amount)?;
        }
        Ok(())
    }

    fn charge(&mut self, client: ClientId, amounts: &[(Resource, u64)]) {
        for &(resource, amount) in amounts {
            self.usage.add(resource, amount);
            if let Some(slot) = self.clients.get_mut(client.0) {
                slot.object.usage.add(resource, amount);
            }
        }
    }

    fn discharge(&mut self, client: ClientId, amounts: &[(Resource, u64)]) {
        for &(resource, amount) in amounts {
            self.usage.subtract(resource, amount);
            if let Some(slot) = self.clients.get_mut(client.0) {
                slot.object.usage.subtract(resource, amount);
            }
        }
    }
}
