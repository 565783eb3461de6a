//! SIGTERM and SIGINT as a descriptor that becomes readable (signalfd(2)).

use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;
use nix::sys::signal::SigSet;
pub use nix::sys::signal::Signal;
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// The wish to end, when it comes.
#[derive(Debug)]
pub struct Signals {
    fd: SignalFd,
}

impl Signals {
    /// Blocks both signals in this thread and in all that it starts from now on: call it before
    /// any other thread exists.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn block() -> Result<Self, Errno> {
        let mut signals = SigSet::empty();
        signals.add(Signal::SIGTERM);
        signals.add(Signal::SIGINT);
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
