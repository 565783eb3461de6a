//! Who may look at what, and give which orders (RFC 5042 section 6.1): an administrator everything,
//! everybody else what clients of his own user hold. Nothing tells of others' objects, not even that
//! there are some.
//!
//! A look goes over a bounded number of slots, so that the lock is not held for long.

use std::net::SocketAddr;

use rnic_ipc::control::{MemoryKind, QpAttributes, Refusal};
use rnic_ipc::id::{ClientId, CqId, ListenerId, PdId, QpNum};
use rnic_ipc::inspect::{CqInfo, Holding, LimitInfo, ListenerInfo, Scope};
use rnic_proto::Stag;

use super::Prm;
use crate::administrators::Administrators;
use crate::credentials::Credentials;
use crate::limits::{Quota, Resource, Usage};
use crate::refusal::{self, Kind};
use crate::table::{Phase, Slot, Table};

/// Slots of a table that one look goes over.
const LOOKS: usize = 1024;
/// Objects that one look gives: as many as may fit a message, and not many more.
const FOUND: usize = 256;

#[derive(Debug, PartialEq, Eq)]
pub struct Listing<T> {
    /// Objects in the order of their numbers, which come first.
    pub found: Vec<(u32, T)>,
    /// Where the next look begins; none at the end.
    pub next: Option<u32>,
}

/// A client in a [`Listing`].
#[derive(Debug, PartialEq, Eq)]
pub struct ListedClient {
    pub client: ClientId,
    pub credentials: Credentials,
    pub holds: Vec<Holding>,
}

/// A queue pair in a [`Listing`].
#[derive(Debug, PartialEq, Eq)]
pub struct ListedQp {
    pub client: ClientId,
    pub qp: QpNum,
    pub attributes: QpAttributes,
}

/// A region or window in a [`Listing`].
#[derive(Debug, PartialEq, Eq)]
pub struct ListedRegion {
    pub client: ClientId,
    /// With the key that it was made with: for the shard, and for nobody's eyes.
    pub stag: Stag,
    pub pd: PdId,
    pub memory: MemoryKind,
}

impl Prm {
    /// Lets these look at everything and give orders, and nobody else but root.
    #[must_use]
    pub fn with_administrators(mut self, administrators: Administrators) -> Self {
        self.administrators = administrators;
        self
    }

    /// That a client may give orders that concern the whole device.
    ///
    /// # Errors
    ///
    /// `UnknownObject` when it is gone; `NotPermitted`.
    pub fn may_administer(&self, viewer: ClientId) -> Result<(), Refusal> {
        self.check_administrator(&self.known(viewer)?)
    }

    /// That this client, which may not be known yet, is an administrator.
    ///
    /// # Errors
    ///
    /// `NotPermitted`.
    pub fn check_administrator(&self, who: &Credentials) -> Result<(), Refusal> {
        if self.administrators.include(who) {
            return Ok(());
        }
        Err(refusal::not_permitted(who, self.administrators.gid))
    }

    /// That `viewer` may see what `owner` holds, and take it away; what is nobody's only an
    /// administrator may.
    ///
    /// # Errors
    ///
    /// `UnknownObject`, the same when there is no such client.
    pub fn may_see(&self, viewer: ClientId, owner: Option<ClientId>) -> Result<(), Refusal> {
        let who = self.known(viewer)?;
        let unknown = || refusal::unknown(Kind::Client, owner.unwrap_or(ClientId(0)));
        let theirs = owner.map(|owner| self.known(owner).map_err(|_| unknown()));
        match theirs.transpose()? {
            _ if self.administrators.include(&who) => Ok(()),
            Some(theirs) if theirs.uid == who.uid => Ok(()),
            _ => Err(unknown()),
        }
    }

    /// The clients that `viewer` may see.
    ///
    /// # Errors
    ///
    /// As of the others of its kind: `UnknownObject` when `viewer` is gone.
    pub fn list_clients(
        &self,
        viewer: ClientId,
        after: u32,
    ) -> Result<Listing<ListedClient>, Refusal> {
        self.list(viewer, &self.clients, after, |_, slot| ListedClient {
            client: slot.owner,
            credentials: slot.object.credentials,
            holds: resource_usage(&slot.object.usage, &slot.object.quota),
        })
    }

    /// The queue pairs that `viewer` may see.
    ///
    /// # Errors
    ///
    /// As [`Prm::list_clients`].
    pub fn list_queue_pairs(
        &self,
        viewer: ClientId,
        after: u32,
    ) -> Result<Listing<ListedQp>, Refusal> {
        self.list(viewer, &self.qps, after, |number, slot| ListedQp {
            client: slot.owner,
            qp: QpNum(number),
            attributes: slot.object.attributes.clone(),
        })
    }

    /// The completion queues that `viewer` may see.
    ///
    /// # Errors
    ///
    /// As [`Prm::list_clients`].
    pub fn list_cqs(&self, viewer: ClientId, after: u32) -> Result<Listing<CqInfo>, Refusal> {
        self.list(viewer, &self.cqs, after, |number, slot| CqInfo {
            cq: CqId(number),
            client: slot.owner,
            depth: slot.object.depth,
            users: slot.users,
        })
    }

