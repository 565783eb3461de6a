//! Calls that wait on a descriptor. A thread may be cancelled there (pthread_cancel(3)), which unwinds
//! through these functions: so they have nothing to drop while they wait, and catch nothing.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use crate::abi::{
    RDMA_CM_EVENT_DISCONNECTED, RDMA_CM_EVENT_ESTABLISHED, ibv_async_event, ibv_comp_channel,
    ibv_context, ibv_cq, rdma_cm_event, rdma_cm_id, rdma_conn_param, rdma_event_channel,
};
use crate::cm::{CmId, Event, EventChannel};
use crate::comp_channel::CompChannel;
use crate::context::Context;
use crate::ffi::{Outcome, Ptr, number};

/// What the body of a call that has taken an event, or none, says.
const NOTHING: c_int = 0;
const TAKEN: c_int = 1;
/// In the place of a descriptor: the program has a channel of its own.
const NOBODY_WAITS: c_int = c_int::MAX;

/// Declared as what unwinds when the thread is cancelled.
pub(super) mod c {
    use std::ffi::{c_int, c_void};

    unsafe extern "C-unwind" {
        pub(in crate::exports) fn read(fd: c_int, to: *mut c_void, bytes: usize) -> isize;
        pub(in crate::exports) fn poll(
            fds: *mut libc::pollfd,
            count: libc::nfds_t,
            timeout: c_int,
        ) -> c_int;
    }
}

macro_rules! exported {
    ($version:literal $name:ident) => {
        #[cfg(not(test))]
        std::arch::global_asm!(concat!(
            ".symver rnic_verbs_",
            stringify!($name),
            ", ",
            stringify!($name),
            "@@",
            $version
        ));
    };
}
pub(super) use exported;

exported!("RDMACM_1.0" rdma_connect);
exported!("RDMACM_1.0" rdma_accept);
exported!("RDMACM_1.0" rdma_disconnect);
exported!("RDMACM_1.0" rdma_get_cm_event);
exported!("RDMACM_1.0" rdma_get_request);
exported!("IBVERBS_1.1" ibv_get_async_event);
exported!("IBVERBS_1.1" ibv_get_cq_event);

/// Begins what ends with an event, and waits for that when the identifier has no channel of the program's.
unsafe fn complete(
    call: &str,
    id: Ptr<rdma_cm_id>,
    expected: c_int,
    begin: impl FnOnce(&Arc<CmId>) -> Outcome<()>,
) -> c_int {
    let fd = number(call, || {
        let id = id.share::<CmId>()?;
        begin(&id)?;
        Ok(id.completion_fd()?.unwrap_or(NOBODY_WAITS))
    });
    if fd == NOBODY_WAITS {
        return 0;
    }
    loop {
        // SAFETY: a descriptor of the identifier's own channel.
        if fd < 0 || !unsafe { read_count(fd) } {
            match std::io::Error::last_os_error().raw_os_error() {
                Some(libc::EINTR) if fd >= 0 => continue,
                _ => return -1,
            }
        }
        let taken = number(call, || {
            let is_there = id.object::<CmId>()?.take_completion(expected)?;
            Ok(if is_there { TAKEN } else { NOTHING })
        });
        match taken {
            NOTHING => {}
            TAKEN => return 0,
            _ => return -1,
        }
    }
}

#[unsafe(export_name = "rnic_verbs_rdma_connect")]
unsafe extern "C-unwind" fn rdma_connect(
    id: Ptr<rdma_cm_id>,
    param: Ptr<rdma_conn_param>,
) -> c_int {
    // SAFETY: the program's identifier, for as long as the call lasts.
    unsafe {
        complete("rdma_connect", id, RDMA_CM_EVENT_ESTABLISHED, |id| {
            id.connect(param)
        })
    }
}

#[unsafe(export_name = "rnic_verbs_rdma_accept")]
unsafe extern "C-unwind" fn rdma_accept(id: Ptr<rdma_cm_id>, param: Ptr<rdma_conn_param>) -> c_int {
    // SAFETY: as for `rdma_connect`.
    unsafe {
        complete("rdma_accept", id, RDMA_CM_EVENT_ESTABLISHED, |id| {
            id.accept(param)
        })
    }
}

