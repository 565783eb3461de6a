//! What a node's memory must hold (RFC 5040 section 5.5). Some bytes are settled. Others are touches: an operation may
//! place them at any moment until it is known to have placed them, and what it placed stays. Nothing else may ever
//! change.

use std::ops::Range;
use std::sync::Arc;

use rnic_ipc::shm::SharedMemory;
use rnic_proto::rdmap::AtomicOperation;

use crate::node::ARENA;
use crate::words::{WORD, Words};

/// Who changes or reads bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Party {
    pub stream: usize,
    /// The end that posted the operation; for a receive, the end that posted the receive.
    pub end: usize,
}

/// Bytes that an operation is to place.
#[derive(Clone, Debug)]
struct Touch {
    op: u64,
    by: Party,
    at: usize,
    bytes: Vec<u8>,
    /// Bytes that it may bring instead: those of a Write posted after the Read (rule 12).
    or: Option<Vec<u8>>,
    /// Another touch may come before or after it: either's bytes may stay (rule 3).
    contested: bool,
    /// Nobody can know what it brings: an original value, or whichever Send comes.
    any: bool,
    /// The region or window through which it comes.
    via: usize,
    order: Order,
}

/// When an operation may place its bytes, beside others of its stream that are under way at the same place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Before or after them.
    Any,
    /// In the order of posting, among what goes the same way.
    Posted,
    /// The same, among Read and Atomic Responses.
    Responses,
}

/// Why bytes may not be changed by others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Work of this node sends them.
    Payload,
    /// A peer's Read gets them; Writes behind it in its own stream are not kept out (rule 12).
    ReadSource,
    Receive,
}

/// Bytes that are in use.
#[derive(Clone, Debug)]
struct Lock {
    op: u64,
    by: Party,
    range: Range<usize>,
    used: Use,
    /// The region or window that it is about.
    via: usize,
}

pub struct Memory {
    arena: Arc<SharedMemory>,
    settled: Vec<u8>,
    touches: Vec<Touch>,
    locks: Vec<Lock>,
    words: Words,
}

impl Touch {
    fn range(&self) -> Range<usize> {
        self.at..self.at + self.bytes.len()
    }

    /// Whether it may have left this byte at this place.
    fn allows(&self, at: usize, byte: u8) -> bool {
        self.range().contains(&at) && {
            let index = at - self.at;
            self.any
                || self.bytes[index] == byte
                || self.or.as_ref().is_some_and(|or| or[index] == byte)
        }
    }
}

fn overlap(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start < b.end && b.start < a.end
}

impl Memory {
    pub fn new(arena: Arc<SharedMemory>) -> Self {
        Self {
            arena,
            settled: vec![0; ARENA],
            touches: Vec::new(),
            locks: Vec::new(),
            words: Words::default(),
        }
    }

    pub fn word(&self, at: usize) -> u64 {
        let mut bytes = [0; WORD];
        self.arena.read(at, &mut bytes).unwrap();
        u64::from_ne_bytes(bytes)
    }

    fn read(&self, range: Range<usize>) -> Vec<u8> {
        let mut out = vec![0; range.len()];
        self.arena.read(range.start, &mut out).unwrap();
        out
    }

    pub fn fill(&mut self, at: usize, bytes: &[u8]) {
        self.arena.write(at, bytes).unwrap();
        self.settled[at..at + bytes.len()].copy_from_slice(bytes);
    }

    pub fn lock(&mut self, op: u64, by: Party, (range, via): (Range<usize>, usize), used: Use) {
        if !range.is_empty() {
            let lock = Lock {
                op,
                by,
                range,
                used,
                via,
            };
            self.locks.push(lock);
        }
    }

    pub fn unlock(&mut self, op: u64) {
        self.locks.retain(|lock| lock.op != op);
    }

