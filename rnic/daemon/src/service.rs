//! What a service manager is notified of (sd_notify(3)): ready, alive, stopping. Without one, nothing is sent.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// A service manager that wants to know.
#[derive(Debug, Default)]
pub(crate) struct Service {
    manager: Option<UnixDatagram>,
    watchdog: Option<Duration>,
}

impl Service {
    /// As the environment says: `NOTIFY_SOCKET`, and `WATCHDOG_USEC` with `WATCHDOG_PID`.
    pub(crate) fn from_environment() -> Self {
        let Some(name) = std::env::var_os("NOTIFY_SOCKET") else {
            return Self::default();
        };
        let manager = connect(&name);
        if let Err(error) = &manager {
            log::warn!(
                "NOTIFY_SOCKET {} can't be used: {error}",
                name.to_string_lossy()
            );
        }
        let for_another =
            std::env::var("WATCHDOG_PID").is_ok_and(|pid| pid != std::process::id().to_string());
        let watchdog = std::env::var("WATCHDOG_USEC")
            .ok()
            .filter(|_| !for_another)
            .and_then(|text| text.parse().ok())
            .map(Duration::from_micros);
        Self {
            manager: manager.ok(),
            watchdog,
        }
    }

    /// How often [`Self::alive`] is to be sent: twice in the time that the manager waits.
    pub(crate) fn period(&self) -> Option<Duration> {
        self.manager
            .as_ref()
            .and(self.watchdog)
            .map(|time| time / 2)
    }

    /// Clients are served.
    pub(crate) fn ready(&self) {
        self.tell("READY=1");
    }

    /// The configuration is read again by `reload`, which is then over. Both are sent, as
    /// `Type=notify-reload` wants it.
    pub(crate) fn reloading(&self, reload: impl FnOnce()) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let micros = now.tv_sec * 1_000_000 + now.tv_nsec / 1000;
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
        reload();
        self.ready();
    }

    pub(crate) fn alive(&self) {
        self.tell("WATCHDOG=1");
    }

    /// A signal came.
    pub(crate) fn stopping(&self) {
        self.tell("STOPPING=1");
    }

    fn tell(&self, words: &str) {
        if let Some(manager) = &self.manager
            && let Err(error) = manager.send(words.as_bytes())
        {
            log::warn!("the service manager is not told {words}: {error}");
        }
    }
}

/// A path, or `@` and a name in Linux's abstract namespace.
fn connect(name: &OsStr) -> std::io::Result<UnixDatagram> {
    let address = match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    // A manager that does not read is told nothing; nobody waits for it.
    socket.set_nonblocking(true)?;
    Ok(socket)
}
