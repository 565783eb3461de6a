//! The connection manager's.

use std::ffi::{c_char, c_int, c_void};

use super::{ibv_comp_channel, ibv_context, ibv_cq, ibv_pd, ibv_qp, ibv_srq, sizes};
use crate::ffi::Ptr;

pub(crate) const RDMA_CM_EVENT_ADDR_RESOLVED: c_int = 0;
pub(crate) const RDMA_CM_EVENT_ROUTE_RESOLVED: c_int = 2;
pub(crate) const RDMA_CM_EVENT_CONNECT_REQUEST: c_int = 4;
pub(crate) const RDMA_CM_EVENT_CONNECT_ERROR: c_int = 6;
pub(crate) const RDMA_CM_EVENT_UNREACHABLE: c_int = 7;
pub(crate) const RDMA_CM_EVENT_REJECTED: c_int = 8;
pub(crate) const RDMA_CM_EVENT_ESTABLISHED: c_int = 9;
pub(crate) const RDMA_CM_EVENT_DISCONNECTED: c_int = 10;
pub(crate) const RDMA_CM_EVENT_DEVICE_REMOVAL: c_int = 11;

pub(crate) const RDMA_PS_TCP: c_int = 0x0106;

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct rdma_addr {
    pub(crate) src_storage: libc::sockaddr_storage,
    pub(crate) dst_storage: libc::sockaddr_storage,
    pub(crate) sgid: [u8; 16],
    pub(crate) dgid: [u8; 16],
    pub(crate) pkey: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct rdma_route {
    pub(crate) addr: rdma_addr,
    pub(crate) path_rec: usize,
    pub(crate) num_paths: c_int,
}

#[repr(C)]
pub(crate) struct rdma_event_channel {
    pub(crate) fd: c_int,
}

#[repr(C)]
pub(crate) struct rdma_cm_id {
    pub(crate) verbs: Ptr<ibv_context>,
    pub(crate) channel: Ptr<rdma_event_channel>,
    pub(crate) context: Ptr<c_void>,
    pub(crate) qp: Ptr<ibv_qp>,
    pub(crate) route: rdma_route,
    pub(crate) ps: c_int,
    pub(crate) port_num: u8,
    pub(crate) event: Ptr<rdma_cm_event>,
    pub(crate) send_cq_channel: Ptr<ibv_comp_channel>,
    pub(crate) send_cq: Ptr<ibv_cq>,
    pub(crate) recv_cq_channel: Ptr<ibv_comp_channel>,
    pub(crate) recv_cq: Ptr<ibv_cq>,
    pub(crate) srq: Ptr<ibv_srq>,
    pub(crate) pd: Ptr<ibv_pd>,
    pub(crate) qp_type: c_int,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct rdma_conn_param {
    pub(crate) private_data: Ptr<u8>,
    pub(crate) private_data_len: u8,
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    pub(crate) flow_control: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry_count: u8,
    pub(crate) srq: u8,
    pub(crate) qp_num: u32,
}

/// `conn` is a part of a union with what datagrams have.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct rdma_cm_event {
    pub(crate) id: Ptr<rdma_cm_id>,
    pub(crate) listen_id: Ptr<rdma_cm_id>,
    pub(crate) event: c_int,
    pub(crate) status: c_int,
    pub(crate) conn: rdma_conn_param,
    pub(crate) rest_of_ud: [u64; 4],
}

pub(crate) const RAI_PASSIVE: c_int = 1;
pub(crate) const RAI_NUMERICHOST: c_int = 2;
pub(crate) const RAI_FAMILY: c_int = 8;

#[repr(C)]
pub(crate) struct rdma_addrinfo {
    pub(crate) ai_flags: c_int,
    pub(crate) ai_family: c_int,
    pub(crate) ai_qp_type: c_int,
    pub(crate) ai_port_space: c_int,
    pub(crate) ai_src_len: libc::socklen_t,
    pub(crate) ai_dst_len: libc::socklen_t,
    pub(crate) ai_src_addr: Ptr<libc::sockaddr>,
    pub(crate) ai_dst_addr: Ptr<libc::sockaddr>,
    pub(crate) ai_src_canonname: Ptr<c_char>,
    pub(crate) ai_dst_canonname: Ptr<c_char>,
    pub(crate) ai_route_len: usize,
    pub(crate) ai_route: Ptr<c_void>,
    pub(crate) ai_connect_len: usize,
    pub(crate) ai_connect: Ptr<c_void>,
    pub(crate) ai_next: Ptr<rdma_addrinfo>,
}

sizes!(
    rdma_addr = 296,
    rdma_route = 312,
    rdma_cm_id = 416,
    rdma_conn_param = 24,
    rdma_cm_event = 80,
    rdma_addrinfo = 96,
);
