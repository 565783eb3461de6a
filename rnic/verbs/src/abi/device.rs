//! Devices, contexts and their attributes.

use std::ffi::{c_char, c_int, c_uint, c_void};

use super::sizes;
use super::{
    ibv_cq, ibv_cq_ex, ibv_cq_init_attr_ex, ibv_mw, ibv_mw_bind, ibv_pd, ibv_qp,
    ibv_qp_init_attr_ex, ibv_recv_wr, ibv_send_wr, ibv_srq, ibv_srq_init_attr_ex, ibv_wc,
};
use crate::ffi::Ptr;

pub(crate) const IBV_NODE_RNIC: c_int = 4;
pub(crate) const IBV_TRANSPORT_IWARP: c_int = 1;

#[repr(C)]
pub(crate) struct ibv_device {
    pub(crate) ops: [usize; 2],
    pub(crate) node_type: c_int,
    pub(crate) transport_type: c_int,
    pub(crate) name: [c_char; 64],
    pub(crate) dev_name: [c_char; 64],
    pub(crate) dev_path: [c_char; 256],
    pub(crate) ibdev_path: [c_char; 256],
}

/// A function that is not there: the headers' inline functions return EOPNOTSUPP then.
pub(crate) type Absent = usize;

/// The functions that the headers' inline functions call. Others are exported.
#[repr(C)]
pub(crate) struct ibv_context_ops {
    pub(crate) compat_before: [Absent; 7],
    pub(crate) alloc_mw: unsafe extern "C-unwind" fn(Ptr<ibv_pd>, c_int) -> Ptr<ibv_mw>,
    pub(crate) bind_mw:
        unsafe extern "C-unwind" fn(Ptr<ibv_qp>, Ptr<ibv_mw>, Ptr<ibv_mw_bind>) -> c_int,
    pub(crate) dealloc_mw: unsafe extern "C-unwind" fn(Ptr<ibv_mw>) -> c_int,
    pub(crate) compat_create_cq: Absent,
    pub(crate) poll_cq: unsafe extern "C-unwind" fn(Ptr<ibv_cq>, c_int, Ptr<ibv_wc>) -> c_int,
    pub(crate) req_notify_cq: unsafe extern "C-unwind" fn(Ptr<ibv_cq>, c_int) -> c_int,
    pub(crate) compat_cq_and_srq: [Absent; 7],
    pub(crate) post_srq_recv:
        unsafe extern "C-unwind" fn(Ptr<ibv_srq>, Ptr<ibv_recv_wr>, Ptr<Ptr<ibv_recv_wr>>) -> c_int,
    pub(crate) compat_qp: [Absent; 4],
    pub(crate) post_send:
        unsafe extern "C-unwind" fn(Ptr<ibv_qp>, Ptr<ibv_send_wr>, Ptr<Ptr<ibv_send_wr>>) -> c_int,
    pub(crate) post_recv:
        unsafe extern "C-unwind" fn(Ptr<ibv_qp>, Ptr<ibv_recv_wr>, Ptr<Ptr<ibv_recv_wr>>) -> c_int,
    pub(crate) compat_after: [Absent; 5],
}

#[repr(C)]
pub(crate) struct ibv_context {
    pub(crate) device: Ptr<ibv_device>,
    pub(crate) ops: ibv_context_ops,
    pub(crate) cmd_fd: c_int,
    pub(crate) async_fd: c_int,
    pub(crate) num_comp_vectors: c_int,
    pub(crate) mutex: libc::pthread_mutex_t,
    /// All ones: a [`verbs_context`] stands around it.
    pub(crate) abi_compat: usize,
}

/// What stands in front of an `ibv_context`. It grows at its beginning: six functions are newer than
/// rdma-core 44, and programs find the others from the end.
#[repr(C)]
pub(crate) struct verbs_context {
    pub(crate) newer: [Absent; 6],
    pub(crate) query_port:
        unsafe extern "C-unwind" fn(Ptr<ibv_context>, u8, Ptr<ibv_port_attr>, usize) -> c_int,
    pub(crate) advise_mr_to_query_rt_values: [Absent; 24],
    pub(crate) create_cq_ex:
        unsafe extern "C-unwind" fn(Ptr<ibv_context>, Ptr<ibv_cq_init_attr_ex>) -> Ptr<ibv_cq_ex>,
    pub(crate) private: usize,
    pub(crate) query_device_ex: unsafe extern "C-unwind" fn(
        Ptr<ibv_context>,
        Ptr<c_void>,
        Ptr<ibv_device_attr_ex>,
        usize,
    ) -> c_int,
    pub(crate) flow_and_open_qp: [Absent; 5],
    pub(crate) create_qp_ex:
        unsafe extern "C-unwind" fn(Ptr<ibv_context>, Ptr<ibv_qp_init_attr_ex>) -> Ptr<ibv_qp>,
    pub(crate) get_srq_num: Absent,
    pub(crate) create_srq_ex:
        unsafe extern "C-unwind" fn(Ptr<ibv_context>, Ptr<ibv_srq_init_attr_ex>) -> Ptr<ibv_srq>,
    pub(crate) xrcd: [Absent; 2],
    pub(crate) placeholder3: u64,
    pub(crate) sz: usize,
    pub(crate) context: ibv_context,
}

