//! The bytes of segments in order may be used before TCP takes them ([`userspace_tcp::Stack::in_order`],
//! [`userspace_tcp::Stack::commit`]), and an answer may go out before their acknowledgment is processed
//! ([`userspace_tcp::Stack::finish`]).

#![allow(clippy::unwrap_used)]

mod harness;

use std::time::Duration;

use harness::passive::{Passive, header, peer_seq};
use userspace_net::Ecn;
use userspace_tcp::{
    Config, DeferredAck, Flags, InOrder, Options, SackBlock, Segment, SegmentRun, TcpHeader,
    Timestamps,
};

impl Passive {
    fn in_order(&self, segment: &Segment<'_>) -> Option<InOrder> {
        self.stack.in_order(self.now, self.conn, segment)
    }

    /// Takes a segment's bytes if it is in order and fits the window.
    fn commit(&mut self, segment: &Segment<'_>) -> Option<DeferredAck> {
        let in_order = self.in_order(segment)?;
        let run = SegmentRun {
            bytes: segment.payload.len() as u32 + segment.following.bytes,
            segments: 1 + segment.following.segments,
            longest: segment.following.longest.max(segment.payload.len() as u32),
        };
        self.stack.commit(self.now, &in_order, run)
    }
}

/// A segment that is in order, which the peer's timestamp dates; marks are echoed where ECN is agreed.
fn plain(end: &Passive) -> TcpHeader {
    let mut header = header(Flags::ACK | Flags::PSH, peer_seq(0), end.ours.add(end.sent));
    let config = end.stack.info(end.conn).unwrap();
    header.options.timestamps = config
        .timestamps
        .then_some(Timestamps { value: 9, echo: 1 });
    header
}

/// All else than bytes and an acknowledgment that may come is for the rules of each of them.
#[test]
fn only_a_segment_that_says_nothing_else_is_in_order() {
    let open = || {
        let mut end = Passive::open_as(Config {
            timestamps: true,
            ecn: true,
            ..Config::default()
        });
        end.post(100);
        while end.stack.poll_transmit(end.now).is_some() {}
        end
    };
    let mut end = open();
    let of = |header, bytes| end.in_order(&Segment::new(header, bytes)).is_some();
    let good = plain(&end);
    assert!(of(good, &[1]));
    let unpushed = TcpHeader {
        flags: Flags::ACK,
        ..good
    };
    assert!(of(unpushed, &[1]));
    let acknowledges_less = TcpHeader {
        ack: end.ours,
        ..good
    };
    assert!(of(acknowledges_less, &[1]));

    assert!(!of(good, &[]), "no bytes");
    let others: [(&str, TcpHeader); 8] = [
        (
            "a byte too early",
            TcpHeader {
                seq: peer_seq(0).add(u32::MAX),
                ..good
            },
        ),
        (
            "a byte too late",
            TcpHeader {
                seq: peer_seq(1),
                ..good
            },
        ),
        (
            "an ACK of what was not sent",
            TcpHeader {
                ack: good.ack.add(1),
                ..good
            },
        ),
        (
            "an old ACK",
            TcpHeader {
                ack: end.ours.add(u32::MAX),
                ..good
            },
        ),
        (
            "no ACK",
            TcpHeader {
                flags: Flags::PSH,
                ..good
            },
        ),
        (
            "no timestamps",
            TcpHeader {
                options: Options::default(),
                ..good
            },
        ),
        ("an old timestamp", {
            let mut old = good;
            old.options.timestamps = Some(Timestamps { value: 8, echo: 1 });
            old
        }),
        ("SACK blocks", {
            let mut sack = good;
            sack.options.sack.push(SackBlock::default());
            sack
        }),
    ];
    for (what, header) in others {
        assert!(!of(header, &[1]), "{what}");
    }
    for flag in [
        Flags::FIN,
        Flags::SYN,
        Flags::RST,
        Flags::URG,
        Flags::ECE,
        Flags::CWR,
    ] {
        let flags = good.flags | flag;
        assert!(!of(TcpHeader { flags, ..good }, &[1]), "{flag:?}");
    }
    let marked = Segment::new(good, &[1]).with_ecn(Ecn::Ce);
    assert!(end.in_order(&marked).is_none(), "a mark");

    end.receive(&marked);
    let next = TcpHeader {
        seq: peer_seq(1),
        ..good
    };
    assert!(
        end.in_order(&Segment::new(next, &[1])).is_none(),
        "a mark is echoed"
    );

    let mut end = open();
    end.receive(&Segment::new(
        TcpHeader {
            seq: peer_seq(9),
            ..good
        },
        &[1],
    ));
    assert!(
        end.in_order(&Segment::new(good, &[1])).is_none(),
        "bytes wait behind"
    );

    let mut end = open();
    end.receive(&Segment::new(
        TcpHeader {
            seq: peer_seq(9),
            flags: good.flags | Flags::FIN,
            ..good
        },
        &[],
    ));
    assert!(
        end.in_order(&Segment::new(good, &[1])).is_none(),
        "a FIN waits behind"
    );

    let mut end = open();
    end.stack.close(end.conn);
    assert!(
        end.in_order(&Segment::new(good, &[1])).is_none(),
        "FIN-WAIT-1"
    );

    let mut end = Passive::open(false);
    end.receive(&Segment::new(
        header(Flags::ACK, peer_seq(0), end.ours),
        &[],
    ));
    let stamped = TcpHeader {
        options: good.options,
        ..plain(&end)
    };
    assert!(
        end.in_order(&Segment::new(stamped, &[1])).is_none(),
        "timestamps that were not agreed"
    );
    assert!(end.in_order(&Segment::new(plain(&end), &[1])).is_some());
}

