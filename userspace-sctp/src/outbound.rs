//! Chunks that were posted, until the cumulative TSN passes them: what may be sent, what a SACK acknowledges and
//! reports missing, what is sent again (RFC 9260 sections 6.1, 6.2.1, 6.3.3, 7.2.4).
//!
//! The caller's buffer of a chunk is its retransmit buffer, and comes back when nobody needs it any more.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use userspace_net::Instant;

use crate::chunk::GapBlock;
use crate::path::PATHS_MAX;
use crate::path::congestion::Acknowledged;
use crate::tsn::Tsn;

/// A chunk that is reported missing so often is sent again.
const MISSING_MAX: u8 = 3;

/// A chunk to be sent now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transmission {
    pub tsn: Tsn,
    /// Bytes with header and padding.
    pub bytes: usize,
    /// It was sent before.
    pub again: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outcome {
    /// For the congestion control of each path.
    pub acknowledged: [Acknowledged; PATHS_MAX],
    /// The earliest chunk that was outstanding on a path is acknowledged: its T3-rtx starts again (rule R3).
    pub earliest: [bool; PATHS_MAX],
    /// A round trip time of a path, by a chunk that was sent once.
    pub rtt: Option<(usize, Duration)>,
    /// Chunks of a path were reported missing for the third time.
    pub lost: [bool; PATHS_MAX],
}

/// The chunk to be sent next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Next {
    /// Bytes with header and padding.
    pub bytes: usize,
    /// Where it was lost, if it was.
    pub lost: Option<Lost>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost {
    /// The path on which it was sent last.
    pub path: usize,
    /// By a timeout: it should go elsewhere (section 6.4).
    pub timed_out: bool,
}

/// A SACK that no correct peer sends: it acknowledges a TSN that was not sent. The association is aborted (section
/// 12.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the SACK acknowledges TSN {tsn}, and {next} is the next to be sent")]
pub struct NotSent {
    pub tsn: Tsn,
    /// What was not sent.
    pub next: Tsn,
}

/// The chunks of one association, in the order of their TSNs.
#[derive(Debug)]
pub struct Outbound<B> {
    chunks: VecDeque<Chunk<B>>,
    first: Tsn,
    /// So many of them were sent at least once: they come first.
    sent: usize,
    /// Chunks that blocks of SACKs acknowledge.
    by_blocks: usize,
    /// Bytes that are believed to be under way, on each path.
    flight: [usize; PATHS_MAX],
    /// Chunks that are not acknowledged by the cumulative TSN, by the path on which they were sent last.
    outstanding: [usize; PATHS_MAX],
    /// Chunks that are to be sent again.
    lost: usize,
    /// Where the first of them is; without meaning while there is none.
    next_lost: usize,
    /// What the peer has room for, beyond what is under way.
    window: usize,
}

#[derive(Debug)]
struct Chunk<B> {
    buffer: B,
    bytes: usize,
    state: State,
    /// On which it was sent last.
    path: u8,
    /// It was lost by a timeout.
    timed_out: bool,
    /// When it was sent first; no longer known when it was sent again.
    sent_at: Option<Instant>,
    missing: u8,
    /// It had its fast retransmission.
    fast: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Not sent yet.
    Waiting,
    InFlight,
    /// By a block of a SACK, which may be taken back.
    Acknowledged,
    /// To be sent again.
    Lost,
}

impl<B> Outbound<B> {
    /// With the TSN of the first chunk, the peer's window, and room for so many chunks.
    pub fn new(first: Tsn, window: usize, chunks_max: usize) -> Self {
        Self {
            chunks: VecDeque::with_capacity(chunks_max),
            first,
            sent: 0,
            by_blocks: 0,
            flight: [0; PATHS_MAX],
            outstanding: [0; PATHS_MAX],
            lost: 0,
            next_lost: 0,
            window,
        }
    }

    /// Takes a chunk of so many bytes, with header and padding; gives its TSN, or the buffer back when there is no
    /// room.
    ///
    /// # Errors
    /// The buffer, when as many chunks are here as may be.
    pub fn post(&mut self, buffer: B, bytes: usize) -> Result<Tsn, B> {
        if self.chunks.len() == self.chunks.capacity() {
            return Err(buffer);
        }
        let tsn = self.first.plus(self.chunks.len() as u32);
        self.chunks.push_back(Chunk {
            buffer,
            bytes,
            state: State::Waiting,
            path: 0,
            timed_out: false,
            sent_at: None,
            missing: 0,
            fast: false,
        });
        Ok(tsn)
    }

