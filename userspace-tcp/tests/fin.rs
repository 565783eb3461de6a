//! Where FIN goes: with the last data, in a segment of its own ([`userspace_tcp::Config::fin_alone`]), or once all
//! before it is acknowledged.

#![allow(clippy::unwrap_used)]

mod harness;

use harness::passive::{Passive, header, peer_seq};
use userspace_tcp::{Config, Flags, Segment};

/// Bytes and whether FIN is set, of each segment that goes out.
fn sent(end: &mut Passive) -> Vec<(u32, bool)> {
    let mut sent = Vec::new();
    while let Some(out) = end.stack.poll_transmit(end.now) {
        let bytes = out.payload.as_ref().map_or(0, |payload| payload.len);
        sent.push((bytes, out.header.flags.fin()));
        if let Some(payload) = out.payload {
            let _ = end.stack.transmitted(end.conn, payload.id, payload.buf);
        }
    }
    sent
}

#[test]
fn fin_goes_with_the_last_data_or_in_a_segment_of_its_own_as_configured() {
    for fin_alone in [false, true] {
        let mut end = Passive::open_as(Config {
            fin_alone,
            ..Config::default()
        });
        end.post(100);
        end.post(50);
        assert!(end.stack.close(end.conn));
        let first = sent(&mut end);
        match fin_alone {
            false => assert_eq!(first, [(100, false), (50, true)]),
            true => assert_eq!(first, [(100, false), (50, false), (0, true)]),
        }
        // And so it is when it is sent again.
        let mut again = Vec::new();
        for _ in 0..8 {
            end.now = end.stack.next_deadline().unwrap();
            end.stack.advance(end.now);
            again.extend(sent(&mut end));
        }
        let with_data = |(bytes, fin): &(u32, bool)| *bytes > 0 && *fin;
        assert_eq!(again.iter().any(with_data), !fin_alone, "{again:?}");
    }
}

/// The peer has so many bytes.
fn acknowledge(end: &mut Passive, bytes: u32) {
    let ack = header(Flags::ACK, peer_seq(0), end.ours.add(bytes));
    end.receive(&Segment::new(ack, &[]));
}

/// Data of which the ACK is lost, or which are lost themselves, hold it back.
#[test]
fn fin_that_waits_goes_when_all_before_it_is_acknowledged() {
    let mut end = Passive::open(false);
    end.post(100);
    end.post(50);
    assert!(end.stack.close_once_acknowledged(end.conn));
    assert_eq!(sent(&mut end), [(100, false), (50, false)]);
    // Whatever is sent again meanwhile.
    for _ in 0..4 {
        end.now = end.stack.next_deadline().unwrap();
        end.stack.advance(end.now);
        let again = sent(&mut end);
        assert!(again.iter().all(|(_, fin)| !fin), "{again:?}");
    }
    acknowledge(&mut end, 100);
    assert!(sent(&mut end).iter().all(|(_, fin)| !fin));
    acknowledge(&mut end, 150);
    assert_eq!(sent(&mut end), [(0, true)]);
    // It is sent again until it is acknowledged, too.
    let mut again = 0;
    for _ in 0..4 {
        end.now = end.stack.next_deadline().unwrap();
        end.stack.advance(end.now);
        again += sent(&mut end)
            .iter()
            .filter(|segment| **segment == (0, true))
            .count();
    }
    assert!(again > 0);
}

#[test]
fn fin_that_waits_goes_at_once_behind_nothing() {
    let mut end = Passive::open(false);
    assert!(end.stack.close_once_acknowledged(end.conn));
    assert_eq!(sent(&mut end), [(0, true)]);
}
