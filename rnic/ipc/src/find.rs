//! Finding the daemon: where its socket may be, and which of these places answers.
//!
//! A place that the user named, by `--socket` or by `RNIC_SOCKET`, is the only one: a program that was
//! told to use one daemon never uses another. Without a name the user's own daemon comes before that of
//! the host.
//!
//! A daemon reads and writes the memory of its clients. So wherever one is found, it is used only if it is this
//! user's or root's, or where root or this user gave it the place. Nothing is sent to another.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::transport::{Channel, TransportError};

pub mod directory;
mod environment;
mod forbidden;

use directory::{Authority, Directory, DirectoryError};
pub use environment::variable;

/// Where the daemon of the host listens, and clients look last. It has a directory of its own, which a service
/// manager makes for it and a container can be given.
pub const DEFAULT_SOCKET: &str = "/run/rnicd/rnicd.sock";

/// The name of a daemon's socket in the user's runtime directory (`XDG_RUNTIME_DIR`).
pub const SOCKET_NAME: &str = "rnicd.sock";

/// The environment variable that names a daemon's socket.
pub const SOCKET_VARIABLE: &str = "RNIC_SOCKET";

/// The environment variable that names the user's runtime directory.
pub const RUNTIME_VARIABLE: &str = "XDG_RUNTIME_DIR";

/// The socket of the user's own daemon: in the runtime directory, if there is one. A relative path is
/// none, as the XDG Base Directory Specification says.
#[must_use]
pub fn runtime_socket() -> Option<PathBuf> {
    runtime_socket_of(variable(RUNTIME_VARIABLE))
}

fn runtime_socket_of(directory: Option<OsString>) -> Option<PathBuf> {
    let directory = PathBuf::from(directory?);
    directory.is_absolute().then(|| directory.join(SOCKET_NAME))
}

/// The places where clients look, in order. `socket` is what the command line says.
#[must_use]
pub fn places(socket: Option<&Path>) -> Vec<Place> {
    places_of(socket, variable)
}

fn places_of(socket: Option<&Path>, variable: impl Fn(&str) -> Option<OsString>) -> Vec<Place> {
    if let Some(path) = socket {
        return vec![Place::new(path, Origin::Named)];
    }
    if let Some(path) = variable(SOCKET_VARIABLE).filter(|path| !path.is_empty()) {
        return vec![Place::new(path, Origin::Variable)];
    }
    let own = runtime_socket_of(variable(RUNTIME_VARIABLE));
    let own = own.map(|path| Place::new(path, Origin::Runtime));
    let host = Place::new(DEFAULT_SOCKET, Origin::Host);
    own.into_iter().chain([host]).collect()
}

/// Connects to the first place that answers; says which it was.
///
/// # Errors
///
/// [`NotFound`], with each place that was tried.
pub fn connect(places: Vec<Place>) -> Result<(Channel, PathBuf), NotFound> {
    let mut tried = Vec::with_capacity(places.len());
    for place in places {
        match connect_to(&place) {
            Ok(channel) => return Ok((channel, place.path)),
            Err(fault) => tried.push(Tried { place, fault }),
        }
    }
    Err(NotFound { tried })
}

fn connect_to(place: &Place) -> Result<Channel, Fault> {
    if place.origin == Origin::Runtime
        && let Some(directory) = place.path.parent()
        && let Err(DirectoryError::Open(found)) = directory::own(directory)
    {
        return Err(Fault::Directory(found));
    }
    // Nobody but those who decide what is there can have it changed between this and the connection.
    let authority = directory::authority(&place.path);
    let path = match &authority {
        Authority::Own(path) | Authority::Service { path, .. } => path,
        Authority::Others => &place.path,
    };
    let channel = Channel::connect(path)?;
    let uid = channel.peer_credentials()?.uid;
    let own = rustix::process::geteuid().as_raw();
    match is_trusted(uid, own, &authority) {
        true => Ok(channel),
        false => Err(Fault::OtherUser { uid }),
    }
}

/// Whether a daemon may have this user's memory.
fn is_trusted(daemon: u32, own: u32, authority: &Authority) -> bool {
    let given = match authority {
        Authority::Own(_) => true,
        Authority::Service { owner, .. } => *owner == daemon || *owner == 0,
        Authority::Others => false,
    };
    let is_known = daemon != OVERFLOW || all_users_have_numbers();
    given || (is_known && (daemon == own || daemon == 0))
}

