//! Event channels.

use std::mem::offset_of;
use std::sync::Arc;

use rustix::io::Errno;

use crate::abi::rdma_event_channel;
use crate::cm::Event;
use crate::ffi::{Fail, Outcome, Ptr, Shared, object};
use crate::queue::EventQueue;

#[repr(C)]
pub(crate) struct EventChannel {
    abi: Shared<rdma_event_channel>,
    pub(crate) events: EventQueue<Arc<Event>>,
}

object!(EventChannel: rdma_event_channel => offset_of!(EventChannel, abi));

impl EventChannel {
    pub(crate) fn create() -> Outcome<Arc<Self>> {
        let events = EventQueue::new()?;
        let fd = events.fd();
        Ok(Arc::new(Self {
            abi: Shared::new(rdma_event_channel { fd }),
            events,
        }))
    }

    pub(crate) fn destroy(channel: Ptr<rdma_event_channel>) -> Outcome<()> {
        drop(channel.take_back::<Self>()?);
        Ok(())
    }

    /// Waits for an event, for identifiers that have no channel of the program's.
    pub(crate) fn wait(&self) -> Outcome<Arc<Event>> {
        loop {
            let mut count = [0; 8];
            match rustix::io::read(self.events.counter(), &mut count) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(Fail::of(errno, "the event channel can't be read")),
            }
            if let Some(event) = self.events.take(Event::count) {
                return Ok(event);
            }
        }
    }
}
