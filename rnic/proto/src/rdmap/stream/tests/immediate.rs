//! Immediate Data (RFC 7306 section 6).

use super::*;
use crate::rdmap::segment::{IMMEDIATE_LEN, put_immediate};

const DATA: u64 = 0x0102_0304_0506_0708;

fn immediate(solicited: bool, msn: u32) -> Vec<u8> {
    let mut out = vec![0; IMMEDIATE_LEN];
    put_immediate(&mut out, solicited, Msn(msn), DATA);
    out
}

/// RFC 7306 section 6.3: Immediate Data is delivered in order, in the row of the Sends.
#[test]
fn immediate_data_is_numbered_with_the_sends() {
    let mut stream = stream();
    for (msn, solicited) in [(1, false), (2, true)] {
        let expected = Inbound::Immediate {
            solicited,
            msn: Msn(msn),
            data: DATA,
        };
        assert_eq!(take(&mut stream, &immediate(solicited, msn)), Ok(expected));
    }
    assert!(take(&mut stream, &send(PLAIN, 3, 0, 5, true)).is_ok());
    assert!(take(&mut stream, &immediate(false, 4)).is_ok());
    let again = take(&mut stream, &immediate(false, 4));
    assert_eq!(again, Err(DdpError::MsnRange.into()));
}

/// RFC 7306 section 6.3: exactly 8 bytes, which the remote peer checks.
#[test]
fn immediate_data_of_another_length_is_refused() {
    let unspecified = Err(RdmapError::OperationUnspecified.into());
    let whole = immediate(false, 1);
    for len in SEND_LEN..IMMEDIATE_LEN {
        assert_eq!(take(&mut stream(), &whole[..len]), unspecified, "{len}");
    }
    let long = [&whole[..], &[0]].concat();
    assert_eq!(take(&mut stream(), &long), unspecified);
    let mut not_last = whole.clone();
    not_last[0] = 0x01;
    assert_eq!(take(&mut stream(), &not_last), unspecified);
}

/// RFC 7306 section 4.1: the Invalidate STag is ignored by the receiver.
#[test]
fn the_invalidate_stag_of_immediate_data_is_ignored() {
    let mut ulpdu = immediate(false, 1);
    ulpdu[2..6].fill(0xff);
    assert!(take(&mut stream(), &ulpdu).is_ok());
}

#[test]
fn immediate_data_does_not_come_within_a_send() {
    let mut stream = stream();
    assert!(take(&mut stream, &send(PLAIN, 1, 0, 4, false)).is_ok());
    let mut ulpdu = immediate(false, 1);
    ulpdu[17] = 4;
    let refused = take(&mut stream, &ulpdu);
    assert_eq!(refused, Err(RdmapError::UnexpectedOpcode.into()));
}

/// RFC 7306 Figure 2: only on queue 0.
#[test]
fn immediate_data_comes_on_queue_zero_only() {
    for qn in 1..4 {
        let mut ulpdu = immediate(false, 1);
        ulpdu[9] = qn;
        let refused = take(&mut stream(), &ulpdu);
        assert_eq!(refused, Err(RdmapError::UnexpectedOpcode.into()), "{qn}");
    }
}

#[test]
fn immediate_data_is_no_indication_by_send() {
    let config = StreamConfig {
        expect_rtr: Some(Rtr::Send),
        ..StreamConfig::default()
    };
    let mut stream = Stream::new(config);
    let first = take(&mut stream, &immediate(false, 1));
    assert!(matches!(first, Ok(Inbound::Immediate { .. })), "{first:?}");
    let second = take(&mut stream, &send(PLAIN, 2, 0, 0, true));
    assert!(matches!(second, Ok(Inbound::Send { .. })), "{second:?}");
}

/// Out of order nothing of it is placed: it waits for its turn.
#[test]
fn immediate_data_is_not_placed_early() {
    let bytes = immediate(false, 1);
    assert_eq!(stream().early(&Gather::new(&[&bytes])), None);
}
