//! Opened devices.

use std::mem::offset_of;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, Weak};

use crate::abi::{IBV_EVENT_DEVICE_FATAL, ibv_async_event, ibv_context, ibv_device, verbs_context};
use crate::ffi::{Object, Outcome, Ptr, Shared, object, zeroable};
use crate::lock;
use crate::process::Process;
use crate::queue::{EventQueue, Unacknowledged};
use crate::session::{Part, Session};
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
    /// Opens one, with the struct that `abi` makes for a device and a descriptor.
    pub(crate) fn open(
        session: &Arc<Session>,
        abi: fn(Ptr<ibv_device>, RawFd) -> verbs_context,
    ) -> Outcome<Arc<Self>> {
        let asynchronous = EventQueue::new()?;
        let device = Process::current().device(session.interface());
        let context = Arc::new(Self {
            abi: Shared::new(abi(device.abi_ptr(), asynchronous.fd())),
            session: session.clone(),
            asynchronous,
            users: Users::default(),
        });
        session.part::<Contexts>().add(&context);
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

    pub(crate) fn event_fd(&self) -> Outcome<RawFd> {
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

    /// Tells the program of something that happened to an object.
    pub(crate) fn tell(&self, abi: ibv_async_event, unacknowledged: &Arc<Unacknowledged>) {
        let unacknowledged = Some(unacknowledged.clone());
        self.asynchronous.push(AsyncEvent {
            abi,
            unacknowledged,
        });
    }

    fn device_gone(&self) {
        self.asynchronous.push(AsyncEvent {
            abi: ibv_async_event {
                element: 0,
                event_type: IBV_EVENT_DEVICE_FATAL,
            },
            unacknowledged: None,
        });
    }

    /// Takes back the events of an object that is about to be destroyed, and waits until the program has
    /// acknowledged what it took (ibv_get_async_event(3)).
    pub(crate) fn forget(&self, element: usize, unacknowledged: &Unacknowledged) {
        self.asynchronous
            .take_back(|event| event.abi.element == element);
        unacknowledged.wait_for_all();
    }
}

/// Those that are open of a session.
#[derive(Default)]
struct Contexts(Mutex<Vec<Weak<Context>>>);

impl Contexts {
    fn add(&self, context: &Arc<Context>) {
        let mut contexts = lock(&self.0);
        contexts.retain(|context| context.strong_count() > 0);
        contexts.push(Arc::downgrade(context));
    }
}

impl Part for Contexts {
    fn device_gone(&self) {
        for context in lock(&self.0).iter().filter_map(Weak::upgrade) {
            context.device_gone();
        }
    }
}
