//! SIGTERM, SIGINT and others as a descriptor that becomes readable (signalfd(2)).

use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;
use nix::sys::signal::SigSet;
pub use nix::sys::signal::Signal;
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// The wish to end, when it comes, and other wishes.
#[derive(Debug)]
pub struct Signals {
    fd: SignalFd,
}

impl Signals {
    /// Blocks SIGTERM and SIGINT in this thread and in all that it starts from now on: call it
    /// before any other thread exists.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn block() -> Result<Self, Errno> {
        Self::block_with(&[])
    }

    /// The same with `more` signals beside the two.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn block_with(more: &[Signal]) -> Result<Self, Errno> {
        let mut signals = SigSet::empty();
        for signal in [Signal::SIGTERM, Signal::SIGINT].iter().chain(more) {
            signals.add(*signal);
        }
        signals.thread_block()?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        Ok(Self {
            fd: SignalFd::with_flags(&signals, flags)?,
        })
    }

    /// The signal that came, if one did.
    pub fn take(&self) -> Option<Signal> {
        let found = self.fd.read_signal().ok().flatten()?;
        Signal::try_from(i32::try_from(found.ssi_signo).ok()?).ok()
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
