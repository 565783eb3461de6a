//! Completion queues, and the channels on which programs wait for them.
//!
//! A channel's descriptor is an epoll instance that has the queues' own: a completion wakes the program
//! without a thread between. What is taken off it is one wake-up, which is one event.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, Weak};

use rnic::CompletionQueue;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::abi::{ibv_comp_channel, ibv_cq, ibv_cq_ex};
use crate::context::Context;
use crate::ffi::{Fail, Object, Outcome, Ptr, Shared, zeroable};
use crate::lock;
use crate::pd::{Use, Users};
use crate::poll::{ExPoll, Polls};
use crate::queue::Unacknowledged;

zeroable!(ibv_cq_ex);

#[repr(C)]
pub(crate) struct CompChannel {
    abi: Shared<ibv_comp_channel>,
    epoll: OwnedFd,
    /// By number.
    cqs: Mutex<HashMap<u64, Weak<Cq>>>,
    users: Users,
}

// SAFETY: repr(C), and `abi` comes first.
unsafe impl Object for CompChannel {
    type Abi = ibv_comp_channel;
}

impl CompChannel {
    pub(crate) fn create(context: &Context) -> Outcome<Arc<Self>> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let abi = ibv_comp_channel {
            context: context.abi_ptr(),
            fd: epoll.as_raw_fd(),
            refcnt: 0,
        };
        Ok(Arc::new(Self {
            abi: Shared::new(abi),
            epoll,
            cqs: Mutex::default(),
            users: Users::default(),
        }))
    }

    pub(crate) fn destroy(channel: Ptr<ibv_comp_channel>) -> Outcome<()> {
        channel
            .object::<Self>()?
            .users
            .check_none("the completion channel")?;
        drop(channel.take_back::<Self>()?);
        Ok(())
    }

    fn add(&self, cq: &Arc<Cq>) -> Outcome<()> {
        let number = cq.number();
        let mut cqs = lock(&self.cqs);
        epoll::add(
            &self.epoll,
            cq.cq.fd(),
            EventData::new_u64(number),
            EventFlags::IN,
        )?;
        cqs.insert(number, Arc::downgrade(cq));
        self.abi.update(|abi| abi.refcnt += 1);
        Ok(())
    }

    fn remove(&self, cq: &Cq) {
        let mut cqs = lock(&self.cqs);
        cqs.remove(&cq.number());
        if let Err(errno) = epoll::delete(&self.epoll, cq.cq.fd()) {
            log::debug!("a completion queue that its channel had not: {errno}");
        }
        self.abi.update(|abi| abi.refcnt -= 1);
    }

    /// Takes an event that is there: the queue that it is of. None when there is none, or when another
    /// thread has taken it.
    pub(crate) fn take_event(&self) -> Outcome<Option<Arc<Cq>>> {
        let mut found = [epoll::Event {
            flags: EventFlags::empty(),
            data: EventData::new_u64(0),
        }];
        let now = Timespec::default();
        let count = match epoll::wait(&self.epoll, &mut found, Some(&now)) {
            Ok(count) => count,
            Err(Errno::INTR) => 0,
            Err(errno) => return Err(errno.into()),
        };
        if count == 0 {
            return Ok(None);
        }
        let [event] = found;
        let Some(cq) = lock(&self.cqs)
            .get(&event.data.u64())
            .and_then(Weak::upgrade)
        else {
            return Ok(None);
        };
        let told = match cq.cq.take_notification() {
            Ok(told) => told,
            // The program polls, and finds that nothing works any more.
            Err(rnic::Error::DaemonGone | rnic::Error::SessionEnded(_)) => true,
            Err(error) => return Err(error.into()),
        };
        if told {
            cq.unacknowledged.add_one();
        }
        Ok(told.then_some(cq))
    }

    /// The descriptor to wait on, unless the program has said that it does not wait.
    pub(crate) fn fd_to_wait_on(&self) -> Outcome<RawFd> {
        let flags = rustix::fs::fcntl_getfl(&self.epoll)?;
        match flags.contains(OFlags::NONBLOCK) {
            true => Err(Errno::AGAIN.into()),
            false => Ok(self.epoll.as_raw_fd()),
        }
    }
}

#[repr(C)]
pub(crate) struct Cq {
    pub(crate) abi: Shared<ibv_cq_ex>,
    cq: CompletionQueue,
    channel: Option<(Arc<CompChannel>, Use)>,
    pub(crate) users: Users,
    pub(crate) unacknowledged: Unacknowledged,
    context: Arc<Context>,
    pub(crate) polls: Polls,
    /// What ibv_start_poll and its like are at.
    pub(crate) ex: Mutex<ExPoll>,
}

// SAFETY: repr(C), and `abi` comes first and begins with an ibv_cq.
unsafe impl Object for Cq {
    type Abi = ibv_cq;
}

/// What a completion queue is made with.
pub(crate) struct CqInit {
    pub(crate) cqe: u32,
    pub(crate) cq_context: Ptr<c_void>,
    pub(crate) channel: Ptr<ibv_comp_channel>,
}

impl Cq {
    pub(crate) fn create(context: &Arc<Context>, init: &CqInit) -> Outcome<Arc<Self>> {
        if init.cqe == 0 {
            return Err(Fail::of(Errno::INVAL, "a completion queue without entries"));
        }
        let channel = match init.channel.is_null() {
            true => None,
            false => {
                let channel = init.channel.share::<CompChannel>()?;
                let usage = channel.users.add();
                Some((channel, usage))
            }
        };
        let cq = CompletionQueue::create(context.rnic(), init.cqe)?;
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
            context: context.clone(),
            polls: Polls::default(),
            ex: Mutex::default(),
        });
        if let Some((channel, _)) = &made.channel {
            channel.add(&made)?;
        }
        lock(&context.session().cqs).insert(made.cq.id(), Arc::downgrade(&made));
        Ok(made)
    }

    pub(crate) fn destroy(cq: Ptr<ibv_cq>) -> Outcome<()> {
        let shared = cq.share::<Self>()?;
        shared.users.check_none("the completion queue")?;
        // The lock is held while the session's thread tells something of it.
        lock(&shared.context.session().cqs).remove(&shared.cq.id());
        if let Some((channel, _)) = &shared.channel {
            channel.remove(&shared);
        }
        shared.unacknowledged.wait_for_none();
        shared.context.forget(cq.addr());
        drop(shared);
        drop(cq.take_back::<Self>()?);
        Ok(())
    }

    pub(crate) fn rnic(&self) -> &CompletionQueue {
        &self.cq
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    fn number(&self) -> u64 {
        self.cq.id().0.into()
    }

    /// The program's own word for it.
    pub(crate) fn cq_context(&self) -> Ptr<c_void> {
        self.abi.get(|abi| abi.base.cq_context)
    }
}
