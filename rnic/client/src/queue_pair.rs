//! Queue pairs: posting work, and their connections.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use rnic_ipc::control::{
    Access, ConnectSpec, JoinEnd, JoinSpec, MpaOptions, QpAttributes, QpState, Refusal,
    RefusalCode, Request, Response,
};
use rnic_ipc::id::QpNum;
use rnic_ipc::ring::{QpMemory, WorkQueueProducer};
use rnic_ipc::work::{MAX_INLINE, MAX_SGE, Sge};

use crate::completion::CompletionQueue;
use crate::context::{Inner, same_context};
use crate::error::Error;
use crate::events::{ConnectionEvent, QpInbox};
use crate::link::{descriptors, unexpected};
use crate::memory::ProtectionDomain;
use crate::remote_memory::RemoteMemory;
use crate::shared::SharedReceiveQueue;
use crate::wait::lock;
use crate::waits::{Connecting, Disconnecting};
use crate::work::{WorkRequest, full_if_none, push_all, push_batch};

mod of_stream;
mod options;

pub use options::{ConnectOptions, QpConfig};

/// A send queue, a receive queue and at most one connection at a time.
///
/// Posting is thread-safe; work is done in the order of posting. Dropping a queue pair ends its
/// connection abortively: [`QueuePair::disconnect`] first to end it in order.
///
/// `drop` is one request to the RNIC, and blocks until it is answered: no memory is reached for this queue pair any
/// more, and none of its completions comes.
#[derive(Debug)]
pub struct QueuePair {
    /// Before what it uses: fields are dropped in order.
    handle: Handle,
    sq: Mutex<WorkQueueProducer>,
    rq: Mutex<WorkQueueProducer>,
    /// Held while a connection is begun, or the last one forgotten: no other thread comes between the
    /// RNIC's yes and what is noted of it.
    turn: Mutex<()>,
    /// Whether it began to connect, or failed, or takes early sends.
    takes_sends: AtomicBool,
    /// It was joined by number.
    joined: AtomicBool,
    early_sends: bool,
    max_sge: usize,
    max_inline: usize,
    srq: Option<SharedReceiveQueue>,
    pd: ProtectionDomain,
}

