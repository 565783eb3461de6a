//! Packets that usrsctp sent: an association with DDP's adaptation indication, between ports 53405 and 4791, from its
//! INIT to its SHUTDOWN COMPLETE.

use std::net::SocketAddr;

use userspace_net::Instant;
use userspace_sctp::Tsn;
use userspace_sctp::chunk::Chunk;
use userspace_sctp::cookie::Secret;
use userspace_sctp::packet::{Packet, Writer, verify};
use userspace_sctp::parameter::{ADAPTATION_DDP, Parameter};
use userspace_sctp::stateless::{ANSWER_MAX, Listening, Offer, answer_init};

const INIT: &str = "d09d12b700000000872a86ca0100006af63f858600020000001000102cd6cf6cc006000800000001\
    80000004c000000480080009c00fc1808200000080020024\
    3273c04a06c03348c54ffa90f92181f57573c229ed145d3da1780255ab05717280040006000100008003000680c10000\
    000c000600050000";
const REST: [&str; 7] = [
    "12b7d09df63f858683c7693a0b000004",
    "d09d12b7c480098ca98aa2d30007001a2cd6cf6c0000000000000011000000054003c0090a0b0000",
    "12b7d09df63f8586f833a563030000102cd6cf6c0001fef600000000",
    "12b7d09df63f8586c8991097030000102cd6cfab000200000000000000070020a5cc922f00000000000000100001c142\
     000000020000000000000000",
    "d09d12b7c480098c8711bd5107000008a5cc9261",
    "12b7d09df63f8586ba4e4b5808000004",
    "d09d12b7c480098cc597497f0e000004",
];

fn bytes(hex: &str) -> Vec<u8> {
    let digits = hex
        .bytes()
        .filter_map(|digit| char::from(digit).to_digit(16));
    let digits: Vec<u8> = digits.map(|digit| digit as u8).collect();
    digits
        .chunks_exact(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect()
}

#[test]
fn its_packets_are_read_and_would_be_written_the_same() {
    for hex in [INIT].iter().chain(&REST) {
        let bytes = bytes(hex);
        verify(&bytes).unwrap();
        let packet = Packet::parse(&bytes).unwrap();
        let mut again = vec![0; bytes.len()];
        let mut writer = Writer::new(&mut again, packet.header).unwrap();
        for chunk in packet.chunks() {
            assert!(
                !matches!(chunk, Chunk::Unknown { .. } | Chunk::Malformed { .. }),
                "{chunk:?}"
            );
            writer.chunk(&chunk).unwrap();
        }
        assert_eq!(writer.finish(), bytes.len());
        assert_eq!(again, bytes);
    }
}

#[test]
fn its_data_and_acknowledgments_say_what_they_say_to_tshark() {
    let initiate = bytes(REST[1]);
    let Some(Chunk::Data(data)) = Packet::parse(&initiate).unwrap().chunks().next() else {
        panic!("{initiate:?}");
    };
    assert_eq!(
        (data.tsn, data.stream, data.protocol),
        (Tsn(0x2cd6_cf6c), 0, 17)
    );
    assert!(data.unordered && data.begin && data.end && !data.immediate);
    // DDP-SSN 0, Enhanced Initiate, two numbers of 16 bits and two bytes of private data.
    assert_eq!(data.payload, [0, 0, 0, 5, 0x40, 3, 0xc0, 9, 10, 11]);
    let bundle = bytes(REST[3]);
    let chunks: Vec<_> = Packet::parse(&bundle).unwrap().chunks().collect();
    let [Chunk::Sack(sack), Chunk::Data(data)] = chunks[..] else {
        panic!("{chunks:?}");
    };
    assert_eq!((sack.cumulative, sack.window), (Tsn(0x2cd6_cfab), 0x2_0000));
    assert_eq!((sack.blocks().count(), sack.duplicates().count()), (0, 0));
    assert_eq!((data.protocol, data.payload.len()), (16, 16));
}

#[test]
fn its_init_is_answered_by_an_init_ack() {
    let bytes = bytes(INIT);
    let packet = Packet::parse(&bytes).unwrap();
    let Some(Chunk::Init(init)) = packet.chunks().next() else {
        panic!("{bytes:?}");
    };
    let kinds: Vec<_> = init.parameters.iter().collect();
    assert_eq!(kinds[0], Parameter::Adaptation(ADAPTATION_DDP));
    assert_eq!(
        kinds.last(),
        Some(&Parameter::AddressTypes {
            v4: true,
            v6: false
        })
    );
    let end = |text: &str| text.parse::<SocketAddr>().unwrap();
    let (local, remote) = (end("198.18.5.2:4791"), end("198.18.5.1:53405"));
    let secret = Secret::new([3; 16]);
    let listening = Listening {
        offer: Offer {
            window: 1 << 20,
            outbound_streams: 100,
            inbound_streams: 100,
            adaptation: Some(ADAPTATION_DDP),
        },
        secret: &secret,
        local,
        remote,
        other_addresses: 0,
        now: Instant::ZERO,
        tag: 1,
        initial_tsn: Tsn(1),
        tie: None,
    };
    let mut out = [0; ANSWER_MAX];
    let answer = answer_init(&packet, &init, &listening, &mut out).unwrap();
    assert_eq!(answer.refusal, None);
    let Some(Chunk::InitAck(ack)) = Packet::parse(&out[..answer.len]).unwrap().chunks().next()
    else {
        panic!("{out:?}");
    };
    // Partial reliability (0xC000) is reported as unknown, and the types of 0x8000 are skipped.
    let reported: Vec<_> = ack
        .parameters
        .iter()
        .filter_map(|parameter| match parameter {
            Parameter::Unrecognized(whole) => Some(whole.to_vec()),
            _ => None,
        })
        .collect();
    assert_eq!(reported, [[0xc0, 0, 0, 4]]);
    let cookie = ack.parameters.iter().find_map(|parameter| match parameter {
        Parameter::StateCookie(cookie) => Some(cookie),
        _ => None,
    });
    let state = secret
        .check(cookie.unwrap(), Instant::ZERO, local, remote)
        .unwrap()
        .state;
    assert_eq!(
        (state.tags.remote, state.remote_tsn),
        (0xf63f_8586, Tsn(0x2cd6_cf6c))
    );
    assert_eq!((state.outbound_streams, state.inbound_streams), (16, 16));
}
