//! The way to one RNIC: control requests, the event socket, the doorbell.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context as Task, Poll};
use std::time::Duration;

use rnic_ipc::control::{DeviceInfo, JoinNumbers, PROTOCOL_VERSION, Request, Response};
use rnic_ipc::id::{ClientId, ConnRequestId, QpNum};
use rnic_ipc::inspect;
use rnic_ipc::kick::Kick;
use rnic_ipc::ring::DoorbellProducer;
use rnic_ipc::transport::Channel;
use rustix::event::{PollFd, PollFlags};

use crate::error::Error;
use crate::events::{Events, Inboxes};
use crate::link::{Link, descriptors, unexpected};
use crate::reactor::WakerSlot;
use crate::session::Session;
use crate::wait::{Deadline, LOOK_ROUND, lock, poll};

/// How long a full doorbell ring may stay full before the engine counts as stuck.
const DOORBELL_PATIENCE: Duration = Duration::from_secs(1);

/// How long one sleep is when this process must drive the engine itself.
pub(crate) const INLINE_NAP: Duration = Duration::from_micros(50);

/// A client's way to one RNIC: to one device, which has one interface. Clones are the same client.
///
/// A program that wants to use two devices opens two contexts. Objects of one are unknown to the other.
///
/// Its calls are requests to the RNIC, which answers within microseconds unless the host is overloaded. `drop` of the last clone,
/// and of the last object that came from it, closes the client's sockets and does not wait.
#[derive(Clone, Debug)]
pub struct Context {
    inner: Arc<Inner>,
}

