//! The Privileged Resource Manager itself: who the clients are, and what they hold.

mod connections;
mod domains;
mod inspect;
mod peers;
mod queues;
mod regions;
mod rings;
mod shared;
mod teardown;
#[cfg(test)]
mod tests;
mod users;

pub use connections::RefusedRequest;
pub use inspect::{ListedClient, ListedQp, ListedRegion, Listing};
pub use peers::LiveListener;
pub use regions::STAGS_MAX;

use std::collections::HashMap;
use std::net::SocketAddr;

use rnic_ipc::control::{MemoryKind, QpAttributes, Refusal, Transport};
use rnic_ipc::id::{ClientId, ConnRequestId, ListenerId, PdId};
use rnic_proto::Stag;

use crate::administrators::Administrators;
use crate::credentials::Credentials;
use crate::grant::ClientGrant;
use crate::limits::{Limits, Quota, Resource, Usage, kept_for_administrators};
use crate::refusal::{self, Kind};
use crate::refused::{Refused, Single, Whose};
use crate::table::{Phase, Table};
use crate::users::UNPRIVILEGED_PORT_START;
use users::User;

/// All clients of a device and all of their objects.
#[derive(Debug)]
pub struct Prm {
    limits: Limits,
    /// The limits at the start: tables, here and in shards, are made for them.
    made_for: Limits,
    administrators: Administrators,
    clients: Table<Client>,
    pds: Table<Pd>,
    regions: Table<Region>,
    /// The place in `regions` of each STag, by its index.
    stags: HashMap<u32, u32>,
    cqs: Table<Cq>,
    /// Entries of completion queues' rings beyond the first of each.
    further_ring_entries: u64,
    srqs: Table<Srq>,
    qps: Table<Qp>,
    listeners: Table<Listener>,
    requests: HashMap<ConnRequestId, Request>,
    users: HashMap<u32, User>,
    usage: Usage,
    refused: Refused,
    requests_delayed: u64,
    /// The host's first port that needs no privilege.
    unprivileged_port_start: u16,
}

#[derive(Debug)]
struct Client {
    credentials: Credentials,
    usage: Usage,
    /// What it may hold. It stays as it was when the client came: its rings are made for it.
    quota: Quota,
}

#[derive(Debug)]
struct Pd;

#[derive(Debug)]
struct Region {
    /// As it was made; bindings and fast registrations change its key, never its index.
    stag: Stag,
    pd: PdId,
    length: u64,
    memory: MemoryKind,
}

#[derive(Clone, Copy, Debug)]
struct Cq {
    /// Entries of each of its rings.
    depth: u32,
    rings: u32,
}

#[derive(Debug)]
struct Srq {
    pd: PdId,
    depth: u32,
    slots: u64,
}

#[derive(Debug)]
struct Qp {
    attributes: QpAttributes,
    slots: u64,
}

