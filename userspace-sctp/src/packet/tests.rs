use super::{HEADER_LEN, Header, Packet, ParseError, Writer, verify};
use crate::cause::{self, Cause, Causes};
use crate::chunk::{Chunk, Data, GapBlock, Init, Report, Sack};
use crate::parameter::{self, ADAPTATION_DDP, Parameter, Parameters};
use crate::tlv::NoRoom;
use crate::tsn::Tsn;

const HEADER: Header = Header {
    source: 1,
    destination: 0xfffe,
    tag: 0x0102_0304,
};

fn packet(chunks: &[Chunk<'_>]) -> Vec<u8> {
    let mut buffer = [0xff; 2048];
    let mut writer = Writer::new(&mut buffer, HEADER).unwrap();
    for chunk in chunks {
        writer.chunk(chunk).unwrap();
    }
    let len = writer.finish();
    buffer[..len].to_vec()
}

/// A packet with these bytes as its chunks.
fn raw(body: &[u8]) -> Vec<u8> {
    [&packet(&[])[..], body].concat()
}

fn data(payload: &[u8]) -> Data<'_> {
    Data {
        tsn: Tsn(u32::MAX),
        stream: 2,
        sequence: 3,
        protocol: 16,
        unordered: true,
        begin: true,
        end: true,
        immediate: false,
        payload,
    }
}

#[test]
fn every_chunk_comes_back_as_it_was_written() {
    let mut parameters = [0; 64];
    let mut writer = parameter::Writer::new(&mut parameters);
    writer.put(&Parameter::Adaptation(ADAPTATION_DDP)).unwrap();
    let len = writer.finish();
    let init = Init {
        tag: 5,
        window: 1500,
        outbound_streams: 1,
        inbound_streams: 2,
        initial_tsn: Tsn(9),
        parameters: Parameters::new(&parameters[..len]),
    };
    let mut causes = [0; 64];
    let mut writer = cause::Writer::new(&mut causes);
    writer.put(&Cause::UserInitiated(b"bye")).unwrap();
    let len = writer.finish();
    let causes = Causes::new(&causes[..len]);
    let blocks = GapBlock { start: 2, end: 5 }.bytes();
    let sack = Sack::new(Tsn(7), 4660, &blocks, &[0, 0, 0, 6]);
    let all = [
        Chunk::Data(data(b"12345")),
        Chunk::Data(Data {
            unordered: false,
            begin: false,
            immediate: true,
            ..data(b"1")
        }),
        Chunk::Data(Data {
            end: false,
            ..data(b"1234")
        }),
        Chunk::Init(init),
        Chunk::InitAck(init),
        Chunk::Sack(sack),
        Chunk::Heartbeat(b"beat!"),
        Chunk::HeartbeatAck(b""),
        Chunk::Abort {
            reflected: true,
            causes,
        },
        Chunk::Abort {
            reflected: false,
            causes: Causes::default(),
        },
        Chunk::Shutdown { cumulative: Tsn(3) },
        Chunk::ShutdownAck,
        Chunk::Error(causes),
        Chunk::CookieEcho(b"cookie"),
        Chunk::CookieAck,
        Chunk::ShutdownComplete { reflected: true },
        Chunk::ShutdownComplete { reflected: false },
    ];
    for chunk in all {
        let bytes = packet(&[chunk]);
        assert_eq!(bytes.len() % 4, 0, "{chunk:?}");
        verify(&bytes).unwrap();
        let packet = Packet::parse(&bytes).unwrap();
        assert_eq!(packet.header, HEADER);
        assert!(packet.chunks().eq([chunk]), "{chunk:?}");
    }
    let bundle = packet(&all);
    assert!(Packet::parse(&bundle).unwrap().chunks().eq(all));
    let sack_alone = packet(&[Chunk::Sack(sack)]);
    let Some(Chunk::Sack(found)) = Packet::parse(&sack_alone).unwrap().chunks().next() else {
        panic!("{sack_alone:?}");
    };
    assert!(found.blocks().eq([GapBlock { start: 2, end: 5 }]));
    assert!(found.duplicates().eq([Tsn(6)]));
}

/// The bytes of RFC 9260 section 3.3.1 by hand.
#[test]
fn a_data_chunk_is_laid_out_and_padded_as_the_rfc_draws_it() {
    let bytes = packet(&[Chunk::Data(data(b"abc"))]);
    let chunk = [
        0, 7, 0, 19, 255, 255, 255, 255, 0, 2, 0, 3, 0, 0, 0, 16, b'a', b'b', b'c', 0,
    ];
    assert_eq!(bytes[..8], [0, 1, 0xff, 0xfe, 1, 2, 3, 4]);
    assert_eq!(bytes[HEADER_LEN..], chunk);
}