    /// The peer's window is known, or another one: nothing is under way.
    pub const fn set_window(&mut self, window: usize) {
        self.window = window;
    }

    /// Chunks that can be posted.
    pub fn room(&self) -> usize {
        self.chunks.capacity() - self.chunks.len()
    }

    /// Bytes that are believed to be under way on a path.
    pub const fn flight_on(&self, path: usize) -> usize {
        self.flight[path]
    }

    /// The same of all paths.
    pub fn flight(&self) -> usize {
        self.flight.iter().sum()
    }

    /// Chunks that were sent last on a path, and are not acknowledged by the cumulative TSN.
    pub const fn outstanding_on(&self, path: usize) -> usize {
        self.outstanding[path]
    }

    /// Whether anything that was sent is not acknowledged by the cumulative TSN.
    pub const fn is_outstanding(&self) -> bool {
        self.sent > 0
    }

    /// Whether nothing is left to send or to wait for.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// The last TSN that was sent.
    pub const fn highest(&self) -> Tsn {
        self.first.plus(self.sent as u32).previous()
    }

    /// The buffer of a chunk that is not acknowledged by the cumulative TSN.
    pub fn buffer(&mut self, tsn: Tsn) -> Option<&mut B> {
        let at = tsn.since(self.first) as usize;
        self.chunks.get_mut(at).map(|chunk| &mut chunk.buffer)
    }

    /// The chunk that [`Self::transmit`] would give.
    pub fn peek(&self, probe: bool) -> Option<Next> {
        let chunk = &self.chunks[self.next(probe)?];
        let lost = (chunk.state == State::Lost).then(|| Lost {
            path: chunk.path.into(),
            timed_out: chunk.timed_out,
        });
        Some(Next {
            bytes: chunk.bytes,
            lost,
        })
    }

    /// The next chunk to be sent, on a path and as of now: what was lost, then what waits if the peer has room for it. The caller
    /// asks only while the congestion window, or a fast retransmission, allows a packet. `probe`: one chunk may go
    /// although the peer has no room (rule A of section 6.1).
    pub fn transmit(&mut self, now: Instant, probe: bool, path: usize) -> Option<Transmission> {
        let at = self.next(probe)?;
        let chunk = &mut self.chunks[at];
        let again = chunk.state == State::Lost;
        if again {
            self.lost -= 1;
            self.outstanding[usize::from(chunk.path)] -= 1;
            chunk.sent_at = None;
        } else {
            self.sent += 1;
            chunk.sent_at = Some(now);
        }
        chunk.state = State::InFlight;
        // There are four.
        chunk.path = path as u8;
        let bytes = chunk.bytes;
        self.flight[path] += bytes;
        self.outstanding[path] += 1;
        self.window = self.window.saturating_sub(bytes);
        self.seek_lost();
        Some(Transmission {
            tsn: self.first.plus(at as u32),
            bytes,
            again,
        })
    }

    fn next(&self, probe: bool) -> Option<usize> {
        if self.lost > 0 {
            return Some(self.next_lost);
        }
        let next = self.chunks.get(self.sent)?;
        (next.bytes <= self.window || probe && self.flight() == 0).then_some(self.sent)
    }

    /// The first of those to be sent again is no longer one of them. The search goes on from where it was, so that all
    /// searches between two losses look at each chunk at most once.
    fn seek_lost(&mut self) {
        let is_other = |chunk: &Chunk<B>| chunk.state != State::Lost;
        while self.lost > 0 && self.chunks.get(self.next_lost).is_some_and(is_other) {
            self.next_lost += 1;
        }
    }

    /// A chunk under way is to be sent again.
    fn lose(&mut self, at: usize, timed_out: bool) {
        let chunk = &mut self.chunks[at];
        chunk.state = State::Lost;
        chunk.timed_out = timed_out;
        self.flight[usize::from(chunk.path)] -= chunk.bytes;
        // The peer's room is free again until it is sent again (rule B of section 6.2.1).
        self.window += chunk.bytes;
        if self.lost == 0 || at < self.next_lost {
            self.next_lost = at;
        }
        self.lost += 1;
    }

    /// Whether chunks wait and only a probe of the peer's window may go: nothing is outstanding that the peer would
    /// acknowledge.
    pub fn needs_probe(&self) -> bool {
        !self.is_outstanding() && !self.chunks.is_empty() && self.next(false).is_none()
    }

