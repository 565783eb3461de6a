use std::net::SocketAddr;
use std::time::Duration;

use userspace_net::Instant;

use super::{
    ANSWER_MAX, Answer, InitRefusal, Listening, Offer, Silence, answer_init, answer_stranger,
};
use crate::cause::{self, Cause, Causes};
use crate::chunk::{Chunk, Data, Init, InitError, Sack};
use crate::cookie::{Secret, Tags};
use crate::packet::{Header, Packet, Writer, verify};
use crate::parameter::{self, ADAPTATION_DDP, Parameter, Parameters};
use crate::tsn::Tsn;

const PEERS_TAG: u32 = 0x5555_0001;
const OUR_TAG: u32 = 0x7777_0001;
const NOW: Instant = Instant::from_nanos(9_000_000_000);

fn local() -> SocketAddr {
    "198.18.0.1:7471".parse().unwrap()
}

fn remote() -> SocketAddr {
    "198.18.0.2:40000".parse().unwrap()
}

fn packet(tag: u32, chunks: &[Chunk<'_>]) -> Vec<u8> {
    let mut buffer = [0; 2000];
    let header = Header {
        source: 40000,
        destination: 7471,
        tag,
    };
    let mut writer = Writer::new(&mut buffer, header).unwrap();
    chunks.iter().for_each(|chunk| writer.chunk(chunk).unwrap());
    let len = writer.finish();
    buffer[..len].to_vec()
}

fn parameters(all: &[Parameter<'_>]) -> Vec<u8> {
    let mut buffer = [0; 1900];
    let mut writer = parameter::Writer::new(&mut buffer);
    all.iter()
        .for_each(|parameter| writer.put(parameter).unwrap());
    let len = writer.finish();
    buffer[..len].to_vec()
}

fn init(parameters: &[u8]) -> Init<'_> {
    Init {
        tag: PEERS_TAG,
        window: 100_000,
        outbound_streams: 10,
        inbound_streams: 20,
        initial_tsn: Tsn(99),
        parameters: Parameters::new(parameters),
    }
}

/// The answer to an INIT that comes in a packet with this tag and these chunks after it.
fn answer(init: &Init<'_>, tag: u32, more: &[Chunk<'_>]) -> (Answer, Vec<u8>) {
    let bytes = packet(tag, &[&[Chunk::Init(*init)], more].concat());
    let secret = Secret::new([1; 16]);
    let listening = Listening {
        offer: Offer {
            window: 65_536,
            outbound_streams: 30,
            inbound_streams: 5,
            adaptation: Some(ADAPTATION_DDP),
        },
        secret: &secret,
        local: local(),
        remote: remote(),
        other_addresses: 0,
        now: NOW,
        tag: OUR_TAG,
        initial_tsn: Tsn(7),
        tie: None,
    };
    let mut out = [0; ANSWER_MAX];
    let packet = Packet::parse(&bytes).unwrap();
    let answer = answer_init(&packet, init, &listening, &mut out).unwrap();
    (answer, out[..answer.len].to_vec())
}

/// The header and only chunk of an answer, which goes back to where its question came from.
fn only(bytes: &[u8]) -> (u32, Chunk<'_>) {
    verify(bytes).unwrap();
    let packet = Packet::parse(bytes).unwrap();
    assert_eq!(
        (packet.header.source, packet.header.destination),
        (7471, 40000)
    );
    let mut chunks = packet.chunks();
    let chunk = chunks.next().unwrap();
    assert!(chunks.is_at_end());
    (packet.header.tag, chunk)
}

