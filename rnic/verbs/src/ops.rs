//! What the headers' inline functions find in an `ibv_context` and in an `ibv_qp_ex`.

mod wr;

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use rustix::io::Errno;

pub(crate) use wr::{add_operations, has_operations};

use crate::abi::{
    IBV_CQ_INIT_ATTR_MASK_FLAGS, IBV_CREATE_CQ_ATTR_SINGLE_THREADED, IBV_QP_INIT_ATTR_CREATE_FLAGS,
    IBV_QP_INIT_ATTR_PD, IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, IBV_SRQ_INIT_ATTR_PD,
    IBV_SRQ_INIT_ATTR_TYPE, IBV_WC_STANDARD_FLAGS, ibv_context, ibv_context_ops, ibv_cq, ibv_cq_ex,
    ibv_cq_init_attr_ex, ibv_device, ibv_device_attr_ex, ibv_mw, ibv_mw_bind, ibv_pd,
    ibv_port_attr, ibv_qp, ibv_qp_init_attr_ex, ibv_recv_wr, ibv_send_wr, ibv_srq,
    ibv_srq_init_attr, ibv_srq_init_attr_ex, ibv_wc, verbs_context,
};
use crate::context::Context;
use crate::cq::{Cq, CqInit};
use crate::device::COMPLETION_VECTORS;
use crate::ffi::{Fail, Object, Outcome, Ptr, data_number, data_verb, field, ptr, verb, zeroable};
use crate::mw::Mw;
use crate::pd::Pd;
use crate::qp::Qp;
use crate::session::Session;
use crate::srq::Srq;
use crate::{device, poll, post};

zeroable!(ibv_device_attr_ex);

/// The struct of a context that is being opened.
fn verbs_context(device: Ptr<ibv_device>, async_fd: c_int) -> verbs_context {
    verbs_context {
        newer: [0; 6],
        query_port,
        advise_mr_to_query_rt_values: [0; 24],
        create_cq_ex,
        private: 0,
        query_device_ex,
        flow_and_open_qp: [0; 5],
        create_qp_ex,
        get_srq_num: 0,
        create_srq_ex,
        xrcd: [0; 2],
        placeholder3: 0,
        sz: size_of::<verbs_context>(),
        context: ibv_context {
            device,
            ops: ibv_context_ops {
                compat_before: [0; 7],
                alloc_mw,
                bind_mw,
                dealloc_mw,
                compat_create_cq: 0,
                poll_cq,
                req_notify_cq,
                compat_cq_and_srq: [0; 7],
                post_srq_recv,
                compat_qp: [0; 4],
                post_send,
                post_recv,
                compat_after: [0; 5],
            },
            cmd_fd: -1,
            async_fd,
            num_comp_vectors: COMPLETION_VECTORS as c_int,
            mutex: libc::PTHREAD_MUTEX_INITIALIZER,
            abi_compat: usize::MAX,
        },
    }
}

unsafe extern "C-unwind" fn poll_cq(cq: Ptr<ibv_cq>, most: c_int, wc: Ptr<ibv_wc>) -> c_int {
    data_number("ibv_poll_cq", || poll::poll(cq.object::<Cq>()?, most, wc))
}

unsafe extern "C-unwind" fn req_notify_cq(cq: Ptr<ibv_cq>, solicited_only: c_int) -> c_int {
    data_verb("ibv_req_notify_cq", || {
        cq.object::<Cq>()?.request_notification(solicited_only != 0);
        Ok(())
    })
}

unsafe extern "C-unwind" fn post_send(
    qp: Ptr<ibv_qp>,
    wr: Ptr<ibv_send_wr>,
    bad: Ptr<Ptr<ibv_send_wr>>,
) -> c_int {
    data_verb("ibv_post_send", || {
        let qp = qp.object::<Qp>()?.rnic();
        post::post_list(wr, bad, |work| qp.post_send_batch(work))
    })
}

unsafe extern "C-unwind" fn post_recv(
    qp: Ptr<ibv_qp>,
    wr: Ptr<ibv_recv_wr>,
    bad: Ptr<Ptr<ibv_recv_wr>>,
) -> c_int {
    data_verb("ibv_post_recv", || {
        let qp = qp.object::<Qp>()?.rnic();
        post::post_list(wr, bad, |work| qp.post_recv_batch(work))
    })
}

unsafe extern "C-unwind" fn post_srq_recv(
    srq: Ptr<ibv_srq>,
    wr: Ptr<ibv_recv_wr>,
    bad: Ptr<Ptr<ibv_recv_wr>>,
) -> c_int {
    data_verb("ibv_post_srq_recv", || {
        let srq = srq.object::<Srq>()?.rnic();
        post::post_list(wr, bad, |work| srq.post_recv_batch(work))
    })
}

