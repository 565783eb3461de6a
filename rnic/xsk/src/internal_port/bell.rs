//! Wakes a receiver that sleeps, and costs no system call while it does not.
//!
//! Receiver: says that it sleeps, then looks once more. Sender: sends, then looks whether the receiver
//! sleeps. A fence stands between the two on either side, so one of them sees the other's.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering, fence};

use rustix::event::EventfdFlags;

#[derive(Debug)]
pub(super) struct Bell {
    /// Readable when it was rung for a sleep; nobody but the two ends has it.
    fd: OwnedFd,
    sleeps: AtomicBool,
}

impl Bell {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            fd: rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            sleeps: AtomicBool::new(false),
        })
    }

    /// By the receiver, which has to look for what came once more after this.
    pub(super) fn prepare_sleep(&self) {
        self.sleeps.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// By the receiver, which looks for what came after this.
    pub(super) fn wake_up(&self) {
        self.sleeps.store(false, Ordering::Relaxed);
        // EAGAIN: something else woke it. A ring that is on its way ends the next sleep early.
        let _ = rustix::io::read(&self.fd, &mut [0; 8]);
    }

    /// By the sender, after it sent; says whether a system call was made.
    pub(super) fn ring(&self) -> bool {
        fence(Ordering::SeqCst);
        let sleeps =
            self.sleeps.load(Ordering::Relaxed) && self.sleeps.swap(false, Ordering::Relaxed);
        if sleeps {
            // A full counter is as good as a wake-up.
            let _ = rustix::io::write(&self.fd, &1_u64.to_ne_bytes());
        }
        sleeps
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
