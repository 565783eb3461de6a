//! A connection goes on in another stack ([`userspace_tcp::Stack::detach`], [`userspace_tcp::Stack::attach`]).

#![allow(clippy::unwrap_used)]

mod harness;

use std::time::Duration;

use harness::passive::{Passive, header, peer_seq, tuple};
use userspace_net::Instant;
use userspace_tcp::{
    Config, ConnOptions, Flags, KeepAlive, ResourceUsage, Segment, Stack, TcpHeader, Timestamps,
};

const PEER_CLOCK: u32 = 9;

fn config() -> Config {
    Config {
        timestamps: true,
        receive_window: 1 << 20,
        ..Config::default()
    }
}

/// Another stack, with other secrets.
fn other(now: Instant) -> Stack<u32> {
    Stack::new(config(), [8; 16], now)
}

/// A header of the peer's, which has received `acked` bytes; its clock says so.
fn says(end: &Passive, byte: u32, acked: u32, clock: u32) -> TcpHeader {
    let mut says = header(Flags::ACK | Flags::PSH, peer_seq(byte), end.ours.add(acked));
    says.options.timestamps = Some(Timestamps {
        value: clock,
        echo: 1,
    });
    says
}

/// A connection that has taken 100 bytes, whose acknowledgment waits.
fn asked() -> Passive {
    let mut end = Passive::open_as(config());
    let received = end.receive(&Segment::new(says(&end, 0, 0, PEER_CLOCK), &[1; 100]));
    end.stack.consumed(end.conn, received.in_order_to);
    assert_eq!(sent(&mut end), []);
    end
}

fn sent(end: &mut Passive) -> Vec<TcpHeader> {
    let (stack, now) = (&mut end.stack, end.now);
    std::iter::from_fn(|| stack.poll_transmit(now))
        .map(|it| it.header)
        .collect()
}

/// Has the connection go on in another stack. The one that it was in has nothing of it, and says nothing.
fn move_on(end: &mut Passive, pause: Duration) {
    let connection = end.stack.detach(end.conn).unwrap();
    assert!(end.stack.detach(end.conn).is_none(), "it is gone");
    assert_eq!(end.stack.resource_usage(), ResourceUsage::default());
    assert!(sent(end).is_empty() && end.stack.next_deadline().is_none());
    end.now += pause;
    let mut to = other(end.now);
    end.conn = to.attach(connection).unwrap();
    end.stack = to;
}

#[test]
fn bytes_go_both_ways_with_the_numbers_and_clocks_of_before() {
    let mut end = asked();
    let before = end.stack.info(end.conn).unwrap();
    move_on(&mut end, Duration::from_millis(5));
    let mut after = end.stack.info(end.conn).unwrap();
    assert_eq!(after.counters.segments_in, 0, "they are counted once");
    after.counters = before.counters;
    assert_eq!(format!("{after:?}"), format!("{before:?}"));
    end.post(200);
    let [answer] = sent(&mut end)[..] else {
        panic!("one segment goes out");
    };
    assert_eq!((answer.seq, answer.ack), (end.ours, peer_seq(100)));
    let stamp = answer.options.timestamps.unwrap();
    assert_eq!(stamp.echo, PEER_CLOCK);
    end.now += Duration::from_millis(3);
    let mut ack = says(&end, 100, 200, PEER_CLOCK + 1);
    ack.options.timestamps = Some(Timestamps {
        value: PEER_CLOCK + 1,
        echo: stamp.value,
    });
    let received = end.receive(&Segment::new(ack, &[2; 50]));
    assert_eq!(
        (received.conn, received.in_order_to),
        (Some(end.conn), 150),
        "it is found by its flow"
    );
    assert_eq!(end.stack.queued_segments(end.conn), 0);
}

/// Our timestamps go on from those that the peer has seen, and what is older than its last is still old.
#[test]
fn timestamps_go_on() {
    let mut end = Passive::open_as(config());
    let stamp_of = |end: &mut Passive, byte| {
        let ahead = Segment::new(says(end, byte, 0, PEER_CLOCK + byte), &[1; 1]);
        let received = end.receive(&ahead);
        end.stack.consumed(end.conn, received.in_order_to);
        end.now += Duration::from_secs(1);
        end.stack.advance(end.now);
        let [ack] = sent(end)[..] else {
            panic!("an acknowledgment goes out");
        };
        assert_eq!(ack.ack, peer_seq(byte + 1));
        ack.options.timestamps.unwrap()
    };
    let before = stamp_of(&mut end, 0);
    move_on(&mut end, Duration::from_secs(1));
    let after = stamp_of(&mut end, 1);
    assert_eq!(after.value.wrapping_sub(before.value), 2000);
    assert_eq!(after.echo, before.echo + 1);
    let old = Segment::new(says(&end, 2, 0, PEER_CLOCK - 1), &[1; 1]);
    assert!(end.receive(&old).new.is_empty());
}

