//! Protection against STag guessing (RFC 5040 section 8.1.1). A peer whose streams end by invalid STags must
//! pause longer and longer before its next connection to the same client is accepted.
//!
//! A program's own mistake costs it nothing. Connections from an address to a client are reset for a while
//! only from the [`FREE`]th such stream on, each within [`FORGOTTEN_AFTER`] of the one before. Other clients
//! are not affected: their STags are in other protection domains, which such a stream does not reach.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use rnic_ipc::id::ClientId;
use userspace_net::Instant;

/// Pairs of address and client that are remembered. When there are more, the one that was quiet for
/// longest is forgotten.
const PEERS: usize = 1024;
/// Streams that may end so before there is a pause.
const FREE: u32 = 16;
/// The first pause; each is twice the one before.
const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(10);
/// A pair is forgotten when it was quiet for so long.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

/// The peers whose streams ended so.
#[derive(Debug)]
pub(in crate::shard) struct StagScanLimit {
    peers: HashMap<(IpAddr, ClientId), Peer>,
}

#[derive(Debug)]
struct Peer {
    streams: u32,
    last: Instant,
}

impl Peer {
    /// How long it has to wait after its last stream, if it has to.
    fn pause(&self) -> Option<Duration> {
        let more = self.streams.checked_sub(FREE)?;
        // 2^7 times the first is beyond the longest.
        Some((FIRST * (1 << more.min(7))).min(LONGEST))
    }
}

impl StagScanLimit {
    pub fn new() -> Self {
        Self {
            peers: HashMap::with_capacity(PEERS),
        }
    }

    /// A stream between these ended by an invalid STag of the peer's: how many did by now, and the pause that
    /// begins with it.
    pub fn note(&mut self, peer: (IpAddr, ClientId), now: Instant) -> Option<(u32, Duration)> {
        if self.peers.len() >= PEERS && !self.peers.contains_key(&peer) {
            let quietest = self.peers.iter().min_by_key(|(_, known)| known.last);
            if let Some(pair) = quietest.map(|(pair, _)| *pair) {
                self.peers.remove(&pair);
            }
        }
        let known = self.peers.entry(peer).or_insert(Peer {
            streams: 0,
            last: now,
        });
        if now.saturating_duration_since(known.last) >= FORGOTTEN_AFTER {
            known.streams = 0;
        }
        known.streams = known.streams.saturating_add(1);
        known.last = now;
        Some((known.streams, known.pause()?))
    }

    /// The client is gone, and its number may become another's.
    pub fn forget(&mut self, client: ClientId) {
        self.peers.retain(|(_, of), _| *of != client);
    }

    /// Whether a connection from this address to this client comes too soon.
    pub fn pauses(&self, peer: (IpAddr, ClientId), now: Instant) -> bool {
        let known = self.peers.get(&peer);
        known.is_some_and(|known| {
            let passed = now.saturating_duration_since(known.last);
            known.pause().is_some_and(|pause| passed < pause)
        })
    }
}
