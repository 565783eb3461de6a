//! Opened devices.

use std::ffi::c_int;
use std::sync::Arc;

use crate::abi::{ibv_async_event, ibv_context, verbs_context};
use crate::exports::ops;
use crate::ffi::{Object, Outcome, Ptr, Shared, zeroable};
use crate::pd::Users;
use crate::process::Process;
use crate::queue::EventQueue;
use crate::session::Session;

zeroable!(ibv_async_event);

#[repr(C)]
pub(crate) struct Context {
    abi: Shared<verbs_context>,
    session: Arc<Session>,
    asynchronous: EventQueue<ibv_async_event>,
    /// Identifiers of the connection manager, for the context that they have in common.
    pub(crate) users: Users,
}

// SAFETY: repr(C), `abi` comes first, and an ibv_context is its last field.
unsafe impl Object for Context {
    type Abi = ibv_context;
    const OFFSET: usize = std::mem::offset_of!(verbs_context, context);
}

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

    pub(crate) fn event_fd(&self) -> std::os::fd::RawFd {
        self.asynchronous.fd()
    }

    /// The event that a program may take now, when it has read one off the descriptor.
    pub(crate) fn take_event(&self) -> Option<ibv_async_event> {
        self.asynchronous.take()
    }

    pub(crate) fn tell(&self, element: usize, event_type: c_int) {
        self.asynchronous.push(ibv_async_event {
            element,
            event_type,
        });
    }

    /// Takes back what was told of an object that is no more.
    pub(crate) fn forget(&self, element: usize) {
        self.asynchronous
            .take_back(|event| event.element == element);
    }
}
