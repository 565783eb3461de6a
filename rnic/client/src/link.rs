//! The way that requests go: the daemon's control socket, or a device in this process.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;

use rnic_device::ClientSession;
use rnic_ipc::control::{Reply, Request, Response};
use rnic_ipc::id::QpNum;
use rnic_ipc::transport::Channel;
use rustix::io::Errno;

use crate::error::Error;
use crate::wait::lock;

/// One client's way to its RNIC.
#[derive(Debug)]
pub(crate) enum Link {
    /// A request and its reply are one turn on the socket.
    Daemon(Mutex<Channel>),
    /// The same requests without a socket.
    Embedded(ClientSession),
}

impl Link {
    /// Carries out a request. Several threads' requests go one after the other.
    pub(crate) fn request(
        &self,
        request: &Request,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(Response, Vec<OwnedFd>), Error> {
        let (reply, fds) = match self {
            Self::Daemon(channel) => {
                let channel = lock(channel);
                channel.send(request, fds)?;
                channel.recv::<Reply>()?.ok_or(Error::DaemonGone)?
            }
            Self::Embedded(session) => {
                let fds: std::io::Result<Vec<_>> =
                    fds.iter().map(BorrowedFd::try_clone_to_owned).collect();
                let fds = fds.map_err(|error| Error::Io {
                    call: "fcntl(F_DUPFD_CLOEXEC)",
                    errno: Errno::from_io_error(&error).unwrap_or(Errno::MFILE),
                })?;
                session.request(request.clone(), fds)
            }
        };
        Ok((reply?, fds))
    }

    /// The session of a client whose RNIC is in this process.
    pub(crate) fn session(&self) -> Option<&ClientSession> {
        match self {
            Self::Daemon(_) => None,
            Self::Embedded(session) => Some(session),
        }
    }

    /// Gives the engine a turn when nobody else does; says whether it had work.
    pub(crate) fn drive(&self) -> bool {
        match self {
            Self::Daemon(_) => false,
            Self::Embedded(session) => session.device().drive(),
        }
    }

    /// Has an engine that lives on [`Self::drive`] send what was just posted to this queue pair, if it has
    /// nothing else to do; else its doorbell is to be rung.
    pub(crate) fn transmit_posted(&self, qp: QpNum) -> bool {
        match self {
            Self::Daemon(_) => false,
            Self::Embedded(session) => session.transmit_posted(qp),
        }
    }

    /// Whether the engine has no thread of its own and lives on [`Self::drive`].
    pub(crate) fn is_inline(&self) -> bool {
        match self {
            Self::Daemon(_) => false,
            Self::Embedded(session) => session.device().is_inline(),
        }
    }
}

/// The descriptors of a reply, when there are as many as the reply must have.
pub(crate) fn descriptors<const N: usize>(fds: Vec<OwnedFd>) -> Result<[OwnedFd; N], Error> {
    fds.try_into().map_err(|fds: Vec<OwnedFd>| {
        Error::protocol(format!(
            "a reply with {} descriptors instead of {N}",
            fds.len()
        ))
    })
}

/// The error for a reply of another kind than the request asks for.
pub(crate) fn unexpected(reply: &Response) -> Error {
    Error::protocol(format!("an unexpected reply {reply:?}"))
}

/// Borrows descriptors for sending.
pub(crate) fn borrow(fd: &impl AsFd) -> [BorrowedFd<'_>; 1] {
    [fd.as_fd()]
}
