//! Work whose completion comes to the call that posted it ([`crate::pending::PostedWork`]), and not to programs that poll
//! the queue.
//!
//! Tracked work has a number of this crate's for its `wr_id`, and a flag that says so, which the RNIC gives back with
//! the completion: a program's own numbers are never mistaken for these. A tracked completion is found when it comes
//! out of the rings, whatever call took it out. Others that came out before it are set aside, in order, until they
//! are polled. Calls that wait need no news of that: the completion itself wakes them, as it wakes all that wait for
//! the queue, and they look again.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rnic_ipc::id::QpNum;
use rnic_ipc::work::{Completion, WC_TRACKED};

/// Tracked work: the number of a queue pair, and that of the work.
pub(crate) type WorkId = (QpNum, u64);

/// What is known of tracked work.
#[derive(Debug)]
enum State {
    /// Its completion has not come.
    Open,
    /// It has, and is to be taken.
    Done(Completion),
    /// Nobody waits for it any more: it is dropped when it comes.
    Abandoned,
}

/// The tracked work of one completion queue.
#[derive(Debug, Default)]
pub(super) struct TrackedWork {
    /// How much there ever was, which is the next number.
    made: u64,
    work: HashMap<WorkId, State>,
    set_aside: VecDeque<Completion>,
    look: SetAside,
}

/// Tells without the lock whether completions are set aside.
#[derive(Clone, Debug, Default)]
pub(super) struct SetAside(Arc<AtomicBool>);

impl SetAside {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        !self.0.load(Ordering::Relaxed)
    }
}

impl TrackedWork {
    pub(super) fn look(&self) -> SetAside {
        self.look.clone()
    }

    /// Whether there is neither tracked work nor a completion that is set aside.
    pub(super) fn is_none(&self) -> bool {
        self.work.is_empty() && self.set_aside.is_empty()
    }

    /// Whether any work was ever tracked.
    pub(super) fn was_used(&self) -> bool {
        self.made > 0
    }

    /// Tracks work that is about to be posted, under the number in what it returns.
    pub(super) fn add(&mut self, qp: QpNum) -> WorkId {
        let id = (qp, self.made);
        self.made += 1;
        self.work.insert(id, State::Open);
        id
    }

    /// The work was not posted.
    pub(super) fn remove(&mut self, id: WorkId) {
        self.work.remove(&id);
    }

    /// The completion, if it has come. Then the work is tracked no more.
    pub(super) fn take(&mut self, id: WorkId) -> Option<Completion> {
        match self.work.remove(&id)? {
            State::Done(completion) => Some(completion),
            other => {
                self.work.insert(id, other);
                None
            }
        }
    }

    /// Nobody waits any more.
    pub(super) fn abandon(&mut self, id: WorkId) {
        match self.work.get_mut(&id) {
            Some(state @ State::Open) => *state = State::Abandoned,
            _ => self.remove(id),
        }
    }

    /// Whether there is tracked work of this queue pair.
    pub(super) fn has_any_of(&self, qp: QpNum) -> bool {
        self.work.keys().any(|(of, _)| *of == qp)
    }

    /// The queue pair is gone, and all its completions were sorted.
    pub(super) fn forget(&mut self, qp: QpNum) {
        self.work.retain(|(of, _), _| *of != qp);
    }

    /// Gives a completion to its tracked work, or sets it aside.
    pub(super) fn sort(&mut self, completion: &Completion) {
        if completion.flags & WC_TRACKED == 0 {
            self.set_aside.push_back(*completion);
            self.look.0.store(true, Ordering::Relaxed);
            return;
        }
        let id = (QpNum(completion.qp), completion.wr_id);
        match self.work.get_mut(&id) {
            Some(state @ State::Open) => *state = State::Done(*completion),
            Some(State::Abandoned) => self.remove(id),
            Some(State::Done(_)) | None => {
                log::debug!("a completion of tracked work that nobody knows: {completion:?}");
            }
        }
    }

    /// How many completions are set aside.
    pub(super) fn set_aside(&self) -> usize {
        self.set_aside.len()
    }

    /// Moves completions that were set aside into `out`, oldest first, and says how many.
    pub(super) fn take_set_aside(&mut self, out: &mut [Completion]) -> usize {
        let count = self.set_aside.len().min(out.len());
        for (out, completion) in out.iter_mut().zip(self.set_aside.drain(..count)) {
            *out = completion;
        }
        let left = !self.set_aside.is_empty();
        self.look.0.store(left, Ordering::Relaxed);
        count
    }
}
