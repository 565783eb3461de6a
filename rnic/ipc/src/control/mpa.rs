//! What may be asked for, and what is agreed on, in the MPA start-up (RFC 5044 section 7, RFC 6581).

use serde::{Deserialize, Serialize};

/// What one side asks of the other in the MPA start-up; as what was agreed, what holds for the
/// connection. There may be more fields in versions to come: a program names those that it wants, and
/// takes the rest from `MpaOptions::default()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MpaOptions {
    /// 1 (RFC 5044) or 2 (RFC 6581). A responder answers in the revision it was asked in.
    pub revision: u8,
    /// Ask for CRC32C on FPDUs. It is off only when neither side asks.
    pub crc: bool,
    /// Markers in what the peer sends. What the peer asks for is always granted.
    pub markers: MarkerUse,
    /// Ask for the extension by which each TCP segment begins with an FPDU, so that it can be placed
    /// out of order without Markers. It is on when both sides ask, and CRCs are.
    pub aligned: bool,
    /// The initiator's first message, when its application may have none. As what was agreed, the
    /// one that it sends; as what an initiator asks for, those that it can send.
    pub rtr: RtrModes,
    /// Inbound RDMA Read queue depth we offer.
    pub ird: u16,
    /// Outbound RDMA Reads we want outstanding.
    pub ord: u16,
}

impl Default for MpaOptions {
    fn default() -> Self {
        Self {
            revision: 2,
            crc: true,
            markers: MarkerUse::Off,
            aligned: false,
            rtr: RtrModes::ALL,
            ird: 16,
            ord: 16,
        }
    }
}

/// Whether one side asks for Markers in what it receives, by which FPDUs that come out of order are
/// found and placed (RFC 5044 section 4.3).
///
/// A peer has to send them when it is asked; some, Linux's siw among them, can't and reject. Whether
/// it was for the Markers a rejection does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum MarkerUse {
    /// No Markers; as what was agreed or asked for, none.
    #[default]
    Off,
    /// Markers if the peer has them. An initiator that is rejected without private data connects
    /// once more, without Markers, and is notified of the second outcome only; a rejection with private
    /// data is the application's, and final. A responder, who has no second try, asks for Markers
    /// only if the initiator did.
    Prefer,
    /// Markers or no connection; as what was agreed or asked for, Markers.
    Require,
}

impl MarkerUse {
    /// What a start-up frame's flag M says.
    pub const fn of_flag(wanted: bool) -> Self {
        if wanted { Self::Require } else { Self::Off }
    }
}

/// Ready-to-Receive indications (RFC 6581 section 9.2): messages of no bytes by which an initiator
/// of revision 2 lets the responder's application send first. The start-up agrees on one that the
/// initiator can send and the responder takes: on the Write where it may, else on the Read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RtrModes {
    /// An RDMA Write (control flag C).
    pub write: bool,
    /// An RDMA Read (control flag D).
    pub read: bool,
    /// A Send, or FULPDU (control flag B). It takes no receive.
    pub send: bool,
}

impl RtrModes {
    /// Any of them.
    pub const ALL: Self = Self {
        write: true,
        read: true,
        send: true,
    };
    /// None: as what an initiator asks for the client-server model, in which its application sends
    /// first. A responder that takes none names the Write to an initiator that asks.
    pub const NONE: Self = Self {
        write: false,
        read: false,
        send: false,
    };
}

/// What a peer says of RDMA Reads, as it came (RFC 6581 section 9.1). 0x3FFF leaves a depth to the
/// applications.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerDepths {
    /// Inbound RDMA Reads that it takes at a time.
    pub ird: u16,
    /// Outbound RDMA Reads that it wants to have outstanding.
    pub ord: u16,
}
