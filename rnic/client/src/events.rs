//! Events: read off the event socket by whoever waits, sorted into a box per object.
//!
//! Of several threads that wait, one blocks on the socket and the others on a condition variable.
//! Whoever reads events reads all that are there and tells the others. Nobody misses any: boxes
//! are looked into and waiting begins under one lock; and the thread on the socket is nudged when
//! another one emptied the socket under it.

use std::collections::{HashMap, HashSet, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use rnic_ipc::control::{DisconnectReason, Event, MpaOptions, PeerDepths};
use rnic_ipc::id::{ConnRequestId, CqId, ListenerId, QpNum, SrqId};
use rnic_ipc::transport::{Channel, TransportError};
use rnic_ipc::wake::{self, WakeReceiver, WakeSender};
use rustix::event::{PollFd, PollFlags};

use crate::context::Inner;
use crate::error::Error;
use crate::queue_pair::Established;
use crate::wait::{Deadline, LOOK_ROUND, lock};

/// What happened to a queue pair's connection.
#[derive(Clone, Debug, PartialEq)]
pub enum ConnectionEvent {
    /// It is there.
    Established(Established),
    /// The peer rejected it.
    Rejected {
        /// What it said of RDMA Reads, which may be why; none when it spoke revision 1.
        peer: Option<PeerDepths>,
        /// What the peer said with it.
        private_data: Vec<u8>,
    },
    /// It did not come about.
    ConnectFailed {
        /// For programs.
        reason: DisconnectReason,
        /// For people.
        message: String,
    },
    /// It is gone, and all work was flushed.
    Disconnected {
        /// For programs.
        reason: DisconnectReason,
        /// For people.
        message: String,
    },
}

impl ConnectionEvent {
    /// `Established`, or the error that any other event is.
    pub fn into_result(self) -> Result<Established, Error> {
        Err(match self {
            Self::Established(established) => return Ok(established),
            Self::Rejected { peer, private_data } => Error::Rejected { peer, private_data },
            Self::ConnectFailed { reason, message } => Error::ConnectFailed { reason, message },
            Self::Disconnected { reason, message } => Error::Disconnected { reason, message },
        })
    }
}

/// A peer's request, as it came.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) request: ConnRequestId,
    pub(crate) local: std::net::SocketAddr,
    pub(crate) remote: std::net::SocketAddr,
    pub(crate) mpa: MpaOptions,
    pub(crate) private_data: Vec<u8>,
}

/// What came for a queue pair.
#[derive(Debug, Default)]
pub(crate) struct QpBox {
    /// Not taken yet, oldest first.
    pub(crate) events: VecDeque<ConnectionEvent>,
    /// How the connection ended, if it did; stays.
    pub(crate) ended: Option<ConnectionEvent>,
    /// A connection was begun, so its end will be told or was.
    pub(crate) begun: bool,
    /// What comes is of a connection that nobody asks about any more, up to its end.
    stale: bool,
}

impl QpBox {
    /// The queue pair is Idle again: whatever is still to come of its last connection is dropped.
    pub(crate) fn begin_anew(&mut self) {
        let stale = self.stale || (self.begun && self.ended.is_none());
        *self = Self {
            stale,
            ..Self::default()
        };
    }
}

/// What came, sorted.
#[derive(Debug, Default)]
pub(crate) struct Boxes {
    pub(crate) qps: HashMap<QpNum, QpBox>,
    /// Made by the first event too: a request may come before the reply to `Listen` was read.
    pub(crate) listeners: HashMap<ListenerId, VecDeque<Asked>>,
    pub(crate) failed_cqs: HashSet<CqId>,
    /// Shared receive queues that fell below their limit, until taken.
    pub(crate) low_srqs: HashSet<SrqId>,
    /// A thread blocks on the socket.
    reading: bool,
    /// The other side closed the socket; nothing more comes.
    closed: bool,
}

/// The event socket and the boxes.
#[derive(Debug)]
pub(crate) struct Events {
    socket: Channel,
    boxes: Mutex<Boxes>,
    news: Condvar,
    nudge: WakeSender,
    nudged: WakeReceiver,
}

