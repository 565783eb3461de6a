//! Allow-lists of peers. The host's firewall does not see the RNIC's frames, so these lists take its place.
//!
//! A list is a set of networks: a peer's address is in one of them or it is not, in whatever order they
//! were given. A connection needs to be allowed by each list that applies to it.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use crate::Prefix;

/// The networks of the peers with which connections are allowed. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowList(Arc<[Prefix]>);

impl AllowList {
    /// The most networks of one list: all may be compared for a SYN.
    pub const MAX: usize = 256;

    /// A list of these networks; none allow nobody. `None` when there are more than [`Self::MAX`].
    #[must_use]
    pub fn new(networks: Vec<Prefix>) -> Option<Self> {
        (networks.len() <= Self::MAX).then(|| Self(networks.into()))
    }

    /// Whether a peer with this address is allowed.
    #[must_use]
    pub fn contains(&self, peer: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(peer))
    }
}

impl fmt::Display for AllowList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("nobody");
        }
        for (number, network) in self.0.iter().enumerate() {
            let comma = if number > 0 { ", " } else { "" };
            write!(f, "{comma}{network}")?;
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ListOwner {
    /// An interface's: for all connections over it.
    Interface,
    /// A user's: for all connections of the user's clients.
    User,
    /// A listener's: for all connections to its address and port.
    Listener,
}

impl ListOwner {
    pub const ALL: [Self; 3] = [Self::Interface, Self::User, Self::Listener];
}

/// The allow-lists that apply to one listener or to one connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerRules(Vec<(ListOwner, AllowList)>);

impl PeerRules {
    /// One more list has to allow a peer. No list allows everybody.
    pub fn add(&mut self, owner: ListOwner, list: AllowList) {
        self.0.push((owner, list));
    }

    /// The first list that does not allow this peer.
    #[must_use]
    pub fn refused_by(&self, peer: IpAddr) -> Option<ListOwner> {
        let refusing = self.0.iter().find(|(_, list)| !list.contains(peer));
        refusing.map(|(owner, _)| *owner)
    }
}

#[cfg(test)]
mod tests;
