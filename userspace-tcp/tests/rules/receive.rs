use userspace_tcp::{Config, Flags, Options};

use crate::script::*;

#[test]
fn out_of_order_octets_are_shown_at_once_and_only_once() {
    let mut script = Script::active(plain());
    let received = script.give(ACK, 1001, 1, 500);
    assert_eq!(
        (
            received.new[0].offset,
            received.new[0].skip,
            received.new[0].len
        ),
        (1000, 0, 500)
    );
    assert_eq!(received.in_order_to, 0);
    let received = script.give(ACK, 1, 1, 1400);
    assert_eq!(received.new.len(), 1);
    assert_eq!((received.new[0].offset, received.new[0].len), (0, 1000));
    assert_eq!(received.in_order_to, 1500);
    assert!(script.give(ACK, 501, 1, 500).new.is_empty());
}

#[test]
fn a_hole_is_reported_at_once_by_an_ack_with_sack_blocks() {
    let config = Config {
        timestamps: false,
        window_scale: false,
        ..Config::default()
    };
    let mut script = Script::active(config);
    script.give(ACK, 1001, 1, 500);
    let out = script.one();
    let block = out.options.sack.as_slice()[0];
    assert_eq!(out.ack, 1);
    assert_eq!(
        (block.left.distance(IRS), block.right.distance(IRS)),
        (1001, 1501)
    );
    // Segments with payload carry none: their headers all have one length.
    script.send(100).unwrap();
    script.give(ACK, 2001, 1, 500);
    let out = script.out();
    assert_eq!((out[0].len, out[0].options.sack.as_slice().len()), (0, 2));
    assert_eq!((out[1].len, out[1].options), (100, Options::default()));
}

#[test]
fn an_answer_carries_the_acknowledgment() {
    let mut script = Script::active(plain());
    for i in 0..20 {
        script.give(ACK, 1 + i * 64, 1 + i * 64, 64);
        assert_eq!(script.out(), [], "the layer above has not answered yet");
        script.send(64).unwrap();
        let answer = script.one();
        assert_eq!((answer.len, answer.ack), (64, 65 + i * 64));
        script.wait(MS);
    }
}

#[test]
fn without_an_answer_the_acknowledgment_goes_alone_after_its_delay() {
    let mut script = Script::active(plain());
    script.give(ACK, 1, 1, 64);
    assert_eq!(
        (script.out(), script.wait_for_timer()),
        (vec![], Config::default().ack_delay)
    );
    assert_eq!((script.one().ack, script.stack.next_deadline()), (65, None));
}

#[test]
fn what_comes_twice_is_acknowledged_at_once() {
    let mut script = Script::active(plain());
    script.give(ACK, 1, 1, 64);
    script.wait_for_timer();
    script.one();
    for _ in 0..3 {
        script.give(ACK, 1, 1, 64);
        assert_eq!(script.one().ack, 65);
    }
}

#[test]
fn too_many_holes_drop_the_segment() {
    let mut script = Script::active(plain());
    for i in 1..=32 {
        assert_eq!(script.give(ACK, 1 + i * 100, 1, 10).new.len(), 1);
    }
    assert!(script.give(ACK, 5001, 1, 10).new.is_empty());
    assert_eq!(script.info().counters.ranges_full, 1);
    // In order there is always a place.
    assert_eq!(script.give(ACK, 1, 1, 50).new.len(), 1);
    assert_eq!(script.give(ACK, 51, 1, 50).in_order_to, 110);
}

#[test]
fn urgent_octets_are_octets() {
    let mut script = Script::active(plain());
    assert_eq!(script.give(ACK | Flags::URG, 1, 1, 10).new.len(), 1);
}
