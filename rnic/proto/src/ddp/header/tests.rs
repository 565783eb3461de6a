use proptest::prelude::*;

use super::{Control, Header, TAGGED_LEN, Tagged, UNTAGGED_LEN, Untagged};
use crate::{Gather, MessageOffset, Msn, Qn, Stag, TaggedOffset};

fn parse(bytes: &[u8]) -> Option<Header> {
    Header::parse(&Gather::new(&[bytes]))
}

/// RFC 5041 Figure 4.
#[test]
fn tagged_fields_are_where_the_rfc_has_them() {
    let bytes = [0xc1, 0x40, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
    let header = Tagged {
        last: true,
        version: 1,
        ulp: 0x40,
        stag: Stag(0x0102_0304),
        to: TaggedOffset(0x0506_0708_090a_0b0c),
    };
    assert_eq!(parse(&bytes), Some(Header::Tagged(header)));
    assert_eq!(header.to_bytes(), bytes);
}

/// RFC 5044 Figure 5 has this header.
#[test]
fn untagged_fields_are_where_the_rfc_has_them() {
    let bytes = [0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];
    let header = Untagged {
        last: true,
        version: 1,
        ulp: 0x43,
        ulp_word: 0,
        qn: Qn(0),
        msn: Msn(1),
        mo: MessageOffset(0),
    };
    assert_eq!(parse(&bytes), Some(Header::Untagged(header)));
    assert_eq!(header.to_bytes(), bytes);
}

#[test]
fn reserved_bits_are_not_looked_at_and_sent_as_zero() {
    let control = Control::from_byte(0xbd);
    assert_eq!(
        control,
        Control {
            tagged: true,
            last: false,
            version: 1
        }
    );
    assert_eq!(control.byte(), 0x81);
}

#[test]
fn a_segment_shorter_than_its_header_has_none() {
    for len in 0..TAGGED_LEN {
        assert_eq!(parse(&[0xc1; TAGGED_LEN][..len]), None);
    }
    for len in 0..UNTAGGED_LEN {
        assert_eq!(parse(&[0x41; UNTAGGED_LEN][..len]), None);
    }
}

proptest! {
    #[test]
    fn headers_survive_the_way_there_and_back(bytes: [u8; UNTAGGED_LEN]) {
        let mut expected = bytes;
        expected[0] &= 0xc3;
        match parse(&bytes).expect("long enough") {
            Header::Tagged(header) => {
                prop_assert_eq!(&header.to_bytes()[..], &expected[..TAGGED_LEN]);
            }
            Header::Untagged(header) => prop_assert_eq!(header.to_bytes(), expected),
        }
    }
}
