//! DDP over SCTP (RFC 5043): the associations of a shard, and the DDP Stream Session on each.
//!
//! A session is one of the shard's connections: its name stands behind those of TCP's connections, so that one
//! table has both, and what is above the lower layer does not ask which it is. [`super::llp`] has what differs.
//!
//! Each session has an association of its own, whose one stream carries it (RFC 5043 section 6). So the association
//! ends with the session, as RFC 5041 section 3 asks.

mod chunk_frame;
mod posting;
mod segments;
mod session;

use std::collections::VecDeque;
use std::time::Duration;

use rnic_proto::sctp::{ADAPTATION_DDP, Session};
use userspace_net::{ConnId, Endpoint, FourTuple, Instant};
use userspace_sctp::path::rto::Bounds;
use userspace_sctp::{AssocId, Ends, Stack};

use super::config::ShardConfig;
pub use chunk_frame::ChunkFrame;
pub use posting::{NotPosted, SessionPosting};
pub use segments::Held;
pub use session::{Arrival, SessionFault, StreamSession};

/// The stream of an association that carries its session.
pub const STREAM: u16 = 0;
/// Packets that one SACK may let go: as many as one SACK acknowledges, because a receiver answers a batch of frames
/// with one.
const MAX_BURST: u32 = 64;
/// Chunks of a session that are posted and not acknowledged, at most: each has a frame.
const SEND_CHUNKS: usize = 512;
/// Addresses of one peer that are used.
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

/// The sessions, by their associations' places.
#[derive(Debug)]
pub struct Sessions {
    slots: Vec<Option<Box<StreamSession>>>,
    /// The first name of a session: TCP has those before.
    first: u32,
    count: usize,
    /// Those of which something is to be seen to.
    heard: VecDeque<ConnId>,
}

impl Sctp {
    /// Nothing is associated.
    pub fn new(config: &ShardConfig, now: Instant) -> Self {
        let limits = config.limits;
        let settings = userspace_sctp::Config {
            associations: limits.associations,
            send_chunks: SEND_CHUNKS,
            outbound_streams: STREAM + 1,
            inbound_streams: STREAM + 1,
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
        let secret = config.secret.map(|byte| byte ^ 0x5c);
        Self {
            stack: Stack::new(settings, secret, now),
            sessions: Sessions {
                slots: Vec::new(),
                first: limits.connections as u32,
                count: 0,
                heard: VecDeque::new(),
            },
        }
    }
}

impl Sctp {
    /// When something is to be done at the latest.
    #[inline]
    pub fn next_deadline(&self) -> Option<Instant> {
        match self.sessions.count {
            0 => None,
            _ => self.stack.next_deadline(),
        }
    }

    /// Whether a timer has expired, or a session waits to be seen to.
    #[inline]
    pub fn is_due(&self, now: Instant) -> bool {
        self.sessions.count > 0
            && (!self.sessions.heard.is_empty()
                || self.stack.next_deadline().is_some_and(|at| at <= now))
    }
}

impl Sessions {
    /// Whether this connection is a session.
    #[inline]
    pub fn has(&self, id: ConnId) -> bool {
        id.index >= self.first
    }

    /// The name of the session over an association.
    pub fn name(&self, assoc: AssocId) -> ConnId {
        ConnId {
            // Both limits together are far below 2^32.
            index: self.first + assoc.index() as u32,
            generation: assoc.generation(),
        }
    }

    /// The session with this name.
    pub fn get(&self, id: ConnId) -> Option<&StreamSession> {
        let slot = id.index.checked_sub(self.first)?;
        let session = self.slots.get(slot as usize)?.as_deref();
        session.filter(|session| session.id == id)
    }

    /// The session with this name.
    pub fn get_mut(&mut self, id: ConnId) -> Option<&mut StreamSession> {
        let slot = id.index.checked_sub(self.first)?;
        let session = self.slots.get_mut(slot as usize)?.as_deref_mut();
        session.filter(|session| session.id == id)
    }

    /// Adds one, or replaces what is left of one whose association is gone.
    pub fn add(&mut self, assoc: AssocId, session: Session) -> ConnId {
        let id = self.name(assoc);
        let slot = assoc.index();
        if slot >= self.slots.len() {
            self.slots.resize_with(slot + 1, || None);
        }
        let stream = Box::new(StreamSession::new(id, assoc, session));
        self.count += usize::from(self.slots[slot].replace(stream).is_none());
        id
    }

    /// The session over an association; a peer's that has just come is added.
    pub fn of(&mut self, assoc: AssocId) -> Option<&mut StreamSession> {
        let id = self.name(assoc);
        if self.get(id).is_none() {
            self.add(assoc, Session::passive());
        }
        self.get_mut(id)
    }

    /// A peer's association is there, of which messages may have come already.
    pub fn begin(&mut self, assoc: AssocId, local: Endpoint) {
        if let Some(session) = self.of(assoc) {
            session.local = Some(local);
        }
    }

    /// The Initiate of a session that we begin, once.
    pub fn take_initiate(&mut self, id: ConnId) -> Vec<u8> {
        let initiate = self.get_mut(id).and_then(|session| session.initiate.take());
        initiate.map_or_else(Vec::new, |chunk| chunk.bytes().to_vec())
    }

    /// Forgets a session.
    pub fn remove(&mut self, id: ConnId) {
        if self.get(id).is_some() {
            self.slots[(id.index - self.first) as usize] = None;
            self.count -= 1;
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Notes that something of a session is to be seen to.
    pub fn hear(&mut self, id: ConnId) {
        let is_new = self
            .get_mut(id)
            .is_some_and(|session| !std::mem::replace(&mut session.is_heard, true));
        if is_new {
            self.heard.push_back(id);
        }
    }

    /// The next session to be seen to.
    pub fn next_heard(&mut self) -> Option<ConnId> {
        let id = self.heard.pop_front()?;
        if let Some(session) = self.get_mut(id) {
            session.is_heard = false;
        }
        Some(id)
    }

    /// Sessions from this local end.
    pub fn at(&self, local: Endpoint) -> usize {
        let of_it = |session: &&StreamSession| session.local == Some(local);
        self.slots
            .iter()
            .flatten()
            .map(Box::as_ref)
            .filter(of_it)
            .count()
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
