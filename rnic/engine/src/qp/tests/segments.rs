//! The segments of messages as they are on the wire, field by field where the RFCs have them: nothing of
//! what writes them is used to look at them.

use rnic_proto::crc::crc_of;

use super::*;

const SOURCE: u64 = BASE + 0x100;
const SINK: u64 = BASE + 0x2_0000;
/// Bytes of a message of four segments.
const LONG: u32 = 5000;

/// Where TO or MO begins, and the payload behind it, in a ULPDU.
#[derive(Clone, Copy)]
struct Fields {
    offset: usize,
    payload: usize,
}

/// RFC 5041 Figure 4: control, RsvdULP, STag, TO.
const TAGGED: Fields = Fields {
    offset: 6,
    payload: 14,
};
/// RFC 5041 Figure 5: control, RsvdULP, QN, MSN, MO.
const UNTAGGED: Fields = Fields {
    offset: 14,
    payload: 18,
};

/// All ULPDUs that an end has to send now.
fn ulpdus(end: &mut End) -> Vec<Vec<u8>> {
    let fpdus = std::iter::from_fn(|| end.produce(MULPDU));
    fpdus
        .map(|fpdu| {
            let len = usize::from(u16::from_be_bytes([fpdu[0], fpdu[1]]));
            fpdu[2..2 + len].to_vec()
        })
        .collect()
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |n, byte| n << 8 | u64::from(*byte))
}

/// That the ULPDUs are one message of these bytes, whose first one is at `first`.
fn assert_is_one_message(ulpdus: &[Vec<u8>], fields: Fields, first: u64, bytes: &[u8]) {
    let Fields { offset, payload } = fields;
    let (head, mut sent) = (&ulpdus[0], 0);
    for (index, ulpdu) in ulpdus.iter().enumerate() {
        let last = index + 1 == ulpdus.len();
        assert_eq!(ulpdu[0] & 0x40 != 0, last, "L of segment {index}");
        assert_eq!(ulpdu[0] & !0x40, head[0] & !0x40, "T, Rsvd and DV");
        assert_eq!(ulpdu[1..offset], head[1..offset], "RsvdULP and the name");
        assert_eq!(number(&ulpdu[offset..payload]), first + sent as u64);
        let end = sent + ulpdu.len() - payload;
        assert_eq!(ulpdu[payload..], bytes[sent..end]);
        sent = end;
    }
    assert_eq!(sent, bytes.len());
}

/// RFC 5041 sections 4.2 and 5.2.
#[test]
fn the_segments_of_a_write_differ_in_l_and_to_only() {
    let (mut a, _) = joined();
    let bytes = bytes(&mut Random::new(1), LONG as usize);
    a.fill(SOURCE, &bytes);
    a.post_send(&write(1, &[sge(SOURCE, LONG)], SINK));
    let ulpdus = ulpdus(&mut a);
    assert_eq!(ulpdus.len(), 4);
    assert_eq!(ulpdus[0][..2], [0x81, 0x40]);
    assert_eq!(number(&ulpdus[0][2..6]), u64::from(STAG.0));
    assert_is_one_message(&ulpdus, TAGGED, SINK, &bytes);
}

/// RFC 5041 sections 4.3 and 5.2.
#[test]
fn the_segments_of_a_send_differ_in_l_and_mo_only() {
    let (mut a, _) = joined();
    let bytes = bytes(&mut Random::new(2), LONG as usize);
    a.fill(SOURCE, &bytes);
    for msn in 1..=2 {
        a.post_send(&send(1, &[sge(SOURCE, LONG)]));
        let ulpdus = ulpdus(&mut a);
        assert_eq!(ulpdus.len(), 4);
        assert_eq!(ulpdus[0][..6], [0x01, 0x43, 0, 0, 0, 0]);
        assert_eq!(number(&ulpdus[0][6..10]), 0, "QN");
        assert_eq!(number(&ulpdus[0][10..14]), msn, "MSN");
        assert_is_one_message(&ulpdus, UNTAGGED, 0, &bytes);
    }
}

/// RFC 5040 section 4.4: the sink's STag and TO come back as they went.
#[test]
fn the_segments_of_a_read_response_differ_in_l_and_to_only() {
    let (mut a, mut b) = joined();
    let bytes = bytes(&mut Random::new(3), LONG as usize);
    b.fill(SOURCE, &bytes);
    a.post_send(&read(1, sge(SINK, LONG), SOURCE));
    b.receive(&a.produce(MULPDU).unwrap());
    let ulpdus = ulpdus(&mut b);
    assert_eq!(ulpdus.len(), 4);
    assert_eq!(ulpdus[0][..2], [0x81, 0x42]);
    assert_eq!(number(&ulpdus[0][2..6]), u64::from(STAG.0));
    assert_is_one_message(&ulpdus, TAGGED, SINK, &bytes);
}

