//! Lists of the RNIC's objects, and an operator's orders. The PRM decides what a client may see; what only the shards
//! know is asked of them for one page at a time.

use std::collections::HashMap;

use rnic_engine::command::{Answer, Command};
use rnic_engine::stag::StagStatus;
use rnic_ipc::control::{Refusal, RefusalCode};
use rnic_ipc::id::ClientId;
use rnic_ipc::inspect::{
    ClientInfo, ConnectionInfo, Kind, LogLevel, Object, Order, Page, QpInfo, RegionInfo,
};
use rnic_prm::{ListedClient, ListedQp, ListedRegion, Listing};

use super::ClientSession;
use crate::refuse;
use crate::runtime::{To, connections};

/// Why a client was evicted that an operator dropped.
const DROPPED: &str = "an operator dropped this client: connect again if that was not for good";

impl ClientSession {
    pub(super) fn inspect(&self, what: Kind, after: u32) -> Result<Page, Refusal> {
        let (id, core) = (self.id(), self.core());
        match what {
            Kind::Clients => {
                let mut listing = core.prm().list_clients(id, after)?;
                listing.found.retain(|(_, one)| self.is_here(one.client));
                Ok(page(listing, |one| {
                    Some(Object::Client(self.client_info(one)))
                }))
            }
            Kind::Connections => self.connections(after),
            Kind::QueuePairs => self.queue_pairs(after),
            Kind::CompletionQueues => {
                let mut listing = core.prm().list_cqs(id, after)?;
                listing.found.retain(|(_, one)| self.is_here(one.client));
                Ok(page(listing, |one| Some(Object::CompletionQueue(one))))
            }
            Kind::Regions => self.regions(after),
            Kind::Listeners => {
                let mut listing = core.prm().list_listeners(id, after)?;
                listing.found.retain(|(_, one)| self.is_here(one.client));
                Ok(page(listing, |one| Some(Object::Listener(one))))
            }
            Kind::Limits => {
                let limits = core.prm().list_limits(id)?;
                let numbered = (1..).zip(limits.into_iter().map(Object::Limit));
                let rest = numbered.skip_while(|(number, _)| *number <= after);
                Ok(Page::of(rest, None))
            }
        }
    }

    /// Whether a client is one of this device: the PRM is of all devices.
    fn is_here(&self, client: ClientId) -> bool {
        self.core().clients.has(client)
    }

    pub(super) fn order(&self, order: Order) -> Result<(), Refusal> {
        match order {
            Order::DropClient { client } => self.drop_client(client),
            Order::DropConnection { connection, ends } => {
                let found = self.inspect_connections(connection.saturating_sub(1))?.0;
                let gone = || {
                    refuse::refusal(
                        RefusalCode::UnknownObject,
                        &format!(
                            "this client can see no connection {connection} from {} to {}: list \
                             them again",
                            ends.0, ends.1
                        ),
                    )
                };
                let found = found
                    .into_iter()
                    .find(|one| one.connection == connection && (one.local, one.remote) == ends);
                let owner = found.ok_or_else(gone)?.client;
                let seen = self.core().prm().may_see(self.id(), owner);
                seen.map_err(|_| gone())?;
                log::warn!(
                    "client {} drops the connection from {} to {}",
                    self.id(),
                    ends.0,
                    ends.1
                );
                let (shard, connection) = connections::parts(connection);
                let drop = Command::DropConnection {
                    connection,
                    ends,
                    owner,
                };
                self.core().shards.run(To::Shard(shard), drop).map(|_| ())
            }
            Order::SetLogLevel(level) => {
                self.core().prm().may_administer(self.id())?;
                let level = filter(level);
                log::set_max_level(level);
                log::info!("client {} sets the log's level to {level}", self.id());
                Ok(())
            }
        }
    }

    fn drop_client(&self, client: ClientId) -> Result<(), Refusal> {
        if client == self.id() {
            return Err(refuse::refusal(
                RefusalCode::WrongState,
                "the client to drop is the one that asks: hang up instead",
            ));
        }
        self.core().prm().may_see(self.id(), Some(client))?;
        let found = self.core().clients.get(client).ok_or_else(|| {
            refuse::refusal(
                RefusalCode::UnknownObject,
                &format!(
                    "client {client} is none of interface {}: ask by another device, or list them again",
                    self.device.interface()
                ),
            )
        })?;
        log::warn!("client {} drops client {client}", self.id());
        self.core()
            .clients
            .evict(&found, RefusalCode::ShuttingDown, DROPPED);
        Ok(())
    }

