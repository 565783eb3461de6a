//! Which VLAN (IEEE 802.1Q) local addresses are on, where somebody said so.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A VLAN's identifier: 1 to 4094.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VlanId(u16);

impl VlanId {
    /// The identifier, when it is one that a VLAN can have.
    #[must_use]
    pub const fn new(id: u16) -> Option<Self> {
        match id {
            1..=4094 => Some(Self(id)),
            _ => None,
        }
    }

    /// The Tag Control Information of its frames: with priority 0.
    #[must_use]
    pub const fn tag(self) -> u16 {
        self.0
    }

    /// Whether a tag, whatever its priority, is this VLAN's.
    #[must_use]
    pub const fn is_of(self, tag: u16) -> bool {
        tag & 0x0fff == self.0
    }
}

impl fmt::Display for VlanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Addresses that begin alike: `198.18.7.0/24`, `2001:db8::/32`, or one address alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    address: IpAddr,
    len: u32,
}

impl Prefix {
    /// The addresses that begin with `len` bits of this one. `None` when it has not so many.
    #[must_use]
    pub fn new(address: IpAddr, len: u32) -> Option<Self> {
        let most = if address.is_ipv4() { 32 } else { 128 };
        (len <= most).then_some(Self { address, len })
    }

    /// Whether an address begins so.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(ours), IpAddr::V4(other)) => {
                let differ = ours.to_bits() ^ other.to_bits();
                differ.checked_shr(u32::BITS - self.len).unwrap_or(0) == 0
            }
            (IpAddr::V6(ours), IpAddr::V6(other)) => {
                let differ = ours.to_bits() ^ other.to_bits();
                differ.checked_shr(u128::BITS - self.len).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

/// What a text is that is no [`Prefix`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("give an address, or a network such as 198.18.7.0/24 or 2001:db8:7::/64")]
pub struct ParsePrefixError;

impl FromStr for Prefix {
    type Err = ParsePrefixError;

    fn from_str(text: &str) -> Result<Self, ParsePrefixError> {
        let (address, len) = match text.split_once('/') {
            Some((address, len)) => (address, Some(len)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| ParsePrefixError)?;
        let len = match len {
            Some(len) => len.parse().map_err(|_| ParsePrefixError)?,
            None if address.is_ipv4() => 32,
            None => 128,
        };
        Self::new(address, len).ok_or(ParsePrefixError)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.len)
    }
}

/// The VLANs of local addresses. An address without one is on no particular VLAN.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vlans {
    entries: Vec<(Prefix, VlanId)>,
}

impl Vlans {
    /// The most entries: all are looked at for each frame.
    pub const MAX: usize = 64;

    /// These addresses are on this VLAN; of entries that both have an address the longer prefix says.
    /// False when there are [`Self::MAX`] already.
    #[must_use]
    pub fn add(&mut self, addresses: Prefix, id: VlanId) -> bool {
        let room = self.entries.len() < Self::MAX;
        if room {
            self.entries.push((addresses, id));
        }
        room
    }

    /// Each entry.
    pub fn iter(&self) -> impl Iterator<Item = (Prefix, VlanId)> + '_ {
        self.entries.iter().copied()
    }

    /// The VLAN of a local address.
    #[must_use]
    pub fn of(&self, local: IpAddr) -> Option<VlanId> {
        let found = self.entries.iter();
        let found = found.filter(|(addresses, _)| addresses.contains(local));
        found
            .max_by_key(|(addresses, _)| addresses.len)
            .map(|(_, id)| *id)
    }

    /// The tag for the way back of a frame that came to a local address with `tag`. None when the
    /// address is on another VLAN: then the frame is nobody's.
    #[must_use]
    pub fn return_tag(&self, local: IpAddr, tag: Option<u16>) -> Option<Option<u16>> {
        match self.of(local) {
            None => Some(tag),
            Some(id) => tag
                .is_some_and(|tag| id.is_of(tag))
                .then_some(Some(id.tag())),
        }
    }
}

#[cfg(test)]
mod tests;
