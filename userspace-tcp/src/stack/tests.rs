//! What the rules of the wire can't show.

use std::net::Ipv4Addr;

use super::*;
use crate::Outgoing;
use crate::interface::FlowLocation;
use crate::segment::{Flags, Segment, TcpHeader};
use crate::seq::SeqNum;

/// A connection from the peer's `port` that both sides close, the peer last, so that it stands in
/// TIME-WAIT here.
fn pass_into_time_wait(stack: &mut Stack<u32>, port: u16, now: Instant) {
    let end = |last, port| Endpoint::new(Ipv4Addr::new(198, 18, 0, last).into(), port);
    let tuple = FourTuple::new(end(1, 7000), end(2, port));
    let mut ours = SeqNum(0);
    let mut give = |stack: &mut Stack<u32>, flags, seq, ack| {
        let header = TcpHeader {
            seq: SeqNum(seq),
            ack: ours.add(ack),
            flags,
            window: 1000,
            ..TcpHeader::default()
        };
        let (payload, options) = (&[][..], ConnOptions { mss: 1460 });
        stack.receive(now, tuple, &Segment::new(header, payload), options);
        while let Some(transmit) = stack.poll_transmit(now) {
            if transmit.header.flags.syn() {
                ours = transmit.header.seq;
            }
        }
    };
    give(stack, Flags::SYN, 0, 0);
    give(stack, Flags::ACK, 1, 1);
    let mut events = std::iter::from_fn(|| stack.poll_event());
    let (id, _) = events
        .find(|(_, event)| matches!(event, Event::Incoming { .. }))
        .expect("it is established");
    assert!(stack.close(id));
    give(stack, Flags::ACK, 1, 1);
    give(stack, Flags::ACK | Flags::FIN, 1, 2);
    assert_eq!(
        stack.connections.get(id).map(Connection::state),
        Some(State::TimeWait)
    );
}

#[test]
fn what_leaves_time_wait_leaves_its_queue_also_from_behind_one_that_stays() {
    let config = Config {
        connections: 8,
        ..Config::default()
    };
    let patience = config.time_wait;
    let mut now = Instant::ZERO + patience;
    let mut stack = Stack::new(config, [7; 16], now);
    let local = Endpoint::new(Ipv4Addr::new(198, 18, 0, 1).into(), 7000);
    assert!(stack.listen(local, 4).is_ok());
    pass_into_time_wait(&mut stack, 999, now);
    let stubborn = stack.time_waits.first();
    let stubborn = stubborn.and_then(|index| stack.connections.at(index));
    let stubborn = stubborn.map(Named::id).expect("it is in TIME-WAIT");
    for port in 1000..1100 {
        now += patience;
        // As if its FIN came again just now.
        stack.deadlines.set(stubborn.index, None);
        stack.advance(now);
        pass_into_time_wait(&mut stack, port, now);
        assert!(stack.connections.get(stubborn).is_some());
    }
    assert_eq!(stack.time_waits.len(), 2);
    assert_eq!(stack.connections.iter().count(), 2);
}

/// A connection from the peer's `port`, established by its ACK.
fn established(stack: &mut Stack<u32>, port: u16, now: Instant) -> ConnId {
    let end = |last, port| Endpoint::new(Ipv4Addr::new(198, 18, 0, last).into(), port);
    let tuple = FourTuple::new(end(1, 7000), end(2, port));
    let mut ours = SeqNum(0);
    for flags in [Flags::SYN, Flags::ACK] {
        let header = TcpHeader {
            seq: SeqNum(u32::from(flags == Flags::ACK)),
            ack: ours,
            flags,
            window: 60_000,
            ..TcpHeader::default()
        };
        let options = ConnOptions { mss: 1460 };
        stack.receive(now, tuple, &Segment::new(header, &[]), options);
        if let Some(answer) = stack.poll_transmit(now) {
            ours = answer.header.seq.add(1);
        }
    }
    let (id, _) = stack.poll_event().expect("it is established");
    id
}

