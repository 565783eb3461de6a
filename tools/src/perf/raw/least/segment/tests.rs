use etherparse::{NetSlice, SlicedPacket, TcpOptionElement, TransportSlice};
use rnic_proto::ddp::header::{Header, Tagged};
use rnic_proto::rdmap::segment::WRITE_LEN;

use super::*;

const FRAME: usize = 1514;
const TIMES: Timestamps = Timestamps {
    value: 7,
    echo: 0x8000_0001,
};
const FIELDS: Fields = Fields {
    seq: SeqNum(0xffff_ff00),
    ack: SeqNum(5),
    times: TIMES,
};

fn memory() -> Vec<u8> {
    (0..MESSAGE).map(|at| (at * 7 + at / 256) as u8).collect()
}

/// A frame with so many bytes of a message from `at` on.
fn sent(fields: &Fields, at: usize, payload: usize) -> Vec<u8> {
    let bytes = payload + OVERHEAD - HEADERS;
    let mut frame = vec![0xee; HEADERS + bytes];
    let from = &memory()[at..at + payload];
    let sum = write_fpdu(&mut frame[HEADERS..], from, at, at + payload == MESSAGE);
    Template::new(End::Source, bytes).write(&mut frame, fields, sum);
    frame
}

fn acknowledgment(fields: &Fields) -> Vec<u8> {
    let mut frame = vec![0xee; HEADERS];
    Template::new(End::Sink, 0).write(&mut frame, fields, 0);
    frame
}

/// Looks at the headers as somebody else's parser reads them, and gives TCP's payload.
fn headers(frame: &[u8], source: u8, fields: &Fields) -> Vec<u8> {
    let packet = SlicedPacket::from_ethernet(frame).expect("it is sound");
    let ethernet = packet.link.expect("an Ethernet header").to_header();
    let ethernet = ethernet.and_then(|link| link.ethernet2()).expect("that");
    assert_eq!(ethernet.source[5], source);
    assert_eq!(ethernet.destination[5], 3 - source);
    let Some(NetSlice::Ipv4(ip)) = packet.net else {
        panic!("not IPv4");
    };
    let ip = ip.header().to_header();
    assert_eq!(ip.header_checksum, ip.calc_header_checksum());
    assert_eq!((ip.source[3], ip.destination[3]), (source, 3 - source));
    assert_eq!(usize::from(ip.total_len) + ETHERNET_HEADER, frame.len());
    assert!(ip.dont_fragment);
    let Some(TransportSlice::Tcp(tcp)) = packet.transport else {
        panic!("not TCP");
    };
    let header = tcp.to_header();
    let checksum = header.calc_checksum_ipv4(&ip, tcp.payload());
    assert_eq!(checksum, Ok(header.checksum));
    assert_eq!(header.sequence_number, fields.seq.0);
    assert_eq!(header.acknowledgment_number, fields.ack.0);
    assert!(header.ack && !header.syn && !header.fin && !header.rst);
    let options: Result<Vec<_>, _> = header.options_iterator().collect();
    let times = TcpOptionElement::Timestamp(fields.times.value, fields.times.echo);
    let nop = TcpOptionElement::Noop;
    assert_eq!(options, Ok(vec![nop.clone(), nop, times]));
    tcp.payload().to_vec()
}

#[test]
fn a_segment_is_what_others_take_for_one_of_a_write() {
    let payload = payload_of(FRAME).expect("it has room");
    let ends = [0, payload, MESSAGE - MESSAGE % payload];
    for at in ends {
        let payload = payload.min(MESSAGE - at);
        let frame = sent(&FIELDS, at, payload);
        let fpdu = headers(&frame, 1, &FIELDS);
        let fpdu = fpdu.as_slice();
        let layout = fpdu::parse(&fpdu, Markers::Off, 0).expect("it has a length");
        assert_eq!(fpdu::check(&fpdu, &layout, true), Ok(()));
        let ulpdu = fpdu::ulpdu(&fpdu, &layout).expect("it is whole");
        let expected = Tagged {
            stag: STAG,
            to: TaggedOffset(at as u64),
            last: at + payload == MESSAGE,
            ..write(STAG, TaggedOffset(0), false)
        };
        assert_eq!(Header::parse(&ulpdu), Some(Header::Tagged(expected)));
        assert_eq!(ulpdu[WRITE_LEN..], memory()[at..at + payload]);
    }
}

