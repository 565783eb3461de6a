//! Every field is where C programs have it that were built with the headers of rdma-core 44 (Debian 12), and
//! every constant has their value: a C compiler is asked.
//!
//! A `verbs_context` is larger here: six functions that rdma-core 64 has come before those of 44. Programs find
//! its fields from the `ibv_context` in it, and so does this.

#![allow(clippy::unwrap_used)]

use std::fmt::Write as _;
use std::mem::offset_of;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::ffi::Ptr;

/// A field: its struct, its name in C, and where it is here.
struct Field {
    owner: &'static str,
    name: &'static str,
    ours: usize,
}

macro_rules! name {
    ($($field:ident).+) => { concat!($(".", stringify!($field)),+) };
    ($($field:ident).+ = $name:literal) => { concat!(".", $name) };
}

macro_rules! fields {
    ($($owner:ident { $($($field:ident).+ $(= $name:literal)?),* $(,)? })*) => {
        [$($(Field {
            owner: stringify!($owner),
            name: name!($($field).+ $(= $name)?),
            ours: offset_of!($owner, $($field).+),
        },)*)*]
    };
}

#[test]
fn every_field_is_where_the_headers_have_it() {
    let fields = fields! {
        ibv_qp_cap {
            max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data,
        }
        ibv_qp_init_attr {
            qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all,
        }
        ibv_qp_init_attr_ex {
            qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all, comp_mask, pd, xrcd,
            create_flags, max_tso_header, rwq_ind_tbl, rx_hash_conf, source_qpn, send_ops_flags,
        }
        ibv_ah_attr {
            dgid = "grh.dgid", flow_label = "grh.flow_label", sgid_index = "grh.sgid_index",
            hop_limit = "grh.hop_limit", traffic_class = "grh.traffic_class", dlid, sl,
            src_path_bits, static_rate, is_global, port_num,
        }
        ibv_qp_attr {
            qp_state, cur_qp_state, path_mtu, path_mig_state, qkey, rq_psn, sq_psn, dest_qp_num,
            qp_access_flags, cap, ah_attr, alt_ah_attr, pkey_index, alt_pkey_index,
            en_sqd_async_notify, sq_draining, max_rd_atomic, max_dest_rd_atomic, min_rnr_timer,
            port_num, timeout, retry_cnt, rnr_retry, alt_port_num, alt_timeout, rate_limit,
        }
        ibv_srq_attr {
            max_wr, max_sge, srq_limit,
        }
        ibv_srq_init_attr {
            srq_context, attr,
        }
        ibv_srq_init_attr_ex {
            srq_context, attr, comp_mask, srq_type, pd, xrcd, cq, tm_cap,
        }
        ibv_cq_init_attr_ex {
            cqe, cq_context, channel, comp_vector, wc_flags, comp_mask, flags, parent_domain,
        }
        rdma_addr {
            src_storage, dst_storage, sgid = "addr.ibaddr.sgid", dgid = "addr.ibaddr.dgid",
            pkey = "addr.ibaddr.pkey",
        }
        rdma_route {
            addr, path_rec, num_paths,
        }
        rdma_event_channel {
            fd,
        }
        rdma_cm_id {
            verbs, channel, context, qp, route, ps, port_num, event, send_cq_channel, send_cq,
            recv_cq_channel, recv_cq, srq, pd, qp_type,
        }
        rdma_conn_param {
            private_data, private_data_len, responder_resources, initiator_depth, flow_control,
            retry_count, rnr_retry_count, srq, qp_num,
        }
        rdma_cm_event {
            id, listen_id, event, status, conn = "param.conn",
        }
        rdma_addrinfo {
            ai_flags, ai_family, ai_qp_type, ai_port_space, ai_src_len, ai_dst_len, ai_src_addr,
            ai_dst_addr, ai_src_canonname, ai_dst_canonname, ai_route_len, ai_route,
            ai_connect_len, ai_connect, ai_next,
        }
        ibv_device {
            ops = "_ops", node_type, transport_type, name, dev_name, dev_path, ibdev_path,
        }
        ibv_context_ops {
            compat_before = "_compat_query_device", alloc_mw, bind_mw, dealloc_mw,
            compat_create_cq = "_compat_create_cq", poll_cq, req_notify_cq,
            compat_cq_and_srq = "_compat_cq_event", post_srq_recv, compat_qp = "_compat_create_qp",
            post_send, post_recv, compat_after = "_compat_create_ah",
        }
        ibv_context {
            device, ops, cmd_fd, async_fd, num_comp_vectors, mutex, abi_compat,
        }
        verbs_context {
            query_port, advise_mr_to_query_rt_values = "advise_mr", create_cq_ex, private = "priv",
            query_device_ex, flow_and_open_qp = "ibv_destroy_flow", create_qp_ex, get_srq_num,
            create_srq_ex, xrcd = "open_xrcd", sz, context,
        }
        ibv_device_attr {
            fw_ver, node_guid, sys_image_guid, max_mr_size, page_size_cap, vendor_id,
            vendor_part_id, hw_ver, max_qp, max_qp_wr, device_cap_flags, max_sge, max_sge_rd,
            max_cq, max_cqe, max_mr, max_pd, max_qp_rd_atom, max_ee_rd_atom, max_res_rd_atom,
            max_qp_init_rd_atom, max_ee_init_rd_atom, atomic_cap, max_ee, max_rdd, max_mw,
            max_raw_ipv6_qp, max_raw_ethy_qp, max_mcast_grp, max_mcast_qp_attach,
            max_total_mcast_qp_attach, max_ah, max_fmr, max_map_per_fmr, max_srq, max_srq_wr,
            max_srq_sge, max_pkeys, local_ca_ack_delay, phys_port_cnt,
        }
        ibv_device_attr_ex {
            orig_attr, comp_mask, phys_port_cnt_ex,
        }
        ibv_port_attr {
            state, max_mtu, active_mtu, gid_tbl_len, port_cap_flags, max_msg_sz, bad_pkey_cntr,
            qkey_viol_cntr, pkey_tbl_len, lid, sm_lid, lmc, max_vl_num, sm_sl, subnet_timeout,
            init_type_reply, active_width, active_speed, phys_state, link_layer, flags,
            port_cap_flags2,
        }
        ibv_gid_entry {
            gid, gid_index, port_num, gid_type, ndev_ifindex,
        }
        ibv_pd {
            context, handle,
        }
        ibv_mr {
            context, pd, addr, length, handle, lkey, rkey,
        }
        ibv_mw {
            context, pd, rkey, handle, mw_type = "type",
        }
        ibv_comp_channel {
            context, fd, refcnt,
        }
        ibv_cq {
            context, channel, cq_context, handle, cqe, mutex, cond, comp_events_completed,
            async_events_completed,
        }
        ibv_cq_ex {
            base = "context", comp_mask, status, wr_id, start_poll, next_poll, end_poll,
            read_opcode, read_vendor_err, read_byte_len, read_imm_data, read_qp_num, read_src_qp,
            read_wc_flags, read_slid, read_sl, read_dlid_path_bits, read_completion_ts, read_cvlan,
            read_flow_tag, read_tm_info, read_completion_wallclock_ns,
        }
        ibv_qp {
            context, qp_context, pd, send_cq, recv_cq, srq, handle, qp_num, state, qp_type, mutex,
            cond, events_completed,
        }
        ibv_data_buf {
            addr, length,
        }
        ibv_qp_ex {
            base = "qp_base", comp_mask, wr_id, wr_flags, wr_atomic_cmp_swp, wr_atomic_fetch_add,
            wr_bind_mw, wr_local_inv, wr_rdma_read, wr_rdma_write, wr_rdma_write_imm, wr_send,
            wr_send_imm, wr_send_inv, tso_ud_and_xrc = "wr_send_tso", wr_set_inline_data,
            wr_set_inline_data_list, wr_set_sge, wr_set_sge_list, wr_start, wr_complete, wr_abort,
            atomic_write_and_flush = "wr_atomic_write",
        }
        ibv_srq {
            context, srq_context, pd, handle, mutex, cond, events_completed,
        }
        ibv_async_event {
            element, event_type,
        }
        ibv_wc {
            wr_id, status, opcode, vendor_err, byte_len, imm_data, imm_data = "invalidated_rkey",
            qp_num, src_qp, wc_flags, pkey_index, slid, sl, dlid_path_bits,
        }
        ibv_mw_bind_info {
            mr, addr, length, mw_access_flags,
        }
        ibv_mw_bind {
            wr_id, send_flags, bind_info,
        }
        ibv_send_wr {
            wr_id, next, sg_list, num_sge, opcode, send_flags, imm_data,
            imm_data = "invalidate_rkey", wr.remote_addr = "wr.rdma.remote_addr",
            wr.compare_add = "wr.rdma.rkey", wr.compare_add = "wr.atomic.compare_add",
            wr.swap = "wr.atomic.swap", wr.atomic_rkey = "wr.atomic.rkey",
            remote_srqn = "qp_type.xrc.remote_srqn", bind_mw.mw, bind_mw.rkey, bind_mw.bind_info,
        }
        ibv_recv_wr {
            wr_id, next, sg_list, num_sge,
        }
    };
    let here = |Field { owner, ours, .. }: &Field| match *owner {
        "verbs_context" => ours.wrapping_sub(offset_of!(verbs_context, context)) as i64,
        _ => *ours as i64,
    };
    let there = |Field { owner, name, .. }: &Field| {
        let base = match *owner {
            "verbs_context" => "offsetof(struct verbs_context, context)",
            _ => "0",
        };
        format!("offsetof(struct {owner}, {}) - {base}", &name[1..])
    };
    let theirs = values_in_c(fields.iter().map(there));
    for (field, theirs) in fields.iter().zip(theirs) {
        assert_eq!(here(field), theirs, "{}{}", field.owner, field.name);
    }
}

