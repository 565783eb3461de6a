//! The side that sends the MPA Request Frame.

#[cfg(test)]
mod tests;

use super::frame::{Collected, Collector, FrameHeader, FrameKind, Revision, StartupFrame};
use super::{Negotiated, StartupError};
use crate::enhanced::{Agreed, Enhanced, ReadDepths, RtrSet};
use crate::mpa::marker::Markers;

/// What an initiator asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InitiatorOptions {
    /// Revision 2 negotiates IRD and ORD; revision 1 leaves them to the applications.
    pub revision: Revision,
    /// Ask for CRCs. They are on when either side asks.
    pub crc: bool,
    /// Ask for Markers in what the peer sends.
    pub markers: bool,
    /// Ask for alignment, both ways.
    pub aligned: bool,
    /// Own IRD and ORD.
    pub depths: ReadDepths,
    /// Ready-to-Receive indications that we can send; [`RtrSet::NONE`] asks for the client-server
    /// model, in which the application's first message is the indication.
    pub peer_to_peer: RtrSet,
}

/// Sends a Request, waits for the Reply.
#[derive(Debug)]
pub struct Initiator {
    options: InitiatorOptions,
    asked: Option<Enhanced>,
    request: StartupFrame,
    reply: Collector,
    markers_out: Markers,
}

/// The state after the bytes so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InitiatorProgress<'a> {
    /// The Reply isn't whole; all bytes were taken.
    NeedMore,
    /// Full Operation begins behind the bytes that were consumed.
    Accepted {
        /// Bytes of this input that belong to the Reply: all of them.
        consumed: usize,
        /// What was agreed.
        negotiated: Negotiated,
        /// The responder's application says.
        private_data: &'a [u8],
    },
    /// The responder rejected the connection.
    Rejected {
        /// Bytes of this input that belong to the Reply.
        consumed: usize,
        /// What the responder said of its depths, for the application.
        peer: Option<ReadDepths>,
        /// The responder's application says.
        private_data: &'a [u8],
    },
}

impl Initiator {
    /// An initiator; refuses options and private data that no Request can carry.
    pub fn new(options: InitiatorOptions, private_data: &[u8]) -> Result<Self, StartupError> {
        let InitiatorOptions {
            revision,
            crc,
            markers,
            aligned,
            depths,
            peer_to_peer,
        } = options;
        let depths = depths.check_own()?;
        let asked = (!peer_to_peer.is_empty()).then_some(peer_to_peer);
        let enhanced = match revision {
            Revision::One if asked.is_some() => return Err(StartupError::RtrNeedsRevision2),
            Revision::One => None,
            Revision::Two => Some(Enhanced {
                depths,
                peer_to_peer: asked,
            }),
        };
        let header = FrameHeader {
            markers,
            crc,
            aligned,
            rejected: false,
            revision,
            enhanced,
        };
        let request = StartupFrame::new(FrameKind::Request, &header, private_data)?;
        Ok(Self {
            options,
            asked: enhanced,
            request,
            reply: Collector::new(FrameKind::Reply),
            markers_out: Markers::Off,
        })
    }

    /// The frame to send first.
    pub fn request(&self) -> &StartupFrame {
        &self.request
    }

    /// Markers in what this side sends, also in the Terminate that tells why a Reply is not good
    /// enough; known when the Reply is whole.
    pub fn markers_out(&self) -> Markers {
        self.markers_out
    }

    /// Takes the connection's next bytes. After [`InitiatorProgress::Accepted`],
    /// [`InitiatorProgress::Rejected`] or an error it is done with.
    pub fn on_bytes(&mut self, input: &[u8]) -> Result<InitiatorProgress<'_>, StartupError> {
        let Some(reply) = self.reply.take(input)? else {
            return Ok(InitiatorProgress::NeedMore);
        };
        let Collected {
            header, consumed, ..
        } = reply;
        self.markers_out = Markers::when(header.markers);
        let peer = header.enhanced.map(|enhanced| enhanced.depths);
        if header.rejected {
            let private_data = self.reply.private_data(&reply);
            return Ok(InitiatorProgress::Rejected {
                consumed,
                peer,
                private_data,
            });
        }
        let extra = input.len() - consumed;
        if extra > 0 {
            return Err(StartupError::BytesBehindFrame {
                kind: FrameKind::Reply,
                extra,
            });
        }
        let negotiated = self.negotiate(&header)?;
        let private_data = self.reply.private_data(&reply);
        Ok(InitiatorProgress::Accepted {
            consumed,
            negotiated,
            private_data,
        })
    }

    fn negotiate(&self, reply: &FrameHeader) -> Result<Negotiated, StartupError> {
        let agreed = match (self.asked, reply.enhanced) {
            (Some(asked), Some(answer)) => asked.agree(answer)?,
            (None, None) => Agreed {
                depths: self.options.depths,
                rtr: None,
            },
            (asked, _) => {
                let asked = asked.is_some();
                return Err(StartupError::EnhancedMismatch { asked });
            }
        };
        let crc = self.options.crc || reply.crc;
        Ok(Negotiated {
            revision: reply.revision,
            crc,
            markers_in: Markers::when(self.options.markers),
            markers_out: self.markers_out,
            aligned: self.options.aligned && reply.aligned && crc,
            ird: agreed.depths.ird,
            ord: agreed.depths.ord,
            rtr: agreed.rtr,
            peer: reply.enhanced.map(|enhanced| enhanced.depths),
        })
    }
}