    /// The first TSN that is not acknowledged by the cumulative one.
    pub const fn earliest(&self) -> Tsn {
        self.first
    }

    /// Takes a SACK. `recovering`: the sender is in Fast Recovery. Buffers that nobody needs any more go to
    /// `release`.
    ///
    /// # Errors
    /// When it acknowledges what was not sent.
    pub fn sack(
        &mut self,
        now: Instant,
        cumulative: Tsn,
        window: usize,
        blocks: impl Iterator<Item = GapBlock> + Clone,
        recovering: bool,
        mut release: impl FnMut(B),
    ) -> Result<Outcome, NotSent> {
        let Some(passed) = self.passed(cumulative)? else {
            return Ok(Outcome::default());
        };
        let blocks = ascending(blocks);
        let last = blocks.clone().last().map_or(0, |block| block.end);
        if passed + usize::from(last) > self.sent {
            return Err(NotSent {
                tsn: cumulative.plus(last.into()),
                next: self.highest().next(),
            });
        }
        let mut outcome = self.advance(passed, now, &mut release);
        let highest_new = self.mark(&blocks, &mut outcome, now);
        let advances = recovering && passed > 0;
        let missing_to = if advances {
            usize::from(last)
        } else {
            highest_new
        };
        self.window = window.saturating_sub(self.flight());
        self.count_missing(missing_to.saturating_sub(1), &mut outcome);
        Ok(outcome)
    }

    /// Takes the cumulative TSN of a SHUTDOWN, which says nothing of the chunks beyond it (section 3.3.8), and nothing
    /// of the window.
    ///
    /// # Errors
    /// When it acknowledges what was not sent.
    pub fn shutdown(
        &mut self,
        now: Instant,
        cumulative: Tsn,
        mut release: impl FnMut(B),
    ) -> Result<Outcome, NotSent> {
        Ok(match self.passed(cumulative)? {
            Some(passed) => self.advance(passed, now, &mut release),
            None => Outcome::default(),
        })
    }

    /// How many chunks a cumulative TSN passes; `None` when it is older than what is known, and says nothing
    /// (section 6.2.1, D i).
    fn passed(&self, cumulative: Tsn) -> Result<Option<usize>, NotSent> {
        if self.first.is_after(cumulative.next()) {
            return Ok(None);
        }
        let passed = cumulative.next().since(self.first) as usize;
        if passed > self.sent {
            return Err(NotSent {
                tsn: cumulative,
                next: self.highest().next(),
            });
        }
        Ok(Some(passed))
    }

    /// The cumulative TSN passes so many chunks.
    fn advance(&mut self, passed: usize, now: Instant, release: &mut impl FnMut(B)) -> Outcome {
        let mut outcome = Outcome::default();
        for (acknowledged, flight) in outcome.acknowledged.iter_mut().zip(self.flight) {
            acknowledged.flight_before = flight;
            acknowledged.advances = passed > 0;
            acknowledged.all = passed == self.sent;
        }
        for _ in 0..passed {
            if let Some(chunk) = self.chunks.pop_front() {
                let path = usize::from(chunk.path);
                self.outstanding[path] -= 1;
                outcome.earliest[path] = true;
                self.settle(&chunk, &mut outcome, now);
                release(chunk.buffer);
            }
        }
        self.first = self.first.plus(passed as u32);
        self.sent -= passed;
        self.next_lost = self.next_lost.saturating_sub(passed);
        self.seek_lost();
        outcome
    }

    /// A chunk is acknowledged for the first time, or for good.
    fn settle(&mut self, chunk: &Chunk<B>, outcome: &mut Outcome, now: Instant) {
        let path = usize::from(chunk.path);
        match chunk.state {
            State::InFlight => self.flight[path] -= chunk.bytes,
            State::Lost => self.lost -= 1,
            State::Acknowledged => {
                self.by_blocks -= 1;
                return;
            }
            State::Waiting => return,
        }
        outcome.acknowledged[path].bytes += chunk.bytes;
        if let Some(sent_at) = chunk.sent_at {
            outcome.rtt = Some((path, now.saturating_duration_since(sent_at)));
        }
    }

