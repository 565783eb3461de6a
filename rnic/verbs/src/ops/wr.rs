//! The functions of an `ibv_qp_ex`, which the headers' inline functions call (`ibv_wr_*`).

use std::ffi::{c_int, c_void};

use crate::abi::{
    BindWords, IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
    IBV_QP_EX_WITH_BIND_MW, IBV_QP_EX_WITH_LOCAL_INV, IBV_QP_EX_WITH_RDMA_READ,
    IBV_QP_EX_WITH_RDMA_WRITE, IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, IBV_QP_EX_WITH_SEND,
    IBV_QP_EX_WITH_SEND_WITH_IMM, IBV_QP_EX_WITH_SEND_WITH_INV, IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
    IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_BIND_MW, IBV_WR_LOCAL_INV,
    IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND,
    IBV_WR_SEND_WITH_IMM, IBV_WR_SEND_WITH_INV, RemoteWords, ibv_data_buf, ibv_mw,
    ibv_mw_bind_info, ibv_qp_ex, ibv_qp_init_attr_ex, ibv_send_wr, ibv_sge,
};
use crate::ffi::{Fail, Outcome, Ptr, data_verb, field, zeroable};
use crate::qp::Qp;

zeroable!(ibv_send_wr);

/// That the operations that a queue pair is to have are there.
pub(crate) fn check_operations(attr: &ibv_qp_init_attr_ex) -> Outcome<()> {
    let known = IBV_QP_EX_WITH_RDMA_WRITE
        | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
        | IBV_QP_EX_WITH_SEND
        | IBV_QP_EX_WITH_SEND_WITH_IMM
        | IBV_QP_EX_WITH_RDMA_READ
        | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
        | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD
        | IBV_QP_EX_WITH_LOCAL_INV
        | IBV_QP_EX_WITH_BIND_MW
        | IBV_QP_EX_WITH_SEND_WITH_INV;
    match operations(attr).unwrap_or(0) & !known {
        0 => Ok(()),
        unknown => Err(Fail::unsupported(format!(
            "a queue pair with ibv_wr_* operations {unknown:#x}"
        ))),
    }
}

fn operations(attr: &ibv_qp_init_attr_ex) -> Option<u64> {
    let asked = attr.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS != 0;
    asked.then_some(attr.send_ops_flags)
}

/// Gives a queue pair those that it was made with.
pub(crate) fn add_operations(qp: &Qp, attr: &ibv_qp_init_attr_ex) {
    let Some(operations) = operations(attr) else {
        return;
    };
    macro_rules! give {
        ($($flag:ident: $name:ident),* $(,)?) => {
            $(if operations & $flag != 0 {
                field!(qp.abi, $name).set(Some($name));
            })*
        };
    }
    give!(
        IBV_QP_EX_WITH_RDMA_WRITE: wr_rdma_write,
        IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM: wr_rdma_write_imm,
        IBV_QP_EX_WITH_SEND: wr_send,
        IBV_QP_EX_WITH_SEND_WITH_IMM: wr_send_imm,
        IBV_QP_EX_WITH_RDMA_READ: wr_rdma_read,
        IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP: wr_atomic_cmp_swp,
        IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD: wr_atomic_fetch_add,
        IBV_QP_EX_WITH_LOCAL_INV: wr_local_inv,
        IBV_QP_EX_WITH_BIND_MW: wr_bind_mw,
        IBV_QP_EX_WITH_SEND_WITH_INV: wr_send_inv,
    );
    field!(qp.abi, wr_set_inline_data).set(Some(wr_set_inline_data));
    field!(qp.abi, wr_set_inline_data_list).set(Some(wr_set_inline_data_list));
    field!(qp.abi, wr_set_sge).set(Some(wr_set_sge));
    field!(qp.abi, wr_set_sge_list).set(Some(wr_set_sge_list));
    field!(qp.abi, wr_complete).set(Some(wr_complete));
    field!(qp.abi, wr_abort).set(Some(wr_abort));
    field!(qp.abi, wr_start).set(Some(wr_start));
}

/// It was made with them.
pub(crate) fn has_operations(qp: &Qp) -> bool {
    field!(qp.abi, wr_start).get().is_some()
}

/// What a function without a result does to its queue pair. Failures are `ibv_wr_complete`'s to tell.
fn with(call: &str, qp: Ptr<ibv_qp_ex>, act: impl FnOnce(&Qp)) {
    data_verb(call, || {
        act(qp.cast().object::<Qp>()?);
        Ok(())
    });
}

/// Adds a work request with the `wr_id` and the `wr_flags` that the program has set.
fn add(call: &str, qp: Ptr<ibv_qp_ex>, opcode: c_int, set: impl FnOnce(&mut ibv_send_wr)) {
    with(call, qp, |qp| {
        let mut request: ibv_send_wr = crate::ffi::zeroed();
        request.wr_id = field!(qp.abi, wr_id).get();
        request.send_flags = field!(qp.abi, wr_flags).get();
        request.opcode = opcode;
        set(&mut request);
        qp.builder.add(request);
    });
}

unsafe extern "C-unwind" fn wr_start(qp: Ptr<ibv_qp_ex>) {
    with("ibv_wr_start", qp, |qp| qp.builder.start());
}

