//! The legal sequences of a DDP Stream Session (RFC 5043 section 6, RFC 6581 section 7), seen by one of its sides.
//!
//! ```text
//! active                                    passive
//!    | Initiate ------------------------------> |  waits for the application
//!    | <------- Accept, Reject, or Terminate -- |
//!    | segments <----------------- segments --> |  after an Accept
//!    | Terminate <-------------- Terminate ---> |
//! ```
//!
//! Chunks are handed over in the order of their DDP-SSNs. What the peer sends behind an Initiate before that is
//! answered (RFC 5043 section 6.6) waits for the answer ([`Session::takes_segments`]). A Terminate is answered by one,
//! so that both sides know when nothing more is to come.

use super::SessionError;
use super::control::{Control, ControlChunk, Function};
use super::ssn::{DdpSsn, IN_FLIGHT_MAX};
use crate::enhanced::{Agreed, Enhanced, ReadDepths, Rtr, RtrSet};

/// What a session is asked for with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionOptions {
    /// The enhanced form negotiates IRD and ORD; without it they are left to the applications.
    pub enhanced: bool,
    /// Own IRD and ORD.
    pub depths: ReadDepths,
    /// Ready-to-Receive indications that we can send; [`RtrSet::NONE`] asks for the client-server model. Over SCTP
    /// either side may send first in either model.
    pub peer_to_peer: RtrSet,
}

/// What both sides agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// Inbound RDMA Reads that this side takes at a time.
    pub ird: u16,
    /// Outbound RDMA Reads that this side may have outstanding.
    pub ord: u16,
    /// Peer-to-peer model: the indication that the active side sends as its first message. Nobody waits for it.
    pub rtr: Option<Rtr>,
    /// What the peer said of its depths, for the application (RFC 6581 section 9.1).
    pub peer: Option<ReadDepths>,
}

/// What a control message of the peer's means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told<'a> {
    /// To be answered by [`Session::accept`], [`Session::reject`] or [`Session::terminate`].
    Initiated {
        /// The peer's IRD and ORD; none when it does not negotiate them.
        peer: Option<ReadDepths>,
        /// What the peer's application says.
        private_data: &'a [u8],
    },
    /// Segments may go both ways.
    Accepted {
        /// What was agreed.
        negotiated: Negotiated,
        /// What the peer's application says.
        private_data: &'a [u8],
    },
    /// The peer's application does not take the session, which is over.
    Rejected {
        /// What the peer's application says.
        private_data: &'a [u8],
    },
    /// The peer sends nothing more.
    Terminated,
}

/// What may come next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inbound {
    /// The first chunk of a session that the peer begins.
    Initiate,
    /// Nothing but a Terminate, until our application has answered.
    Undecided,
    /// The answer to our Initiate.
    Answer,
    Segments,
    Over,
}

/// What we may send next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outbound {
    /// The answer to the peer's Initiate.
    Answer,
    /// Our Initiate was sent, and is not answered.
    Initiated,
    Segments,
    Over,
}

/// A DDP Stream Session.
#[derive(Clone, Debug)]
pub struct Session {
    inbound: Inbound,
    outbound: Outbound,
    /// The enhanced data of the Initiate, from either end.
    asked: Option<Enhanced>,
    /// Own depths of a session that we begin.
    depths: ReadDepths,
    /// The peer has our Initiate or our Accept: SCTP has it acknowledged, or it is answered. Chunks are unordered, so a
    /// Terminate could overtake it before (RFC 5043 section 6.6).
    first_has_come: bool,
    /// Chunks that were sent, and those of them that were acknowledged.
    sent: u64,
    acknowledged: u64,
}

impl Session {
    /// A session that this side begins, and its first chunk. Refuses options and private data that no Initiate can
    /// carry.
    ///
    /// # Errors
    ///
    /// The local application's.
    pub fn initiate(
        options: &SessionOptions,
        private_data: &[u8],
    ) -> Result<(Self, ControlChunk), SessionError> {
        let depths = options.depths.check_own()?;
        let indications = options.peer_to_peer;
        let peer_to_peer = (!indications.is_empty()).then_some(indications);
        if !options.enhanced && peer_to_peer.is_some() {
            return Err(SessionError::RtrNeedsEnhanced);
        }
        let asked = options.enhanced.then_some(Enhanced {
            depths,
            peer_to_peer,
        });
        let function = match asked {
            None => Function::Initiate,
            Some(_) => Function::EnhancedInitiate,
        };
        let chunk = ControlChunk::new(DdpSsn::of(0), function, asked, private_data)?;
        let session = Self {
            inbound: Inbound::Answer,
            outbound: Outbound::Initiated,
            asked,
            depths,
            first_has_come: false,
            sent: 1,
            acknowledged: 0,
        };
        Ok((session, chunk))
    }

