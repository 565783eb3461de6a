//! Protection domains, regions, queues.

use std::ffi::{c_int, c_uint, c_void};

use rustix::io::Errno;

use crate::abi::{
    IBV_EVENT_CQ_ERR, IBV_EVENT_SRQ_LIMIT_REACHED, IBV_REREG_MR_CHANGE_ACCESS,
    IBV_REREG_MR_CHANGE_PD, IBV_REREG_MR_CHANGE_TRANSLATION, ibv_async_event, ibv_comp_channel,
    ibv_context, ibv_cq, ibv_mr, ibv_pd, ibv_qp, ibv_qp_attr, ibv_qp_ex, ibv_qp_init_attr, ibv_srq,
    ibv_srq_attr, ibv_srq_init_attr,
};
use crate::comp_channel::CompChannel;
use crate::context::Context;
use crate::cq::{Cq, CqInit};
use crate::ffi::{Fail, Object, Outcome, Ptr, exports};
use crate::pd::{Change, Mr, Pd, Registration};
use crate::qp::Qp;
use crate::srq::Srq;

exports! {
    "IBVERBS_1.1" ptr fn ibv_alloc_pd(context: Ptr<ibv_context>) -> Ptr<ibv_pd> {
        Ok(Pd::alloc(&context.share::<Context>()?)?.hand_out())
    }

    "IBVERBS_1.1" verb fn ibv_dealloc_pd(pd: Ptr<ibv_pd>) -> c_int {
        Pd::dealloc(pd)
    }

    "IBVERBS_1.1" ptr fn ibv_reg_mr(pd: Ptr<ibv_pd>, addr: Ptr<c_void>, length: usize, access: c_int) -> Ptr<ibv_mr> {
        register(pd, addr, length, addr.addr() as u64, access as c_uint)
    }

    "IBVERBS_1.7" ptr fn ibv_reg_mr_iova(
        pd: Ptr<ibv_pd>, addr: Ptr<c_void>, length: usize, iova: u64, access: c_int,
    ) -> Ptr<ibv_mr> {
        register(pd, addr, length, iova, access as c_uint)
    }

    "IBVERBS_1.8" ptr fn ibv_reg_mr_iova2(
        pd: Ptr<ibv_pd>, addr: Ptr<c_void>, length: usize, iova: u64, access: c_uint,
    ) -> Ptr<ibv_mr> {
        register(pd, addr, length, iova, access)
    }

    "IBVERBS_1.1" verb fn ibv_dereg_mr(mr: Ptr<ibv_mr>) -> c_int {
        drop(mr.take_back::<Mr>()?);
        Ok(())
    }

    // Its failures are -1 (IBV_REREG_MR_ERR_INPUT): the region is as it was.
    "IBVERBS_1.1" cm fn ibv_rereg_mr(
        mr: Ptr<ibv_mr>, flags: c_int, pd: Ptr<ibv_pd>, addr: Ptr<c_void>, length: usize, access: c_int,
    ) -> c_int {
        let mr = mr.object::<Mr>()?;
        let known = IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS;
        if flags == 0 || flags & !known != 0 {
            return Err(Fail::of(Errno::INVAL, format!("a region registered anew with flags {flags:#x}")));
        }
        let asked = |flag| flags & flag != 0;
        mr.register_again(Change {
            memory: asked(IBV_REREG_MR_CHANGE_TRANSLATION).then_some((addr, length)),
            pd: match asked(IBV_REREG_MR_CHANGE_PD) {
                true => Some(pd.share::<Pd>()?),
                false => None,
            },
            access: asked(IBV_REREG_MR_CHANGE_ACCESS).then_some(access as c_uint),
        })
    }

    "IBVERBS_1.0" ptr fn ibv_create_comp_channel(context: Ptr<ibv_context>) -> Ptr<ibv_comp_channel> {
        Ok(CompChannel::create(context.object::<Context>()?)?.hand_out())
    }

    "IBVERBS_1.0" verb fn ibv_destroy_comp_channel(channel: Ptr<ibv_comp_channel>) -> c_int {
        CompChannel::destroy(channel)
    }

    "IBVERBS_1.1" ptr fn ibv_create_cq(
        context: Ptr<ibv_context>, cqe: c_int, cq_context: Ptr<c_void>, channel: Ptr<ibv_comp_channel>, vector: c_int,
    ) -> Ptr<ibv_cq> {
        let cqe = u32::try_from(cqe).unwrap_or(0);
        let vector = u32::try_from(vector).unwrap_or(u32::MAX);
        let init = CqInit { cqe, cq_context, channel, vector };
        Ok(Cq::create(&context.share::<Context>()?, &init)?.hand_out())
    }

    "IBVERBS_1.1" verb fn ibv_destroy_cq(cq: Ptr<ibv_cq>) -> c_int {
        Cq::destroy(cq)
    }

    "IBVERBS_1.1" verb fn ibv_resize_cq(cq: Ptr<ibv_cq>, cqe: c_int) -> c_int {
        cq.share::<Cq>()?.resize(u32::try_from(cqe).unwrap_or(0))
    }

    "IBVERBS_1.1" plain fn ibv_ack_cq_events(cq: Ptr<ibv_cq>, events: c_uint) {
        if let Ok(cq) = cq.object::<Cq>() {
            cq.unacknowledged.acknowledge(events);
        }
    }

    "IBVERBS_1.1" ptr fn ibv_create_qp(pd: Ptr<ibv_pd>, init: Ptr<ibv_qp_init_attr>) -> Ptr<ibv_qp> {
        let mut attr = init.read()?;
        let qp = Qp::create(&pd.share::<Pd>()?, &mut attr)?;
        init.update(|init| init.cap = attr.cap);
        Ok(qp.hand_out())
    }

    "IBVERBS_1.1" verb fn ibv_query_qp(
        qp: Ptr<ibv_qp>, attr: Ptr<ibv_qp_attr>, _mask: c_int, init: Ptr<ibv_qp_init_attr>,
    ) -> c_int {
        let (found, made) = qp.object::<Qp>()?.query()?;
        attr.write(found);
        init.write(made);
        Ok(())
    }

    "IBVERBS_1.1" verb fn ibv_modify_qp(qp: Ptr<ibv_qp>, attr: Ptr<ibv_qp_attr>, mask: c_int) -> c_int {
        qp.object::<Qp>()?.modify(&attr.read()?, mask)
    }

    "IBVERBS_1.1" verb fn ibv_destroy_qp(qp: Ptr<ibv_qp>) -> c_int {
        Qp::destroy(qp)
    }

    "IBVERBS_1.6" ptr fn ibv_qp_to_qp_ex(qp: Ptr<ibv_qp>) -> Ptr<ibv_qp_ex> {
        Ok(match crate::ops::has_operations(qp.object::<Qp>()?) {
            true => qp.cast(),
            false => Ptr::NULL,
        })
    }

    "IBVERBS_1.14" plain fn ibv_query_qp_data_in_order(_qp: Ptr<ibv_qp>, _opcode: c_int, _flags: u32) -> c_int {
        // Segments that come out of order are placed as they come.
        0
    }

    "IBVERBS_1.1" ptr fn ibv_create_srq(pd: Ptr<ibv_pd>, init: Ptr<ibv_srq_init_attr>) -> Ptr<ibv_srq> {
        let mut attr = init.read()?;
        let srq = Srq::create(&pd.share::<Pd>()?, &mut attr)?;
        init.write(attr);
        Ok(srq.hand_out())
    }

    "IBVERBS_1.1" verb fn ibv_query_srq(srq: Ptr<ibv_srq>, attr: Ptr<ibv_srq_attr>) -> c_int {
        attr.write(srq.object::<Srq>()?.query());
        Ok(())
    }

    "IBVERBS_1.1" verb fn ibv_modify_srq(srq: Ptr<ibv_srq>, attr: Ptr<ibv_srq_attr>, mask: c_int) -> c_int {
        srq.object::<Srq>()?.modify(&attr.read()?, mask)
    }

    "IBVERBS_1.1" verb fn ibv_destroy_srq(srq: Ptr<ibv_srq>) -> c_int {
        Srq::destroy(srq)
    }

    "IBVERBS_1.1" void fn ibv_ack_async_event(event: Ptr<ibv_async_event>) {
        acknowledge(event.read()?)
    }
}

fn register(
    pd: Ptr<ibv_pd>,
    addr: Ptr<c_void>,
    length: usize,
    iova: u64,
    access: c_uint,
) -> Outcome<Ptr<ibv_mr>> {
    let wanted = Registration {
        addr,
        length,
        iova,
        access,
    };
    Ok(Mr::register(&pd.share::<Pd>()?, wanted)?.hand_out())
}

/// The program gives an event back. Queue pairs have no events.
fn acknowledge(event: ibv_async_event) -> Outcome<()> {
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
