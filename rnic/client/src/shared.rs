//! Shared receive queues.

use std::sync::{Arc, Mutex};

use rnic_ipc::control::{Request, Response};
use rnic_ipc::id::SrqId;
use rnic_ipc::ring::{SrqMemory, WorkQueueProducer};
use rnic_ipc::work::MAX_SGE;

use crate::context::Inner;
use crate::error::Error;
use crate::link::{descriptors, unexpected};
use crate::memory::ProtectionDomain;
use crate::setters::setters;
use crate::wait::lock;
use crate::work::{WorkRequest, full_if_none, push_batch};

/// How large a shared receive queue is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SrqConfig {
    /// Receives that may wait.
    pub depth: u32,
    /// Elements that a receive may have, at most [`MAX_SGE`].
    pub max_sge: u32,
}

impl Default for SrqConfig {
    fn default() -> Self {
        Self {
            depth: 256,
            max_sge: 4,
        }
    }
}

setters! {
    SrqConfig {
        depth: u32,
        max_sge: u32,
    }
}

/// Receives that several queue pairs of one protection domain take from, each Send the oldest.
/// Clones are the same one.
///
/// A receive's completion comes to the receive completion queue of the queue pair that took it. A
/// queue pair that ends flushes at most the one that it had in hand; the others stay. `drop` of the last clone is one request
/// to the RNIC, and blocks until it is answered.
#[derive(Clone, Debug)]
pub struct SharedReceiveQueue {
    inner: Arc<SrqInner>,
}

#[derive(Debug)]
struct SrqInner {
    id: SrqId,
    ring: Mutex<WorkQueueProducer>,
    max_sge: usize,
    context: Arc<Inner>,
    _pd: ProtectionDomain,
}

impl ProtectionDomain {
    /// Makes a shared receive queue, which queue pairs are given by [`QpConfig::srq`](crate::QpConfig#structfield.srq).
    ///
    /// # Errors
    /// [`Error::Refused`]: it is larger than the RNIC allows. [`Error::DaemonGone`].
    pub fn create_srq(&self, config: SrqConfig) -> Result<SharedReceiveQueue, Error> {
        SharedReceiveQueue::create(self, config)
    }
}

impl SharedReceiveQueue {
    fn create(pd: &ProtectionDomain, config: SrqConfig) -> Result<Self, Error> {
        let SrqConfig { depth, max_sge } = config;
        let context = pd.context();
        let request = Request::CreateSrq {
            pd: pd.id(),
            depth,
            max_sge,
        };
        let (id, made) = context.request_rings(&request, |response, fds| {
            let Response::Srq { srq, slots } = response else {
                return Err(unexpected(&response));
            };
            let made = descriptors::<1>(fds).and_then(|[memory]| {
                SrqMemory::attach_fd(memory, slots, max_sge).map_err(Error::of_ring)
            });
            Ok((srq, made))
        })?;
        let ring = match made {
            Ok(ring) => ring,
            Err(error) => {
                context.give_back(&Request::DestroySrq { srq: id });
                return Err(error);
            }
        };
        context.events().inboxes().add_srq(id);
        let inner = SrqInner {
            id,
            ring: Mutex::new(ring),
            max_sge: (max_sge as usize).min(MAX_SGE),
            context: context.clone(),
            _pd: pd.clone(),
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// Its number, by which [`crate::EventSources`] names it.
    pub fn id(&self) -> SrqId {
        self.inner.id
    }

    pub(crate) fn context(&self) -> &Arc<Inner> {
        &self.inner.context
    }

    /// Posts one receive.
    ///
    /// # Errors
    /// [`Error::QueueFull`] when as many wait as there is room for.
    pub fn post_recv(&self, work: WorkRequest<'_>) -> Result<(), Error> {
        full_if_none(self.post_recv_batch(&[work])?)
    }

    /// Posts as many receives as fit, in order, and says how many.
    pub fn post_recv_batch(&self, work: &[WorkRequest<'_>]) -> Result<usize, Error> {
        if !work.iter().all(WorkRequest::is_recv) {
            return Err(Error::WrongQueue { queue: "receive" });
        }
        self.inner.context.check()?;
        push_batch(&mut lock(&self.inner.ring), work, self.inner.max_sge, 0)
    }

    /// Asks to be told once when fewer than `limit` receives wait: at once when that is so already.
    /// 0 takes the wish back.
    pub fn arm_limit(&self, limit: u32) -> Result<(), Error> {
        let srq = self.inner.id;
        self.inner
            .context
            .request_done(&Request::ArmSrq { srq, limit })
    }

    /// Whether the limit was reached since this was asked last. Never blocks; the news makes the
    /// context's event descriptor readable.
    pub fn take_limit_event(&self) -> Result<bool, Error> {
        let context = &self.inner.context;
        context.drive();
        let mut inboxes = context.events().inboxes();
        let low = inboxes.low_srqs.remove(&self.inner.id);
        if !low && inboxes.is_closed() {
            context.set_gone();
            return Err(inboxes.closed_error());
        }
        Ok(low)
    }
}

impl Drop for SrqInner {
    fn drop(&mut self) {
        self.context
            .give_back(&Request::DestroySrq { srq: self.id });
        self.context.forget(|inboxes| inboxes.remove_srq(self.id));
    }
}
