//! Work that failed, as an error.

use rnic_ipc::id::QpNum;
use rnic_ipc::work::{WcStatus, WrOpcode};

/// Work that completed, but not with success. [`crate::WorkCompletion::ok`] makes it.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{opcode:?} {wr_id} of queue pair {qp} failed: {} ({status:?})", words(*status))]
pub struct WorkError {
    /// From the work request.
    pub wr_id: u64,
    /// The queue pair.
    pub qp: QpNum,
    /// What was to be done.
    pub opcode: WrOpcode,
    /// How it ended.
    pub status: WcStatus,
}

crate::error::debug_is_display!(WorkError);

/// A status in words.
fn words(status: WcStatus) -> &'static str {
    match status {
        WcStatus::Success => "it succeeded",
        WcStatus::LocalLength => "the peer's Send is longer than the memory of this receive",
        WcStatus::LocalQpOperation => {
            "the queue pair can't do it: check opcode, number of elements, and the queue pair's state"
        }
        WcStatus::LocalProtection => {
            "an element names memory that it may not use: check its region, protection domain, rights and bounds"
        }
        WcStatus::WorkRequestFlushed => {
            "the connection ended before it was done; the connection's end says why"
        }
        WcStatus::RemoteAccess => {
            "the peer refused the access to its memory: check STag, rights and bounds"
        }
        WcStatus::RemoteOperation => {
            "the peer ended the connection with a Terminate; the connection's end says why"
        }
        WcStatus::RetryExceeded => {
            "the peer of this queue pair, which is joined by number, is gone: join it again"
        }
        _ => "for a reason that this version of the crate has no words for",
    }
}
