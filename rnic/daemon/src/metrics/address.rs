//! Where the metrics are: `unix:PATH`, or an address of the loopback with a port.

use std::fmt;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rnic_host::files;
use rustix::fs::Mode;

/// The socket file's permissions.
const MODE: u32 = 0o660;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MetricsAddress {
    /// A Unix socket: who may scrape its permissions say.
    Unix(PathBuf),
    /// The loopback: everybody on this host, in this network namespace, may.
    Tcp(SocketAddr),
}

impl FromStr for MetricsAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(Self::Unix(PathBuf::from(path)));
        }
        match text.parse::<SocketAddr>() {
            Ok(address) if address.ip().is_loopback() => Ok(Self::Tcp(address)),
            Ok(address) => Err(format!(
                "{address} is not of the loopback, and what the RNIC counts is not for the network: \
                 give 127.0.0.1:PORT, [::1]:PORT or unix:PATH, and have a proxy go on from there"
            )),
            Err(_) => Err("give 127.0.0.1:PORT, [::1]:PORT or unix:PATH".to_owned()),
        }
    }
}

impl fmt::Display for MetricsAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => address.fmt(f),
        }
    }
}

/// Whether a socket file is there without a listener.
fn is_stale(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
        && UnixStream::connect(path).is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused)
}

/// That [`bind_unix`] could make the socket file.
pub(super) fn check_unix(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path).is_ok() && !is_stale(path) {
        return Err(io::ErrorKind::AddrInUse.into());
    }
    files::check_directory(path)
}

/// Makes the socket file, in the place of one without a listener.
pub(super) fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    if is_stale(path) {
        fs::remove_file(path)?;
    }
    // Until it has its permissions no other user may connect.
    let old = rustix::process::umask(Mode::from_raw_mode(0o777));
    let bound = UnixListener::bind(path);
    rustix::process::umask(old);
    let listener = bound?;
    fs::set_permissions(path, fs::Permissions::from_mode(MODE))?;
    Ok(listener)
}
