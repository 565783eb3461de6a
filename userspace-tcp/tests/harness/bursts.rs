//! What a stack has to send, in bursts where it gives some.

use userspace_net::{FourTuple, Instant};
use userspace_tcp::{BurstHead, BurstSegment, Link, Stack, Transmit};

/// A link that gathers what it is given.
struct Gathering<B> {
    head: Option<(FourTuple, BurstHead)>,
    segments: Vec<Transmit<B>>,
}

impl<B> Link<B> for Gathering<B> {
    fn begin(&mut self, tuple: &FourTuple, head: &BurstHead) {
        let before = self.head.replace((*tuple, *head));
        assert!(before.is_none(), "one head for a burst");
    }

    fn put(&mut self, segment: BurstSegment<B>) -> Option<B> {
        let (tuple, head) = self.head.as_ref().expect("the head comes first");
        self.segments.push(segment.with(tuple, head));
        None
    }

    fn send(&mut self, segment: Transmit<B>) {
        assert!(self.head.is_none() && self.segments.is_empty());
        self.segments.push(segment);
    }
}

/// The next segments, `most` at most: a burst, or one. Empty when there is nothing.
pub fn next_segments<B>(stack: &mut Stack<B>, now: Instant, most: usize) -> Vec<Transmit<B>> {
    let mut link = Gathering {
        head: None,
        segments: Vec::new(),
    };
    let sent = stack.transmit(now, most, &mut link);
    assert_eq!(sent, link.segments.len());
    assert!(sent <= most);
    link.segments
}
