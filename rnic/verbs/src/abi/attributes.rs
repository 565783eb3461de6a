//! What objects are made with and asked for.

use std::ffi::{c_int, c_uint, c_void};

use super::{ibv_comp_channel, ibv_cq, ibv_pd, ibv_srq, sizes};
use crate::ffi::Ptr;

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct ibv_qp_cap {
    pub(crate) max_send_wr: u32,
    pub(crate) max_recv_wr: u32,
    pub(crate) max_send_sge: u32,
    pub(crate) max_recv_sge: u32,
    pub(crate) max_inline_data: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_qp_init_attr {
    pub(crate) qp_context: Ptr<c_void>,
    pub(crate) send_cq: Ptr<ibv_cq>,
    pub(crate) recv_cq: Ptr<ibv_cq>,
    pub(crate) srq: Ptr<ibv_srq>,
    pub(crate) cap: ibv_qp_cap,
    pub(crate) qp_type: c_int,
    pub(crate) sq_sig_all: c_int,
}

pub(crate) const IBV_QP_INIT_ATTR_PD: u32 = 1;
pub(crate) const IBV_QP_INIT_ATTR_CREATE_FLAGS: u32 = 1 << 2;
pub(crate) const IBV_QP_INIT_ATTR_SEND_OPS_FLAGS: u32 = 1 << 6;

pub(crate) const IBV_QP_EX_WITH_RDMA_WRITE: u64 = 1;
pub(crate) const IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM: u64 = 1 << 1;
pub(crate) const IBV_QP_EX_WITH_SEND: u64 = 1 << 2;
pub(crate) const IBV_QP_EX_WITH_SEND_WITH_IMM: u64 = 1 << 3;
pub(crate) const IBV_QP_EX_WITH_RDMA_READ: u64 = 1 << 4;
pub(crate) const IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP: u64 = 1 << 5;
pub(crate) const IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD: u64 = 1 << 6;
pub(crate) const IBV_QP_EX_WITH_LOCAL_INV: u64 = 1 << 7;
pub(crate) const IBV_QP_EX_WITH_BIND_MW: u64 = 1 << 8;
pub(crate) const IBV_QP_EX_WITH_SEND_WITH_INV: u64 = 1 << 9;

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_qp_init_attr_ex {
    pub(crate) qp_context: Ptr<c_void>,
    pub(crate) send_cq: Ptr<ibv_cq>,
    pub(crate) recv_cq: Ptr<ibv_cq>,
    pub(crate) srq: Ptr<ibv_srq>,
    pub(crate) cap: ibv_qp_cap,
    pub(crate) qp_type: c_int,
    pub(crate) sq_sig_all: c_int,
    pub(crate) comp_mask: u32,
    pub(crate) pd: Ptr<ibv_pd>,
    pub(crate) xrcd: usize,
    pub(crate) create_flags: u32,
    pub(crate) max_tso_header: u16,
    pub(crate) rwq_ind_tbl: usize,
    pub(crate) rx_hash_conf: [u64; 3],
    pub(crate) source_qpn: u32,
    pub(crate) send_ops_flags: u64,
}

impl ibv_qp_init_attr_ex {
    pub(crate) fn plain(&self) -> ibv_qp_init_attr {
        ibv_qp_init_attr {
            qp_context: self.qp_context,
            send_cq: self.send_cq,
            recv_cq: self.recv_cq,
            srq: self.srq,
            cap: self.cap,
            qp_type: self.qp_type,
            sq_sig_all: self.sq_sig_all,
        }
    }
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct ibv_ah_attr {
    pub(crate) dgid: [u64; 2],
    pub(crate) flow_label: u32,
    pub(crate) sgid_index: u8,
    pub(crate) hop_limit: u8,
    pub(crate) traffic_class: u8,
    pub(crate) dlid: u16,
    pub(crate) sl: u8,
    pub(crate) src_path_bits: u8,
    pub(crate) static_rate: u8,
    pub(crate) is_global: u8,
    pub(crate) port_num: u8,
}

pub(crate) const IBV_QP_STATE: c_int = 1;
pub(crate) const IBV_QP_CUR_STATE: c_int = 1 << 1;
pub(crate) const IBV_QP_EN_SQD_ASYNC_NOTIFY: c_int = 1 << 2;
pub(crate) const IBV_QP_ACCESS_FLAGS: c_int = 1 << 3;
pub(crate) const IBV_QP_PKEY_INDEX: c_int = 1 << 4;
pub(crate) const IBV_QP_PORT: c_int = 1 << 5;
pub(crate) const IBV_QP_AV: c_int = 1 << 7;
pub(crate) const IBV_QP_PATH_MTU: c_int = 1 << 8;
pub(crate) const IBV_QP_TIMEOUT: c_int = 1 << 9;
pub(crate) const IBV_QP_RETRY_CNT: c_int = 1 << 10;
pub(crate) const IBV_QP_RNR_RETRY: c_int = 1 << 11;
pub(crate) const IBV_QP_RQ_PSN: c_int = 1 << 12;
pub(crate) const IBV_QP_MAX_QP_RD_ATOMIC: c_int = 1 << 13;
pub(crate) const IBV_QP_MIN_RNR_TIMER: c_int = 1 << 15;
pub(crate) const IBV_QP_SQ_PSN: c_int = 1 << 16;
pub(crate) const IBV_QP_MAX_DEST_RD_ATOMIC: c_int = 1 << 17;
pub(crate) const IBV_QP_DEST_QPN: c_int = 1 << 20;

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct ibv_qp_attr {
    pub(crate) qp_state: c_int,
    pub(crate) cur_qp_state: c_int,
    pub(crate) path_mtu: c_int,
    pub(crate) path_mig_state: c_int,
    pub(crate) qkey: u32,
    pub(crate) rq_psn: u32,
    pub(crate) sq_psn: u32,
    pub(crate) dest_qp_num: u32,
    pub(crate) qp_access_flags: c_uint,
    pub(crate) cap: ibv_qp_cap,
    pub(crate) ah_attr: ibv_ah_attr,
    pub(crate) alt_ah_attr: ibv_ah_attr,
    pub(crate) pkey_index: u16,
    pub(crate) alt_pkey_index: u16,
    pub(crate) en_sqd_async_notify: u8,
    pub(crate) sq_draining: u8,
    pub(crate) max_rd_atomic: u8,
    pub(crate) max_dest_rd_atomic: u8,
    pub(crate) min_rnr_timer: u8,
    pub(crate) port_num: u8,
    pub(crate) timeout: u8,
    pub(crate) retry_cnt: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) alt_port_num: u8,
    pub(crate) alt_timeout: u8,
    pub(crate) rate_limit: u32,
}

pub(crate) const IBV_SRQ_MAX_WR: c_int = 1;
pub(crate) const IBV_SRQ_LIMIT: c_int = 1 << 1;

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct ibv_srq_attr {
    pub(crate) max_wr: u32,
    pub(crate) max_sge: u32,
    pub(crate) srq_limit: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_srq_init_attr {
    pub(crate) srq_context: Ptr<c_void>,
    pub(crate) attr: ibv_srq_attr,
}

pub(crate) const IBV_SRQ_INIT_ATTR_TYPE: u32 = 1;
pub(crate) const IBV_SRQ_INIT_ATTR_PD: u32 = 1 << 1;

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_srq_init_attr_ex {
    pub(crate) srq_context: Ptr<c_void>,
    pub(crate) attr: ibv_srq_attr,
    pub(crate) comp_mask: u32,
    pub(crate) srq_type: c_int,
    pub(crate) pd: Ptr<ibv_pd>,
    pub(crate) xrcd: usize,
    pub(crate) cq: Ptr<ibv_cq>,
    pub(crate) tm_cap: [u32; 2],
}

/// Values of a completion that every extended CQ can read.
pub(crate) const IBV_WC_STANDARD_FLAGS: u64 = (1 << 7) - 1;
pub(crate) const IBV_CQ_INIT_ATTR_MASK_FLAGS: u32 = 1;
/// One thread polls. Here more may.
pub(crate) const IBV_CREATE_CQ_ATTR_SINGLE_THREADED: u32 = 1;

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_cq_init_attr_ex {
    pub(crate) cqe: u32,
    pub(crate) cq_context: Ptr<c_void>,
    pub(crate) channel: Ptr<ibv_comp_channel>,
    pub(crate) comp_vector: u32,
    pub(crate) wc_flags: u64,
    pub(crate) comp_mask: u32,
    pub(crate) flags: u32,
    pub(crate) parent_domain: Ptr<ibv_pd>,
}

sizes!(
    ibv_qp_init_attr = 64,
    ibv_qp_init_attr_ex = 136,
    ibv_ah_attr = 32,
    ibv_qp_attr = 144,
    ibv_srq_init_attr_ex = 64,
    ibv_cq_init_attr_ex = 56,
);
