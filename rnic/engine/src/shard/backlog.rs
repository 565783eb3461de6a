//! The places of a listener: connections between the TCP handshake and the application's answer. When
//! all are taken, a connection whose MPA Request has not come whole gives way to a new one, so that
//! silent peers don't close the listener to others. One whose Request has come never does.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::net::IpAddr;

use userspace_tcp::ConnId;

/// The places of one listener.
#[derive(Debug)]
pub(super) struct Backlog {
    places: usize,
    /// Places taken, by connections in `unasked` and by those whose Request waits for an answer.
    taken: usize,
    /// Whose Request has not come whole, oldest first.
    unasked: VecDeque<(ConnId, Network)>,
}

/// Where a connection comes from: one owner of addresses, as far as it can be told. A /24 of IPv4, a
/// /56 of IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Network(u64);

/// Whether there is a place for one more connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    Free,
    /// This one gives way to it.
    InPlaceOf(ConnId),
    /// All places are held by Requests that wait for the application.
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
            taken: 0,
            unasked: VecDeque::new(),
        }
    }

    /// Who gives way when all places are taken: the oldest of the newcomer's own network if that has
    /// half of the places, else the oldest of all.
    pub fn admit(&self, network: Network) -> Admission {
        if self.taken < self.places {
            return Admission::Free;
        }
        let mut own = self.unasked.iter().filter(|(_, of)| *of == network);
        let oldest = match 2 * own.clone().count() >= self.places {
            true => own.next(),
            false => self.unasked.front(),
        };
        oldest.map_or(Admission::Full, |(id, _)| Admission::InPlaceOf(*id))
    }

    /// A connection takes a place.
    pub fn enter(&mut self, id: ConnId, network: Network) {
        self.taken += 1;
        self.unasked.push_back((id, network));
    }

    /// Its Request has come whole: it keeps its place until it is answered.
    pub fn asked(&mut self, id: ConnId) {
        // The latest to come are mostly the next to ask.
        let at = self.unasked.iter().rposition(|(of, _)| *of == id);
        if let Some(at) = at {
            self.unasked.remove(at);
        }
    }

    /// A connection was answered, or is no more.
    pub fn leave(&mut self, id: ConnId) {
        self.asked(id);
        self.taken = self.taken.saturating_sub(1);
    }
}
