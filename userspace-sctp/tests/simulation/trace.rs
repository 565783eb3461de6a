//! What happens, for whoever wants to know.

use std::sync::LazyLock;

use userspace_sctp::chunk::Chunk;
use userspace_sctp::packet::{Packet, verify};

static TRACED: LazyLock<bool> = LazyLock::new(|| std::env::var_os("RNIC_TEST_TRACE").is_some());

/// Says what happens, if somebody wants to know.
pub fn trace(what: impl FnOnce() -> String) {
    if *TRACED {
        eprintln!("{}", what());
    }
}

/// A packet in one line.
pub fn describe(bytes: &[u8]) -> String {
    let packet = verify(bytes).and_then(|()| Packet::parse(bytes));
    let Ok(packet) = packet else {
        return "damaged".to_owned();
    };
    let chunks = packet.chunks().map(|chunk| match chunk {
        Chunk::Data(data) => format!("DATA {} ({})", data.tsn, data.payload.len()),
        Chunk::Sack(sack) => {
            let blocks: Vec<_> = sack.blocks().map(|b| (b.start, b.end)).collect();
            format!("SACK {} {} {blocks:?}", sack.cumulative, sack.window)
        }
        Chunk::Init(init) => format!("INIT {:#x}", init.tag),
        Chunk::InitAck(init) => format!("INIT ACK {:#x}", init.tag),
        Chunk::CookieEcho(_) => "COOKIE ECHO".to_owned(),
        other => format!("{other:?}"),
    });
    let chunks: Vec<_> = chunks.collect();
    format!("{:#x} {}", packet.header.tag, chunks.join(", "))
}