#[test]
fn every_constant_has_the_value_of_the_headers() {
    macro_rules! constants {
        ($($name:ident),* $(,)?) => { [$((stringify!($name), $name as i64)),*] };
    }
    let constants = constants![
        IBV_QP_INIT_ATTR_PD,
        IBV_QP_INIT_ATTR_CREATE_FLAGS,
        IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        IBV_QP_EX_WITH_RDMA_WRITE,
        IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM,
        IBV_QP_EX_WITH_SEND,
        IBV_QP_EX_WITH_SEND_WITH_IMM,
        IBV_QP_EX_WITH_RDMA_READ,
        IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP,
        IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
        IBV_QP_EX_WITH_LOCAL_INV,
        IBV_QP_EX_WITH_BIND_MW,
        IBV_QP_EX_WITH_SEND_WITH_INV,
        IBV_QP_STATE,
        IBV_QP_CUR_STATE,
        IBV_QP_EN_SQD_ASYNC_NOTIFY,
        IBV_QP_ACCESS_FLAGS,
        IBV_QP_PKEY_INDEX,
        IBV_QP_PORT,
        IBV_QP_PATH_MTU,
        IBV_QP_TIMEOUT,
        IBV_QP_RETRY_CNT,
        IBV_QP_RNR_RETRY,
        IBV_QP_MIN_RNR_TIMER,
        IBV_SRQ_MAX_WR,
        IBV_SRQ_LIMIT,
        IBV_SRQ_INIT_ATTR_TYPE,
        IBV_SRQ_INIT_ATTR_PD,
        IBV_WC_STANDARD_FLAGS,
        IBV_CQ_INIT_ATTR_MASK_FLAGS,
        IBV_CREATE_CQ_ATTR_SINGLE_THREADED,
        RDMA_CM_EVENT_ADDR_RESOLVED,
        RDMA_CM_EVENT_ROUTE_RESOLVED,
        RDMA_CM_EVENT_CONNECT_REQUEST,
        RDMA_CM_EVENT_CONNECT_ERROR,
        RDMA_CM_EVENT_UNREACHABLE,
        RDMA_CM_EVENT_REJECTED,
        RDMA_CM_EVENT_ESTABLISHED,
        RDMA_CM_EVENT_DISCONNECTED,
        RDMA_CM_EVENT_DEVICE_REMOVAL,
        RDMA_PS_TCP,
        RAI_PASSIVE,
        RAI_NUMERICHOST,
        RAI_FAMILY,
        IBV_NODE_RNIC,
        IBV_TRANSPORT_IWARP,
        IBV_DEVICE_MEM_WINDOW,
        IBV_DEVICE_MEM_WINDOW_TYPE_2B,
        IBV_DEVICE_MEM_MGT_EXTENSIONS,
        IBV_ATOMIC_HCA,
        IBV_PORT_DOWN,
        IBV_PORT_ACTIVE,
        IBV_LINK_LAYER_ETHERNET,
        IBV_ACCESS_LOCAL_WRITE,
        IBV_ACCESS_REMOTE_WRITE,
        IBV_ACCESS_REMOTE_READ,
        IBV_ACCESS_REMOTE_ATOMIC,
        IBV_ACCESS_MW_BIND,
        IBV_ACCESS_HUGETLB,
        IBV_ACCESS_OPTIONAL_FIRST,
        IBV_REREG_MR_CHANGE_TRANSLATION,
        IBV_REREG_MR_CHANGE_PD,
        IBV_REREG_MR_CHANGE_ACCESS,
        IBV_MW_TYPE_1,
        IBV_MW_TYPE_2,
        IBV_QPS_RESET,
        IBV_QPS_INIT,
        IBV_QPS_RTR,
        IBV_QPS_RTS,
        IBV_QPS_SQD,
        IBV_QPS_SQE,
        IBV_QPS_ERR,
        IBV_QPT_RC,
        IBV_EVENT_CQ_ERR,
        IBV_EVENT_DEVICE_FATAL,
        IBV_EVENT_SRQ_LIMIT_REACHED,
        IBV_WC_SUCCESS,
        IBV_WC_LOC_LEN_ERR,
        IBV_WC_LOC_QP_OP_ERR,
        IBV_WC_LOC_PROT_ERR,
        IBV_WC_WR_FLUSH_ERR,
        IBV_WC_REM_ACCESS_ERR,
        IBV_WC_REM_OP_ERR,
        IBV_WC_RETRY_EXC_ERR,
        IBV_WC_SEND,
        IBV_WC_RDMA_WRITE,
        IBV_WC_RDMA_READ,
        IBV_WC_COMP_SWAP,
        IBV_WC_FETCH_ADD,
        IBV_WC_BIND_MW,
        IBV_WC_LOCAL_INV,
        IBV_WC_RECV,
        IBV_WC_RECV_RDMA_WITH_IMM,
        IBV_WC_WITH_IMM,
        IBV_WC_WITH_INV,
        IBV_WR_RDMA_WRITE,
        IBV_WR_RDMA_WRITE_WITH_IMM,
        IBV_WR_SEND,
        IBV_WR_SEND_WITH_IMM,
        IBV_WR_RDMA_READ,
        IBV_WR_ATOMIC_CMP_AND_SWP,
        IBV_WR_ATOMIC_FETCH_AND_ADD,
        IBV_WR_LOCAL_INV,
        IBV_WR_BIND_MW,
        IBV_WR_SEND_WITH_INV,
        IBV_SEND_FENCE,
        IBV_SEND_SIGNALED,
        IBV_SEND_SOLICITED,
        IBV_SEND_INLINE,
        IBV_SEND_IP_CSUM,
    ];
    let theirs = values_in_c(constants.iter().map(|(name, _)| (*name).to_owned()));
    for ((name, ours), theirs) in constants.iter().zip(theirs) {
        assert_eq!(*ours, theirs, "{name}");
    }
}

