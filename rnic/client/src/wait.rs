//! Waiting: deadlines, locks, poll(2).

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, Timespec};
use rustix::io::Errno;

use crate::error::Error;

/// The longest that a thread blocks before it looks round again. No wake-up depends on it but one:
/// news of a CQ's overflow that another thread took off the event socket.
pub(crate) const LOOK_ROUND: Duration = Duration::from_millis(250);

/// A lock whose data is right after every single operation, so that a panic elsewhere does not
/// spoil it.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// When a blocking call gives up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    /// `None`: never.
    at: Option<Instant>,
    after: Duration,
}

impl Deadline {
    pub(crate) fn after(after: Duration) -> Self {
        Self {
            at: Instant::now().checked_add(after),
            after,
        }
    }

    /// None.
    pub(crate) fn never() -> Self {
        Self::after(Duration::MAX)
    }

    /// What is left, or `None` when it has passed.
    pub(crate) fn left(&self) -> Option<Duration> {
        match self.at {
            None => Some(Duration::MAX),
            Some(at) => Some(at.saturating_duration_since(Instant::now())).filter(|d| !d.is_zero()),
        }
    }

    /// The error for having waited in vain.
    pub(crate) fn missed(&self, what: &'static str) -> Error {
        Error::Timeout {
            what,
            after: self.after,
        }
    }
}

/// poll(2) for at most `limit`; a signal ends it early.
pub(crate) fn poll(fds: &mut [PollFd<'_>], limit: Duration) -> Result<(), Error> {
    let limit = Timespec {
        tv_sec: limit.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: i64::from(limit.subsec_nanos()),
    };
    match rustix::event::poll(fds, Some(&limit)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(Error::Io {
            call: "poll",
            errno,
        }),
    }
}
