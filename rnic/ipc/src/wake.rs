//! Wake-ups from the engine to a client: one byte on a socket, sent without ever blocking.
//!
//! A socket, not an eventfd: the other process shares the eventfd's open file description, could
//! clear `O_NONBLOCK` on it and fill its counter, and so block the sender for ever. A socket takes
//! `MSG_DONTWAIT` per call. It also tells when the other side is gone. It goes one way only:
//! descriptors that the receiver sent back would be closed with the sender's end, by the engine,
//! and closing one may block for as long as its maker likes. The other way are [kicks](crate::kick).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType};

/// Most wake-ups that one [`WakeReceiver::drain`] takes, so that a flood can't hold the receiver.
const DRAIN_MAX: usize = 64;

/// A sender and the receiver it wakes. Either end may be passed to another process.
pub fn pair() -> Result<(WakeSender, WakeReceiver), rustix::io::Errno> {
    let (a, b) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    rustix::net::shutdown(&a, Shutdown::Read)?;
    Ok((WakeSender { socket: a }, WakeReceiver { socket: b }))
}

/// The end that wakes.
#[derive(Debug)]
pub struct WakeSender {
    socket: OwnedFd,
}

/// The result of a wake-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// Sent, or so many wait already that the receiver is awake or about to be.
    Yes,
    /// The receiver is gone.
    Gone,
}

impl WakeSender {
    /// Wakes the receiver. Never blocks, never raises SIGPIPE.
    pub fn wake(&self) -> Woken {
        match rustix::net::send(
            &self.socket,
            &[1],
            SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
        ) {
            // Out of memory for one more byte: as good as a full socket, the next call tries again.
            Ok(_) | Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS | Errno::NOMEM) => Woken::Yes,
            Err(_) => Woken::Gone,
        }
    }

    /// Takes up the end that another process passed.
    pub fn from_fd(socket: OwnedFd) -> Self {
        Self { socket }
    }

    /// To pass it to another process.
    pub fn into_fd(self) -> OwnedFd {
        self.socket
    }
}

impl AsFd for WakeSender {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The end that is woken. Poll its descriptor for reading.
#[derive(Debug)]
pub struct WakeReceiver {
    socket: OwnedFd,
}

/// What [`WakeReceiver::take`] or [`WakeReceiver::drain`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// Nothing was waiting.
    Quiet,
    /// A wake-up was taken, by [`WakeReceiver::drain`] at least one.
    Woken,
    /// The sender is gone and no wake-up is left.
    Gone,
}

impl WakeReceiver {
    /// Takes the wake-ups that wait. Never blocks.
    pub fn drain(&self) -> Drained {
        let mut found = Drained::Quiet;
        for _ in 0..DRAIN_MAX {
            match self.take() {
                Drained::Woken => found = Drained::Woken,
                Drained::Gone if found == Drained::Quiet => return Drained::Gone,
                Drained::Gone | Drained::Quiet => break,
            }
        }
        found
    }

    /// Takes the oldest wake-up that waits. Never blocks.
    pub fn take(&self) -> Drained {
        loop {
            let mut byte = [0; 1];
            match rustix::net::recv(&self.socket, &mut byte, RecvFlags::DONTWAIT) {
                Ok((_, 0)) => return Drained::Gone,
                Ok(_) => return Drained::Woken,
                Err(Errno::AGAIN) => return Drained::Quiet,
                Err(Errno::INTR) => {}
                Err(_) => return Drained::Gone,
            }
        }
    }

    /// Takes up the end that another process passed.
    pub fn from_fd(socket: OwnedFd) -> Self {
        Self { socket }
    }

    /// To pass it to another process.
    pub fn into_fd(self) -> OwnedFd {
        self.socket
    }
}

impl AsFd for WakeReceiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests;
