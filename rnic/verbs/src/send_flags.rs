//! Flags of work requests.

use std::ffi::c_uint;

use rnic::WorkRequest;

use crate::abi::{
    IBV_SEND_FENCE, IBV_SEND_INLINE, IBV_SEND_IP_CSUM, IBV_SEND_SIGNALED, IBV_SEND_SOLICITED,
};
use crate::ffi::{Fail, Outcome};

/// What the flags of a work request say beside that it is inline.
pub(crate) fn with_flags(mut work: WorkRequest<'_>, flags: c_uint) -> Outcome<WorkRequest<'_>> {
    let known = IBV_SEND_FENCE
        | IBV_SEND_SIGNALED
        | IBV_SEND_SOLICITED
        | IBV_SEND_INLINE
        | IBV_SEND_IP_CSUM;
    if flags & !known != 0 {
        return Err(Fail::unsupported(format!("send flags {flags:#x}")));
    }
    if flags & IBV_SEND_FENCE != 0 {
        work = work.fenced();
    }
    if flags & IBV_SEND_SIGNALED == 0 {
        work = work.unsignaled();
    }
    if flags & IBV_SEND_SOLICITED != 0 {
        work = work.solicited();
    }
    Ok(work)
}