pub(crate) const IBV_DEVICE_MEM_WINDOW: c_uint = 1 << 17;
pub(crate) const IBV_DEVICE_MEM_WINDOW_TYPE_2B: c_uint = 1 << 24;
pub(crate) const IBV_DEVICE_MEM_MGT_EXTENSIONS: c_uint = 1 << 21;
pub(crate) const IBV_ATOMIC_HCA: c_int = 1;

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_device_attr {
    pub(crate) fw_ver: [c_char; 64],
    pub(crate) node_guid: u64,
    pub(crate) sys_image_guid: u64,
    pub(crate) max_mr_size: u64,
    pub(crate) page_size_cap: u64,
    pub(crate) vendor_id: u32,
    pub(crate) vendor_part_id: u32,
    pub(crate) hw_ver: u32,
    pub(crate) max_qp: c_int,
    pub(crate) max_qp_wr: c_int,
    pub(crate) device_cap_flags: c_uint,
    pub(crate) max_sge: c_int,
    pub(crate) max_sge_rd: c_int,
    pub(crate) max_cq: c_int,
    pub(crate) max_cqe: c_int,
    pub(crate) max_mr: c_int,
    pub(crate) max_pd: c_int,
    pub(crate) max_qp_rd_atom: c_int,
    pub(crate) max_ee_rd_atom: c_int,
    pub(crate) max_res_rd_atom: c_int,
    pub(crate) max_qp_init_rd_atom: c_int,
    pub(crate) max_ee_init_rd_atom: c_int,
    pub(crate) atomic_cap: c_int,
    pub(crate) max_ee: c_int,
    pub(crate) max_rdd: c_int,
    pub(crate) max_mw: c_int,
    pub(crate) max_raw_ipv6_qp: c_int,
    pub(crate) max_raw_ethy_qp: c_int,
    pub(crate) max_mcast_grp: c_int,
    pub(crate) max_mcast_qp_attach: c_int,
    pub(crate) max_total_mcast_qp_attach: c_int,
    pub(crate) max_ah: c_int,
    pub(crate) max_fmr: c_int,
    pub(crate) max_map_per_fmr: c_int,
    pub(crate) max_srq: c_int,
    pub(crate) max_srq_wr: c_int,
    pub(crate) max_srq_sge: c_int,
    pub(crate) max_pkeys: u16,
    pub(crate) local_ca_ack_delay: u8,
    pub(crate) phys_port_cnt: u8,
}

/// What is behind `orig_attr` belongs to features that the RNIC does not have, all but the last.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_device_attr_ex {
    pub(crate) orig_attr: ibv_device_attr,
    pub(crate) comp_mask: u32,
    pub(crate) features: [u32; 40],
    pub(crate) phys_port_cnt_ex: u32,
}

pub(crate) const IBV_PORT_DOWN: c_int = 1;
pub(crate) const IBV_PORT_ACTIVE: c_int = 4;
pub(crate) const IBV_LINK_LAYER_ETHERNET: u8 = 2;
pub(crate) const PHYS_STATE_DISABLED: u8 = 3;
pub(crate) const PHYS_STATE_LINK_UP: u8 = 5;
pub(crate) const IBV_PORT_IP_BASED_GIDS: u32 = 1 << 26;

/// As of rdma-core 64, which has one field more than 44.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_port_attr {
    pub(crate) state: c_int,
    pub(crate) max_mtu: c_int,
    pub(crate) active_mtu: c_int,
    pub(crate) gid_tbl_len: c_int,
    pub(crate) port_cap_flags: u32,
    pub(crate) max_msg_sz: u32,
    pub(crate) bad_pkey_cntr: u32,
    pub(crate) qkey_viol_cntr: u32,
    pub(crate) pkey_tbl_len: u16,
    pub(crate) lid: u16,
    pub(crate) sm_lid: u16,
    pub(crate) lmc: u8,
    pub(crate) max_vl_num: u8,
    pub(crate) sm_sl: u8,
    pub(crate) subnet_timeout: u8,
    pub(crate) init_type_reply: u8,
    pub(crate) active_width: u8,
    pub(crate) active_speed: u8,
    pub(crate) phys_state: u8,
    pub(crate) link_layer: u8,
    pub(crate) flags: u8,
    pub(crate) port_cap_flags2: u16,
    pub(crate) active_speed_ex: u32,
}

/// Bytes of the headers' `_compat_ibv_port_attr`, which is [`ibv_port_attr`] up to `flags`: what callers of
/// the exported `ibv_query_port` have room for. Newer programs call `verbs_context::query_port`, and say how
/// large their struct is.
pub(crate) const COMPAT_PORT_ATTR: usize = std::mem::offset_of!(ibv_port_attr, port_cap_flags2);

/// A GID in network order.
#[repr(C, align(8))]
#[derive(Clone, Copy, Default)]
pub(crate) struct ibv_gid(pub(crate) [u8; 16]);

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_gid_entry {
    pub(crate) gid: ibv_gid,
    pub(crate) gid_index: u32,
    pub(crate) port_num: u32,
    pub(crate) gid_type: u32,
    pub(crate) ndev_ifindex: u32,
}

const _: () = assert!(COMPAT_PORT_ATTR == 48);

sizes!(
    ibv_device = 664,
    ibv_context_ops = 256,
    ibv_context = 328,
    verbs_context = 696,
    ibv_device_attr = 232,
    ibv_device_attr_ex = 400,
    ibv_port_attr = 56,
    ibv_gid_entry = 32,
);
