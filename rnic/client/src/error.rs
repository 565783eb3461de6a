//! What can go wrong for a program that uses an RNIC, and what to do about it.
//!
//! An error's text says all of it, so it has no source that would say a part again.

#[cfg(test)]
mod tests;

use std::time::Duration;

use rnic_ipc::control::{DisconnectReason, PeerDepths, Refusal};
use rnic_ipc::find::{NotFound, Tried};
use rnic_ipc::ring::{RingError, RingFault};
use rnic_ipc::shm::{OutOfBounds, ShmError};
use rnic_ipc::transport::TransportError;
use rustix::io::Errno;

use crate::work_error::WorkError;

/// Any error of this crate. Its `Debug` is its sentence, too.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No daemon listens where it was looked for.
    #[error("{0}")]
    NoDaemon(NotFound),
    /// No daemon could be used; the socket of one is there, but this user may not use it.
    #[error("{0}")]
    NotPermitted(NotFound),
    /// The daemon ended, or took this client's objects away, without a reason that reached it. Or this process
    /// is a child after fork(2), and its parent opened the context, which goes on there. Nothing of this
    /// context works here any more: open another.
    #[error(
        "the RNIC daemon is gone, or ended this client's session, or its session is of this process's \
         parent (fork(2)); see the daemon's log, then open the context again"
    )]
    DaemonGone,
    /// The daemon took this client's objects away, or ends, and says why. Nothing of this context works any
    /// more: open another.
    #[error("the RNIC daemon ended this client's session: {0}")]
    SessionEnded(Refusal),
    /// The RNIC refused a request; the refusal says why.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A host name that does not resolve, or text that is no address.
    #[error("the address can't be used: {0}")]
    Address(std::io::Error),
    /// What was waited for did not happen in time.
    #[error("{what} did not happen within {after:?}")]
    Timeout {
        /// What was waited for.
        what: &'static str,
        /// How long.
        after: Duration,
    },
    /// The peer rejected the connection. The queue pair can't be used again.
    #[error("the peer rejected the connection, with {} bytes of private data", private_data.len())]
    Rejected {
        /// What it said of RDMA Reads, which may be why; none when it spoke revision 1.
        peer: Option<PeerDepths>,
        /// What the peer said with it.
        private_data: Vec<u8>,
    },
    /// The connection did not come about. The queue pair can't be used again.
    #[error("the connection failed: {message}")]
    ConnectFailed {
        /// For programs.
        reason: DisconnectReason,
        /// For people.
        message: String,
    },
    /// The connection ended while something else was waited for.
    #[error("the connection ended: {message}")]
    Disconnected {
        /// For programs.
        reason: DisconnectReason,
        /// For people.
        message: String,
    },
    /// The work queue has no room: poll completions and post again.
    #[error("the work queue is full: poll its completions, then post again")]
    QueueFull,
    /// More elements than the queue pair or the shared receive queue was made for.
    #[error("a work request of {found} elements on a queue made for {max}: raise max_sge")]
    TooManySges {
        /// Elements of the work request.
        found: usize,
        /// Elements that the queue takes.
        max: usize,
    },
    /// More inline bytes than the queue pair was made for.
    #[error(
        "{found} bytes inline on a queue pair made for {max}: raise max_inline, or send them from \
         registered memory"
    )]
    InlineTooLong {
        /// Bytes of the work request.
        found: usize,
        /// Bytes that the queue pair takes.
        max: usize,
    },
    /// The place of an atomic's original value is not of its size.
    #[error("an atomic's original value was given a place of {found} bytes: it is 8 bytes long")]
    AtomicLength {
        /// Bytes of the element.
        found: u32,
    },
    /// Inline bytes of what brings bytes (a Read, an atomic, a receive) or has none (Immediate Data
    /// alone, a binding, an invalidation).
    #[error(
        "only Sends and RDMA Writes carry bytes inline: name registered memory for what brings \
         bytes, and no bytes for what has none"
    )]
    NotInline,
    /// A receive on the send queue, or the other way round.
    #[error("this work request does not belong on the {queue} queue")]
    WrongQueue {
        /// `send` or `receive`.
        queue: &'static str,
    },
    /// A Send with Immediate Data for a queue pair that is not joined by number.
    #[error(
        "a Send with payload and immediate data on a connection: RFC 7306 has immediate data alone, or after an RDMA \
         Write; only queue pairs that are joined by number have it"
    )]
    NotJoined,
    /// A receive for a queue pair that takes its receives from a shared receive queue.
    #[error("this queue pair's receives come from a shared receive queue: post them there")]
    SharedReceives,
    /// The completion queue overflowed; its queue pairs are in Error. Make it deeper than all work
    /// that may be outstanding. Or a call waits for its own completion ([`crate::pending::PostedWork`]), while as many
    /// others as the queue has entries are left to be polled.
    #[error(
        "the completion queue overflowed: make it at least as deep as all work outstanding on its \
         queue pairs"
    )]
    CqOverflow,
    /// A range outside a memory region, or none.
    #[error("the range {offset}..{end} has no byte or is not inside the region's {len} bytes")]
    Range {
        /// Where it begins.
        offset: usize,
        /// Where it ends.
        end: usize,
        /// Bytes of the region.
        len: usize,
    },
    /// A window or a fast region and the region that it was to be part of are of different protection
    /// domains.
    #[error("the region is of another protection domain: make both in one")]
    WrongPd,
    /// Two objects of different contexts, which know nothing of each other.
    #[error("{what} is of another context than {of}: make both from one context")]
    WrongContext {
        /// The one that does not fit.
        what: &'static str,
        /// What it was to be used with.
        of: &'static str,
    },
    /// Work on the send queue of a queue pair that never began to connect, or was reset.
    #[error(
        "the queue pair is not connected: connect it, or accept a request with it, before work is posted \
         on its send queue (receives may be posted before)"
    )]
    NotConnected,
    /// Bytes that advertise no memory, such as private data of a peer that sent none.
    #[error(
        "{found} bytes where the peer was to advertise memory, which takes {needed} (RemoteMemory::to_bytes): \
         do both sides agree on what their private data is?"
    )]
    NotRemoteMemory {
        /// How many bytes there were.
        found: usize,
        /// How many there must be: [`RemoteMemory::ENCODED`](crate::RemoteMemory::ENCODED).
        needed: usize,
    },
    /// Work that completed, but not with success.
    #[error(transparent)]
    Work(#[from] WorkError),
    /// Shared memory could not be made or mapped.
    #[error("shared memory: {0}")]
    Memory(ShmError),
    /// The daemon sent what this version can't understand.
    #[error("the RNIC daemon broke the protocol: {what}; are both of one version?")]
    Protocol {
        /// What was wrong.
        what: String,
    },
    /// The control socket failed.
    #[error("the control socket failed: {0}")]
    Transport(TransportError),
    /// A system call failed.
    #[error("{call} failed: {errno}")]
    Io {
        /// The system call.
        call: &'static str,
        /// Its error.
        errno: Errno,
    },
}

