use userspace_tcp::{Config, Options, Timestamps};

use crate::script::*;

#[test]
fn out_of_order_bytes_are_shown_at_once_and_only_once() {
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
    for i in 1..=1024 {
        assert_eq!(script.give(ACK, 1 + i * 40, 1, 10).new.len(), 1);
    }
    assert!(script.give(ACK, 50_001, 1, 10).new.is_empty());
    assert_eq!(script.info().counters.ranges_full, 1);
    // In order there is always a place.
    assert_eq!(script.give(ACK, 1, 1, 20).new.len(), 1);
    assert_eq!(script.give(ACK, 21, 1, 20).in_order_to, 50);
}

/// RFC 2883 section 4, for bytes below RCV.NXT and beyond it.
#[test]
fn what_comes_twice_is_reported_by_a_d_sack_block() {
    let config = Config {
        timestamps: false,
        window_scale: false,
        ..Config::default()
    };
    let mut script = Script::active(config);
    let blocks = |script: &mut Script| {
        let out = script.one();
        let blocks = out.options.sack.as_slice().iter();
        let distances = blocks.map(|block| (block.left.distance(IRS), block.right.distance(IRS)));
        (out.ack, distances.collect::<Vec<_>>())
    };
    script.give(ACK, 1, 1, 1000);
    script.wait_for_timer();
    assert_eq!(blocks(&mut script), (1001, vec![]));
    script.give(ACK, 1, 1, 1000);
    assert_eq!(blocks(&mut script), (1001, vec![(1, 1001)]));
    script.give(ACK, 2001, 1, 1000);
    assert_eq!(blocks(&mut script), (1001, vec![(2001, 3001)]));
    script.give(ACK, 2001, 1, 500);
    let expected = vec![(2001, 2501), (2001, 3001)];
    assert_eq!(blocks(&mut script), (1001, expected));
    // In part: the second half of the hole, and what lies behind it.
    script.give(ACK, 1501, 1, 1000);
    let expected = vec![(2001, 2501), (1501, 3001)];
    assert_eq!(blocks(&mut script), (1001, expected));
    // Each duplicate is told once.
    script.give(ACK, 1001, 1, 500);
    assert_eq!(blocks(&mut script), (3001, vec![]));
    assert_eq!(script.info().counters.bytes_in, 3000);
}

/// RFC 2883 section 4.3: the original that comes behind its retransmission is refused by PAWS, and
/// the sender wants to know of it most of all.
#[test]
fn a_duplicate_that_paws_drops_is_reported_too() {
    let mut script = Script::active(Config::default());
    let give = |script: &mut Script, value| {
        let options = Options {
            timestamps: Some(Timestamps { value, echo: 0 }),
            ..Options::default()
        };
        script.give_options(ACK, 1, 1, 1000, options);
    };
    give(&mut script, 5010);
    script.wait_for_timer();
    script.one();
    give(&mut script, 5005);
    let out = script.one();
    let block = out.options.sack.as_slice()[0];
    assert_eq!(
        (block.left.distance(IRS), block.right.distance(IRS)),
        (1, 1001)
    );
    assert_eq!(script.info().counters.paws_dropped, 1);
}

/// RFC 5681 section 3.2: a sender without SACK counts them.
#[test]
fn without_sack_each_segment_out_of_order_is_answered_by_itself() {
    let mut script = Script::active(plain());
    script.send(100).unwrap();
    for i in 1..=3 {
        script.give(ACK, i * 1000, 1, 1000);
    }
    let lens: Vec<_> = script.out().iter().map(|out| (out.ack, out.len)).collect();
    assert_eq!(lens, [(1, 0), (1, 0), (1, 0), (1, 100)]);
}

/// RFC 9293 section 3.8.6.3 (MUST-40).
#[test]
fn an_acknowledgment_waits_for_half_a_second_at_most() {
    let mut script = Script::active(Config {
        ack_delay: 10 * SEC,
        ..plain()
    });
    script.give(ACK, 1, 1, 10);
    assert_eq!((script.out(), script.wait_for_timer()), (vec![], 500 * MS));
    assert_eq!(script.one().ack, 11);
}
