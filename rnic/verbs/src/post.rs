//! Work requests, from the verbs' form to the client API's.

use std::ffi::c_int;

use rnic::{MAX_INLINE, RemoteMemory, Sge, WorkRequest};
use rustix::io::Errno;

use crate::abi::{
    IBV_SEND_FENCE, IBV_SEND_INLINE, IBV_SEND_IP_CSUM, IBV_SEND_SIGNALED, IBV_SEND_SOLICITED,
    IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_LOCAL_INV, IBV_WR_RDMA_READ,
    IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM,
    IBV_WR_SEND_WITH_INV, ibv_recv_wr, ibv_send_wr, ibv_sge,
};
use crate::ffi::{Fail, Outcome, Ptr};
use crate::poll::Immediate;

/// Posts a list of work requests with `post`; `bad` is told the first that was not.
pub(crate) fn post_sends(
    mut wr: Ptr<ibv_send_wr>,
    bad: Ptr<Ptr<ibv_send_wr>>,
    post: impl Fn(WorkRequest<'_>) -> Result<(), rnic::Error>,
) -> Outcome<()> {
    while let Some(request) = wr.get() {
        if let Err(fail) = post_send(&request, &post) {
            bad.write(wr);
            return Err(fail);
        }
        wr = request.next;
    }
    Ok(())
}

/// The same for receives.
pub(crate) fn post_receives(
    mut wr: Ptr<ibv_recv_wr>,
    bad: Ptr<Ptr<ibv_recv_wr>>,
    post: impl Fn(WorkRequest<'_>) -> Result<(), rnic::Error>,
) -> Outcome<()> {
    while let Some(request) = wr.get() {
        let posted = elements(request.sg_list, request.num_sge)
            .and_then(|sges| Ok(post(WorkRequest::recv(request.wr_id, sges))?));
        if let Err(fail) = posted {
            bad.write(wr);
            return Err(fail);
        }
        wr = request.next;
    }
    Ok(())
}

fn elements<'a>(list: Ptr<ibv_sge>, count: c_int) -> Outcome<&'a [Sge]> {
    Ok(list.slice(crate::pd::count(count)?))
}

fn post_send(
    request: &ibv_send_wr,
    post: &impl Fn(WorkRequest<'_>) -> Result<(), rnic::Error>,
) -> Outcome<()> {
    let sges = elements(request.sg_list, request.num_sge)?;
    if request.send_flags & IBV_SEND_INLINE == 0 {
        return Ok(post(work(request, sges)?)?);
    }
    // Nothing can be inline, as in immediate data alone. Elements of no bytes need no region either.
    if is_empty(sges) {
        return Ok(post(work(request, &[])?)?);
    }
    let mut place = [0; MAX_INLINE];
    let bytes = inline_bytes(sges, &mut place)?;
    Ok(post(work(request, sges)?.inline(bytes))?)
}

/// The bytes that the elements of an inline work request name, which need not be registered.
fn inline_bytes<'a>(sges: &[Sge], place: &'a mut [u8; MAX_INLINE]) -> Outcome<&'a [u8]> {
    if let [one] = sges {
        return Ok(memory(one));
    }
    let mut used = 0;
    for sge in sges {
        let bytes = memory(sge);
        let Some(to) = place.get_mut(used..used + bytes.len()) else {
            return Err(Fail::of(
                Errno::INVAL,
                format!("more than {MAX_INLINE} bytes inline"),
            ));
        };
        to.copy_from_slice(bytes);
        used += bytes.len();
    }
    Ok(&place[..used])
}

fn memory<'a>(sge: &Sge) -> &'a [u8] {
    Ptr::<u8>::from_addr(sge.addr).slice(sge.length as usize)
}

fn is_empty(sges: &[Sge]) -> bool {
    sges.iter().all(|sge| sge.length == 0)
}

fn total(sges: &[Sge]) -> u32 {
    sges.iter().fold(0, |sum, sge| sum.wrapping_add(sge.length))
}

/// One work request in the client API's form.
fn work<'a>(request: &ibv_send_wr, sges: &'a [Sge]) -> Outcome<WorkRequest<'a>> {
    let ibv_send_wr {
        wr_id,
        send_flags,
        imm_data,
        wr,
        opcode,
        ..
    } = *request;
    let remote = RemoteMemory {
        stag: wr.rdma_rkey(),
        addr: wr.remote_addr,
        len: 0,
    };
    let remote_word = RemoteMemory {
        stag: wr.atomic_rkey,
        ..remote
    };
    let immediate = |written| {
        let data = imm_data;
        Immediate { data, written }.encode()
    };
    let mut work = match opcode {
        IBV_WR_SEND => WorkRequest::send(wr_id, sges),
        IBV_WR_SEND_WITH_INV => WorkRequest::send_with_invalidate(wr_id, sges, imm_data),
        IBV_WR_SEND_WITH_IMM if is_empty(sges) => WorkRequest::immediate(wr_id, immediate(None)),
        IBV_WR_SEND_WITH_IMM => {
            return Err(Fail::unsupported(
                "a Send with payload and immediate data: RFC 7306 has immediate data alone, or after an \
                 RDMA Write",
            ));
        }
        IBV_WR_RDMA_WRITE => WorkRequest::write(wr_id, sges, remote),
        IBV_WR_RDMA_WRITE_WITH_IMM => {
            let immediate = immediate(Some(total(sges)));
            WorkRequest::write_with_immediate(wr_id, sges, remote, immediate)
        }
        IBV_WR_RDMA_READ => WorkRequest::read(wr_id, sges, remote),
        IBV_WR_ATOMIC_FETCH_AND_ADD => {
            WorkRequest::atomic_fetch_add(wr_id, original(sges)?, remote_word, wr.compare_add)
        }
        IBV_WR_ATOMIC_CMP_AND_SWP => {
            let (compare, swap) = (wr.compare_add, wr.swap);
            WorkRequest::atomic_compare_swap(wr_id, original(sges)?, remote_word, compare, swap)
        }
        IBV_WR_LOCAL_INV => WorkRequest::local_invalidate(wr_id, imm_data),
        other => {
            return Err(Fail::unsupported(format!(
                "work requests of opcode {other}"
            )));
        }
    };
    let known = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE | IBV_SEND_IP_CSUM;
    if send_flags & !known != 0 {
        let fence = match send_flags & IBV_SEND_FENCE {
            0 => "",
            _ => " (a fence: wait for the Reads' completions instead)",
        };
        return Err(Fail::unsupported(format!(
            "send flags {send_flags:#x}{fence}"
        )));
    }
    if send_flags & IBV_SEND_SIGNALED == 0 {
        work = work.unsignaled();
    }
    if send_flags & IBV_SEND_SOLICITED != 0 {
        work = work.solicited();
    }
    Ok(work)
}

/// The one element that takes an atomic's original value.
fn original(sges: &[Sge]) -> Outcome<&Sge> {
    match sges {
        [one] => Ok(one),
        _ => Err(Fail::of(
            Errno::INVAL,
            "an atomic with other than one element",
        )),
    }
}
