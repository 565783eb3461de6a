use proptest::prelude::*;

use super::{AtomicOperation, AtomicRequest, AtomicResponse, REQUEST_LEN, RESPONSE_LEN};
use crate::{Stag, TaggedOffset};

/// Bytes whose every field differs, with an Atomic Operation Code.
fn bytes(code: u8) -> [u8; REQUEST_LEN] {
    let mut bytes: [u8; REQUEST_LEN] = std::array::from_fn(|n| n as u8);
    bytes[..4].copy_from_slice(&[0, 0, 0, code]);
    bytes
}

/// RFC 7306 Figure 4, Figure 5.
#[test]
fn the_fields_of_a_compare_and_swap_are_where_figure_4_has_them() {
    let request = AtomicRequest::from_bytes(&bytes(2)).expect("2 is CmpSwap");
    let expected = AtomicRequest {
        identifier: 0x0405_0607,
        stag: Stag(0x0809_0a0b),
        to: TaggedOffset(0x0c0d_0e0f_1011_1213),
        operation: AtomicOperation::CompareSwap {
            swap: 0x1415_1617_1819_1a1b,
            swap_mask: 0x1c1d_1e1f_2021_2223,
            compare: 0x2425_2627_2829_2a2b,
            compare_mask: 0x2c2d_2e2f_3031_3233,
        },
    };
    assert_eq!(request, expected);
    assert_eq!(request.to_bytes(), bytes(2));
}

/// RFC 7306 section 5.2.1: a FetchAdd's compare data is zero and its compare mask all ones on
/// transmit, and both are ignored by the receiver.
#[test]
fn a_fetch_add_has_no_compare_fields() {
    let request = AtomicRequest::from_bytes(&bytes(0)).expect("0 is FetchAdd");
    let operation = AtomicOperation::FetchAdd {
        add: 0x1415_1617_1819_1a1b,
        mask: 0x1c1d_1e1f_2021_2223,
    };
    assert_eq!(request.operation, operation);
    let mut sent = bytes(0);
    sent[36..44].fill(0);
    sent[44..].fill(0xff);
    assert_eq!(request.to_bytes(), sent);
}

/// RFC 7306 section 5.2.1: 28 reserved bits are ignored on receive, zero on transmit.
#[test]
fn reserved_bits_of_the_first_word_are_ignored() {
    let mut reserved = bytes(2);
    reserved[..4].copy_from_slice(&[0xff, 0xff, 0xff, 0xf2]);
    let request = AtomicRequest::from_bytes(&reserved).expect("2 is CmpSwap");
    assert_eq!(request.to_bytes(), bytes(2));
}

/// RFC 7306 section 10.1: 1 is reserved, 3 to 15 are unassigned.
#[test]
fn other_operation_codes_are_no_request() {
    for code in (0..16).filter(|code| ![0, 2].contains(code)) {
        assert_eq!(AtomicRequest::from_bytes(&bytes(code)), None, "{code}");
    }
}

/// RFC 7306 Figure 6.
#[test]
fn the_fields_of_a_response_are_where_figure_6_has_them() {
    let bytes: [u8; RESPONSE_LEN] = std::array::from_fn(|n| n as u8);
    let response = AtomicResponse::from_bytes(&bytes);
    let expected = AtomicResponse {
        identifier: 0x0001_0203,
        original: 0x0405_0607_0809_0a0b,
    };
    assert_eq!(response, expected);
    assert_eq!(response.to_bytes(), bytes);
}

/// The pseudocode of RFC 7306 section 5.1.1, line by line.
fn fetch_add_by_the_rfc(original: u64, add: u64, mask: u64) -> u64 {
    let (mut bit_location, mut carry, mut value) = (1u64, 0, 0);
    for bit in 0..64 {
        if bit != 0 {
            bit_location <<= 1;
        }
        let val1 = (original & bit_location) >> bit;
        let val2 = (add & bit_location) >> bit;
        let sum = carry + val1 + val2;
        carry = (sum & 2) >> 1;
        if sum & 1 != 0 {
            value |= bit_location;
        }
        carry = u64::from(carry != 0 && mask & bit_location == 0);
    }
    value
}

#[test]
fn a_fetch_add_without_a_mask_adds_64_bits_and_wraps() {
    let add = |add| AtomicOperation::FetchAdd { add, mask: 0 };
    assert_eq!(add(5).apply(7), 12);
    assert_eq!(add(1).apply(u64::MAX), 0);
    assert_eq!(add(0).apply(9), 9);
}

#[test]
fn a_carry_does_not_leave_its_field() {
    let mask = 0x8000_0000_8000_0000;
    let add = 0x0000_0001_0000_0001;
    let halves = AtomicOperation::FetchAdd { add, mask };
    assert_eq!(halves.apply(0x0000_0000_ffff_ffff), 0x0000_0001_0000_0000);
    assert_eq!(halves.apply(0xffff_ffff_0000_0000), 0x0000_0000_0000_0001);
}

/// RFC 7306 section 5.1.2.
#[test]
fn a_compare_and_swap_replaces_masked_bits_of_the_expected_value_only() {
    let operation = |compare_mask| AtomicOperation::CompareSwap {
        swap: 0xaaaa,
        swap_mask: 0x0ff0,
        compare: 0x1234,
        compare_mask,
    };
    assert_eq!(operation(u64::MAX).apply(0x1234), 0x1aa4);
    assert_eq!(operation(u64::MAX).apply(0x1235), 0x1235);
    assert_eq!(operation(!0xf).apply(0x1235), 0x1aa5);
    assert_eq!(operation(0).apply(0xffff), 0xfaaf, "a masked Swap");
}

proptest! {
    #[test]
    fn masked_addition_is_that_of_the_pseudocode(original: u64, add: u64, mask: u64) {
        let operation = AtomicOperation::FetchAdd { add, mask };
        prop_assert_eq!(operation.apply(original), fetch_add_by_the_rfc(original, add, mask));
    }

    #[test]
    fn a_request_survives_the_wire(
        identifier: u32, stag: u32, to: u64, swap: u64, swap_mask: u64, compare: u64,
        compare_mask: u64, adds: bool,
    ) {
        let operation = if adds {
            AtomicOperation::FetchAdd { add: swap, mask: swap_mask }
        } else {
            AtomicOperation::CompareSwap { swap, swap_mask, compare, compare_mask }
        };
        let (stag, to) = (Stag(stag), TaggedOffset(to));
        let request = AtomicRequest { identifier, stag, to, operation };
        prop_assert_eq!(AtomicRequest::from_bytes(&request.to_bytes()), Some(request));
    }
}
