//! One connection as a socket has it: a buffer to send from, a reader, and what has become of it.

use std::collections::VecDeque;

use userspace_net::{FourTuple, Instant};
use userspace_tcp::stream::{ByteReader, ByteWriter, Memory};
use userspace_tcp::{ConnId, Event, Received, SoftError, Stack};

use crate::errno::Errno;

/// The stack's buffers: bytes on the heap.
pub(crate) type Buffer = Vec<u8>;

/// Bytes that a socket takes to send before it blocks, sent and unsent together.
pub(crate) const SEND_BUFFER: usize = 256 << 10;
/// Buffers that a reader holds before it copies.
const PIECES: usize = 4096;

/// Where buffers come from.
#[derive(Debug)]
pub(crate) struct Heap {
    /// Bytes of payload that one takes.
    pub(crate) size: usize,
}

impl Memory<Buffer> for Heap {
    fn alloc(&mut self) -> Option<Buffer> {
        Some(vec![0; self.size])
    }

    fn free(&mut self, _: Buffer) {}

    fn bytes<'a>(&'a self, buf: &'a Buffer) -> &'a [u8] {
        buf
    }

    fn payload_mut<'a>(&'a self, buf: &'a mut Buffer) -> &'a mut [u8] {
        buf
    }
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Opening,
    Open,
    /// Closed in order by both, or ended.
    Over,
}

/// What of a connection its socket's options decide.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choices {
    pub(crate) nodelay: bool,
    pub(crate) corked: bool,
    /// close(2) resets.
    pub(crate) linger_zero: bool,
    pub(crate) send_buffer: usize,
}

impl Default for Choices {
    fn default() -> Self {
        Self {
            nodelay: false,
            corked: false,
            linger_zero: false,
            send_buffer: SEND_BUFFER,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) id: ConnId,
    pub(crate) tuple: FourTuple,
    pub(crate) stage: Stage,
    pub(crate) choices: Choices,
    /// What ended it, until it was told.
    pub(crate) error: Option<Errno>,
    /// The error to end with, if the peer does not answer any more.
    soft: Option<Errno>,
    pub(crate) peer_closed: bool,
    /// Nobody reads any more: shutdown(2).
    pub(crate) deaf: bool,
    /// Nothing is written any more: shutdown(2), close(2).
    pub(crate) closing: bool,
    /// close(2): no socket has it.
    pub(crate) orphan: bool,
    /// The last write said that more comes.
    pub(crate) more: bool,
    /// Bytes that the stack has not taken yet.
    unsent: VecDeque<u8>,
    writer: ByteWriter<Buffer>,
    reader: ByteReader<Buffer>,
}

impl Connection {
    pub(crate) fn new(id: ConnId, tuple: FourTuple, window: u32, choices: Choices) -> Self {
        Self {
            id,
            tuple,
            stage: Stage::Opening,
            choices,
            error: None,
            soft: None,
            peer_closed: false,
            deaf: false,
            closing: false,
            orphan: false,
            more: false,
            unsent: VecDeque::new(),
            writer: ByteWriter::new(id, false),
            reader: ByteReader::new(window as usize, PIECES),
        }
    }

    /// Takes notice of what the stack tells.
    pub(crate) fn on_event(&mut self, event: Event, heap: &mut Heap) {
        match event {
            Event::Incoming { .. } | Event::Established => self.stage = Stage::Open,
            Event::PeerClosed => self.peer_closed = true,
            Event::Closed | Event::TimeWaitOver => self.end(None, heap),
            Event::Reset => self.end(Some(libc::ECONNRESET), heap),
            Event::Refused => {
                let why = self.soft.map_or(libc::ECONNREFUSED, |soft| soft.0);
                self.end(Some(why), heap);
            }
            Event::TimedOut => {
                let why = self.soft.map_or(libc::ETIMEDOUT, |soft| soft.0);
                self.end(Some(why), heap);
            }
            Event::SoftError(SoftError::Unreachable { .. }) => {
                self.soft = Some(Errno(libc::EHOSTUNREACH));
            }
            Event::SoftError(SoftError::NoAnswer)
            | Event::MssChanged { .. }
            | Event::Urgent
            | Event::WindowTooSmall => {}
        }
    }

