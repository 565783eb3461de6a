//! Every field that programs of rdma-core 44 reach is where their headers say.
//!
//! The numbers are those of `offsetof` in a C program with Debian 12's headers. A `verbs_context` is larger
//! here: six functions that rdma-core 64 has come before those of 44, which are 48 bytes further on.

use std::mem::offset_of;

use super::*;
use crate::ffi::Ptr;

macro_rules! offsets {
    ($($type:ident { $($field:ident = $offset:literal),* })*) => {
        [$($((concat!(stringify!($type), ".", stringify!($field)), offset_of!($type, $field), $offset),)*)*]
    };
}

#[test]
fn fields_are_where_the_headers_of_rdma_core_44_have_them() {
    let fields = offsets! {
        ibv_device { ops = 0, node_type = 16, transport_type = 20, name = 24, dev_name = 88, dev_path = 152, ibdev_path = 408 }
        ibv_context { device = 0, ops = 8, cmd_fd = 264, async_fd = 268, num_comp_vectors = 272, mutex = 280, abi_compat = 320 }
        ibv_context_ops { alloc_mw = 56, bind_mw = 64, dealloc_mw = 72, poll_cq = 88, req_notify_cq = 96, post_srq_recv = 160, post_send = 200, post_recv = 208 }
        verbs_context { query_port = 48, create_cq_ex = 248, private = 256, query_device_ex = 264, create_qp_ex = 312, create_srq_ex = 328, sz = 360, context = 368 }
        ibv_pd { context = 0, handle = 8 }
        ibv_mr { context = 0, pd = 8, addr = 16, length = 24, handle = 32, lkey = 36, rkey = 40 }
        ibv_comp_channel { context = 0, fd = 8, refcnt = 12 }
        ibv_cq { context = 0, channel = 8, cq_context = 16, handle = 24, cqe = 28, mutex = 32, cond = 72, comp_events_completed = 120, async_events_completed = 124 }
        ibv_cq_ex { comp_mask = 128, status = 132, wr_id = 136, start_poll = 144 }
        ibv_qp { context = 0, qp_context = 8, pd = 16, send_cq = 24, recv_cq = 32, srq = 40, handle = 48, qp_num = 52, state = 56, qp_type = 60, mutex = 64, cond = 104, events_completed = 152 }
        ibv_qp_ex { comp_mask = 160, wr_id = 168, wr_flags = 176, wr_atomic_cmp_swp = 184, wr_start = 320 }
        ibv_srq { context = 0, srq_context = 8, pd = 16, handle = 24, mutex = 32, events_completed = 120 }
        ibv_wc { wr_id = 0, status = 8, opcode = 12, byte_len = 20, imm_data = 24, qp_num = 28, src_qp = 32, wc_flags = 36 }
        ibv_port_attr { state = 0, link_layer = 46, flags = 47, port_cap_flags2 = 48 }
        rdma_event_channel { fd = 0 }
        rdma_cm_id { verbs = 0, channel = 8, context = 16, qp = 24, route = 32, ps = 344, port_num = 348, event = 352, send_cq_channel = 360, send_cq = 368, recv_cq_channel = 376, recv_cq = 384, srq = 392, pd = 400, qp_type = 408 }
        rdma_route { addr = 0, path_rec = 296, num_paths = 304 }
        rdma_addr { dst_storage = 128, sgid = 256 }
        rdma_cm_event { id = 0, listen_id = 8, event = 16, status = 20, conn = 24 }
    };
    for (field, ours, theirs) in fields {
        assert_eq!(ours, theirs, "{field}");
    }
}

#[test]
fn parts_of_a_work_request_are_where_the_headers_have_them() {
    assert_eq!(offset_of!(ibv_send_wr, send_flags), 32);
    assert_eq!(offset_of!(ibv_send_wr, imm_data), 36);
    assert_eq!(offset_of!(ibv_send_wr, wr), 40);
    assert_eq!(offset_of!(RemoteWords, compare_add), 8);
    assert_eq!(offset_of!(RemoteWords, atomic_rkey), 24);
    assert_eq!(offset_of!(ibv_send_wr, bind_mw), 80);
    assert_eq!(offset_of!(ibv_qp_init_attr, cap), 32);
    assert_eq!(offset_of!(ibv_qp_init_attr_ex, comp_mask), 60);
    assert_eq!(offset_of!(ibv_qp_init_attr_ex, send_ops_flags), 128);
    assert_eq!(offset_of!(rdma_conn_param, qp_num), 16);
}

#[test]
fn the_rkey_of_a_work_request_is_read_as_c_programs_write_it() {
    let mut words = RemoteWords::default();
    let place = std::ptr::from_mut(&mut words).cast::<u32>();
    let rkey = Ptr::<u32>::from_addr((place.expose_provenance() + 8) as u64);
    rkey.write(0x1234_5678);
    assert_eq!(words.rdma_rkey(), 0x1234_5678);
    assert_eq!(RemoteWords::rdma(7, 0x1234_5678).rdma_rkey(), 0x1234_5678);
}