    /// This party's Reads get nothing any more.
    pub fn end_reads(&mut self, by: Party) {
        self.locks
            .retain(|lock| lock.used != Use::ReadSource || lock.by != by);
    }

    /// Nobody changes these bytes, and nobody uses them.
    pub fn is_free(&self, range: &Range<usize>) -> bool {
        self.is_stable(range) && self.is_unlocked(range)
    }

    /// Nobody changes these bytes.
    pub fn is_stable(&self, range: &Range<usize>) -> bool {
        !self.touches.iter().any(|t| overlap(&t.range(), range))
            && !self.has_receive(range)
            && !self.words.is_over(range)
    }

    fn has_receive(&self, range: &Range<usize>) -> bool {
        let mut locks = self.locks.iter();
        locks.any(|lock| lock.used == Use::Receive && overlap(&lock.range, range))
    }

    /// Nobody sends, reads, receives into or does operations on these bytes.
    pub fn is_unlocked(&self, range: &Range<usize>) -> bool {
        !self.locks.iter().any(|lock| overlap(&lock.range, range)) && !self.words.is_over(range)
    }

    /// Who has to do with these bytes.
    pub fn users(&self, range: &Range<usize>) -> Vec<Party> {
        let touching = self.touches.iter().filter(|t| overlap(&t.range(), range));
        let locking = self.locks.iter().filter(|l| overlap(&l.range, range));
        touching
            .map(|t| t.by)
            .chain(locking.map(|l| l.by))
            .chain(self.words.users(range))
            .collect()
    }

    /// Who has to do with this region or window under its own name, and whether it is only by Writes.
    pub fn users_through(&self, via: usize) -> (Vec<Party>, bool) {
        let touching = self.touches.iter().filter(|touch| touch.via == via);
        let locking = self.locks.iter().filter(|lock| lock.via == via);
        let words = self.words.users_through(via);
        let only_writes = words.is_empty() && locking.clone().next().is_none();
        let users = touching.map(|t| t.by).chain(locking.map(|l| l.by));
        (users.chain(words).collect(), only_writes)
    }

    /// Whether a Write of this party may go here, and what else may then stay: it overlaps at most
    /// one other touch, and Reads before it in its own stream.
    pub fn takes_write(&self, by: Party, range: &Range<usize>) -> bool {
        let touches: Vec<_> = self
            .touches
            .iter()
            .filter(|t| overlap(&t.range(), range))
            .collect();
        let others = touches.len() <= 1
            && touches.iter().all(|t| !t.contested && !t.any)
            && !self.words.is_over(range);
        let mut locks = self.locks.iter().filter(|l| overlap(&l.range, range));
        others && locks.all(|lock| lock.used == Use::ReadSource && lock.by == by)
    }

    /// The Reads whose source this is and what of it, by operation.
    pub fn sources(&self, range: &Range<usize>) -> Vec<(u64, Range<usize>)> {
        let locks = self.locks.iter().filter(|l| overlap(&l.range, range));
        locks.map(|l| (l.op, l.range.clone())).collect()
    }

    /// What a Read of this party gets, whose place in the stream is behind all that it has posted;
    /// none when that is not certain.
    pub fn certain(&self, by: Party, range: &Range<usize>) -> Option<Vec<u8>> {
        if self.has_receive(range) {
            return None;
        }
        let mut out = self.settled[range.clone()].to_vec();
        for touch in self.touches.iter().filter(|t| overlap(&t.range(), range)) {
            // A Response comes the other way, and nobody knows when.
            let ahead = touch.by == by && touch.order != Order::Responses;
            if !ahead || touch.contested || touch.any || touch.or.is_some() {
                return None;
            }
            let common = touch.at.max(range.start)..touch.range().end.min(range.end);
            out[common.start - range.start..common.end - range.start]
                .copy_from_slice(&touch.bytes[common.start - touch.at..common.end - touch.at]);
        }
        for at in self.words.places_over(range) {
            // Reads and operations of one stream are answered in its order (RFC 7306 section 5.4).
            let value = self.words.in_the_end(by, at)?.to_ne_bytes();
            let common = at.max(range.start)..(at + WORD).min(range.end);
            out[common.start - range.start..common.end - range.start]
                .copy_from_slice(&value[common.start - at..common.end - at]);
        }
        Some(out)
    }

