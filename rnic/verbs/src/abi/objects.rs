//! What programs hold: protection domains, regions, queues and what they tell of them.

use std::ffi::{c_int, c_uint, c_void};

use super::{Absent, ibv_context, ibv_mw_bind_info, ibv_sge, sizes};
use crate::ffi::Ptr;

#[repr(C)]
pub(crate) struct ibv_pd {
    pub(crate) context: Ptr<ibv_context>,
    pub(crate) handle: u32,
}

pub(crate) const IBV_ACCESS_LOCAL_WRITE: c_uint = 1;
pub(crate) const IBV_ACCESS_REMOTE_WRITE: c_uint = 1 << 1;
pub(crate) const IBV_ACCESS_REMOTE_READ: c_uint = 1 << 2;
pub(crate) const IBV_ACCESS_REMOTE_ATOMIC: c_uint = 1 << 3;
pub(crate) const IBV_ACCESS_MW_BIND: c_uint = 1 << 4;
pub(crate) const IBV_ACCESS_HUGETLB: c_uint = 1 << 7;
/// Flags from here on are wishes that a device need not know.
pub(crate) const IBV_ACCESS_OPTIONAL_FIRST: c_uint = 1 << 20;
pub(crate) const IBV_ACCESS_OPTIONAL_LAST: c_uint = 1 << 29;

pub(crate) const IBV_REREG_MR_CHANGE_TRANSLATION: c_int = 1;
pub(crate) const IBV_REREG_MR_CHANGE_PD: c_int = 1 << 1;
pub(crate) const IBV_REREG_MR_CHANGE_ACCESS: c_int = 1 << 2;

#[repr(C)]
pub(crate) struct ibv_mr {
    pub(crate) context: Ptr<ibv_context>,
    pub(crate) pd: Ptr<ibv_pd>,
    pub(crate) addr: Ptr<c_void>,
    pub(crate) length: usize,
    pub(crate) handle: u32,
    pub(crate) lkey: u32,
    pub(crate) rkey: u32,
}

pub(crate) const IBV_MW_TYPE_1: c_int = 1;
pub(crate) const IBV_MW_TYPE_2: c_int = 2;

#[repr(C)]
pub(crate) struct ibv_mw {
    pub(crate) context: Ptr<ibv_context>,
    pub(crate) pd: Ptr<ibv_pd>,
    pub(crate) rkey: u32,
    pub(crate) handle: u32,
    pub(crate) mw_type: c_int,
}

#[repr(C)]
pub(crate) struct ibv_comp_channel {
    pub(crate) context: Ptr<ibv_context>,
    pub(crate) fd: c_int,
    pub(crate) refcnt: c_int,
}

#[repr(C)]
pub(crate) struct ibv_cq {
    pub(crate) context: Ptr<ibv_context>,
    pub(crate) channel: Ptr<ibv_comp_channel>,
    pub(crate) cq_context: Ptr<c_void>,
    pub(crate) handle: u32,
    pub(crate) cqe: c_int,
    pub(crate) mutex: libc::pthread_mutex_t,
    pub(crate) cond: libc::pthread_cond_t,
    pub(crate) comp_events_completed: u32,
    pub(crate) async_events_completed: u32,
}

/// A function of an `ibv_cq_ex` that reads one value of the present completion.
pub(crate) type Read<T> = unsafe extern "C-unwind" fn(Ptr<ibv_cq_ex>) -> T;

#[repr(C)]
pub(crate) struct ibv_cq_ex {
    pub(crate) base: ibv_cq,
    pub(crate) comp_mask: u32,
    pub(crate) status: c_int,
    pub(crate) wr_id: u64,
    pub(crate) start_poll:
        Option<unsafe extern "C-unwind" fn(Ptr<ibv_cq_ex>, Ptr<c_void>) -> c_int>,
    pub(crate) next_poll: Option<Read<c_int>>,
    pub(crate) end_poll: Option<Read<()>>,
    pub(crate) read_opcode: Option<Read<c_int>>,
    pub(crate) read_vendor_err: Option<Read<u32>>,
    pub(crate) read_byte_len: Option<Read<u32>>,
    pub(crate) read_imm_data: Option<Read<u32>>,
    pub(crate) read_qp_num: Option<Read<u32>>,
    pub(crate) read_src_qp: Option<Read<u32>>,
    pub(crate) read_wc_flags: Option<Read<c_uint>>,
    pub(crate) read_slid: Option<Read<u32>>,
    pub(crate) read_sl: Option<Read<u8>>,
    pub(crate) read_dlid_path_bits: Option<Read<u8>>,
    pub(crate) read_completion_ts: Option<Read<u64>>,
    pub(crate) read_cvlan: Option<Read<u16>>,
    pub(crate) read_flow_tag: Option<Read<u32>>,
    pub(crate) read_tm_info: Option<Read<()>>,
    pub(crate) read_completion_wallclock_ns: Option<Read<u64>>,
}

