//! The descriptor that a receiver sleeps on: an eventfd that never blocks.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::EventfdFlags;

#[derive(Debug)]
pub(super) struct EventFd(OwnedFd);

impl EventFd {
    pub(super) fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self(rustix::event::eventfd(0, flags)?))
    }

    /// It is readable from now on.
    pub(super) fn signal(&self) {
        // A full counter is as good.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// It is readable no more, until it is signalled again.
    pub(super) fn clear(&self) {
        // EAGAIN: it was not.
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }

    pub(super) fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }
}
