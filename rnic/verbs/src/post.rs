//! Work requests, from the verbs' form to the client API's.

use std::ffi::c_int;

use rnic::{MAX_INLINE, MAX_SGE, RemoteMemory, Sge, WorkRequest};
use rustix::io::Errno;

use crate::abi::{
    IBV_SEND_INLINE, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_BIND_MW,
    IBV_WR_LOCAL_INV, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND,
    IBV_WR_SEND_WITH_IMM, IBV_WR_SEND_WITH_INV, ibv_recv_wr, ibv_send_wr,
};
use crate::ffi::{Fail, Outcome, Ptr};
use crate::mw::Mw;
use crate::poll::Immediate;
use crate::send_flags::with_flags;

/// Work requests of a list that are handed over at once.
const BATCH: usize = 8;

/// A work request of a program's list.
pub(crate) trait Request: Copy {
    fn next(&self) -> Ptr<Self>;

    /// In the client API's form. What can't be taken from where it lies goes to `place`.
    fn work<'a>(&self, place: &'a mut Place) -> Outcome<WorkRequest<'a>>;
}

/// What a work request names, where it can't be taken from where it lies.
pub(crate) struct Place {
    /// Inline bytes of several elements, put together.
    bytes: Option<[u8; MAX_INLINE]>,
    /// Elements of a list that is in a packed struct, where none may be referred to.
    sges: Option<[Sge; MAX_SGE]>,
}

impl Place {
    const EMPTY: Self = Self {
        bytes: None,
        sges: None,
    };
}

/// Posts a list of work requests with `post`, which says how many fit; `bad` is told the first that was not
/// posted. Those before it are.
pub(crate) fn post_list<R: Request>(
    mut first: Ptr<R>,
    bad: Ptr<Ptr<R>>,
    post: impl Fn(&[WorkRequest<'_>]) -> Result<usize, rnic::Error>,
) -> Outcome<()> {
    while let Some(request) = first.get() {
        let (posted, outcome) = match request.next().is_null() {
            true => {
                let outcome = post_alone(&request, &post);
                (usize::from(outcome.is_ok()), outcome)
            }
            false => post_several(first, &post),
        };
        for _ in 0..posted {
            first = first.read()?.next();
        }
        if let Err(fail) = outcome {
            bad.write(first);
            return Err(fail);
        }
    }
    Ok(())
}

fn post_alone(
    request: &impl Request,
    post: &impl Fn(&[WorkRequest<'_>]) -> Result<usize, rnic::Error>,
) -> Outcome<()> {
    let mut place = Place::EMPTY;
    all_of(post(&[request.work(&mut place)?])?, 1)
}

/// Posts the first ones of a list. How many were posted, and why not the next.
fn post_several<R: Request>(
    first: Ptr<R>,
    post: &impl Fn(&[WorkRequest<'_>]) -> Result<usize, rnic::Error>,
) -> (usize, Outcome<()>) {
    let mut batch = [WorkRequest::recv(0, &[]); BATCH];
    let mut places = [Place::EMPTY; BATCH];
    let (mut count, mut at, mut outcome) = (0, first, Ok(()));
    for (work, place) in batch.iter_mut().zip(&mut places) {
        let Some(request) = at.get() else {
            break;
        };
        match request.work(place) {
            Ok(found) => *work = found,
            Err(fail) => {
                outcome = Err(fail);
                break;
            }
        }
        count += 1;
        at = request.next();
    }
    let batch = &batch[..count];
    match post(batch) {
        Ok(posted) => (posted, all_of(posted, count).and(outcome)),
        // Nothing was posted, because of one of them.
        Err(_) => {
            for (index, work) in batch.iter().enumerate() {
                let posted = post(std::slice::from_ref(work)).map_err(Fail::from);
                if let Err(fail) = posted.and_then(|posted| all_of(posted, 1)) {
                    return (index, Err(fail));
                }
            }
            (count, outcome)
        }
    }
}

/// That the queue had room for all.
fn all_of(posted: usize, wanted: usize) -> Outcome<()> {
    match posted == wanted {
        true => Ok(()),
        false => Err(rnic::Error::QueueFull.into()),
    }
}

impl Request for ibv_recv_wr {
    fn next(&self) -> Ptr<Self> {
        self.next
    }

    fn work<'a>(&self, place: &'a mut Place) -> Outcome<WorkRequest<'a>> {
        let sges = elements(self.sg_list, self.num_sge, &mut place.sges)?;
        Ok(WorkRequest::recv(self.wr_id, sges))
    }
}

/// The elements of a list, or copies of them.
fn elements(list: Ptr<Sge>, count: c_int, copies: &mut Option<[Sge; MAX_SGE]>) -> Outcome<&[Sge]> {
    let count = crate::ffi::element_count(count)?;
    if list.is_aligned() {
        return Ok(list.slice(count));
    }
    let copies = copies.insert([Sge::default(); MAX_SGE]);
    let Some(copies) = copies.get_mut(..count) else {
        let why = format!("{count} elements, of at most {MAX_SGE}");
        return Err(Fail::of(Errno::INVAL, why));
    };
    for (copy, sge) in copies.iter_mut().zip(list.values(count)) {
        *copy = sge;
    }
    Ok(copies)
}

impl Request for ibv_send_wr {
    fn next(&self) -> Ptr<Self> {
        self.next
    }

    fn work<'a>(&self, place: &'a mut Place) -> Outcome<WorkRequest<'a>> {
        let sges = elements(self.sg_list, self.num_sge, &mut place.sges)?;
        if self.send_flags & IBV_SEND_INLINE == 0 {
            return work(self, sges, None);
        }
        let bytes = match sges {
            [one] => memory(one),
            _ => put_together(sges, place.bytes.insert([0; MAX_INLINE]))?,
        };
        work(self, sges, Some(bytes))
    }
}

/// The bytes that the elements of an inline work request name, which need not be registered.
fn put_together<'a>(sges: &[Sge], place: &'a mut [u8; MAX_INLINE]) -> Outcome<&'a [u8]> {
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

/// One work request in the client API's form. With `inline` it carries these bytes itself, which are those of
/// its elements.
pub(crate) fn work<'a>(
    request: &ibv_send_wr,
    sges: &'a [Sge],
    inline: Option<&'a [u8]>,
) -> Outcome<WorkRequest<'a>> {
    match inline {
        // Nothing can be inline, as in immediate data alone. Elements of no bytes need no region either.
        Some([]) => work_of(request, &[]),
        Some(bytes) => Ok(work_of(request, sges)?.inline(bytes)),
        None => work_of(request, sges),
    }
}

