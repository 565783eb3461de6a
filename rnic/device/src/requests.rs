//! A client of the device, and its requests.
//!
//! Every request asks the PRM first. What it grants is then done, in shared memory, by the shards and at the host, and
//! the PRM gets the result.

mod capture;
mod connect;
mod inspect;
mod memory;
mod peers;
mod queues;
mod shared;

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use rnic_engine::command::Command;
use rnic_engine::region::RegionMemory;
use rnic_host::link_state::{self, Link};
use rnic_ipc::control::{
    ADDRESSES_MAX, ClientLimits, DeviceInfo, MemoryKind, PROTOCOL_VERSION, Refusal, RefusalCode,
    RegionSpec, Reply, Request, Response,
};
use rnic_ipc::id::{ClientId, QpNum};
use rnic_ipc::kick::Kick;
use rnic_ipc::ring::DoorbellConsumer;
use rnic_ipc::shm::SharedMemory;
use rnic_ipc::transport::Channel;
use rnic_prm::Credentials;
use rustix::net::Shutdown;

use crate::clients::audit;
use crate::clients::client::{Client, SessionState};
use crate::clients::events::events_max;
use crate::device::core::Core;
use crate::observe::counters;
use crate::{Device, Limits, Quota, refuse};

/// A client of the device. Dropping it removes everything the client has: listeners are closed,
/// connections reset, regions revoked.
#[derive(Debug)]
pub struct ClientSession {
    device: Arc<Device>,
    client: Arc<Client>,
}

/// A granted request's answer, with the descriptors that go with it.
type Granted = Result<(Response, Vec<OwnedFd>), Refusal>;

impl Device {
    /// Takes a new client. Programs of the crate `rnic` do so by `Context::embedded`.
    ///
    /// # Errors
    ///
    /// `Limit` when there are as many as there may be, `ShuttingDown`.
    #[doc(hidden)]
    pub fn connect_client(
        self: &Arc<Self>,
        credentials: Credentials,
    ) -> Result<ClientSession, Refusal> {
        let core = self.core();
        if core.interface.is_closing() {
            return Err(refuse::shutting_down());
        }
        let (grant, events) = {
            let mut prm = core.prm();
            (
                prm.add_client(credentials)?,
                events_max(&prm.limits().per_client),
            )
        };
        let client = Arc::new(Client::new(*grant.client(), credentials, events));
        core.clients.add(client.clone());
        let session = ClientSession::new(self.clone(), client);
        // A shutdown that began meanwhile may have removed all clients before this one was there.
        if core.interface.is_closing() {
            return Err(refuse::shutting_down());
        }
        log::debug!("client {} connected: {credentials}", session.client());
        Ok(session)
    }
}

impl ClientSession {
    fn new(device: Arc<Device>, client: Arc<Client>) -> Self {
        Self { device, client }
    }

    pub fn client(&self) -> ClientId {
        self.client.id
    }

    /// The device that the client is one of.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Carries out a request. Requests of one client are carried out one after the other; one that
    /// waits for a neighbour keeps no other client waiting. `fds` came beside the request, the
    /// returned ones go beside the reply. The first request must be [`Request::Hello`].
    pub fn request(&self, request: Request, fds: Vec<OwnedFd>) -> (Reply, Vec<OwnedFd>) {
        // They are closed after the request: that may take as long as the client likes.
        match self.finish_request(self.grant(request, &fds)) {
            Ok((response, fds)) => (Ok(response), fds),
            Err(refusal) => (Err(refusal), Vec::new()),
        }
    }

    /// As [`Request::RegisterMemory`] for a client that is part of this process: memory that it shares
    /// with the engine as it is, without a descriptor. What only this process has is placed into
    /// directly ([`RegionMemory::Local`]). Its tagged offsets are its addresses.
    ///
    /// The memory is kept until the region is revoked, however the client ends.
    pub fn register_local(&self, spec: RegionSpec, memory: Arc<SharedMemory>) -> Reply {
        let spec = RegionSpec {
            length: memory.len() as u64,
            memory: MemoryKind::Local,
            ..spec
        };
        let registered = self.lock_session().and_then(|mut state| {
            check_hello(&state)?;
            self.register(&mut state, &spec, |_| {
                Ok((RegionMemory::whole(memory.clone()), memory))
            })
        });
        self.finish_request(registered)
    }

