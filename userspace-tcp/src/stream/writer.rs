//! The coalescing sender: bytes become segments as large as they may be.
//!
//! Up to 64 segments are filled at a time. The last one is held back here; the others are in the
//! stack's queue, if that has the room that it said. A small segment waits while more may join it:
//! until its bytes are pushed, and then by Nagle's rule (RFC 9293 section 3.7.4) in the form of its appendix A.3. That
//! lets the small end of a large write go at once, but never a second small segment before the first one is
//! acknowledged.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::convert::Infallible;

use userspace_net::{Instant, checksum};

use super::Memory;
use crate::interface::{ConnId, Outgoing};
use crate::stack::Stack;

/// Segments that are filled at a time, at most.
const PLACES: usize = 64;

/// Sends the bytes of one connection. It must be the only one that calls [`Stack::send`] and
/// [`Stack::close`] for it.
#[derive(Debug)]
pub struct ByteWriter<B> {
    conn: ConnId,
    /// What is held back. More than one only where there was less room than the windows had said:
    /// then they have to go before more is taken.
    held: VecDeque<Filling<B>>,
    nodelay: bool,
    urgency: Urgency,
    end: End,
    /// Segments given to the stack so far.
    posted: u64,
    /// `posted` as it was after the latest small segment.
    small: u64,
    bytes: u64,
}

/// A segment that is held back.
#[derive(Debug)]
struct Filling<B> {
    buf: B,
    len: usize,
}

/// What a segment that is not full waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Urgency {
    /// More bytes.
    Unpushed,
    /// What Nagle's rule says.
    Pushed,
    /// Room in the windows alone.
    Flushed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Open,
    Wanted,
    Sent,
}

impl<B> ByteWriter<B> {
    /// Nothing is written yet. `nodelay` turns Nagle's rule off (RFC 9293, MUST-17).
    pub fn new(conn: ConnId, nodelay: bool) -> Self {
        Self {
            conn,
            held: VecDeque::with_capacity(PLACES),
            nodelay,
            urgency: Urgency::Unpushed,
            end: End::Open,
            posted: 0,
            small: 0,
            bytes: 0,
        }
    }

    /// Bytes that [`ByteWriter::write`] would take now, more or less: 0 when it would take none.
    pub fn room(&self, stack: &Stack<B>) -> usize {
        if self.end != End::Open {
            return 0;
        }
        let most = stack.send_room(self.conn).max(stack.cut(self.conn));
        most.saturating_sub(self.held())
    }

    /// Bytes that are held back because their segment is not full or there is no room for it.
    pub fn held(&self) -> usize {
        self.held.iter().map(|filling| filling.len).sum()
    }

    /// Bytes taken so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes bytes as far as the windows, the queue and `memory` have room; says how many. The
    /// last ones wait for more until they are pushed. Takes nothing before the connection is
    /// established, after [`ByteWriter::close`], and when it is gone.
    pub fn write(
        &mut self,
        stack: &mut Stack<B>,
        now: Instant,
        memory: &mut impl Memory<B>,
        bytes: &[u8],
    ) -> usize {
        let mut rest = bytes;
        while !rest.is_empty() {
            let copied = self.fill(stack, now, memory, |places| {
                let begin = rest.len();
                for place in places {
                    let (bytes, behind) = rest.split_at(place.len().min(rest.len()));
                    place[..bytes.len()].copy_from_slice(bytes);
                    rest = behind;
                }
                Ok::<_, Infallible>(begin - rest.len())
            });
            if copied == Ok(0) {
                break;
            }
        }
        bytes.len() - rest.len()
    }