#[unsafe(export_name = "rnic_verbs_rdma_disconnect")]
unsafe extern "C-unwind" fn rdma_disconnect(id: Ptr<rdma_cm_id>) -> c_int {
    // SAFETY: as for `rdma_connect`.
    unsafe {
        complete("rdma_disconnect", id, RDMA_CM_EVENT_DISCONNECTED, |id| {
            id.disconnect()
        })
    }
}

/// Reads one count off an event queue's descriptor; whether it was there.
unsafe fn read_count(fd: c_int) -> bool {
    let mut count = 0_u64;
    // SAFETY: 8 bytes of this stack, which is what an eventfd gives.
    let read = unsafe { c::read(fd, (&raw mut count).cast::<c_void>(), size_of::<u64>()) };
    read == 8
}

#[unsafe(export_name = "rnic_verbs_rdma_get_cm_event")]
unsafe extern "C-unwind" fn rdma_get_cm_event(
    channel: Ptr<rdma_event_channel>,
    event: Ptr<Ptr<rdma_cm_event>>,
) -> c_int {
    loop {
        let fd = number("rdma_get_cm_event", || {
            channel.object::<EventChannel>()?.events.fd_to_wait_on()
        });
        // SAFETY: a descriptor of the channel's.
        if fd < 0 || !unsafe { read_count(fd) } {
            return -1;
        }
        let taken = number("rdma_get_cm_event", || {
            let Some(found) = channel.object::<EventChannel>()?.events.take(Event::count) else {
                return Ok(NOTHING);
            };
            event.write(found.deliver());
            Ok(TAKEN)
        });
        match taken {
            NOTHING => {}
            TAKEN => return 0,
            _ => return -1,
        }
    }
}

#[unsafe(export_name = "rnic_verbs_rdma_get_request")]
unsafe extern "C-unwind" fn rdma_get_request(
    listen: Ptr<rdma_cm_id>,
    id: Ptr<Ptr<rdma_cm_id>>,
) -> c_int {
    loop {
        let fd = number("rdma_get_request", || {
            listen.object::<CmId>()?.requests_fd()
        });
        // SAFETY: a descriptor of the identifier's own channel.
        if fd < 0 || !unsafe { read_count(fd) } {
            return -1;
        }
        let taken = number("rdma_get_request", || {
            let Some(child) = listen.object::<CmId>()?.take_request()? else {
                return Ok(NOTHING);
            };
            id.write(child);
            Ok(TAKEN)
        });
        match taken {
            NOTHING => {}
            TAKEN => return 0,
            _ => return -1,
        }
    }
}

#[unsafe(export_name = "rnic_verbs_ibv_get_async_event")]
unsafe extern "C-unwind" fn ibv_get_async_event(
    context: Ptr<ibv_context>,
    event: Ptr<ibv_async_event>,
) -> c_int {
    loop {
        let fd = number("ibv_get_async_event", || {
            context.object::<Context>()?.event_fd()
        });
        // SAFETY: a descriptor of the context's.
        if fd < 0 || !unsafe { read_count(fd) } {
            return -1;
        }
        let taken = number("ibv_get_async_event", || {
            let Some(found) = context.object::<Context>()?.take_event() else {
                return Ok(NOTHING);
            };
            event.write(found);
            Ok(TAKEN)
        });
        match taken {
            NOTHING => {}
            TAKEN => return 0,
            _ => return -1,
        }
    }
}

#[unsafe(export_name = "rnic_verbs_ibv_get_cq_event")]
unsafe extern "C-unwind" fn ibv_get_cq_event(
    channel: Ptr<ibv_comp_channel>,
    cq: Ptr<Ptr<ibv_cq>>,
    cq_context: Ptr<Ptr<c_void>>,
) -> c_int {
    loop {
        let taken = number("ibv_get_cq_event", || {
            let taken = channel.object::<CompChannel>()?.take_event()?;
            let Some((found, context)) = taken else {
                return Ok(NOTHING);
            };
            cq.write(found);
            cq_context.write(context);
            Ok(TAKEN)
        });
        match taken {
            NOTHING => {}
            TAKEN => return 0,
            _ => return -1,
        }
        let fd = number("ibv_get_cq_event", || {
            channel.object::<CompChannel>()?.fd_to_wait_on()
        });
        if fd < 0 {
            return -1;
        }
        let mut polled = libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one pollfd of this stack.
        if unsafe { c::poll(&raw mut polled, 1, -1) } < 0 {
            return -1;
        }
    }
}
