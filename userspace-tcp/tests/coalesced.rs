//! Consecutive segments may be given to TCP as one ([`CoalescedInfo`]): neither the layer above nor the
//! peer can tell.

#![allow(clippy::unwrap_used)]

mod harness;

use harness::passive::{Passive, header, peer_seq, tuple};
use userspace_tcp::{
    CoalescedInfo, Flags, FlowHint, Options, SackBlock, Segment, SeqNum, TcpHeader,
};

/// Bytes of the segments, in turn. Those with Markers differ by a few (RFC 5044 section 4.3).
const LENS: [u32; 7] = [100, 536, 1, 1456, 1460, 1460, 300];

impl Passive {
    /// Segments number `first` and the `more` behind it, as one; the bytes that are new.
    fn take(&mut self, first: u32, more: u32) -> Vec<(u64, u32)> {
        self.take_showing(first, more, len(first))
    }

    /// The same, and the first segment's payload is shown as far as `shown` bytes of it.
    fn take_showing(&mut self, first: u32, more: u32, shown: u32) -> Vec<(u64, u32)> {
        let header = header(Flags::ACK, seq(first), self.ours);
        let payload = vec![0; shown as usize];
        let all = || (first..=first + more).map(len);
        let segment = Segment::new(header, &payload).with_coalesced(CoalescedInfo {
            segments: more,
            bytes: all().sum::<u32>() - shown,
            longest: all().max().unwrap_or(0),
        });
        let received = self.receive(&segment);
        let new = received.new.iter();
        let new = new.map(|range| (range.offset, range.len)).collect();
        self.stack.consumed(self.conn, received.in_order_to);
        new
    }

    /// Segments as one if they may be, else one by one; of each first one a part is shown.
    fn take_train(&mut self, first: u32, more: u32, part: u32) -> Vec<(u64, u32)> {
        let shown = |number| len(number).div_ceil(part);
        if self
            .stack
            .takes_together(&tuple(), FlowHint::default(), seq(first))
        {
            return self.take_showing(first, more, shown(first));
        }
        (first..=first + more)
            .flat_map(|number| self.take_showing(number, 0, shown(number)))
            .collect()
    }

    fn told(&mut self) -> Vec<TcpHeader> {
        std::iter::from_fn(|| self.stack.poll_transmit(self.now))
            .map(|transmit| transmit.header)
            .collect()
    }
}

/// Bytes of a segment.
fn len(number: u32) -> u32 {
    LENS[number as usize % LENS.len()]
}

/// Where a segment begins.
fn begins(number: u32) -> u32 {
    (0..number).map(len).sum()
}

fn seq(number: u32) -> SeqNum {
    peer_seq(begins(number))
}

fn joined(ranges: Vec<(u64, u32)>) -> Vec<(u64, u32)> {
    let mut out: Vec<(u64, u32)> = Vec::new();
    for (offset, len) in ranges {
        match out.last_mut() {
            Some(last) if last.0 + u64::from(last.1) == offset => last.1 += len,
            _ => out.push((offset, len)),
        }
    }
    out
}

#[test]
fn segments_taken_as_one_are_acknowledged_as_if_each_had_come_by_itself() {
    let mut state = 0x1234_5678_9abc_def1_u64;
    let mut below = |bound: u32| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) as u32 % bound
    };
    for _ in 0..500 {
        let (mut one_by_one, mut together) = (Passive::open(false), Passive::open(false));
        let mut next = 0;
        for _ in 0..20 {
            // Half of the trains are the next in order; with what was held behind them, or not.
            let first = if below(2) == 0 {
                next
            } else {
                below(next + 20)
            };
            let more = below(2) * below(16);
            let singles = (first..=first + more).flat_map(|number| one_by_one.take(number, 0));
            let singles = joined(singles.collect());
            let part = 1 + below(3);
            assert_eq!(joined(together.take_train(first, more, part)), singles);
            assert_eq!(one_by_one.told(), together.told());
            let info = together.stack.info(together.conn).unwrap();
            while u64::from(begins(next + 1)) <= info.counters.bytes_in {
                next += 1;
            }
        }
        let [one, other] = [&one_by_one, &together].map(|r| r.stack.info(r.conn).unwrap());
        assert_eq!(one.counters.segments_in, other.counters.segments_in);
        assert_eq!(one.counters.bytes_in, other.counters.bytes_in);
    }
}

