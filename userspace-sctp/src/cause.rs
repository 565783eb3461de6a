//! Error causes of ERROR and ABORT (RFC 9260 section 3.3.10).

#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use crate::tlv::{Element, Elements, HEAD_LEN, NoRoom, Output, u16_at, u32_at};
use crate::tsn::Tsn;

mod code {
    pub(super) const INVALID_STREAM: u16 = 1;
    pub(super) const MISSING_PARAMETER: u16 = 2;
    pub(super) const STALE_COOKIE: u16 = 3;
    pub(super) const OUT_OF_RESOURCE: u16 = 4;
    pub(super) const UNRESOLVABLE_ADDRESS: u16 = 5;
    pub(super) const UNRECOGNIZED_CHUNK: u16 = 6;
    pub(super) const INVALID_PARAMETER: u16 = 7;
    pub(super) const UNRECOGNIZED_PARAMETERS: u16 = 8;
    pub(super) const NO_USER_DATA: u16 = 9;
    pub(super) const COOKIE_IN_SHUTDOWN: u16 = 10;
    pub(super) const RESTART_WITH_NEW_ADDRESSES: u16 = 11;
    pub(super) const USER_INITIATED: u16 = 12;
    pub(super) const PROTOCOL_VIOLATION: u16 = 13;
    pub(super) const RESTART_WITH_NEW_PORT: u16 = 14;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause<'a> {
    /// A DATA chunk names a stream that there is not.
    InvalidStream(u16),
    /// A parameter that must be there is not: their types, each two bytes.
    MissingParameters(&'a [u8]),
    /// The State Cookie came so long after its end.
    StaleCookie(Duration),
    /// The sender has no room for the association.
    OutOfResource,
    /// An address can't be resolved: the parameter.
    UnresolvableAddress(&'a [u8]),
    /// A chunk type is not known: the chunk.
    UnrecognizedChunk(&'a [u8]),
    /// A mandatory field of INIT has a value that it can't have.
    InvalidParameter,
    /// Parameters of INIT ACK are not known: the parameters.
    UnrecognizedParameters(&'a [u8]),
    /// A DATA chunk without user data.
    NoUserData(Tsn),
    /// A COOKIE ECHO came while the association shuts down.
    CookieInShutdown,
    /// An INIT would add addresses to an association: the parameters.
    RestartWithNewAddresses(&'a [u8]),
    /// An INIT comes by another UDP encapsulation port than its association uses (draft-tuexen-tsvwg-rfc6951-bis); 0: not in
    /// UDP.
    RestartWithNewPort {
        current: u16,
        /// The INIT's.
        new: u16,
    },
    /// The layer above ended it: what it has to say.
    UserInitiated(&'a [u8]),
    /// The protocol was violated: what is known of it.
    ProtocolViolation(&'a [u8]),
    /// A code that is not known here.
    Unknown(u16),
    /// A known code with a length that it can't have, or bytes that are no cause.
    Malformed,
}

/// Causes, as bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Causes<'a> {
    bytes: &'a [u8],
}

impl<'a> Causes<'a> {
    /// Of bytes from a chunk, or written by [`Writer`].
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// As on the wire.
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    pub fn iter(&self) -> impl Iterator<Item = Cause<'a>> + use<'a> {
        Elements::new(self.bytes).map(|element| element.map_or(Cause::Malformed, Cause::read))
    }
}

impl<'a> Cause<'a> {
    /// Its code; a malformed one has none.
    pub const fn code(&self) -> Option<u16> {
        Some(match self {
            Self::InvalidStream(_) => code::INVALID_STREAM,
            Self::MissingParameters(_) => code::MISSING_PARAMETER,
            Self::StaleCookie(_) => code::STALE_COOKIE,
            Self::OutOfResource => code::OUT_OF_RESOURCE,
            Self::UnresolvableAddress(_) => code::UNRESOLVABLE_ADDRESS,
            Self::UnrecognizedChunk(_) => code::UNRECOGNIZED_CHUNK,
            Self::InvalidParameter => code::INVALID_PARAMETER,
            Self::UnrecognizedParameters(_) => code::UNRECOGNIZED_PARAMETERS,
            Self::NoUserData(_) => code::NO_USER_DATA,
            Self::CookieInShutdown => code::COOKIE_IN_SHUTDOWN,
            Self::RestartWithNewAddresses(_) => code::RESTART_WITH_NEW_ADDRESSES,
            Self::RestartWithNewPort { .. } => code::RESTART_WITH_NEW_PORT,
            Self::UserInitiated(_) => code::USER_INITIATED,
            Self::ProtocolViolation(_) => code::PROTOCOL_VIOLATION,
            Self::Unknown(code) => *code,
            Self::Malformed => return None,
        })
    }

    /// The same cause, of which no more is quoted than fits in so many bytes.
    pub fn within(self, room: usize) -> Self {
        let most = room.saturating_sub(HEAD_LEN) & !3;
        let cut = |quoted: &'a [u8]| &quoted[..quoted.len().min(most)];
        match self {
            Self::UnresolvableAddress(address) => Self::UnresolvableAddress(cut(address)),
            Self::UnrecognizedChunk(chunk) => Self::UnrecognizedChunk(cut(chunk)),
            Self::UnrecognizedParameters(all) => Self::UnrecognizedParameters(cut(all)),
            Self::RestartWithNewAddresses(all) => Self::RestartWithNewAddresses(cut(all)),
            Self::UserInitiated(reason) => Self::UserInitiated(cut(reason)),
            Self::ProtocolViolation(what) => Self::ProtocolViolation(cut(what)),
            other => other,
        }
    }

    pub(crate) fn write(&self, output: &mut Output<'_>) -> Result<(), NoRoom> {
        let mut element = |head: u16, value: &[u8]| output.element(head, |o| o.put(value));
        match *self {
            Self::InvalidStream(stream) => {
                let [a, b] = stream.to_be_bytes();
                element(code::INVALID_STREAM, &[a, b, 0, 0])
            }
            Self::MissingParameters(types) => {
                let count = (types.len() / 2) as u32;
                output.element(code::MISSING_PARAMETER, |o| {
                    o.put(&count.to_be_bytes())?;
                    o.put(types)
                })
            }
            Self::StaleCookie(late) => {
                let micros = u32::try_from(late.as_micros()).unwrap_or(u32::MAX);
                element(code::STALE_COOKIE, &micros.to_be_bytes())
            }
            Self::OutOfResource => element(code::OUT_OF_RESOURCE, &[]),
            Self::UnresolvableAddress(parameter) => element(code::UNRESOLVABLE_ADDRESS, parameter),
            Self::UnrecognizedChunk(chunk) => element(code::UNRECOGNIZED_CHUNK, chunk),
            Self::InvalidParameter => element(code::INVALID_PARAMETER, &[]),
            Self::UnrecognizedParameters(all) => element(code::UNRECOGNIZED_PARAMETERS, all),
            Self::NoUserData(tsn) => element(code::NO_USER_DATA, &tsn.0.to_be_bytes()),
            Self::CookieInShutdown => element(code::COOKIE_IN_SHUTDOWN, &[]),
            Self::RestartWithNewAddresses(all) => element(code::RESTART_WITH_NEW_ADDRESSES, all),
            Self::RestartWithNewPort { current, new } => {
                let ports = u32::from(current) << 16 | u32::from(new);
                element(code::RESTART_WITH_NEW_PORT, &ports.to_be_bytes())
            }
            Self::UserInitiated(reason) => element(code::USER_INITIATED, reason),
            Self::ProtocolViolation(what) => element(code::PROTOCOL_VIOLATION, what),
            Self::Unknown(code) => element(code, &[]),
            Self::Malformed => Ok(()),
        }
    }

    fn read(element: Element<'a>) -> Self {
        let Element { head, value, .. } = element;
        let known = match head {
            code::INVALID_STREAM => u16_at(value, 0).map(Self::InvalidStream),
            code::MISSING_PARAMETER => value.get(4..).map(Self::MissingParameters),
            code::STALE_COOKIE => {
                let micros = u32_at(value, 0);
                micros.map(|micros| Self::StaleCookie(Duration::from_micros(micros.into())))
            }
            code::OUT_OF_RESOURCE => Some(Self::OutOfResource),
            code::UNRESOLVABLE_ADDRESS => Some(Self::UnresolvableAddress(value)),
            code::UNRECOGNIZED_CHUNK => Some(Self::UnrecognizedChunk(value)),
            code::INVALID_PARAMETER => Some(Self::InvalidParameter),
            code::UNRECOGNIZED_PARAMETERS => Some(Self::UnrecognizedParameters(value)),
            code::NO_USER_DATA => u32_at(value, 0).map(|tsn| Self::NoUserData(Tsn(tsn))),
            code::COOKIE_IN_SHUTDOWN => Some(Self::CookieInShutdown),
            code::RESTART_WITH_NEW_ADDRESSES => Some(Self::RestartWithNewAddresses(value)),
            code::RESTART_WITH_NEW_PORT => u32_at(value, 0).map(|ports| Self::RestartWithNewPort {
                current: (ports >> 16) as u16,
                new: ports as u16,
            }),
            code::USER_INITIATED => Some(Self::UserInitiated(value)),
            code::PROTOCOL_VIOLATION => Some(Self::ProtocolViolation(value)),
            other => Some(Self::Unknown(other)),
        };
        known.unwrap_or(Self::Malformed)
    }
}

impl fmt::Display for Cause<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidStream(stream) => write!(f, "stream {stream} does not exist (cause 1)"),
            Self::MissingParameters(_) => f.write_str("a mandatory parameter is missing (cause 2)"),
            Self::StaleCookie(late) => {
                write!(f, "the State Cookie came {late:?} too late (cause 3)")
            }
            Self::OutOfResource => f.write_str("out of resource (cause 4)"),
            Self::UnresolvableAddress(_) => f.write_str("an address can't be resolved (cause 5)"),
            Self::UnrecognizedChunk(chunk) => {
                let kind = chunk.first().copied().unwrap_or_default();
                write!(f, "chunk type {kind} is not known (cause 6)")
            }
            Self::InvalidParameter => f.write_str("a mandatory parameter is invalid (cause 7)"),
            Self::UnrecognizedParameters(_) => f.write_str("parameters are not known (cause 8)"),
            Self::NoUserData(tsn) => write!(f, "the DATA chunk {tsn} has no user data (cause 9)"),
            Self::CookieInShutdown => {
                f.write_str("a COOKIE ECHO came while the association shuts down (cause 10)")
            }
            Self::RestartWithNewAddresses(_) => {
                f.write_str("a restart would add addresses (cause 11)")
            }
            Self::RestartWithNewPort { current, new } => write!(
                f,
                "a restart would change the UDP port from {current} to {new} (cause 14)"
            ),
            Self::UserInitiated(_) => f.write_str("aborted by its user (cause 12)"),
            Self::ProtocolViolation(_) => f.write_str("protocol violation (cause 13)"),
            Self::Unknown(code) => write!(f, "cause {code}"),
            Self::Malformed => f.write_str("a malformed cause"),
        }
    }
}

/// Writes causes one after another.
#[derive(Debug)]
pub struct Writer<'a> {
    output: Output<'a>,
}

impl<'a> Writer<'a> {
    /// Into `buffer`.
    pub fn new(buffer: &'a mut [u8]) -> Self {
        Self {
            output: Output::new(buffer),
        }
    }

    /// Appends one. [`Cause::Malformed`] is never sent and writes nothing.
    ///
    /// # Errors
    /// When there is no room for all of it; then nothing of it was written.
    pub fn put(&mut self, cause: &Cause<'_>) -> Result<(), NoRoom> {
        cause.write(&mut self.output)
    }

    /// Bytes written.
    pub fn finish(self) -> usize {
        self.output.len_of_value()
    }
}