/// RFC 5041 section 5.2.
#[test]
fn a_message_without_bytes_is_one_segment() {
    for (work, fields) in [
        (write(1, &[], SINK), TAGGED),
        (send(1, &[]), UNTAGGED),
        (write(1, &[sge(SOURCE, 0)], SINK), TAGGED),
    ] {
        let (mut a, _) = joined();
        a.post_send(&work);
        let ulpdus = ulpdus(&mut a);
        assert_eq!(ulpdus.len(), 1);
        assert_eq!(ulpdus[0].len(), fields.payload);
        assert_eq!(ulpdus[0][0], ulpdus[0][0] & 0x80 | 0x41, "L, DV 1");
    }
}

/// RFC 5040 sections 5.2.1 and 5.2.2, RFC 7306 sections 5.2.2 and 5.4: requests that wait are answered
/// oldest first, also those of one kind behind those of the other.
#[test]
fn responses_go_in_the_order_of_the_requests_that_wait() {
    let (mut a, mut b) = joined();
    a.post_send(&read(0, sge(SINK, 8), SOURCE));
    a.post_send(&read(1, sge(SINK + 8, 8), SOURCE));
    a.post_send(&fetch_add(2, SINK + 16, SOURCE, 1));
    a.post_send(&fetch_add(3, SINK + 24, SOURCE, 1));
    let mut identifiers = Vec::new();
    while let Some(fpdu) = a.produce(MULPDU) {
        if fpdu[3] == 0x4a {
            // Behind the header and the Atomic Operation Code.
            identifiers.push(number(&fpdu[24..28]));
        }
        b.receive(&fpdu);
    }
    let responses = ulpdus(&mut b);
    let opcodes: Vec<u8> = responses.iter().map(|ulpdu| ulpdu[1]).collect();
    assert_eq!(opcodes, [0x42, 0x42, 0x4b, 0x4b]);
    let sinks = [&responses[0], &responses[1]].map(|ulpdu| number(&ulpdu[6..14]));
    assert_eq!(sinks, [SINK, SINK + 8]);
    let answered = [&responses[2], &responses[3]].map(|ulpdu| number(&ulpdu[18..22]));
    assert_eq!(answered[..], identifiers);
    let originals = [&responses[2], &responses[3]].map(|ulpdu| number(&ulpdu[22..30]));
    assert_eq!(originals, [0, 1], "done in that order too");
}

/// RFC 5044 section 7.1.1: with CRCs agreed both ends send them, and check them.
#[test]
fn with_crc_agreed_each_end_sends_and_checks_them() {
    for initiator_writes in [true, false] {
        let (mut a, mut b) = joined();
        let (from, to) = match initiator_writes {
            true => (&mut a, &mut b),
            false => (&mut b, &mut a),
        };
        from.post_send(&write(1, &[sge(SOURCE, 8)], SINK));
        let mut fpdu = from.produce(MULPDU).unwrap();
        let crc = fpdu.len() - 4;
        assert_eq!(fpdu[crc..], crc_of([&fpdu[..crc]]).bytes());
        fpdu[crc] ^= 1;
        to.receive(&fpdu);
        assert_eq!(to.counters.crc_errors, 1, "{initiator_writes}");
    }
}

/// RFC 6581 section 9.2: the indication that was agreed, first of all and once.
#[test]
fn an_initiator_opens_with_the_indication_that_was_agreed() {
    for (rtr, opcode, len) in [
        (Rtr::Write, 0x40, 14),
        (Rtr::Read, 0x41, 18 + 28),
        (Rtr::Send, 0x43, 18),
    ] {
        let (mut a, _) = joined_with(&negotiated(Some(rtr)));
        a.post_send(&write(1, &[sge(SOURCE, 8)], SINK));
        let ulpdus = ulpdus(&mut a);
        assert_eq!((ulpdus[0][1], ulpdus[0].len()), (opcode, len), "{rtr:?}");
        assert_eq!(ulpdus.len(), 2, "then the Write");
        assert_eq!((ulpdus[1][1], ulpdus[1].len()), (0x40, 14 + 8));
    }
}
