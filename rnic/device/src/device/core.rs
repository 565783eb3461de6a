//! What all parts of an open device share.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread::{Builder, JoinHandle};

use crossbeam::channel::{RecvTimeoutError, Sender};
use log::Level;
use rnic_engine::command::{Answer, Command, ShardEvent};
use rnic_host::icmp::{IcmpCounts, IcmpReader, IcmpSocket};
use rnic_host::ports::{Claims, LocalPort, PortSpace, Ports};
use rnic_host::rejecting::Rejecting;
use rnic_host::{Interface, Netlink};
use rnic_host::{Members, Sockets};
use rnic_ipc::control::{Event, QpState, Refusal, RefusalCode, Transport};
use rnic_ipc::id::{ClientId, QpNum};
use rnic_ipc::{heap, threads};
use rnic_net::{IcmpReport, Vlans};
use rnic_prm::{Prm, Step};
use rnic_steering::{Protocol, Steering};

use crate::capture::{CaptureFile, Captures};
use crate::clients::audit::{RefusedPeer, log_host_policy_dropped};
use crate::clients::client::{Client, Turn};
use crate::clients::events::Undeliverable;
use crate::clients::shared_prm::SharedPrm;
use crate::interface::internal::Joined;
use crate::interface::paths::Lan;
use crate::interface::route_monitor::StaleNeighbors;
use crate::observe::counters::LastCounters;
use crate::observe::metrics::RequestMetrics;
use crate::runtime::driver::Told;
use crate::runtime::{self, FIRST, Shards};
use crate::sync::lock;
use crate::{DeviceConfig, LoopbackUse};

/// What all parts of an open device share.
///
/// The PRM's lock is never held while anybody waits: not for the shard, not for the host.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) config: DeviceConfig,
    /// The device's number.
    pub(crate) number: u8,
    /// The interface itself, and those that the kernel has for its VLANs.
    lans: Mutex<Vec<Lan>>,
    /// The VLANs of local addresses.
    pub(crate) vlans: Vlans,
    /// `native` or `generic`.
    pub(crate) xdp_mode: String,
    /// Whose queues are served; none on the loopback.
    pub(crate) members: Option<Members>,
    /// RX queues that the interface has beside these.
    pub(crate) unserved_queues: AtomicU32,
    /// The interface's [`Link`](rnic_host::link_state::Link), as it was when it last changed.
    pub(crate) link: AtomicU8,
    /// None where there is no interface.
    pub(crate) netlink: Option<Netlink>,
    pub(crate) ports: Ports<Claimed>,
    pub(crate) shards: Shards,
    pub(crate) icmp: Arc<IcmpCounts>,
    /// Peers that don't answer, for the [`RouteMonitor`](crate::interface::route_monitor::RouteMonitor).
    pub(crate) stale_neighbors: Arc<StaleNeighbors>,
    /// By what the host rejects packets, as it was read last.
    pub(crate) rejecting: Mutex<Arc<Rejecting>>,
    /// Until the thread that reads them takes them.
    icmp_sockets: Mutex<Vec<IcmpSocket>>,
    pub(crate) request_metrics: RequestMetrics,
    pub(crate) last_counters: Mutex<LastCounters>,
    shared_prm: Arc<SharedPrm>,
    /// The devices that internal links lead to, by the links' numbers.
    pub(crate) internal: Mutex<Vec<Joined>>,
    clients: Mutex<HashMap<ClientId, Arc<Client>>>,
    /// To the thread that takes condemned clients away, until the device closes.
    reaper: Mutex<Option<Sender<Arc<Client>>>>,
    captures: Mutex<Captures>,
    /// [`Core::rules_turn`].
    pub(crate) giving_rules: Mutex<()>,
    /// The most bytes that a frame can have.
    pub(crate) frame_bytes: usize,
    /// 127.0.0.0/8 and ::1 are this device's, and no other's of this process.
    has_loopback_addresses: AtomicBool,
    /// Why nothing begins any more, while what is there may end.
    draining: OnceLock<Refusal>,
    closing: AtomicBool,
    /// The host has the interface no more.
    gone: AtomicBool,
    /// Events wait behind some client's full socket.
    events_wait: AtomicBool,
}