#[test]
fn an_init_is_answered_by_an_init_ack_whose_cookie_knows_all() {
    let ddp = parameters(&[Parameter::Adaptation(ADAPTATION_DDP)]);
    let (answer, bytes) = answer(&init(&ddp), 0, &[]);
    assert_eq!(answer.refusal, None);
    let (tag, Chunk::InitAck(ack)) = only(&bytes) else {
        panic!("{bytes:?}");
    };
    assert_eq!(
        (tag, ack.tag, ack.initial_tsn),
        (PEERS_TAG, OUR_TAG, Tsn(7))
    );
    assert_eq!(
        (ack.window, ack.outbound_streams, ack.inbound_streams),
        (65_536, 20, 5)
    );
    let found: Vec<_> = ack.parameters.iter().collect();
    let [
        Parameter::StateCookie(cookie),
        Parameter::Adaptation(ADAPTATION_DDP),
    ] = found[..]
    else {
        panic!("{found:?}");
    };
    let state = Secret::new([1; 16])
        .check(cookie, NOW, local(), remote())
        .unwrap()
        .state;
    assert_eq!(
        state.tags,
        Tags {
            local: OUR_TAG,
            remote: PEERS_TAG
        }
    );
    assert_eq!((state.local_tsn, state.remote_tsn), (Tsn(7), Tsn(99)));
    assert_eq!((state.outbound_streams, state.inbound_streams), (20, 5));
    assert_eq!(
        (state.window, state.adaptation),
        (100_000, Some(ADAPTATION_DDP))
    );
}

/// RFC 9260 section 3.2.2.
#[test]
fn parameters_that_ask_for_it_are_reported_as_far_as_there_is_room() {
    let unknown = |first: u8, length: u8| {
        let mut whole = vec![first, 1, 0, length];
        whole.resize(length.into(), 9);
        whole
    };
    let ddp = parameters(&[Parameter::Adaptation(ADAPTATION_DDP)]);
    let told = unknown(0xc1, 9);
    let bytes = [
        &ddp[..],
        &told,
        &[0; 3],
        &unknown(0x81, 4),
        &unknown(0x41, 4),
        &told,
    ]
    .concat();
    let (_, ack) = answer(&init(&bytes), 0, &[]);
    let (_, Chunk::InitAck(ack)) = only(&ack) else {
        panic!("{ack:?}");
    };
    let reported = ack
        .parameters
        .iter()
        .filter_map(|parameter| match parameter {
            Parameter::Unrecognized(whole) => Some(whole.to_vec()),
            _ => None,
        });
    // The type 0x4101 stops the reading.
    assert_eq!(reported.collect::<Vec<_>>(), [told, unknown(0x41, 4)]);
    let many = [&ddp[..], &unknown(0xc1, 200).repeat(9)].concat();
    let (answer, _) = answer(&init(&many), 0, &[]);
    assert!(answer.refusal.is_none() && answer.len <= ANSWER_MAX);
}

#[test]
fn an_init_that_can_be_none_is_dropped_or_aborted() {
    let ddp = parameters(&[Parameter::Adaptation(ADAPTATION_DDP)]);
    let good = init(&ddp);
    let dropped = |init: &Init<'_>, tag, more: &[Chunk<'_>]| {
        let (answer, _) = answer(init, tag, more);
        assert_eq!(answer.len, 0);
        answer.refusal.unwrap()
    };
    assert_eq!(dropped(&good, 1, &[]), InitRefusal::NotAlone);
    assert_eq!(
        dropped(&good, 0, &[Chunk::CookieAck]),
        InitRefusal::NotAlone
    );
    let without_tag = Init { tag: 0, ..good };
    assert_eq!(
        dropped(&without_tag, 0, &[]),
        InitRefusal::Fields(InitError::TagZero)
    );

    let host_name = [&ddp[..], &[0, 11, 0, 8, b'a', 0, 0, 0]].concat();
    // Longer than any name may be: its cause quotes as much as an answer has room for.
    let long_name = [&ddp[..], &[0, 11, 6, 4], &[b'a'; 0x600]].concat();
    let malformed = [&ddp[..], &[0, 5, 0, 5, 1, 0, 0, 0]].concat();
    let other = parameters(&[Parameter::Adaptation(2)]);
    let adaptation = |found| InitRefusal::Adaptation { found, ours: 1 };
    for (init, refusal) in [
        (
            Init {
                inbound_streams: 0,
                ..good
            },
            InitRefusal::Fields(InitError::NoStreams),
        ),
        (
            Init { window: 9, ..good },
            InitRefusal::Fields(InitError::WindowTooSmall { window: 9 }),
        ),
        (init(&host_name), InitRefusal::HostName),
        (init(&long_name), InitRefusal::HostName),
        (init(&malformed), InitRefusal::Malformed),
        (init(&other), adaptation(Some(2))),
        (init(&[]), adaptation(None)),
    ] {
        let (answer, bytes) = answer(&init, 0, &[]);
        assert_eq!(answer.refusal, Some(refusal));
        let (tag, chunk) = only(&bytes);
        assert!(
            matches!(
                chunk,
                Chunk::Abort {
                    reflected: false,
                    ..
                }
            ),
            "{chunk:?}"
        );
        assert_eq!(tag, PEERS_TAG);
    }
}

