//! Flow control of an rsocket's two directions: what may be sent where, what has come and where it lies,
//! and what the peer is to be told. It knows no queue pair and no memory.
//!
//! The receiver's ring is two halves, each a target of the sender's: a half is granted again when as many
//! bytes were read. Beside that a sender may have only so many data messages unread (credits).

use std::collections::VecDeque;

use super::wire::{Entry, Hello, TARGETS};

/// Sending waits until so many bytes of the send ring are free, as poll(2) and its programs expect.
pub(crate) const SEND_LOW: u32 = 2048;

/// The most bytes of one data message: several fit a half of an ordinary ring, so that writing, sending and
/// reading go on at the same time.
const MESSAGE_MAX: u32 = 32 * 1024;

/// Slots of the send queue that a data message takes: the RDMA Write and the Send.
const DATA_SLOTS: u32 = 2;

/// Work on control messages that may be under way, of which a message with a target is two.
const CONTROL_MAX: u32 = 4;

/// The peer did what the protocol does not allow.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Broken(pub(crate) &'static str);

/// Bytes of the send ring that are to be written to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) offset: u32,
    pub(crate) to: Entry,
}

#[derive(Debug)]
pub(crate) struct Sender {
    targets: [Entry; TARGETS],
    current: usize,
    /// Data messages sent, and the count at which to stop.
    sent: u16,
    stop_at: u16,
    slots: u32,
    ring: u32,
    /// Where the next bytes go in the ring, and how many of its bytes are not under way.
    at: u32,
    free: u32,
    low: u32,
}

impl Sender {
    /// `slots` of a send queue and a ring of so many bytes, to a peer that said `hello`.
    pub(crate) fn new(hello: &Hello, ring: u32, slots: u32) -> Self {
        let mut targets = [Entry::default(); TARGETS];
        targets[0] = hello.buffer;
        Self {
            targets,
            current: 0,
            sent: 0,
            stop_at: hello.credits,
            slots,
            ring,
            at: 0,
            free: ring,
            low: SEND_LOW.min(ring),
        }
    }

    /// Whether the queue, the ring and the peer's credits let one more message go.
    fn may_send(&self) -> bool {
        self.slots >= DATA_SLOTS && self.free >= self.low && self.sent != self.stop_at
    }

    /// Bytes of the next data message, at most; 0: none may be sent now.
    pub(crate) fn room(&self) -> u32 {
        match self.may_send() {
            true => self.part_within(self.targets[self.current].length),
            false => 0,
        }
    }

    /// The same for memory that the peer has mapped, of which `left` bytes follow.
    pub(crate) fn room_within(&self, left: u64) -> u32 {
        match self.may_send() {
            true => self.part_within(u32::try_from(left).unwrap_or(u32::MAX)),
            false => 0,
        }
    }

    fn part_within(&self, length: u32) -> u32 {
        length
            .min(self.free)
            .min(self.ring - self.at)
            .min(MESSAGE_MAX)
    }

    /// Takes `bytes` of the ring, at most [`Self::room`], for a data message.
    pub(crate) fn take(&mut self, bytes: u32) -> Part {
        let offset = self.take_ring(bytes, DATA_SLOTS);
        self.sent = self.sent.wrapping_add(1);
        let target = &mut self.targets[self.current];
        let to = Entry {
            length: bytes,
            ..*target
        };
        target.addr = target.addr.wrapping_add(bytes.into());
        target.length -= bytes;
        if target.length == 0 {
            self.current = (self.current + 1) % TARGETS;
        }
        Part { offset, to }
    }

    /// Takes `bytes` of the ring, at most [`Self::room_within`], for an RDMA Write alone.
    pub(crate) fn take_direct(&mut self, bytes: u32) -> u32 {
        self.take_ring(bytes, 1)
    }

    fn take_ring(&mut self, bytes: u32, slots: u32) -> u32 {
        debug_assert!(bytes <= self.ring - self.at && bytes <= self.free && slots <= self.slots);
        let offset = self.at;
        self.at = (self.at + bytes) % self.ring;
        self.free -= bytes;
        self.slots -= slots;
        offset
    }

    /// Takes what an entry of the peer's table of mapped memory needs: it counts as a data message.
    pub(crate) fn take_iomap(&mut self) -> bool {
        let may = self.may_send();
        if may {
            self.slots -= DATA_SLOTS;
            self.sent = self.sent.wrapping_add(1);
        }
        may
    }

    /// A data message has left.
    pub(crate) fn message_left(&mut self, bytes: u32) {
        self.left(bytes, DATA_SLOTS);
    }

    /// An RDMA Write alone has left.
    pub(crate) fn direct_left(&mut self, bytes: u32) {
        self.left(bytes, 1);
    }

