//! An interface that is open as an RNIC.

pub(crate) mod core;

use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam::channel::RecvTimeoutError;
use rnic_engine::command::Command;
use rnic_host::EndProcess;
use rnic_host::icmp::IcmpReader;
use rnic_ipc::control::{DisconnectReason, Event, QpState, Refusal};
use rnic_ipc::threads;
use rnic_prm::Credentials;

use self::core::Core;
use crate::clients::client::Client;
use crate::clients::events::events_max;
use crate::clients::shared_prm::SharedPrm;
use crate::interface::open;
use crate::interface::route_monitor::RouteMonitor;
use crate::observe::metrics;
use crate::runtime::driver::Patience;
use crate::sync::lock;
use crate::{ClientSession, DeviceConfig, DeviceError, refuse};

/// How often events that wait behind a full socket are tried again.
const RETRY_EVENTS: Duration = Duration::from_millis(2);
/// Between two looks at connections that are to end.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// An interface that is open as an RNIC: one device in the sense of the verbs, with the objects of its
/// clients and shards of its own. It stays so until [`Device::shutdown`], or until it is
/// dropped, which does the same.
#[derive(Debug)]
pub struct Device {
    core: Arc<Core>,
    /// Handles what the shard tells, with a thread of its own.
    teller: Mutex<Option<JoinHandle<()>>>,
    icmp: Mutex<Option<IcmpReader>>,
    follower: Mutex<Option<RouteMonitor>>,
    reaper: Mutex<Option<JoinHandle<()>>>,
}

impl Device {
    /// Opens an interface of the calling thread's network namespace. Threads of the device, and
    /// requests of its clients, are to run in that namespace too.
    ///
    /// # Errors
    ///
    /// [`DeviceError`], each variant with its advice.
    pub fn open(config: DeviceConfig) -> Result<Arc<Self>, DeviceError> {
        let (limits, administrators) = (config.limits.clone(), config.administrators);
        let shared_prm = SharedPrm::new(limits, administrators);
        shared_prm.set_interfaces(vec![(config.interface.clone(), None)]);
        let core = Core::new(open::open(config, 0)?.start()?, Arc::new(shared_prm));
        core.take_loopback_addresses();
        Self::start(Arc::new(core))
    }