/// What takes frames away from the kernel: the steering program, or nothing when there is none.
#[derive(Debug)]
pub(crate) struct Claimed(pub(crate) Option<Steering>);

impl Claims for Claimed {
    fn claim(&mut self, at: LocalPort) -> Result<(), String> {
        let local = at.local;
        let steering = self.0.as_mut().filter(|_| is_on_links(local));
        let Some(steering) = steering else {
            return Ok(());
        };
        steering
            .claim(protocol(at.transport), local.ip(), local.port())
            .map_err(|error| error.to_string())
    }

    fn release(&mut self, at: LocalPort) {
        let local = at.local;
        let steering = self.0.as_mut().filter(|_| is_on_links(local));
        let Some(steering) = steering else { return };
        let released = steering.release(protocol(at.transport), local.ip(), local.port());
        if let Err(error) = released {
            log::warn!("{local} can't be removed from the steering program: {error}");
        }
    }
}

fn protocol(transport: Transport) -> Protocol {
    match transport {
        Transport::Tcp => Protocol::Tcp,
        Transport::Sctp => Protocol::Sctp,
    }
}

/// Whether frames to this address may come over a link.
fn is_on_links(local: SocketAddr) -> bool {
    !local.ip().is_loopback()
}

/// A device without an interface shares its ports with no program of the host's.
fn port_space(config: &DeviceConfig) -> PortSpace {
    match config.loopback {
        LoopbackUse::Only => PortSpace::Own,
        LoopbackUse::Off | LoopbackUse::Beside => PortSpace::Kernel,
    }
}

/// The parts that [`Core`] is made of.
pub(crate) struct Parts {
    pub(crate) config: DeviceConfig,
    /// The device's number.
    pub(crate) number: u8,
    /// The interface itself, and those that the kernel has for its VLANs.
    pub(crate) lans: Vec<Lan>,
    pub(crate) vlans: Vlans,
    pub(crate) xdp_mode: String,
    pub(crate) members: Option<Members>,
    pub(crate) netlink: Option<Netlink>,
    pub(crate) stale_neighbors: StaleNeighbors,
    pub(crate) steering: Option<Steering>,
    pub(crate) shards: Shards,
    pub(crate) capture: Option<CaptureFile>,
    pub(crate) frame_bytes: usize,
    pub(crate) icmp: Vec<IcmpSocket>,
}

impl Core {
    pub(crate) fn new(parts: Parts, shared_prm: Arc<SharedPrm>) -> Self {
        let ports = Ports::new(Claimed(parts.steering), port_space(&parts.config));
        Self {
            giving_rules: Mutex::default(),
            request_metrics: RequestMetrics::default(),
            last_counters: Mutex::default(),
            shared_prm,
            config: parts.config,
            number: parts.number,
            lans: Mutex::new(parts.lans),
            vlans: parts.vlans,
            xdp_mode: parts.xdp_mode,
            members: parts.members,
            unserved_queues: AtomicU32::new(0),
            link: AtomicU8::default(),
            netlink: parts.netlink,
            ports,
            shards: parts.shards,
            icmp: Arc::default(),
            stale_neighbors: Arc::new(parts.stale_neighbors),
            rejecting: Mutex::default(),
            icmp_sockets: Mutex::new(parts.icmp),
            internal: Mutex::default(),
            clients: Mutex::new(HashMap::new()),
            reaper: Mutex::default(),
            captures: Mutex::new(Captures::new(parts.capture)),
            frame_bytes: parts.frame_bytes,
            has_loopback_addresses: AtomicBool::new(false),
            draining: OnceLock::new(),
            closing: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            events_wait: AtomicBool::new(false),
        }
    }