    /// Whether an Atomic Operation of this party may go here.
    pub fn takes_atomic(&self, by: Party, at: usize) -> bool {
        let range = at..at + WORD;
        let mut locks = self.locks.iter().filter(|l| overlap(&l.range, &range));
        !self.words.is_full(at)
            && !self.touches.iter().any(|t| overlap(&t.range(), &range))
            && locks.all(|lock| lock.used == Use::ReadSource && lock.by == by)
    }

    /// An Atomic Operation is to come; the word is aligned.
    pub fn expect_atomic(
        &mut self,
        op: u64,
        by: Party,
        (at, via): (usize, usize),
        operation: AtomicOperation,
    ) {
        let value = self.word(at);
        self.words.expect((op, by, via), at, value, operation);
    }

    /// An operation has bytes to place that are not settled.
    pub fn expects(&self, op: u64) -> bool {
        self.touches.iter().any(|touch| touch.op == op)
    }

    /// An Atomic Operation is known to have been done, and to have found this if that is known.
    pub fn atomic_done(&mut self, op: u64, original: Option<u64>) {
        self.look_at_words();
        self.words.done(op, original);
    }

    /// The words are what they are at this moment.
    fn look_at_words(&mut self) {
        for at in self.words.places() {
            let value = self.word(at);
            self.words.found(at, value);
            self.settled[at..at + WORD].copy_from_slice(&value.to_ne_bytes());
        }
    }

    /// An operation is to place bytes here.
    pub fn expect(
        &mut self,
        op: u64,
        by: Party,
        (at, via): (usize, usize),
        bytes: Vec<u8>,
        order: Order,
    ) {
        if bytes.is_empty() {
            return;
        }
        let mut touch = Touch {
            op,
            by,
            at,
            bytes,
            or: None,
            contested: false,
            any: false,
            via,
            order,
        };
        let range = touch.range();
        for other in self
            .touches
            .iter_mut()
            .filter(|t| overlap(&t.range(), &range))
        {
            // A stream has an order in each direction. Of a node with itself both end here.
            if order == Order::Any || other.by != by || other.order != order {
                (other.contested, touch.contested) = (true, true);
            }
        }
        self.touches.push(touch);
    }

    /// An operation is to place bytes here that nobody can know; nobody else does.
    pub fn expect_anything(&mut self, op: u64, by: Party, (at, via): (usize, usize), len: usize) {
        self.expect(op, by, (at, via), vec![0; len], Order::Posted);
        for touch in self.touches.iter_mut().filter(|t| t.op == op) {
            touch.any = true;
        }
    }

    /// A Read may bring this bytes instead of what it was to bring: those at `at` of its first sink.
    pub fn or_else(&mut self, op: u64, skip: usize, bytes: &[u8]) {
        let mut skip = skip;
        let mut rest = bytes;
        for touch in self.touches.iter_mut().filter(|t| t.op == op) {
            let len = touch.bytes.len();
            if skip >= len {
                skip -= len;
                continue;
            }
            let count = rest.len().min(len - skip);
            let or = touch.or.get_or_insert_with(|| touch.bytes.clone());
            or[skip..skip + count].copy_from_slice(&rest[..count]);
            rest = &rest[count..];
            skip = 0;
        }
    }

    /// Whether an operation's bytes may still come in two forms.
    pub fn is_undecided(&self, op: u64) -> bool {
        self.touches.iter().any(|t| t.op == op && t.or.is_some())
    }

    /// The operation is known to have placed all its bytes.
    pub fn placed(&mut self, op: u64) {
        self.settle(|touch| touch.op == op, true);
    }