    /// Has the shard send what was just posted to a queue pair of this client's, if the shard runs only
    /// in [`Device::drive`] and has nothing else to do. Returns whether it took it; if not, the doorbell is
    /// to be rung.
    pub fn transmit_posted(&self, qp: QpNum) -> bool {
        let shards = &self.core().shards;
        shards.first().transmit_posted(self.client.id, qp)
    }

    /// Handles the events that a request caused. A refusal is logged, counted, and cut to what a message takes.
    fn finish_request<T>(&self, granted: Result<T, Refusal>) -> Result<T, Refusal> {
        self.device.handle_events();
        granted.map_err(|refusal| {
            audit::log_refusal(&self.client, &refusal);
            self.client.count_refusal();
            self.core().request_metrics.count_refusal(refusal.code);
            refuse::bounded(refusal)
        })
    }

    /// `on_removal` is called once, from another thread, with the reason, when the device evicts the client. That is when the client broke the rules of its rings or did not read its events, or when the
    /// device shuts down. It is called at once when that has happened already.
    pub fn on_removal(&self, on_removal: Box<dyn FnOnce(&str) + Send>) {
        self.client.on_removal(on_removal);
    }

    /// Waits until no other request of the client is carried out. Refuses when it was evicted, or the device closes.
    fn lock_session(&self) -> Result<MutexGuard<'_, SessionState>, Refusal> {
        let state = self.client.lock_session();
        if let Some(refusal) = self.client.evicted() {
            return Err(refusal.clone());
        }
        if self.core().interface.is_closing() {
            return Err(refuse::shutting_down());
        }
        Ok(state)
    }

    fn grant(&self, request: Request, fds: &[OwnedFd]) -> Granted {
        let mut state = self.lock_session()?;
        self.seal_rings(&mut state)?;
        let begins = matches!(
            request,
            Request::Resolve { .. }
                | Request::Connect { .. }
                | Request::Join { .. }
                | Request::Accept { .. }
                | Request::Listen(_)
        );
        if begins && let Some(why) = self.core().draining() {
            return Err(why.clone());
        }
        if begins && self.core().interface.is_gone() {
            return Err(refuse::interface_gone(self.device.interface()));
        }
        let wanted = usize::from(matches!(request, Request::RegisterMemory(_)));
        if fds.len() != wanted {
            return Err(refuse::descriptors(wanted, fds.len()));
        }
        match request {
            Request::Hello { .. } if state.has_hello => {
                return Err(refuse::refusal(
                    RefusalCode::WrongState,
                    "a second Hello came: one is enough",
                ));
            }
            Request::Hello { .. } => {}
            _ => check_hello(&state)?,
        }
        let shared_prm = self.core().shared_prm();
        self.core().prm().check_limits(self.id(), &request)?;
        let _admitted = shared_prm.admit(&request)?;
        self.carry_out(&mut state, request, fds)
    }

    /// The client has mapped what it was given by the request before this one.
    fn seal_rings(&self, state: &mut SessionState) -> Result<(), Refusal> {
        let sealed = state.rings.seal().map_err(|error| {
            refuse::refusal(
                RefusalCode::BadMemory,
                &format!("the memory of a ring that this client was given: {error}"),
            )
        });
        let doorbells = state.rings.doorbells.take();
        let known = sealed.and_then(|()| match doorbells {
            None => Ok(()),
            Some(doorbells) => {
                let client = self.id();
                let add = |doorbells| Command::AddClient { client, doorbells };
                let commands = doorbells.into_iter().map(add);
                let shards = &self.core().shards;
                let added = shards.all_or_none(commands, || Command::RemoveClient { client });
                added.map(|_| ())
            }
        });
        // Without its rings it would wait for ever for work that no shard takes.
        known.inspect_err(|refusal| {
            self.core()
                .clients
                .evict(&self.client, refusal.code, &refusal.message);
        })
    }

    fn carry_out(&self, state: &mut SessionState, request: Request, fds: &[OwnedFd]) -> Granted {
        match request {
            Request::Hello { version } => self.hello(state, version),
            Request::QueryDevice => plain(self.query_device()),
            Request::AllocPd => plain(self.core().prm().alloc_pd(self.id()).map(Response::Pd)),
            Request::DeallocPd { pd } => done(self.core().prm().dealloc_pd(self.id(), pd)),
            Request::MayRegister { pd, length } => {
                done(self.core().prm().may_register(self.id(), pd, length))
            }
            Request::RegisterMemory(spec) => plain(self.register_memory(state, &spec, fds)),
            Request::AllocStag { pd, kind } => plain(self.alloc_stag(pd, kind)),
            Request::DeregisterMemory { stag } => done(self.deregister_memory(state, stag)),
            Request::CreateCq { depth } => self.create_cq(state, depth),
            Request::ResizeCq { cq, depth } => self.resize_cq(state, cq, depth),
            Request::DestroyCq { cq } => done(self.destroy_cq(cq)),
            Request::CreateSrq { pd, depth, max_sge } => self.create_srq(state, pd, depth, max_sge),
            Request::ArmSrq { srq, limit } => done(self.arm_srq(srq, limit)),
            Request::DestroySrq { srq } => done(self.destroy_srq(srq)),
            Request::CreateQp(attributes) => self.create_qp(state, attributes),
            Request::DestroyQp { qp } => done(self.destroy_qp(qp)),
            Request::QueryQp { qp } => plain(self.query_qp(qp).map(Response::QpState)),
            Request::ModifyQp { qp, state } => done(self.modify_qp(qp, state)),
            Request::Listen(spec) => plain(self.listen(spec)),
            Request::Unlisten { listener } => done(self.unlisten(listener)),
            Request::Resolve {
                qp,
                remote,
                local,
                waited_ms,
            } => {
                let waited = Duration::from_millis(waited_ms.into());
                plain(self.resolve(qp, remote, local, waited))
            }
            Request::Connect { qp, spec } => plain(self.connect(qp, spec)),
            Request::QueryJoinNumbers => {
                plain(self.core().join_numbers().map(Response::JoinNumbers))
            }
            Request::Join { qp, spec } => plain(self.join(qp, &spec)),
            Request::SetPeerAccess { qp, access } => done(self.set_peer_access(qp, access)),
            Request::Accept {
                request,
                qp,
                mpa,
                private_data,
            } => done(self.accept(request, qp, mpa, private_data)),
            Request::Reject {
                request,
                private_data,
            } => done(self.reject(request, private_data)),
            Request::Disconnect { qp, abort } => done(self.disconnect(qp, abort)),
            Request::QueryCounters { first } => plain(
                self.core()
                    .counters_for_clients()
                    .map(|all| Response::Counters(counters::page(&all, first))),
            ),
            Request::Inspect { what, after } => {
                plain(self.inspect(what, after).map(Response::Inspected))
            }
            Request::Order(order) => done(self.order(order)),
            Request::StartCapture(filter) => self.start_capture(state, filter),
            Request::StopCapture => done(self.stop_capture(state)),
            Request::ListDevices => plain(Ok(Response::Devices(self.core().shared_prm().open()))),
            Request::ListInterfaces => plain(Ok(Response::Interfaces(
                self.core().shared_prm().interfaces_for_clients(),
            ))),
            Request::Administer(_) => Err(refuse::refusal(
                RefusalCode::WrongState,
                "an order about the RNIC itself came from a client of one device: give it before Hello, over \
                 another connection to the RNIC",
            )),
            Request::OpenDevice(name) => Err(refuse::refusal(
                RefusalCode::WrongState,
                &format!(
                    "the device of {name} asked, but this client is of that of {}: say which before \
                     Hello, over another connection to the RNIC",
                    self.device.interface()
                ),
            )),
        }
    }

    fn hello(&self, state: &mut SessionState, version: u32) -> Granted {
        if version != PROTOCOL_VERSION {
            return Err(refuse::refusal(
                RefusalCode::Version,
                &format!(
                    "version {version} of the control messages asked, but this RNIC speaks \
                     {PROTOCOL_VERSION}: use a client library of the same release"
                ),
            ));
        }
        let host = |what| move |error| refuse::host(what, error);
        // Each queue pair has at most one doorbell under way, so the ring never fills.
        let quota = self.core().prm().quota(self.id()).cloned();
        let most = quota.map_or(0, |quota| quota.queue_pairs);
        let entries = most.max(1).checked_next_power_of_two().unwrap_or(1 << 31);
        let shards = &self.core().shards;
        let rings = DoorbellConsumer::create(entries, shards.count());
        let (doorbells, memory) = rings.map_err(refuse::ring)?;
        let (events, theirs) =
            Channel::pair().map_err(|error| refuse::host("a socket pair for events", error))?;
        // Descriptors that the client sent there would be closed by the thread that drops our end, which may take as
        // long as the client likes.
        rustix::net::shutdown(&events, Shutdown::Read)
            .map_err(|errno| refuse::host("an event socket of one way", errno))?;
        let mut kicks = Vec::with_capacity(shards.count());
        for driver in shards.drivers() {
            let kick = Kick::new().map_err(|errno| refuse::host("an eventfd for kicks", errno))?;
            let watched = kick.as_fd().try_clone_to_owned();
            watched
                .and_then(|watched| driver.kicks().add(self.id(), watched))
                .map_err(host("to watch for kicks"))?;
            kicks.push(kick.into_fd());
        }
        let client = self.id();
        let memory = share(state, memory)?;
        state.rings.doorbells = Some(doorbells);
        self.client.events.open(events);
        state.has_hello = true;
        let mut fds = vec![theirs.into_fd(), memory];
        fds.append(&mut kicks);
        Ok((
            Response::Welcome {
                client,
                doorbells: entries,
                // There are 64 at most.
                shards: shards.count() as u8,
            },
            fds,
        ))
    }

    fn query_device(&self) -> Result<Response, Refusal> {
        let core = self.core();
        let interface = core.interface.interface();
        let mut addresses = core
            .interface
            .addresses()
            .map_err(|error| refuse::host("the interface's addresses", error))?;
        addresses.truncate(ADDRESSES_MAX);
        let (limits, quota) = {
            let prm = core.prm();
            (prm.limits().clone(), prm.quota(self.id()).cloned())
        };
        let link_up = Link::of(core.interface.netlink.as_ref(), &interface) == Link::Up;
        let link_mbits = link_state::mbits(&interface.name);
        Ok(Response::Device(DeviceInfo {
            interface: interface.name,
            xdp_mode: core.interface.xdp_mode.clone(),
            addresses,
            mtu: interface.defaults.mtu,
            queues: core.interface.queues(),
            max_sge: limits.sges,
            max_inline: limits.inline_bytes,
            max_queue_depth: limits.queue_depth,
            mac: interface.mac,
            link_up,
            link_mbits,
            limits: client_limits(&limits, &quota.unwrap_or(Quota::PER_CLIENT)),
        }))
    }

    fn core(&self) -> &Arc<Core> {
        self.device.core()
    }

    fn id(&self) -> ClientId {
        self.client.id
    }
}