/// Where a connection is likely to be is a hint that may be stale: whose segment it is the flow says.
#[test]
fn a_segment_reaches_its_own_connection_wherever_it_was_thought_to_be() {
    let now = Instant::ZERO + std::time::Duration::from_secs(1);
    let mut stack = Stack::new(Config::default(), [7; 16], now);
    let local = Endpoint::new(Ipv4Addr::new(198, 18, 0, 1).into(), 7000);
    assert!(stack.listen(local, 4).is_ok());
    let [one, other] = [999, 1000].map(|port| established(&mut stack, port, now));
    let tuple_of = |stack: &Stack<u32>, id| stack.info(id).map(|info| info.tuple).expect("it is");
    let (first, second) = (tuple_of(&stack, one), tuple_of(&stack, other));
    let (of_one, of_other) = (stack.flow_hint(&first), stack.flow_hint(&second));
    assert_eq!(of_one.index(), Some(one.index()));
    assert_eq!(of_other.index(), Some(other.index()));
    let mut seq = 1;
    let mut byte_for_first = |stack: &mut Stack<u32>, hint| {
        let ack = stack.connections.get(one).map(Connection::sent_to);
        let header = TcpHeader {
            seq: SeqNum(seq),
            ack: ack.unwrap_or(SeqNum(0)),
            flags: Flags::ACK,
            window: 60_000,
            ..TcpHeader::default()
        };
        let options = ConnOptions { mss: 1460 };
        assert!(
            stack.connections.get(one).is_none() || stack.takes_together(&first, hint, SeqNum(seq))
        );
        seq += 1;
        stack.receive_at(now, first, hint, &Segment::new(header, &[7]), options)
    };
    let nowhere = crate::FlowHint(FlowLocation::At(u32::MAX));
    let named = crate::FlowHint::of(one);
    assert_eq!(named.index(), Some(one.index()));
    for hint in [of_one, of_other, named, nowhere, crate::FlowHint::default()] {
        let received = byte_for_first(&mut stack, hint);
        assert_eq!(received.conn, Some(one), "{hint:?}");
        assert_eq!(received.new.len(), 1, "{hint:?}");
    }
    assert!(stack.abort(one));
    for hint in [of_one, of_other, named] {
        assert_eq!(
            byte_for_first(&mut stack, hint).conn,
            None,
            "{hint:?}: it is gone"
        );
    }
}

#[test]
fn connections_send_in_turns_of_several_segments() {
    let now = Instant::ZERO + std::time::Duration::from_secs(1);
    let mut stack = Stack::new(Config::default(), [7; 16], now);
    let local = Endpoint::new(Ipv4Addr::new(198, 18, 0, 1).into(), 7000);
    assert!(stack.listen(local, 4).is_ok());
    let ids = [999, 1000, 1001].map(|port| established(&mut stack, port, now));
    let [long, short, other] = ids;
    for (id, segments) in [(long, 20), (short, 2), (other, 20)] {
        for number in 0..segments {
            let outgoing = Outgoing {
                buf: number,
                len: 100,
                payload_sum: userspace_net::checksum::PartialSum::default(),
            };
            assert!(stack.send(id, now, outgoing).is_ok());
        }
    }
    let mut sent = Vec::new();
    while let Some(transmit) = stack.poll_transmit(now) {
        let id = transmit.conn.expect("it is of a connection");
        match sent.last_mut() {
            Some((last, count)) if *last == id => *count += 1,
            _ => sent.push((id, 1)),
        }
    }
    assert_eq!(
        sent,
        [(long, 16), (short, 2), (other, 16), (long, 4), (other, 4)]
    );
}

/// A byte of the peer's in order, for each of these connections; who acknowledges what it got before
/// the next one comes.
fn acknowledged(stack: &mut Stack<u32>, ids: &[ConnId], now: Instant) -> Vec<ConnId> {
    let mut who = Vec::new();
    for id in ids {
        let connection = stack.connections.get(*id).expect("it is there");
        let tuple = connection.tuple();
        let header = TcpHeader {
            seq: SeqNum(1),
            ack: connection.sent_to(),
            flags: Flags::ACK,
            window: 60_000,
            ..TcpHeader::default()
        };
        let segment = Segment::new(header, &[7]);
        let received = stack.receive(now, tuple, &segment, ConnOptions { mss: 1460 });
        assert_eq!(received.new.len(), 1);
        while let Some(transmit) = stack.poll_transmit(now) {
            who.extend(transmit.conn);
        }
    }
    who
}

