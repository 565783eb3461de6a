//! The control channel: messages and descriptors over a Unix `SOCK_SEQPACKET` socket.
//!
//! One datagram is one message in postcard's encoding, at most [`CONTROL_MESSAGE_MAX`] bytes, with
//! at most [`DESCRIPTORS_MAX`] descriptors beside it. Anything cut short, undecodable or with bytes
//! left over is an error of the sender's.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::sys::socket::{getsockopt, sockopt};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
    UCred,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

mod authority;

use crate::control::{CONTROL_MESSAGE_MAX, Reply, SHARDS_MAX};

/// The most descriptors beside one message, unless it is a reply.
pub const DESCRIPTORS_MAX: usize = 4;

/// The most descriptors beside a reply: [`Response::Welcome`](crate::control::Response::Welcome) has some for each
/// shard.
pub const REPLY_DESCRIPTORS_MAX: usize = 2 + SHARDS_MAX;

/// One end of a control or event socket. Sending and receiving work from several threads at once;
/// a message is never mixed with another.
#[derive(Debug)]
pub struct Channel {
    socket: OwnedFd,
    /// What every message of root's says: see [`authority`].
    authority: Option<UCred>,
}

/// A message and the descriptors that came with it.
pub type Message<T> = (T, Vec<OwnedFd>);

impl Channel {
    /// Connects to the socket at `path`.
    pub fn connect(path: impl AsRef<Path>) -> Result<Self, TransportError> {
        let path = path.as_ref();
        let failed = |errno| TransportError::Connect {
            path: path.to_owned(),
            errno,
        };
        let address = SocketAddrUnix::new(path).map_err(failed)?;
        let socket = new_socket().map_err(failed)?;
        rustix::net::connect(&socket, &address).map_err(failed)?;
        let mut channel = Self::from_fd(socket);
        channel.authority = authority::claim(&channel)?;
        Ok(channel)
    }

    /// Takes up a connected `SOCK_SEQPACKET` socket.
    pub fn from_fd(socket: OwnedFd) -> Self {
        let authority = None;
        Self { socket, authority }
    }

    /// Two ends joined to each other.
    pub fn pair() -> Result<(Self, Self), TransportError> {
        let (a, b) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .map_err(host("socketpair"))?;
        Ok((Self::from_fd(a), Self::from_fd(b)))
    }

    /// To pass it to another process.
    pub fn into_fd(self) -> OwnedFd {
        self.socket
    }

    /// Sends a message; blocks while the socket's buffer is full.
    pub fn send(
        &self,
        message: &impl Serialize,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), TransportError> {
        self.send_with(message, fds, SendFlags::NOSIGNAL)
    }

