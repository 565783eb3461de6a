//! The octets of a segment may be taken first and its acknowledgment behind them
//! ([`userspace_tcp::Stack::receive_octets`]), or all of some segments at once
//! ([`userspace_tcp::Stack::receive_consumed`]): neither the layer above nor the peer can tell.

#![allow(clippy::unwrap_used, missing_docs)]

mod harness;

use std::time::Duration;

use harness::passive::{Passive, header, peer_seq, tuple};
use userspace_tcp::{
    Config, CongestionControl, Ecn, Flags, Following, Likely, Owed, SackBlock, Segment, SeqNum,
    Timestamps,
};

const LEN: u32 = 700;

impl Passive {
    fn receive_octets(&mut self, segment: &Segment<'_>) -> Option<Owed> {
        self.stack.receive_octets(self.now, self.conn, segment)
    }

    /// All that can be seen of it from now on: what goes out, what happened, what is next.
    fn seen(&mut self) -> String {
        let mut seen = String::new();
        while let Some(out) = self.stack.poll_transmit(self.now) {
            seen += &format!(
                "{:?} {:?}\n",
                out.header,
                out.payload.as_ref().map(|p| p.id)
            );
            if let Some(payload) = out.payload {
                let back = self.stack.transmitted(self.conn, payload.id, payload.buf);
                seen += &format!("{back:?}\n");
            }
        }
        let events: Vec<_> = std::iter::from_fn(|| self.stack.poll_event()).collect();
        let released: Vec<_> = std::iter::from_fn(|| self.stack.poll_released()).collect();
        let next = self.stack.next_deadline();
        let info = self.stack.info(self.conn);
        seen + &format!("{events:?} {released:?} {next:?} {info:?}")
    }
}

/// Segments of all kinds: most the next in order with an acknowledgment that is new.
#[test]
fn octets_before_their_acknowledgment_are_as_octets_behind_it() {
    let mut state = 0x9234_5678_9abc_def1_u64;
    let mut below = |bound: u32| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) as u32 % bound
    };
    let payload = [0; LEN as usize];
    let (mut taken_first, mut others, mut promised, mut emptied) = (0, 0, 0, 0);
    let (mut several, mut nothing_sent) = (0, 0);
    for run in 0..300 {
        let timestamps = run % 2 == 0;
        let ecn = run % 3 == 0;
        // How marks are echoed hangs on it.
        let congestion = match run % 6 {
            3 => CongestionControl::Dctcp,
            // It measures what could have been sent.
            4 | 5 => CongestionControl::Bbr,
            _ => CongestionControl::Cubic,
        };
        let open = || {
            Passive::open_as(Config {
                timestamps,
                ecn,
                congestion,
                ..Config::default()
            })
        };
        let (mut whole, mut parts, mut at_once) = (open(), open(), open());
        assert_eq!(parts.stack.info(parts.conn).unwrap().ecn, ecn);
        let (mut next, mut clock) = (peer_seq(0), 9);
        let mut acked = 0;
        for _ in 0..40 {
            let (octets, later) = (
                1 + below(1400),
                u64::from(below(4)) * u64::from(below(300_000)),
            );
            // Some connections only receive, for a while at least.
            let posts = run % 4 > 0 && below(3) > 0;
            for end in [&mut whole, &mut parts, &mut at_once] {
                end.now += Duration::from_nanos(later);
                end.stack.advance(end.now);
                if posts {
                    end.post(octets);
                }
            }
            let before = whole.seen();
            assert_eq!(before, parts.seen());
            assert_eq!(before, at_once.seen());
            // Now and then something else than what is expected.
            let odd = below(6) == 0;
            let kind = if odd { below(9) } else { 9 };
            // Several in a row with the same acknowledgment and window are no duplicate ACKs.
            acked = match below(3) {
                0 => acked,
                1 => (acked + below(2000)).min(whole.sent),
                _ => whole.sent,
            };
            let mut header = header(Flags::ACK | Flags::PSH, next, whole.ours.add(acked));
            header.window -= below(4).saturating_sub(2) as u16;
            if below(20) == 0 {
                header.window = 0;
            }
            clock += below(3);
            let ours = u32::try_from(whole.now.as_millis()).unwrap();
            header.options.timestamps = timestamps.then_some(Timestamps {
                value: clock,
                echo: ours,
            });
            let mut len = 1 + below(LEN);
            match kind {
                0 => header.seq = next.add(below(3000)),
                1 => header.seq = SeqNum(next.0.wrapping_sub(below(3000))),
                2 => header.flags |= Flags::FIN,
                3 => header.flags |= Flags::ECE,
                4 => header.ack = whole.ours.add(acked + below(5000)),
                5 => header.options.timestamps = Some(Timestamps { value: 2, echo: 2 }),
                6 => header.options.sack.push(SackBlock::default()),
                7 => len = 0,
                8 => header.flags |= Flags::CWR,
                _ => {}
            }
            let mut segment = Segment::new(header, &payload[..len as usize]);
            if ecn {
                segment.ecn = [Ecn::Ect0, Ecn::Ect0, Ecn::Ect0, Ecn::Ce][below(4) as usize];
            }
            let likely = Likely::default();
            let promise = whole
                .stack
                .expects_octets(whole.now, &tuple(), likely, &segment);
            // As many as may be taken as one with it.
            if promise.is_some() && below(2) == 0 {
                let segments = 1 + below(20);
                let longest = 1 + below(LEN);
                segment = segment.with_following(Following {
                    segments,
                    octets: segments * longest,
                    longest,
                });
                len += segments * longest;
                several += 1;
            }
            let expected = whole.receive(&segment);
            if let Some(promise) = promise {
                nothing_sent += usize::from(acked == whole.sent);
                assert!(promise.room >= len, "{header:?}");
                let [new] = &*expected.new else {
                    panic!("{expected:?}: {header:?}");
                };
                let end = promise.offset + u64::from(len);
                assert_eq!((new.offset, new.skip, new.len), (promise.offset, 0, len));
                assert_eq!(expected.in_order_to, end, "{header:?}");
                assert_eq!(expected.conn, Some(promise.conn), "{header:?}");
                promised += 1;
            }
            let received = match parts.receive_octets(&segment) {
                Some(owed) => {
                    assert!(promise.is_some(), "{header:?}");
                    let received = owed.received();
                    let acknowledged = parts.stack.acknowledged(parts.conn, Some(&owed));
                    parts.stack.take_owed(parts.now, owed);
                    if let Some(queued) = acknowledged {
                        emptied += usize::from(queued > 0);
                        assert_eq!(parts.stack.queued_segments(parts.conn), 0);
                    } else {
                        let left = parts.stack.acknowledged(parts.conn, None);
                        assert_eq!(left, None, "{header:?}");
                    }
                    taken_first += 1;
                    received
                }
                None => {
                    others += 1;
                    parts.receive(&segment)
                }
            };
            assert_eq!(received, expected, "{header:?}");
            for end in [&mut whole, &mut parts] {
                end.stack.consumed(end.conn, expected.in_order_to);
            }
            if promise.is_some() {
                let (now, conn) = (at_once.now, at_once.conn);
                let taken_to = at_once.stack.receive_consumed(now, conn, &segment);
                assert_eq!(taken_to, Some(expected.in_order_to), "{header:?}");
            } else {
                assert_eq!(at_once.receive(&segment), expected, "{header:?}");
                at_once.stack.consumed(at_once.conn, expected.in_order_to);
            }
            let behind = whole.seen();
            assert_eq!(behind, parts.seen(), "{header:?}");
            assert_eq!(behind, at_once.seen(), "{header:?}");
            next = peer_seq(expected.in_order_to as u32);
        }
    }
    assert!(
        taken_first > 3000 && others > 1000 && emptied > 50,
        "{taken_first} {others} {emptied}"
    );
    assert!(
        several > 1000 && nothing_sent > 1000,
        "{several} {nothing_sent}"
    );
    // Those that are marked, and those behind them.
    assert!(promised > taken_first);
}

