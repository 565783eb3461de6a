//! From the command line to the last client, and out again.

use std::time::Duration;

use rnic_device::host::Signals;
use rnic_device::{Device, DeviceError};
use rnic_ipc::transport::TransportError;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit};

use crate::clients::Clients;
use crate::settings::Settings;
use crate::socket::{SocketError, SocketFile};

/// How long to wait before accepting again when no descriptor or no thread is left.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);
/// How long the threads of clients may take to end. A descriptor that a client passed may hold its
/// thread in close(2) for as long as the client likes.
const FAREWELL: Duration = Duration::from_secs(2);

/// Why the daemon could not start, or had to end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    /// The socket file.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The interface.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Signals.
    #[error(
        "SIGTERM and SIGINT were to come by a descriptor (signalfd), but the kernel refused: {0}"
    )]
    Signals(nix::errno::Errno),
    /// The wait for clients.
    #[error("waiting for clients, but the kernel refused: {0}")]
    Wait(Errno),
}

/// Opens the device and serves clients until a signal comes.
pub(crate) fn serve(settings: Settings) -> Result<(), ServeError> {
    // Before any thread exists, so that all of them leave the signals to us.
    let signals = Signals::block().map_err(ServeError::Signals)?;
    raise_open_files();
    let path = &settings.socket;
    SocketFile::clear(path)?;
    let limits = settings.device.limits.clone();
    let device = Device::open(settings.device)?;
    let socket = SocketFile::bind(path, settings.socket_mode, settings.socket_group)?;
    let mut clients = Clients::new(device.clone(), limits);
    log::info!("ready: listening on {}", path.display());

    let ended = accept_until_signal(&socket, &signals, &mut clients);
    // No new clients; then the old ones.
    socket.retire();
    device.shutdown();
    clients.join(FAREWELL);
    ended
}

/// Takes all the open files that the host allows: each completion queue, port and client takes some,
/// and the usual limit is for programs that use select(2).
fn raise_open_files() {
    let allowed = rustix::process::getrlimit(Resource::Nofile);
    let wanted = Rlimit {
        current: allowed.maximum,
        maximum: allowed.maximum,
    };
    if let Err(errno) = rustix::process::setrlimit(Resource::Nofile, wanted) {
        log::warn!(
            "the limit of open files stays at {:?}: {errno}",
            allowed.current
        );
    }
}

fn accept_until_signal(
    socket: &SocketFile,
    signals: &Signals,
    clients: &mut Clients,
) -> Result<(), ServeError> {
    loop {
        // Without a thread for them clients wait in the socket's queue. Turning them away here could
        // hold us: what they sent already may be descriptors that are slow to close.
        let (accept, patience) = if clients.has_room() {
            (PollFlags::IN, None)
        } else {
            (PollFlags::empty(), Timespec::try_from(EXHAUSTED_PAUSE).ok())
        };
        let mut fds = [
            PollFd::new(socket.listener(), accept),
            PollFd::new(signals, PollFlags::IN),
        ];
        match rustix::event::poll(&mut fds, patience.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(ServeError::Wait(errno)),
        }
        let client_waits = !fds[0].revents().is_empty();
        if let Some(signal) = signals.take() {
            log::info!("{signal} came: ending");
            return Ok(());
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
