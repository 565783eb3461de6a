//! The connection manager.

use std::ffi::{c_int, c_void};

use rustix::io::Errno;

use crate::abi::{
    IBV_QP_INIT_ATTR_PD, RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_ROUTE_RESOLVED, ibv_context,
    ibv_pd, ibv_qp_attr, ibv_qp_init_attr, ibv_qp_init_attr_ex, ibv_srq_init_attr, rdma_addrinfo,
    rdma_cm_event, rdma_cm_id, rdma_event_channel,
};
use crate::cm::{CmId, Event, EventChannel, free_addrinfo, get_addrinfo, read_sockaddr};
use crate::ffi::{Fail, Object, Ptr, array_of, exports, field, free_array};
use crate::ops::{add_operations, check_qp_ex};
use crate::pd::Pd;
use crate::qp::Qp;
use crate::srq::Srq;

exports! {
    "RDMACM_1.0" ptr fn rdma_create_event_channel() -> Ptr<rdma_event_channel> {
        Ok(EventChannel::create()?.hand_out())
    }

    "RDMACM_1.0" void fn rdma_destroy_event_channel(channel: Ptr<rdma_event_channel>) {
        EventChannel::destroy(channel)
    }

    "RDMACM_1.0" cm fn rdma_ack_cm_event(event: Ptr<rdma_cm_event>) -> c_int {
        Event::acknowledge(event)
    }

    "RDMACM_1.0" cm fn rdma_create_id(
        channel: Ptr<rdma_event_channel>, id: Ptr<Ptr<rdma_cm_id>>, context: Ptr<c_void>, port_space: c_int,
    ) -> c_int {
        id.write(CmId::create(channel, context, port_space)?.hand_out());
        Ok(())
    }

    "RDMACM_1.0" cm fn rdma_destroy_id(id: Ptr<rdma_cm_id>) -> c_int {
        CmId::destroy(id)
    }

    "RDMACM_1.0" cm fn rdma_migrate_id(id: Ptr<rdma_cm_id>, channel: Ptr<rdma_event_channel>) -> c_int {
        id.object::<CmId>()?.migrate(channel)
    }

    "RDMACM_1.0" cm fn rdma_bind_addr(id: Ptr<rdma_cm_id>, addr: Ptr<libc::sockaddr>) -> c_int {
        id.object::<CmId>()?.bind(read_sockaddr(addr)?)
    }

    "RDMACM_1.0" cm fn rdma_resolve_addr(
        id: Ptr<rdma_cm_id>, source: Ptr<libc::sockaddr>, destination: Ptr<libc::sockaddr>, _timeout_ms: c_int,
    ) -> c_int {
        let source = match source.is_null() {
            true => None,
            false => Some(read_sockaddr(source)?),
        };
        let id = id.share::<CmId>()?;
        id.resolve_addr(source, read_sockaddr(destination)?)?;
        id.complete(RDMA_CM_EVENT_ADDR_RESOLVED)
    }

    "RDMACM_1.0" cm fn rdma_resolve_route(id: Ptr<rdma_cm_id>, _timeout_ms: c_int) -> c_int {
        let id = id.share::<CmId>()?;
        id.resolve_route()?;
        id.complete(RDMA_CM_EVENT_ROUTE_RESOLVED)
    }

    "RDMACM_1.0" cm fn rdma_create_qp(
        id: Ptr<rdma_cm_id>, pd: Ptr<ibv_pd>, init: Ptr<ibv_qp_init_attr>,
    ) -> c_int {
        let mut attr = init.read()?;
        id.object::<CmId>()?.create_qp(pd, &mut attr)?;
        // Not the completion queues that were made for it: programs make the next one with the same struct.
        init.update(|init| init.cap = attr.cap);
        Ok(())
    }

    "RDMACM_1.0" cm fn rdma_create_qp_ex(id: Ptr<rdma_cm_id>, init: Ptr<ibv_qp_init_attr_ex>) -> c_int {
        let mut attr = init.read()?;
        let pd = match attr.comp_mask & IBV_QP_INIT_ATTR_PD {
            0 => Ptr::NULL,
            _ => attr.pd,
        };
        attr.comp_mask |= IBV_QP_INIT_ATTR_PD;
        let mut plain = check_qp_ex(&attr)?;
        let id = id.object::<CmId>()?;
        id.create_qp(pd, &mut plain)?;
        add_operations(field!(id.abi, qp).get().object::<Qp>()?, &attr);
        init.update(|init| init.cap = plain.cap);
        Ok(())
    }

    "RDMACM_1.0" void fn rdma_destroy_qp(id: Ptr<rdma_cm_id>) {
        id.object::<CmId>()?.destroy_qp()
    }

    "RDMACM_1.0" cm fn rdma_listen(id: Ptr<rdma_cm_id>, backlog: c_int) -> c_int {
        id.share::<CmId>()?.listen(backlog)
    }

    "RDMACM_1.0" cm fn rdma_reject(id: Ptr<rdma_cm_id>, private_data: Ptr<u8>, length: u8) -> c_int {
        id.object::<CmId>()?.reject(private_data, length)
    }

    "RDMACM_1.3" cm fn rdma_reject_ece(id: Ptr<rdma_cm_id>, private_data: Ptr<u8>, length: u8) -> c_int {
        id.object::<CmId>()?.reject(private_data, length)
    }

    "RDMACM_1.2" cm fn rdma_establish(id: Ptr<rdma_cm_id>) -> c_int {
        // A connection is there with its event.
        id.object::<CmId>()?;
        Err(Fail::of(Errno::INVAL, "connections of iWARP are established by rdma_connect"))
    }

    "RDMACM_1.0" cm fn rdma_notify(id: Ptr<rdma_cm_id>, _event: c_int) -> c_int {
        // The RNIC knows itself that a connection is there.
        id.object::<CmId>()?;
        Ok(())
    }

    "RDMACM_1.0" plain fn rdma_get_src_port(id: Ptr<rdma_cm_id>) -> u16 {
        id.object::<CmId>().map_or(0, |id| id.ports().0)
    }

    "RDMACM_1.0" plain fn rdma_get_dst_port(id: Ptr<rdma_cm_id>) -> u16 {
        id.object::<CmId>().map_or(0, |id| id.ports().1)
    }

    "RDMACM_1.0" ptr fn rdma_get_devices(count: Ptr<c_int>) -> Ptr<Ptr<ibv_context>> {
        let contexts = CmId::all_contexts()?;
        count.write(c_int::try_from(contexts.len()).unwrap_or(c_int::MAX));
        array_of(&contexts)
    }

    "RDMACM_1.0" plain fn rdma_free_devices(list: Ptr<Ptr<ibv_context>>) {
        free_array(list);
    }

    "RDMACM_1.0" cm fn rdma_set_option(
        id: Ptr<rdma_cm_id>, level: c_int, name: c_int, value: Ptr<c_void>, length: usize,
    ) -> c_int {
        id.object::<CmId>()?.set_option((level, name), value, length)
    }

    "RDMACM_1.0" cm fn rdma_getaddrinfo(
        node: Ptr<std::ffi::c_char>, service: Ptr<std::ffi::c_char>, hints: Ptr<rdma_addrinfo>,
        found: Ptr<Ptr<rdma_addrinfo>>,
    ) -> c_int {
        found.write(get_addrinfo(node, service, hints)?);
        Ok(())
    }

    "RDMACM_1.0" plain fn rdma_freeaddrinfo(info: Ptr<rdma_addrinfo>) {
        free_addrinfo(info);
    }

    "RDMACM_1.0" cm fn rdma_create_ep(
        id: Ptr<Ptr<rdma_cm_id>>, info: Ptr<rdma_addrinfo>, pd: Ptr<ibv_pd>, init: Ptr<ibv_qp_init_attr>,
    ) -> c_int {
        let Some(info) = info.slice(1).first() else {
            return Err(Fail::of(Errno::INVAL, "an endpoint of no address"));
        };
        id.write(CmId::create_endpoint(info, pd, init)?.hand_out());
        Ok(())
    }

    "RDMACM_1.0" void fn rdma_destroy_ep(id: Ptr<rdma_cm_id>) {
        CmId::destroy_endpoint(id)
    }

    "RDMACM_1.0" cm fn rdma_create_srq(
        id: Ptr<rdma_cm_id>, pd: Ptr<ibv_pd>, init: Ptr<ibv_srq_init_attr>,
    ) -> c_int {
        let id = id.object::<CmId>()?;
        let pd = match pd.is_null() {
            true => field!(id.abi, pd).get(),
            false => pd,
        };
        let mut attr = init.read()?;
        let srq = Srq::create(&pd.share::<Pd>()?, &mut attr)?.hand_out();
        init.write(attr);
        field!(id.abi, srq).set(srq);
        field!(id.abi, pd).set(pd);
        Ok(())
    }

    "RDMACM_1.0" void fn rdma_destroy_srq(id: Ptr<rdma_cm_id>) {
        id.object::<CmId>()?.destroy_srq()
    }

    "RDMACM_1.2" cm fn rdma_init_qp_attr(
        id: Ptr<rdma_cm_id>, attr: Ptr<ibv_qp_attr>, mask: Ptr<c_int>,
    ) -> c_int {
        id.object::<CmId>()?;
        let mut change = attr.read()?;
        mask.write(change.complete()?);
        attr.write(change);
        Ok(())
    }
}
