//! Bytes of packets: lengths, padding, reserved bits, and what shares a packet.

use userspace_sctp::Config;
use userspace_sctp::chunk::{Chunk, Data, Report, Sack};
use userspace_sctp::packet::{HEADER_LEN, Header, Writer};
use userspace_sctp::parameter::Parameter;

use crate::script::{
    COOKIE, PEERS_TSN, Script, Sent, data, init, local, millis, parameters, remote,
};

/// The longest message at an MTU of 1500.
const FULL: usize = 1500 - 20 - 12 - 16;

/// A chunk's bytes, with its padding.
fn raw(chunk: &Chunk<'_>) -> Vec<u8> {
    let mut buffer = [0; 3000];
    let header = Header {
        source: 1,
        destination: 1,
        tag: 1,
    };
    let mut writer = Writer::new(&mut buffer, header).unwrap();
    writer.chunk(chunk).unwrap();
    let len = writer.finish();
    buffer[HEADER_LEN..len].to_vec()
}

/// The same chunk with all flags.
fn with_flags(chunk: &Chunk<'_>) -> Vec<u8> {
    let mut bytes = raw(chunk);
    bytes[1] = 0xff;
    bytes
}

const fn as_it_is(whole: &[u8]) -> Chunk<'_> {
    let report = Report::Stop;
    Chunk::Unknown { report, whole }
}

/// The first SACK.
fn sack<'a>(sent: &'a Sent) -> Sack<'a> {
    let found = sent.chunks().into_iter().find_map(|chunk| match chunk {
        Chunk::Sack(sack) => Some(sack),
        _ => None,
    });
    found.unwrap_or_else(|| panic!("no SACK: {sent:?}"))
}

/// RFC9260-3.3.2-7, RFC9260-3.3.3-3.
#[test]
fn flags_of_init_and_init_ack_are_zero_and_ignored() {
    let mut script = Script::new(Config::default());
    script.stack.listen(local()).unwrap();
    let asked = with_flags(&Chunk::Init(init(&[])));
    script.peer_with(0, remote(), &[as_it_is(&asked)]);
    let sent = script.one();
    assert!(matches!(sent.only(), Chunk::InitAck(_)));
    assert_eq!(sent.bytes[HEADER_LEN + 1], 0);

    let mut script = Script::new(Config::default());
    let ends = crate::script::ends();
    script.stack.connect(script.now, ends).unwrap();
    let sent = script.one();
    assert_eq!(sent.bytes[HEADER_LEN..HEADER_LEN + 2], [1, 0]);
    let ours = sent.init();
    let parameters = parameters(&[Parameter::StateCookie(COOKIE)]);
    let answer = with_flags(&Chunk::InitAck(init(&parameters)));
    script.peer_with(ours.tag, remote(), &[as_it_is(&answer)]);
    assert_eq!(script.one().only(), Chunk::CookieEcho(COOKIE));
}

/// RFC9260-3.2-1 to RFC9260-3.2-3, RFC9260-3.3.1-9 to RFC9260-3.3.1-14, RFC9260-6.5-7, RFC9260-7.2-4.
#[test]
fn our_data_is_whole_unordered_and_padded_with_zeros() {
    let (mut script, id) = Script::established(Config::default());
    for len in 1..=5_usize {
        script.post(id, len);
    }
    let sent = script.one();
    let mut rest = &sent.bytes[HEADER_LEN..];
    for len in 1..=5_u8 {
        let padded = usize::from(len).next_multiple_of(4);
        let (chunk, after) = rest.split_at(16 + padded);
        // Type, U B E, length; TSN; stream 1 with the number 0; payload protocol.
        assert_eq!(chunk[..4], [0, 7, 0, 16 + len]);
        let tsn = script.tsn.plus(u32::from(len) - 1);
        assert_eq!(chunk[4..8], tsn.0.to_be_bytes());
        assert_eq!(chunk[8..16], [0, 1, 0, 0, 0, 0, 0, 16]);
        assert!(
            chunk[16..16 + usize::from(len)]
                .iter()
                .all(|&byte| byte == 7)
        );
        assert!(chunk[16 + usize::from(len)..].iter().all(|&byte| byte == 0));
        rest = after;
    }
    assert!(rest.is_empty());
    assert_eq!(script.info(id).flight, 4 * 20 + 24, "with padding");
}

