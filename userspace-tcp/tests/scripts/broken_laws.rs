//! Each law is broken once, and says so.

use userspace_net::{Ecn, Instant};
use userspace_tcp::NewRange;

use crate::laws::{CLOCK_CYCLE, Laws, Numbers};
use crate::wire::{ACK, Tlv, Wire};

fn segment(seq: u32, ack: u32, window: u16, len: u32) -> Wire {
    Wire {
        ports: (1, 2),
        flags: ACK,
        seq,
        ack,
        window,
        urgent: 0,
        options: Vec::new(),
        len,
        ecn: Ecn::NotEct,
        fragment: None,
    }
}

const NOW: Instant = Instant::ZERO;

fn numbers(timestamps: bool) -> Numbers {
    Numbers {
        timestamps,
        ..Numbers::default()
    }
}

fn breaks(laws: &mut Laws, wire: &Wire, timestamps: bool, why: &str) {
    let broken = laws.sent(NOW, wire, numbers(timestamps)).expect_err(why);
    assert!(broken.contains(why), "{broken}");
}

#[test]
fn a_posted_segment_is_neither_split_nor_joined() {
    let mut laws = Laws::default();
    laws.post(1000);
    laws.post(500);
    assert_eq!(
        laws.sent(NOW, &segment(1, 1, 100, 1000), numbers(false)),
        Ok(())
    );
    assert_eq!(
        laws.sent(NOW, &segment(1001, 1, 100, 500), numbers(false)),
        Ok(())
    );
    for (seq, len) in [(1, 500), (501, 500), (1, 1500), (1501, 1)] {
        breaks(
            &mut laws,
            &segment(seq, 1, 100, len),
            false,
            "split or joined",
        );
    }
}

#[test]
fn acknowledgment_and_right_edge_never_go_back() {
    let mut laws = Laws::default();
    assert_eq!(
        laws.sent(NOW, &segment(1, 100, 1000, 0), numbers(false)),
        Ok(())
    );
    assert_eq!(
        laws.sent(NOW, &segment(1, 200, 900, 0), numbers(false)),
        Ok(())
    );
    breaks(
        &mut laws,
        &segment(1, 199, 1000, 0),
        false,
        "acknowledgment goes back",
    );
    breaks(
        &mut laws,
        &segment(1, 200, 899, 0),
        false,
        "right edge goes back",
    );
    laws.scale(3, 0);
    // 899 bytes can't be named in units of 8.
    assert_eq!(
        laws.sent(NOW, &segment(1, 201, 112, 0), numbers(false)),
        Ok(())
    );
    breaks(
        &mut laws,
        &segment(1, 201, 110, 0),
        false,
        "right edge goes back",
    );
}

#[test]
fn timestamps_are_in_every_segment_and_never_go_back() {
    let mut laws = Laws::default();
    let mut wire = segment(1, 1, 100, 0);
    breaks(&mut laws, &wire, true, "every segment has them");
    wire.options = vec![Tlv::Timestamps(2, 0)];
    assert_eq!(laws.sent(NOW, &wire, numbers(true)), Ok(()));
    wire.options = vec![Tlv::Timestamps(1, 0)];
    breaks(&mut laws, &wire, true, "TSval goes back");
    let later = NOW + CLOCK_CYCLE;
    assert_eq!(laws.sent(later, &wire, numbers(true)), Ok(()));
}

#[test]
fn bytes_are_shown_once_and_where_they_belong() {
    let wire = segment(1001, 1, 100, 500);
    let range = |offset, skip, len| NewRange { offset, skip, len };
    let mut laws = Laws::default();
    let mut show = |range, in_order| laws.received(&wire, 0, &[range], Some(in_order));
    assert_eq!(show(range(1100, 100, 100), 0), Ok(()));
    for (range, why) in [
        (range(1199, 199, 2), "shown before"),
        (range(1050, 50, 51), "shown before"),
        (range(1200, 100, 50), "other bytes"),
        (range(1400, 400, 101), "outside"),
        (range(1400, 400, 0), "outside"),
    ] {
        let broken = show(range, 0).expect_err(why);
        assert!(broken.contains(why), "{broken}");
    }
    let broken = show(range(1000, 0, 100), 1200).expect_err("a hole");
    assert!(broken.contains("0 bytes are here in order"), "{broken}");
}
