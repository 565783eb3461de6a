//! What the RNIC does not have: each fails with the verbs' own error, and says so once in the log.
//!
//! The functions of `IBVERBS_PRIVATE_34` are for providers' libraries (libmlx5, libefa), which some programs
//! are linked with. They have to be there for these to load, and are not called for a device of ours.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;

use crate::ffi::{Fail, Outcome, exports};

/// The failure of a function that is not there, with a sentence for the log the first time.
fn missing<T>(name: &str, said: &AtomicBool) -> Outcome<T> {
    match said.swap(true, Ordering::Relaxed) {
        true => Err(Errno::OPNOTSUPP.into()),
        false => Err(Fail::unsupported(format!("{name} is not there"))),
    }
}

/// Arguments of functions that do nothing are not looked at, so they are not declared.
macro_rules! absent {
    ($($version:literal $kind:ident $name:ident;)*) => {
        $(absent!(@ $version $kind $name);)*
    };
    (@ $version:literal ptr $name:ident) => {
        exports! { $version ptr fn $name() -> crate::ffi::Ptr<()> { missing(stringify!($name), said!()) } }
    };
    (@ $version:literal void $name:ident) => {
        exports! { $version void fn $name() { missing(stringify!($name), said!()) } }
    };
    (@ $version:literal $kind:ident $name:ident) => {
        exports! { $version $kind fn $name() -> c_int { missing(stringify!($name), said!()) } }
    };
}

macro_rules! said {
    () => {{
        static SAID: AtomicBool = AtomicBool::new(false);
        &SAID
    }};
}

absent! {
    "IBVERBS_1.1" verb ibv_attach_mcast;
    "IBVERBS_1.1" verb ibv_detach_mcast;
    "IBVERBS_1.1" ptr ibv_create_ah;
    "IBVERBS_1.1" ptr ibv_create_ah_from_wc;
    "IBVERBS_1.1" verb ibv_init_ah_from_wc;
    "IBVERBS_1.1" verb ibv_destroy_ah;
    "IBVERBS_1.1" verb ibv_resolve_eth_l2_from_gid;
    "IBVERBS_1.1" void ibv_copy_ah_attr_from_kern;
    "IBVERBS_1.0" void ibv_copy_path_rec_from_kern;
    "IBVERBS_1.0" void ibv_copy_path_rec_to_kern;
    "IBVERBS_1.0" void ibv_copy_qp_attr_from_kern;
    "IBVERBS_1.10" ptr ibv_import_device;
    "IBVERBS_1.13" ptr ibv_import_dm;
    "IBVERBS_1.10" ptr ibv_import_mr;
    "IBVERBS_1.10" ptr ibv_import_pd;
    "IBVERBS_1.13" void ibv_unimport_dm;
    "IBVERBS_1.10" void ibv_unimport_mr;
    "IBVERBS_1.10" void ibv_unimport_pd;
    "IBVERBS_1.10" verb ibv_query_ece;
    "IBVERBS_1.10" verb ibv_set_ece;
    "IBVERBS_1.12" ptr ibv_reg_dmabuf_mr;
    "RDMACM_1.0" cm rdma_create_srq_ex;
    "RDMACM_1.3" cm rdma_get_remote_ece;
    "RDMACM_1.3" cm rdma_set_local_ece;
    "RDMACM_1.0" cm rdma_join_multicast;
    "RDMACM_1.1" cm rdma_join_multicast_ex;
    "RDMACM_1.0" cm rdma_leave_multicast;
}

