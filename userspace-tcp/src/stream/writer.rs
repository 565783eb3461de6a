//! The coalescing sender: octets become segments as large as they may be.
//!
//! At most one segment is held back here; everything else is in the stack's queue. A small segment
//! waits while more may join it: until its octets are pushed, and then by Nagle's rule (RFC 9293
//! section 3.7.4) in the form of its appendix A.3, which lets the small end of a large write go at
//! once, but never a second small segment before the first one is acknowledged.

#[cfg(test)]
mod tests;

use super::Memory;
use crate::checksum;
use crate::interface::{ConnId, Outgoing};
use crate::stack::Stack;
use crate::time::Instant;

/// Sends the octets of one connection. It must be the only one that calls [`Stack::send`] and
/// [`Stack::close`] for it.
#[derive(Debug)]
pub struct ByteWriter<B> {
    conn: ConnId,
    filling: Option<Filling<B>>,
    nodelay: bool,
    urgency: Urgency,
    end: End,
    /// Segments given to the stack so far.
    posted: u64,
    /// `posted` as it was behind the last small segment.
    small: u64,
    octets: u64,
}

/// The segment that is held back.
#[derive(Debug)]
struct Filling<B> {
    buf: B,
    len: usize,
}

/// What a segment that is not full waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Urgency {
    /// More octets.
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
            filling: None,
            nodelay,
            urgency: Urgency::Unpushed,
            end: End::Open,
            posted: 0,
            small: 0,
            octets: 0,
        }
    }

    /// Octets that [`ByteWriter::write`] would take now, more or less: 0 when it would take none.
    pub fn room(&self, stack: &Stack<B>) -> usize {
        if self.end != End::Open {
            return 0;
        }
        let cut = stack.cut(self.conn);
        let held = self.held().min(cut);
        stack.send_room(self.conn).max(cut) - held
    }

    /// Octets that are held back because their segment is not full or there is no room for it.
    pub fn held(&self) -> usize {
        self.filling.as_ref().map_or(0, |filling| filling.len)
    }

    /// Octets taken so far.
    pub fn octets(&self) -> u64 {
        self.octets
    }

    /// Takes octets as far as the windows, the queue and `memory` have room; says how many. The
    /// last ones wait for company until they are pushed. Takes nothing before the connection is
    /// established, after [`ByteWriter::close`], and when it is gone.
    pub fn write(
        &mut self,
        stack: &mut Stack<B>,
        now: Instant,
        memory: &mut impl Memory<B>,
        octets: &[u8],
    ) -> usize {
        let mut rest = octets;
        while !rest.is_empty() && self.end == End::Open {
            let cut = stack.cut(self.conn);
            if !self.make_place(stack, now, memory, cut) {
                break;
            }
            let Some(filling) = &mut self.filling else {
                break;
            };
            let place = memory.payload_mut(&mut filling.buf);
            let most = cut.min(place.len());
            let Some(place) = place.get_mut(filling.len..most) else {
                break;
            };
            let (taken, behind) = rest.split_at(place.len().min(rest.len()));
            if taken.is_empty() {
                break;
            }
            place[..taken.len()].copy_from_slice(taken);
            filling.len += taken.len();
            rest = behind;
        }
        let cut = stack.cut(self.conn);
        if self.held() >= cut {
            self.post(stack, now, memory, cut);
        }
        let taken = octets.len() - rest.len();
        self.octets += taken as u64;
        taken
    }

    /// No more octets come for now: what was written goes as soon as Nagle's rule lets it.
    pub fn push(&mut self, stack: &mut Stack<B>, now: Instant, memory: &mut impl Memory<B>) {
        self.hurry(Urgency::Pushed);
        self.settle(stack, now, memory);
    }

    /// What was written goes as soon as the windows have room for it, whatever Nagle's rule says.
    pub fn flush(&mut self, stack: &mut Stack<B>, now: Instant, memory: &mut impl Memory<B>) {
        self.hurry(Urgency::Flushed);
        self.settle(stack, now, memory);
    }

    /// Sends FIN behind the last octet written; nothing more can be written.
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
        loop {
            let cut = stack.cut(self.conn);
            let held = self.held();
            let due = held > 0 && (held >= cut || self.may_go_small(stack));
            if !due || !self.post(stack, now, memory, cut) {
                break;
            }
        }
        if self.held() == 0 {
            self.urgency = Urgency::Unpushed;
            if self.end == End::Wanted {
                self.end = End::Sent;
                stack.close(self.conn);
            }
        }
    }

    /// The buffer that is held back, when the connection is given up.
    pub fn release(&mut self, memory: &mut impl Memory<B>) {
        if let Some(filling) = self.filling.take() {
            memory.free(filling.buf);
        }
    }

    fn hurry(&mut self, urgency: Urgency) {
        if self.filling.is_some() {
            self.urgency = self.urgency.max(urgency);
        }
    }

    /// Whether a segment that is not full may go, as far as the octets behind it are concerned.
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

    /// Makes a place for at least one more octet. False when there is none.
    fn make_place(
        &mut self,
        stack: &mut Stack<B>,
        now: Instant,
        memory: &mut impl Memory<B>,
        cut: usize,
    ) -> bool {
        if self.held() >= cut && !self.post(stack, now, memory, cut) {
            return false;
        }
        if self.filling.is_none() && cut > 0 {
            self.filling = memory.alloc().map(|buf| Filling { buf, len: 0 });
            self.urgency = Urgency::Unpushed;
        }
        self.filling.is_some()
    }

    /// Gives what is held to the stack, at most `cut` octets of it, if it can go now. False when
    /// nothing was given.
    fn post(
        &mut self,
        stack: &mut Stack<B>,
        now: Instant,
        memory: &mut impl Memory<B>,
        cut: usize,
    ) -> bool {
        let len = self.held().min(cut);
        if len == 0 || stack.send_room(self.conn) < len {
            return false;
        }
        let Some(mut filling) = self.filling.take() else {
            return false;
        };
        if len < filling.len {
            // Segments have become smaller since it was filled.
            let Some(rest) = cut_off(memory, &mut filling, len) else {
                self.filling = Some(filling);
                return false;
            };
            self.filling = Some(rest);
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

/// Moves what is behind the first `len` octets to a segment of its own.
fn cut_off<B>(
    memory: &mut impl Memory<B>,
    filling: &mut Filling<B>,
    len: usize,
) -> Option<Filling<B>> {
    let mut buf = memory.alloc()?;
    let behind = &memory.payload_mut(&mut filling.buf)[len..filling.len];
    let rest = behind.len();
    memory.payload_mut(&mut buf)[..rest].copy_from_slice(behind);
    filling.len = len;
    Some(Filling { buf, len: rest })
}
