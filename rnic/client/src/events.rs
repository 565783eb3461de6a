//! Events: read off the event socket by the thread that waits, sorted into an inbox per object.
//!
//! Of several threads that wait, one blocks on the socket and the others on a condition variable.
//! Whoever reads events reads all that are there and tells the others. Nobody misses any: inboxes
//! are looked into and waiting begins under one lock; and the thread on the socket is nudged when
//! another one emptied the socket under it. Futures wait at the socket's watch: its edges run them
//! again, and so does the thread that took events off the socket before the reactor saw it.
//!
//! A daemon's events come by another thread than its replies, so they may come after the object that
//! they are about was given back, or its queue pair reset. What is late is dropped: a number comes
//! again only when all others have.

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rnic_ipc::control::{DisconnectReason, Event, MpaOptions, PeerDepths, Refusal};
use rnic_ipc::id::{ConnRequestId, CqId, ListenerId, QpNum, SrqId};
use rnic_ipc::transport::{Channel, TransportError};
use rnic_ipc::wake::{self, WakeReceiver, WakeSender};
use rustix::event::{PollFd, PollFlags};

use crate::error::Error;
use crate::reactor::{LazyWatch, Watch};
use crate::wait::{LOOK_ROUND, lock};

/// What was agreed when a connection came about.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Established {
    /// Revision, CRC, and how many Reads may be outstanding: `ord` by us, `ird` by the peer.
    pub mpa: MpaOptions,
    /// What the peer itself said of RDMA Reads; none when it spoke revision 1.
    pub peer: Option<PeerDepths>,
    /// The responder's private data; empty on the responder's side.
    pub private_data: Vec<u8>,
}

/// What an event is about, and where it is to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventSource {
    /// [`crate::QueuePair::take_event`].
    QueuePair(QpNum),
    /// [`crate::Listener::accept`].
    Listener(ListenerId),
    /// The completion queue overflowed.
    CompletionQueue(CqId),
    /// [`crate::SharedReceiveQueue::take_limit_event`].
    SharedReceiveQueue(SrqId),
}

/// What happened to a queue pair's connection.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
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
pub(crate) struct PeerRequest {
    pub(crate) request: ConnRequestId,
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    pub(crate) mpa: MpaOptions,
    pub(crate) private_data: Vec<u8>,
}

/// What came for a queue pair.
#[derive(Debug, Default)]
pub(crate) struct QpInbox {
    /// Not taken yet, oldest first.
    pub(crate) events: VecDeque<ConnectionEvent>,
    /// How the connection ended, if it did; stays.
    pub(crate) ended: Option<ConnectionEvent>,
    /// A connection was begun, so its end will be reported or was; from this address and port of ours.
    pub(crate) begun: Option<SocketAddr>,
    /// Connections that nobody asks about any more and whose ends are still to come. What comes is of
    /// the oldest of them.
    stale: u32,
}

impl QpInbox {
    /// The queue pair is Idle again: whatever is still to come of its last connection is dropped.
    pub(crate) fn begin_anew(&mut self) {
        let end_to_come = self.begun.is_some() && self.ended.is_none();
        *self = Self {
            stale: self.stale + u32::from(end_to_come),
            ..Self::default()
        };
    }
}

/// What came, sorted.
#[derive(Debug, Default)]
pub(crate) struct Inboxes {
    pub(crate) qps: HashMap<QpNum, QpInbox>,
    pub(crate) listeners: HashMap<ListenerId, VecDeque<PeerRequest>>,
    /// Requests to `Listen` whose replies were not read yet.
    listens: usize,
    /// Peers' requests that came before such a reply.
    early: Vec<(ListenerId, PeerRequest)>,
    /// Those to listeners that are gone, to be rejected.
    unwanted: Vec<ConnRequestId>,
    cqs: HashSet<CqId>,
    /// Those of them that overflowed.
    pub(crate) failed_cqs: HashSet<CqId>,
    srqs: HashSet<SrqId>,
    /// Those of them that fell below their limit, until taken.
    pub(crate) low_srqs: HashSet<SrqId>,
    /// What events were about, when somebody asks for it.
    pub(crate) sources: Option<VecDeque<EventSource>>,
    /// A thread blocks on the socket.
    reading: bool,
    /// The other side closed the socket; nothing more comes.
    closed: bool,
    /// Why, if it said so.
    ended: Option<Refusal>,
}

/// The event socket and the inboxes.
#[derive(Debug)]
pub(crate) struct Events {
    socket: Channel,
    inboxes: Mutex<Inboxes>,
    news: Condvar,
    nudge: WakeSender,
    nudged: WakeReceiver,
    watch: LazyWatch,
}

impl Events {
    pub(crate) fn new(socket: Channel) -> Result<Self, Error> {
        let (nudge, nudged) = wake::pair().map_err(|errno| Error::Io {
            call: "socketpair",
            errno,
        })?;
        Ok(Self {
            socket,
            inboxes: Mutex::default(),
            news: Condvar::new(),
            nudge,
            nudged,
            watch: LazyWatch::default(),
        })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The inboxes, with all in them that has come.
    pub(crate) fn inboxes(&self) -> MutexGuard<'_, Inboxes> {
        let mut inboxes = lock(&self.inboxes);
        self.pump(&mut inboxes);
        inboxes
    }

    /// Why nothing works any more, when the other side is gone.
    pub(crate) fn closed_error(&self) -> Error {
        self.inboxes().closed_error()
    }

