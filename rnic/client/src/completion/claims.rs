//! Completions that calls wait for themselves ([`crate::Outstanding`]): they go to those calls, and not to
//! programs that poll the queue.
//!
//! Work whose completion is claimed has a number of this crate's own for its `wr_id`. A claimed completion is
//! found when it comes out of the rings, whatever call took it out. Others that came out before it are set
//! aside, in order, until they are polled. Calls that wait need no news of that: the completion itself wakes
//! them, as it wakes all that wait for the queue, and they look anew.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rnic_ipc::id::QpNum;
use rnic_ipc::work::Completion;

/// The first number. Its upper 16 bits are of no address of a program on any processor that we run on, of no
/// small number and of no small negative one.
const FIRST: u64 = 0xa5c3 << 48;

/// Numbers before the first comes again. Nothing is outstanding for so long.
const NUMBERS: u64 = 1 << 48;

/// A claim: the number of a queue pair and that of its work.
pub(crate) type Claim = (QpNum, u64);

/// What a claim waits for.
#[derive(Debug)]
enum State {
    /// Its completion has not come.
    Open,
    /// It has, and is to be taken.
    Done(Completion),
    /// Nobody waits for it any more: it is dropped when it comes.
    Abandoned,
}

/// The claims on one completion queue.
#[derive(Debug, Default)]
pub(super) struct Claims {
    made: u64,
    claims: HashMap<Claim, State>,
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

impl Claims {
    pub(super) fn look(&self) -> SetAside {
        self.look.clone()
    }

    /// Whether there is neither a claim nor a completion that is set aside.
    pub(super) fn are_none(&self) -> bool {
        self.claims.is_empty() && self.set_aside.is_empty()
    }

    /// Whether there ever was a claim.
    pub(super) fn were_made(&self) -> bool {
        self.made > 0
    }

    /// Claims the completion of work that is about to be posted, under the number in the claim.
    pub(super) fn make(&mut self, qp: QpNum) -> Claim {
        let claim = (qp, FIRST | (self.made % NUMBERS));
        self.made = self.made.wrapping_add(1);
        self.claims.insert(claim, State::Open);
        claim
    }

    /// The work was not posted.
    pub(super) fn withdraw(&mut self, claim: Claim) {
        self.claims.remove(&claim);
    }

    /// The completion, if it has come. Then the claim has ended.
    pub(super) fn take(&mut self, claim: Claim) -> Option<Completion> {
        match self.claims.remove(&claim)? {
            State::Done(completion) => Some(completion),
            other => {
                self.claims.insert(claim, other);
                None
            }
        }
    }

    /// Nobody waits any more.
    pub(super) fn abandon(&mut self, claim: Claim) {
        match self.claims.get_mut(&claim) {
            Some(state @ State::Open) => *state = State::Abandoned,
            _ => self.withdraw(claim),
        }
    }

    /// Whether there are claims of this queue pair.
    pub(super) fn are_of(&self, qp: QpNum) -> bool {
        self.claims.keys().any(|(of, _)| *of == qp)
    }

    /// The queue pair is gone, and all its completions were sorted.
    pub(super) fn forget(&mut self, qp: QpNum) {
        self.claims.retain(|(of, _), _| *of != qp);
    }

    /// Gives a completion to its claim, or sets it aside.
    pub(super) fn sort(&mut self, completion: &Completion) {
        let claim = (QpNum(completion.qp), completion.wr_id);
        match self.claims.get_mut(&claim) {
            Some(state @ State::Open) => *state = State::Done(*completion),
            Some(State::Abandoned) => self.withdraw(claim),
            // Work that the program numbered so itself.
            Some(State::Done(_)) | None => {
                self.set_aside.push_back(*completion);
                self.look.0.store(true, Ordering::Relaxed);
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