/// The values of expressions in a C program with the headers.
fn values_in_c(expressions: impl Iterator<Item = String>) -> Vec<i64> {
    let mut program = String::from(
        "#include <infiniband/verbs.h>\n#include <rdma/rdma_cma.h>\n#include <stddef.h>\n\
         #include <stdio.h>\nint main(void) {\n",
    );
    let mut count = 0;
    for expression in expressions {
        let _ = writeln!(program, "printf(\"%lld\\n\", (long long)({expression}));");
        count += 1;
    }
    program.push_str("return 0; }\n");
    let printed = run_c(&program);
    let values: Vec<i64> = printed
        .lines()
        .filter_map(|line| line.parse().ok())
        .collect();
    assert_eq!(values.len(), count);
    values
}

fn run_c(program: &str) -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("rnic-verbs-abi-{}-{number}", std::process::id());
    let place = std::env::temp_dir().join(name);
    let source = place.with_extension("c");
    std::fs::write(&source, program).unwrap();
    let built = Command::new("gcc")
        .arg(&source)
        .arg("-o")
        .arg(&place)
        .output();
    let built = built.unwrap_or_else(|error| panic!("can't run gcc (scripts/setup): {error}"));
    let error = String::from_utf8_lossy(&built.stderr);
    assert!(
        built.status.success(),
        "the headers of libibverbs and librdmacm (scripts/setup): {error}"
    );
    let ran = Command::new(&place).output().unwrap();
    std::fs::remove_file(&source).unwrap();
    std::fs::remove_file(&place).unwrap();
    String::from_utf8(ran.stdout).unwrap()
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
