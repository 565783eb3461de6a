//! Why the daemon would not start on this host, found out without opening anything.

use rnic_device::Devices;
use rnic_host::privileges;
use rustix::io::Errno;
use rustix::thread::CapabilitySet;

use crate::metrics::MetricsListener;
use crate::names;
use crate::serve::ServeError;
use crate::settings::Settings;
use crate::socket::SocketFile;

/// Everything that would keep the caller from starting the daemon with these settings.
pub(crate) fn faults(settings: &Settings) -> Vec<ServeError> {
    let mut faults: Vec<_> = user_fault(settings).into_iter().collect();
    let socket = SocketFile::check(&settings.own.socket, settings.own.socket_group);
    faults.extend(socket.into_iter().map(ServeError::from));
    let metrics = settings
        .own
        .metrics
        .as_ref()
        .and_then(MetricsListener::check);
    faults.extend(metrics.map(ServeError::from));
    let devices = Devices::check(&settings.devices, settings.on_missing());
    faults.extend(devices.into_iter().map(ServeError::from));
    faults
}

/// That the user of `--user` can't be switched to.
fn user_fault(settings: &Settings) -> Option<ServeError> {
    let user = settings.user?;
    let needed = CapabilitySet::SETUID | CapabilitySet::SETGID;
    let errno = match privileges::missing(needed) {
        Ok(missing) if missing.is_empty() => return None,
        Ok(_) => Errno::PERM,
        Err(errno) => errno,
    };
    Some(ServeError::User {
        user: names::user(user.uid),
        errno,
    })
}

#[cfg(test)]
mod tests;
