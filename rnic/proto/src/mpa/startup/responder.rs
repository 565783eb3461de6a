//! The side that answers an MPA Request Frame.

#[cfg(test)]
mod tests;

use super::frame::{Collected, Collector, FrameHeader, FrameKind, Revision, StartupFrame};
use super::{Negotiated, StartupError};
use crate::enhanced::{Agreed, Enhanced, ReadDepths, RtrSet};
use crate::mpa::marker::Markers;

/// What a responder accepts with. It answers in the revision that it was asked in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponderOptions {
    /// Ask for CRCs. They are on when either side asks.
    pub crc: bool,
    /// Ask for Markers in what the peer sends.
    pub markers: bool,
    /// Grant alignment to an initiator that asks for it.
    pub aligned: bool,
    /// Own IRD and ORD, as they would be if the peer had no say.
    pub depths: ReadDepths,
    /// Ready-to-Receive indications that we can take; if none, Write is named to an initiator that
    /// wants one.
    pub rtr: RtrSet,
}

/// Waits for a Request, answers it.
#[derive(Debug)]
pub struct Responder {
    request: Collector,
    collected: Option<Collected>,
}

/// The state after the bytes so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponderProgress<'a> {
    /// The Request isn't whole; all bytes were taken.
    NeedMore,
    /// To be answered by [`Responder::accept`] or [`Responder::reject`].
    Request {
        /// Bytes of this input that belong to the Request: all of them.
        consumed: usize,
        /// The Request's revision.
        revision: Revision,
        /// The initiator asks for CRCs.
        crc_wanted: bool,
        /// The initiator asks for Markers in what it receives.
        markers_wanted: bool,
        /// The initiator asks for alignment.
        aligned_wanted: bool,
        /// The initiator's IRD and ORD; none when it does not negotiate them.
        peer: Option<ReadDepths>,
        /// Peer-to-peer model: the indications that the initiator can send.
        peer_to_peer: Option<RtrSet>,
        /// The initiator's application says.
        private_data: &'a [u8],
    },
}

impl Default for Responder {
    fn default() -> Self {
        Self::new()
    }
}

impl Responder {
    /// A responder that has received nothing yet.
    pub fn new() -> Self {
        Self {
            request: Collector::new(FrameKind::Request),
            collected: None,
        }
    }

    /// Takes the connection's next bytes. Also to be called with what comes before the Request is
    /// answered: nothing may, so it is an error.
    pub fn on_bytes(&mut self, input: &[u8]) -> Result<ResponderProgress<'_>, StartupError> {
        if self.collected.is_some() {
            return match input.len() {
                0 => Ok(ResponderProgress::NeedMore),
                extra => Err(behind_request(extra)),
            };
        }
        let Some(request) = self.request.take(input)? else {
            return Ok(ResponderProgress::NeedMore);
        };
        self.collected = Some(request);
        let Collected {
            header, consumed, ..
        } = request;
        if input.len() > consumed {
            return Err(behind_request(input.len() - consumed));
        }
        Ok(ResponderProgress::Request {
            consumed,
            revision: header.revision,
            crc_wanted: header.crc,
            markers_wanted: header.markers,
            aligned_wanted: header.aligned,
            peer: header.enhanced.map(|enhanced| enhanced.depths),
            peer_to_peer: header.enhanced.and_then(|enhanced| enhanced.peer_to_peer),
            private_data: self.request.private_data(&request),
        })
    }

    /// Whether the Request asks for Markers; not before it is whole.
    pub fn markers_wanted(&self) -> bool {
        self.collected.is_some_and(|request| request.header.markers)
    }

    /// The Reply that accepts the Request, and what is agreed with it.
    pub fn accept(
        &self,
        options: &ResponderOptions,
        private_data: &[u8],
    ) -> Result<(StartupFrame, Negotiated), StartupError> {
        let request = self.collected.ok_or(StartupError::NoRequest)?.header;
        let mut agreed = Agreed {
            depths: options.depths.check_own()?,
            rtr: None,
        };
        let enhanced = request.enhanced.map(|peer| {
            let (answer, with) = peer.answer(agreed.depths, options.rtr);
            agreed = with;
            answer
        });
        let crc = options.crc || request.crc;
        let aligned = options.aligned && request.aligned && crc;
        let revision = request.revision;
        let header = FrameHeader {
            markers: options.markers,
            crc,
            aligned,
            rejected: false,
            revision,
            enhanced,
        };
        let reply = StartupFrame::new(FrameKind::Reply, &header, private_data)?;
        let negotiated = Negotiated {
            revision,
            crc,
            markers_in: Markers::when(options.markers),
            markers_out: Markers::when(request.markers),
            aligned,
            ird: agreed.depths.ird,
            ord: agreed.depths.ord,
            rtr: agreed.rtr,
            peer: request.enhanced.map(|enhanced| enhanced.depths),
        };
        Ok((reply, negotiated))
    }

    /// The Reply that rejects the Request.
    pub fn reject(&self, private_data: &[u8]) -> Result<StartupFrame, StartupError> {
        let request = self.collected.ok_or(StartupError::NoRequest)?.header;
        let header = FrameHeader {
            markers: false,
            crc: request.crc,
            aligned: false,
            rejected: true,
            revision: request.revision,
            enhanced: request.enhanced.map(Enhanced::rejection),
        };
        StartupFrame::new(FrameKind::Reply, &header, private_data)
    }
}

fn behind_request(extra: usize) -> StartupError {
    StartupError::BytesBehindFrame {
        kind: FrameKind::Request,
        extra,
    }
}