    /// Whether the other side is found to be gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.inboxes().closed
    }

    /// Waits once for news, for at most `limit`: on the socket, by `block`, or for another thread that does.
    pub(crate) fn wait_for_news<'a>(
        &'a self,
        mut inboxes: MutexGuard<'a, Inboxes>,
        limit: Duration,
        block: impl FnOnce(&mut [PollFd<'_>], Duration) -> Result<(), Error>,
    ) -> Result<MutexGuard<'a, Inboxes>, Error> {
        if inboxes.reading {
            let waited = self.news.wait_timeout(inboxes, limit.min(LOOK_ROUND));
            inboxes = waited.unwrap_or_else(PoisonError::into_inner).0;
        } else {
            inboxes.reading = true;
            drop(inboxes);
            let mut fds = [
                PollFd::new(&self.socket, PollFlags::IN),
                PollFd::new(&self.nudged, PollFlags::IN),
            ];
            let blocked = block(&mut fds, limit);
            self.nudged.drain();
            inboxes = lock(&self.inboxes);
            inboxes.reading = false;
            // Another waiter takes the socket over if this one leaves now.
            self.news.notify_all();
            blocked?;
        }
        self.pump(&mut inboxes);
        Ok(inboxes)
    }

    /// Where futures wait for news.
    pub(crate) fn watch(&self) -> Result<&Watch, Error> {
        self.watch.get_or_make(self.fd())
    }

    /// Sorts what is on the socket and tells those who wait.
    fn pump(&self, inboxes: &mut Inboxes) {
        let mut news = false;
        while !inboxes.closed {
            match self.socket.try_recv::<Event>() {
                Ok(Some((event, _))) => inboxes.sort(event),
                Ok(None) => inboxes.closed = true,
                Err(TransportError::WouldBlock) => break,
                Err(error) => {
                    log::error!("the event socket can't be used any more: {error}");
                    inboxes.closed = true;
                }
            }
            news = true;
        }
        if news {
            self.news.notify_all();
            if inboxes.reading {
                self.nudge.wake();
            }
            if let Some(watch) = self.watch.get() {
                watch.wake_all_soon();
            }
        }
    }
}

impl Inboxes {
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// The requests of peers to listeners that are gone, which are to be rejected.
    pub(crate) fn take_unwanted(&mut self) -> Vec<ConnRequestId> {
        std::mem::take(&mut self.unwanted)
    }

    /// Why nothing works any more, when the other side is gone.
    pub(crate) fn closed_error(&self) -> Error {
        let why = self.ended.clone();
        why.map_or(Error::DaemonGone, Error::SessionEnded)
    }

    pub(crate) fn add_cq(&mut self, cq: CqId) {
        self.cqs.insert(cq);
    }

    /// It takes no completions any more.
    pub(crate) fn lose_cq(&mut self, cq: CqId) {
        self.failed_cqs.insert(cq);
    }

    pub(crate) fn remove_cq(&mut self, cq: CqId) {
        self.cqs.remove(&cq);
        self.failed_cqs.remove(&cq);
    }

    pub(crate) fn add_srq(&mut self, srq: SrqId) {
        self.srqs.insert(srq);
    }

    pub(crate) fn remove_srq(&mut self, srq: SrqId) {
        self.srqs.remove(&srq);
        self.low_srqs.remove(&srq);
    }

    /// A request to `Listen` is about to be made: peers may ask before its reply was read.
    pub(crate) fn begin_listen(&mut self) {
        self.listens += 1;
    }

    /// The reply was read: this is the listener, if one was granted.
    pub(crate) fn end_listen(&mut self, granted: Option<ListenerId>) {
        self.listens = self.listens.saturating_sub(1);
        if let Some(id) = granted {
            let early = self.early.extract_if(.., |(listener, _)| *listener == id);
            let asked: VecDeque<_> = early.map(|(_, asked)| asked).collect();
            for _ in &asked {
                self.note(EventSource::Listener(id));
            }
            self.listeners.insert(id, asked);
        }
        if self.listens == 0 {
            let nobodys = self.early.drain(..);
            self.unwanted
                .extend(nobodys.map(|(_, asked)| asked.request));
        }
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
                let asked = PeerRequest {
                    request,
                    local,
                    remote,
                    mpa,
                    private_data,
                };
                match self.listeners.get_mut(&listener) {
                    Some(found) => {
                        found.push_back(asked);
                        self.note(EventSource::Listener(listener));
                    }
                    None if self.listens > 0 => self.early.push((listener, asked)),
                    None => self.unwanted.push(request),
                }
                return;
            }
            Event::RequestGone { listener, request } => {
                if let Some(found) = self.listeners.get_mut(&listener) {
                    found.retain(|asked| asked.request != request);
                }
                self.early
                    .retain(|(of, asked)| *of != listener || asked.request != request);
                self.unwanted.retain(|unwanted| *unwanted != request);
                return;
            }
            Event::CqError { cq } => {
                if self.cqs.contains(&cq) {
                    self.lose_cq(cq);
                    self.note(EventSource::CompletionQueue(cq));
                }
                return;
            }
            Event::SrqLimit { srq } => {
                if self.srqs.contains(&srq) {
                    self.low_srqs.insert(srq);
                    self.note(EventSource::SharedReceiveQueue(srq));
                }
                return;
            }
            Event::SessionEnded(why) => {
                self.ended = Some(why);
                self.closed = true;
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
        if found.stale > 0 {
            found.stale -= u32::from(ending);
            return;
        }
        if ending {
            found.ended = Some(event.clone());
        }
        found.events.push_back(event);
        self.note(EventSource::QueuePair(qp));
    }

    fn note(&mut self, source: EventSource) {
        if let Some(sources) = &mut self.sources {
            sources.push_back(source);
        }
    }
}
