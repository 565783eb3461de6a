//! Whatever bytes come, reading them ends, touches nothing else, and what was read can be written again.

use std::net::SocketAddr;
use std::time::Duration;

use proptest::prelude::*;
use userspace_sctp::chunk::Chunk;
use userspace_sctp::cookie::Secret;
use userspace_sctp::packet::{Header, Packet, Writer, verify};

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

proptest! {
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
        prop_assert!(secret.check(&bytes, Duration::ZERO, end, end).is_err());
    }
}
