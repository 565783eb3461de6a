use super::{InboundQueue, Progress};
use crate::ddp::DdpError;
use crate::{MessageOffset, Msn};

/// RFC 5041 section 4.3: the initial MSN is one.
#[test]
fn the_first_message_is_number_one() {
    let queue = InboundQueue::default();
    assert_eq!(queue.msn(), Msn(1));
    assert_eq!(queue.check_placement(Msn(1), MessageOffset(0), 10), Ok(()));
    assert_eq!(
        queue.check_placement(Msn(0), MessageOffset(0), 10),
        Err(DdpError::MsnRange)
    );
    assert_eq!(
        queue.check_placement(Msn(2), MessageOffset(0), 10),
        Err(DdpError::MsnRange)
    );
}

#[test]
fn bytes_come_in_order_and_the_last_segment_tells_the_length() {
    let mut queue = InboundQueue::default();
    assert_eq!(queue.advance(1482, false), Progress::Partial);
    assert_eq!(
        queue.check_placement(Msn(1), MessageOffset(0), 566),
        Err(DdpError::InvalidMo)
    );
    assert_eq!(
        queue.check_placement(Msn(1), MessageOffset(1483), 1),
        Err(DdpError::InvalidMo)
    );
    assert_eq!(
        queue.check_placement(Msn(1), MessageOffset(1482), 566),
        Ok(())
    );
    assert_eq!(
        queue.advance(566, true),
        Progress::Complete { length: 2048 }
    );
    assert_eq!(queue.check_placement(Msn(2), MessageOffset(0), 0), Ok(()));
}

/// RFC 5041 section 5.2: the ULP Message Length is less than 2^32.
#[test]
fn a_message_of_2_to_the_32_bytes_is_too_long() {
    let mut queue = InboundQueue::default();
    assert_eq!(queue.advance(u32::MAX, false), Progress::Partial);
    let end = MessageOffset(u32::MAX);
    assert_eq!(queue.check_placement(Msn(1), end, 0), Ok(()));
    assert_eq!(
        queue.check_placement(Msn(1), end, 1),
        Err(DdpError::MessageTooLong)
    );
}

/// RFC 5041 section 4.3: the MSN wraps to 0 after 0xFFFFFFFF.
#[test]
fn the_number_wraps() {
    let mut queue = InboundQueue {
        msn: Msn(u32::MAX),
        mo: 0,
    };
    assert_eq!(queue.advance(1, true), Progress::Complete { length: 1 });
    assert_eq!(queue.msn(), Msn(0));
}