    /// The regions and windows that `viewer` may see.
    ///
    /// # Errors
    ///
    /// As [`Prm::list_clients`].
    pub fn list_regions(
        &self,
        viewer: ClientId,
        after: u32,
    ) -> Result<Listing<ListedRegion>, Refusal> {
        self.list(viewer, &self.regions, after, |_, slot| ListedRegion {
            client: slot.owner,
            stag: slot.object.stag,
            pd: slot.object.pd,
            memory: slot.object.memory,
        })
    }

    /// The listeners that `viewer` may see.
    ///
    /// # Errors
    ///
    /// As [`Prm::list_clients`].
    pub fn list_listeners(
        &self,
        viewer: ClientId,
        after: u32,
    ) -> Result<Listing<ListenerInfo>, Refusal> {
        let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
        self.list(viewer, &self.listeners, after, |number, slot| {
            ListenerInfo {
                listener: ListenerId(number),
                client: slot.owner,
                transport: slot.object.transport,
                // Known while it is live.
                local: slot.object.local.unwrap_or(nowhere),
            }
        })
    }

    /// All limits: the device's, those of the viewer's user, each client's. How much the device holds
    /// is for administrators.
    ///
    /// # Errors
    ///
    /// As [`Prm::list_clients`].
    pub fn list_limits(&self, viewer: ClientId) -> Result<Vec<LimitInfo>, Refusal> {
        let who = self.known(viewer)?;
        let all = self.administrators.include(&who);
        let limits = &self.limits;
        let limit = |scope, name: &str, held, limit| LimitInfo {
            scope,
            name: name.to_owned(),
            held,
            limit,
        };
        let mut list = Vec::new();
        let clients = (self.clients.len() as u64, limits.clients);
        quota(
            &mut list,
            Scope::Device,
            clients,
            &self.usage,
            &limits.device,
        );
        let nothing = Usage::default();
        let user = self.users.get(&who.uid);
        let clients = user.map_or(0, |user| user.clients.into());
        let usage = user.map_or(&nothing, |user| &user.usage);
        let allowed = limits.users.of(who);
        let clients = (clients, allowed.clients);
        quota(&mut list, Scope::User, clients, usage, &allowed.quota);
        let per_client = resource_usage(&nothing, &limits.per_client).into_iter();
        list.extend(per_client.map(|one| limit(Scope::Client, &one.name, None, one.limit)));
        for one in list
            .iter_mut()
            .filter(|one| one.scope == Scope::Device && !all)
        {
            one.held = None;
        }
        for (name, most) in [
            ("queue_depth", limits.queue_depth),
            ("cq_depth", limits.cq_depth),
            ("sges", limits.sges),
            ("inline_bytes", limits.inline_bytes),
            ("backlog", limits.backlog),
        ] {
            list.push(limit(Scope::Object, name, None, most.into()));
        }
        Ok(list)
    }

    /// What a client holds of what it may; none when it is gone.
    pub fn holdings_of(&self, client: ClientId) -> Option<Vec<Holding>> {
        let slot = self.clients.live(client, client.0)?;
        Some(resource_usage(&slot.object.usage, &slot.object.quota))
    }

    /// What each client may hold.
    pub fn client_limits(&self) -> Vec<Holding> {
        resource_usage(&Usage::default(), &self.limits.per_client)
    }

    fn list<T, L>(
        &self,
        viewer: ClientId,
        table: &Table<T>,
        after: u32,
        show: impl Fn(u32, &Slot<T>) -> L,
    ) -> Result<Listing<L>, Refusal> {
        let who = self.known(viewer)?;
        let all = self.administrators.include(&who);
        let seen = |owner| all || self.credentials(owner).is_some_and(|c| c.uid == who.uid);
        let mut found = Vec::new();
        let mut next = None;
        let mut slots = table.after(after).take(LOOKS).peekable();
        let mut looks = 0;
        while let Some((number, slot)) = slots.next() {
            looks += 1;
            if let Some(slot) = slot
                && slot.phase == Phase::Live
                && seen(slot.owner)
            {
                found.push((number, show(number, slot)));
            }
            if looks == LOOKS || (found.len() == FOUND && slots.peek().is_some()) {
                next = Some(number);
                break;
            }
        }
        Ok(Listing { found, next })
    }
}

/// The limits of one quota with what is held of them, clients first.
fn quota(
    list: &mut Vec<LimitInfo>,
    scope: Scope,
    (clients, most): (u64, u32),
    usage: &Usage,
    quota: &Quota,
) {
    let clients = Holding {
        name: "clients".to_owned(),
        held: clients,
        limit: most.into(),
    };
    let all = std::iter::once(clients).chain(resource_usage(usage, quota));
    list.extend(all.map(|one| LimitInfo {
        scope,
        name: one.name,
        held: Some(one.held),
        limit: one.limit,
    }));
}

fn resource_usage(usage: &Usage, quota: &Quota) -> Vec<Holding> {
    Resource::ALL
        .into_iter()
        .map(|resource| Holding {
            name: resource.name().to_owned(),
            held: usage.held(resource),
            limit: quota.get(resource),
        })
        .collect()
}
