//! Wakes a receiver that sleeps, and costs no system call while it does not.
//!
//! Receiver: says that it sleeps, then looks once more. Sender: sends, then looks whether the receiver
//! sleeps. A fence stands between the two on either side, so one of them sees the other's. Both change the
//! flag by swaps, so that their changes have one order.

use std::io;
use std::os::fd::BorrowedFd;

use super::event_fd::EventFd;
use crate::sync::{AtomicBool, Ordering, fence};

#[derive(Debug)]
pub(crate) struct Bell {
    /// Readable when it was rung for a sleep; nobody but the two ends has it.
    fd: EventFd,
    sleeps: AtomicBool,
}

impl Bell {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            fd: EventFd::new()?,
            sleeps: AtomicBool::new(false),
        })
    }

    /// By the receiver, which has to look for what came once more after this.
    pub(crate) fn prepare_sleep(&self) {
        self.sleeps.swap(true, Ordering::AcqRel);
        fence(Ordering::SeqCst);
    }

    /// By the receiver, which found something before it sleeps: the sleep ends at once.
    pub(crate) fn end_sleep(&self) {
        self.fd.signal();
    }

    /// By the receiver, which looks for what came after this.
    pub(crate) fn wake_up(&self) {
        self.sleeps.swap(false, Ordering::AcqRel);
        // Something else may have woken it. A ring that is on its way ends the next sleep early.
        self.fd.clear();
    }

    /// By the sender, after it sent; says whether a system call was made.
    pub(crate) fn ring(&self) -> bool {
        fence(Ordering::SeqCst);
        let sleeps =
            self.sleeps.load(Ordering::Relaxed) && self.sleeps.swap(false, Ordering::AcqRel);
        if sleeps {
            self.fd.signal();
        }
        sleeps
    }

    /// What the receiver sleeps on.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.fd.as_fd()
    }

    /// Whether a sleep ends.
    #[cfg(all(test, loom))]
    pub(crate) fn is_rung(&self) -> bool {
        self.fd.is_readable()
    }
}
