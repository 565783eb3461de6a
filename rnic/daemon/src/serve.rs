//! From the command line to the last client, and out again.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

use rnic_device::{DeviceError, Devices};
use rnic_host::heap;
use rnic_host::{Signal, Signals, privileges};
use rnic_ipc::find::DEFAULT_SOCKET;
use rnic_ipc::shm::ShmError;
use rnic_ipc::threads;
use rnic_ipc::transport::TransportError;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use crate::cli::Cli;
use crate::clients::Clients;
use crate::closer::ChannelCloser;
use crate::metrics::{MetricsError, MetricsListener};
use crate::names;
use crate::open_files;
use crate::reload::Reload;
use crate::service::Service;
use crate::settings::Settings;
use crate::socket::{self, SocketError, SocketFile};

/// How long to wait before accepting again when no descriptor is left.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);
/// How long the threads of clients may take to end. A descriptor that a client passed may hold its
/// thread in close(2) for as long as the client likes.
const FAREWELL: Duration = Duration::from_secs(2);

/// Why the daemon could not start, or had to end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    #[error(transparent)]
    Socket(#[from] SocketError),
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    #[error("can't make a signalfd for SIGTERM, SIGINT and SIGHUP: {0}")]
    Signals(nix::errno::Errno),
    /// SIGBUS.
    #[error("can't install the SIGBUS handler for clients' memory: {0}")]
    Faults(ShmError),
    #[error("can't give up privileges: {0}")]
    Privileges(Errno),
    #[error("can't switch to user {user}: {errno}: start rnicd as root, or leave --user out")]
    User { user: String, errno: Errno },
    /// Threads that close channels.
    #[error("can't start the thread that closes surplus clients' channels: {0}")]
    Closer(std::io::Error),
    #[error("can't start the thread that reads the configuration again: {0}")]
    Reloads(std::io::Error),
    #[error("can't wait for clients: {0}")]
    Wait(Errno),
}

/// Opens the devices and serves clients until a signal comes.
pub(crate) fn serve(cli: Cli, settings: Settings) -> Result<(), ServeError> {
    // Before any thread exists, so that all of them leave the signals to us, and none can gain what
    // it does not have.
    // Without a file SIGHUP does what it does to any program: a terminal that goes ends it, or nohup(1) has
    // it ignored.
    let reloads: &[Signal] = match cli.config {
        Some(_) => &[Signal::SIGHUP],
        None => &[],
    };
    let signals = Signals::block_with(reloads).map_err(ServeError::Signals)?;
    rustix::thread::set_no_new_privs(true).map_err(ServeError::Privileges)?;
    let path = &settings.own.socket;
    if path == Path::new(DEFAULT_SOCKET) {
        socket::make_directory(path)?;
    }
    if let Some(user) = settings.user {
        privileges::become_user(user.uid, user.gid).map_err(|errno| ServeError::User {
            user: names::user(user.uid),
            errno,
        })?;
    }
    rnic_ipc::shm::contain_faults().map_err(ServeError::Faults)?;
    heap::map_large_blocks();
    if !heap::keep_reserves() {
        log::warn!("the host has no memory for the daemon's reserve: clients are refused");
    }
    let closer = ChannelCloser::start().map_err(ServeError::Closer)?;
    SocketFile::clear(path)?;
    let service = Arc::new(Service::from_environment());
    open_files::raise(&settings.devices);
    let (devices, (socket, metrics)) =
        Devices::open_then(settings.devices.clone(), settings.on_missing(), || {
            // While their directories can be written to, and the first be given to a group.
            let socket =
                SocketFile::bind(path, settings.own.socket_mode, settings.own.socket_group)?;
            let metrics = settings
                .own
                .metrics
                .as_ref()
                .map(MetricsListener::bind)
                .transpose()?;
            give_up_privileges()?;
            Ok::<_, ServeError>((socket, metrics))
        })?;
    let metrics = metrics
        .map(|listener| {
            let devices = devices.clone();
            listener.start(Box::new(move || devices.metrics().ok()))
        })
        .transpose()?;
    log::info!("ready: listening on {}", path.display());
    let reload = Arc::new(Reload::new(cli, settings, devices.clone()));
    let mut clients = Clients::new(devices.clone(), reload.clone(), closer);
    let reloads = start_reloads(service.clone(), reload.clone()).map_err(ServeError::Reloads)?;
    service.ready();

    let ended = accept_until_signal(
        &socket,
        &signals,
        &mut clients,
        &Alive {
            service: &service,
            devices: &devices,
        },
        &reloads,
    );
    service.stopping();
    drop(metrics);
    // No new clients; then the connections of the old ones, in order as far as time allows; then the
    // clients.
    socket.retire();
    let (period, mut told) = (service.period(), Instant::now());
    let drain = reload.drain();
    let left = devices.drain(drain, || {
        if period.is_some_and(|period| told.elapsed() >= period) {
            service.alive();
            told = Instant::now();
        }
        signals
            .take()
            .is_some_and(|signal| signal != Signal::SIGHUP)
    });
    if left > 0 {
        log::warn!(
            "{left} connections are reset: they did not end within {:?}",
            drain
        );
    }
    devices.shutdown();
    clients.join(FAREWELL);
    ended
}