/// RFC9260-3.2-4, RFC9260-3.2.1-3.
#[test]
fn padding_is_ignored_whatever_is_in_it() {
    let (mut script, _) = Script::established(Config::default());
    let mut bytes = raw(&Chunk::Data(data(0, b"a")));
    let at = bytes.len() - 3;
    bytes[at..].fill(0xff);
    bytes.extend(raw(&Chunk::Data(data(1, b"b"))));
    script.peer_bytes(&bytes);
    assert_eq!(script.shown, b"ab");

    let mut script = Script::new(Config::default());
    script.stack.listen(local()).unwrap();
    // A parameter of 5 bytes to be skipped, and one of 8 that is malformed if it is read too early.
    let padded = [0x81, 0, 0, 5, 1, 0xff, 0xff, 0xff, 0, 9, 0, 8, 0, 0, 0, 1];
    script.peer(&[Chunk::Init(init(&padded))]);
    assert!(matches!(script.one().only(), Chunk::InitAck(_)));
}

/// RFC9260-3.3.7-4.
#[test]
fn an_abort_that_is_cut_off_is_dropped() {
    let (mut script, id) = Script::established(Config::default());
    script.peer_bytes(&[6, 0, 0, 40, 0, 12, 0, 36]);
    script.nothing();
    script.no_event();
    assert!(script.stack.info(id).is_some());
    script.peer_bytes(&[6, 0, 0, 4]);
    assert!(script.stack.info(id).is_none());
}

/// RFC9260-6.2-18, RFC9260-6.7-6, RFC9260-6.7-7.
#[test]
fn as_many_blocks_are_named_as_fit_the_lowest_first() {
    let (mut script, _) = Script::established(Config::default());
    for number in 0..130 {
        script.peer(&[Chunk::Data(data(2 * number + 1, b"a"))]);
        let sent = script.one();
        let blocks: Vec<_> = sack(&sent).blocks().map(|block| block.start).collect();
        // One that no SACK could name is not taken.
        let expected: Vec<_> = (0..=number.min(127)).map(|at| 2 * at as u16 + 2).collect();
        assert_eq!(blocks, expected);
    }
    // Beside an answer of 1404 bytes there is room for 12.
    let beat = [7; 1400];
    script.peer(&[Chunk::Heartbeat(&beat), Chunk::Data(data(1, b"a"))]);
    let sent = script.one();
    assert!(sent.chunks().contains(&Chunk::HeartbeatAck(&beat)));
    let starts: Vec<_> = sack(&sent).blocks().map(|block| block.start).collect();
    assert_eq!(starts, (0..12).map(|at| 2 * at + 2).collect::<Vec<_>>());
}

/// RFC9260-6.9-8, RFC9260-6.9-9: and control chunks go first.
#[test]
fn a_sack_without_room_beside_data_has_a_packet_of_its_own() {
    let (mut script, id) = Script::established(Config::default());
    script.peer(&[Chunk::Data(data(0, b"a"))]);
    script.sent();
    script.peer(&[Chunk::Data(data(1, b"b"))]);
    script.post(id, FULL);
    assert_eq!(script.one().chunks().len(), 1, "it may wait");
    script.peer(&[Chunk::Data(data(2, b"c"))]);
    script.post(id, FULL);
    let sent = script.sent();
    let [first, second] = &sent[..] else {
        panic!("{sent:?}");
    };
    assert!(matches!(first.only(), Chunk::Sack(_)));
    assert_eq!(
        (second.data(script.tsn), second.bytes.len()),
        (vec![1], 1480)
    );
}

/// RFC9260-12.4-2, RFC9260-12.4-3.
#[test]
fn however_many_chunks_a_packet_has_one_packet_answers() {
    let (mut script, _) = Script::established(Config::default());
    let unknown = [0xff, 0, 0, 4];
    let mut chunks = vec![as_it_is(&unknown); 150];
    let beat = [7; 200];
    chunks.extend([Chunk::Heartbeat(&beat); 3]);
    chunks.push(Chunk::Data(data(0, b"a")));
    script.peer(&chunks);
    let sent = script.one();
    assert!(sent.bytes.len() <= 1480);
    assert!(matches!(sent.chunks()[0], Chunk::Error(_)));
    assert_eq!(sack(&sent).cumulative, PEERS_TSN);
}

/// RFC9260-3.3.1-3, RFC9260-3.3.1-4, RFC9260-6.6-4.
#[test]
fn the_sequence_number_of_unordered_data_is_ignored() {
    let (mut script, _) = Script::established(Config::default());
    for (number, sequence, begin, end, payload) in [
        (3, 900, true, true, b"d"),
        (0, 7, true, true, b"a"),
        (1, 5, true, false, b"b"),
        (2, 4, false, true, b"c"),
    ] {
        let part = Data {
            sequence,
            begin,
            end,
            ..data(number, payload)
        };
        script.peer(&[Chunk::Data(part)]);
    }
    assert_eq!(script.shown, b"dab");
    script.now += millis(1);
}
