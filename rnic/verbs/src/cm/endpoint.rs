//! Endpoints: identifiers whose calls wait for what they begin, and their queue pairs and queues.

use std::ffi::c_void;
use std::os::fd::RawFd;
use std::sync::Arc;

use rustix::io::Errno;

use crate::abi::{
    RAI_PASSIVE, RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_CONNECT_REQUEST,
    RDMA_CM_EVENT_ROUTE_RESOLVED, ibv_comp_channel, ibv_cq, ibv_pd, ibv_qp_init_attr,
    rdma_addrinfo, rdma_cm_id,
};
use crate::cm::{CmId, Event, read_sockaddr};
use crate::comp_channel::CompChannel;
use crate::context::Context;
use crate::cq::{Cq, CqInit};
use crate::ffi::{Fail, Object, Outcome, Ptr, field};
use crate::pd::Pd;
use crate::qp::Qp;
use crate::srq::Srq;

impl CmId {
    /// Makes the identifier's queue pair, and completion queues with a channel each where the program
    /// names none.
    pub(crate) fn create_qp(&self, pd: Ptr<ibv_pd>, init: &mut ibv_qp_init_attr) -> Outcome<()> {
        if field!(self.abi, verbs).get().is_null() {
            return Err(Fail::of(
                Errno::INVAL,
                "a queue pair before the identifier has a device",
            ));
        }
        if !field!(self.abi, qp).get().is_null() {
            return Err(Fail::of(Errno::INVAL, "the identifier has a queue pair"));
        }
        let pd = match pd.is_null() {
            true => field!(self.abi, pd).get(),
            false => pd,
        };
        let pd = pd.share::<Pd>()?;
        if init.srq.is_null() {
            init.srq = field!(self.abi, srq).get();
        }
        let made = self
            .create_cqs(pd.context(), init)
            .and_then(|()| Qp::create(&pd, init));
        match made {
            Ok(qp) => {
                self.set_qp(&qp);
                qp.hand_out();
                Ok(())
            }
            Err(fail) => {
                self.destroy_cqs()?;
                Err(fail)
            }
        }
    }

    fn create_cqs(&self, context: &Arc<Context>, init: &mut ibv_qp_init_attr) -> Outcome<()> {
        let own = self.abi_ptr().cast();
        if init.send_cq.is_null() {
            let (channel, cq) = create_cq(context, init.cap.max_send_wr, own)?;
            self.set_send_cq((channel, cq));
            init.send_cq = cq;
        }
        if init.recv_cq.is_null() {
            let (channel, cq) = create_cq(context, init.cap.max_recv_wr, own)?;
            self.set_recv_cq((channel, cq));
            init.recv_cq = cq;
        }
        Ok(())
    }

    /// Destroys those that the identifier made.
    fn destroy_cqs(&self) -> Outcome<()> {
        let send = (
            field!(self.abi, send_cq_channel).get(),
            field!(self.abi, send_cq).get(),
        );
        let recv = (
            field!(self.abi, recv_cq_channel).get(),
            field!(self.abi, recv_cq).get(),
        );
        let of_sends = destroy_cq(send, |left| self.set_send_cq(left));
        let of_receives = destroy_cq(recv, |left| self.set_recv_cq(left));
        of_sends.and(of_receives)
    }

    fn set_send_cq(&self, (channel, cq): (Ptr<ibv_comp_channel>, Ptr<ibv_cq>)) {
        field!(self.abi, send_cq_channel).set(channel);
        field!(self.abi, send_cq).set(cq);
    }

    fn set_recv_cq(&self, (channel, cq): (Ptr<ibv_comp_channel>, Ptr<ibv_cq>)) {
        field!(self.abi, recv_cq_channel).set(channel);
        field!(self.abi, recv_cq).set(cq);
    }

    pub(crate) fn destroy_qp(&self) -> Outcome<()> {
        let qp = field!(self.abi, qp).get();
        if !qp.is_null() {
            field!(self.abi, qp).set(Ptr::NULL);
            Qp::destroy(qp)?;
        }
        self.destroy_cqs()
    }

    pub(crate) fn destroy_srq(&self) -> Outcome<()> {
        let srq = field!(self.abi, srq).get();
        if !srq.is_null() {
            Srq::destroy(srq)?;
            field!(self.abi, srq).set(Ptr::NULL);
        }
        Ok(())
    }

    /// An identifier for what rdma_getaddrinfo found, bound or resolved, with a queue pair if `init` is
    /// there.
    pub(crate) fn create_endpoint(
        info: &rdma_addrinfo,
        pd: Ptr<ibv_pd>,
        init: Ptr<ibv_qp_init_attr>,
    ) -> Outcome<Arc<Self>> {
        let id = Self::create(Ptr::NULL, Ptr::NULL, info.ai_port_space)?;
        let prepared = id.prepare(info, pd, init);
        if prepared.is_err() {
            // It keeps its last event, and the event keeps it.
            id.release_event()?;
        }
        prepared.map(|()| id)
    }