absent! {
    "IBVERBS_PRIVATE_34" verb __ioctl_final_num_attrs;
    "IBVERBS_PRIVATE_34" ptr _verbs_init_and_alloc_context;
    "IBVERBS_PRIVATE_34" verb execute_ioctl;
    "IBVERBS_PRIVATE_34" verb ibv_cmd_advise_mr;
    "IBVERBS_PRIVATE_34" verb ibv_cmd_alloc_dm;
    "IBVERBS_PRIVATE_34" verb ibv_cmd_alloc_mw;
    "IBVERBS_PRIVATE_34" verb ibv_cmd_alloc_pd;
    "IBVERBS_PRIVATE_34" verb ibv_cmd_attach_mcast;
    "IBVERBS_PRIVATE_34" verb ibv_cmd_close_xrcd;
    "IBVERBS_PRIVATE_34" verb ibv_cmd_create_ah;
    "IBVERBS_PRIVATE_34" verb ibv_cmd_create_counters;
    "IBVERBS_PRIVATE_34" verb ibv_cmd_create_cq;
    "IBVERBS_PRIVATE_34" verb ibv_cmd_create_cq_ex;
    "IBVERBS_PRIVATE_34" verb ibv_cmd_create_flow;
    "IBVERBS_PRIVATE_34" verb ibv_cmd_create_flow_action_esp;
    "IBVERBS_PRIVATE_34" verb ibv_cmd_create_qp;
    "IBVERBS_PRIVATE_34" verb ibv_cmd_create_qp_ex2;
    "IBVERBS_PRIVATE_34" verb ibv_cmd_create_qp_ex;
    "IBVERBS_PRIVATE_34" verb ibv_cmd_create_rwq_ind_table;
    "IBVERBS_PRIVATE_34" verb ibv_cmd_create_srq;
    "IBVERBS_PRIVATE_34" verb ibv_cmd_create_srq_ex;
    "IBVERBS_PRIVATE_34" verb ibv_cmd_create_wq;
    "IBVERBS_PRIVATE_34" verb ibv_cmd_dealloc_mw;
    "IBVERBS_PRIVATE_34" verb ibv_cmd_dealloc_pd;
    "IBVERBS_PRIVATE_34" verb ibv_cmd_dereg_mr;
    "IBVERBS_PRIVATE_34" verb ibv_cmd_destroy_ah;
    "IBVERBS_PRIVATE_34" verb ibv_cmd_destroy_counters;
    "IBVERBS_PRIVATE_34" verb ibv_cmd_destroy_cq;
    "IBVERBS_PRIVATE_34" verb ibv_cmd_destroy_flow;
    "IBVERBS_PRIVATE_34" verb ibv_cmd_destroy_flow_action;
    "IBVERBS_PRIVATE_34" verb ibv_cmd_destroy_qp;
    "IBVERBS_PRIVATE_34" verb ibv_cmd_destroy_rwq_ind_table;
    "IBVERBS_PRIVATE_34" verb ibv_cmd_destroy_srq;
    "IBVERBS_PRIVATE_34" verb ibv_cmd_destroy_wq;
    "IBVERBS_PRIVATE_34" verb ibv_cmd_detach_mcast;
    "IBVERBS_PRIVATE_34" verb ibv_cmd_free_dm;
    "IBVERBS_PRIVATE_34" verb ibv_cmd_get_context;
    "IBVERBS_PRIVATE_34" verb ibv_cmd_modify_cq;
    "IBVERBS_PRIVATE_34" verb ibv_cmd_modify_flow_action_esp;
    "IBVERBS_PRIVATE_34" verb ibv_cmd_modify_qp;
    "IBVERBS_PRIVATE_34" verb ibv_cmd_modify_qp_ex;
    "IBVERBS_PRIVATE_34" verb ibv_cmd_modify_srq;
    "IBVERBS_PRIVATE_34" verb ibv_cmd_modify_wq;
    "IBVERBS_PRIVATE_34" verb ibv_cmd_open_qp;
    "IBVERBS_PRIVATE_34" verb ibv_cmd_open_xrcd;
    "IBVERBS_PRIVATE_34" verb ibv_cmd_poll_cq;
    "IBVERBS_PRIVATE_34" verb ibv_cmd_post_recv;
    "IBVERBS_PRIVATE_34" verb ibv_cmd_post_send;
    "IBVERBS_PRIVATE_34" verb ibv_cmd_post_srq_recv;
    "IBVERBS_PRIVATE_34" verb ibv_cmd_query_context;
    "IBVERBS_PRIVATE_34" verb ibv_cmd_query_device_any;
    "IBVERBS_PRIVATE_34" verb ibv_cmd_query_mr;
    "IBVERBS_PRIVATE_34" verb ibv_cmd_query_port;
    "IBVERBS_PRIVATE_34" verb ibv_cmd_query_qp;
    "IBVERBS_PRIVATE_34" verb ibv_cmd_query_srq;
    "IBVERBS_PRIVATE_34" verb ibv_cmd_read_counters;
    "IBVERBS_PRIVATE_34" verb ibv_cmd_reg_dm_mr;
    "IBVERBS_PRIVATE_34" verb ibv_cmd_reg_dmabuf_mr;
    "IBVERBS_PRIVATE_34" verb ibv_cmd_reg_mr;
    "IBVERBS_PRIVATE_34" verb ibv_cmd_req_notify_cq;
    "IBVERBS_PRIVATE_34" verb ibv_cmd_rereg_mr;
    "IBVERBS_PRIVATE_34" verb ibv_cmd_resize_cq;
    "IBVERBS_PRIVATE_34" verb ibv_read_ibdev_sysfs_file;
    "IBVERBS_PRIVATE_34" void verbs_init_cq;
    "IBVERBS_PRIVATE_34" ptr verbs_open_device;
    "IBVERBS_PRIVATE_34" void verbs_set_ops;
    "IBVERBS_PRIVATE_34" void verbs_uninit_context;
}

exports! {
    "IBVERBS_PRIVATE_34" plain fn verbs_register_driver_34() {
        // A provider's library says that it is loaded. It has no device here.
    }

    "IBVERBS_PRIVATE_34" plain fn __verbs_log() {
        // What a provider's library notes for its own debugging.
    }
}

/// Whether providers may go on without their device. They set it and read it.
#[unsafe(export_name = "rnic_verbs_verbs_allow_disassociate_destroy")]
static ALLOW_DISASSOCIATE_DESTROY: AtomicBool = AtomicBool::new(false);

#[cfg(not(test))]
std::arch::global_asm!(
    ".symver rnic_verbs_verbs_allow_disassociate_destroy, \
     verbs_allow_disassociate_destroy@@IBVERBS_PRIVATE_34"
);
