//! Segments that are not acknowledged, in the order of the stream, and which of them go out next.

use std::collections::VecDeque;

use rnic_xsk::Frame;
use userspace_tcp::SeqNum;

/// A segment but for what differs from one transmission to the next.
#[derive(Debug)]
pub(super) struct Segment {
    /// None while the link has it.
    frame: Option<Frame>,
    seq: SeqNum,
    /// Bytes behind its headers, and their sum.
    bytes: usize,
    sum: u16,
}

/// A segment that is to be sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Outgoing {
    /// Comes back with the frame.
    pub(super) number: u64,
    pub(super) frame: Frame,
    pub(super) seq: SeqNum,
    pub(super) bytes: usize,
    pub(super) sum: u16,
}

/// What an acknowledgment says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// Something of these segments has arrived.
    Arrived,
    /// What the last one said, while there is more under way: something is missing.
    Same,
    /// Something older, or of what was never sent.
    None,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Kept {
    segments: VecDeque<Segment>,
    /// The number of the first one: of those that were acknowledged.
    first: u64,
    /// Of these segments so many have been sent since it was gone back.
    sent: usize,
    /// Where the next one will begin.
    next: SeqNum,
}

impl Kept {
    /// Room for so many.
    pub(super) fn new(most: usize) -> Self {
        Self {
            segments: VecDeque::with_capacity(most),
            first: 0,
            sent: 0,
            next: SeqNum(0),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.segments.len()
    }

    /// How many were acknowledged.
    pub(super) fn acknowledged(&self) -> u64 {
        self.first
    }

    /// Whether each has been sent since it was gone back.
    pub(super) fn are_sent(&self) -> bool {
        self.sent == self.segments.len()
    }

    /// One more, behind all others.
    #[inline]
    pub(super) fn push(&mut self, frame: Frame, bytes: usize, sum: u16) {
        self.segments.push_back(Segment {
            frame: Some(frame),
            seq: self.next,
            bytes,
            sum,
        });
        // A frame's bytes are far below 2^32.
        self.next = self.next.add(bytes as u32);
    }

    /// The next to be sent; none when all are sent, or the link has it yet.
    #[inline]
    pub(super) fn take_next(&mut self) -> Option<Outgoing> {
        let segment = self.segments.get_mut(self.sent)?;
        let outgoing = Outgoing {
            number: self.first + self.sent as u64,
            frame: segment.frame.take()?,
            seq: segment.seq,
            bytes: segment.bytes,
            sum: segment.sum,
        };
        self.sent += 1;
        Some(outgoing)
    }

    /// The link did not take what was to be sent.
    pub(super) fn refused(&mut self, frame: Frame) {
        self.sent -= 1;
        self.segments[self.sent].frame = Some(frame);
    }

    /// The link is done with a frame, which comes back when it is not needed any more.
    #[inline]
    pub(super) fn returned(&mut self, number: u64, frame: Frame) -> Option<Frame> {
        let index = number.checked_sub(self.first);
        let index = index.and_then(|index| usize::try_from(index).ok());
        match index.and_then(|index| self.segments.get_mut(index)) {
            Some(segment) => segment.frame.replace(frame),
            None => Some(frame),
        }
    }

    /// All before `ack` have arrived; gives their frames to `free`, but for those that the link has.
    pub(super) fn acknowledge(&mut self, ack: SeqNum, mut free: impl FnMut(Frame)) -> News {
        let una = self.segments.front().map_or(self.next, |first| first.seq);
        let more = self.next.distance(una);
        match ack.distance(una) {
            0 if more > 0 => return News::Same,
            1.. if self.next.distance(ack) >= 0 => {}
            _ => return News::None,
        }
        let end = |segment: &Segment| segment.seq.add(segment.bytes as u32);
        while let Some(segment) = self.segments.pop_front_if(|first| !ack.before(end(first))) {
            if let Some(frame) = segment.frame {
                free(frame);
            }
            self.first += 1;
            self.sent = self.sent.saturating_sub(1);
        }
        News::Arrived
    }

    /// All go again.
    pub(super) fn go_back(&mut self) {
        self.sent = 0;
    }
}

#[cfg(test)]
mod tests;