unsafe extern "C-unwind" fn alloc_mw(pd: Ptr<ibv_pd>, mw_type: c_int) -> Ptr<ibv_mw> {
    ptr("ibv_alloc_mw", || Mw::alloc(pd, mw_type))
}

unsafe extern "C-unwind" fn bind_mw(
    qp: Ptr<ibv_qp>,
    mw: Ptr<ibv_mw>,
    bind: Ptr<ibv_mw_bind>,
) -> c_int {
    data_verb("ibv_bind_mw", || {
        let qp = qp.object::<Qp>()?.rnic();
        mw.object::<Mw>()?.bind(qp, &bind.read()?)
    })
}

unsafe extern "C-unwind" fn dealloc_mw(mw: Ptr<ibv_mw>) -> c_int {
    verb("ibv_dealloc_mw", || Mw::dealloc(mw))
}

unsafe extern "C-unwind" fn query_port(
    context: Ptr<ibv_context>,
    port: u8,
    attr: Ptr<ibv_port_attr>,
    room: usize,
) -> c_int {
    verb("ibv_query_port", || {
        let info = context.object::<Context>()?.session().info()?;
        attr.write_start(&device::port_attributes(&info, port)?, room);
        Ok(())
    })
}

unsafe extern "C-unwind" fn query_device_ex(
    context: Ptr<ibv_context>,
    _input: Ptr<c_void>,
    attr: Ptr<ibv_device_attr_ex>,
    room: usize,
) -> c_int {
    verb("ibv_query_device_ex", || {
        let info = context.object::<Context>()?.session().info()?;
        let mut found: ibv_device_attr_ex = crate::ffi::zeroed();
        found.orig_attr = device::attributes(&info);
        found.phys_port_cnt_ex = 1;
        attr.write_start(&found, room);
        Ok(())
    })
}

unsafe extern "C-unwind" fn create_qp_ex(
    _context: Ptr<ibv_context>,
    init: Ptr<ibv_qp_init_attr_ex>,
) -> Ptr<ibv_qp> {
    ptr("ibv_create_qp_ex", || {
        let attr = init.read()?;
        let mut plain = check_qp_ex(&attr)?;
        let qp = Qp::create(&attr.pd.share::<Pd>()?, &mut plain)?;
        add_operations(&qp, &attr);
        init.update(|init| init.cap = plain.cap);
        Ok(qp.hand_out())
    })
}

/// What an extended queue pair is made with, when it asks for nothing that is not there.
pub(crate) fn check_qp_ex(attr: &ibv_qp_init_attr_ex) -> Outcome<crate::abi::ibv_qp_init_attr> {
    let known =
        IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    let asks_for_flags =
        attr.comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS != 0 && attr.create_flags != 0;
    if attr.comp_mask & !known != 0 || asks_for_flags {
        return Err(Fail::unsupported(format!(
            "a queue pair with extended attributes {:#x}, creation flags {:#x}",
            attr.comp_mask, attr.create_flags
        )));
    }
    if attr.comp_mask & IBV_QP_INIT_ATTR_PD == 0 {
        return Err(Fail::of(
            Errno::INVAL,
            "a queue pair without a protection domain",
        ));
    }
    wr::check_operations(attr)?;
    Ok(attr.plain())
}

unsafe extern "C-unwind" fn create_srq_ex(
    _context: Ptr<ibv_context>,
    init: Ptr<ibv_srq_init_attr_ex>,
) -> Ptr<ibv_srq> {
    ptr("ibv_create_srq_ex", || {
        let attr = init.read()?;
        let basic = attr.comp_mask & IBV_SRQ_INIT_ATTR_TYPE == 0 || attr.srq_type == 0;
        let known = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
        if !basic || attr.comp_mask & !known != 0 {
            return Err(Fail::unsupported(
                "a shared receive queue of XRC or with tag matching",
            ));
        }
        if attr.comp_mask & IBV_SRQ_INIT_ATTR_PD == 0 {
            return Err(Fail::of(
                Errno::INVAL,
                "a shared receive queue without a protection domain",
            ));
        }
        let mut plain = ibv_srq_init_attr {
            srq_context: attr.srq_context,
            attr: attr.attr,
        };
        let srq = Srq::create(&attr.pd.share::<Pd>()?, &mut plain)?;
        init.update(|init| init.attr = plain.attr);
        Ok(srq.hand_out())
    })
}