#[test]
fn an_acknowledgment_is_what_others_take_for_one() {
    let fields = Fields {
        seq: SeqNum(0),
        ack: SeqNum(u32::MAX),
        times: TIMES,
    };
    assert!(headers(&acknowledgment(&fields), 2, &fields).is_empty());
}

#[test]
fn a_segment_is_as_long_as_a_write_has_it() {
    assert_eq!(payload_of(1514), Some(1428));
    assert_eq!(payload_of(3520), Some(3432), "whole words");
    assert_eq!(payload_of(60), None);
    for frame in 60..400 {
        let fits = payload_of(frame).is_none_or(|payload| payload + OVERHEAD <= frame);
        assert!(fits, "{frame} bytes");
    }
}

#[test]
fn what_is_written_is_read() {
    let mut reader = Reader::new(End::Sink);
    for (number, at) in [0, 1428, 2856, MESSAGE - 424].into_iter().enumerate() {
        let payload = 1428.min(MESSAGE - at);
        let fields = Fields {
            seq: SeqNum(number as u32),
            times: Timestamps {
                value: number as u32 / 2,
                echo: 0,
            },
            ..FIELDS
        };
        let frame = sent(&fields, at, payload);
        let read = reader.read(&frame).expect("it is sound");
        assert_eq!(
            (read.seq, read.ack, read.crc),
            (fields.seq, fields.ack, true)
        );
        assert_eq!(
            read_fpdu(read.bytes),
            Some((at, &memory()[at..at + payload]))
        );
        assert_eq!(reader.time(), fields.times.value);
    }
    let mut reader = Reader::new(End::Source);
    let frame = acknowledgment(&FIELDS);
    let read = reader.read(&frame).expect("it is sound");
    assert_eq!((read.ack, read.bytes.len()), (FIELDS.ack, 0));
}

#[test]
fn nothing_is_read_of_a_segment_that_has_changed_on_its_way() {
    let frame = sent(&FIELDS, 0, 64);
    for known in [false, true] {
        // The link's own header has no checksum but the frame's.
        for bit in 8 * ETHERNET_HEADER..8 * frame.len() {
            let mut reader = Reader::new(End::Sink);
            assert!(!known || reader.read(&frame).is_some());
            let mut changed = frame.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(reader.read(&changed), None, "bit {bit}");
        }
    }
}

#[test]
fn a_wrong_crc_shows_where_the_checksum_is_right() {
    let mut frame = sent(&FIELDS, 0, 64);
    // Two words exchanged do not change their sum.
    let at = HEADERS + FPDU_AHEAD;
    frame.swap(at, at + 2);
    frame.swap(at + 1, at + 3);
    let mut reader = Reader::new(End::Sink);
    assert_eq!(reader.read(&frame).map(|read| read.crc), Some(false));
}

#[test]
fn an_older_time_and_another_connection_are_not_read() {
    let at = |value| {
        let times = Timestamps { value, echo: 0 };
        sent(&Fields { times, ..FIELDS }, 0, 64)
    };
    let mut reader = Reader::new(End::Sink);
    for (value, taken) in [(7, true), (6, false), (7, true), (9, true), (8, false)] {
        assert_eq!(reader.read(&at(value)).is_some(), taken, "{value}");
    }
    assert_eq!(reader.read(&acknowledgment(&FIELDS)), None, "our own");
}

#[test]
fn an_fpdu_is_placed_only_where_memory_is() {
    let fpdu = |to: usize| {
        let mut out = [0; FPDU_AHEAD + 64 + fpdu::CRC_LEN];
        write_fpdu(&mut out, &[1; 64], to, false);
        out
    };
    let place = |fpdu: &[u8]| read_fpdu(fpdu).map(|(to, bytes)| (to, bytes.len()));
    assert_eq!(place(&fpdu(MESSAGE - 64)), Some((MESSAGE - 64, 64)));
    assert_eq!(place(&fpdu(MESSAGE - 63)), None, "beyond its end");
    assert_eq!(place(&fpdu(usize::MAX)), None);
    let sound = fpdu(0);
    assert_eq!(
        place(&sound[..sound.len() - 4]),
        None,
        "its length is another"
    );
    // Length, control fields, STag.
    for at in 0..8 {
        let mut changed = sound;
        changed[at] ^= 0x80;
        assert_eq!(place(&changed), None, "byte {at}");
    }
}