/// RFC 9260 appendix A.
#[test]
fn the_checksum_covers_all_bytes_and_goes_out_lowest_byte_first() {
    let bytes = packet(&[Chunk::CookieAck]);
    let mut zeroed = bytes.clone();
    zeroed[8..12].fill(0);
    let crc = rnic_crc::append(0, &zeroed);
    assert_eq!(bytes[8..12], crc.to_le_bytes());
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(
            matches!(verify(&damaged), Err(ParseError::Checksum { .. })),
            "bit {bit}"
        );
    }
    assert_eq!(verify(&bytes[..11]), Err(ParseError::TooShort { len: 11 }));
}

#[test]
fn what_has_no_chunk_or_no_port_is_no_packet() {
    let bytes = packet(&[Chunk::CookieAck]);
    for len in 0..bytes.len() {
        assert_eq!(
            Packet::parse(&bytes[..len]).err(),
            Some(ParseError::TooShort { len })
        );
    }
    for port in [0..2, 2..4] {
        let mut without = bytes.clone();
        without[port].fill(0);
        assert_eq!(Packet::parse(&without).err(), Some(ParseError::PortZero));
    }
}

#[test]
fn a_partial_chunk_and_all_behind_it_is_dropped() {
    let good = [11, 0, 0, 4];
    for partial in [
        &[11, 0, 0, 3][..],
        &[11, 0, 0, 0],
        &[11, 0, 0, 12, 1, 2, 3, 4],
        &[11, 0, 0],
    ] {
        let bytes = raw(&[&good[..], partial].concat());
        let chunks = Packet::parse(&bytes).unwrap().chunks();
        assert!(chunks.eq([Chunk::CookieAck]), "{partial:?}");
    }
    // Padding may be missing at the packet's end, and is never looked at.
    let bytes = raw(&[&[5, 0, 0, 5, 1, 0xff, 0xff, 0xff][..], &[5, 0, 0, 5, 2]].concat());
    let chunks = Packet::parse(&bytes).unwrap().chunks();
    assert!(chunks.eq([Chunk::HeartbeatAck(&[1]), Chunk::HeartbeatAck(&[2])]));
}

/// RFC 9260 section 3.2.
#[test]
fn the_highest_bits_of_an_unknown_chunk_type_say_what_becomes_of_the_packet() {
    for (kind, report, goes_on) in [
        (0x3f, Report::Stop, false),
        (0x40, Report::StopAndReport, false),
        (0x80, Report::Skip, true),
        (0xc0, Report::SkipAndReport, true),
    ] {
        let unknown = [kind, 1, 0, 5, 9];
        let bytes = raw(&[&unknown[..], &[0; 3], &[11, 0, 0, 4]].concat());
        let mut chunks = Packet::parse(&bytes).unwrap().chunks();
        let found = chunks.next();
        assert_eq!(
            found,
            Some(Chunk::Unknown {
                report,
                whole: &unknown
            })
        );
        assert_eq!(chunks.next().is_some(), goes_on, "{kind:#x}");
        assert_eq!(report.is_told(), matches!(kind, 0x40 | 0xc0));
    }
}

#[test]
fn a_chunk_that_is_too_short_for_its_type_is_malformed() {
    for body in [
        &[0, 3, 0, 12, 0, 0, 0, 1, 0, 0, 0, 0][..],
        &[1, 0, 0, 8, 0, 0, 0, 1],
        &[2, 0, 0, 4],
        &[3, 0, 0, 8, 0, 0, 0, 1],
        // More blocks, and more duplicates, than there are bytes.
        &[3, 0, 0, 16, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0],
        &[3, 0, 0, 16, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1],
        &[7, 0, 0, 4],
    ] {
        let bytes = raw(body);
        let found = Packet::parse(&bytes).unwrap().chunks().next();
        assert_eq!(
            found,
            Some(Chunk::Malformed {
                kind: body[0],
                whole: body
            })
        );
    }
}

#[test]
fn a_chunk_that_does_not_fit_leaves_nothing_behind() {
    let mut buffer = [0; HEADER_LEN + 20];
    let mut writer = Writer::new(&mut buffer, HEADER).unwrap();
    assert!(writer.is_empty());
    let too_long = Chunk::Heartbeat(&[1; 17]);
    assert_eq!(
        writer.chunk(&too_long),
        Err(NoRoom {
            needed: 17,
            room: 16
        })
    );
    assert!(writer.is_empty());
    // With its padding it would be too long, too.
    writer.chunk(&Chunk::CookieAck).unwrap();
    assert!(writer.chunk(&Chunk::Heartbeat(&[1; 13])).is_err());
    assert_eq!(writer.len(), HEADER_LEN + 4);
    writer.chunk(&Chunk::Heartbeat(&[1; 12])).unwrap();
    assert_eq!(writer.finish(), HEADER_LEN + 20);
    assert!(Writer::new(&mut [0; 11], HEADER).is_err());
}

#[test]
fn whether_a_chunk_was_the_last_can_be_asked() {
    let bytes = packet(&[Chunk::CookieAck, Chunk::CookieAck]);
    let mut chunks = Packet::parse(&bytes).unwrap().chunks();
    assert!(!chunks.is_at_end());
    chunks.next();
    assert!(!chunks.is_at_end());
    chunks.next();
    assert!(chunks.is_at_end());
}
