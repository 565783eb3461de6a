//! The in-order reader: keeps received buffers until the bytes in them have their turn.
//!
//! It holds the buffers that segments came in, and copies only where those would be too many: a
//! peer that sends tiny segments could otherwise hold a buffer for each byte of the window. Beyond
//! the bound everything held is copied to a ring of the window's size, until that is empty again.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use super::Memory;
use super::ring::Ring;
use crate::interface::Received;
use crate::seq::StreamOffset;

/// Puts the bytes that one connection receives in order.
#[derive(Debug)]
pub struct ByteReader<B> {
    /// Everything before this was read.
    consumed: StreamOffset,
    /// Everything before this is here.
    in_order: StreamOffset,
    /// One past the end of what is here, in order or not.
    furthest: StreamOffset,
    /// In ascending order, without overlap; empty while `ring` is in use.
    pieces: VecDeque<Piece>,
    held: Held<B>,
    ring: Ring,
    copying: bool,
    /// Bytes that may lie beyond `consumed`.
    window: usize,
    pieces_max: usize,
}

/// Bytes of the stream within one buffer.
#[derive(Debug, Clone, Copy)]
struct Piece {
    offset: StreamOffset,
    /// Place in `Held`.
    buffer: u32,
    start: u32,
    len: u32,
}

impl<B> ByteReader<B> {
    /// Nothing has come yet. `window` is [`crate::Config::receive_window`], or two segments where
    /// that is more. At most `pieces_max` buffers are held; reserve as many for it.
    pub fn new(window: usize, pieces_max: usize) -> Self {
        Self {
            consumed: 0,
            in_order: 0,
            furthest: 0,
            pieces: VecDeque::new(),
            held: Held::default(),
            ring: Ring::default(),
            copying: false,
            window,
            pieces_max,
        }
    }

    /// Bytes that can be read now.
    pub fn available(&self) -> usize {
        (self.in_order - self.consumed) as usize
    }

    /// Everything before this position was read: what [`crate::Stack::consumed`] is to be told.
    pub fn consumed_to(&self) -> StreamOffset {
        self.consumed
    }

    /// Buffers that are held.
    pub fn buffers(&self) -> usize {
        self.held.count
    }

    /// Whether bytes are copied at present instead of held in their buffers.
    pub fn is_copying(&self) -> bool {
        self.copying
    }

    /// Takes what a segment brought, in the buffer that it came in; its payload begins `payload_at`
    /// bytes into [`Memory::bytes`]. The buffer goes back to `memory` when nobody needs it.
    ///
    /// False when the bytes are not those of a segment that the connection's stack has just
    /// received: then nothing was taken.
    pub fn arrived(
        &mut self,
        memory: &mut impl Memory<B>,
        buf: B,
        payload_at: usize,
        received: &Received,
    ) -> bool {
        let edge = self.consumed + self.window as u64;
        let whole = memory.bytes(&buf).len();
        let sane = received.new.iter().all(|range| {
            let end = range.offset.saturating_add(range.len.into());
            let stop = payload_at + range.skip as usize + range.len as usize;
            range.offset >= self.consumed && end <= edge && stop <= whole
        });
        if !sane || received.new.is_empty() {
            memory.free(buf);
            return sane;
        }
        self.in_order = self.in_order.max(received.in_order_to);
        for range in received.new.iter() {
            self.furthest = self.furthest.max(range.offset + u64::from(range.len));
        }
        if self.pieces.len() + received.new.len() > self.pieces_max {
            self.copy(memory);
        }
        if self.copying {
            let bytes = memory.bytes(&buf);
            for range in received.new.iter() {
                let start = payload_at + range.skip as usize;
                self.ring
                    .put(range.offset, &bytes[start..start + range.len as usize]);
            }
            memory.free(buf);
            return true;
        }
        let buffer = self.held.hold(buf, received.new.len());
        for range in received.new.iter() {
            self.insert(Piece {
                offset: range.offset,
                buffer,
                start: (payload_at + range.skip as usize) as u32,
                len: range.len,
            });
        }
        true
    }