/// Whoever shares a window among many connections waits for none of their acknowledgments longer than
/// for so many others.
#[test]
fn of_too_many_delayed_acknowledgments_the_oldest_goes_out() {
    let now = Instant::ZERO + std::time::Duration::from_secs(1);
    let config = Config {
        delayed_acks: 3,
        ..Config::default()
    };
    let delay = config.ack_delay;
    let mut stack = Stack::new(config, [7; 16], now);
    let local = Endpoint::new(Ipv4Addr::new(198, 18, 0, 1).into(), 7000);
    assert!(stack.listen(local, 8).is_ok());
    let ids = [1, 2, 3, 4, 5].map(|port| established(&mut stack, port, now));
    assert_eq!(acknowledged(&mut stack, &ids, now), ids[..2]);
    stack.advance(now + delay);
    let mut late = Vec::new();
    while let Some(transmit) = stack.poll_transmit(now + delay) {
        late.extend(transmit.conn);
    }
    late.sort_by_key(|id| id.index());
    assert_eq!(late, ids[2..], "they wait their time");
}

/// What went out by itself, or with bytes, is not acknowledged once more.
#[test]
fn a_delayed_acknowledgment_that_went_out_does_not_go_for_another() {
    let now = Instant::ZERO + std::time::Duration::from_secs(1);
    let config = Config {
        delayed_acks: 1,
        ..Config::default()
    };
    let mut stack = Stack::new(config, [7; 16], now);
    let local = Endpoint::new(Ipv4Addr::new(198, 18, 0, 1).into(), 7000);
    assert!(stack.listen(local, 8).is_ok());
    let ids = [1, 2].map(|port| established(&mut stack, port, now));
    assert_eq!(acknowledged(&mut stack, &ids[..1], now), []);
    let outgoing = Outgoing {
        buf: 1,
        len: 100,
        payload_sum: userspace_net::checksum::PartialSum::default(),
    };
    assert!(stack.send(ids[0], now, outgoing).is_ok());
    let answer = stack.poll_transmit(now).expect("bytes go out");
    assert_eq!(answer.header.ack, SeqNum(2));
    assert_eq!(acknowledged(&mut stack, &ids[1..], now), []);
}

/// Of many connections that share a fast stream none is fast by itself.
#[test]
fn in_a_fast_stream_of_several_connections_acknowledgments_wait_for_company() {
    const LEN: usize = 1000;
    let mut now = Instant::ZERO + std::time::Duration::from_secs(1);
    let mut stack = Stack::new(Config::default(), [7; 16], now);
    let local = Endpoint::new(Ipv4Addr::new(198, 18, 0, 1).into(), 7000);
    assert!(stack.listen(local, 8).is_ok());
    let ids = [1, 2, 3, 4].map(|port| established(&mut stack, port, now));
    // Two full segments to each in turn, together eight in 28 microseconds: who answers at once.
    let mut at_once = |stack: &mut Stack<u32>, round: u32, pause: u64| {
        let mut who = 0;
        for id in &ids {
            now += std::time::Duration::from_micros(pause);
            let connection = stack.connections.get(*id).expect("it is there");
            let (tuple, ack) = (connection.tuple(), connection.sent_to());
            for number in 0..2 {
                let header = TcpHeader {
                    seq: SeqNum(1 + (2 * round + number) * LEN as u32),
                    ack,
                    flags: Flags::ACK,
                    window: 60_000,
                    ..TcpHeader::default()
                };
                let segment = Segment::new(header, &[7; LEN]);
                let received = stack.receive(now, tuple, &segment, ConnOptions { mss: 1460 });
                assert_eq!(received.new.len(), 1);
            }
            while let Some(transmit) = stack.poll_transmit(now) {
                who += usize::from(transmit.conn == Some(*id));
            }
        }
        who
    };
    assert_eq!(
        at_once(&mut stack, 0, 7),
        4,
        "how fast it is can't be known yet"
    );
    at_once(&mut stack, 1, 7);
    assert_eq!(at_once(&mut stack, 2, 7), 0);
    assert_eq!(at_once(&mut stack, 3, 200), 4, "that is slow");
}
