//! What a client was given: names, descriptors, memory.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rnic_ipc::control::{Event, PROTOCOL_VERSION, Request, Response};
use rnic_ipc::id::QpNum;
use rnic_ipc::kick::Kick;
use rnic_ipc::ring::{DoorbellProducer, QpMemory, WorkQueueProducer};
use rnic_ipc::shm::SharedMemory;
use rnic_ipc::transport::{Channel, TransportError};
use rustix::net::sockopt::{Timeout, set_socket_timeout};

/// How long a reply is waited for: one that another process took never comes.
const PATIENCE: Duration = Duration::from_millis(500);

/// A session with one daemon.
#[derive(Debug)]
pub struct Objects {
    pub control: Channel,
    pub events: Channel,
    /// Of each shard.
    pub bells: Vec<(DoorbellProducer, Kick)>,
    pub pds: Vec<u32>,
    pub cqs: Vec<u32>,
    pub srqs: Vec<u32>,
    pub qps: Vec<u32>,
    pub stags: Vec<u32>,
    pub listeners: Vec<u32>,
    pub requests: Vec<u32>,
    /// Send queue, receive queue.
    pub queues: Vec<(QpNum, WorkQueueProducer, WorkQueueProducer)>,
    /// Everything that is shared, by its descriptor and mapped.
    pub shared: Vec<(OwnedFd, Arc<SharedMemory>)>,
    /// Sockets of completion queues.
    pub notices: Vec<OwnedFd>,
}

impl Objects {
    /// Says Hello; `None` when the daemon will not have it.
    pub fn greet(socket: &Path) -> Option<Self> {
        let control = Channel::connect(socket).ok()?;
        set_socket_timeout(&control, Timeout::Recv, Some(PATIENCE)).ok()?;
        let version = PROTOCOL_VERSION;
        control.send(&Request::Hello { version }, &[]).ok()?;
        let (reply, fds) = control.recv_reply().ok()??;
        let Ok(Response::Welcome { doorbells, .. }) = reply else {
            return None;
        };
        let mut fds = fds.into_iter();
        let (events, memory) = (fds.next()?, fds.next()?);
        let shared = map(memory)?;
        let kicks = fds.map(Kick::from_fd);
        let rings = DoorbellProducer::attach(&shared.1, doorbells, kicks.len());
        let rings = rings.unwrap_or_default();
        Some(Self {
            control,
            events: Channel::from_fd(events),
            bells: rings.into_iter().zip(kicks).collect(),
            pds: Vec::new(),
            cqs: Vec::new(),
            srqs: Vec::new(),
            qps: Vec::new(),
            stags: Vec::new(),
            listeners: Vec::new(),
            requests: Vec::new(),
            queues: Vec::new(),
            shared: vec![shared],
            notices: Vec::new(),
        })
    }

    /// Sends a request and keeps what it is granted. Says whether the session goes on.
    pub fn ask(&mut self, request: &Request, fds: &[BorrowedFd<'_>]) -> bool {
        match self.control.send(request, fds) {
            Ok(()) => self.take_reply(),
            Err(TransportError::Encode(_)) => true,
            Err(_) => false,
        }
    }

    /// Reads a reply, of whatever was asked. Says whether the session goes on.
    pub fn take_reply(&mut self) -> bool {
        let (reply, mut fds) = match self.control.recv_reply() {
            Ok(Some(found)) => found,
            // Somebody else read it, or the daemon had nothing to say to that.
            Err(TransportError::WouldBlock) => return true,
            Ok(None) | Err(_) => return false,
        };
        match reply {
            Ok(Response::Pd(pd)) => self.pds.push(pd.0),
            Ok(Response::Cq { cq, .. }) => {
                self.cqs.push(cq.0);
                self.notices.extend(fds.pop());
                self.shared.extend(fds.pop().and_then(map));
            }
            Ok(Response::Srq { srq, .. }) => {
                self.srqs.push(srq.0);
                self.shared.extend(fds.pop().and_then(map));
            }
            Ok(Response::Qp {
                qp,
                sq_slots,
                rq_slots,
            }) => {
                self.qps.push(qp.0);
                if let Some(shared) = fds.pop().and_then(map) {
                    let layout = QpMemory::layout(sq_slots, rq_slots);
                    let queues = layout.and_then(|at| QpMemory::attach(shared.1.clone(), &at));
                    self.queues.extend(queues.ok().map(|(sq, rq)| (qp, sq, rq)));
                    self.shared.push(shared);
                }
            }
            Ok(Response::Region { stag }) => self.stags.push(stag),
            Ok(Response::Listening { listener, .. }) => self.listeners.push(listener.0),
            _ => {}
        }
        true
    }

    pub fn take_events(&mut self) {
        for _ in 0..64 {
            match self.events.try_recv::<Event>() {
                Ok(Some((Event::ConnectRequest { request, .. }, _))) => {
                    self.requests.push(request.0);
                }
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return,
            }
        }
    }

    pub fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let mut all = vec![self.control.as_fd(), self.events.as_fd()];
        all.extend(self.bells.iter().map(|(_, kick)| kick.as_fd()));
        all.extend(self.shared.iter().map(|(fd, _)| fd.as_fd()));
        all.extend(self.notices.iter().map(AsFd::as_fd));
        all
    }
}

/// Maps all of what a descriptor is of.
fn map(fd: OwnedFd) -> Option<(OwnedFd, Arc<SharedMemory>)> {
    let size = rustix::fs::fstat(&fd).ok()?.st_size;
    let memory = SharedMemory::map(&fd, 0, u64::try_from(size).ok()?).ok()?;
    Some((fd, Arc::new(memory)))
}
