//! Work requests that a program makes by calls: `ibv_wr_start`, one call for each and one for its bytes, then
//! `ibv_wr_complete`, which posts all of them or none.

use std::ops::Range;
use std::sync::{Condvar, Mutex, PoisonError};

use rnic::{MAX_INLINE, QueuePair, Sge, WorkRequest};
use rustix::io::Errno;

use crate::abi::{ibv_data_buf, ibv_send_wr};
use crate::ffi::{Fail, Outcome};
use crate::lock;
use crate::post;

/// What a queue pair's threads make, one after the other: from start to complete or abort it is of one of them
/// (ibv_wr_post(3)).
#[derive(Default)]
pub(crate) struct Builder {
    taken: Mutex<bool>,
    left: Condvar,
    batch: Mutex<Batch>,
}

/// The work requests, in order. What is here of memory stays for the next ones.
#[derive(Default)]
struct Batch {
    requests: Vec<Made>,
    sges: Vec<Sge>,
    bytes: Vec<u8>,
    /// The first that went wrong.
    failed: Option<Fail>,
}

struct Made {
    /// Its elements are not there but in the batch.
    request: ibv_send_wr,
    sges: Range<usize>,
    /// Bytes that it carries itself; then there is one element of their length.
    inline: Option<Range<usize>>,
}

impl Builder {
    pub(crate) fn start(&self) {
        let mut taken = lock(&self.taken);
        while *taken {
            let waited = self.left.wait(taken);
            taken = waited.unwrap_or_else(PoisonError::into_inner);
        }
        *taken = true;
    }

    pub(crate) fn abort(&self) {
        lock(&self.batch).clear();
        *lock(&self.taken) = false;
        self.left.notify_one();
    }

    pub(crate) fn complete(&self, qp: &QueuePair) -> Outcome<()> {
        let outcome = lock(&self.batch).post(qp);
        self.abort();
        outcome
    }

    pub(crate) fn add(&self, request: ibv_send_wr) {
        let mut batch = lock(&self.batch);
        let end = batch.sges.len();
        batch.requests.push(Made {
            request,
            sges: end..end,
            inline: None,
        });
    }

    /// The elements of the last one, instead of those that it had.
    pub(crate) fn set_sges(&self, sges: impl IntoIterator<Item = Sge>) {
        let mut batch = lock(&self.batch);
        let start = batch.sges.len();
        batch.sges.extend(sges);
        let end = batch.sges.len();
        batch.with_last(|last| (last.sges, last.inline) = (start..end, None));
    }

    /// The bytes that the last one carries, copied.
    pub(crate) fn set_inline(&self, parts: impl IntoIterator<Item = ibv_data_buf>) {
        let mut batch = lock(&self.batch);
        let start = batch.bytes.len();
        for part in parts {
            if part.length > MAX_INLINE - (batch.bytes.len() - start) {
                let why = format!("more than {MAX_INLINE} bytes inline");
                batch.fail(Fail::of(Errno::INVAL, why));
                return;
            }
            let bytes = part.addr.cast::<u8>().slice(part.length);
            batch.bytes.extend_from_slice(bytes);
        }
        let bytes = start..batch.bytes.len();
        let element = batch.sges.len();
        batch.sges.push(Sge {
            length: bytes.len() as u32,
            ..Sge::default()
        });
        batch.with_last(|last| (last.sges, last.inline) = (element..element + 1, Some(bytes)));
    }
}

impl Batch {
    fn clear(&mut self) {
        self.requests.clear();
        self.sges.clear();
        self.bytes.clear();
        self.failed = None;
    }

    fn fail(&mut self, fail: Fail) {
        self.failed.get_or_insert(fail);
    }

    fn with_last(&mut self, set: impl FnOnce(&mut Made)) {
        match self.requests.last_mut() {
            Some(last) => set(last),
            None => self.fail(Fail::of(Errno::INVAL, "bytes of no work request")),
        }
    }

    fn post(&mut self, qp: &QueuePair) -> Outcome<()> {
        if let Some(fail) = self.failed.take() {
            return Err(fail);
        }
        match &self.requests[..] {
            [] => Ok(()),
            [one] => Ok(qp.post_send(self.work(one)?)?),
            all => {
                let all = all.iter().map(|made| self.work(made));
                let all = all.collect::<Outcome<Vec<_>>>()?;
                Ok(qp.post_send_all(&all)?)
            }
        }
    }

    fn work(&self, made: &Made) -> Outcome<WorkRequest<'_>> {
        let inline = made.inline.clone().map(|inline| &self.bytes[inline]);
        post::work(&made.request, &self.sges[made.sges.clone()], inline)
    }
}