    /// Sends a message or fails with [`TransportError::WouldBlock`].
    pub fn try_send(
        &self,
        message: &impl Serialize,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), TransportError> {
        self.send_with(message, fds, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
    }

    fn send_with(
        &self,
        message: &impl Serialize,
        fds: &[BorrowedFd<'_>],
        flags: SendFlags,
    ) -> Result<(), TransportError> {
        if fds.len() > REPLY_DESCRIPTORS_MAX {
            return Err(TransportError::TooManyDescriptors { count: fds.len() });
        }
        let mut buffer = [0; CONTROL_MESSAGE_MAX];
        let bytes = postcard::to_slice(message, &mut buffer).map_err(TransportError::Encode)?;
        let mut authority = self.authority;
        loop {
            let mut space = [MaybeUninit::uninit();
                rustix::cmsg_space!(ScmRights(REPLY_DESCRIPTORS_MAX), ScmCredentials(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            if !fds.is_empty() {
                control.push(SendAncillaryMessage::ScmRights(fds));
            }
            if let Some(claimed) = authority {
                control.push(SendAncillaryMessage::ScmCredentials(claimed));
            }
            let slices = [IoSlice::new(bytes)];
            match rustix::net::sendmsg(&self.socket, &slices, &mut control, flags) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                // This root has no such authority: it is a client like another.
                Err(Errno::PERM | Errno::SRCH) if authority.is_some() => authority = None,
                Err(Errno::AGAIN) => return Err(TransportError::WouldBlock),
                Err(Errno::PIPE | Errno::CONNRESET) => return Err(TransportError::Closed),
                Err(errno) => {
                    return Err(TransportError::Host {
                        call: "sendmsg",
                        errno,
                    });
                }
            }
        }
    }

    /// Waits for a message; `None` when the other side closed.
    pub fn recv<T: DeserializeOwned>(&self) -> Result<Option<Message<T>>, TransportError> {
        self.recv_with(RecvFlags::CMSG_CLOEXEC, DESCRIPTORS_MAX)
    }

    /// As [`Self::recv`], for a reply, which may have more descriptors beside it.
    pub fn recv_reply(&self) -> Result<Option<Message<Reply>>, TransportError> {
        self.recv_with(RecvFlags::CMSG_CLOEXEC, REPLY_DESCRIPTORS_MAX)
    }

    /// Takes a message that is there or fails with [`TransportError::WouldBlock`]; `None` when the
    /// other side closed.
    pub fn try_recv<T: DeserializeOwned>(&self) -> Result<Option<Message<T>>, TransportError> {
        self.recv_with(
            RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT,
            DESCRIPTORS_MAX,
        )
    }

    fn recv_with<T: DeserializeOwned>(
        &self,
        flags: RecvFlags,
        most: usize,
    ) -> Result<Option<Message<T>>, TransportError> {
        let mut buffer = [0; CONTROL_MESSAGE_MAX];
        let mut space =
            [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(REPLY_DESCRIPTORS_MAX))];
        // The kernel opens no more of them than this has room for.
        let space = &mut space[..rustix::cmsg_space!(ScmRights(most))];
        let mut control = RecvAncillaryBuffer::new(space);
        let received = loop {
            let mut slices = [IoSliceMut::new(&mut buffer)];
            match rustix::net::recvmsg(&self.socket, &mut slices, &mut control, flags) {
                Ok(received) => break received,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Err(TransportError::WouldBlock),
                Err(Errno::CONNRESET) => return Ok(None),
                Err(errno) => {
                    return Err(TransportError::Host {
                        call: "recvmsg",
                        errno,
                    });
                }
            }
        };
        // Descriptors are taken first, so that they are closed on every way out.
        let mut fds = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                fds.extend(rights);
            }
        }
        if received.flags.contains(ReturnFlags::TRUNC) {
            return Err(TransportError::TooLong);
        }
        // The control buffer is rounded up, so one too many may fit it.
        if received.flags.contains(ReturnFlags::CTRUNC) || fds.len() > most {
            return Err(TransportError::TooManyDescriptors { count: most + 1 });
        }
        let bytes = buffer.get(..received.bytes).unwrap_or(&[]);
        if bytes.is_empty() {
            return Ok(None);
        }
        let (message, rest) = postcard::take_from_bytes(bytes).map_err(TransportError::Decode)?;
        if !rest.is_empty() {
            return Err(TransportError::Trailing { bytes: rest.len() });
        }
        Ok(Some((message, fds)))
    }

    /// Who connected, as the kernel attests (`SO_PEERCRED`).
    pub fn peer_credentials(&self) -> Result<PeerCredentials, TransportError> {
        // Not rustix's: to that a process id is never 0.
        let found = getsockopt(&self.socket, sockopt::PeerCredentials).map_err(|errno| {
            let errno = Errno::from_raw_os_error(errno as i32);
            host("getsockopt(SO_PEERCRED)")(errno)
        })?;
        Ok(PeerCredentials {
            pid: found.pid(),
            uid: found.uid(),
            gid: found.gid(),
        })
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A process, at the moment it connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerCredentials {
    /// Process id; 0 for a process that this PID namespace does not see, as in a container.
    pub pid: i32,
    /// Effective user id.
    pub uid: u32,
    /// Effective group id.
    pub gid: u32,
}

/// A socket in the file system that clients connect to.
#[derive(Debug)]
pub struct ChannelListener {
    socket: OwnedFd,
}

impl ChannelListener {
    /// Binds `path`, which must not exist, and listens.
    pub fn bind(path: impl AsRef<Path>, backlog: i32) -> Result<Self, TransportError> {
        let path = path.as_ref();
        let failed = |errno| TransportError::Bind {
            path: path.to_owned(),
            errno,
        };
        let address = SocketAddrUnix::new(path).map_err(failed)?;
        let socket = new_socket().map_err(failed)?;
        rustix::net::bind(&socket, &address).map_err(failed)?;
        rustix::net::listen(&socket, backlog).map_err(failed)?;
        Ok(Self { socket })
    }

    /// Waits for a client.
    pub fn accept(&self) -> Result<Channel, TransportError> {
        loop {
            match rustix::net::accept_with(&self.socket, SocketFlags::CLOEXEC) {
                Ok(socket) => return Ok(Channel::from_fd(socket)),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(errno) => {
                    return Err(TransportError::Host {
                        call: "accept4",
                        errno,
                    });
                }
            }
        }
    }
}

impl AsFd for ChannelListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn new_socket() -> Result<OwnedFd, Errno> {
    rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
}

fn host(call: &'static str) -> impl Fn(Errno) -> TransportError {
    move |errno| TransportError::Host { call, errno }
}

/// What can go wrong with a control channel.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// Nothing there now, or no room now. Only from the `try_` calls.
    #[error("the call would block")]
    WouldBlock,
    /// The other side is gone.
    #[error("the other side closed the control socket")]
    Closed,
    /// The socket can't be connected to.
    #[error("can't connect to {}: {errno}", path.display())]
    Connect {
        /// The socket's path.
        path: PathBuf,
        /// The kernel's error.
        errno: Errno,
    },
    /// The socket can't be made.
    #[error("can't listen on {}: {errno}", path.display())]
    Bind {
        /// The socket's path.
        path: PathBuf,
        /// The kernel's error.
        errno: Errno,
    },
    /// The sender's fault: longer than [`CONTROL_MESSAGE_MAX`].
    #[error("a control message of more than {CONTROL_MESSAGE_MAX} bytes came")]
    TooLong,
    /// The sender's fault: more than [`DESCRIPTORS_MAX`], or this process can't open more.
    #[error(
        "{count} descriptors or more beside a message, where {DESCRIPTORS_MAX} are possible; or \
         this process reached its limit of open files"
    )]
    TooManyDescriptors {
        /// At least so many.
        count: usize,
    },
    /// The message does not fit [`CONTROL_MESSAGE_MAX`] bytes.
    #[error("can't encode a control message into {CONTROL_MESSAGE_MAX} bytes: {0}")]
    Encode(postcard::Error),
    /// The sender's fault, or another version.
    #[error("can't decode a control message: {0}; are both ends of one version?")]
    Decode(postcard::Error),
    /// The sender's fault, or another version.
    #[error("{bytes} bytes too many after a control message; are both ends of one version?")]
    Trailing {
        /// Bytes left over.
        bytes: usize,
    },
    /// The host's refusal.
    #[error("{call} on a control socket failed: {errno}")]
    Host {
        /// The system call.
        call: &'static str,
        errno: Errno,
    },
}

#[cfg(test)]
mod tests;
