//! Completion queues.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::mem::offset_of;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};

use rnic::{CompletionQueue, CqId, EventSource, QpNum};
use rustix::io::Errno;

use crate::abi::{IBV_EVENT_CQ_ERR, ibv_async_event, ibv_comp_channel, ibv_cq, ibv_cq_ex, ibv_wc};
use crate::comp_channel::{CompChannel, Queue};
use crate::context::Context;
use crate::device::{COMPLETION_VECTORS, refused_size};
use crate::ffi::{Fail, Object, Outcome, Ptr, Shared, field, object, zeroable};
use crate::lock;
use crate::queue::Unacknowledged;
use crate::session::Part;
use crate::users::{Use, Users};

zeroable!(ibv_cq_ex);

#[repr(C)]
pub(crate) struct Cq {
    pub(crate) abi: Shared<ibv_cq_ex>,
    cq: CompletionQueue,
    channel: Option<(Arc<CompChannel>, Use)>,
    pub(crate) users: Users,
    /// Events of its completion channel, and asynchronous ones.
    pub(crate) unacknowledged: Unacknowledged,
    pub(crate) async_unacknowledged: Arc<Unacknowledged>,
    context: Arc<Context>,
    pub(crate) polls: Polls,
    /// An event was asked for while completions waited, and the program has not polled since.
    asked_late: AtomicBool,
    /// The completion at which `ibv_start_poll` and `ibv_next_poll` have arrived.
    pub(crate) current: Mutex<ibv_wc>,
}

object!(Cq: ibv_cq => offset_of!(Cq, abi));

pub(crate) struct CqInit {
    pub(crate) cqe: u32,
    pub(crate) cq_context: Ptr<c_void>,
    pub(crate) channel: Ptr<ibv_comp_channel>,
    /// Of those that the context has.
    pub(crate) vector: u32,
}

impl Cq {
    pub(crate) fn create(context: &Arc<Context>, init: &CqInit) -> Outcome<Arc<Self>> {
        if init.cqe == 0 {
            return Err(Fail::of(Errno::INVAL, "a completion queue without entries"));
        }
        if init.vector >= COMPLETION_VECTORS {
            let why = format!("completion vector {} of {COMPLETION_VECTORS}", init.vector);
            return Err(Fail::of(Errno::INVAL, why));
        }
        let channel = match init.channel.is_null() {
            true => None,
            false => {
                let channel = init.channel.share::<CompChannel>()?;
                let usage = channel.users.add();
                Some((channel, usage))
            }
        };
        let cq = context.rnic().create_cq(init.cqe).map_err(|error| {
            refused_size(context.session(), error, |info| {
                init.cqe > info.limits.cq_depth
            })
        })?;
        let abi = Shared::zeroed(|abi: &mut ibv_cq_ex| {
            abi.base.context = context.abi_ptr();
            abi.base.channel = init.channel;
            abi.base.cq_context = init.cq_context;
            abi.base.handle = cq.id().0;
            abi.base.cqe = c_int::try_from(cq.depth()).unwrap_or(c_int::MAX);
        });
        let made = Arc::new(Self {
            abi,
            cq,
            channel,
            users: Users::default(),
            unacknowledged: Unacknowledged::default(),
            async_unacknowledged: Arc::default(),
            context: context.clone(),
            polls: Polls::default(),
            asked_late: AtomicBool::new(false),
            current: Mutex::default(),
        });
        if let Some((channel, _)) = &made.channel {
            let queue: Arc<dyn Queue> = made.clone();
            channel.add(&queue)?;
        }
        lock(&context.session().part::<Cqs>().0).insert(made.cq.id(), Arc::downgrade(&made));
        Ok(made)
    }