/// How work is put on a queue made for so many elements and inline bytes; it says how much was put.
type Push = fn(&mut WorkQueueProducer, &[WorkRequest<'_>], usize, usize) -> Result<usize, Error>;

/// The queue pair's existence in the RNIC.
#[derive(Debug)]
struct Handle {
    context: Arc<Inner>,
    num: QpNum,
    /// Of its send queue and its receive queue. Kept, because the RNIC writes to them as long as the queue
    /// pair lives.
    cqs: (CompletionQueue, CompletionQueue),
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.context.give_back(&Request::DestroyQp { qp: self.num });
        if self.context.is_forked_child() {
            return;
        }
        self.context
            .forget(|inboxes| drop(inboxes.qps.remove(&self.num)));
        self.cqs.0.forget_tracked(self.num);
        self.cqs.1.forget_tracked(self.num);
    }
}

impl ProtectionDomain {
    /// Makes a queue pair whose send-queue and receive-queue completions go to the two completion queues, which may be
    /// one.
    ///
    /// # Errors
    /// [`Error::Refused`]: it is larger than the RNIC allows. [`Error::WrongContext`], [`Error::DaemonGone`].
    pub fn create_qp(
        &self,
        send_cq: &CompletionQueue,
        recv_cq: &CompletionQueue,
        config: QpConfig,
    ) -> Result<QueuePair, Error> {
        QueuePair::create(self, (send_cq, recv_cq), config)
    }
}

impl QueuePair {
    fn create(
        pd: &ProtectionDomain,
        (send_cq, recv_cq): (&CompletionQueue, &CompletionQueue),
        config: QpConfig,
    ) -> Result<Self, Error> {
        let srq = config.srq.as_ref();
        let context = pd.context();
        let parts = [
            (Some(send_cq.context()), "the send completion queue"),
            (Some(recv_cq.context()), "the receive completion queue"),
            (
                srq.map(SharedReceiveQueue::context),
                "the shared receive queue",
            ),
        ];
        for (part, what) in parts {
            same_context(
                (part.unwrap_or(context), what),
                (context, "the protection domain"),
            )?;
        }
        let request = Request::CreateQp(QpAttributes {
            pd: pd.id(),
            send_cq: send_cq.id(),
            recv_cq: recv_cq.id(),
            sq_depth: config.sq_depth,
            rq_depth: config.rq_depth,
            srq: srq.map(SharedReceiveQueue::id),
            max_sge: config.max_sge,
            max_inline: config.max_inline,
            signal_all: config.signal_all,
            receive_wait: config.receive_wait,
        });
        let (num, rings) = context.request_rings(&request, |response, fds| {
            let Response::Qp {
                qp,
                sq_slots,
                rq_slots,
            } = response
            else {
                return Err(unexpected(&response));
            };
            let rings = descriptors::<1>(fds).and_then(|[memory]| {
                let layout = QpMemory::layout(sq_slots, rq_slots).map_err(Error::of_ring)?;
                QpMemory::attach_fd(memory, &layout).map_err(Error::of_ring)
            });
            Ok((qp, rings))
        })?;
        // From here on an error destroys it again.
        let handle = Handle {
            context: context.clone(),
            num,
            cqs: (send_cq.clone(), recv_cq.clone()),
        };
        context
            .events()
            .inboxes()
            .qps
            .insert(num, QpInbox::default());
        let (sq, rq) = rings?;
        Ok(Self {
            handle,
            sq: Mutex::new(sq),
            rq: Mutex::new(rq),
            turn: Mutex::default(),
            takes_sends: AtomicBool::new(config.early_sends),
            joined: AtomicBool::new(false),
            early_sends: config.early_sends,
            max_sge: (config.max_sge as usize).min(MAX_SGE),
            max_inline: (config.max_inline as usize).min(MAX_INLINE),
            srq: config.srq,
            pd: pd.clone(),
        })
    }

    /// The protection domain that it is of.
    pub fn protection_domain(&self) -> &ProtectionDomain {
        &self.pd
    }

    /// Its number; completions carry it.
    pub fn num(&self) -> QpNum {
        self.handle.num
    }

    /// Posts one piece of work on the send queue: anything but a receive.
    ///
    /// # Errors
    /// [`Error::QueueFull`] when the RNIC has not taken enough of the earlier work yet; [`Error::NotConnected`]
    /// before a connection was begun.
    pub fn post_send(&self, work: WorkRequest<'_>) -> Result<(), Error> {
        full_if_none(self.post_send_batch(std::slice::from_ref(&work))?)
    }

    /// Posts one receive.
    pub fn post_recv(&self, work: WorkRequest<'_>) -> Result<(), Error> {
        full_if_none(self.post_recv_batch(std::slice::from_ref(&work))?)
    }

    /// Posts a signalled RDMA Write.
    pub fn post_write(&self, wr_id: u64, sges: &[Sge], remote: RemoteMemory) -> Result<(), Error> {
        self.post_send(WorkRequest::write(wr_id, sges, remote))
    }

    /// Posts a signalled RDMA Read.
    pub fn post_read(&self, wr_id: u64, sges: &[Sge], remote: RemoteMemory) -> Result<(), Error> {
        self.post_send(WorkRequest::read(wr_id, sges, remote))
    }

    /// Posts as much of `work` as fits the send queue, in order, with one doorbell, and says how
    /// many.
    pub fn post_send_batch(&self, work: &[WorkRequest<'_>]) -> Result<usize, Error> {
        self.put_sends(work, push_batch)
    }

    /// Posts all of `work`, in order, with one doorbell, or nothing.
    ///
    /// # Errors
    /// [`Error::QueueFull`] also when there is room for some of it.
    pub fn post_send_all(&self, work: &[WorkRequest<'_>]) -> Result<(), Error> {
        self.put_sends(work, push_all).map(|_| ())
    }

    fn put_sends(&self, work: &[WorkRequest<'_>], push: Push) -> Result<usize, Error> {
        if work.iter().any(WorkRequest::is_recv) {
            return Err(Error::WrongQueue { queue: "send" });
        }
        if !self.takes_sends.load(Ordering::Relaxed) {
            self.context().check()?;
            return Err(Error::NotConnected);
        }
        if work.iter().any(WorkRequest::is_for_joined) && !self.joined.load(Ordering::Relaxed) {
            return Err(Error::NotJoined);
        }
        self.post((&self.sq, push), work, |context, qp| {
            context.transmit_posted(qp)
        })
    }

    /// Posts as many receives as fit the receive queue, in order, with one doorbell, and says how
    /// many.
    pub fn post_recv_batch(&self, work: &[WorkRequest<'_>]) -> Result<usize, Error> {
        if !work.iter().all(WorkRequest::is_recv) {
            return Err(Error::WrongQueue { queue: "receive" });
        }
        if self.srq.is_some() {
            return Err(Error::SharedReceives);
        }
        self.post((&self.rq, push_batch), work, |_, _| false)
    }

    /// `at_once`: the engine has been notified of it, and has done it.
    fn post(
        &self,
        (queue, push): (&Mutex<WorkQueueProducer>, Push),
        work: &[WorkRequest<'_>],
        at_once: impl Fn(&Inner, QpNum) -> bool,
    ) -> Result<usize, Error> {
        self.context().check()?;
        let mut queue = lock(queue);
        let posted = push(&mut queue, work, self.max_sge, self.max_inline)?;
        if posted > 0
            && !at_once(self.context(), self.num())
            && let Some(shard) = queue.set_pending()
        {
            drop(queue);
            self.context().ring_doorbell(shard, self.num())?;
        }
        Ok(posted)
    }

    /// Connects to a peer's listener, from the address that the options or the route to the peer say. A queue pair
    /// connects at most once, unless it is [`reset`](Self::reset). A name's addresses are those of
    /// [`peer_addresses`](crate::address::peer_addresses).
    ///
    /// The call waits for nobody. Where the host does not know the peer's link address yet, the RNIC is asked again, every
    /// few milliseconds, as long as this is awaited or waited for.
    pub fn connect(&self, remote: SocketAddr, options: ConnectOptions) -> Connecting<'_> {
        Connecting::to(self, remote, options)
    }

    /// Joins this queue pair to another by number, without a listener: the peer joins that one to this, and both are
    /// connected, whichever asks first. `remote` and `number` name the peer's queue pair, and `local` is the address by which
    /// the peer names this one, with [`Context::join_number`](crate::Context::join_number). Of `mpa` both sides say their
    /// own, as in [`ConnectOptions`].
    ///
    /// There is no end to the attempts but that of the wait, or of the queue pair. Sends of the peer for which no receive is
    /// posted wait for one, whatever [`QpConfig::receive_wait`] says. Sends and RDMA Writes complete when the peer's RNIC has
    /// acknowledged them. A peer that goes away while nothing is being sent ends nothing here: the next that is posted fails
    /// with [`WcStatus::RetryExceeded`](crate::WcStatus::RetryExceeded).
    pub fn join(
        &self,
        local: IpAddr,
        (address, number): (IpAddr, u32),
        mpa: MpaOptions,
    ) -> Connecting<'_> {
        let remote = JoinEnd { address, number };
        Connecting::join(self, JoinSpec { local, remote, mpa })
    }

    /// What the peer may do, of what the STags allow that it uses: of [`Access::REMOTE_READ`], [`Access::REMOTE_WRITE`] and
    /// [`Access::REMOTE_ATOMIC`]. All of it at first, and after [`Self::reset`]. What is not allowed ends the stream as if
    /// the STag did not allow it.
    pub fn set_peer_access(&self, access: Access) -> Result<(), Error> {
        let qp = self.num();
        self.context()
            .request_done(&Request::SetPeerAccess { qp, access })
    }

    pub(crate) fn begin_to_join(&self, spec: JoinSpec) -> Result<(), Error> {
        let qp = self.num();
        self.begin_connection(&Request::Join { qp, spec }, connecting_from)?;
        self.joined.store(true, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn begin_to_connect(
        &self,
        remote: SocketAddr,
        options: ConnectOptions,
    ) -> Result<(), Error> {
        let ConnectOptions {
            private_data,
            transport,
            mpa,
            local,
            local_port,
        } = options;
        let qp = self.num();
        let request = Request::Connect {
            qp,
            spec: ConnectSpec {
                remote,
                local,
                local_port,
                transport,
                mpa,
                private_data,
            },
        };
        self.begin_connection(&request, connecting_from)
    }

    /// Aborts a connect or accept whose outcome nobody waits for any more.
    pub(crate) fn give_up_connecting(&self) {
        match self.abort() {
            // It ended by itself at this moment.
            Ok(()) | Err(Error::Refused(_) | Error::DaemonGone | Error::SessionEnded(_)) => {}
            Err(error) => log::warn!("aborting the attempt of queue pair {}: {error}", self.num()),
        }
    }

    /// The next thing that happened to the connection, if there is one that no blocking call took.
    pub fn take_event(&self) -> Result<Option<ConnectionEvent>, Error> {
        let context = self.context();
        context.drive();
        let mut inboxes = context.events().inboxes();
        let event = inboxes
            .qps
            .get_mut(&self.num())
            .and_then(|found| found.events.pop_front());
        if event.is_none() && inboxes.is_closed() {
            context.set_gone();
            return Err(inboxes.closed_error());
        }
        Ok(event)
    }

    /// Ends the connection in order (all posted work, then FIN). Fine too when it ended in order already.
    ///
    /// TCP's last acknowledgment may still be lost: the RNIC gives it again when the peer asks for it. One
    /// that is in this process does so until its device is dropped, which
    /// [takes as long](crate::embedded::Device::shutdown) as the peer may need.
    pub fn disconnect(&self) -> Disconnecting<'_> {
        Disconnecting::new(self, self.ask_for_end())
    }

    /// Waits for the end of the connection, for which it does not ask.
    pub fn disconnected(&self) -> Disconnecting<'_> {
        Disconnecting::new(self, Ok(()))
    }

    /// Resets the connection at once. Outstanding work is flushed.
    pub fn abort(&self) -> Result<(), Error> {
        self.request_disconnect(true)
    }

    /// Ready to send becomes Terminate: the peer gets a Terminate (RFC 5040 section 6.2.1) instead of
    /// an end in order, and the connection ends. Outstanding work is flushed when it is gone.
    ///
    /// # Errors
    /// [`Error::Refused`] in any other state.
    pub fn terminate(&self) -> Result<(), Error> {
        self.modify(QpState::Terminate)
    }

    /// Any state becomes Error: a connection is reset, and outstanding work is flushed, also that
    /// of a queue pair that never was connected.
    pub fn fail(&self) -> Result<(), Error> {
        self.modify(QpState::Error)?;
        self.takes_sends.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Error becomes Idle: what was posted is flushed, and the queue pair may connect again. Events
    /// of its last connection that nobody took are dropped.
    ///
    /// # Errors
    /// [`Error::Refused`] in any other state, and when a completion queue of its overflowed.
    pub fn reset(&self) -> Result<(), Error> {
        let _turn = lock(&self.turn);
        self.modify(QpState::Idle)?;
        self.takes_sends.store(self.early_sends, Ordering::Relaxed);
        self.joined.store(false, Ordering::Relaxed);
        let mut inboxes = self.context().events().inboxes();
        if let Some(found) = inboxes.qps.get_mut(&self.num()) {
            found.begin_anew();
        }
        Ok(())
    }

    fn modify(&self, state: QpState) -> Result<(), Error> {
        let qp = self.num();
        self.context()
            .request_done(&Request::ModifyQp { qp, state })
    }

    /// Makes the request that begins a connection, whose end will be reported when it is granted, from the
    /// address that the response says.
    pub(crate) fn begin_connection(
        &self,
        request: &Request,
        local: impl FnOnce(Response) -> Result<SocketAddr, Error>,
    ) -> Result<(), Error> {
        let _turn = lock(&self.turn);
        let (response, _) = self.context().request(request, &[])?;
        let local = local(response)?;
        self.takes_sends.store(true, Ordering::Relaxed);
        let mut inboxes = self.context().events().inboxes();
        if let Some(found) = inboxes.qps.get_mut(&self.num()) {
            found.begun = Some(local);
        }
        Ok(())
    }

    /// The address and port of this side of the connection that was begun last. None before the first
    /// one, and after [`Self::reset`].
    pub fn local_addr(&self) -> Option<SocketAddr> {
        let _turn = lock(&self.turn);
        let inboxes = self.context().events().inboxes();
        inboxes.qps.get(&self.num())?.begun
    }

    /// Asks for an end in order. It may have ended already: then how is reported, perhaps only after the refusal.
    pub(crate) fn ask_for_end(&self) -> Result<(), Error> {
        match self.request_disconnect(false) {
            Err(Error::Refused(Refusal {
                code: RefusalCode::WrongState,
                ..
            })) if self.local_addr().is_some() => Ok(()),
            asked => asked,
        }
    }

    /// The state, as the RNIC sees it now.
    pub fn state(&self) -> Result<QpState, Error> {
        match self
            .context()
            .request(&Request::QueryQp { qp: self.num() }, &[])?
        {
            (Response::QpState(state), _) => Ok(state),
            (other, _) => Err(unexpected(&other)),
        }
    }

    fn request_disconnect(&self, abort: bool) -> Result<(), Error> {
        self.context().request_done(&Request::Disconnect {
            qp: self.num(),
            abort,
        })
    }

    pub(crate) fn context(&self) -> &Arc<Inner> {
        &self.handle.context
    }

    /// The completion queues of its send queue and its receive queue.
    pub(crate) fn completion_queues(&self) -> (&CompletionQueue, &CompletionQueue) {
        (&self.handle.cqs.0, &self.handle.cqs.1)
    }
}

/// The local address of a connection that was begun.
fn connecting_from(response: Response) -> Result<SocketAddr, Error> {
    match response {
        Response::Connecting { local } => Ok(local),
        other => Err(unexpected(&other)),
    }
}
