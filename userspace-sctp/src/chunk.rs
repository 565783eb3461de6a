//! Chunks (RFC 9260 section 3.2, 3.3): bytes become one of these values, and these values bytes.

mod data;
mod init;
mod sack;
#[cfg(test)]
mod tests;

use crate::cause::{Cause, Causes};
use crate::tlv::{Element, NoRoom, Output, u32_at};
use crate::tsn::Tsn;

pub use data::{DATA_HEADER_LEN, Data};
pub use init::{INIT_FIXED_LEN, Init, InitError, RWND_MIN};
pub use sack::{GapBlock, Sack};

/// The types of RFC 9260 section 3.2.
mod kind {
    pub(super) const DATA: u8 = 0;
    pub(super) const INIT: u8 = 1;
    pub(super) const INIT_ACK: u8 = 2;
    pub(super) const SACK: u8 = 3;
    pub(super) const HEARTBEAT: u8 = 4;
    pub(super) const HEARTBEAT_ACK: u8 = 5;
    pub(super) const ABORT: u8 = 6;
    pub(super) const SHUTDOWN: u8 = 7;
    pub(super) const SHUTDOWN_ACK: u8 = 8;
    pub(super) const ERROR: u8 = 9;
    pub(super) const COOKIE_ECHO: u8 = 10;
    pub(super) const COOKIE_ACK: u8 = 11;
    pub(super) const SHUTDOWN_COMPLETE: u8 = 14;
    pub(super) const PAD: u8 = 0x84;
}

/// The T bit of ABORT and SHUTDOWN COMPLETE: the Verification Tag is the receiver's own, sent back.
const REFLECTED: u8 = 1;

/// What the two highest bits of an unknown chunk type or parameter type ask for (sections 3.2, 3.2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Report {
    /// 00: nothing that follows in the packet (the chunk) is read.
    Stop,
    /// 01: the same, and the sender is notified.
    StopAndReport,
    /// 10: what follows is read.
    Skip,
    /// 11: the same, and the sender is notified.
    SkipAndReport,
}

impl Report {
    /// By the two highest bits, as a number.
    pub(crate) const fn of(bits: u16) -> Self {
        match bits & 3 {
            0 => Self::Stop,
            1 => Self::StopAndReport,
            2 => Self::Skip,
            _ => Self::SkipAndReport,
        }
    }

