//! The descriptor that a receiver sleeps on, in a model: one of loom's atomics, which a test looks at.
//!
//! Compiled with `--cfg loom` only. As the kernel's counter, which is changed under a lock, it is changed in
//! one step.

use std::io;
use std::os::fd::BorrowedFd;

use crate::sync::{AtomicBool, Ordering};

#[derive(Debug)]
pub(super) struct EventFd(AtomicBool);

impl EventFd {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(AtomicBool::new(false)))
    }

    pub(super) fn signal(&self) {
        self.0.swap(true, Ordering::AcqRel);
    }

    pub(super) fn clear(&self) {
        self.0.swap(false, Ordering::AcqRel);
    }

    /// Whether a sleep ends.
    pub(super) fn is_readable(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// There are no descriptors in a model.
    pub(super) fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
