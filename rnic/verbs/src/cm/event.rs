//! Events of the connection manager.

use std::ffi::c_int;
use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;

use crate::abi::{
    RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_CM_EVENT_DEVICE_REMOVAL, RDMA_CM_EVENT_DISCONNECTED,
    rdma_cm_event, rdma_conn_param,
};
use crate::cm::CmId;
use crate::cm::connect::is_end;
use crate::ffi::{Fail, Object, Outcome, Ptr, Shared, field, object, zeroable};

zeroable!(rdma_cm_event, rdma_conn_param);

/// An event, waiting or in a program's hand.
#[repr(C)]
pub(crate) struct Event {
    abi: Shared<rdma_cm_event>,
    /// What `param.conn.private_data` points to.
    _private_data: Vec<u8>,
    /// Whose event it is: of a request the listener's.
    about: Arc<CmId>,
    /// A request's new identifier, which the program gets with the event.
    child: Option<Arc<CmId>>,
    /// It is one of the identifier's that are to be acknowledged.
    counted: AtomicBool,
}

object!(Event: rdma_cm_event => offset_of!(Event, abi));

/// What an event says beside what it is.
#[derive(Default)]
pub(crate) struct Details {
    /// 0, or a negative error's number as the kernel's connection manager gives it.
    pub(crate) status: c_int,
    pub(crate) private_data: Vec<u8>,
    /// What this side may have outstanding of the peer's RDMA Reads, and of its own.
    pub(crate) responder_resources: u16,
    pub(crate) initiator_depth: u16,
}

impl Details {
    pub(crate) fn failed(errno: Errno) -> Self {
        Self {
            status: -errno.raw_os_error(),
            ..Self::default()
        }
    }
}

impl Event {
    pub(crate) fn new(about: &Arc<CmId>, event: c_int, details: Details) -> Arc<Self> {
        Self::made(about, None, event, details)
    }

    pub(crate) fn request(listener: &Arc<CmId>, child: Arc<CmId>, details: Details) -> Arc<Self> {
        listener.requests.fetch_add(1, Ordering::AcqRel);
        Self::made(
            listener,
            Some(child),
            RDMA_CM_EVENT_CONNECT_REQUEST,
            details,
        )
    }

    fn made(
        about: &Arc<CmId>,
        child: Option<Arc<CmId>>,
        event: c_int,
        details: Details,
    ) -> Arc<Self> {
        let data = &details.private_data;
        let u8_of = |number: u16| u8::try_from(number).unwrap_or(u8::MAX);
        let abi = Shared::zeroed(|abi: &mut rdma_cm_event| {
            abi.id = child
                .as_ref()
                .map_or(about.abi_ptr(), |child| child.abi_ptr());
            abi.listen_id = match child {
                Some(_) => about.abi_ptr(),
                None => Ptr::NULL,
            };
            abi.event = event;
            abi.status = details.status;
            abi.conn.responder_resources = u8_of(details.responder_resources);
            abi.conn.initiator_depth = u8_of(details.initiator_depth);
            if !data.is_empty() {
                abi.conn.private_data = Ptr::to_const(data);
                // The field is of 8 bits, and so programs send no more.
                abi.conn.private_data_len = u8::try_from(data.len()).unwrap_or(u8::MAX);
            }
        });
        Arc::new(Self {
            abi,
            _private_data: details.private_data,
            about: about.clone(),
            child,
            counted: AtomicBool::new(false),
        })
    }

    pub(crate) fn is_about(&self, id: &CmId) -> bool {
        std::ptr::eq(&*self.about, id)
    }

    pub(crate) fn child(&self) -> Option<&Arc<CmId>> {
        self.child.as_ref()
    }

    fn kind(&self) -> c_int {
        field!(self.abi, event).get()
    }

    /// That it is what a call waits for.
    pub(crate) fn expect(&self, expected: c_int) -> Outcome<()> {
        let status = field!(self.abi, status).get();
        match self.kind() {
            kind if status == 0 && kind == expected => Ok(()),
            RDMA_CM_EVENT_DEVICE_REMOVAL => Err(Fail::of(Errno::NODEV, "the device is gone")),
            _ if status != 0 => Err(Errno::from_raw_os_error(status.abs()).into()),
            RDMA_CM_EVENT_DISCONNECTED => Err(Errno::CONNRESET.into()),
            kind => Err(Fail::of(Errno::INVAL, format!("event {kind} came instead"))),
        }
    }

    /// It is off its channel's queue: from here on its identifier's destruction waits for it.
    pub(crate) fn count(event: &Arc<Self>) {
        event.leave_channel();
        event.about.unacknowledged.add_one();
        if is_end(event.kind()) {
            event.about.end_told.store(true, Ordering::Release);
        }
        event.counted.store(true, Ordering::Relaxed);
    }

    /// A request waits no longer on its listener's channel.
    fn leave_channel(&self) {
        if self.child.is_some() {
            self.about.requests.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Gives the event to the program, and a request's identifier with it. The next request may take its
    /// place on the channel.
    pub(crate) fn deliver(self: Arc<Self>) -> Ptr<rdma_cm_event> {
        if let Some(child) = &self.child {
            child.clone().hand_out();
            self.about.take_requests();
        }
        self.hand_out()
    }

    /// The program gives it back.
    pub(crate) fn acknowledge(event: Ptr<rdma_cm_event>) -> Outcome<()> {
        drop(event.take_back::<Self>()?);
        Ok(())
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        match *self.counted.get_mut() {
            true => self.about.unacknowledged.acknowledge(1),
            false => self.leave_channel(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::abi::{RDMA_CM_EVENT_ESTABLISHED, RDMA_PS_TCP};

    #[test]
    fn a_call_that_waits_for_a_connection_fails_when_the_device_is_gone() {
        let id = CmId::create(Ptr::NULL, Ptr::NULL, RDMA_PS_TCP).unwrap();
        id.device_gone();
        let fail = id.complete(RDMA_CM_EVENT_ESTABLISHED).unwrap_err();
        assert_eq!(fail.errno, Errno::NODEV);
        id.release_event().unwrap();
    }
}