    /// The bytes that can be read now, as slices in order; says how many slices were filled. More
    /// may follow behind them once they are [`ByteReader::consume`]d.
    pub fn slices<'a>(&'a self, memory: &'a impl Memory<B>, out: &mut [&'a [u8]]) -> usize {
        let mut filled = 0;
        let mut put = |bytes: &'a [u8]| {
            let Some(place) = out.get_mut(filled) else {
                return false;
            };
            *place = bytes;
            filled += 1;
            true
        };
        if self.copying {
            let halves = self.ring.get(self.consumed, self.available());
            for half in halves.into_iter().filter(|half| !half.is_empty()) {
                put(half);
            }
            return filled;
        }
        for piece in &self.pieces {
            let readable = piece.offset < self.in_order;
            let Some(buf) = self.held.get(piece.buffer).filter(|_| readable) else {
                break;
            };
            let start = piece.start as usize;
            if !put(&memory.bytes(buf)[start..start + piece.len as usize]) {
                break;
            }
        }
        filled
    }

    /// The first `bytes` of those that can be read were read. Tell [`crate::Stack::consumed`] the
    /// position that comes out: only that lets the peer send more.
    pub fn consume(&mut self, memory: &mut impl Memory<B>, bytes: usize) -> StreamOffset {
        self.consumed += bytes.min(self.available()) as u64;
        while let Some(piece) = self.pieces.front_mut() {
            let read = self.consumed.saturating_sub(piece.offset);
            if read < u64::from(piece.len) {
                piece.offset += read;
                piece.start += read as u32;
                piece.len -= read as u32;
                break;
            }
            let buffer = piece.buffer;
            self.pieces.pop_front();
            if let Some(buf) = self.held.release(buffer) {
                memory.free(buf);
            }
        }
        if self.consumed == self.furthest {
            self.copying = false;
        }
        self.consumed
    }

    /// Drops what was not read; nothing more is expected.
    pub fn clear(&mut self, memory: &mut impl Memory<B>) {
        while let Some(piece) = self.pieces.pop_front() {
            if let Some(buf) = self.held.release(piece.buffer) {
                memory.free(buf);
            }
        }
        self.in_order = self.consumed;
        self.furthest = self.consumed;
        self.copying = false;
    }

    fn insert(&mut self, piece: Piece) {
        // Nearly always behind all others.
        let last = self.pieces.back().map(|last| last.offset);
        if last.is_none_or(|last| last < piece.offset) {
            self.pieces.push_back(piece);
        } else {
            let at = self.pieces.partition_point(|p| p.offset < piece.offset);
            self.pieces.insert(at, piece);
        }
    }

    /// Copies what is held, and from now on what comes.
    fn copy(&mut self, memory: &mut impl Memory<B>) {
        self.copying = true;
        self.ring.open(self.window);
        while let Some(piece) = self.pieces.pop_front() {
            if let Some(buf) = self.held.get(piece.buffer) {
                let start = piece.start as usize;
                let bytes = &memory.bytes(buf)[start..start + piece.len as usize];
                self.ring.put(piece.offset, bytes);
            }
            if let Some(buf) = self.held.release(piece.buffer) {
                memory.free(buf);
            }
        }
    }
}

/// Buffers, each with the number of pieces that lie in it.
#[derive(Debug)]
struct Held<B> {
    places: Vec<Option<(B, usize)>>,
    vacant: Vec<u32>,
    count: usize,
}

impl<B> Default for Held<B> {
    fn default() -> Self {
        Self {
            places: Vec::new(),
            vacant: Vec::new(),
            count: 0,
        }
    }
}

impl<B> Held<B> {
    /// Keeps a buffer until it was released `pieces` times.
    fn hold(&mut self, buf: B, pieces: usize) -> u32 {
        self.count += 1;
        match self.vacant.pop() {
            Some(place) => {
                self.places[place as usize] = Some((buf, pieces));
                place
            }
            None => {
                self.places.push(Some((buf, pieces)));
                (self.places.len() - 1) as u32
            }
        }
    }

    fn get(&self, place: u32) -> Option<&B> {
        self.places
            .get(place as usize)?
            .as_ref()
            .map(|(buf, _)| buf)
    }

    /// One piece less; with the last one the buffer comes out.
    fn release(&mut self, place: u32) -> Option<B> {
        let slot = self.places.get_mut(place as usize)?;
        let (_, pieces) = slot.as_mut()?;
        *pieces -= 1;
        if *pieces > 0 {
            return None;
        }
        self.count -= 1;
        self.vacant.push(place);
        slot.take().map(|(buf, _)| buf)
    }
}
