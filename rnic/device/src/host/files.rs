//! Whether files could be made or written, found out without doing so.
//!
//! It holds for the calling thread as it is now: with its effective user and capabilities.

use std::io;
use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;

/// That a file could be made at `path`, where none is: its directory is there, and may be written to.
///
/// # Errors
///
/// The kernel's.
pub fn check_directory(path: &Path) -> io::Result<()> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if !std::fs::metadata(directory)?.is_dir() {
        return Err(Errno::NOTDIR.into());
    }
    may(directory, Access::WRITE_OK | Access::EXEC_OK)
}

/// That a file could be written at `path`, whether one is there or not.
///
/// # Errors
///
/// The kernel's.
pub fn check_file(path: &Path) -> io::Result<()> {
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => Err(Errno::ISDIR.into()),
        Ok(_) => may(path, Access::WRITE_OK),
        Err(error) if error.kind() == io::ErrorKind::NotFound => check_directory(path),
        Err(error) => Err(error),
    }
}

/// The first port that needs no privilege, in the network namespace of the calling thread; `None` where the kernel does
/// not say.
pub(crate) fn unprivileged_port_start() -> Option<u16> {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    text.ok()?.trim().parse().ok()
}

fn may(path: &Path, access: Access) -> io::Result<()> {
    Ok(accessat(CWD, path, access, AtFlags::EACCESS)?)
}