#[derive(Debug)]
struct Listener {
    transport: Transport,
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
            regions: Table::new(limits.device.regions.min(regions::STAGS_MAX)),
            stags: HashMap::new(),
            cqs: Table::new(limits.device.completion_queues),
            further_ring_entries: 0,
            srqs: Table::new(limits.device.shared_receive_queues),
            qps: Table::new(limits.device.queue_pairs),
            listeners: Table::new(limits.device.listeners),
            requests: HashMap::new(),
            users: HashMap::new(),
            usage: Usage::default(),
            refused: Refused::default(),
            requests_delayed: 0,
            unprivileged_port_start: UNPRIVILEGED_PORT_START,
            administrators: Administrators::default(),
            made_for: limits.clone(),
            limits,
        }
    }

    /// The host's programs may listen from this port on without a privilege (`net.ipv4.ip_unprivileged_port_start`); 1024
    /// until it is said. It holds for users whose `listen_ports` are the default.
    pub fn set_unprivileged_port_start(&mut self, port: u16) {
        self.unprivileged_port_start = port;
    }

    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// What of these limits can't hold before the next start, a line for each: tables are made for those of
    /// the start. Lower ones, and those of clients and users, always can.
    pub fn unfit(&self, limits: &Limits) -> Vec<String> {
        let made_for = &self.made_for;
        let device = Resource::ALL.into_iter().filter(|one| one.has_table());
        let device =
            device.map(|one| (one.name(), limits.device.get(one), made_for.device.get(one)));
        [("clients", limits.clients.into(), made_for.clients.into())]
            .into_iter()
            .chain(device)
            .filter(|(_, asked, most)| asked > most)
            .map(|(name, asked, most)| {
                format!(
                    "[limits] {name} = {asked} asked, but tables were made for {most} at the start: start \
                     the daemon again, or ask for at most {most}"
                )
            })
            .collect()
    }

    /// Other limits and administrators from now on. Who holds more than that keeps it, and gets no more.
    ///
    /// # Errors
    ///
    /// [`Prm::unfit`]; nothing has changed then.
    pub fn apply(
        &mut self,
        limits: Limits,
        administrators: Administrators,
    ) -> Result<(), Vec<String>> {
        let unfit = self.unfit(&limits);
        if !unfit.is_empty() {
            return Err(unfit);
        }
        self.limits = limits;
        self.administrators = administrators;
        Ok(())
    }

    /// Whether this client is an administrator.
    pub fn administers(&self, credentials: &Credentials) -> bool {
        self.administrators.include(credentials)
    }

    /// Takes a new client.
    ///
    /// # Errors
    ///
    /// `Limit` when there are as many clients, or clients of its user, as there may be.
    pub fn add_client(&mut self, credentials: Credentials) -> Result<ClientGrant, Refusal> {
        self.check_clients(credentials)?;
        let most = self.limits.clients;
        let kept = self.kept_from(credentials, most.into());
        if (self.clients.len() as u64).saturating_add(kept) >= most.into() {
            self.refused.count(Single::DeviceClients);
            return Err(refusal::limit(format!(
                "one more client asked, but the device's limit clients is {most}{} and {} are there: \
                 end some, or raise the limit",
                refusal::kept(kept),
                self.clients.len()
            )));
        }
        // A client owns itself; the number is not known before it is in the table.
        let client = Client {
            credentials,
            usage: Usage::default(),
            quota: self.limits.per_client.clone(),
        };
        let Some(id) = self.clients.insert(ClientId(0), Phase::Live, client) else {
            self.refused.count(Single::DeviceClients);
            return Err(refusal::full(Kind::Client, most));
        };
        let owner = ClientId(id);
        if let Some(slot) = self.clients.get_mut(id) {
            slot.owner = owner;
        }
        self.users.entry(credentials.uid).or_default().clients += 1;
        Ok(ClientGrant { client: owner })
    }

    /// Who a client is; `None` when it is gone.
    pub fn credentials(&self, client: ClientId) -> Option<Credentials> {
        self.clients
            .live(client, client.0)
            .map(|slot| slot.object.credentials)
    }

    /// What this client may hold; `None` when it is gone.
    pub fn quota(&self, client: ClientId) -> Option<&Quota> {
        let slot = self.clients.live(client, client.0)?;
        Some(&slot.object.quota)
    }

    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// How much of each resource is held by all clients together, by the name of the counter, in a
    /// fixed order.
    pub fn held(&self) -> impl Iterator<Item = (String, u64)> {
        Resource::ALL.into_iter().map(|resource| {
            let held = self.usage.held(resource);
            (format!("held_{}", resource.name()), held)
        })
    }

    /// What all clients hold together of one of these.
    pub fn held_of(&self, resource: Resource) -> u64 {
        self.usage.held(resource)
    }

    /// Entries of all rings that there are: of completion queues there is one for each shard, and the limits count one.
    pub fn ring_entries(&self) -> u64 {
        let held = self.held_of(Resource::RingEntries);
        held.saturating_add(self.further_ring_entries)
    }

    /// How many requests each limit has refused, by the name of the counter, in a fixed order.
    pub fn refusals(&self) -> Vec<(String, u64)> {
        self.refused.named().collect()
    }

    /// That the client, its user and the device have room for all of `amounts`. Holds nothing yet.
    fn check_quota(
        &mut self,
        client: ClientId,
        amounts: &[(Resource, u64)],
    ) -> Result<(), Refusal> {
        let slot = self
            .clients
            .live(client, client.0)
            .ok_or_else(|| refusal::unknown(Kind::Client, client))?;
        let Client {
            credentials,
            usage,
            quota,
        } = &slot.object;
        let of_user = self.users.get(&credentials.uid).map(|user| &user.usage);
        let user_limits = self.limits.users.of(*credentials);
        let is_own = self.administrators.are_own(credentials);
        for &(resource, amount) in amounts {
            let mut checked = usage
                .check((quota.get(resource), 0), "this client's", resource, amount)
                .map_err(|refusal| (Whose::Client, refusal));
            if let (Ok(()), Some(held)) = (&checked, of_user) {
                let whose = format_args!("user {}'s", credentials.uid);
                let limit = user_limits.get(resource, is_own);
                checked = held
                    .check((limit, 0), whose, resource, amount)
                    .map_err(|refusal| (Whose::User, refusal));
            }
            checked = checked.and_then(|()| {
                let limit = self.limits.device.get(resource);
                let kept = self.kept_from(*credentials, limit);
                self.usage
                    .check((limit, kept), "the device's", resource, amount)
                    .map_err(|refusal| (Whose::Device, refusal))
            });
            if let Err((whose, refusal)) = checked {
                self.refused.count_held(whose, resource);
                return Err(match resource {
                    Resource::RemoteRegions => refusal::remote_region(refusal),
                    _ => refusal,
                });
            }
        }
        Ok(())
    }

    /// What is kept of a limit of the device for others than this client: for administrators.
    fn kept_from(&self, client: Credentials, limit: u64) -> u64 {
        if self.administrators.include(&client) {
            0
        } else {
            kept_for_administrators(limit)
        }
    }

    /// That `asked` is at least 1 and at most what the device allows of it.
    fn check_range(&mut self, what: &str, asked: u32, limit: Single) -> Result<(), Refusal> {
        let most = match limit {
            Single::QueueDepth => self.limits.queue_depth,
            Single::CqDepth => self.limits.cq_depth,
            Single::Sges => self.limits.sges,
            Single::Backlog => self.limits.backlog,
            _ => u32::MAX,
        };
        if (1..=most).contains(&asked) {
            return Ok(());
        }
        if asked > most {
            self.refused.count(limit);
        }
        let (asked, most) = (asked.into(), most.into());
        Err(refusal::out_of_range(what, asked, limit.name(), most))
    }

    fn each_usage(&mut self, client: ClientId, mut change: impl FnMut(&mut Usage)) {
        change(&mut self.usage);
        let Some(slot) = self.clients.get_mut(client.0) else {
            return;
        };
        change(&mut slot.object.usage);
        if let Some(user) = self.users.get_mut(&slot.object.credentials.uid) {
            change(&mut user.usage);
        }
    }

    fn charge(&mut self, client: ClientId, amounts: &[(Resource, u64)]) {
        self.each_usage(client, |usage| {
            for &(resource, amount) in amounts {
                usage.add(resource, amount);
            }
        });
    }

    fn discharge(&mut self, client: ClientId, amounts: &[(Resource, u64)]) {
        self.each_usage(client, |usage| {
            for &(resource, amount) in amounts {
                usage.subtract(resource, amount);
            }
        });
    }
}