    pub(crate) fn destroy(cq: Ptr<ibv_cq>) -> Outcome<()> {
        let shared = cq.share::<Self>()?;
        shared.users.check_none("the completion queue")?;
        // The lock is held while the session's thread tells something of it.
        lock(&shared.context.session().part::<Cqs>().0).remove(&shared.cq.id());
        if let Some((channel, _)) = &shared.channel {
            channel.remove(&*shared);
        }
        shared.unacknowledged.wait_for_all();
        shared
            .context
            .forget(cq.addr(), &shared.async_unacknowledged);
        drop(shared);
        drop(cq.take_back::<Self>()?);
        Ok(())
    }

    /// Makes it deeper, or leaves it as it is when it is deep enough.
    pub(crate) fn resize(&self, cqe: u32) -> Outcome<()> {
        if cqe == 0 {
            return Err(Fail::of(Errno::INVAL, "a completion queue without entries"));
        }
        self.cq.resize(cqe).map_err(|error| {
            refused_size(self.context.session(), error, |info| {
                cqe > info.limits.cq_depth
            })
        })?;
        let depth = c_int::try_from(self.cq.depth()).unwrap_or(c_int::MAX);
        field!(self.abi, base.cqe).store(depth);
        Ok(())
    }

    pub(crate) fn rnic(&self) -> &CompletionQueue {
        &self.cq
    }

    /// The number by which the program and its peers know a queue pair.
    pub(crate) fn number_of(&self, qp: QpNum) -> u32 {
        self.context.session().number_of(qp)
    }

    /// Asks for an event.
    pub(crate) fn request_notification(&self, solicited_only: bool) {
        self.cq.request_notification(solicited_only);
        if !solicited_only && self.channel.is_some() && self.has_completions() {
            self.asked_late.store(true, Ordering::Relaxed);
        }
    }

    /// The program has polled. What it left of what was there when it asked for an event is the event.
    pub(crate) fn polled(&self) {
        if self.asked_late.load(Ordering::Relaxed)
            && self.asked_late.swap(false, Ordering::Relaxed)
            && self.has_completions()
            && let Some((channel, _)) = &self.channel
        {
            channel.tell_at_once(self);
        }
    }

    fn has_completions(&self) -> bool {
        self.cq.has_completions().unwrap_or(false)
    }
}

impl Queue for Cq {
    fn rnic(&self) -> &CompletionQueue {
        &self.cq
    }

    fn unacknowledged(&self) -> &Unacknowledged {
        &self.unacknowledged
    }

    fn as_seen(&self) -> (Ptr<ibv_cq>, Ptr<c_void>) {
        (self.abi_ptr(), field!(self.abi, base.cq_context).get())
    }
}

/// Those of a session. The lock is held while one of them has a share more, so that who destroys it sees none.
#[derive(Default)]
struct Cqs(Mutex<HashMap<CqId, Weak<Cq>>>);

impl Part for Cqs {
    fn tell(&self, source: EventSource) {
        let EventSource::CompletionQueue(id) = source else {
            return;
        };
        let cqs = lock(&self.0);
        if let Some(cq) = cqs.get(&id).and_then(Weak::upgrade) {
            let event = ibv_async_event {
                element: cq.abi_ptr().addr(),
                event_type: IBV_EVENT_CQ_ERR,
            };
            cq.context.tell(event, &cq.async_unacknowledged);
        }
    }
}

/// Polls in vain, one after the other. Programs of the verbs poll without a break. What they wait for comes
/// from threads that poll too, the daemon's and the peer's, and on a host with fewer cores than of these a
/// program would keep away just what it waits for.
#[derive(Debug, Default)]
pub(crate) struct Polls {
    in_vain: AtomicU32,
}

impl Polls {
    /// After so many each lets others have the core.
    const PATIENCE: u32 = 16;

    pub(crate) fn found(&self, something: bool) {
        // Counting wrongly when several threads poll does no harm, and needs no locked instruction.
        let in_vain = self.in_vain.load(Ordering::Relaxed);
        match (something, in_vain) {
            (true, 0) => {}
            (true, _) => self.in_vain.store(0, Ordering::Relaxed),
            (false, Self::PATIENCE..) => std::thread::yield_now(),
            (false, _) => self.in_vain.store(in_vain + 1, Ordering::Relaxed),
        }
    }
}
