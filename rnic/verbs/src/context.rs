//! Opened devices.

use std::mem::offset_of;
use std::sync::Arc;

use crate::abi::{
    IBV_EVENT_CQ_ERR, IBV_EVENT_DEVICE_FATAL, IBV_EVENT_SRQ_LIMIT_REACHED, ibv_async_event,
    ibv_context, verbs_context,
};
use crate::cq::Cq;
use crate::exports::ops;
use crate::ffi::{Object, Outcome, Ptr, Shared, object, zeroable};
use crate::process::Process;
use crate::queue::{EventQueue, Unacknowledged};
use crate::session::Session;
use crate::srq::Srq;
use crate::users::Users;

zeroable!(ibv_async_event);

/// An event that waits for the program.
struct AsyncEvent {
    abi: ibv_async_event,
    /// Of the object that it is about; the device has none.
    unacknowledged: Option<Arc<Unacknowledged>>,
}

#[repr(C)]
pub(crate) struct Context {
    abi: Shared<verbs_context>,
    session: Arc<Session>,
    asynchronous: EventQueue<AsyncEvent>,
    /// Identifiers of the connection manager, for the context that they have in common.
    pub(crate) users: Users,
}

object!(Context: ibv_context => offset_of!(Context, abi) + offset_of!(verbs_context, context));

impl Context {
    pub(crate) fn open(session: &Arc<Session>) -> Outcome<Arc<Self>> {
        let asynchronous = EventQueue::new()?;
        let device = Process::current().device(session.interface());
        let context = Arc::new(Self {
            abi: Shared::new(ops::verbs_context(device.abi_ptr(), asynchronous.fd())),
            session: session.clone(),
            asynchronous,
            users: Users::default(),
        });
        session.add_context(&context);
        Ok(context)
    }

    pub(crate) fn close(context: Ptr<ibv_context>) -> Outcome<()> {
        let found = context.object::<Self>()?;
        found.users.check_none("the device's context")?;
        drop(context.take_back::<Self>()?);
        Ok(())
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    pub(crate) fn rnic(&self) -> &rnic::Context {
        self.session.rnic()
    }

    pub(crate) fn event_fd(&self) -> Outcome<std::os::fd::RawFd> {
        self.asynchronous.fd_to_wait_on()
    }

    /// The event that a program may take now, when it has read one off the descriptor.
    pub(crate) fn take_event(&self) -> Option<ibv_async_event> {
        let count = |event: &AsyncEvent| {
            if let Some(unacknowledged) = &event.unacknowledged {
                unacknowledged.add_one();
            }
        };
        Some(self.asynchronous.take(count)?.abi)
    }

    /// The program gives an event back. Queue pairs have no events.
    pub(crate) fn acknowledge(event: ibv_async_event) -> Outcome<()> {
        let element = event.element as u64;
        match event.event_type {
            IBV_EVENT_CQ_ERR => Ptr::from_addr(element)
                .object::<Cq>()?
                .async_unacknowledged
                .acknowledge(1),
            IBV_EVENT_SRQ_LIMIT_REACHED => Ptr::from_addr(element)
                .object::<Srq>()?
                .unacknowledged
                .acknowledge(1),
            _ => {}
        }
        Ok(())
    }

    /// Tells the program of something that happened to an object.
    pub(crate) fn tell(&self, abi: ibv_async_event, unacknowledged: &Arc<Unacknowledged>) {
        let unacknowledged = Some(unacknowledged.clone());
        self.asynchronous.push(AsyncEvent {
            abi,
            unacknowledged,
        });
    }

    pub(crate) fn device_gone(&self) {
        self.asynchronous.push(AsyncEvent {
            abi: ibv_async_event {
                element: 0,
                event_type: IBV_EVENT_DEVICE_FATAL,
            },
            unacknowledged: None,
        });
    }

    /// Takes back what was told of an object that is about to be destroyed, and waits until the program has
    /// acknowledged what it took (ibv_get_async_event(3)).
    pub(crate) fn forget(&self, element: usize, unacknowledged: &Unacknowledged) {
        self.asynchronous
            .take_back(|event| event.abi.element == element);
        unacknowledged.wait_for_all();
    }
}
