//! The socket file: made with its permissions, kept apart from another daemon's, removed at the
//! end.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread::Builder;

use rnic_host::{files, privileges};
use rnic_ipc::find::DEFAULT_SOCKET;
use rnic_ipc::threads;
use rnic_ipc::transport::{Channel, ChannelListener, TransportError};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::thread::CapabilitySet;

/// Clients that wait to be accepted.
const BACKLOG: i32 = 64;

/// A socket file that is ours. Dropping it removes the file.
#[derive(Debug)]
pub(crate) struct SocketFile {
    listener: ChannelListener,
    path: PathBuf,
    /// Device and inode number, by which a file that took our place is known.
    identity: (u64, u64),
}

/// Why the socket can't be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SocketError {
    #[error(
        "can't listen on {}: another rnicd answers there: end it, or name another socket with --socket",
        path.display()
    )]
    Taken { path: PathBuf },
    /// There is something else.
    #[error(
        "can't listen on {}: a file that is no socket is there: name another with --socket",
        path.display()
    )]
    NotASocket { path: PathBuf },
    /// It is not the daemon's to give away.
    #[error(
        "socket {} asked of group {group}, but the kernel refuses: {source}: make the daemon's user a member \
         of it (SupplementaryGroups= in its systemd unit), or name one of its groups with --socket-group",
        path.display()
    )]
    Group {
        path: PathBuf,
        group: u32,
        source: io::Error,
    },
    /// The file system refused.
    #[error(
        "can't listen on {}: {what}: {source}: name one with --socket in a directory that exists \
         and may be written to",
        path.display()
    )]
    Host {
        path: PathBuf,
        what: &'static str,
        source: io::Error,
    },
}

/// Makes the directory of the host's socket, at `path`, if it is not there: nobody named it, so only a service
/// manager may have made it. Everybody may enter it: the socket file says who may connect.
pub(crate) fn make_directory(path: &Path) -> Result<(), SocketError> {
    let Some(directory) = path.parent() else {
        return Ok(());
    };
    match fs::create_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        made => made.map_err(|source| host(path, "its directory can't be made", source))?,
    }
    // Whatever the umask is.
    fs::set_permissions(directory, fs::Permissions::from_mode(0o755))
        .map_err(|source| host(path, "its directory's permissions can't be set", source))
}

impl SocketFile {
    /// Why [`Self::clear`] and [`Self::bind`] would fail, found out without changing anything. Whoever is the
    /// daemon there is connected to, and left again.
    pub(crate) fn check(path: &Path, group: Option<u32>) -> Vec<SocketError> {
        let made_at_the_start = path == Path::new(DEFAULT_SOCKET) && !directory_of(path).exists();
        let checked = match made_at_the_start {
            true => directory_of(path),
            false => path,
        };
        let place = find(checked).and_then(|_| {
            let writable = files::check_directory(checked);
            writable.map_err(|source| host(path, "its directory can't be written to", source))
        });
        let group = group.map_or(Ok(()), |group| check_group(path, group));
        place.err().into_iter().chain(group.err()).collect()
    }

    /// Looks whether the path can be had, and removes what a daemon that was killed left there.
    pub(crate) fn clear(path: &Path) -> Result<(), SocketError> {
        if find(path)? == Found::Stale {
            log::info!(
                "removing the socket {} of a daemon that is gone",
                path.display()
            );
            fs::remove_file(path)
                .map_err(|source| host(path, "the stale one can't be removed", source))?;
        }
        Ok(())
    }