    pub(crate) fn start(core: Arc<Core>) -> Result<Arc<Self>, DeviceError> {
        let teller = if core.shards.are_threaded() {
            let core = core.clone();
            let tell = move || {
                let bug = EndProcess("thread for events");
                tell(&core);
                drop(bug);
            };
            let thread = Builder::new().name("rnic-events".to_owned());
            Some(
                threads::spawn(thread, tell).map_err(|cause| DeviceError::Host {
                    what: "a thread for events",
                    cause,
                })?,
            )
        } else {
            None
        };
        let icmp = core.read_icmp().map_err(|cause| DeviceError::Host {
            what: "a thread for ICMP errors",
            cause,
        })?;
        let follower = match core.netlink {
            Some(_) => {
                Some(
                    RouteMonitor::start(core.clone()).map_err(|cause| DeviceError::Host {
                        what: "a thread that follows routes and neighbours",
                        cause,
                    })?,
                )
            }
            None => None,
        };
        let reaper = core.start_reaper().map_err(|cause| DeviceError::Host {
            what: "a thread that takes clients away",
            cause,
        })?;
        Ok(Arc::new(Self {
            core,
            teller: Mutex::new(teller),
            icmp: Mutex::new(icmp),
            follower: Mutex::new(follower),
            reaper: Mutex::new(Some(reaper)),
        }))
    }

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
        if self.core.is_closing() {
            return Err(refuse::shutting_down());
        }
        let (grant, events) = {
            let mut prm = self.core.prm();
            (
                prm.add_client(credentials)?,
                events_max(&prm.limits().per_client),
            )
        };
        let client = Arc::new(Client::new(*grant.client(), credentials, events));
        self.core.add_client(client.clone());
        let session = ClientSession::new(self.clone(), client);
        // A shutdown that began meanwhile may have looked for clients before this one was there.
        if self.core.is_closing() {
            return Err(refuse::shutting_down());
        }
        log::debug!("client {} connected: {credentials}", session.client());
        Ok(session)
    }

    /// Polls the shard once and handles what it tells, with `Runtime::Caller`; says whether there was
    /// work. With a thread of its own it does nothing.
    pub fn drive(&self) -> bool {
        if self.core.shards.are_threaded() {
            return false;
        }
        let mut worked = self.core.shards.first().drive();
        worked |= self.handle_told();
        self.core.flush_events();
        worked
    }

    /// Handles what an inline shard has told.
    #[inline]
    pub(crate) fn handle_told(&self) -> bool {
        // Part of each poll, of which most find nothing.
        self.core.shards.first().has_told() && self.handle_all_told()
    }

    #[inline(never)]
    fn handle_all_told(&self) -> bool {
        let mut worked = false;
        while let Ok(told) = self.core.shards.told().try_recv() {
            self.core.handle(told);
            worked = true;
        }
        worked
    }

    /// Whether the shard runs only in [`Self::drive`].
    pub fn is_inline(&self) -> bool {
        !self.core.shards.are_threaded()
    }

    /// The name of the interface.
    pub fn interface(&self) -> &str {
        &self.core.config.interface
    }

    /// `native` or `generic`.
    pub fn xdp_mode(&self) -> &str {
        &self.core.xdp_mode
    }

    /// Every counter of the device, in a fixed order.
    ///
    /// # Errors
    ///
    /// `ShuttingDown`.
    pub fn counters(&self) -> Result<Vec<(String, u64)>, Refusal> {
        self.core.counters()
    }

    /// Everything that the device measures, in Prometheus's text format 0.0.4.
    ///
    /// # Errors
    ///
    /// `ShuttingDown`.
    pub fn metrics(&self) -> Result<String, Refusal> {
        metrics::of(&[&*self.core], &self.core.shared_prm().interfaces())
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Lets connections end in order before [`Self::shutdown`]: what was posted is sent, then FIN.
    /// Meanwhile nobody connects, accepts or listens any more. Ends when no connection is left, after
    /// `patience`, or when `give_up` says so; gives how many connections are left.
    pub fn drain(&self, patience: Duration, give_up: impl FnMut() -> bool) -> usize {
        drain([self], |_| refuse::shutting_down(), patience, give_up)
    }

    /// Has all connections end that have not begun to; says how many there are.
    fn end_connections(&self) -> usize {
        let mut left = 0;
        for client in self.core.clients() {
            for (qp, state) in self.core.connected(client.id) {
                left += 1;
                if state == QpState::Rts {
                    let abort = false;
                    // It may have ended by itself meanwhile.
                    let disconnect = Command::Disconnect { qp, abort };
                    let _ = self.core.shards.execute_for(qp, disconnect);
                }
            }
        }
        left
    }

    /// Tells all clients, resets all connections, lets the resets leave, joins the device's
    /// threads and closes the capture. Sessions that are still held refuse everything from now on.
    /// A second call finds nothing to do.
    ///
    /// Who ends a connection first has the last word on it, an acknowledgment that nobody acknowledges.
    /// If it is lost the peer asks again, and where nobody answers any more the host's kernel does, with a
    /// reset. So this call takes as long as a peer is likely to need for that: two retransmission timeouts
    /// (0.4 s in most networks), and [`DeviceConfig::linger_max`] at most. That time begins at the end of the last
    /// connection that ended in order and that this side began to end.
    pub fn shutdown(&self) {
        self.close(&refuse::shutting_down());
    }

    /// [`Self::shutdown`], of which clients are told this.
    pub(crate) fn close(&self, why: &Refusal) {
        if !self.core.begin_closing() {
            return;
        }
        for client in self.core.clients() {
            client.condemn(why.code, &why.message);
            self.tell_of_closing(&client, why);
            // A client that does not listen is gone in a moment anyway.
            let _ = client.events.push(Event::SessionEnded(why.clone()));
            self.core.take_away(&client);
            client.hang_up();
        }
        if let Some(reader) = take(&self.icmp) {
            reader.stop();
        }
        if let Some(follower) = take(&self.follower) {
            follower.stop();
        }
        // The capture ends with the shard, after the last reset has passed it.
        self.core.shards.stop(Patience {
            quiet: self.core.config.flush_timeout,
            linger: self.core.config.linger_max,
        });
        let teller = take(&self.teller);
        if teller.is_some_and(|teller| teller.join().is_err()) {
            log::error!("the thread for events panicked");
        }
        self.handle_told();
        self.core.end_reaper();
        if take(&self.reaper).is_some_and(|reaper| reaper.join().is_err()) {
            log::error!("the thread that takes clients away panicked");
        }
        let capture = self.core.captures().take_file();
        if let Some(capture) = capture {
            capture.close();
        }
        self.core
            .ports
            .with_claims(|claimed| drop(claimed.0.take()));
        log::info!("interface {} is closed", self.interface());
    }

    /// Tells a client of each connection that is about to be reset.
    fn tell_of_closing(&self, client: &Client, why: &Refusal) {
        for (qp, _) in self.core.connected(client.id) {
            let reason = DisconnectReason::ShuttingDown;
            let message = why.message.clone();
            let _ = client.events.push(Event::Disconnected {
                qp,
                reason,
                message,
            });
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.shutdown();
    }
}

/// Lets the connections of devices end in order, those of all in the same time. What would begin meanwhile is
/// refused with `why` of the interface. Gives how many connections are left.
pub(crate) fn drain<'d>(
    devices: impl IntoIterator<Item = &'d Device> + Clone,
    why: impl Fn(&str) -> Refusal,
    patience: Duration,
    mut give_up: impl FnMut() -> bool,
) -> usize {
    for device in devices.clone() {
        device.core.begin_draining(why(device.interface()));
    }
    let deadline = Instant::now() + patience;
    loop {
        let mut left = 0;
        let mut worked = false;
        for device in devices.clone() {
            left += device.end_connections();
            worked |= device.drive();
        }
        if left == 0 || Instant::now() >= deadline || give_up() {
            return left;
        }
        if !worked {
            std::thread::sleep(LOOK_AGAIN);
        }
    }
}

fn take<T>(place: &Mutex<Option<T>>) -> Option<T> {
    lock(place).take()
}

/// Handles what the shard tells until it has stopped.
fn tell(core: &Arc<Core>) {
    let told = core.shards.told();
    let mut waiting = false;
    loop {
        let next = if waiting {
            told.recv_timeout(RETRY_EVENTS)
        } else {
            told.recv().map_err(|_| RecvTimeoutError::Disconnected)
        };
        match next {
            Ok(item) => core.handle(item),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        waiting = core.flush_events();
    }
}
