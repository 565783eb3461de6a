//! Whose a path is: who could put another file in its place.
//!
//! Whoever may write to a directory decides what its names lead to. So a path is as much to be trusted as the
//! least trusted directory on it. Links are followed first: what is looked at is what the kernel would open.

use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where root makes a directory for each service (`RuntimeDirectory=` of a systemd unit). Those of users are
/// one level further down.
const SERVICES: &str = "/run";

/// Group and others.
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// Of a directory that is open to all: everybody's names are their own, as in `/tmp`.
const STICKY: u32 = 0o1000;
const ROOT: u32 = 0;
/// Bytes of the longest path that a socket's address has room for (unix(7)).
const SOCKET_PATH_MAX: usize = 107;

/// A directory as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory {
    /// Its path, without links.
    pub path: PathBuf,
    pub owner: u32,
    /// Its permissions.
    pub mode: u32,
}

impl Directory {
    fn look(path: &Path) -> io::Result<Self> {
        let found = path.symlink_metadata()?;
        match found.is_dir() {
            true => Ok(Self {
                path: path.to_owned(),
                owner: found.uid(),
                mode: found.mode(),
            }),
            false => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    /// Whether only its owner makes and removes files in it.
    fn is_closed(&self) -> bool {
        self.mode & WRITABLE_BY_OTHERS == 0
    }

    /// Whether nobody but its owner removes what another made in it.
    fn keeps_files(&self) -> bool {
        self.is_closed() || self.mode & STICKY != 0
    }
}

impl fmt::Display for Directory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, owner, mode } = self;
        let (path, mode) = (path.display(), mode & 0o7777);
        write!(
            f,
            "{path} is of user {owner} with mode {mode:04o}, so that another user can change what is in it"
        )
    }
}

/// Why a directory is not taken.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// It is not to be trusted.
    #[error("{0}")]
    Open(Directory),
    /// The kernel says so.
    #[error("{0}")]
    Host(#[from] io::Error),
}

/// The real path of a directory that is this user's own, and that nobody else can change or replace.
///
/// # Errors
/// The directory on its path that somebody else can change; what the kernel says.
pub fn own(path: &Path) -> Result<PathBuf, DirectoryError> {
    let user = own_user();
    let found = look(path, user)?;
    match found.is_closed() && found.owner == user {
        true => Ok(found.path),
        false => Err(DirectoryError::Open(found)),
    }
}

/// The same of a directory in which everybody may make their own files, but change nobody else's.
///
/// # Errors
/// As of [`own`].
pub fn for_own_files(path: &Path) -> Result<PathBuf, DirectoryError> {
    Ok(look(path, own_user())?.path)
}

/// Who decides what is at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Authority {
    /// This user or root, and nobody else.
    Own(PathBuf),
    /// The owner of a service's directory, to whom root gave it.
    Service {
        /// The path without links.
        path: PathBuf,
        owner: u32,
    },
    Others,
}

/// Who decides what is at the path of a socket, as far as it can be found out.
pub(super) fn authority(socket: &Path) -> Authority {
    let path = match socket.canonicalize() {
        // Links of procfs (`/proc/PID/root`) lead elsewhere than they say.
        Ok(path) if path.as_os_str().len() <= SOCKET_PATH_MAX && is_same_file(socket, &path) => {
            path
        }
        _ => return Authority::Others,
    };
    let Some(directory) = path.parent() else {
        return Authority::Others;
    };
    match look(directory, own_user()) {
        Ok(found) if found.is_closed() => Authority::Own(path),
        _ => service(directory).map_or(Authority::Others, |owner| Authority::Service {
            path: path.clone(),
            owner,
        }),
    }
}

fn is_same_file(a: &Path, b: &Path) -> bool {
    let file = |path: &Path| path.metadata().map(|found| (found.dev(), found.ino()));
    match (file(a), file(b)) {
        (Ok(a), Ok(b)) => a == b,
        _ => false,
    }
}

/// The owner of a directory that root gave to a service.
fn service(directory: &Path) -> Option<u32> {
    let of_services = Path::new(SERVICES);
    if directory.parent()? != of_services {
        return None;
    }
    // In a user namespace in which the host's root has no number, it is who owns the root directory.
    let root = Directory::look(Path::new("/")).ok()?.owner;
    let above = Directory::look(of_services).ok()?;
    let found = Directory::look(directory).ok()?;
    let given = above.owner == root && above.is_closed() && found.is_closed();
    given.then_some(found.owner)
}

fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// A directory, if nobody but `user` and root can change which it is.
fn look(directory: &Path, user: u32) -> Result<Directory, DirectoryError> {
    let real = directory.canonicalize()?;
    let directory = Directory::look(&real)?;
    let root = Directory::look(Path::new("/"))?.owner;
    for path in real.ancestors() {
        let found = Directory::look(path)?;
        // Whoever owns the root directory is root, also in a user namespace that has no number for it.
        let is_roots = found.owner == ROOT || (path != real && found.owner == root);
        if !(found.owner == user || is_roots) || !found.keeps_files() {
            return Err(DirectoryError::Open(found));
        }
    }
    Ok(directory)
}