impl Events {
    pub(crate) fn new(socket: Channel) -> Result<Self, Error> {
        let (nudge, nudged) = wake::pair().map_err(|errno| Error::Io {
            call: "socketpair",
            errno,
        })?;
        Ok(Self {
            socket,
            boxes: Mutex::default(),
            news: Condvar::new(),
            nudge,
            nudged,
        })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The boxes, with all in them that has come.
    pub(crate) fn boxes(&self) -> MutexGuard<'_, Boxes> {
        let mut boxes = lock(&self.boxes);
        self.pump(&mut boxes);
        boxes
    }

    /// Whether the other side is found to be gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.boxes().closed
    }

    /// Waits until `take` finds what it looks for. With no time at all it looks once.
    pub(crate) fn wait<T>(
        &self,
        context: &Inner,
        deadline: Deadline,
        what: &'static str,
        mut take: impl FnMut(&mut Boxes) -> Option<T>,
    ) -> Result<T, Error> {
        context.drive();
        let mut boxes = self.boxes();
        loop {
            if let Some(found) = take(&mut boxes) {
                return Ok(found);
            }
            if boxes.closed {
                context.set_gone();
                return Err(Error::DaemonGone);
            }
            let left = deadline.left().ok_or_else(|| deadline.missed(what))?;
            if boxes.reading {
                let waited = self.news.wait_timeout(boxes, left.min(LOOK_ROUND));
                boxes = waited.unwrap_or_else(PoisonError::into_inner).0;
            } else {
                boxes.reading = true;
                drop(boxes);
                let mut fds = [
                    PollFd::new(&self.socket, PollFlags::IN),
                    PollFd::new(&self.nudged, PollFlags::IN),
                ];
                let blocked = context.block(&mut fds, left);
                self.nudged.drain();
                boxes = lock(&self.boxes);
                boxes.reading = false;
                // Another waiter takes the socket over if this one leaves now.
                self.news.notify_all();
                blocked?;
            }
            self.pump(&mut boxes);
        }
    }

    /// Sorts what is on the socket and tells those who wait.
    fn pump(&self, boxes: &mut Boxes) {
        let mut news = false;
        while !boxes.closed {
            match self.socket.try_recv::<Event>() {
                Ok(Some((event, _))) => boxes.sort(event),
                Ok(None) => boxes.closed = true,
                Err(TransportError::WouldBlock) => break,
                Err(error) => {
                    log::error!("the event socket can't be used any more: {error}");
                    boxes.closed = true;
                }
            }
            news = true;
        }
        if news {
            self.news.notify_all();
            if boxes.reading {
                self.nudge.wake();
            }
        }
    }
}

impl Boxes {
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    fn sort(&mut self, event: Event) {
        let (qp, event) = match event {
            Event::ConnectRequest {
                listener,
                request,
                local,
                remote,
                mpa,
                private_data,
            } => {
                let asked = Asked {
                    request,
                    local,
                    remote,
                    mpa,
                    private_data,
                };
                self.listeners.entry(listener).or_default().push_back(asked);
                return;
            }
            Event::CqError { cq } => {
                self.failed_cqs.insert(cq);
                return;
            }
            Event::SrqLimit { srq } => {
                self.low_srqs.insert(srq);
                return;
            }
            Event::Established {
                qp,
                mpa,
                peer,
                private_data,
            } => {
                let established = Established {
                    mpa,
                    peer,
                    private_data,
                };
                (qp, ConnectionEvent::Established(established))
            }
            Event::Rejected {
                qp,
                peer,
                private_data,
            } => (qp, ConnectionEvent::Rejected { peer, private_data }),
            Event::ConnectFailed {
                qp,
                reason,
                message,
            } => (qp, ConnectionEvent::ConnectFailed { reason, message }),
            Event::Disconnected {
                qp,
                reason,
                message,
            } => (qp, ConnectionEvent::Disconnected { reason, message }),
        };
        let Some(found) = self.qps.get_mut(&qp) else {
            log::debug!("an event for queue pair {qp}, which is gone: {event:?}");
            return;
        };
        let ending = !matches!(event, ConnectionEvent::Established(_));
        if found.stale {
            found.stale = !ending;
            return;
        }
        if ending {
            found.ended = Some(event.clone());
        }
        found.events.push_back(event);
    }
}
