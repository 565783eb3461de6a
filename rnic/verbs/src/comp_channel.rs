//! Completion channels, on which programs wait for completions.
//!
//! A channel's descriptor is an epoll instance that has the queues' own: a completion wakes the program
//! without a thread between. What is taken off it is one wake-up, which is one event.
//!
//! A program that asks for an event while completions wait, and then does not poll all of them, gets an
//! event for the rest at once: adapters do so, and programs (perftest) rely on it.

use std::collections::HashMap;
use std::ffi::c_void;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, Weak};

use rnic::CompletionQueue;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::abi::{ibv_comp_channel, ibv_cq};
use crate::context::Context;
use crate::ffi::{Object, Outcome, Ptr, Shared, field, object};
use crate::lock;
use crate::queue::{EventQueue, Unacknowledged};
use crate::users::Users;

/// Stands for [`CompChannel::immediate`] among the numbers of queues, which have 32 bits.
const IMMEDIATE: u64 = u64::MAX;

/// A completion queue, as its channel knows it.
pub(crate) trait Queue: Send + Sync {
    fn rnic(&self) -> &CompletionQueue;

    /// The events of its channel.
    fn unacknowledged(&self) -> &Unacknowledged;

    /// The queue, and the program's own word for it.
    fn as_seen(&self) -> (Ptr<ibv_cq>, Ptr<c_void>);
}

impl dyn Queue + '_ {
    fn number(&self) -> u64 {
        self.rnic().id().0.into()
    }
}

#[repr(C)]
pub(crate) struct CompChannel {
    abi: Shared<ibv_comp_channel>,
    epoll: OwnedFd,
    /// By number. The lock is held from the look-up of a queue until its event counts as one to be
    /// acknowledged, so that the queue's destruction comes before the event or waits for it.
    cqs: Mutex<HashMap<u64, Weak<dyn Queue>>>,
    pub(crate) users: Users,
    /// Numbers of queues with such an event; its descriptor is in `epoll`.
    immediate: EventQueue<u64>,
}

object!(CompChannel: ibv_comp_channel => offset_of!(CompChannel, abi));

impl CompChannel {
    pub(crate) fn create(context: &Context) -> Outcome<Arc<Self>> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let immediate = EventQueue::new()?;
        let data = EventData::new_u64(IMMEDIATE);
        epoll::add(&epoll, immediate.counter(), data, EventFlags::IN)?;
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
            immediate,
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

    pub(crate) fn add(&self, cq: &Arc<dyn Queue>) -> Outcome<()> {
        let number = cq.number();
        let mut cqs = lock(&self.cqs);
        epoll::add(
            &self.epoll,
            cq.rnic().fd(),
            EventData::new_u64(number),
            EventFlags::IN,
        )?;
        cqs.insert(number, Arc::downgrade(cq));
        let count = field!(self.abi, refcnt).get();
        field!(self.abi, refcnt).set(count + 1);
        Ok(())
    }

    pub(crate) fn remove(&self, cq: &dyn Queue) {
        let mut cqs = lock(&self.cqs);
        cqs.remove(&cq.number());
        self.immediate.take_back(|number| *number == cq.number());
        // A parent's instance is a child's too.
        if !self.immediate.is_parents()
            && let Err(errno) = epoll::delete(&self.epoll, cq.rnic().fd())
        {
            log::debug!("a completion queue was not in its channel's epoll set: {errno}");
        }
        let count = field!(self.abi, refcnt).get();
        field!(self.abi, refcnt).set(count - 1);
    }

    /// Takes an event that is there: the queue that it is of, as the program sees it. None when there is none, or
    /// when another thread has taken it.
    pub(crate) fn take_event(&self) -> Outcome<Option<(Ptr<ibv_cq>, Ptr<c_void>)>> {
        self.immediate.fd_to_wait_on()?;
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
        let taken = match event.data.u64() {
            IMMEDIATE => self.take_immediate(),
            number => self.take_notification(number)?,
        };
        Ok(taken.map(|cq| cq.as_seen()))
    }

    /// The event that a completion made.
    fn take_notification(&self, number: u64) -> Outcome<Option<Arc<dyn Queue>>> {
        let cqs = lock(&self.cqs);
        let Some(cq) = cqs.get(&number).and_then(Weak::upgrade) else {
            return Ok(None);
        };
        let told = match cq.rnic().take_notification() {
            Ok(told) => told,
            // The program polls, and finds that nothing works any more.
            Err(rnic::Error::DaemonGone | rnic::Error::SessionEnded(_)) => true,
            Err(error) => return Err(error.into()),
        };
        if told {
            cq.unacknowledged().add_one();
        }
        Ok(told.then_some(cq))
    }

    /// The event of a queue that no completion will make.
    pub(crate) fn tell_at_once(&self, cq: &dyn Queue) {
        self.immediate.push(cq.number());
    }

    fn take_immediate(&self) -> Option<Arc<dyn Queue>> {
        let cqs = lock(&self.cqs);
        let number = self.immediate.take_unread()?;
        let cq = cqs.get(&number).and_then(Weak::upgrade)?;
        cq.unacknowledged().add_one();
        Some(cq)
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