    fn end(&mut self, why: Option<i32>, heap: &mut Heap) {
        self.stage = Stage::Over;
        self.error = why.map(Errno).or(self.error);
        self.peer_closed = true;
        self.closing = true;
        self.unsent.clear();
        self.writer.release(heap);
    }

    /// Bytes that a write would take now.
    pub(crate) fn room(&self, stack: &Stack<Buffer>) -> usize {
        if self.stage != Stage::Open {
            return 0;
        }
        let in_stack = stack.queued_segments(self.id) * stack.mss(self.id);
        self.choices
            .send_buffer
            .saturating_sub(self.unsent.len() + in_stack)
    }

    /// Takes bytes to send, as many as there is room for.
    pub(crate) fn take(&mut self, stack: &Stack<Buffer>, bytes: &[u8]) -> usize {
        let taken = bytes.len().min(self.room(stack));
        self.unsent.extend(&bytes[..taken]);
        taken
    }

    /// Bytes written that the stack has not sent yet.
    pub(crate) fn unsent(&self) -> usize {
        self.unsent.len() + self.writer.held()
    }

    /// Gives the stack what it can take.
    pub(crate) fn feed(&mut self, stack: &mut Stack<Buffer>, now: Instant, heap: &mut Heap) {
        if self.stage != Stage::Open {
            return;
        }
        while !self.unsent.is_empty() {
            let (bytes, _) = self.unsent.as_slices();
            let taken = self.writer.write(stack, now, heap, bytes);
            if taken == 0 {
                break;
            }
            self.unsent.drain(..taken);
        }
        if self.unsent.is_empty() {
            if self.closing && !self.writer.is_closing() {
                self.writer.close(stack, now, heap);
            } else if self.choices.nodelay && !self.choices.corked && !self.more {
                self.writer.flush(stack, now, heap);
            } else if !self.choices.corked && !self.more {
                self.writer.push(stack, now, heap);
            }
        }
        self.writer.settle(stack, now, heap);
    }

    /// Sends what waits for more data, as taking off TCP_CORK and setting TCP_NODELAY do.
    pub(crate) fn flush(&mut self, stack: &mut Stack<Buffer>, now: Instant, heap: &mut Heap) {
        self.more = false;
        if self.stage == Stage::Open {
            self.writer.flush(stack, now, heap);
        }
    }

    /// Takes a received segment's payload.
    pub(crate) fn arrived(&mut self, heap: &mut Heap, payload: &[u8], received: &Received) {
        self.reader.arrived(heap, payload.to_vec(), 0, received);
    }

    /// Bytes that can be read now.
    pub(crate) fn available(&self) -> usize {
        self.reader.available()
    }

    /// Reads up to `most` bytes; with `peek` they stay.
    pub(crate) fn read(
        &mut self,
        stack: &mut Stack<Buffer>,
        heap: &mut Heap,
        most: usize,
        peek: bool,
    ) -> Vec<u8> {
        let mut bytes = Vec::new();
        // More slices may follow behind those that were consumed.
        loop {
            let begun = bytes.len();
            let mut slices: [&[u8]; 64] = [&[]; 64];
            let filled = self.reader.slices(heap, &mut slices);
            for slice in &slices[..filled] {
                let wanted = (most - bytes.len()).min(slice.len());
                bytes.extend_from_slice(&slice[..wanted]);
            }
            if !peek {
                let to = self.reader.consume(heap, bytes.len() - begun);
                stack.consumed(self.id, to);
            }
            if peek || bytes.len() == begun {
                return bytes;
            }
        }
    }
}
