//! Kicks from a client to a sleeping engine: an eventfd that the client writes.
//!
//! The engine never reads or writes it, and only waits for its edges (`EPOLLET`): so whatever the
//! client does to the descriptor that both share, its flags or its count, the engine is not held.
//! It is not a socket, because a message may bring descriptors along. Taking the message closes them, and that
//! may block for as long as their maker likes (a TCP socket that lingers, a file of a FUSE file system).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::EventfdFlags;
use rustix::io::Errno;

/// The client's end. The engine waits for edges of the same descriptor.
#[derive(Debug)]
pub struct Kick {
    eventfd: OwnedFd,
}

impl Kick {
    /// A new one, to be passed to the client.
    pub fn new() -> Result<Self, Errno> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self {
            eventfd: rustix::event::eventfd(0, flags)?,
        })
    }

    /// Wakes the engine. Never blocks. Whether there still is an engine, this can't tell.
    pub fn kick(&self) {
        // Nobody takes from the count, and 2^64 kicks don't come.
        let _ = rustix::io::write(&self.eventfd, &1_u64.to_ne_bytes());
    }

    /// Takes up the descriptor that the other process passed.
    pub fn from_fd(eventfd: OwnedFd) -> Self {
        Self { eventfd }
    }

    /// To pass it to another process.
    pub fn into_fd(self) -> OwnedFd {
        self.eventfd
    }
}

impl AsFd for Kick {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.eventfd.as_fd()
    }
}
