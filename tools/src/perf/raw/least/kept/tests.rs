use rnic_xsk::{FramePool, Umem, UmemConfig};

use super::*;

const BYTES: usize = 100;

fn pool() -> FramePool {
    let config = UmemConfig {
        frames: 16,
        ..UmemConfig::default()
    };
    Umem::new(&config).expect("there is memory").1
}

/// So many segments, of which all are with the link, and their frames.
fn sent(pool: &mut FramePool, count: usize) -> (Kept, Vec<Outgoing>) {
    let mut kept = Kept::new(count);
    let mut out = Vec::new();
    for _ in 0..count {
        kept.push(pool.alloc().expect("there are enough"), BYTES, 0);
        out.push(kept.take_next().expect("it is here"));
    }
    (kept, out)
}

fn give_back(kept: &mut Kept, outgoing: Vec<Outgoing>) {
    for one in outgoing {
        assert_eq!(kept.returned(one.number, one.frame), None, "it is kept");
    }
}

fn ack(segments: u32) -> SeqNum {
    SeqNum(segments * BYTES as u32)
}

#[test]
fn a_frame_is_kept_until_its_segment_has_arrived() {
    let mut pool = pool();
    let (mut kept, out) = sent(&mut pool, 4);
    give_back(&mut kept, out);
    let mut free = Vec::new();
    assert_eq!(
        kept.acknowledge(ack(3), |frame| free.push(frame)),
        News::Arrived
    );
    assert_eq!((free.len(), kept.len(), kept.acknowledged()), (3, 1, 3));
    assert!(kept.are_sent());
}

#[test]
fn a_frame_that_the_link_still_has_comes_back_when_its_segment_has_arrived() {
    let mut pool = pool();
    let (mut kept, mut out) = sent(&mut pool, 2);
    let news = kept.acknowledge(ack(1), |_| panic!("it is not here"));
    assert_eq!(news, News::Arrived);
    let (second, first) = (out.pop().expect("two"), out.pop().expect("two"));
    assert!(kept.returned(first.number, first.frame).is_some());
    assert!(kept.returned(second.number, second.frame).is_none());
}

#[test]
fn all_that_has_not_arrived_goes_again_in_order() {
    let mut pool = pool();
    let (mut kept, out) = sent(&mut pool, 4);
    give_back(&mut kept, out);
    kept.acknowledge(ack(1), |frame| pool.free(frame));
    kept.go_back();
    for number in 1..4 {
        let next = kept.take_next().expect("it is here");
        assert_eq!((next.number, next.seq), (number, ack(number as u32)));
    }
    assert_eq!(kept.take_next(), None);
    assert!(kept.are_sent());
}

#[test]
fn what_the_link_has_or_refuses_goes_later() {
    let mut pool = pool();
    let (mut kept, mut out) = sent(&mut pool, 2);
    kept.go_back();
    assert_eq!(kept.take_next(), None, "the link has it");
    let first = out.remove(0);
    kept.returned(first.number, first.frame);
    let next = kept.take_next().expect("it is back");
    kept.refused(next.frame);
    assert_eq!(kept.take_next().map(|next| next.number), Some(0));
}

#[test]
fn what_arrives_while_all_goes_again_does_not_go() {
    let mut pool = pool();
    let (mut kept, out) = sent(&mut pool, 4);
    give_back(&mut kept, out);
    kept.go_back();
    kept.acknowledge(ack(2), |frame| pool.free(frame));
    assert_eq!(kept.take_next().map(|next| next.number), Some(2));
}

#[test]
fn an_acknowledgment_tells_what_has_arrived_or_that_something_is_missing() {
    let mut pool = pool();
    let (mut kept, out) = sent(&mut pool, 3);
    give_back(&mut kept, out);
    let mut heard = |ack| kept.acknowledge(ack, |frame| pool.free(frame));
    assert_eq!(heard(ack(0)), News::Same);
    assert_eq!(heard(ack(4)), News::None, "never sent");
    assert_eq!(heard(SeqNum(ack(1).0 + 1)), News::Arrived, "one and a bit");
    assert_eq!(heard(ack(0)), News::None, "older");
    assert_eq!(heard(ack(1)), News::Same);
    assert_eq!(heard(ack(3)), News::Arrived);
    assert_eq!(heard(ack(3)), News::None, "nothing is under way");
}