/// The rules of RFC 9260 section 8.4, by their numbers.
#[test]
fn what_comes_out_of_the_blue_is_answered_by_the_rules() {
    let mut causes = [0; 16];
    let mut writer = cause::Writer::new(&mut causes);
    writer.put(&Cause::StaleCookie(Duration::ZERO)).unwrap();
    let len = writer.finish();
    let stale = Chunk::Error(Causes::new(&causes[..len]));
    let error = Chunk::Error(Causes::default());
    let abort = Chunk::Abort {
        reflected: false,
        causes: Causes::default(),
    };
    let complete = Chunk::ShutdownComplete { reflected: false };
    let data = Chunk::Data(Data {
        tsn: Tsn(1),
        stream: 0,
        sequence: 0,
        protocol: 16,
        unordered: true,
        begin: true,
        end: true,
        immediate: false,
        payload: b"data",
    });
    const TAG: u32 = 77;
    let stranger = |chunks: &[Chunk<'_>]| {
        let bytes = packet(TAG, chunks);
        let mut out = [0; 200];
        let len = answer_stranger(&Packet::parse(&bytes).unwrap(), &mut out)?;
        Ok(out[..len].to_vec())
    };
    for (rule, chunks, silence) in [
        (2, &[data, abort][..], Silence::Abort),
        (6, &[complete], Silence::Over),
        (7, &[stale], Silence::Over),
        (7, &[Chunk::CookieAck, data], Silence::Over),
        (3, &[Chunk::Init(init(&[]))], Silence::Nothing),
    ] {
        assert_eq!(stranger(chunks), Err(silence), "rule {rule}");
    }
    let ack = stranger(&[Chunk::ShutdownAck]).unwrap();
    assert_eq!(
        only(&ack),
        (TAG, Chunk::ShutdownComplete { reflected: true }),
        "rule 5"
    );
    for chunk in [
        data,
        error,
        Chunk::Heartbeat(b"beat"),
        Chunk::Shutdown { cumulative: Tsn(1) },
        Chunk::Sack(Sack::new(Tsn(1), 1500, &[], &[])),
    ] {
        let bytes = stranger(&[chunk]).unwrap();
        let (tag, chunk) = only(&bytes);
        assert!(
            matches!(
                chunk,
                Chunk::Abort {
                    reflected: true,
                    ..
                }
            ),
            "rule 8: {chunk:?}"
        );
        assert_eq!(tag, TAG);
    }
    // Rule 3, where nobody listens.
    let bytes = packet(0, &[Chunk::Init(init(&[]))]);
    let mut out = [0; 200];
    let len = answer_stranger(&Packet::parse(&bytes).unwrap(), &mut out).unwrap();
    let (tag, chunk) = only(&out[..len]);
    assert!(
        matches!(
            chunk,
            Chunk::Abort {
                reflected: false,
                ..
            }
        ),
        "{chunk:?}"
    );
    assert_eq!(tag, PEERS_TAG);
}

/// RFC9260-8.5.1-3.
#[test]
fn a_packet_without_tag_that_is_no_init_gets_no_answer() {
    let bytes = packet(0, &[Chunk::Heartbeat(b"beat")]);
    let answer = answer_stranger(&Packet::parse(&bytes).unwrap(), &mut [0; 200]);
    assert_eq!(answer, Err(Silence::NoTag));
}