fn work_of<'a>(request: &ibv_send_wr, sges: &'a [Sge]) -> Outcome<WorkRequest<'a>> {
    let ibv_send_wr {
        wr_id,
        send_flags,
        imm_data,
        wr,
        opcode,
        bind_mw,
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
    let work = match opcode {
        IBV_WR_SEND => WorkRequest::send(wr_id, sges),
        IBV_WR_SEND_WITH_INV => WorkRequest::send_with_invalidate(wr_id, sges, imm_data),
        IBV_WR_SEND_WITH_IMM if is_empty(sges) => WorkRequest::immediate(wr_id, immediate(None)),
        IBV_WR_SEND_WITH_IMM => {
            WorkRequest::send_with_immediate(wr_id, sges, u32::from_be(imm_data))
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
        IBV_WR_BIND_MW => Mw::bind_work(wr_id, &bind_mw)?,
        other => {
            return Err(Fail::unsupported(format!(
                "work requests of opcode {other}"
            )));
        }
    };
    with_flags(work, send_flags)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// As libiscsi does it.
    #[test]
    fn elements_of_a_packed_struct_are_taken_as_others_are() {
        #[repr(C, packed)]
        struct Packed {
            _before: u32,
            sges: [Sge; 2],
        }
        let sge = |addr| Sge {
            addr,
            length: 3,
            lkey: 4,
        };
        let mut packed = [0_u64; 8];
        // Of an address that is no multiple of 8, whatever the stack gives.
        let start: Ptr<Packed> = Ptr::to_start(&mut packed).cast();
        start.write(Packed {
            _before: 0,
            sges: [sge(1), sge(2)],
        });
        let list: Ptr<Sge> = start.cast::<u32>().at(1).cast();
        assert!(!list.is_aligned());
        let mut copies = None;
        let found = elements(list, 2, &mut copies).unwrap();
        assert_eq!(found, [sge(1), sge(2)]);
        let more = MAX_SGE as c_int + 1;
        assert!(elements(list, more, &mut copies).is_err());
    }
}