    /// Makes the socket, of this group or of the daemon's own. Until it has its permissions nobody
    /// may connect.
    pub(crate) fn bind(path: &Path, mode: u32, group: Option<u32>) -> Result<Self, SocketError> {
        let old = rustix::process::umask(Mode::from_raw_mode(0o777));
        let bound = ChannelListener::bind(path, BACKLOG);
        rustix::process::umask(old);
        let listener = bound.map_err(|error| match error {
            TransportError::Bind {
                errno: Errno::ADDRINUSE,
                ..
            } => SocketError::Taken {
                path: path.to_owned(),
            },
            TransportError::Bind { errno, .. } => host(path, "it can't be made", errno.into()),
            error => host(
                path,
                "it can't be made",
                io::Error::other(error.to_string()),
            ),
        })?;
        let found = fs::symlink_metadata(path)
            .map_err(|source| host(path, "it can't be looked at", source))?;
        let identity = (found.dev(), found.ino());
        let file = Self {
            listener,
            path: path.to_owned(),
            identity,
        };
        if let Some(group) = group {
            std::os::unix::fs::chown(path, None, Some(group)).map_err(|source| {
                SocketError::Group {
                    path: path.to_owned(),
                    group,
                    source,
                }
            })?;
        }
        fs::set_permissions(path, fs::Permissions::from_mode(mode))
            .map_err(|source| host(path, "its permissions can't be set", source))?;
        Ok(file)
    }

    /// Removes the file now; the socket is closed by a thread that nobody waits for, because
    /// clients in its queue may have sent descriptors that are slow to close.
    pub(crate) fn retire(self) {
        self.remove();
        let closing = threads::spawn(Builder::new(), move || drop(self));
        if let Err(error) = closing {
            log::warn!("no thread to close the socket: {error}");
        }
    }

    fn remove(&self) {
        let ours = fs::symlink_metadata(&self.path)
            .is_ok_and(|found| (found.dev(), found.ino()) == self.identity);
        if ours && let Err(error) = fs::remove_file(&self.path) {
            log::warn!("the socket {} stays: {error}", self.path.display());
        }
    }

    /// Where clients come in.
    pub(crate) fn listener(&self) -> &ChannelListener {
        &self.listener
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        self.remove();
    }
}

/// What is where the socket is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Nothing,
    /// The socket of a daemon that is gone.
    Stale,
}

/// What is at a path; an error if the path can't be had.
fn find(path: &Path) -> Result<Found, SocketError> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return directory(path).map(|()| Found::Nothing);
        }
        Err(source) => return Err(host(path, "it can't be looked at", source)),
        Ok(found) => found,
    };
    if !found.file_type().is_socket() {
        return Err(SocketError::NotASocket {
            path: path.to_owned(),
        });
    }
    match Channel::connect(path) {
        Ok(_) => Err(SocketError::Taken {
            path: path.to_owned(),
        }),
        Err(TransportError::Connect {
            errno: Errno::CONNREFUSED,
            ..
        }) => Ok(Found::Stale),
        // A full backlog, or a socket of another type: somebody is there.
        Err(TransportError::Connect {
            errno: Errno::AGAIN | Errno::PROTOTYPE,
            ..
        }) => Err(SocketError::Taken {
            path: path.to_owned(),
        }),
        Err(error) => Err(host(
            path,
            "it can't be connected to",
            io::Error::other(error.to_string()),
        )),
    }
}

/// That the socket could be given to this group.
fn check_group(path: &Path, group: u32) -> Result<(), SocketError> {
    let own = || {
        let effective = rustix::process::getegid();
        let others = rustix::process::getgroups().unwrap_or_default();
        others
            .into_iter()
            .chain([effective])
            .any(|own| own.as_raw() == group)
    };
    let refused = |errno: Errno| SocketError::Group {
        path: path.to_owned(),
        group,
        source: errno.into(),
    };
    match privileges::missing(CapabilitySet::CHOWN).map_err(refused)? {
        missing if missing.is_empty() || own() => Ok(()),
        _ => Err(refused(Errno::PERM)),
    }
}

fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// That a socket could be made there.
fn directory(path: &Path) -> Result<(), SocketError> {
    match fs::metadata(directory_of(path)) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(host(
            path,
            "its directory is none",
            io::ErrorKind::NotADirectory.into(),
        )),
        Err(source) => Err(host(path, "its directory can't be looked at", source)),
    }
}

fn host(path: &Path, what: &'static str, source: io::Error) -> SocketError {
    SocketError::Host {
        path: path.to_owned(),
        what,
        source,
    }
}

#[cfg(test)]
mod tests;