    fn prepare(
        self: &Arc<Self>,
        info: &rdma_addrinfo,
        pd: Ptr<ibv_pd>,
        init: Ptr<ibv_qp_init_attr>,
    ) -> Outcome<()> {
        let source = match info.ai_src_addr.is_null() {
            true => None,
            false => Some(read_sockaddr(info.ai_src_addr)?),
        };
        if info.ai_flags & RAI_PASSIVE != 0 {
            let source = source.ok_or_else(|| Fail::of(Errno::INVAL, "no address to listen at"))?;
            self.bind(source)?;
            let pd = match pd.is_null() {
                true => None,
                false => Some(pd.share::<Pd>()?),
            };
            let qp_type = info.ai_qp_type;
            let init = init.get().map(|init| ibv_qp_init_attr { qp_type, ..init });
            self.state().endpoint = init.map(|init| (pd, init));
            return Ok(());
        }
        self.resolve_addr(source, read_sockaddr(info.ai_dst_addr)?)?;
        self.complete(RDMA_CM_EVENT_ADDR_RESOLVED)?;
        self.resolve_route()?;
        self.complete(RDMA_CM_EVENT_ROUTE_RESOLVED)?;
        if let Some(mut attr) = init.get() {
            attr.qp_type = info.ai_qp_type;
            self.create_qp(pd, &mut attr)?;
            init.update(|init| init.cap = attr.cap);
        }
        Ok(())
    }

    /// What the program still uses of its queues stays; the identifier goes.
    pub(crate) fn destroy_endpoint(id: Ptr<rdma_cm_id>) -> Outcome<()> {
        let endpoint = id.object::<Self>()?;
        let queues = endpoint.destroy_qp().and(endpoint.destroy_srq());
        Self::destroy(id).and(queues)
    }

    /// The descriptor of which rdma_get_request reads a count for each request.
    pub(crate) fn requests_fd(&self) -> Outcome<RawFd> {
        match self.waits() {
            true => self.state().channel.events.fd_to_wait_on(),
            false => Err(Fail::of(
                Errno::INVAL,
                "rdma_get_request of an identifier with a channel",
            )),
        }
    }

    /// A peer's request whose count was read: its identifier, which has the queue pair that the endpoint
    /// says. None when it was taken back meanwhile.
    pub(crate) fn take_request(&self) -> Outcome<Option<Ptr<rdma_cm_id>>> {
        let channel = self.state().channel.clone();
        let Some(event) = channel.events.take(Event::count) else {
            return Ok(None);
        };
        event.expect(RDMA_CM_EVENT_CONNECT_REQUEST)?;
        let Some(child) = event.child().cloned() else {
            return Err(Fail::of(Errno::INVAL, "a request without an identifier"));
        };
        let delivered = event.deliver();
        field!(child.abi, event).set(delivered);
        let endpoint = self.state().endpoint.clone();
        if let Some((pd, mut init)) = endpoint
            && let Err(fail) = child.create_qp(pd.map_or(Ptr::NULL, |pd| pd.abi_ptr()), &mut init)
        {
            Self::destroy(child.abi_ptr())?;
            return Err(fail);
        }
        Ok(Some(child.abi_ptr()))
    }
}

/// Destroys a completion queue and its channel, and notes what of them is left.
fn destroy_cq(
    (channel, cq): (Ptr<ibv_comp_channel>, Ptr<ibv_cq>),
    note: impl Fn((Ptr<ibv_comp_channel>, Ptr<ibv_cq>)),
) -> Outcome<()> {
    if !cq.is_null() {
        Cq::destroy(cq)?;
        note((channel, Ptr::NULL));
    }
    if !channel.is_null() {
        CompChannel::destroy(channel)?;
        note((Ptr::NULL, Ptr::NULL));
    }
    Ok(())
}

/// A completion queue with a channel of its own, armed.
fn create_cq(
    context: &Arc<Context>,
    depth: u32,
    cq_context: Ptr<c_void>,
) -> Outcome<(Ptr<ibv_comp_channel>, Ptr<ibv_cq>)> {
    let channel = CompChannel::create(context)?;
    let init = CqInit {
        cqe: depth.max(1),
        cq_context,
        channel: channel.abi_ptr(),
        vector: 0,
    };
    let cq = Cq::create(context, &init)?;
    cq.request_notification(false);
    Ok((channel.hand_out(), cq.hand_out()))
}

/// `rdma_get_src_port` and its like, in network order.
impl CmId {
    pub(crate) fn ports(&self) -> (u16, u16) {
        let _state = self.state();
        let port = |place: Ptr<libc::sockaddr_storage>| {
            read_sockaddr(place.cast()).map_or(0, |address| address.port().to_be())
        };
        let local = field!(self.abi, route.addr.src_storage).place();
        let remote = field!(self.abi, route.addr.dst_storage).place();
        (port(local), port(remote))
    }

    /// For identifiers of the program's own list of devices.
    pub(crate) fn all_contexts() -> Outcome<Vec<Ptr<crate::abi::ibv_context>>> {
        let sessions = crate::process::Process::current().sessions()?;
        let context = |session: &Arc<crate::session::Session>| {
            let (context, _) = crate::shared::shared(session)?;
            Ok(context.abi_ptr())
        };
        sessions.iter().map(context).collect()
    }
}
