//! Whatever bytes come, reading them ends, touches nothing else, and what was read can be written again.

use std::net::SocketAddr;

use std::time::Duration;

use proptest::prelude::*;
use userspace_net::Instant;
use userspace_sctp::chunk::Chunk;
use userspace_sctp::cookie::Secret;
use userspace_sctp::packet::{Header, Packet, Writer, verify};
use userspace_sctp::{Config, Ends, Stack};

/// Bytes that look like chunks more often than random ones do.
fn chunks() -> impl Strategy<Value = Vec<u8>> {
    let chunk = (
        0_u8..16,
        any::<u8>(),
        prop::collection::vec(any::<u8>(), 0..60),
        0_u16..80,
    );
    let chunk = chunk.prop_map(|(kind, flags, value, lie)| {
        let len = match lie {
            0..60 => value.len() as u16 + 4,
            lie => lie,
        };
        let [a, b] = len.to_be_bytes();
        let mut bytes = vec![kind, flags, a, b];
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    });
    prop::collection::vec(chunk, 0..8).prop_map(|chunks| chunks.concat())
}

/// Reads all there is in it.
fn read(bytes: &[u8]) -> Vec<Chunk<'_>> {
    let Ok(packet) = Packet::parse(bytes) else {
        return Vec::new();
    };
    let chunks: Vec<_> = packet.chunks().collect();
    for chunk in &chunks {
        match chunk {
            Chunk::Init(init) | Chunk::InitAck(init) => {
                let _ = (init.check(), init.parameters.iter().count());
            }
            Chunk::Sack(sack) => {
                let _ = (sack.blocks().count(), sack.duplicates().count());
            }
            Chunk::Abort { causes, .. } | Chunk::Error(causes) => {
                causes.iter().for_each(|cause| drop(cause.to_string()));
            }
            _ => {}
        }
    }
    chunks
}

const LOCAL: [u8; 4] = [198, 18, 0, 1];
const REMOTE: [u8; 4] = [198, 18, 0, 2];

/// Moves packets between two stacks until none is left. Gives the tags of the last packets.
fn settle(stacks: &mut [Stack<Vec<u8>>; 2], now: Instant) -> [u32; 2] {
    let (mut tags, mut out, mut is_moving) = ([0; 2], [0; 1500], true);
    while is_moving {
        is_moving = false;
        for from in 0..2 {
            while let Some(sent) = stacks[from].poll_transmit(now, &mut out) {
                is_moving = true;
                let packet = &out[..sent.len];
                tags[1 - from] = u32::from_be_bytes([packet[4], packet[5], packet[6], packet[7]]);
                let Ends { local, remote } = sent.ends;
                stacks[1 - from].receive(now, remote.ip(), local.ip(), packet, |_, _| {});
            }
        }
    }
    tags
}

proptest! {
    /// With the right tag: whatever chunks come, and whatever follows, the stack goes on.
    #[test]
    fn any_chunks_can_come_to_an_association(bodies in prop::collection::vec(chunks(), 1..6), closes in any::<bool>()) {
        let mut now = Instant::ZERO;
        let make = |key| Stack::<Vec<u8>>::new(Config::default(), [key; 16], Instant::ZERO);
        let mut stacks = [make(1), make(2)];
        stacks[1].listen((LOCAL, 5000).into()).unwrap();
        let ends = Ends { local: (REMOTE, 5000).into(), remote: (LOCAL, 5000).into() };
        stacks[0].connect(now, ends).unwrap();
        let [_, tag] = settle(&mut stacks, now);
        let id = stacks[1].associations().next().unwrap();
        if closes {
            stacks[1].close(now, id);
        }
        for body in bodies {
            let mut bytes = [0; 4096];
            let header = Header { source: 5000, destination: 5000, tag };
            let len = Writer::new(&mut bytes, header).unwrap().finish();
            let mut bytes = [&bytes[..len], &body].concat();
            bytes[8..12].fill(0);
            let crc = rnic_crc::append(0, &bytes);
            bytes[8..12].copy_from_slice(&crc.to_le_bytes());
            stacks[1].receive(now, LOCAL.into(), REMOTE.into(), &bytes, |_, _| {});
            settle(&mut stacks, now);
            now += Duration::from_millis(700);
            stacks.iter_mut().for_each(|stack| stack.advance(now));
        }
        prop_assert!(stacks[1].associations().count() <= 1);
        while let Some(next) = stacks[1].next_deadline().filter(|at| *at < Instant::ZERO + Duration::from_secs(400)) {
            stacks[1].advance(next);
            let mut out = [0; 1500];
            while stacks[1].poll_transmit(next, &mut out).is_some() {}
        }
    }

    #[test]
    fn any_bytes_can_be_read(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = (verify(&bytes), read(&bytes));
    }

    #[test]
    fn what_was_read_is_written_as_it_was(body in chunks()) {
        let header = Header { source: 1, destination: 2, tag: 3 };
        let mut buffer = [0; 4096];
        let len = Writer::new(&mut buffer, header).unwrap().finish();
        let bytes = [&buffer[..len], &body].concat();
        let found = read(&bytes);
        let mut again = [0; 4096];
        let mut writer = Writer::new(&mut again, header).unwrap();
        for chunk in &found {
            writer.chunk(chunk).unwrap();
        }
        let len = writer.finish();
        if !found.is_empty() {
            prop_assert_eq!(verify(&again[..len]), Ok(()));
        }
        prop_assert_eq!(read(&again[..len]), found);
    }

    #[test]
    fn no_bytes_are_a_cookie_of_ours(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let end = SocketAddr::from(([198, 18, 0, 1], 1));
        let secret = Secret::new([1; 16]);
        prop_assert!(secret.check(&bytes, Instant::ZERO, end, end).is_err());
    }
}
