//! Completions, as programs poll them.

use std::ffi::c_int;

use rnic::{WcStatus, WorkCompletion, WrOpcode};
use rustix::io::Errno;

use crate::abi::{
    IBV_WC_BIND_MW, IBV_WC_COMP_SWAP, IBV_WC_FETCH_ADD, IBV_WC_GENERAL_ERR, IBV_WC_LOC_LEN_ERR,
    IBV_WC_LOC_PROT_ERR, IBV_WC_LOC_QP_OP_ERR, IBV_WC_LOCAL_INV, IBV_WC_RDMA_READ,
    IBV_WC_RDMA_WRITE, IBV_WC_RECV, IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_REM_ACCESS_ERR,
    IBV_WC_REM_OP_ERR, IBV_WC_RETRY_EXC_ERR, IBV_WC_SEND, IBV_WC_SUCCESS, IBV_WC_WITH_IMM,
    IBV_WC_WITH_INV, IBV_WC_WR_FLUSH_ERR, ibv_wc,
};
use crate::cq::Cq;
use crate::ffi::{Outcome, Ptr, field};
use crate::lock;

/// Completions taken at once.
const BATCH: usize = 16;

/// Moves at most `most` completions to the places from `wc` on, and says how many.
pub(crate) fn poll(cq: &Cq, most: c_int, wc: Ptr<ibv_wc>) -> Outcome<c_int> {
    let most = crate::ffi::element_count(most)?;
    // Most polls find nothing, and are not to pay for a whole batch.
    let count = match cq.rnic().is_empty() {
        true => poll_by::<1>(cq, most, wc)?,
        false => poll_by::<BATCH>(cq, most, wc)?,
    };
    cq.polls.found(count > 0);
    cq.polled();
    Ok(c_int::try_from(count).unwrap_or(c_int::MAX))
}

/// The same by batches of `N`.
fn poll_by<const N: usize>(cq: &Cq, most: usize, wc: Ptr<ibv_wc>) -> Outcome<usize> {
    let mut batch = [WorkCompletion::default(); N];
    let mut count = 0;
    while count < most {
        let wanted = N.min(most - count);
        let found = match cq.rnic().poll(&mut batch[..wanted]) {
            Ok(found) => found,
            // What was taken is told first.
            Err(_) if count > 0 => break,
            Err(error) => return Err(error.into()),
        };
        for completion in &batch[..found] {
            wc.at(count)
                .write(translate(completion, cq.number_of(completion.qp)));
            count += 1;
        }
        if found < wanted {
            break;
        }
    }
    Ok(count)
}

fn translate(completion: &WorkCompletion, qp_num: u32) -> ibv_wc {
    let mut wc = ibv_wc {
        wr_id: completion.wr_id,
        status: status(completion.status),
        opcode: opcode(completion.opcode),
        byte_len: completion.byte_len,
        qp_num,
        ..ibv_wc::default()
    };
    if let Some(stag) = completion.invalidated {
        wc.imm_data = stag;
        wc.wc_flags = IBV_WC_WITH_INV;
    }
    if let Some(immediate) = completion.immediate {
        let Immediate { data, written } = Immediate::decode(immediate);
        wc.imm_data = data;
        wc.wc_flags = IBV_WC_WITH_IMM;
        wc.byte_len = written.unwrap_or(completion.byte_len);
        if written.is_some() {
            wc.opcode = IBV_WC_RECV_RDMA_WITH_IMM;
        }
    }
    wc
}

/// The verbs' immediate data, 32 bits, in the 64 bits that RFC 7306 section 6 has. First are the program's, as
/// they lie in memory. Then comes how many bytes the RDMA Write before has written, or all ones when there was
/// none (a Send with immediate data).
pub(crate) struct Immediate {
    /// In network order, as the verbs have it.
    pub(crate) data: u32,
    pub(crate) written: Option<u32>,
}

impl Immediate {
    const NO_WRITE: u32 = u32::MAX;

    pub(crate) fn encode(&self) -> u64 {
        let low = self.written.unwrap_or(Self::NO_WRITE);
        u64::from(u32::from_be(self.data)) << 32 | u64::from(low)
    }