/// `Debug` as `Display`: `main` prints the error that it returns by `Debug`, and that is to be the sentence.
macro_rules! debug_is_display {
    ($error:ty) => {
        impl std::fmt::Debug for $error {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, f)
            }
        }
    };
}
pub(crate) use debug_is_display;

debug_is_display!(Error);

impl Error {
    pub(crate) fn protocol(what: impl Into<String>) -> Self {
        Self::Protocol { what: what.into() }
    }
}

/// What no program gets to see is converted by name: a `From` would be part of the API.
impl Error {
    pub(crate) fn of_ring(error: RingError) -> Self {
        match error {
            RingError::Memory(error) => Self::Memory(error),
            error => Self::protocol(error.to_string()),
        }
    }

    pub(crate) fn of_fault(fault: RingFault) -> Self {
        Self::protocol(fault.to_string())
    }

    pub(crate) fn of_bounds(found: OutOfBounds) -> Self {
        let OutOfBounds {
            offset,
            len,
            memory,
        } = found;
        Self::Range {
            offset,
            end: offset.saturating_add(len),
            len: memory,
        }
    }
}

impl From<TransportError> for Error {
    fn from(error: TransportError) -> Self {
        match error {
            TransportError::Closed => Self::DaemonGone,
            TransportError::Decode(_) | TransportError::Trailing { .. } => {
                Self::protocol(error.to_string())
            }
            error => Self::Transport(error),
        }
    }
}

impl From<ShmError> for Error {
    fn from(error: ShmError) -> Self {
        Self::Memory(error)
    }
}

impl From<NotFound> for Error {
    fn from(found: NotFound) -> Self {
        match found.tried.iter().any(Tried::is_forbidden) {
            true => Self::NotPermitted(found),
            false => Self::NoDaemon(found),
        }
    }
}