pub(crate) const IBV_QPS_RESET: c_int = 0;
pub(crate) const IBV_QPS_INIT: c_int = 1;
pub(crate) const IBV_QPS_RTR: c_int = 2;
pub(crate) const IBV_QPS_RTS: c_int = 3;
pub(crate) const IBV_QPS_SQD: c_int = 4;
pub(crate) const IBV_QPS_SQE: c_int = 5;
pub(crate) const IBV_QPS_ERR: c_int = 6;
pub(crate) const IBV_QPT_RC: c_int = 2;

#[repr(C)]
pub(crate) struct ibv_qp {
    pub(crate) context: Ptr<ibv_context>,
    pub(crate) qp_context: Ptr<c_void>,
    pub(crate) pd: Ptr<ibv_pd>,
    pub(crate) send_cq: Ptr<ibv_cq>,
    pub(crate) recv_cq: Ptr<ibv_cq>,
    pub(crate) srq: Ptr<ibv_srq>,
    pub(crate) handle: u32,
    pub(crate) qp_num: u32,
    pub(crate) state: c_int,
    pub(crate) qp_type: c_int,
    pub(crate) mutex: libc::pthread_mutex_t,
    pub(crate) cond: libc::pthread_cond_t,
    pub(crate) events_completed: u32,
}

/// Bytes that a work request carries itself.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_data_buf {
    pub(crate) addr: Ptr<c_void>,
    pub(crate) length: usize,
}

/// Functions of an `ibv_qp_ex`, by what they take beside it.
pub(crate) type Wr0 = Option<unsafe extern "C-unwind" fn(Ptr<ibv_qp_ex>)>;
pub(crate) type Wr1<A> = Option<unsafe extern "C-unwind" fn(Ptr<ibv_qp_ex>, A)>;
pub(crate) type Wr2<A, B> = Option<unsafe extern "C-unwind" fn(Ptr<ibv_qp_ex>, A, B)>;
pub(crate) type Wr3<A, B, C> = Option<unsafe extern "C-unwind" fn(Ptr<ibv_qp_ex>, A, B, C)>;
pub(crate) type Wr4<A, B, C, D> = Option<unsafe extern "C-unwind" fn(Ptr<ibv_qp_ex>, A, B, C, D)>;

/// As of rdma-core 64, which has one function more than 44.
#[repr(C)]
pub(crate) struct ibv_qp_ex {
    pub(crate) base: ibv_qp,
    pub(crate) comp_mask: u64,
    pub(crate) wr_id: u64,
    pub(crate) wr_flags: c_uint,
    pub(crate) wr_atomic_cmp_swp: Wr4<u32, u64, u64, u64>,
    pub(crate) wr_atomic_fetch_add: Wr3<u32, u64, u64>,
    pub(crate) wr_bind_mw: Wr3<Ptr<ibv_mw>, u32, Ptr<ibv_mw_bind_info>>,
    pub(crate) wr_local_inv: Wr1<u32>,
    pub(crate) wr_rdma_read: Wr2<u32, u64>,
    pub(crate) wr_rdma_write: Wr2<u32, u64>,
    pub(crate) wr_rdma_write_imm: Wr3<u32, u64, u32>,
    pub(crate) wr_send: Wr0,
    pub(crate) wr_send_imm: Wr1<u32>,
    pub(crate) wr_send_inv: Wr1<u32>,
    pub(crate) tso_ud_and_xrc: [Absent; 3],
    pub(crate) wr_set_inline_data: Wr2<Ptr<c_void>, usize>,
    pub(crate) wr_set_inline_data_list: Wr2<usize, Ptr<ibv_data_buf>>,
    pub(crate) wr_set_sge: Wr3<u32, u64, u32>,
    pub(crate) wr_set_sge_list: Wr2<usize, Ptr<ibv_sge>>,
    pub(crate) wr_start: Wr0,
    pub(crate) wr_complete: Option<unsafe extern "C-unwind" fn(Ptr<ibv_qp_ex>) -> c_int>,
    pub(crate) wr_abort: Wr0,
    pub(crate) atomic_write_and_flush: [Absent; 2],
}

#[repr(C)]
pub(crate) struct ibv_srq {
    pub(crate) context: Ptr<ibv_context>,
    pub(crate) srq_context: Ptr<c_void>,
    pub(crate) pd: Ptr<ibv_pd>,
    pub(crate) handle: u32,
    pub(crate) mutex: libc::pthread_mutex_t,
    pub(crate) cond: libc::pthread_cond_t,
    pub(crate) events_completed: u32,
}

pub(crate) const IBV_EVENT_CQ_ERR: c_int = 0;
pub(crate) const IBV_EVENT_DEVICE_FATAL: c_int = 8;
pub(crate) const IBV_EVENT_SRQ_LIMIT_REACHED: c_int = 15;

/// `element` is a pointer to a CQ, QP or SRQ, or a port's number, as `event_type` says.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_async_event {
    pub(crate) element: usize,
    pub(crate) event_type: c_int,
}

sizes!(
    ibv_pd = 16,
    ibv_mr = 48,
    ibv_mw = 32,
    ibv_comp_channel = 16,
    ibv_cq = 128,
    ibv_cq_ex = 288,
    ibv_qp = 160,
    ibv_data_buf = 16,
    ibv_qp_ex = 360,
    ibv_srq = 128,
    ibv_async_event = 16,
);