impl Drop for ClientSession {
    fn drop(&mut self) {
        self.core().remove_client(&self.client);
        log::debug!("client {} is gone", self.client.id);
    }
}

fn client_limits(limits: &Limits, one: &Quota) -> ClientLimits {
    ClientLimits {
        protection_domains: one.protection_domains,
        regions: one.regions,
        registered_bytes: one.registered_bytes,
        completion_queues: one.completion_queues,
        cq_depth: limits.cq_depth,
        shared_receive_queues: one.shared_receive_queues,
        queue_pairs: one.queue_pairs,
        backlog: limits.backlog,
    }
}

/// Notes that a ring is the client's to map, and gives its descriptor back.
fn share(state: &mut SessionState, memory: OwnedFd) -> Result<OwnedFd, Refusal> {
    let shared = state.rings.share(memory);
    shared.map_err(|error| refuse::host("a descriptor of a ring", error))
}

fn check_hello(state: &SessionState) -> Result<(), Refusal> {
    if state.has_hello {
        return Ok(());
    }
    Err(refuse::refusal(
        RefusalCode::WrongState,
        "the first request was not Hello: say Hello first",
    ))
}

fn plain(result: Result<Response, Refusal>) -> Granted {
    result.map(|response| (response, Vec::new()))
}

fn done(result: Result<(), Refusal>) -> Granted {
    result.map(|()| (Response::Done, Vec::new()))
}

#[cfg(test)]
pub(crate) mod tests;
