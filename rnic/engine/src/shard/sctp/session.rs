//! One session: the rules of RFC 5043, what came before its turn, and what is not acknowledged.

use rnic_net::PeerRules;
use rnic_proto::mpa::MpaError;
use rnic_proto::sctp::{ChunkError, ControlChunk, Session, SessionError, UserData};
use userspace_net::{ConnId, Endpoint};
use userspace_sctp::{AssocId, Message};

use super::segments::{Held, Segments};

/// A DDP Stream Session, and where it is.
#[derive(Debug)]
pub struct StreamSession {
    pub id: ConnId,
    pub assoc: AssocId,
    /// None: the peer's first message will say.
    pub stream: Option<u16>,
    pub session: Session,
    pub segments: Segments,
    /// Our Initiate, until the association is there.
    pub initiate: Option<ControlChunk>,
    /// It joined an association that was there for others; until it is answered.
    pub again: Option<Box<Again>>,
    /// Nobody on this host has it any more, and its association goes on for others: it is still to be ended by both
    /// sides.
    pub is_abandoned: bool,
    /// Nothing more is sent: a Terminate, as soon as it may go.
    pub ending: bool,
    /// The peer broke its rules: only our Terminate is waited for.
    pub broken: bool,
    /// Chunks that were posted and not acknowledged, and their bytes.
    pub posted: usize,
    pub posted_bytes: usize,
    /// Bytes of messages that are not needed any more, until SCTP is told.
    pub consumed: usize,
    /// Something of it is to be seen to.
    pub(super) is_heard: bool,
    /// What the peer did that ends the session.
    pub fault: Option<SessionFault>,
}

/// With what a session starts over on an association of its own, when the one that it joined goes before it is
/// answered, or its peer does not take it there.
#[derive(Clone, Debug)]
pub struct Again {
    /// Our end of that association: a port that is kept free for it.
    pub local: Endpoint,
    pub session: Session,
    pub initiate: ControlChunk,
    /// Whom the peer may be at its further addresses.
    pub peers: PeerRules,
}

/// Why a session can't go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionFault {
    /// User data that is none of RFC 5043's.
    #[error(transparent)]
    Chunk(#[from] ChunkError),
    /// What came is not what may come.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// Its place is not one that is awaited.
    #[error("a chunk with DDP-SSN {ssn} came again, or before it can have been sent")]
    Place {
        /// Its DDP-SSN.
        ssn: u16,
    },
}

impl SessionFault {
    /// The error of the RDMAP Terminate that goes before the session's (RFC 6581 section 9).
    pub const fn wants_terminate(&self) -> Option<MpaError> {
        match self {
            Self::Session(error) => error.wants_terminate(),
            Self::Chunk(_) | Self::Place { .. } => None,
        }
    }
}

/// What is to be done with a message.
pub enum Arrival<'a> {
    /// A segment that is next in order.
    Next(&'a [u8]),
    /// A segment out of order.
    Early { place: u64, segment: &'a [u8] },
    /// It waits for its turn, or for somebody who sees to it.
    Kept,
}

impl StreamSession {
    pub(super) fn new(id: ConnId, assoc: AssocId, stream: Option<u16>, session: Session) -> Self {
        Self {
            id,
            assoc,
            stream,
            session,
            segments: Segments::default(),
            initiate: None,
            again: None,
            is_abandoned: false,
            ending: false,
            broken: false,
            posted: 0,
            posted_bytes: 0,
            consumed: 0,
            is_heard: false,
            fault: None,
        }
    }

    /// A message came. `carries`: segments may go to a queue pair.
    #[inline]
    pub fn arrived<'a>(&mut self, message: &Message<'a>, carries: bool) -> Arrival<'a> {
        if self.fault.is_some() || self.broken {
            self.consumed += message.payload.len();
            return Arrival::Kept;
        }
        let next = self.segments.next();
        let parsed = UserData::parse(message.protocol, message.payload);
        let (ssn, data) = match parsed {
            Ok(parsed) => parsed,
            Err(error) => return self.fault(error.into(), message),
        };
        let Some(place) = ssn.place(next) else {
            return self.fault(SessionFault::Place { ssn: ssn.0 }, message);
        };
        if let UserData::Segment(segment) = data
            && carries
        {
            if place > next {
                return Arrival::Early { place, segment };
            }
            if self.segments.first().is_none() && self.session.on_segment().is_ok() {
                self.segments.pass();
                self.consumed += message.payload.len();
                return Arrival::Next(segment);
            }
        }
        self.keep(place, message);
        Arrival::Kept
    }

    /// A message waits for its turn.
    pub fn keep(&mut self, place: u64, message: &Message<'_>) {
        let held = Held::Copy {
            protocol: message.protocol,
            bytes: message.payload.into(),
        };
        self.keep_at(place, held);
    }

    /// A segment that came early was placed.
    pub fn note_placed(&mut self, place: u64, held: Held, bytes: usize) {
        self.consumed += bytes;
        self.keep_at(place, held);
    }

    fn keep_at(&mut self, place: u64, held: Held) {
        if self.segments.keep(place, held).is_err() {
            self.fault
                .get_or_insert(SessionFault::Place { ssn: place as u16 });
        }
    }

    fn fault<'a>(&mut self, fault: SessionFault, message: &Message<'a>) -> Arrival<'a> {
        self.fault = Some(fault);
        self.consumed += message.payload.len();
        Arrival::Kept
    }

    /// Nothing that the peer sends counts any more.
    pub fn break_off(&mut self) {
        self.fault = None;
        self.broken = true;
        self.consumed += self.segments.clear();
    }

    /// Nobody on this host has it any more: it is ended in order, if the peer lets us.
    pub fn abandon(&mut self) {
        self.is_abandoned = true;
        self.ending = true;
    }

    /// Whether the peer has heard nothing of it, nor we of it from the peer.
    pub fn is_unsaid(&self) -> bool {
        self.initiate.is_some() || !self.session.has_begun()
    }

    /// Whether more may come of it: then no other session can have its stream.
    pub fn blocks_stream(&self) -> bool {
        self.initiate.is_none() && !self.session.is_gone()
    }

    /// Nothing of it is left, as far as we can know: the peer has ended it, too, or nothing more of that counts.
    pub fn is_done(&self) -> bool {
        self.session.is_gone() || self.broken && self.posted == 0
    }

    /// Whether a segment that is here has its turn now.
    pub fn has_turn(&self) -> bool {
        match self.segments.first() {
            None => false,
            Some(held) => held.is_control() || self.session.takes_segments(),
        }
    }
}

impl Held {
    /// Whether it is a control message.
    fn is_control(&self) -> bool {
        matches!(self, Self::Copy { protocol, .. } if *protocol == rnic_proto::sctp::PPID_CONTROL)
    }
}