    /// What was to be any bytes is these, and behind them what was there before.
    pub fn filled(&mut self, op: u64, bytes: &[u8]) {
        let mut rest = bytes;
        for touch in self.touches.iter_mut().filter(|touch| touch.op == op) {
            let range = touch.range();
            let (now, later) = rest.split_at(range.len().min(rest.len()));
            touch.bytes.copy_from_slice(&self.settled[range]);
            touch.bytes[..now.len()].copy_from_slice(now);
            touch.any = false;
            rest = later;
        }
        self.placed(op);
    }

    /// No response to the operation will come any more. Whether it is done is another matter: of a node with
    /// itself its word is here too.
    pub fn unanswered(&mut self, op: u64) {
        self.settle(|touch| touch.op == op, false);
    }

    /// The operation will place nothing any more.
    pub fn given_up(&mut self, op: u64) {
        self.settle(|touch| touch.op == op, false);
        self.look_at_words();
        self.words.give_up(op);
    }

    /// No byte here may change any more: their STag is revoked.
    pub fn freeze(&mut self, range: &Range<usize>) {
        self.settle(|touch| overlap(&touch.range(), range), false);
        self.look_at_words();
        self.words.give_up_all(range, None);
    }

    /// Nothing comes through this window any more.
    pub fn shut(&mut self, via: usize) {
        self.settle(|touch| touch.via == via, false);
        self.look_at_words();
        self.words.give_up_all(&(0..ARENA), Some(via));
    }

    fn settle(&mut self, which: impl Fn(&Touch) -> bool, must: bool) {
        while let Some(index) = self.touches.iter().position(&which) {
            let touch = self.touches.remove(index);
            let range = touch.range();
            let found = self.read(range.clone());
            for (at, &byte) in range.clone().zip(&found) {
                let before = !must || touch.contested;
                let allowed = touch.allows(at, byte)
                    || before && self.settled[at] == byte
                    || self.touches.iter().any(|other| other.allows(at, byte));
                assert!(
                    allowed,
                    "byte {at} is {byte:#04x} when it is settled (must {must}); it was {:#04x}; \
                     {}",
                    self.settled[at],
                    show(&touch)
                );
            }
            self.settled[range].copy_from_slice(&found);
        }
    }

    /// Every byte is what it must be, or what it may be at this moment.
    pub fn check(&mut self, who: usize) {
        self.look_at_words();
        let found = self.read(0..ARENA);
        const STRETCH: usize = 256;
        let stretches = found.chunks(STRETCH).zip(self.settled.chunks(STRETCH));
        for (index, (found, settled)) in stretches.enumerate() {
            if found != settled {
                self.check_stretch(who, index * STRETCH, found);
            }
        }
    }

    fn check_stretch(&self, who: usize, from: usize, found: &[u8]) {
        for (at, &byte) in (from..).zip(found) {
            let settled = self.settled[at];
            assert!(
                byte == settled || self.touches.iter().any(|touch| touch.allows(at, byte)),
                "node {who}: byte {at} is {byte:#04x} and must be {settled:#04x}; {:?}",
                self.touches
                    .iter()
                    .filter(|touch| touch.range().contains(&at))
                    .map(show)
                    .collect::<Vec<_>>()
            );
        }
    }

    /// Nothing is under way.
    pub fn assert_quiet(&self, who: usize) {
        assert!(
            self.touches.is_empty() && self.locks.is_empty() && self.words.is_empty(),
            "node {who}: {:?} {:?}",
            self.touches.iter().map(show).collect::<Vec<_>>(),
            self.locks
        );
    }
}

fn show(touch: &Touch) -> String {
    format!(
        "work {} of {:?} through {} at {:?}, contested {}, undecided {}",
        touch.op,
        touch.by,
        touch.via,
        touch.range(),
        touch.contested,
        touch.or.is_some()
    )
}