/// Keeps what an open device needs, and nothing else.
fn give_up_privileges() -> Result<(), ServeError> {
    let kept = privileges::keep(privileges::NEEDED).map_err(ServeError::Privileges)?;
    log::info!("capabilities kept: {kept:?}");
    Ok(())
}

/// Who is told that all is well, and who has to be.
struct Alive<'a> {
    service: &'a Service,
    devices: &'a Devices,
}

impl Alive<'_> {
    /// Asks the shards for their counters, which they only have while they go round.
    fn tell(&self) {
        if self.devices.are_alive() {
            self.service.alive();
        }
    }
}

/// Starts the thread that reloads when it is told to. Interfaces that are taken away may need seconds to close,
/// and meanwhile clients are accepted, and the service manager is notified that all is well. It ends with its sender.
fn start_reloads(service: Arc<Service>, reload: Arc<Reload>) -> std::io::Result<SyncSender<()>> {
    let (reloads, told) = sync_channel(1);
    let thread = Builder::new().name("rnicd-reload".to_owned());
    threads::spawn(thread, move || {
        for () in told {
            service.reloading(|| reload.signalled());
        }
    })?;
    Ok(reloads)
}

fn accept_until_signal(
    socket: &SocketFile,
    signals: &Signals,
    clients: &mut Clients,
    alive: &Alive<'_>,
    reloads: &SyncSender<()>,
) -> Result<(), ServeError> {
    let period = alive.service.period();
    let mut due = period.map(|period| Instant::now() + period);
    loop {
        if let (Some(period), Some(at)) = (period, due)
            && Instant::now() >= at
        {
            alive.tell();
            due = Some(Instant::now() + period);
        }
        clients.go_on_closing();
        let until_due = due.map(|at| at.saturating_duration_since(Instant::now()));
        let leaving = clients.are_leaving().then_some(EXHAUSTED_PAUSE);
        let until_due = until_due.into_iter().chain(leaving).min();
        let patience = until_due.and_then(|time| Timespec::try_from(time).ok());
        let listens = match clients.too_many_are_leaving() {
            true => PollFlags::empty(),
            false => PollFlags::IN,
        };
        let mut fds = [
            PollFd::new(socket.listener(), listens),
            PollFd::new(signals, PollFlags::IN),
        ];
        match rustix::event::poll(&mut fds, patience.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(ServeError::Wait(errno)),
        }
        let client_waits = !fds[0].revents().is_empty();
        match signals.take() {
            // If another waits already, it finds what the file says now.
            Some(Signal::SIGHUP) => drop(reloads.try_send(())),
            Some(signal) => {
                log::info!("{signal} came: ending");
                return Ok(());
            }
            None => {}
        }
        if client_waits {
            match socket.listener().accept() {
                Ok(channel) => clients.serve(channel),
                Err(TransportError::Host { errno, .. }) => {
                    log::error!("a client can't be accepted: {errno}");
                    std::thread::sleep(EXHAUSTED_PAUSE);
                }
                Err(error) => log::error!("a client can't be accepted: {error}"),
            }
        }
    }
}