    fn left(&mut self, bytes: u32, slots: u32) {
        self.free = (self.free + bytes).min(self.ring);
        self.slots += slots;
    }

    /// The peer lets data messages go up to this count.
    pub(crate) fn allow(&mut self, upto: u16) {
        self.stop_at = upto;
    }

    /// A target of the table is used up, so what the peer wrote there is new.
    pub(crate) fn lacks(&self, index: usize) -> bool {
        self.targets[index].length == 0
    }

    pub(crate) fn set_target(&mut self, index: usize, target: Entry) {
        self.targets[index] = target;
    }
}

/// What the peer is to be notified of the receiving direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    /// Where in the ring the half begins that is granted, if one is.
    pub(crate) half_at: Option<u32>,
    /// The count of data messages up to which the peer may send.
    pub(crate) upto: u16,
}

#[derive(Debug)]
pub(crate) struct Receiver {
    half: u32,
    credits: u16,
    /// Bytes left of each data message that was not wholly read.
    messages: VecDeque<u32>,
    unread: u32,
    /// Where the next byte to read lies in the ring.
    at: u32,
    /// Bytes that the peer may still write.
    granted: u32,
    /// Bytes that were read, or never granted, since the last grant.
    freed: u32,
    half_at: u32,
    /// Data messages wholly read, and the count at which the peer is notified of it.
    read: u16,
    tell_at: u16,
}

impl Receiver {
    /// A ring of two halves, and `credits` data messages. The first half is granted to begin with.
    pub(crate) fn new(half: u32, credits: u16) -> Self {
        Self {
            half,
            credits,
            messages: VecDeque::with_capacity(credits.into()),
            unread: 0,
            at: 0,
            granted: half,
            freed: half,
            half_at: half,
            read: 0,
            tell_at: credits / 2,
        }
    }

    pub(crate) fn has_data(&self) -> bool {
        self.unread > 0
    }

    /// A data message has come.
    pub(crate) fn arrived(&mut self, bytes: u32) -> Result<(), Broken> {
        if bytes > self.granted {
            return Err(Broken("more data than was granted"));
        }
        if self.messages.len() >= self.credits.into() {
            return Err(Broken("more data messages than were granted"));
        }
        if bytes == 0 {
            self.count_read();
            return Ok(());
        }
        self.granted -= bytes;
        self.unread += bytes;
        self.messages.push_back(bytes);
        Ok(())
    }

    /// A message that counts as data and has none.
    pub(crate) fn count_read(&mut self) {
        self.read = self.read.wrapping_add(1);
    }

    /// Where unread bytes lie, the first `skip` of them left out, and how many follow each other there.
    pub(crate) fn unread_from(&self, skip: u32) -> (u32, u32) {
        let ring = 2 * self.half;
        let at = (self.at + skip) % ring;
        (at, (self.unread - skip).min(ring - at))
    }

    /// The first `bytes` were read.
    pub(crate) fn consume(&mut self, bytes: u32) {
        debug_assert!(bytes <= self.unread);
        self.unread -= bytes;
        self.freed += bytes;
        self.at = (self.at + bytes) % (2 * self.half);
        let mut left = bytes;
        while let Some(first) = self.messages.front_mut() {
            if *first > left {
                *first -= left;
                break;
            }
            left -= *first;
            self.messages.pop_front();
            self.count_read();
        }
    }

    /// What the peer is to be told now.
    pub(crate) fn due(&self) -> Option<Grant> {
        let half = self.freed >= self.half;
        // The counts go round.
        let many_read = (self.read.wrapping_sub(self.tell_at) as i16) >= 0;
        (half || many_read).then_some(Grant {
            half_at: half.then_some(self.half_at),
            upto: self.read.wrapping_add(self.credits),
        })
    }

    pub(crate) fn told(&mut self, grant: Grant) {
        self.tell_at = self.read.wrapping_add(self.credits / 2);
        if grant.half_at.is_some() {
            self.freed -= self.half;
            self.granted += self.half;
            self.half_at = self.half - self.half_at;
        }
    }
}

/// Control messages that are under way.
#[derive(Debug, Default)]
pub(crate) struct Control {
    under_way: u32,
}

impl Control {
    /// Slots of the send queue that they may take.
    pub(crate) const SLOTS: u32 = CONTROL_MAX;

    /// Takes `work` of them. Two of them are grants, so that there is one for an end.
    pub(crate) fn take(&mut self, work: u32, keep: u32) -> bool {
        let may = self.under_way + work + keep <= CONTROL_MAX;
        if may {
            self.under_way += work;
        }
        may
    }

    pub(crate) fn left(&mut self, work: u32) {
        self.under_way = self.under_way.saturating_sub(work);
    }
}

#[cfg(test)]
mod tests;