/// Who has found a segment in order and lets something else come first finds it so no more.
#[test]
fn what_was_in_order_is_not_taken_twice() {
    let mut end = Passive::open(false);
    let run = SegmentRun {
        bytes: 1,
        segments: 1,
        longest: 1,
    };
    let segment = Segment::new(plain(&end), &[1]);
    let in_order = end.in_order(&segment).unwrap();
    let first = end.stack.commit(end.now, &in_order, run).unwrap();
    assert_eq!(end.stack.commit(end.now, &in_order, run), None);
    end.stack.finish(end.now, &first, 0);
    let info = end.stack.info(end.conn).unwrap();
    assert_eq!((info.counters.segments_in, info.counters.bytes_in), (3, 1));
}

/// The answer may go before that: it carries the acknowledgment of the bytes, and nothing is sent twice
/// for it.
#[test]
fn an_answer_goes_before_the_acknowledgment_that_came_is_processed() {
    let mut end = Passive::open(false);
    end.post(64);
    let first = end.stack.poll_transmit(end.now).unwrap().payload.unwrap();
    assert_eq!(end.stack.transmitted(end.conn, first.id, first.buf), None);
    let header = header(Flags::ACK, peer_seq(0), end.ours.add(64));
    let deferred = end.commit(&Segment::new(header, &[0; 64])).unwrap();
    assert_eq!(deferred.end(), 64);
    end.now += Duration::from_micros(20);
    end.post(64);
    let answer = end.stack.poll_transmit(end.now).unwrap();
    assert_eq!(answer.header.ack, peer_seq(64));
    assert_eq!(end.stack.queued_segments(end.conn), 2);
    assert_eq!(deferred.conn(), end.conn);
    end.stack.finish(end.now, &deferred, 0);
    assert_eq!(
        end.stack.queued_segments(end.conn),
        1,
        "the first is acknowledged"
    );
    assert_eq!(end.stack.poll_released(), Some(0));
    assert!(end.stack.poll_transmit(end.now).is_none());
    let info = end.stack.info(end.conn).unwrap();
    // An eighth of 20 microseconds, behind a round trip without any time.
    let srtt = Duration::from_nanos(2500);
    assert_eq!(info.srtt, Some(srtt), "by when it is looked at");
    assert_eq!(info.pipe, 64);
    assert!(end.stack.next_deadline().is_some(), "the answer is timed");
}

/// What lies beyond the window is for the ordinary way to cut off.
#[test]
fn bytes_are_taken_up_to_the_edge_of_the_window() {
    let mut end = Passive::open(false);
    let (mut at, payload) = (0, [0; 30_000]);
    let room = loop {
        let header = header(Flags::ACK, peer_seq(at), end.ours);
        let segment = Segment::new(header, &payload);
        let room = end.in_order(&segment).unwrap().room();
        if room < 30_000 {
            break room as usize;
        }
        // Nobody consumes them.
        let deferred = end.commit(&segment).unwrap();
        end.stack.finish(end.now, &deferred, 0);
        at += 30_000;
    };
    let header = header(Flags::ACK, peer_seq(at), end.ours);
    let beyond = Segment::new(header, &payload[..=room]);
    assert_eq!(end.commit(&beyond), None);
    let deferred = end.commit(&Segment::new(header, &payload[..room]));
    let deferred = deferred.unwrap();
    assert_eq!(deferred.end(), u64::from(at) + room as u64);
    // What is consumed then opens the window again, and the peer is told.
    end.stack.finish(end.now, &deferred, deferred.end());
    let mut window = 0;
    while let Some(segment) = end.stack.poll_transmit(end.now) {
        window = segment.header.window;
    }
    assert!(window > 0);
}

#[test]
fn of_a_connection_that_is_gone_nothing_is_left_to_be_done() {
    let mut end = Passive::open(false);
    let header = header(Flags::ACK, peer_seq(0), end.ours);
    let deferred = end.commit(&Segment::new(header, &[0; 64])).unwrap();
    assert!(end.stack.abort(end.conn));
    while end.stack.poll_transmit(end.now).is_some() {}
    end.stack.finish(end.now, &deferred, 0);
    assert!(end.stack.info(end.conn).is_none());
    assert_eq!(end.stack.next_deadline(), None);
}