unsafe extern "C-unwind" fn wr_abort(qp: Ptr<ibv_qp_ex>) {
    with("ibv_wr_abort", qp, |qp| qp.builder.abort());
}

unsafe extern "C-unwind" fn wr_complete(qp: Ptr<ibv_qp_ex>) -> c_int {
    data_verb("ibv_wr_complete", || {
        let qp = qp.cast().object::<Qp>()?;
        qp.builder.complete(qp.rnic())
    })
}

unsafe extern "C-unwind" fn wr_send(qp: Ptr<ibv_qp_ex>) {
    add("ibv_wr_send", qp, IBV_WR_SEND, |_| {});
}

unsafe extern "C-unwind" fn wr_send_imm(qp: Ptr<ibv_qp_ex>, imm_data: u32) {
    add("ibv_wr_send_imm", qp, IBV_WR_SEND_WITH_IMM, |wr| {
        wr.imm_data = imm_data;
    });
}

unsafe extern "C-unwind" fn wr_send_inv(qp: Ptr<ibv_qp_ex>, rkey: u32) {
    add("ibv_wr_send_inv", qp, IBV_WR_SEND_WITH_INV, |wr| {
        wr.imm_data = rkey;
    });
}

unsafe extern "C-unwind" fn wr_local_inv(qp: Ptr<ibv_qp_ex>, rkey: u32) {
    add("ibv_wr_local_inv", qp, IBV_WR_LOCAL_INV, |wr| {
        wr.imm_data = rkey;
    });
}

unsafe extern "C-unwind" fn wr_rdma_write(qp: Ptr<ibv_qp_ex>, rkey: u32, remote_addr: u64) {
    add("ibv_wr_rdma_write", qp, IBV_WR_RDMA_WRITE, |wr| {
        wr.wr = RemoteWords::rdma(remote_addr, rkey);
    });
}

unsafe extern "C-unwind" fn wr_rdma_write_imm(
    qp: Ptr<ibv_qp_ex>,
    rkey: u32,
    remote_addr: u64,
    imm_data: u32,
) {
    let opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    add("ibv_wr_rdma_write_imm", qp, opcode, |wr| {
        wr.wr = RemoteWords::rdma(remote_addr, rkey);
        wr.imm_data = imm_data;
    });
}

unsafe extern "C-unwind" fn wr_rdma_read(qp: Ptr<ibv_qp_ex>, rkey: u32, remote_addr: u64) {
    add("ibv_wr_rdma_read", qp, IBV_WR_RDMA_READ, |wr| {
        wr.wr = RemoteWords::rdma(remote_addr, rkey);
    });
}

unsafe extern "C-unwind" fn wr_atomic_cmp_swp(
    qp: Ptr<ibv_qp_ex>,
    atomic_rkey: u32,
    remote_addr: u64,
    compare_add: u64,
    swap: u64,
) {
    let opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
    add("ibv_wr_atomic_cmp_swp", qp, opcode, |wr| {
        wr.wr = RemoteWords {
            remote_addr,
            compare_add,
            swap,
            atomic_rkey,
        };
    });
}

unsafe extern "C-unwind" fn wr_atomic_fetch_add(
    qp: Ptr<ibv_qp_ex>,
    atomic_rkey: u32,
    remote_addr: u64,
    compare_add: u64,
) {
    let opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    add("ibv_wr_atomic_fetch_add", qp, opcode, |wr| {
        wr.wr = RemoteWords {
            remote_addr,
            compare_add,
            swap: 0,
            atomic_rkey,
        };
    });
}

unsafe extern "C-unwind" fn wr_bind_mw(
    qp: Ptr<ibv_qp_ex>,
    mw: Ptr<ibv_mw>,
    rkey: u32,
    info: Ptr<ibv_mw_bind_info>,
) {
    add("ibv_wr_bind_mw", qp, IBV_WR_BIND_MW, |wr| {
        let words = &mut wr.bind_mw;
        *words = BindWords {
            mw,
            rkey,
            bind_info: info.get().unwrap_or(words.bind_info),
        };
    });
}

unsafe extern "C-unwind" fn wr_set_sge(qp: Ptr<ibv_qp_ex>, lkey: u32, addr: u64, length: u32) {
    with("ibv_wr_set_sge", qp, |qp| {
        qp.builder.set_sges([ibv_sge { addr, length, lkey }]);
    });
}

unsafe extern "C-unwind" fn wr_set_sge_list(qp: Ptr<ibv_qp_ex>, count: usize, list: Ptr<ibv_sge>) {
    with("ibv_wr_set_sge_list", qp, |qp| {
        qp.builder.set_sges(list.values(count));
    });
}

unsafe extern "C-unwind" fn wr_set_inline_data(
    qp: Ptr<ibv_qp_ex>,
    addr: Ptr<c_void>,
    length: usize,
) {
    with("ibv_wr_set_inline_data", qp, |qp| {
        qp.builder.set_inline([ibv_data_buf { addr, length }]);
    });
}

unsafe extern "C-unwind" fn wr_set_inline_data_list(
    qp: Ptr<ibv_qp_ex>,
    count: usize,
    list: Ptr<ibv_data_buf>,
) {
    with("ibv_wr_set_inline_data_list", qp, |qp| {
        qp.builder.set_inline(list.values(count));
    });
}