/// Stands for every user who has no number in this user namespace (`/proc/sys/fs/overflowuid`).
const OVERFLOW: u32 = 65534;

/// Whether this user namespace has a number for each user of the host.
fn all_users_have_numbers() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let lengths = map.split_whitespace().skip(2).step_by(3);
    let users: u64 = lengths
        .filter_map(|length| length.parse::<u64>().ok())
        .sum();
    users >= u64::from(u32::MAX)
}

impl From<TransportError> for Fault {
    fn from(error: TransportError) -> Self {
        match error {
            TransportError::Connect { errno, .. } | TransportError::Host { errno, .. } => {
                Self::Kernel(errno)
            }
            _ => Self::Kernel(Errno::IO),
        }
    }
}

/// A path where a daemon may listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The socket's path.
    pub path: PathBuf,
    /// Why it is looked for there.
    pub origin: Origin,
}

impl Place {
    fn new(path: impl Into<PathBuf>, origin: Origin) -> Self {
        let path = path.into();
        Self { path, origin }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match self.origin {
            Origin::Named | Origin::Host => write!(f, "{path}"),
            Origin::Variable => write!(f, "{path} (from {SOCKET_VARIABLE})"),
            Origin::Runtime => write!(f, "{path} (from {RUNTIME_VARIABLE})"),
        }
    }
}

/// Why a daemon is looked for at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The command line or the program says so.
    Named,
    /// `RNIC_SOCKET` says so.
    Variable,
    /// It is the user's own daemon's place.
    Runtime,
    /// It is the host's daemon's place.
    Host,
}

/// No daemon answers at any place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotFound {
    /// The places, in the order in which they were tried.
    pub tried: Vec<Tried>,
}

/// A place where no daemon answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tried {
    pub place: Place,
    /// What is wrong there.
    pub fault: Fault,
}

/// Why a place can't be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The kernel said so.
    Kernel(Errno),
    /// The daemon is another user's, who put it there.
    OtherUser { uid: u32 },
    /// The runtime directory is not this user's alone.
    Directory(Directory),
}

impl Tried {
    /// Whether the socket is there, and this user may not use it.
    #[must_use]
    pub fn is_forbidden(&self) -> bool {
        matches!(self.fault, Fault::Kernel(Errno::ACCESS | Errno::PERM))
    }
}

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = match &self.fault {
            Fault::Kernel(Errno::NOENT) => "no such socket".to_owned(),
            Fault::Kernel(Errno::CONNREFUSED) => {
                "the socket is there, but no daemon listens on it".to_owned()
            }
            Fault::Kernel(Errno::ACCESS | Errno::PERM) => {
                "this user may not use the socket".to_owned()
            }
            Fault::Kernel(errno) => errno.to_string(),
            Fault::OtherUser { uid } => format!(
                "a daemon of user {uid}, who could read and write this program's memory by it: run the program \
                 as that user, or name a daemon of this user's or root's"
            ),
            Fault::Directory(found) => format!(
                "{found}: set {RUNTIME_VARIABLE} to a directory of this user's with mode 0700, or unset it"
            ),
        };
        write!(f, "{}: {found}", self.place)
    }
}

impl NotFound {
    /// What the user can do about it.
    fn advice(&self) -> String {
        // One that is there needs no other beside it.
        if let Some(Tried { place, .. }) = self.tried.iter().find(|tried| tried.is_forbidden()) {
            return forbidden::advice(&place.path);
        }
        let named = self.tried.iter().all(|tried| {
            let Tried { place, .. } = tried;
            matches!(place.origin, Origin::Named | Origin::Variable)
        });
        match self.tried.first() {
            Some(Tried { place, .. }) if named => format!(
                "start it with `rnicd --interface <interface> --socket {}`, or name the socket of \
                 another",
                place.path.display()
            ),
            _ => format!(
                "start one with `rnicd --interface <interface>`, or name its socket with `--socket` \
                 or {SOCKET_VARIABLE}; `rnic-run` runs a program with a loopback daemon of its own"
            ),
        }
    }
}

impl fmt::Display for NotFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tried: Vec<_> = self.tried.iter().map(Tried::to_string).collect();
        let tried = tried.join(", nor at ");
        write!(f, "no RNIC daemon answers at {tried}; {}", self.advice())
    }
}

impl std::error::Error for NotFound {}

#[cfg(test)]
mod tests;
