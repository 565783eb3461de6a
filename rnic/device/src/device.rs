//! An interface that is open as an RNIC.

mod connect;
pub(crate) mod core;
mod join;
mod removal;
mod shard_events;

use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam::channel::RecvTimeoutError;
use rnic_engine::command::Command;
use rnic_host::EndProcess;
use rnic_host::icmp::IcmpReader;
use rnic_ipc::control::{DisconnectReason, Event, QpState, Refusal};
use rnic_ipc::threads;

use self::core::Core;
use crate::clients::client::Client;
use crate::clients::shared_prm::{InterfaceState, SharedPrm};
use crate::interface::open;
use crate::interface::route_monitor::RouteMonitor;
use crate::joins::Message;
use crate::runtime::To;
use crate::runtime::driver::Patience;
use crate::sync::lock;
use crate::{DeviceConfig, DeviceError, refuse};

/// How often events that wait for a full socket are tried again.
const RETRY_EVENTS: Duration = Duration::from_millis(2);
/// Between two checks of connections that are to end.
const DRAIN_INTERVAL: Duration = Duration::from_millis(2);

/// An interface that is open as an RNIC: one device in the sense of the verbs, with the objects of its
/// clients and shards of its own. It stays so until [`Device::shutdown`], or until it is
/// dropped, which does the same.
#[derive(Debug)]
pub struct Device {
    core: Arc<Core>,
    /// Handles the shards' events, with threaded driving.
    events: Mutex<Option<JoinHandle<()>>>,
    icmp: Mutex<Option<IcmpReader>>,
    route_monitor: Mutex<Option<RouteMonitor>>,
    remover: Mutex<Option<JoinHandle<()>>>,
    joiner: Mutex<Option<JoinHandle<()>>>,
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
        shared_prm.set_interfaces(vec![(config.interface.clone(), InterfaceState::Open)]);
        let core = Core::new(open::open(config, 0)?.start()?, Arc::new(shared_prm));
        core.interface.take_loopback_addresses();
        Self::start(Arc::new(core))
    }

    pub(crate) fn start(core: Arc<Core>) -> Result<Arc<Self>, DeviceError> {
        let events = if core.shards.are_threaded() {
            let core = core.clone();
            let handle = move || {
                let bug = EndProcess("thread for events");
                handle_until_stopped(&core);
                drop(bug);
            };
            let thread = Builder::new().name("rnic-events".to_owned());
            Some(
                threads::spawn(thread, handle).map_err(|cause| DeviceError::Host {
                    what: "a thread for events",
                    cause,
                })?,
            )
        } else {
            None
        };
        let icmp = core
            .served()
            .read_icmp()
            .map_err(|cause| DeviceError::Host {
                what: "a thread for ICMP errors",
                cause,
            })?;
        let route_monitor = match core.interface.netlink {
            Some(_) => {
                Some(
                    RouteMonitor::start(core.served()).map_err(|cause| DeviceError::Host {
                        what: "a thread that follows routes and neighbours",
                        cause,
                    })?,
                )
            }
            None => None,
        };
        let remover = core.start_remover().map_err(|cause| DeviceError::Host {
            what: "a thread that removes clients",
            cause,
        })?;
        let joiner = core.start_joiner().map_err(|cause| DeviceError::Host {
            what: "a thread that joins queue pairs",
            cause,
        })?;
        Ok(Arc::new(Self {
            core,
            joiner: Mutex::new(Some(joiner)),
            events: Mutex::new(events),
            icmp: Mutex::new(icmp),
            route_monitor: Mutex::new(route_monitor),
            remover: Mutex::new(Some(remover)),
        }))
    }

    /// Polls the shard once and handles its events, with inline driving. Returns whether there was
    /// work. With threaded driving it does nothing.
    pub fn drive(&self) -> bool {
        if self.core.shards.are_threaded() {
            return false;
        }
        let mut worked = self.core.shards.first().drive();
        worked |= self.handle_events();
        self.core.clients.flush_events();
        worked
    }

    /// Handles the events of an inline shard.
    #[inline]
    pub(crate) fn handle_events(&self) -> bool {
        // Part of each poll, of which most find none.
        self.core.shards.first().has_events() && self.handle_all_events()
    }

    #[inline(never)]
    fn handle_all_events(&self) -> bool {
        let mut worked = false;
        while let Ok(message) = self.core.shards.events().try_recv() {
            self.core.handle(message);
            worked = true;
        }
        worked
    }

    /// Whether the shard runs only in [`Self::drive`].
    pub fn is_inline(&self) -> bool {
        !self.core.shards.are_threaded()
    }

    pub fn interface(&self) -> &str {
        self.core.interface.name()
    }

    /// `native` or `generic`.
    pub fn xdp_mode(&self) -> &str {
        &self.core.interface.xdp_mode
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Lets connections end in order before [`Self::shutdown`]: what was posted is sent, then FIN.
    /// Meanwhile no client can connect, accept or listen any more. Ends when no connection is left, after
    /// `patience`, or when `give_up` says so; gives how many connections are left.
    pub fn drain(&self, patience: Duration, give_up: impl FnMut() -> bool) -> usize {
        drain([self], |_| refuse::shutting_down(), patience, give_up)
    }

    /// Has all connections end that have not begun to. Returns how many there are.
    fn end_connections(&self) -> usize {
        let mut left = 0;
        for client in self.core.clients.all() {
            for (qp, state) in self.core.connected(client.id) {
                left += 1;
                if state == QpState::Rts {
                    let abort = false;
                    // It may have ended by itself meanwhile.
                    let disconnect = Command::Disconnect { qp, abort };
                    let _ = self.core.shards.run(To::Qp(qp), disconnect);
                }
            }
        }
        left
    }

    /// Sends all clients an event, resets all connections, lets the resets leave, joins the device's
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

    /// [`Self::shutdown`], with the reason that clients get.
    pub(crate) fn close(&self, why: &Refusal) {
        if !self.core.interface.begin_closing() {
            return;
        }
        for client in self.core.clients.all() {
            client.evict(why.code, &why.message);
            self.send_closing(&client, why);
            // A client that takes no events is removed in a moment anyway.
            let _ = client.events.push(Event::SessionEnded(why.clone()));
            self.core.remove_client(&client);
            client.close_session();
        }
        self.core.joins.send(Message::Stop);
        if take(&self.joiner).is_some_and(|joiner| joiner.join().is_err()) {
            log::error!("the thread that joins queue pairs panicked");
        }
        if let Some(reader) = take(&self.icmp) {
            reader.stop();
        }
        if let Some(monitor) = take(&self.route_monitor) {
            monitor.stop();
        }
        // The capture ends with the shard, after the last reset has passed it.
        self.core.shards.stop(Patience {
            quiet: self.core.interface.config.flush_timeout,
            linger: self.core.interface.config.linger_max,
        });
        let events = take(&self.events);
        if events.is_some_and(|events| events.join().is_err()) {
            log::error!("the thread for events panicked");
        }
        self.handle_events();
        self.core.clients.end_evictions();
        if take(&self.remover).is_some_and(|remover| remover.join().is_err()) {
            log::error!("the thread that removes clients panicked");
        }
        let capture = self.core.captures().take_file();
        if let Some(capture) = capture {
            capture.close();
        }
        self.core
            .interface
            .ports
            .with_claims(|claimed| drop(claimed.0.take()));
        log::info!("interface {} is closed", self.interface());
    }

    /// Sends a client an event for each connection that is about to be reset.
    fn send_closing(&self, client: &Client, why: &Refusal) {
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
            std::thread::sleep(DRAIN_INTERVAL);
        }
    }
}

fn take<T>(thread: &Mutex<Option<T>>) -> Option<T> {
    lock(thread).take()
}

/// Handles the shards' events until they have stopped.
fn handle_until_stopped(core: &Arc<Core>) {
    let events = core.shards.events();
    let mut waiting = false;
    loop {
        let next = if waiting {
            events.recv_timeout(RETRY_EVENTS)
        } else {
            events.recv().map_err(|_| RecvTimeoutError::Disconnected)
        };
        match next {
            Ok(message) => core.handle(message),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        waiting = core.clients.flush_events();
    }
}
