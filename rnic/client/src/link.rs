//! The way that requests go: the daemon's control socket, or a device in this process.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;
use std::time::Duration;

use rnic_ipc::control::{Request, Response};
use rnic_ipc::id::QpNum;
use rnic_ipc::transport::Channel;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::SocketAddrUnix;

use crate::error::Error;
use crate::session::Session;
use crate::wait::lock;

/// How long a daemon may take for an answer before the log says so. It may have to find the way to a peer first.
const PATIENCE: Duration = Duration::from_secs(5);

/// One client's way to its RNIC.
#[derive(Debug)]
pub(crate) enum Link {
    /// A request and its reply are one turn on the socket.
    Daemon(Mutex<Channel>),
    /// The same requests without a socket.
    #[cfg_attr(not(feature = "embedded"), expect(dead_code))]
    Embedded(Session),
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
                wait_for_reply(&channel, request, PATIENCE, |sentence| {
                    log::warn!("{sentence}")
                });
                channel.recv_reply()?.ok_or(Error::DaemonGone)?
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
    pub(crate) fn session(&self) -> Option<&Session> {
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

/// Returns when a reply is there, or the daemon gone. A daemon that is alive but does not answer is waited for
/// without a limit; when it takes longer than `patience`, `say` is told so, once.
fn wait_for_reply(
    channel: &Channel,
    request: &Request,
    patience: Duration,
    say: impl FnOnce(String),
) {
    let timeout = Timespec::try_from(patience).ok();
    let mut fds = [PollFd::new(channel, PollFlags::IN)];
    // Where it can't be waited for, receiving waits.
    if rustix::event::poll(&mut fds, timeout.as_ref()) != Ok(0) {
        return;
    }
    let peer = rustix::net::getpeername(channel).ok();
    let path = peer.and_then(|peer| SocketAddrUnix::try_from(peer?).ok());
    let path = path.and_then(|peer| Some(peer.path()?.to_string_lossy().into_owned()));
    let of = path.map_or_else(String::new, |path| format!(" at {path}"));
    let asked = format!("{request:?}");
    let asked = asked.split([' ', '(']).next().unwrap_or_default();
    say(format!(
        "the daemon{of} has not answered {asked} for {} s: still waiting (is it stopped?)",
        patience.as_secs()
    ));
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use rnic_ipc::control::Reply;
    use std::os::unix::net::UnixListener;

    use rustix::net::{AddressFamily, SocketFlags, SocketType};

    use super::*;

    const SHORT: Duration = Duration::from_millis(20);

    fn said(channel: &Channel) -> Option<String> {
        let mut said = None;
        wait_for_reply(channel, &Request::QueryDevice, SHORT, |sentence| {
            said = Some(sentence);
        });
        said
    }

    #[test]
    fn a_daemon_that_does_not_answer_is_named() {
        let path = std::env::temp_dir().join(format!("silent-{}.sock", std::process::id()));
        let _silent = UnixListener::bind(&path).unwrap();
        let flags = SocketFlags::CLOEXEC;
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        rustix::net::connect(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        let sentence = said(&Channel::from_fd(socket)).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(sentence.contains(path.to_str().unwrap()), "{sentence}");
        assert!(sentence.contains("QueryDevice"), "{sentence}");
    }

    #[test]
    fn nothing_is_said_of_a_daemon_that_answers_or_is_gone() {
        let (ours, theirs) = Channel::pair().unwrap();
        theirs.send(&Reply::Ok(Response::Done), &[]).unwrap();
        assert_eq!(said(&ours), None);
        assert!(ours.recv_reply().unwrap().is_some());
        drop(theirs);
        assert_eq!(said(&ours), None);
    }
}