    pub(crate) fn decode(value: u64) -> Self {
        let [d0, d1, d2, d3, w0, w1, w2, w3] = value.to_be_bytes();
        let written = u32::from_be_bytes([w0, w1, w2, w3]);
        Self {
            data: u32::from_ne_bytes([d0, d1, d2, d3]),
            written: (written != Self::NO_WRITE).then_some(written),
        }
    }
}

fn status(status: WcStatus) -> c_int {
    match status {
        WcStatus::Success => IBV_WC_SUCCESS,
        WcStatus::LocalLength => IBV_WC_LOC_LEN_ERR,
        WcStatus::LocalQpOperation => IBV_WC_LOC_QP_OP_ERR,
        WcStatus::LocalProtection => IBV_WC_LOC_PROT_ERR,
        WcStatus::WorkRequestFlushed => IBV_WC_WR_FLUSH_ERR,
        WcStatus::RemoteAccess => IBV_WC_REM_ACCESS_ERR,
        WcStatus::RemoteOperation => IBV_WC_REM_OP_ERR,
        WcStatus::RetryExceeded => IBV_WC_RETRY_EXC_ERR,
        _ => IBV_WC_GENERAL_ERR,
    }
}

fn opcode(opcode: WrOpcode) -> c_int {
    match opcode {
        WrOpcode::Send
        | WrOpcode::SendInvalidate
        | WrOpcode::SendImmediate
        | WrOpcode::Immediate => IBV_WC_SEND,
        WrOpcode::Write | WrOpcode::WriteImmediate => IBV_WC_RDMA_WRITE,
        WrOpcode::Read => IBV_WC_RDMA_READ,
        WrOpcode::Recv => IBV_WC_RECV,
        WrOpcode::AtomicFetchAdd => IBV_WC_FETCH_ADD,
        WrOpcode::AtomicCompareSwap => IBV_WC_COMP_SWAP,
        WrOpcode::LocalInvalidate | WrOpcode::FastRegister => IBV_WC_LOCAL_INV,
        WrOpcode::BindWindow => IBV_WC_BIND_MW,
    }
}

/// The completion at which `ibv_start_poll` and `ibv_next_poll` have arrived.
pub(crate) fn current(cq: &Cq) -> ibv_wc {
    *lock(&cq.current)
}

/// Goes on to the next completion.
///
/// # Errors
/// ENOENT when there is none.
pub(crate) fn step(cq: &Cq) -> Outcome<()> {
    let mut one = [WorkCompletion::default()];
    let found = cq.rnic().poll(&mut one)? > 0;
    cq.polls.found(found);
    if !found {
        return Err(Errno::NOENT.into());
    }
    let [completion] = one;
    let current = translate(&completion, cq.number_of(completion.qp));
    *lock(&cq.current) = current;
    field!(cq.abi, status).set(current.status);
    field!(cq.abi, wr_id).set(current.wr_id);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn immediate_data_is_on_the_wire_as_it_lies_in_memory() {
        for written in [None, Some(0), Some(7), Some(u32::MAX - 1)] {
            let data = u32::from_ne_bytes([1, 2, 3, 4]);
            let value = Immediate { data, written }.encode();
            assert_eq!(value.to_be_bytes()[..4], [1, 2, 3, 4]);
            let decoded = Immediate::decode(value);
            assert_eq!((decoded.data, decoded.written), (data, written));
        }
    }

    #[test]
    fn a_write_with_immediate_data_completes_with_the_bytes_that_it_wrote() {
        let immediate = |written| {
            let mut done = WorkCompletion::default();
            done.opcode = WrOpcode::Recv;
            done.immediate = Some(Immediate { data: 9, written }.encode());
            translate(&done, 7)
        };
        let wc = immediate(Some(4096));
        assert_eq!((wc.opcode, wc.byte_len), (IBV_WC_RECV_RDMA_WITH_IMM, 4096));
        assert_eq!((wc.wc_flags, wc.imm_data), (IBV_WC_WITH_IMM, 9));
        let wc = immediate(None);
        assert_eq!((wc.opcode, wc.byte_len), (IBV_WC_RECV, 0));
    }
}