/// What is promised of bytes before they are given is kept, up to the window's edge.
#[test]
fn bytes_that_are_expected_are_taken_as_far_as_there_is_room() {
    let mut end = Passive::open(false);
    let (mut at, mut shut) = (0_u32, false);
    while !shut {
        let header = header(Flags::ACK, peer_seq(at), end.ours);
        let first = Segment::new(header, &[0; 100]);
        let in_order = end.stack.in_order(end.now, end.conn, &first);
        let room = in_order.unwrap().room();
        // The last time one byte more than there is room for.
        shut = room < 100_000;
        let len = if shut { room + 1 } else { 50_000 };
        let following = CoalescedInfo {
            segments: 9,
            bytes: len - 100,
            longest: 30_000,
        };
        let received = end.receive(&first.with_coalesced(following));
        let taken = u64::from(len.min(room));
        assert_eq!(received.in_order_to, u64::from(at) + taken);
        at += len;
    }
}

/// A host or adapter on the way may join segments: what comes after has its acknowledgment in time all the same.
#[test]
fn a_segment_that_was_joined_is_acknowledged_at_once_and_delays_no_later_acknowledgment() {
    let mut end = Passive::open(false);
    let mut at = 0;
    for (len, answers) in [
        (60_000, 1),
        (1460, 0),
        (1460, 1),
        (60_000, 1),
        (1460, 0),
        (1, 1),
    ] {
        let header = header(Flags::ACK, peer_seq(at), end.ours);
        let shown = vec![0; 1460.min(len as usize)];
        let following = CoalescedInfo {
            segments: 0,
            bytes: len - shown.len() as u32,
            longest: len,
        };
        let segment = Segment::new(header, &shown).with_coalesced(following);
        let received = end.receive(&segment);
        at += len;
        assert_eq!(received.in_order_to, u64::from(at));
        end.stack.consumed(end.conn, received.in_order_to);
        assert_eq!(end.told().len(), answers, "{len} bytes to {at}");
    }
}

#[test]
fn only_a_segment_that_says_nothing_new_continues_another() {
    let first = header(Flags::ACK, SeqNum(100), SeqNum(5));
    let next = header(Flags::ACK | Flags::PSH, SeqNum(200), SeqNum(5));
    assert!(next.only_continues(&first, SeqNum(200)));
    assert!(!next.only_continues(&first, SeqNum(201)));
    let mut sack = Options::default();
    sack.sack.push(SackBlock::default());
    let others = [
        TcpHeader {
            ack: SeqNum(6),
            ..next
        },
        TcpHeader { window: 1, ..next },
        TcpHeader {
            options: sack,
            ..next
        },
    ];
    for other in others {
        assert!(!other.only_continues(&first, SeqNum(200)), "{other:?}");
    }
    for flag in [
        Flags::FIN,
        Flags::SYN,
        Flags::RST,
        Flags::URG,
        Flags::ECE,
        Flags::CWR,
    ] {
        let flags = Flags::ACK | flag;
        let other = TcpHeader { flags, ..next };
        assert!(!other.only_continues(&first, SeqNum(200)), "{flag:?}");
        let before = TcpHeader { flags, ..first };
        assert!(!next.only_continues(&before, SeqNum(200)), "{flag:?}");
    }
    let both = TcpHeader {
        options: sack,
        ..first
    };
    let next = TcpHeader {
        options: sack,
        ..next
    };
    assert!(
        !next.only_continues(&both, SeqNum(200)),
        "SACK blocks are news"
    );
}
