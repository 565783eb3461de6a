//! The places of a listener: connections between the TCP handshake and the application's answer. When
//! all are taken, a connection whose MPA Request has not come whole gives way to a new one, so that
//! silent peers don't close the listener to others. One whose Request has come does only for a
//! network that has fewer: so none closes the listener to the others.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use userspace_tcp::ConnId;

/// The places of one listener.
#[derive(Debug)]
pub(in crate::shard) struct Backlog {
    places: usize,
    /// Whose Request has not come whole, oldest first.
    unasked: VecDeque<(ConnId, Network)>,
    /// Whose Request waits for the application, oldest first.
    asked: VecDeque<(ConnId, Network)>,
}

/// Where a connection comes from: one owner of addresses, as far as it can be told. A /24 of IPv4, a
/// /56 of IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::shard) struct Network(u64);

/// Whether there is a place for one more connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::shard) enum Admission {
    Free,
    /// This one gives way to it.
    InPlaceOf(ConnId),
    /// All places are held by Requests that wait for the application, and no network has more than the
    /// newcomer's.
    Full,
}

impl Network {
    pub fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Self(u64::from(address.to_bits() >> 8)),
            IpAddr::V6(address) => Self((address.to_bits() >> 72) as u64 | 1 << 63),
        }
    }
}

impl Backlog {
    pub fn new(places: usize) -> Self {
        Self {
            places,
            unasked: VecDeque::new(),
            asked: VecDeque::new(),
        }
    }

    /// Who gives way when all places are taken: the oldest that has not asked, of the newcomer's own
    /// network if that has half of the places, else of all. When all have asked, the youngest of
    /// the network that has the most, as long as the newcomer's has fewer.
    pub fn admit(&self, network: Network) -> Admission {
        if self.unasked.len() + self.asked.len() < self.places {
            return Admission::Free;
        }
        let is_own = |(_, of): &&(ConnId, Network)| *of == network;
        let own = self.unasked.iter().chain(&self.asked).filter(is_own);
        let oldest = match 2 * own.count() >= self.places {
            true => self.unasked.iter().find(is_own),
            false => self.unasked.front(),
        };
        let gives_way = oldest.or_else(|| self.surplus(network));
        gives_way.map_or(Admission::Full, |(id, _)| Admission::InPlaceOf(*id))
    }

    /// The youngest Request of the network that has the most, if the newcomer's has fewer also when it
    /// takes that one's place.
    fn surplus(&self, newcomer: Network) -> Option<&(ConnId, Network)> {
        let mut requests: HashMap<Network, usize> = HashMap::new();
        for (_, network) in &self.asked {
            *requests.entry(*network).or_default() += 1;
        }
        let most = requests.values().copied().max()?;
        let own = requests.get(&newcomer).copied().unwrap_or(0);
        let of_most = |(_, network): &&(ConnId, Network)| requests.get(network) == Some(&most);
        self.asked.iter().rfind(of_most).filter(|_| own + 1 < most)
    }

    /// A connection takes a place.
    pub fn enter(&mut self, id: ConnId, network: Network) {
        self.unasked.push_back((id, network));
    }

    /// Its Request has come whole.
    pub fn asked(&mut self, id: ConnId) {
        let asked = self.take_unasked(id);
        self.asked.extend(asked);
    }

    /// A connection was answered, or is gone.
    pub fn leave(&mut self, id: ConnId) {
        if self.take_unasked(id).is_some() {
            return;
        }
        // Applications mostly answer the oldest first.
        let at = self.asked.iter().position(|(of, _)| *of == id);
        at.and_then(|at| self.asked.remove(at));
    }

    fn take_unasked(&mut self, id: ConnId) -> Option<(ConnId, Network)> {
        // The latest to come are mostly the next to ask.
        let at = self.unasked.iter().rposition(|(of, _)| *of == id)?;
        self.unasked.remove(at)
    }
}