    /// A session of which nothing has come yet.
    pub fn passive() -> Self {
        Self {
            inbound: Inbound::Initiate,
            outbound: Outbound::Answer,
            asked: None,
            depths: ReadDepths::default(),
            first_has_come: false,
            sent: 0,
            acknowledged: 0,
        }
    }

    /// Takes the control message that is next in order.
    ///
    /// # Errors
    ///
    /// The peer's: the session is to be [terminated](Self::terminate).
    pub fn on_control<'a>(&mut self, message: &Control<'a>) -> Result<Told<'a>, SessionError> {
        let Control {
            function,
            enhanced,
            private_data,
        } = *message;
        use Function as F;
        match (self.inbound, function) {
            (Inbound::Initiate, F::Initiate | F::EnhancedInitiate) => {
                self.inbound = Inbound::Undecided;
                self.asked = enhanced;
                let peer = enhanced.map(|asked| asked.depths);
                Ok(Told::Initiated { peer, private_data })
            }
            (Inbound::Answer, F::Accept | F::EnhancedAccept) => {
                // First, because what the answer lacks is told by a segment (RFC 6581 section 9).
                self.inbound = Inbound::Segments;
                self.first_has_come = true;
                // A Terminate of ours may have been sent meanwhile.
                if self.outbound != Outbound::Over {
                    self.outbound = Outbound::Segments;
                }
                let negotiated = self.negotiate(enhanced)?;
                Ok(Told::Accepted {
                    negotiated,
                    private_data,
                })
            }
            // Of an enhanced Initiate either form: a peer may not know the other.
            (Inbound::Answer, F::Reject | F::EnhancedReject) if self.may_answer(function) => {
                self.inbound = Inbound::Over;
                self.outbound = Outbound::Over;
                Ok(Told::Rejected { private_data })
            }
            // Not rejected by the peer's application (RFC 5043 section 6.4): there is nothing more to say.
            (Inbound::Answer, F::Terminate) => {
                self.inbound = Inbound::Over;
                self.outbound = Outbound::Over;
                Ok(Told::Terminated)
            }
            (Inbound::Undecided | Inbound::Segments, F::Terminate) => {
                self.inbound = Inbound::Over;
                Ok(Told::Terminated)
            }
            _ => Err(self.out_of_sequence(function.name())),
        }
    }

    /// Whether there is anything to end: our Initiate was sent, or the peer's came.
    pub fn has_begun(&self) -> bool {
        self.inbound != Inbound::Initiate
    }

    /// Whether a segment that is next in order may be [taken](Self::on_segment) now: an Initiate that waits for its
    /// answer has all behind it wait.
    pub fn takes_segments(&self) -> bool {
        self.inbound != Inbound::Undecided
    }

    /// Takes a segment that is next in order.
    ///
    /// # Errors
    ///
    /// The peer's: the session is to be [terminated](Self::terminate).
    pub fn on_segment(&mut self) -> Result<(), SessionError> {
        match self.inbound {
            Inbound::Segments => Ok(()),
            _ => Err(self.out_of_sequence("a DDP Segment")),
        }
    }

    /// Takes the session that the peer asks for: the chunk to send, and what is agreed. `rtr` are the indications that
    /// we can take.
    ///
    /// # Errors
    ///
    /// The local application's.
    pub fn accept(
        &mut self,
        depths: ReadDepths,
        rtr: RtrSet,
        private_data: &[u8],
    ) -> Result<(ControlChunk, Negotiated), SessionError> {
        self.check_undecided()?;
        let mut agreed = Agreed {
            depths: depths.check_own()?,
            rtr: None,
        };
        let enhanced = self.asked.map(|asked| {
            let (answer, with) = asked.answer(agreed.depths, rtr);
            agreed = with;
            answer
        });
        let function = match enhanced {
            None => Function::Accept,
            Some(_) => Function::EnhancedAccept,
        };
        let chunk = ControlChunk::new(self.next_ssn(), function, enhanced, private_data)?;
        self.sent += 1;
        self.inbound = Inbound::Segments;
        self.outbound = Outbound::Segments;
        let negotiated = negotiated(agreed, self.asked);
        Ok((chunk, negotiated))
    }

    /// Has the application reject the session that the peer asks for: the chunk to send. The session is over.
    ///
    /// # Errors
    ///
    /// The local application's.
    pub fn reject(&mut self, private_data: &[u8]) -> Result<ControlChunk, SessionError> {
        self.check_undecided()?;
        let function = match self.asked {
            None => Function::Reject,
            Some(_) => Function::EnhancedReject,
        };
        let chunk = ControlChunk::new(self.next_ssn(), function, None, private_data)?;
        self.sent += 1;
        self.inbound = Inbound::Over;
        self.outbound = Outbound::Over;
        Ok(chunk)
    }

    /// Ends what this side sends: the last chunk. It refuses an Initiate, too, that is not for the application to
    /// decide on (RFC 5043 section 6.4). None when the last chunk was sent, or has to wait because it could overtake
    /// our Initiate or Accept (section 6.6): then this is to be called again when that was answered or acknowledged.
    pub fn terminate(&mut self) -> Option<ControlChunk> {
        match self.outbound {
            Outbound::Over => return None,
            Outbound::Initiated | Outbound::Segments if !self.first_has_come => return None,
            // After an Initiate the peer has nothing more to say. What came may be no Initiate, and more may come.
            Outbound::Answer if self.inbound == Inbound::Undecided => self.inbound = Inbound::Over,
            Outbound::Answer | Outbound::Initiated | Outbound::Segments => {}
        }
        self.outbound = Outbound::Over;
        let chunk = ControlChunk::terminate(self.next_ssn());
        self.sent += 1;
        Some(chunk)
    }

    /// Whether a segment may be sent now: the session is open for them, and not too many chunks are under way.
    pub fn may_send_segment(&self) -> bool {
        // One is left for the Terminate.
        self.outbound == Outbound::Segments && self.in_flight() < IN_FLIGHT_MAX - 1
    }

    /// The number of a segment that is sent now; none when none [may be](Self::may_send_segment).
    pub fn number_segment(&mut self) -> Option<DdpSsn> {
        if !self.may_send_segment() {
            return None;
        }
        let ssn = self.next_ssn();
        self.sent += 1;
        Some(ssn)
    }

    /// SCTP's peer has acknowledged so many more of the session's chunks, the first ones in order.
    pub fn acknowledged(&mut self, chunks: u64) {
        self.acknowledged = self.sent.min(self.acknowledged.saturating_add(chunks));
        self.first_has_come |= self.acknowledged > 0;
    }

    /// Nothing more comes or goes.
    pub fn is_over(&self) -> bool {
        self.inbound == Inbound::Over && self.outbound == Outbound::Over
    }

    /// No chunk of the session is under way, either: its stream may be another session's (RFC 5043 section 6.6).
    pub fn is_gone(&self) -> bool {
        self.is_over() && self.in_flight() == 0
    }

    fn in_flight(&self) -> u64 {
        self.sent - self.acknowledged
    }

    fn next_ssn(&self) -> DdpSsn {
        DdpSsn::of(self.sent)
    }

    fn check_undecided(&self) -> Result<(), SessionError> {
        match self.inbound {
            Inbound::Undecided => Ok(()),
            _ => Err(SessionError::NoInitiate),
        }
    }

    /// Whether this rejection is of the Initiate's form, or of the one before it.
    fn may_answer(&self, rejection: Function) -> bool {
        self.asked.is_some() || rejection == Function::Reject
    }

    fn negotiate(&self, answer: Option<Enhanced>) -> Result<Negotiated, SessionError> {
        match (self.asked, answer) {
            (Some(asked), Some(answer)) => Ok(negotiated(asked.agree(answer)?, Some(answer))),
            (None, None) => {
                let (depths, rtr) = (self.depths, None);
                Ok(negotiated(Agreed { depths, rtr }, None))
            }
            (asked, _) => {
                let asked = asked.is_some();
                Err(SessionError::EnhancedMismatch { asked })
            }
        }
    }

    fn out_of_sequence(&self, found: &'static str) -> SessionError {
        let wanted = match self.inbound {
            Inbound::Initiate => "an Initiate",
            Inbound::Undecided => "nothing but a Terminate before the Initiate is answered",
            Inbound::Answer => "an Accept, a Reject or a Terminate",
            Inbound::Segments => "a DDP Segment or a Terminate",
            Inbound::Over => "nothing",
        };
        SessionError::Sequence { found, wanted }
    }
}

fn negotiated(agreed: Agreed, peer: Option<Enhanced>) -> Negotiated {
    Negotiated {
        ird: agreed.depths.ird,
        ord: agreed.depths.ord,
        rtr: agreed.rtr,
        peer: peer.map(|enhanced| enhanced.depths),
    }
}

#[cfg(test)]
mod tests;
