//! DDP over SCTP (RFC 5043): the associations of a shard, and the DDP Stream Session on each.
//!
//! A session is one of the shard's connections: its id comes after those of TCP's connections, so that one table has
//! both. What is above the lower layer ([`super::llp::Llp`]) does not ask which it is.
//!
//! An association carries one session on each pair of its streams (RFC 5043 section 6). It is a connection, too, which
//! has the ways to the peer's addresses. It ends with the last session on it, as RFC 5041 section 3 asks.

mod association;
mod chunk_frame;
mod llp;
mod posting;
mod segments;
mod session;
mod sessions;

use std::time::Duration;

use rnic_proto::sctp::ADAPTATION_DDP;
use userspace_net::{FourTuple, Instant};
use userspace_sctp::path::rto::Bounds;
use userspace_sctp::{Ends, Stack};

use super::config::ShardConfig;
pub use association::Association;
pub use chunk_frame::{ChunkFrame, ChunkOwner};
pub use posting::{NotPosted, SessionPosting};
pub use segments::Held;
pub use session::{Again, Arrival, SessionFault, StreamSession};
pub use sessions::Sessions;

/// Streams of an association each way, each pair of which may carry a session.
pub const STREAMS: u16 = 32;
/// Packets that one SACK may let go: as many as one SACK acknowledges, because a receiver answers a batch of frames
/// with one.
const MAX_BURST: u32 = 64;
/// Chunks with segments that are posted to an association and not acknowledged, at most: each has a frame.
const SEGMENT_CHUNKS: usize = 512;
/// Chunks that are left for control messages: a session has two of them under way at most.
pub const CONTROL_CHUNKS: usize = 2 * STREAMS as usize;
const PEER_ADDRESSES: usize = 4;
/// `RTO.Min`: what is longer than the 200 ms for which a peer may keep a SACK. With the second of RFC 9260 section 16
/// a loss that only a timeout finds would cost so much between neighbouring hosts.
const RTO_MIN: Duration = Duration::from_millis(300);

/// SCTP, and the sessions over it.
#[derive(Debug)]
pub struct Sctp {
    pub stack: Stack<ChunkFrame>,
    pub sessions: Sessions,
}

impl Sctp {
    /// Nothing is associated.
    pub fn new(config: &ShardConfig, now: Instant) -> Self {
        let limits = config.limits;
        let settings = userspace_sctp::Config {
            associations: limits.associations,
            send_chunks: SEGMENT_CHUNKS + CONTROL_CHUNKS,
            outbound_streams: STREAMS,
            inbound_streams: STREAMS,
            adaptation: Some(ADAPTATION_DDP),
            mtu: config.path_defaults.mtu as usize,
            udp_port: config.sctp_udp.map(|udp| udp.port),
            peer_addresses: PEER_ADDRESSES,
            user_timeout: Some(config.tcp.user_timeout),
            max_burst: MAX_BURST,
            rto: Bounds {
                min: RTO_MIN,
                ..Bounds::default()
            },
            ..userspace_sctp::Config::default()
        };
        // Not TCP's: what one of them shows must not tell of the other's.
        let [own, common] =
            [config.secret, config.common_secret].map(|it| it.map(|byte| byte ^ 0x5c));
        Self {
            stack: Stack::new(settings, own, now).with_cookies_of(common),
            sessions: Sessions::new(&limits),
        }
    }
}

impl Sctp {
    /// When something is to be done at the latest.
    #[inline]
    pub fn next_deadline(&self) -> Option<Instant> {
        match self.sessions.associated() {
            0 => None,
            _ => self.stack.next_deadline(),
        }
    }

    /// Whether a timer has expired, or a session waits to be seen to.
    #[inline]
    pub fn is_due(&self, now: Instant) -> bool {
        self.sessions.associated() > 0
            && (self.sessions.is_any_heard()
                || self.stack.next_deadline().is_some_and(|at| at <= now))
    }
}

/// Both ends, as SCTP has them.
pub fn ends(tuple: &FourTuple) -> Ends {
    Ends {
        local: tuple.local.into(),
        remote: tuple.remote.into(),
    }
}

/// Both ends, as the shard has them.
pub fn tuple(ends: &Ends) -> FourTuple {
    FourTuple::new(ends.local, ends.remote)
}