    /// Applies the blocks; gives the offset, from 1, of the highest TSN that they acknowledge for the first time.
    fn mark(
        &mut self,
        blocks: &(impl Iterator<Item = GapBlock> + Clone),
        outcome: &mut Outcome,
        now: Instant,
    ) -> usize {
        let mut highest = 0;
        let mut blocks = blocks.clone().peekable();
        // Most SACKs have none, and take none back.
        if blocks.peek().is_none() && self.by_blocks == 0 {
            return 0;
        }
        for at in 0..self.sent {
            // Chunk 0 is the one behind the cumulative TSN: offset 1.
            let offset = at + 1;
            while blocks
                .next_if(|block| usize::from(block.end) < offset)
                .is_some()
            {}
            let is_named = blocks
                .peek()
                .is_some_and(|block| usize::from(block.start) <= offset);
            let chunk = &mut self.chunks[at];
            let path = usize::from(chunk.path);
            match (chunk.state, is_named) {
                (State::InFlight, true) => {
                    self.flight[path] -= chunk.bytes;
                    outcome.rtt = chunk
                        .sent_at
                        .map(|sent| (path, now.saturating_duration_since(sent)))
                        .or(outcome.rtt);
                }
                (State::Lost, true) => self.lost -= 1,
                // The peer has dropped it (section 6.2.1, D iv).
                (State::Acknowledged, false) => {
                    self.by_blocks -= 1;
                    chunk.state = State::InFlight;
                    chunk.sent_at = None;
                    self.flight[path] += chunk.bytes;
                    continue;
                }
                _ => continue,
            }
            chunk.state = State::Acknowledged;
            self.by_blocks += 1;
            chunk.missing = 0;
            outcome.acknowledged[path].bytes += chunk.bytes;
            highest = offset;
        }
        self.seek_lost();
        highest
    }

    /// Chunks at an offset up to `to` that are not acknowledged are reported missing.
    fn count_missing(&mut self, to: usize, outcome: &mut Outcome) {
        for at in 0..to.min(self.sent) {
            let chunk = &mut self.chunks[at];
            if chunk.state != State::InFlight {
                continue;
            }
            chunk.missing = chunk.missing.saturating_add(1);
            if chunk.missing >= MISSING_MAX && !chunk.fast {
                chunk.fast = true;
                outcome.lost[usize::from(chunk.path)] = true;
                self.lose(at, false);
            }
        }
    }

    /// T3-rtx of a path expired: all that is under way there is to be sent again (rule E3).
    pub fn timed_out(&mut self, path: usize) {
        for at in 0..self.sent {
            let chunk = &mut self.chunks[at];
            if usize::from(chunk.path) != path {
                continue;
            }
            chunk.missing = 0;
            if chunk.state == State::InFlight {
                self.lose(at, true);
            }
        }
    }

    /// A router of a path has dropped chunks of more than `most` bytes: those under way are to be sent again.
    pub fn lose_larger(&mut self, path: usize, most: usize) {
        for at in 0..self.sent {
            let chunk = &self.chunks[at];
            let is_there = chunk.state == State::InFlight && usize::from(chunk.path) == path;
            if is_there && chunk.bytes > most {
                self.lose(at, false);
            }
        }
    }

    /// The first chunk that is under way on a path: its TSN and bytes.
    pub fn earliest_on(&self, path: usize) -> Option<(Tsn, usize)> {
        let sent = self.chunks.iter().take(self.sent);
        let mut numbered = sent.zip(0..);
        let is_there = |(chunk, _): &(&Chunk<B>, u32)| {
            chunk.state == State::InFlight && usize::from(chunk.path) == path
        };
        let (chunk, at) = numbered.find(is_there)?;
        Some((self.first.plus(at), chunk.bytes))
    }

    /// Whether something is to be sent again.
    pub const fn has_lost(&self) -> bool {
        self.lost > 0
    }

    /// Gives all buffers back: the association is over.
    pub fn clear(&mut self, release: impl FnMut(B)) {
        self.chunks
            .drain(..)
            .map(|chunk| chunk.buffer)
            .for_each(release);
        (self.sent, self.by_blocks, self.lost) = (0, 0, 0);
        (self.flight, self.outstanding) = ([0; PATHS_MAX], [0; PATHS_MAX]);
    }
}

/// The blocks of a SACK up to the first that is backward or not behind the one before. One look at each chunk is
/// then enough, whatever a hostile peer sends.
fn ascending(
    blocks: impl Iterator<Item = GapBlock> + Clone,
) -> impl Iterator<Item = GapBlock> + Clone {
    blocks.scan(0, |end, block| {
        let follows = block.start > *end && block.end >= block.start;
        *end = block.end;
        follows.then_some(block)
    })
}