    fn client_info(&self, listed: ListedClient) -> ClientInfo {
        let known = self.core().clients.get(listed.client);
        ClientInfo {
            client: listed.client,
            pid: listed.credentials.pid,
            uid: listed.credentials.uid,
            gid: listed.credentials.gid,
            program: known
                .as_ref()
                .map(|client| client.program.clone())
                .unwrap_or_default(),
            holds: listed.holds,
            refused: known.map_or(0, |client| client.refused()),
        }
    }

    fn connections(&self, after: u32) -> Result<Page, Refusal> {
        let (found, next) = self.inspect_connections(after)?;
        let prm = self.core().prm();
        let seen = found
            .into_iter()
            .filter(|one| prm.may_see(self.id(), one.client).is_ok())
            .map(|one| (one.connection, Object::Connection(one)));
        Ok(Page::of(seen, next))
    }

    fn inspect_connections(
        &self,
        after: u32,
    ) -> Result<(Vec<ConnectionInfo>, Option<u32>), Refusal> {
        let shards = &self.core().shards;
        let (shard, own) = connections::parts(after);
        // Any number may come.
        if shard >= shards.count() {
            return Ok((Vec::new(), None));
        }
        let inspect = Command::InspectConnections { after: own };
        let (Answer::Connections { mut found, next }, _) = shards.run(To::Shard(shard), inspect)?
        else {
            return Ok((Vec::new(), None));
        };
        for one in &mut found {
            one.connection = connections::number(shard, one.connection);
        }
        let further = (shard + 1 < shards.count()).then(|| (shard + 1, 0));
        let next = next.map(|own| (shard, own)).or(further);
        Ok((
            found,
            next.map(|(shard, own)| connections::number(shard, own)),
        ))
    }

    fn queue_pairs(&self, after: u32) -> Result<Page, Refusal> {
        let listing = self.core().prm().list_queue_pairs(self.id(), after)?;
        let qps: Vec<_> = listing.found.iter().map(|(_, one)| one.qp).collect();
        let mut known = HashMap::new();
        let inspect = || Command::InspectQueuePairs {
            qps: Vec::clone(&qps),
        };
        for done in self.core().shards.run_all(inspect) {
            if let (Answer::QueuePairs(found), _) = done? {
                known.extend(found.into_iter().map(|one| (one.qp, one)));
            }
        }
        let show = |ListedQp {
                        client,
                        qp,
                        attributes,
                    }| {
            // One that is not there any more has left since it was listed.
            let found = known.get(&qp)?;
            let rq_depth = attributes.own_receives();
            Some(Object::QueuePair(QpInfo {
                qp,
                client,
                state: found.state,
                pd: attributes.pd,
                send_cq: attributes.send_cq,
                recv_cq: attributes.recv_cq,
                srq: attributes.srq,
                sq_depth: attributes.sq_depth,
                rq_depth,
                connection: found.connection,
                held: found.held,
            }))
        };
        Ok(page(listing, show))
    }

    fn regions(&self, after: u32) -> Result<Page, Refusal> {
        let listing = self.core().prm().list_regions(self.id(), after)?;
        let stags: Vec<_> = listing.found.iter().map(|(_, one)| one.stag).collect();
        let mut known: HashMap<u32, StagStatus> = HashMap::new();
        let inspect = || Command::InspectStags {
            stags: stags.clone(),
        };
        for done in self.core().shards.run_all(inspect) {
            let (Answer::Stags(found), _) = done? else {
                continue;
            };
            for (index, status) in found {
                // What work made valid is so in one shard.
                if status.valid || !known.contains_key(&index) {
                    known.insert(index, status);
                }
            }
        }
        let show = |ListedRegion {
                        client,
                        stag,
                        pd,
                        memory,
                    }| {
            // As above.
            let found = known.get(&stag.index())?;
            Some(Object::Region(RegionInfo {
                index: stag.index(),
                client,
                pd,
                window: found.window,
                memory,
                valid: found.valid,
                qp: found.qp,
                access: found.access,
                bytes: found.len,
            }))
        };
        Ok(page(listing, show))
    }
}

fn page<T>(listing: Listing<T>, show: impl Fn(T) -> Option<Object>) -> Page {
    let shown = listing.found.into_iter();
    let shown = shown.filter_map(|(number, one)| Some((number, show(one)?)));
    Page::of(shown, listing.next)
}

fn filter(level: LogLevel) -> log::LevelFilter {
    match level {
        LogLevel::Off => log::LevelFilter::Off,
        LogLevel::Error => log::LevelFilter::Error,
        LogLevel::Warn => log::LevelFilter::Warn,
        LogLevel::Info => log::LevelFilter::Info,
        LogLevel::Debug => log::LevelFilter::Debug,
        LogLevel::Trace => log::LevelFilter::Trace,
    }
}