unsafe extern "C-unwind" fn create_cq_ex(
    context: Ptr<ibv_context>,
    init: Ptr<ibv_cq_init_attr_ex>,
) -> Ptr<ibv_cq_ex> {
    ptr("ibv_create_cq_ex", || {
        let attr = init.read()?;
        if attr.wc_flags & !IBV_WC_STANDARD_FLAGS != 0 {
            return Err(Fail::unsupported(format!(
                "completions with {:#x}: timestamps, VLANs, flow tags are not there",
                attr.wc_flags & !IBV_WC_STANDARD_FLAGS
            )));
        }
        let flags = attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS != 0;
        if attr.comp_mask & !IBV_CQ_INIT_ATTR_MASK_FLAGS != 0
            || flags && attr.flags & !IBV_CREATE_CQ_ATTR_SINGLE_THREADED != 0
        {
            return Err(Fail::unsupported(
                "a completion queue with a parent domain or that overruns",
            ));
        }
        let init = CqInit {
            cqe: attr.cqe,
            cq_context: attr.cq_context,
            channel: attr.channel,
            vector: attr.comp_vector,
        };
        let cq = Cq::create(&context.share::<Context>()?, &init)?;
        add_readers(&cq);
        Ok(cq.hand_out().cast())
    })
}

fn add_readers(cq: &Cq) {
    field!(cq.abi, start_poll).set(Some(start_poll));
    field!(cq.abi, next_poll).set(Some(next_poll));
    field!(cq.abi, end_poll).set(Some(end_poll));
    field!(cq.abi, read_opcode).set(Some(read_opcode));
    field!(cq.abi, read_vendor_err).set(Some(read_zero::<u32>));
    field!(cq.abi, read_byte_len).set(Some(read_byte_len));
    field!(cq.abi, read_imm_data).set(Some(read_imm_data));
    field!(cq.abi, read_qp_num).set(Some(read_qp_num));
    field!(cq.abi, read_src_qp).set(Some(read_zero::<u32>));
    field!(cq.abi, read_wc_flags).set(Some(read_wc_flags));
    field!(cq.abi, read_slid).set(Some(read_zero::<u32>));
    field!(cq.abi, read_sl).set(Some(read_zero::<u8>));
    field!(cq.abi, read_dlid_path_bits).set(Some(read_zero::<u8>));
}

unsafe extern "C-unwind" fn start_poll(cq: Ptr<ibv_cq_ex>, _attr: Ptr<c_void>) -> c_int {
    data_verb("ibv_start_poll", || poll::step(cq.cast().object::<Cq>()?))
}

unsafe extern "C-unwind" fn next_poll(cq: Ptr<ibv_cq_ex>) -> c_int {
    data_verb("ibv_next_poll", || poll::step(cq.cast().object::<Cq>()?))
}

unsafe extern "C-unwind" fn end_poll(cq: Ptr<ibv_cq_ex>) {
    data_verb("ibv_end_poll", || {
        cq.cast().object::<Cq>()?.polled();
        Ok(())
    });
}

unsafe extern "C-unwind" fn read_zero<T: Default>(_: Ptr<ibv_cq_ex>) -> T {
    T::default()
}

/// A value of the present completion.
fn current<T: Default>(cq: Ptr<ibv_cq_ex>, value: impl FnOnce(&ibv_wc) -> T) -> T {
    let cq = cq.cast().object::<Cq>();
    cq.map(|cq| value(&poll::current(cq))).unwrap_or_default()
}

unsafe extern "C-unwind" fn read_opcode(cq: Ptr<ibv_cq_ex>) -> c_int {
    current(cq, |wc| wc.opcode)
}

unsafe extern "C-unwind" fn read_byte_len(cq: Ptr<ibv_cq_ex>) -> u32 {
    current(cq, |wc| wc.byte_len)
}

unsafe extern "C-unwind" fn read_imm_data(cq: Ptr<ibv_cq_ex>) -> u32 {
    current(cq, |wc| wc.imm_data)
}

unsafe extern "C-unwind" fn read_qp_num(cq: Ptr<ibv_cq_ex>) -> u32 {
    current(cq, |wc| wc.qp_num)
}

unsafe extern "C-unwind" fn read_wc_flags(cq: Ptr<ibv_cq_ex>) -> u32 {
    current(cq, |wc| wc.wc_flags)
}

/// Opens a device's context, with these functions in it.
pub(crate) fn open(session: &Arc<Session>) -> Outcome<Arc<Context>> {
    Context::open(session, verbs_context)
}
