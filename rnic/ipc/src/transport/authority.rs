//! How root shows a daemon that it is root of the daemon's host, and not of a container.
//!
//! A process of uid 0 may have no capability, or have them in a user namespace of its own. To the daemon its
//! uid is the same (`SO_PEERCRED`). What tells them apart is what the kernel lets a sender say (`SCM_CREDENTIALS`,
//! unix(7)). Credentials of another process it passes on only if the sender has CAP_SYS_ADMIN in the user
//! namespace that owns its PID namespace. So root's messages say that they are from
//! the daemon's own process. A process in a PID namespace of its own has no number for that one, and a root
//! without the capability, or with one of another user namespace, is refused by the kernel.
//!
//! The kernel attests it of the message itself, so no process id can be reused meanwhile.

use std::io::IoSliceMut;
use std::os::fd::AsRawFd;

use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, UnixAddr, UnixCredentials, recvmsg, setsockopt, sockopt,
};
use rustix::io::Errno;
use rustix::net::UCred;
use rustix::process::Pid;

use super::{Channel, TransportError, host};

/// What root claims to the daemon at the other end: to be its process.
pub(super) fn claim(channel: &Channel) -> Result<Option<UCred>, TransportError> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    // It is 0 where this PID namespace does not see the daemon.
    let daemon = Pid::from_raw(channel.peer_credentials()?.pid);
    Ok(daemon.map(|pid| UCred {
        pid,
        uid: rustix::process::geteuid(),
        gid: rustix::process::getegid(),
    }))
}

impl Channel {
    /// Whether whoever sent the next message has CAP_SYS_ADMIN over this process. Waits for the message, and
    /// leaves it.
    pub fn is_of_authority(&self) -> Result<bool, TransportError> {
        let failed =
            |call| move |errno: nix::Error| host(call)(Errno::from_raw_os_error(errno as i32));
        let pass = |on| {
            let done = setsockopt(self, sockopt::PassCred, &on);
            done.map_err(failed("setsockopt(SO_PASSCRED)"))
        };
        pass(true)?;
        let found = self.sender();
        pass(false)?;
        let own = i32::try_from(std::process::id()).ok();
        match found {
            Ok(sender) => Ok(sender.is_some() && sender == own),
            Err(nix::Error::EAGAIN) => Err(TransportError::WouldBlock),
            Err(nix::Error::ECONNRESET) => Ok(false),
            Err(errno) => Err(failed("recvmsg")(errno)),
        }
    }

    /// The process that the next message is said to be from.
    fn sender(&self) -> Result<Option<i32>, nix::Error> {
        // Room for credentials alone: descriptors stay with the message.
        let mut space = nix::cmsg_space!(UnixCredentials);
        loop {
            let mut first = [0];
            let mut slices = [IoSliceMut::new(&mut first)];
            let fd = self.socket.as_raw_fd();
            let found = recvmsg::<UnixAddr>(fd, &mut slices, Some(&mut space), MsgFlags::MSG_PEEK);
            let found = match found {
                Err(nix::Error::EINTR) => continue,
                found => found?,
            };
            // Beside descriptors, for which there was no room, it is nobody's: a client's first message has none.
            let mut beside = match found.cmsgs() {
                Err(nix::Error::ENOBUFS) => return Ok(None),
                beside => beside?,
            };
            return Ok(beside.find_map(|message| match message {
                ControlMessageOwned::ScmCredentials(sender) => Some(sender.pid()),
                _ => None,
            }));
        }
    }
}