    /// Whether the sender is notified.
    pub const fn is_told(self) -> bool {
        matches!(self, Self::StopAndReport | Self::SkipAndReport)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chunk<'a> {
    /// User data (section 3.3.1).
    Data(Data<'a>),
    /// An association is asked for (3.3.2).
    Init(Init<'a>),
    /// The answer, with a State Cookie (3.3.3).
    InitAck(Init<'a>),
    /// What of the data is here (3.3.4).
    Sack(Sack<'a>),
    /// The path is probed (3.3.5). The parameter, as its receiver sends it back.
    Heartbeat(&'a [u8]),
    /// The answer (3.3.6).
    HeartbeatAck(&'a [u8]),
    /// The association is over (3.3.7).
    Abort {
        /// The T bit.
        reflected: bool,
        causes: Causes<'a>,
    },
    /// The sender has no more data (3.3.8).
    Shutdown {
        /// The last TSN before which nothing is missing.
        cumulative: Tsn,
    },
    /// The answer, when the other side has none either (3.3.9).
    ShutdownAck,
    /// Something was wrong (3.3.10).
    Error(Causes<'a>),
    /// The State Cookie, back (3.3.11).
    CookieEcho(&'a [u8]),
    /// The cookie was good (3.3.12).
    CookieAck,
    /// The association is gone (3.3.13).
    ShutdownComplete {
        /// The T bit.
        reflected: bool,
    },
    /// Fills a packet (RFC 4820 section 3). What it is filled with means nothing, and is sent as zeros.
    Pad {
        /// Bytes behind its head, without those up to a multiple of four.
        len: usize,
    },
    /// A type that is not known here.
    Unknown {
        /// What its type asks for.
        report: Report,
        /// All of it but its padding, for a report.
        whole: &'a [u8],
    },
    /// A known type whose value is too short, or says of itself what can't be.
    Malformed {
        kind: u8,
        /// All of it but its padding.
        whole: &'a [u8],
    },
}

impl<'a> Chunk<'a> {
    pub(crate) fn read(element: Element<'a>) -> Self {
        let [kind, flags] = element.head.to_be_bytes();
        let Element { value, whole, .. } = element;
        let known = match kind {
            kind::DATA => Data::read(flags, value).map(Self::Data),
            kind::INIT => Init::read(value).map(Self::Init),
            kind::INIT_ACK => Init::read(value).map(Self::InitAck),
            kind::SACK => Sack::read(value).map(Self::Sack),
            kind::HEARTBEAT => Some(Self::Heartbeat(value)),
            kind::HEARTBEAT_ACK => Some(Self::HeartbeatAck(value)),
            kind::ABORT => Some(Self::Abort {
                reflected: flags & REFLECTED != 0,
                causes: Causes::new(value),
            }),
            kind::SHUTDOWN => u32_at(value, 0).map(|tsn| Self::Shutdown {
                cumulative: Tsn(tsn),
            }),
            kind::SHUTDOWN_ACK => Some(Self::ShutdownAck),
            kind::ERROR => Some(Self::Error(Causes::new(value))),
            kind::COOKIE_ECHO => Some(Self::CookieEcho(value)),
            kind::COOKIE_ACK => Some(Self::CookieAck),
            kind::SHUTDOWN_COMPLETE => Some(Self::ShutdownComplete {
                reflected: flags & REFLECTED != 0,
            }),
            kind::PAD => Some(Self::Pad { len: value.len() }),
            _ => {
                let report = Report::of(u16::from(kind >> 6));
                Some(Self::Unknown { report, whole })
            }
        };
        known.unwrap_or(Self::Malformed { kind, whole })
    }

    /// Appends it with its padding.
    pub(crate) fn write(&self, output: &mut Output<'_>) -> Result<(), NoRoom> {
        let nothing = |_: &mut Output<'_>| Ok(());
        let bit = |reflected: bool| if reflected { REFLECTED } else { 0 };
        match self {
            Self::Data(data) => output.element(head(kind::DATA, data.flags()), |o| data.write(o)),
            Self::Init(init) => output.element(head(kind::INIT, 0), |o| init.write(o)),
            Self::InitAck(init) => output.element(head(kind::INIT_ACK, 0), |o| init.write(o)),
            Self::Sack(sack) => output.element(head(kind::SACK, 0), |o| sack.write(o)),
            Self::Heartbeat(info) => output.element(head(kind::HEARTBEAT, 0), |o| o.put(info)),
            Self::HeartbeatAck(info) => {
                output.element(head(kind::HEARTBEAT_ACK, 0), |o| o.put(info))
            }
            Self::Abort { reflected, causes } => output
                .element(head(kind::ABORT, bit(*reflected)), |o| {
                    o.put(causes.bytes())
                }),
            Self::Shutdown { cumulative } => output.element(head(kind::SHUTDOWN, 0), |o| {
                o.put(&cumulative.0.to_be_bytes())
            }),
            Self::ShutdownAck => output.element(head(kind::SHUTDOWN_ACK, 0), nothing),
            Self::Error(causes) => output.element(head(kind::ERROR, 0), |o| o.put(causes.bytes())),
            Self::CookieEcho(cookie) => {
                output.element(head(kind::COOKIE_ECHO, 0), |o| o.put(cookie))
            }
            Self::CookieAck => output.element(head(kind::COOKIE_ACK, 0), nothing),
            Self::ShutdownComplete { reflected } => {
                output.element(head(kind::SHUTDOWN_COMPLETE, bit(*reflected)), nothing)
            }
            Self::Pad { len } => output.element(head(kind::PAD, 0), |o| o.zeros(*len)),
            // As it came, for tools that send on what they read.
            Self::Unknown { whole, .. } | Self::Malformed { whole, .. } => raw(output, whole),
        }
    }
}

/// Appends an ERROR with one cause.
pub(crate) fn write_error(cause: &Cause<'_>, output: &mut Output<'_>) -> Result<(), NoRoom> {
    output.element(head(kind::ERROR, 0), |o| {
        cause.write(o)?;
        o.take_padding();
        Ok(())
    })
}

/// Appends a chunk whose bytes are given.
fn raw(output: &mut Output<'_>, whole: &[u8]) -> Result<(), NoRoom> {
    let [kind, flags, _, _, value @ ..] = whole else {
        return Ok(());
    };
    output.element(head(*kind, *flags), |o| o.put(value))
}

fn head(kind: u8, flags: u8) -> u16 {
    u16::from_be_bytes([kind, flags])
}