    /// The PRM. Not to be held while waiting for anything.
    pub(crate) fn prm(&self) -> MutexGuard<'_, Prm> {
        self.shared_prm.prm()
    }

    /// What this device has in common with others.
    pub(crate) fn shared_prm(&self) -> &SharedPrm {
        &self.shared_prm
    }

    pub(crate) fn captures(&self) -> MutexGuard<'_, Captures> {
        lock(&self.captures)
    }

    /// The interface as it was when somebody last looked.
    pub(crate) fn interface(&self) -> Interface {
        lock(&self.lans)[0].interface.clone()
    }

    /// The same of all of the kernel's interfaces that are this device's; the first is the one that
    /// frames go over.
    pub(crate) fn lans(&self) -> Vec<Lan> {
        lock(&self.lans).clone()
    }

    pub(crate) fn set_interface(&self, interface: Interface) {
        let mut lans = lock(&self.lans);
        let known = lans.iter_mut();
        for lan in known.filter(|lan| lan.interface.index == interface.index) {
            lan.interface = interface.clone();
        }
    }

    /// Reads ICMP errors from now on, if there is anything to read them from.
    pub(crate) fn read_icmp(self: &Arc<Self>) -> std::io::Result<Option<IcmpReader>> {
        let sockets = std::mem::take(&mut *lock(&self.icmp_sockets));
        if sockets.is_empty() {
            return Ok(None);
        }
        let core = self.clone();
        let deliver = move |reports: Vec<IcmpReport>| {
            // Each knows whether it sent the segment.
            core.shards.try_post_all(|| Command::IcmpErrors {
                reports: reports.clone(),
            })
        };
        IcmpReader::start(sockets, self.icmp.clone(), deliver).map(Some)
    }

    /// Why nothing may begin any more, if that is so.
    pub(crate) fn draining(&self) -> Option<&Refusal> {
        self.draining.get()
    }

    /// Nothing may begin any more, for this reason.
    pub(crate) fn begin_draining(&self, why: Refusal) {
        // The first reason stays.
        let _ = self.draining.set(why);
    }

    /// Whether 127.0.0.0/8 and ::1 are this device's.
    pub(crate) fn has_loopback_addresses(&self) -> bool {
        self.has_loopback_addresses.load(Ordering::Acquire)
    }

    /// 127.0.0.0/8 and ::1 are this device's from now on, and no other's of this process.
    pub(crate) fn take_loopback_addresses(&self) {
        self.has_loopback_addresses.store(true, Ordering::Release);
    }

    /// Whether the host has the interface no more.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// The RX queues that are served.
    pub(crate) fn queues(&self) -> u32 {
        self.members.as_ref().map_or(0, Members::queues)
    }

    /// Whether its interface, as it was found now, sends larger frames than this device has memory for.
    pub(crate) fn outgrown_by(&self, found: &Interface) -> bool {
        Sockets::chunk(found, self.config.mode.into())
            .is_ok_and(|chunk| chunk.frame_capacity() > self.frame_bytes)
    }

    /// The host has the interface no more: connections end, and nothing begins there. Once.
    pub(crate) fn interface_gone(&self) {
        if self.gone.swap(true, Ordering::AcqRel) {
            return;
        }
        let interface = self.config.interface.clone();
        log::error!("interface {interface} was taken away from the host: its connections end");
        let ended = self.shards.all_do(|| Command::InterfaceGone {
            interface: interface.clone(),
        });
        log_refusal("connections", ended);
    }

    /// The queue pairs of a client that have a connection, with their states.
    pub(crate) fn connected(&self, client: ClientId) -> Vec<(QpNum, QpState)> {
        let queue_pairs = self.prm().queue_pairs(client);
        let state = |qp| match self.shards.execute_for(qp, Command::QueryQp { qp }) {
            Ok((Answer::QpState(state), _)) => Some((qp, state)),
            _ => None,
        };
        let has_connection = |(_, state): &(QpNum, QpState)| {
            use QpState::{Closing, Connecting, Rts, Terminate};
            matches!(state, Connecting | Rts | Closing | Terminate)
        };
        queue_pairs
            .into_iter()
            .filter_map(state)
            .filter(has_connection)
            .collect()
    }

    /// Whether the device takes no more requests.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Says that the device takes no more requests; `false` when that was said before.
    pub(crate) fn begin_closing(&self) -> bool {
        !self.closing.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn add_client(&self, client: Arc<Client>) {
        lock(&self.clients).insert(client.id, client);
    }

    pub(crate) fn clients(&self) -> Vec<Arc<Client>> {
        lock(&self.clients).values().cloned().collect()
    }

    pub(crate) fn client(&self, id: ClientId) -> Option<Arc<Client>> {
        lock(&self.clients).get(&id).cloned()
    }

    /// Handles one thing that the shard told. Never waits for the shard.
    pub(crate) fn handle(self: &Arc<Self>, told: Told) {
        match told.event {
            ShardEvent::Client { client, event } => self.client_event(client, event),
            ShardEvent::RequestGone { request, reason } => {
                self.shards.placement().request_over(request);
                let gone = self.prm().request_gone(request);
                if let Some((client, listener)) = gone {
                    log::debug!("connection request {request} went away: {reason:?}");
                    self.client_event(client, Event::RequestGone { listener, request });
                }
            }
            ShardEvent::Released { transport, local } => {
                let at = LocalPort::new(transport, local);
                self.ports.released(at, told.stamp);
            }
            ShardEvent::PathDoubtful { local, remote } => self.stale_neighbors.add(local, remote),
            ShardEvent::PeerRefused {
                client,
                listener,
                local,
                remote,
                list,
                untold,
            } => self.log_refused_peer(&RefusedPeer {
                client,
                listener,
                local,
                remote,
                list,
                untold,
            }),
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
            } => log_host_policy_dropped((local, remote), (by, &rule), untold),
            ShardEvent::GuessesPaused {
                client,
                remote,
                streams,
                pause,
                untold,
            } => self.log_guesses(client, remote, (streams, pause), untold),
            ShardEvent::ClientFault {
                client,
                code,
                message,
            } => {
                if let Some(client) = self.client(client) {
                    self.condemn(&client, code, &message);
                }
            }
        }
    }

    fn client_event(self: &Arc<Self>, id: ClientId, event: Event) {
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
                let shard = self.shards.shard_of_request(request);
                self.shards.drivers()[shard].post(Command::Refuse { request });
                return;
            }
        }
        if let Event::CqError { cq } = event {
            // Of those that have failed already none tells again.
            self.shards.try_post_all(|| Command::FailCq { cq });
        }
        let Some(client) = self.client(id) else {
            return;
        };
        match client.events.push(self.with_link_state(event)) {
            Ok(()) => {
                if client.events.is_waiting() {
                    self.events_wait.store(true, Ordering::Relaxed);
                }
            }
            Err(error) => self.undeliverable(&client, error),
        }
    }

    /// Sends the events that wait behind full sockets, if any do; says whether some still do.
    #[inline]
    pub(crate) fn flush_events(self: &Arc<Self>) -> bool {
        // Read before it is written: this is part of each poll, and they hardly ever wait.
        self.events_wait.load(Ordering::Relaxed) && self.flush_waiting_events()
    }

    #[inline(never)]
    fn flush_waiting_events(self: &Arc<Self>) -> bool {
        if !self.events_wait.swap(false, Ordering::Relaxed) {
            return false;
        }
        let mut waiting = false;
        for client in self.clients() {
            match client.events.flush() {
                Ok(()) => waiting |= client.events.is_waiting(),
                Err(error) => self.undeliverable(&client, error),
            }
        }
        self.events_wait.fetch_or(waiting, Ordering::Relaxed);
        waiting
    }

    /// Starts the thread that takes condemned clients away, and looks at the shards when there are none.
    pub(crate) fn start_reaper(self: &Arc<Self>) -> std::io::Result<JoinHandle<()>> {
        // A client is condemned once, so that no more wait than there are clients.
        let (sender, condemned) = crossbeam::channel::unbounded();
        let core = self.clone();
        let thread = Builder::new().name("rnic-reaper".to_owned());
        let thread = threads::spawn(thread, move || {
            loop {
                match condemned.recv_timeout(runtime::LOOK) {
                    Ok(client) => core.reap(client),
                    Err(RecvTimeoutError::Timeout) => core.shards.look(&core.config.interface),
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        })?;
        *lock(&self.reaper) = Some(sender);
        Ok(thread)
    }

    /// The reaper ends when it has done what is left.
    pub(crate) fn end_reaper(&self) {
        drop(lock(&self.reaper).take());
    }

    /// Takes a condemned client away by a thread of its own: its turn may come late.
    fn reap(self: &Arc<Self>, client: Arc<Client>) {
        let (core, condemned) = (self.clone(), client.clone());
        let take_away = move || {
            condemned.hang_up();
            core.take_away(&condemned);
        };
        if let Err(error) = heap::start_thread("rnic-take-away", heap::STACK, take_away) {
            log::error!(
                "no thread to take client {} away, it goes when it hangs up: {error}",
                client.id
            );
            client.hang_up();
        }
    }

    /// Takes a client away for a fault of its own. Whoever found the fault waits for nobody: the shard may
    /// be waiting for it to handle what it told, and whoever holds up a new thread for the shard.
    pub(crate) fn condemn(&self, client: &Arc<Client>, code: RefusalCode, reason: &str) {
        self.condemn_at(Level::Warn, client, code, reason);
    }

    /// Takes a client away to which an event can't be told.
    fn undeliverable(&self, client: &Arc<Client>, error: Undeliverable) {
        let level = match error {
            Undeliverable::Overflow { .. } => Level::Warn,
            // Nearly always the program has ended: the kernel closes its sockets one after the other, and its
            // connections' ends are told in between.
            Undeliverable::Closed => Level::Info,
        };
        self.condemn_at(level, client, RefusalCode::Malformed, &error.to_string());
    }

    fn condemn_at(&self, level: Level, client: &Arc<Client>, code: RefusalCode, reason: &str) {
        if !client.condemn(code, reason) {
            return;
        }
        log::log!(
            level,
            "client {} ({}) is removed: {reason}",
            client.id,
            client.credentials
        );
        if let Some(refusal) = client.condemned() {
            // One that reads no events, or has no socket for them, is told by its next request at most.
            let _ = client.events.push(Event::SessionEnded(refusal.clone()));
        }
        if let Some(reaper) = lock(&self.reaper).as_ref() {
            // It ends after the last sender.
            let _ = reaper.send(client.clone());
        }
    }

    /// Takes away everything that a client has, when its turn comes. Once.
    pub(crate) fn take_away(&self, client: &Client) {
        let mut turn = client.turn();
        if std::mem::replace(&mut turn.gone, true) {
            return;
        }
        let teardown = self.prm().client_gone(client.id);
        log::debug!(
            "client {}: removing {} objects",
            client.id,
            teardown.steps().len()
        );
        for step in teardown.steps() {
            self.take_step(step, &mut turn);
        }
        self.end_capture(&mut turn);
        if turn.greeted {
            let client = client.id;
            let removed = self.shards.all_do(|| Command::RemoveClient { client });
            log_refusal("a client", removed);
        }
        for driver in self.shards.drivers() {
            driver.kicks().remove(client.id);
        }
        self.prm().client_removed(teardown);
        lock(&self.clients).remove(&client.id);
    }

    fn take_step(&self, step: &Step, turn: &mut Turn) {
        match step {
            Step::Listener(removal) => {
                let listener = *removal.listener();
                let unlistened = self.shards.all_do(|| Command::Unlisten { listener });
                log_refusal("a listener", unlistened);
                let at = LocalPort::new(*removal.transport(), *removal.local());
                self.ports.unlistened(at);
            }
            Step::Qp(removal) => {
                log_refusal("a queue pair", self.remove_qp(*removal.qp()));
            }
            Step::Region(revocation) => {
                let stag = *revocation.stag();
                let revoked = self.shards.all_do(|| Command::RemoveRegion { stag });
                log_refusal("a region", revoked);
                turn.memory.remove(&stag.0);
            }
            Step::Srq(removal) => {
                let srq = *removal.srq();
                let removed = self.shards.execute(FIRST, Command::RemoveSrq { srq });
                log_refusal("a shared receive queue", removed);
            }
            Step::Cq(removal) => {
                let cq = *removal.cq();
                let removed = self.shards.all_do(|| Command::RemoveCq { cq });
                log_refusal("a completion queue", removed);
            }
        }
    }
}

/// The shard's own tables differ from the PRM's: a bug, or the shard has ended.
pub(crate) fn log_refusal<T>(what: &str, result: Result<T, Refusal>) {
    if let Err(refusal) = result {
        log::debug!("{what} can't be changed: {refusal}");
    }
}