    /// Takes bytes as [`ByteWriter::write`] does, but from a `source` that puts them where the segments are going to
    /// be. It fills the slices that it is given, in order and without a gap, with as many bytes as it has, and
    /// returns how many those were.
    ///
    /// # Errors
    /// The source's; then nothing was taken.
    pub fn fill<E>(
        &mut self,
        stack: &mut Stack<B>,
        now: Instant,
        memory: &mut impl Memory<B>,
        source: impl FnOnce(&mut [&mut [u8]]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        self.post_full(stack, now, memory);
        let cut = stack.cut(self.conn);
        let begun = self.held.len();
        if !self.make_places(stack, memory, cut) {
            return Ok(0);
        }
        let count = self.held.len().min(PLACES);
        let mut places: [&mut [u8]; PLACES] = std::array::from_fn(|_| Default::default());
        for (place, filling) in places.iter_mut().zip(&mut self.held) {
            *place = filling.place(memory, cut);
        }
        let filled = source(&mut places[..count]);
        let mut left = *filled.as_ref().unwrap_or(&0);
        for filling in &mut self.held {
            let bytes = left.min(filling.place(memory, cut).len());
            filling.len += bytes;
            left -= bytes;
            self.bytes += bytes as u64;
        }
        while let Some(empty) = self.held.pop_back_if(|filling| filling.len == 0) {
            memory.free(empty.buf);
        }
        if self.held.len() > begun {
            // Nobody has pushed the last one.
            self.urgency = Urgency::Unpushed;
        }
        self.post_full(stack, now, memory);
        filled
    }

    /// No more bytes come for now: what was written goes as soon as Nagle's rule lets it.
    pub fn push(&mut self, stack: &mut Stack<B>, now: Instant, memory: &mut impl Memory<B>) {
        self.hurry(Urgency::Pushed);
        self.settle(stack, now, memory);
    }

    /// What was written goes as soon as the windows have room for it, whatever Nagle's rule says.
    pub fn flush(&mut self, stack: &mut Stack<B>, now: Instant, memory: &mut impl Memory<B>) {
        self.hurry(Urgency::Flushed);
        self.settle(stack, now, memory);
    }

    /// Sends FIN after all bytes written; nothing more can be written.
    pub fn close(&mut self, stack: &mut Stack<B>, now: Instant, memory: &mut impl Memory<B>) {
        if self.end == End::Open {
            self.end = End::Wanted;
        }
        self.flush(stack, now, memory);
    }

    /// Whether [`ByteWriter::close`] was asked for.
    pub fn is_closing(&self) -> bool {
        self.end != End::Open
    }

    /// Does what has become possible since: to be called when the stack has received something.
    pub fn settle(&mut self, stack: &mut Stack<B>, now: Instant, memory: &mut impl Memory<B>) {
        self.post_full(stack, now, memory);
        if self.held.len() == 1 && self.may_go_small(stack) {
            self.post(stack, now, memory);
        }
        if self.held.is_empty() {
            self.urgency = Urgency::Unpushed;
            if self.end == End::Wanted {
                self.end = End::Sent;
                stack.close(self.conn);
            }
        }
    }

    /// Gives back what is held, when the connection is given up.
    pub fn release(&mut self, memory: &mut impl Memory<B>) {
        for filling in self.held.drain(..) {
            memory.free(filling.buf);
        }
    }

    fn hurry(&mut self, urgency: Urgency) {
        if !self.held.is_empty() {
            self.urgency = self.urgency.max(urgency);
        }
    }

    /// Whether a segment that is not full may go, as far as the bytes behind it are concerned.
    fn may_go_small(&self, stack: &Stack<B>) -> bool {
        match self.urgency {
            Urgency::Unpushed => false,
            Urgency::Pushed => self.nodelay || self.small_acknowledged(stack),
            Urgency::Flushed => true,
        }
    }

    /// Whether every small segment sent so far is acknowledged.
    fn small_acknowledged(&self, stack: &Stack<B>) -> bool {
        let queued = stack.queued_segments(self.conn) as u64;
        self.posted.saturating_sub(queued) >= self.small
    }

    /// Has buffers for as many segments of `cut` bytes as can go now, and one to hold back. False
    /// when there is no place for another byte.
    fn make_places(&mut self, stack: &Stack<B>, memory: &mut impl Memory<B>, cut: usize) -> bool {
        let full = |filling: &Filling<B>| filling.len >= cut;
        let backed_up = self.held.len() > 1 || self.held.front().is_some_and(full);
        if backed_up || cut == 0 || self.end != End::Open {
            return false;
        }
        let limit = stack.config().send_queue_segments;
        let queue = limit.saturating_sub(stack.queued_segments(self.conn));
        let can_go = (stack.send_room(self.conn) / cut).min(queue);
        // Behind a probe segments are smaller again.
        let wanted = if stack.wants_probe(self.conn) {
            1
        } else {
            (can_go + 1).min(PLACES)
        };
        while self.held.len() < wanted {
            let Some(buf) = memory.alloc() else {
                break;
            };
            self.held.push_back(Filling { buf, len: 0 });
        }
        !self.held.is_empty()
    }

    /// Gives the stack all that need not wait for more bytes, as far as it can go now.
    fn post_full(&mut self, stack: &mut Stack<B>, now: Instant, memory: &mut impl Memory<B>) {
        loop {
            let cut = stack.cut(self.conn);
            let full = self.held.front().is_some_and(|front| front.len >= cut);
            let due = self.held.len() > 1 || full;
            if !due || !self.post(stack, now, memory) {
                break;
            }
        }
    }

    /// Gives the first segment to the stack, as much of it as one may have, if it can go now. False
    /// when nothing was given.
    fn post(&mut self, stack: &mut Stack<B>, now: Instant, memory: &mut impl Memory<B>) -> bool {
        let Some(mut filling) = self.held.pop_front() else {
            return false;
        };
        // It may change with each segment.
        let cut = stack.cut(self.conn);
        let len = filling.len.min(cut);
        if len == 0 || stack.send_room(self.conn) < len {
            self.held.push_front(filling);
            return false;
        }
        if len < filling.len {
            // Segments have become smaller since it was filled.
            let Some(rest) = filling.cut_off(memory, len) else {
                self.held.push_front(filling);
                return false;
            };
            self.held.push_front(rest);
        }
        let payload = memory.payload_mut(&mut filling.buf);
        let outgoing = Outgoing {
            len: len as u32,
            payload_sum: checksum::sum(&payload[..len]),
            buf: filling.buf,
        };
        match stack.send(self.conn, now, outgoing) {
            Ok(()) => {
                self.posted += 1;
                if len < cut {
                    self.small = self.posted;
                }
                true
            }
            Err(refused) => {
                // The room was asked for: the connection was closed by somebody else.
                memory.free(refused.buf);
                false
            }
        }
    }
}

impl<B> Filling<B> {
    /// Where more bytes can be put, up to `cut` in all.
    fn place<'a>(&'a mut self, memory: &'a impl Memory<B>, cut: usize) -> &'a mut [u8] {
        let place = memory.payload_mut(&mut self.buf);
        let most = cut.min(place.len());
        place.get_mut(self.len..most).unwrap_or_default()
    }

    /// Moves what is behind the first `len` bytes to a segment of its own.
    fn cut_off(&mut self, memory: &mut impl Memory<B>, len: usize) -> Option<Self> {
        let mut buf = memory.alloc()?;
        let behind = &memory.payload_mut(&mut self.buf)[len..self.len];
        let rest = behind.len();
        memory.payload_mut(&mut buf)[..rest].copy_from_slice(behind);
        self.len = len;
        Some(Self { buf, len: rest })
    }
}