/// The answer may go before the books are done: it carries the acknowledgment of the octets, and
/// nothing is sent twice for it.
#[test]
fn an_answer_goes_before_what_is_owed() {
    let mut end = Passive::open(false);
    end.post(64);
    let first = end.stack.poll_transmit(end.now).unwrap().payload.unwrap();
    assert_eq!(end.stack.transmitted(end.conn, first.id, first.buf), None);
    let header = header(Flags::ACK, peer_seq(0), end.ours.add(64));
    let owed = end.receive_octets(&Segment::new(header, &[0; 64])).unwrap();
    assert_eq!((owed.offset(), owed.received().in_order_to), (0, 64));
    end.now += Duration::from_micros(20);
    end.post(64);
    let answer = end.stack.poll_transmit(end.now).unwrap();
    assert_eq!(answer.header.ack, peer_seq(64));
    assert_eq!(end.stack.queued_segments(end.conn), 2);
    assert_eq!(owed.conn(), end.conn);
    end.stack.take_owed(end.now, owed);
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
fn octets_are_taken_first_up_to_the_edge_of_the_window() {
    let mut end = Passive::open(false);
    let (mut at, payload) = (0, [0; 30_000]);
    let room = loop {
        let header = header(Flags::ACK, peer_seq(at), end.ours);
        let segment = Segment::new(header, &payload);
        let (tuple, likely) = (tuple(), Likely::default());
        let expected = end.stack.expects_octets(end.now, &tuple, likely, &segment);
        let room = expected.unwrap().room;
        if room < 30_000 {
            break room as usize;
        }
        // Nobody consumes them.
        let owed = end.receive_octets(&segment).unwrap();
        end.stack.take_owed(end.now, owed);
        at += 30_000;
    };
    let header = header(Flags::ACK, peer_seq(at), end.ours);
    let beyond = Segment::new(header, &payload[..=room]);
    assert_eq!(end.receive_octets(&beyond), None);
    let owed = end.receive_octets(&Segment::new(header, &payload[..room]));
    assert_eq!(owed.unwrap().offset(), u64::from(at));
}

#[test]
fn of_a_connection_that_is_gone_nothing_is_owed() {
    let mut end = Passive::open(false);
    let header = header(Flags::ACK, peer_seq(0), end.ours);
    let owed = end.receive_octets(&Segment::new(header, &[0; 64])).unwrap();
    assert!(end.stack.abort(end.conn));
    while end.stack.poll_transmit(end.now).is_some() {}
    end.stack.take_owed(end.now, owed);
    assert!(end.stack.info(end.conn).is_none());
    assert_eq!(end.stack.next_deadline(), None);
}