impl Context {
    pub(crate) fn over(link: Link) -> Result<Self, Error> {
        let hello = Request::Hello {
            version: PROTOCOL_VERSION,
        };
        let (client, entries, shards, mut fds) = match link.request(&hello, &[])? {
            (
                Response::Welcome {
                    client,
                    doorbells,
                    shards,
                },
                fds,
            ) => (client, doorbells, shards, fds),
            (other, _) => return Err(unexpected(&other)),
        };
        let kicks = fds.split_off(fds.len().min(2));
        let [events, doorbells] = descriptors::<2>(fds)?;
        let inner = Inner {
            link,
            client,
            events: Events::new(Channel::from_fd(events))?,
            bells: bells(doorbells, entries, kicks, shards)?,
            join_numbers: OnceLock::new(),
            gone: AtomicBool::new(false),
            process: rnic_adopt::watch_forks(),
            order: Mutex::new(()),
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// What the RNIC is and can.
    pub fn device_info(&self) -> Result<DeviceInfo, Error> {
        match self.inner.request(&Request::QueryDevice, &[])? {
            (Response::Device(info), _) => Ok(info),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// The number by which a peer names a queue pair of this device in [`QueuePair::join`](crate::QueuePair::join), of 24
    /// bits. It is another one than the queue pair's own, which peers could guess. None: its own is too large. The RNIC is
    /// asked once.
    pub fn join_number(&self, qp: QpNum) -> Result<Option<u32>, Error> {
        Ok(self.inner.join_numbers()?.number(qp))
    }

    /// All counters of the device, in a fixed order.
    pub fn counters(&self) -> Result<Vec<(String, u64)>, Error> {
        let mut all = Vec::new();
        loop {
            let first =
                u32::try_from(all.len()).map_err(|_| Error::protocol("endless counters"))?;
            match self.inner.request(&Request::QueryCounters { first }, &[])? {
                (Response::Counters(page), _) if page.is_empty() => return Ok(all),
                (Response::Counters(page), _) => all.extend(page),
                (other, _) => return Err(unexpected(&other)),
            }
        }
    }

    /// The objects of one kind that this client's user may see; all of them for an administrator.
    /// They come page by page, so that what changes meanwhile may be there or not.
    pub fn inspect(&self, what: inspect::Kind) -> Result<Vec<inspect::Object>, Error> {
        let mut all = Vec::new();
        let mut after = 0;
        loop {
            let request = Request::Inspect { what, after };
            let page = match self.inner.request(&request, &[])? {
                (Response::Inspected(page), _) => page,
                (other, _) => return Err(unexpected(&other)),
            };
            all.extend(page.objects);
            after = match page.next {
                None => return Ok(all),
                Some(next) if next > after => next,
                Some(_) => return Err(Error::protocol("a page that leads back")),
            };
        }
    }

    /// Gives an operator's order.
    pub fn order(&self, order: inspect::Order) -> Result<(), Error> {
        self.inner.request_done(&Request::Order(order))
    }

    /// Becomes readable when an event may be there: then call the non-blocking calls
    /// ([`crate::QueuePair::take_event`], [`crate::Listener::accept`] with no time to wait) of
    /// all objects. Meant for programs that make no blocking calls from other threads on this
    /// context: those take events off the socket for everybody.
    pub fn event_fd(&self) -> BorrowedFd<'_> {
        self.inner.events.fd()
    }

    /// Whether the engine runs in this crate's calls instead of in a thread or daemon of its own.
    pub fn is_inline(&self) -> bool {
        self.inner.link.is_inline()
    }

    /// The client's number, as it stands in the daemon's log.
    pub fn client_id(&self) -> u32 {
        self.inner.client.0
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }
}

/// Two objects that are to be used together, each with its context and name.
pub(crate) fn same_context(
    (one, what): (&Arc<Inner>, &'static str),
    (other, of): (&Arc<Inner>, &'static str),
) -> Result<(), Error> {
    match Arc::ptr_eq(one, other) {
        true => Ok(()),
        false => Err(Error::WrongContext { what, of }),
    }
}

/// What all objects of a client share.
#[derive(Debug)]
pub(crate) struct Inner {
    link: Link,
    client: ClientId,
    events: Events,
    /// By the shards' numbers, at least one.
    bells: Box<[Bell]>,
    /// How numbers for joins follow, when they were asked for.
    join_numbers: OnceLock<JoinNumbers>,
    /// The control or event socket was found closed.
    gone: AtomicBool,
    /// Which opened it: [`rnic_adopt::forks`].
    process: u64,
    /// Held for a request, and until what it brought to be mapped is mapped: the RNIC takes the next
    /// request as the word that it is, and seals it.
    order: Mutex<()>,
}

/// By what a shard is notified of new work.
#[derive(Debug)]
struct Bell {
    ring: Mutex<DoorbellProducer>,
    kick: Kick,
}

/// Those of all shards.
fn bells(
    memory: OwnedFd,
    entries: u32,
    kicks: Vec<OwnedFd>,
    shards: u8,
) -> Result<Box<[Bell]>, Error> {
    if shards == 0 || kicks.len() != usize::from(shards) {
        let count = kicks.len();
        return Err(Error::protocol(format!(
            "{count} kicks for {shards} shards"
        )));
    }
    let rings = DoorbellProducer::attach_fd(memory, entries, kicks.len());
    let both = rings.map_err(Error::of_ring)?.into_iter().zip(kicks);
    let bell = |(ring, kick)| Bell {
        ring: Mutex::new(ring),
        kick: Kick::from_fd(kick),
    };
    Ok(both.map(bell).collect())
}

impl Inner {
    fn join_numbers(&self) -> Result<&JoinNumbers, Error> {
        if let Some(numbers) = self.join_numbers.get() {
            return Ok(numbers);
        }
        match self.request(&Request::QueryJoinNumbers, &[])? {
            (Response::JoinNumbers(numbers), _) => Ok(self.join_numbers.get_or_init(|| numbers)),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// Carries out a request.
    pub(crate) fn request(
        &self,
        request: &Request,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(Response, Vec<OwnedFd>), Error> {
        self.check()?;
        let _order = lock(&self.order);
        self.ask(request, fds)
    }

    /// Carries out a request that brings rings, which `map` has to map. It makes no request itself.
    pub(crate) fn request_rings<T>(
        &self,
        request: &Request,
        map: impl FnOnce(Response, Vec<OwnedFd>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.check()?;
        let _order = lock(&self.order);
        let (response, fds) = self.ask(request, &[])?;
        map(response, fds)
    }

    fn ask(
        &self,
        request: &Request,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(Response, Vec<OwnedFd>), Error> {
        self.check()?;
        match self.link.request(request, fds) {
            Err(Error::DaemonGone) => {
                self.set_gone();
                Err(self.closed_error())
            }
            reply => reply,
        }
    }

    /// The session, when the RNIC is in this process.
    pub(crate) fn session(&self) -> Result<Option<&Session>, Error> {
        match self.link.session() {
            Some(_) if self.is_gone() => Err(self.closed_error()),
            session => Ok(session),
        }
    }

    /// Carries out a request that has nothing to tell.
    pub(crate) fn request_done(&self, request: &Request) -> Result<(), Error> {
        match self.request(request, &[])? {
            (Response::Done, _) => Ok(()),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// Gives an object back, on drop: nobody is there to hear of an error.
    pub(crate) fn give_back(&self, request: &Request) {
        match self.request_done(request) {
            Ok(()) | Err(Error::DaemonGone | Error::SessionEnded(_)) => {}
            Err(error) => log::warn!("{request:?} of client {}: {error}", self.client),
        }
    }

    /// Rejects a peer that nobody answers.
    pub(crate) fn turn_away(&self, request: ConnRequestId) {
        let reject = Request::Reject {
            request,
            private_data: Vec::new(),
        };
        // The peer may have gone meanwhile, and the request with it: that is fine here.
        if let Err(error) = self.request_done(&reject) {
            log::debug!("rejecting an unanswered request: {error}");
        }
    }

    /// Waits until `take` finds what it looks for among the events. With no time at all it looks once.
    pub(crate) fn wait_for_event<T>(
        &self,
        deadline: Deadline,
        what: &'static str,
        mut take: impl FnMut(&mut Inboxes) -> Option<T>,
    ) -> Result<T, Error> {
        if self.is_forked_child() {
            return Err(self.closed_error());
        }
        self.drive();
        let mut inboxes = self.events.inboxes();
        loop {
            if let Some(found) = take(&mut inboxes) {
                return Ok(found);
            }
            if inboxes.is_closed() {
                self.set_gone();
                return Err(inboxes.closed_error());
            }
            let unwanted = inboxes.take_unwanted();
            if !unwanted.is_empty() {
                drop(inboxes);
                unwanted.into_iter().for_each(|it| self.turn_away(it));
                inboxes = self.events.inboxes();
                continue;
            }
            let left = deadline.left().ok_or_else(|| deadline.missed(what))?;
            let block = |fds: &mut [PollFd<'_>], limit| self.block(fds, limit);
            inboxes = self.events.wait_for_news(inboxes, left, block)?;
        }
    }

    /// One look of a future that waits in `slot` until `take` finds what it looks for among the events.
    pub(crate) fn poll_for_event<T>(
        &self,
        slot: &WakerSlot<'_>,
        task: &Task<'_>,
        take: impl FnOnce(&mut Inboxes) -> Option<T>,
    ) -> Poll<Result<T, Error>> {
        if self.is_forked_child() {
            return Poll::Ready(Err(self.closed_error()));
        }
        self.drive();
        slot.take(task.waker());
        let mut inboxes = self.events.inboxes();
        if let Some(found) = take(&mut inboxes) {
            return Poll::Ready(Ok(found));
        }
        if inboxes.is_closed() {
            self.set_gone();
            return Poll::Ready(Err(inboxes.closed_error()));
        }
        drop(inboxes);
        self.come_back(task);
        Poll::Pending
    }

    /// Lets go of what came for an object, on drop.
    pub(crate) fn forget(&self, object: impl FnOnce(&mut Inboxes)) {
        if !self.is_forked_child() {
            object(&mut self.events.inboxes());
        }
    }

    /// Whether the engine lives on [`Self::drive`].
    pub(crate) fn is_inline(&self) -> bool {
        self.link.is_inline()
    }

    pub(crate) fn events(&self) -> &Events {
        &self.events
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed) || self.is_forked_child()
    }

    /// Whether a parent of this process opened it. Then the rings and sockets are the parent's, and nothing
    /// of them is touched; locks may be held for ever.
    pub(crate) fn is_forked_child(&self) -> bool {
        self.process != rnic_adopt::forks()
    }

    /// Fails when nothing works any more.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.is_gone() {
            true => Err(self.closed_error()),
            false => Ok(()),
        }
    }

    /// Why nothing works any more, when the other side is gone.
    pub(crate) fn closed_error(&self) -> Error {
        match self.is_forked_child() {
            true => Error::DaemonGone,
            false => self.events.closed_error(),
        }
    }

    pub(crate) fn set_gone(&self) {
        self.gone.store(true, Ordering::Relaxed);
    }

    /// Gives the engine a turn when nobody else does; says whether it had work.
    pub(crate) fn drive(&self) -> bool {
        self.link.drive()
    }

    /// Has the engine send what was just posted to this queue pair, if it can now: then nobody needs to
    /// tell it.
    pub(crate) fn transmit_posted(&self, qp: QpNum) -> bool {
        self.link.transmit_posted(qp)
    }

    /// How many shards the RNIC has: each has rings of its own.
    pub(crate) fn shards(&self) -> usize {
        self.bells.len()
    }

    /// Tells the shard that has a queue pair that it has new work.
    pub(crate) fn ring_doorbell(&self, shard: u32, qp: QpNum) -> Result<(), Error> {
        let Some(bell) = self.bells.get(shard as usize) else {
            return Err(Error::protocol(format!(
                "queue pair {qp} in shard {shard} of {}",
                self.bells.len()
            )));
        };
        // The clock costs as much as ringing does, and hardly ever anybody waits.
        let mut deadline = None;
        loop {
            let mut doorbells = lock(&bell.ring);
            let (rung, kick) = match doorbells.ring(qp) {
                Ok(kick) => (true, kick),
                Err(_) => (false, doorbells.take_sleeping()),
            };
            drop(doorbells);
            if kick {
                bell.kick.kick();
            }
            // An engine that is gone may have left its flag at sleeping, or its ring full.
            if (kick || !rung) && (self.is_gone() || self.events.is_closed()) {
                self.set_gone();
                return Err(self.closed_error());
            }
            if rung {
                return Ok(());
            }
            let deadline = deadline.get_or_insert_with(|| Deadline::after(DOORBELL_PATIENCE));
            if deadline.left().is_none() {
                return Err(deadline.missed("the engine's look at its doorbells"));
            }
            if !self.drive() {
                std::thread::yield_now();
            }
        }
    }

    /// A future of this task is about to wait. Nobody else would drive an engine that lives on its
    /// clients' calls: the task runs again at once.
    pub(crate) fn come_back(&self, task: &Task<'_>) {
        if self.is_inline() {
            task.waker().wake_by_ref();
        }
    }

    /// Blocks until one of the descriptors is ready, for at most `limit`; may return early for no
    /// reason. With an engine that this process must drive, drives it meanwhile.
    pub(crate) fn block(&self, fds: &mut [PollFd<'_>], limit: Duration) -> Result<(), Error> {
        if !self.link.is_inline() {
            return poll(fds, limit.min(LOOK_ROUND));
        }
        let deadline = Deadline::after(limit.min(LOOK_ROUND));
        loop {
            let worked = self.drive();
            poll(fds, Duration::ZERO)?;
            let ready = fds.iter().any(|fd| fd.revents() != PollFlags::empty());
            let Some(left) = deadline.left() else {
                return Ok(());
            };
            if ready || worked {
                return Ok(());
            }
            std::thread::sleep(left.min(INLINE_NAP));
        }
    }
}

impl AsFd for Context {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event_fd()
    }
}

impl AsRawFd for Context {
    fn as_raw_fd(&self) -> RawFd {
        self.event_fd().as_raw_fd()
    }
}
