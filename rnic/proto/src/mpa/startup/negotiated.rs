//! The outcome of the Startup Phase.

use super::Revision;
use crate::enhanced::{ReadDepths, Rtr};
use crate::mpa::marker::Markers;

/// What both sides agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// The Reply's revision.
    pub revision: Revision,
    /// FPDUs carry CRCs, and CRCs are checked, in both directions.
    pub crc: bool,
    /// Markers in what this side receives: it asked for them.
    pub markers_in: Markers,
    /// Markers in what this side sends: the peer asked for them.
    pub markers_out: Markers,
    /// Each TCP segment begins with an FPDU, both ways: an extension that both asked for. There are
    /// CRCs with it.
    pub aligned: bool,
    /// Inbound RDMA Reads that this side takes at a time.
    pub ird: u16,
    /// Outbound RDMA Reads that this side may have outstanding.
    pub ord: u16,
    /// Peer-to-peer model: the indication that the initiator must send as its first message, and
    /// that the responder waits for. None in the client-server model, where the first message of
    /// the initiator's application is the indication.
    pub rtr: Option<Rtr>,
    /// What the peer said of its depths, for the application (RFC 6581 section 9.1).
    pub peer: Option<ReadDepths>,
}
