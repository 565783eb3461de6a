//! Parameters of INIT, INIT ACK and HEARTBEAT (RFC 9260 sections 3.2.1, 3.3.2.1, 3.3.3.1, 3.3.5).
//!
//! Among them is the Adaptation Layer Indication (RFC 5061 section 4.2.6). Both sides say by it that they speak DDP
//! (RFC 5043 section 5.1).

#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use crate::chunk::Report;
use crate::tlv::{Element, Elements, NoRoom, Output, u32_at};

mod kind {
    pub(super) const HEARTBEAT_INFO: u16 = 1;
    pub(super) const IPV4: u16 = 5;
    pub(super) const IPV6: u16 = 6;
    pub(super) const STATE_COOKIE: u16 = 7;
    pub(super) const UNRECOGNIZED: u16 = 8;
    pub(super) const COOKIE_PRESERVATIVE: u16 = 9;
    pub(super) const HOST_NAME: u16 = 11;
    pub(super) const ADDRESS_TYPES: u16 = 12;
    pub(super) const ADAPTATION: u16 = 0xC006;
}

/// The Adaptation Layer Indication of DDP (RFC 5043 section 5.1).
pub const ADAPTATION_DDP: u32 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parameter<'a> {
    /// What the sender of a HEARTBEAT wants back.
    HeartbeatInfo(&'a [u8]),
    Address(IpAddr),
    StateCookie(&'a [u8]),
    /// A parameter of the INIT that its receiver does not know, whole.
    Unrecognized(&'a [u8]),
    /// The State Cookie should live so much longer.
    CookiePreservative(Duration),
    /// A host name as an address, whole: refused by an ABORT that has it (section 3.3.2.1.4).
    HostName(&'a [u8]),
    /// Families that the sender can use.
    AddressTypes {
        /// IPv4 is among them.
        v4: bool,
        /// IPv6 is among them.
        v6: bool,
    },
    /// What the layer above speaks.
    Adaptation(u32),
    /// A type that is not known here.
    Unknown {
        /// What its type asks for.
        report: Report,
        /// All of it but its padding, for a report.
        whole: &'a [u8],
    },
    /// A known type with a length that it can't have, or bytes that are no parameter.
    Malformed,
}

/// Parameters, as bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Parameters<'a> {
    bytes: &'a [u8],
}

impl<'a> Parameters<'a> {
    /// Of bytes from a chunk, or written by [`Writer`].
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// As on the wire.
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// One by one; none after one that ends the reading.
    pub fn iter(&self) -> impl Iterator<Item = Parameter<'a>> + use<'a> {
        let mut stopped = false;
        let elements = Elements::new(self.bytes);
        elements.map_while(move |element| {
            if stopped {
                return None;
            }
            let parameter = element.map_or(Parameter::Malformed, Parameter::read);
            stopped = match parameter {
                Parameter::Malformed => true,
                Parameter::Unknown { report, .. } => {
                    matches!(report, Report::Stop | Report::StopAndReport)
                }
                _ => false,
            };
            Some(parameter)
        })
    }
}

impl<'a> Parameter<'a> {
    fn read(element: Element<'a>) -> Self {
        let Element { head, value, whole } = element;
        let known = match head {
            kind::HEARTBEAT_INFO => Some(Self::HeartbeatInfo(value)),
            kind::IPV4 => <[u8; 4]>::try_from(value)
                .ok()
                .map(|a| Self::Address(Ipv4Addr::from(a).into())),
            kind::IPV6 => <[u8; 16]>::try_from(value)
                .ok()
                .map(|a| Self::Address(Ipv6Addr::from(a).into())),
            kind::STATE_COOKIE => Some(Self::StateCookie(value)),
            kind::UNRECOGNIZED => Some(Self::Unrecognized(value)),
            kind::COOKIE_PRESERVATIVE => number(value)
                .map(|millis| Self::CookiePreservative(Duration::from_millis(millis.into()))),
            kind::HOST_NAME => Some(Self::HostName(whole)),
            kind::ADDRESS_TYPES => Some(address_types(value)),
            kind::ADAPTATION => number(value).map(Self::Adaptation),
            _ => Some(Self::Unknown {
                report: Report::of(head >> 14),
                whole,
            }),
        };
        known.unwrap_or(Self::Malformed)
    }
}

/// A value that is one number of 32 bits.
fn number(value: &[u8]) -> Option<u32> {
    u32_at(value, 0).filter(|_| value.len() == 4)
}

fn address_types(value: &[u8]) -> Parameter<'_> {
    let has = |family: u16| {
        value
            .chunks_exact(2)
            .any(|entry| entry == family.to_be_bytes())
    };
    Parameter::AddressTypes {
        v4: has(kind::IPV4),
        v6: has(kind::IPV6),
    }
}

/// Writes parameters one after another.
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

    /// Appends one. [`Parameter::HostName`] and [`Parameter::Malformed`] are never sent and write nothing.
    ///
    /// # Errors
    /// When there is no room for all of it; then nothing of it was written.
    pub fn put(&mut self, parameter: &Parameter<'_>) -> Result<(), NoRoom> {
        let mut element = |head: u16, value: &[u8]| self.output.element(head, |o| o.put(value));
        match parameter {
            Parameter::HeartbeatInfo(info) => element(kind::HEARTBEAT_INFO, info),
            Parameter::Address(IpAddr::V4(addr)) => element(kind::IPV4, &addr.octets()),
            Parameter::Address(IpAddr::V6(addr)) => element(kind::IPV6, &addr.octets()),
            Parameter::StateCookie(cookie) => element(kind::STATE_COOKIE, cookie),
            Parameter::Unrecognized(whole) => element(kind::UNRECOGNIZED, whole),
            Parameter::CookiePreservative(time) => {
                let millis = u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
                element(kind::COOKIE_PRESERVATIVE, &millis.to_be_bytes())
            }
            Parameter::AddressTypes { v4, v6 } => self.output.element(kind::ADDRESS_TYPES, |o| {
                let families = [(*v4, kind::IPV4), (*v6, kind::IPV6)];
                let named = families.iter().filter(|(is_named, _)| *is_named);
                named
                    .into_iter()
                    .try_for_each(|(_, kind)| o.put(&kind.to_be_bytes()))
            }),
            Parameter::Adaptation(code) => element(kind::ADAPTATION, &code.to_be_bytes()),
            Parameter::Unknown { whole, .. } => match *whole {
                [a, b, _, _, value @ ..] => element(u16::from_be_bytes([*a, *b]), value),
                _ => Ok(()),
            },
            Parameter::HostName(_) | Parameter::Malformed => Ok(()),
        }
    }

    /// Bytes of what was written, without the padding of the last: that is the chunk's.
    pub fn finish(self) -> usize {
        self.output.len_of_value()
    }
}
