//! Work requests and completions.

use std::ffi::{c_int, c_uint};

use super::{ibv_mr, ibv_mw, sizes};
use crate::ffi::Ptr;

pub(crate) const IBV_WC_SUCCESS: c_int = 0;
pub(crate) const IBV_WC_LOC_LEN_ERR: c_int = 1;
pub(crate) const IBV_WC_LOC_QP_OP_ERR: c_int = 2;
pub(crate) const IBV_WC_LOC_PROT_ERR: c_int = 4;
pub(crate) const IBV_WC_WR_FLUSH_ERR: c_int = 5;
pub(crate) const IBV_WC_REM_ACCESS_ERR: c_int = 10;
pub(crate) const IBV_WC_REM_OP_ERR: c_int = 11;
pub(crate) const IBV_WC_RETRY_EXC_ERR: c_int = 12;
pub(crate) const IBV_WC_GENERAL_ERR: c_int = 21;

pub(crate) const IBV_WC_SEND: c_int = 0;
pub(crate) const IBV_WC_RDMA_WRITE: c_int = 1;
pub(crate) const IBV_WC_RDMA_READ: c_int = 2;
pub(crate) const IBV_WC_COMP_SWAP: c_int = 3;
pub(crate) const IBV_WC_FETCH_ADD: c_int = 4;
pub(crate) const IBV_WC_BIND_MW: c_int = 5;
pub(crate) const IBV_WC_LOCAL_INV: c_int = 6;
pub(crate) const IBV_WC_RECV: c_int = 1 << 7;
pub(crate) const IBV_WC_RECV_RDMA_WITH_IMM: c_int = (1 << 7) + 1;

pub(crate) const IBV_WC_WITH_IMM: c_uint = 1 << 1;
pub(crate) const IBV_WC_WITH_INV: c_uint = 1 << 3;

/// `imm_data` is in network order, or the STag that was invalidated, as `wc_flags` says.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct ibv_wc {
    pub(crate) wr_id: u64,
    pub(crate) status: c_int,
    pub(crate) opcode: c_int,
    pub(crate) vendor_err: u32,
    pub(crate) byte_len: u32,
    pub(crate) imm_data: u32,
    pub(crate) qp_num: u32,
    pub(crate) src_qp: u32,
    pub(crate) wc_flags: c_uint,
    pub(crate) pkey_index: u16,
    pub(crate) slid: u16,
    pub(crate) sl: u8,
    pub(crate) dlid_path_bits: u8,
}

pub(crate) const IBV_WR_RDMA_WRITE: c_int = 0;
pub(crate) const IBV_WR_RDMA_WRITE_WITH_IMM: c_int = 1;
pub(crate) const IBV_WR_SEND: c_int = 2;
pub(crate) const IBV_WR_SEND_WITH_IMM: c_int = 3;
pub(crate) const IBV_WR_RDMA_READ: c_int = 4;
pub(crate) const IBV_WR_ATOMIC_CMP_AND_SWP: c_int = 5;
pub(crate) const IBV_WR_ATOMIC_FETCH_AND_ADD: c_int = 6;
pub(crate) const IBV_WR_LOCAL_INV: c_int = 7;
pub(crate) const IBV_WR_BIND_MW: c_int = 8;
pub(crate) const IBV_WR_SEND_WITH_INV: c_int = 9;

pub(crate) const IBV_SEND_FENCE: c_uint = 1;
pub(crate) const IBV_SEND_SIGNALED: c_uint = 1 << 1;
pub(crate) const IBV_SEND_SOLICITED: c_uint = 1 << 2;
pub(crate) const IBV_SEND_INLINE: c_uint = 1 << 3;
pub(crate) const IBV_SEND_IP_CSUM: c_uint = 1 << 4;

/// An element of a work request is the client API's.
pub(crate) type ibv_sge = rnic::Sge;

/// `wr` of an `ibv_send_wr` as the opcode has it: `rdma` is its first and second word (`rkey` is the
/// second's first half), `atomic` all four.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct RemoteWords {
    pub(crate) remote_addr: u64,
    pub(crate) compare_add: u64,
    pub(crate) swap: u64,
    pub(crate) atomic_rkey: u32,
}

impl RemoteWords {
    /// `wr.rdma`.
    pub(crate) fn rdma(remote_addr: u64, rkey: u32) -> Self {
        let [k0, k1, k2, k3] = rkey.to_ne_bytes();
        Self {
            remote_addr,
            compare_add: u64::from_ne_bytes([k0, k1, k2, k3, 0, 0, 0, 0]),
            ..Self::default()
        }
    }

    /// `wr.rdma.rkey`.
    pub(crate) fn rdma_rkey(&self) -> u32 {
        let [k0, k1, k2, k3, ..] = self.compare_add.to_ne_bytes();
        u32::from_ne_bytes([k0, k1, k2, k3])
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_mw_bind_info {
    pub(crate) mr: Ptr<ibv_mr>,
    pub(crate) addr: u64,
    pub(crate) length: u64,
    pub(crate) mw_access_flags: c_uint,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_mw_bind {
    pub(crate) wr_id: u64,
    pub(crate) send_flags: c_uint,
    pub(crate) bind_info: ibv_mw_bind_info,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct BindWords {
    pub(crate) mw: Ptr<ibv_mw>,
    pub(crate) rkey: u32,
    pub(crate) bind_info: ibv_mw_bind_info,
}

/// `imm_data` is in network order, or the STag to invalidate, as `opcode` says.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_send_wr {
    pub(crate) wr_id: u64,
    pub(crate) next: Ptr<ibv_send_wr>,
    pub(crate) sg_list: Ptr<ibv_sge>,
    pub(crate) num_sge: c_int,
    pub(crate) opcode: c_int,
    pub(crate) send_flags: c_uint,
    pub(crate) imm_data: u32,
    pub(crate) wr: RemoteWords,
    pub(crate) remote_srqn: u32,
    pub(crate) bind_mw: BindWords,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_recv_wr {
    pub(crate) wr_id: u64,
    pub(crate) next: Ptr<ibv_recv_wr>,
    pub(crate) sg_list: Ptr<ibv_sge>,
    pub(crate) num_sge: c_int,
}

sizes!(
    ibv_wc = 48,
    ibv_sge = 16,
    ibv_mw_bind_info = 32,
    ibv_mw_bind = 48,
    ibv_send_wr = 128,
    ibv_recv_wr = 32,
);
