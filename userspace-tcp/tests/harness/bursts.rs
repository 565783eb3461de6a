//! What a stack has to send, by bursts where it gives some.

use userspace_tcp::{
    BurstHead, BurstLink, BurstSegment, ConnId, Flags, FourTuple, Instant, Options, Payload, Stack,
    TcpHeader, Transmit,
};

/// A link that makes of each segment of a burst what [`Stack::poll_transmit`] gives.
struct Gathering<B> {
    head: Option<(FourTuple, BurstHead)>,
    segments: Vec<Transmit<B>>,
}

impl<B> BurstLink<B> for Gathering<B> {
    fn takes(&mut self, _: ConnId) -> bool {
        true
    }

    fn begin(&mut self, tuple: &FourTuple, head: &BurstHead) {
        let before = self.head.replace((*tuple, *head));
        assert!(before.is_none(), "one head for a burst");
    }

    fn put(&mut self, segment: BurstSegment<B>) -> Option<B> {
        let (tuple, head) = self.head.as_ref().expect("the head comes first");
        self.segments.push(transmit_of(*tuple, head, segment));
        None
    }
}

/// A segment of a burst with all that it says.
pub fn transmit_of<B>(tuple: FourTuple, head: &BurstHead, segment: BurstSegment<B>) -> Transmit<B> {
    let push = if segment.push {
        Flags::PSH
    } else {
        Flags::default()
    };
    Transmit {
        conn: Some(head.conn),
        tuple,
        header: TcpHeader {
            source_port: tuple.local.port,
            destination_port: tuple.remote.port,
            seq: segment.seq,
            ack: head.ack,
            flags: head.flags | push,
            window: head.window,
            urgent: 0,
            options: Options {
                timestamps: head.timestamps,
                ..Options::default()
            },
        },
        payload: Some(Payload {
            id: segment.id,
            buf: segment.buf,
            len: segment.len,
            sum: segment.sum,
            retransmission: false,
            lost: None,
        }),
        ecn: head.ecn,
        fragment_to: None,
    }
}

/// The next segments, `most` at most: a burst, or one. Empty when there is nothing.
pub fn next_segments<B>(stack: &mut Stack<B>, now: Instant, most: usize) -> Vec<Transmit<B>> {
    let mut link = Gathering {
        head: None,
        segments: Vec::new(),
    };
    let sent = stack.poll_burst(now, most, &mut link);
    assert_eq!(sent, link.segments.len());
    assert!(sent <= most && link.head.is_some() == (sent > 0));
    if sent == 0 {
        link.segments.extend(stack.poll_transmit(now));
    }
    link.segments
}