#[test]
fn the_acknowledgment_that_is_due_goes_out_where_the_connection_is() {
    let mut end = asked();
    move_on(&mut end, Duration::from_millis(1));
    let due = end.stack.next_deadline().unwrap();
    end.now = due;
    end.stack.advance(due);
    let [ack] = sent(&mut end)[..] else {
        panic!("one acknowledgment goes out");
    };
    assert_eq!((ack.seq, ack.ack), (end.ours, peer_seq(100)));
    let window = u32::from(ack.window);
    assert!(window > 60_000, "as large as before: {window}");
}

/// When and with what headers 200 bytes go out, of which the peer acknowledges nothing.
fn transmissions(mut end: Passive) -> Vec<(Instant, TcpHeader)> {
    end.post(200);
    let mut all = Vec::new();
    while all.len() < 4 {
        while let Some(transmit) = end.stack.poll_transmit(end.now) {
            all.push((end.now, transmit.header));
            let payload = transmit.payload.unwrap();
            let back = end.stack.transmitted(end.conn, payload.id, payload.buf);
            assert_eq!(back, None);
        }
        end.now = end.stack.next_deadline().unwrap();
        end.stack.advance(end.now);
    }
    all
}

/// The round trip was measured in the first stack.
#[test]
fn what_is_lost_goes_out_again_when_it_would_have_in_the_first_stack() {
    let mut moved = asked();
    move_on(&mut moved, Duration::ZERO);
    assert_eq!(transmissions(moved), transmissions(asked()));
}

#[test]
fn bytes_out_of_order_are_reported_as_before() {
    let mut end = asked();
    move_on(&mut end, Duration::ZERO);
    let gap = Segment::new(says(&end, 1100, 0, PEER_CLOCK), &[3; 10]);
    assert_eq!(end.receive(&gap).new.len(), 1);
    let [report] = sent(&mut end)[..] else {
        panic!("it is reported at once");
    };
    let [block] = *report.options.sack.as_slice() else {
        panic!("one range was received");
    };
    assert_eq!((block.left, block.right), (peer_seq(1100), peer_seq(1110)));
}

#[test]
fn an_idle_peer_is_asked_at_the_time_at_which_it_would_have_been() {
    let keepalive = KeepAlive {
        idle: Duration::from_secs(10),
        interval: Duration::from_secs(1),
        probes: 3,
    };
    let mut end = Passive::open_as(config());
    let begun = end.now;
    assert!(end.stack.set_keepalive(end.conn, end.now, Some(keepalive)));
    move_on(&mut end, Duration::from_secs(4));
    assert_eq!(
        end.stack.next_deadline(),
        Some(begun + Duration::from_secs(10))
    );
}

#[test]
fn what_is_not_done_keeps_a_connection_where_it_is() {
    let refused = |mut end: Passive| {
        assert!(end.stack.detach(end.conn).is_none());
        assert!(end.stack.info(end.conn).is_some());
    };
    let mut end = asked();
    end.post(10);
    refused(end);

    let mut end = asked();
    end.post(10);
    assert_eq!(sent(&mut end).len(), 1);
    refused(end);

    let mut end = asked();
    let mut fin = says(&end, 100, 0, PEER_CLOCK);
    fin.flags |= Flags::FIN;
    end.receive(&Segment::new(fin, &[]));
    refused(end);

    let mut end = asked();
    assert!(end.stack.close(end.conn));
    refused(end);
}

/// RFC 2018 section 8: the peer keeps what is not acknowledged cumulatively.
#[test]
fn bytes_that_came_out_of_order_before_are_to_come_again() {
    let mut end = asked();
    let ahead = Segment::new(says(&end, 200, 0, PEER_CLOCK), &[2; 10]);
    assert_eq!(end.receive(&ahead).new.len(), 1);
    let _ = sent(&mut end);
    move_on(&mut end, Duration::ZERO);
    assert_eq!(end.receive(&ahead).new.len(), 1, "they are new again");
    let between = Segment::new(says(&end, 100, 0, PEER_CLOCK), &[2; 100]);
    assert_eq!(end.receive(&between).in_order_to, 210);
}

#[test]
fn a_stack_takes_no_connection_that_it_has_no_room_for_or_has() {
    let mut end = asked();
    let now = end.now;
    let config = Config {
        connections: 0,
        ..config()
    };
    let mut full = Stack::new(config, [8; 16], now);
    assert!(full.attach(end.stack.detach(end.conn).unwrap()).is_none());
    assert_eq!(full.resource_usage(), ResourceUsage::default());

    let mut end = asked();
    let mut there = other(now);
    let options = ConnOptions { mss: 1460 };
    there.connect(now, tuple(), options).unwrap();
    assert!(there.attach(end.stack.detach(end.conn).unwrap()).is_none());
    assert!(sent(&mut end).is_empty());
}
