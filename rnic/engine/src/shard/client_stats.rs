//! What queue pairs count, apart for each client, and how long their work took. The whole is the sum,
//! so that counting costs no more than it would without clients.

use rnic_ipc::id::ClientId;

use crate::qp::{QpCounters, WorkTimes};

/// The place of what clients that are gone have counted.
const GONE: usize = 0;

#[derive(Debug)]
pub(super) struct ClientStats {
    /// The first is for those that are gone; places of the others are used again.
    places: Vec<Tally>,
    pub(super) times: WorkTimes,
}

#[derive(Debug, Default)]
struct Tally {
    client: Option<ClientId>,
    counters: QpCounters,
}

impl ClientStats {
    /// With room for so many clients.
    pub(super) fn new(clients: usize) -> Self {
        let mut places = Vec::with_capacity(clients.saturating_add(1));
        places.push(Tally::default());
        Self {
            places,
            times: WorkTimes::default(),
        }
    }

    /// A client that has counted nothing yet. The shard has looked that there is room.
    pub(super) fn add(&mut self, client: ClientId) {
        let tally = Tally {
            client: Some(client),
            counters: QpCounters::default(),
        };
        let free = self.places.iter().skip(1).position(|t| t.client.is_none());
        match free.and_then(|at| self.places.get_mut(at + 1)) {
            Some(place) => *place = tally,
            None => self.places.push(tally),
        }
    }

    /// What the client counted stays part of the whole.
    pub(super) fn remove(&mut self, client: ClientId) {
        let at = self.place_of(client);
        if at == GONE {
            return;
        }
        let tally = self.places.get_mut(at).map(std::mem::take);
        if let (Some(tally), Some(gone)) = (tally, self.places.first_mut()) {
            gone.counters += tally.counters;
        }
    }

    /// Where a client's queue pairs count.
    pub(super) fn place_of(&self, client: ClientId) -> usize {
        let mut places = self.places.iter();
        places
            .position(|tally| tally.client == Some(client))
            .unwrap_or(GONE)
    }

    /// The counters of a place, and the times of all.
    pub(super) fn at(&mut self, place: usize) -> (&mut QpCounters, &mut WorkTimes) {
        let place = if place < self.places.len() {
            place
        } else {
            GONE
        };
        (&mut self.places[place].counters, &mut self.times)
    }

    /// What all clients together counted, those that are gone too.
    pub(super) fn total(&self) -> QpCounters {
        let mut total = QpCounters::default();
        for tally in &self.places {
            total += tally.counters;
        }
        total
    }

    /// What each client that is there counted.
    pub(super) fn by_client(&self) -> Vec<(ClientId, QpCounters)> {
        let places = self.places.iter();
        places
            .filter_map(|tally| Some((tally.client?, tally.counters)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_keeps_what_clients_that_are_gone_have_counted() {
        let mut client_stats = ClientStats::new(2);
        for client in [1, 2] {
            client_stats.add(ClientId(client));
            let place = client_stats.place_of(ClientId(client));
            client_stats.at(place).0.sends_sent = client.into();
        }
        client_stats.remove(ClientId(1));
        client_stats.add(ClientId(3));
        let place = client_stats.place_of(ClientId(3));
        assert_eq!(client_stats.at(place).0.sends_sent, 0);
        client_stats.at(place).0.sends_sent = 10;
        assert_eq!(client_stats.total().sends_sent, 13);
        let found: Vec<_> = client_stats
            .by_client()
            .into_iter()
            .map(|(client, counters)| (client.0, counters.sends_sent))
            .collect();
        assert_eq!(found, [(3, 10), (2, 2)]);
        assert_eq!(client_stats.places.len(), 3);
    }

    #[test]
    fn what_belongs_to_no_client_counts_in_the_whole() {
        let mut client_stats = ClientStats::new(0);
        let place = client_stats.place_of(ClientId(9));
        client_stats.at(place).0.crc_errors += 1;
        client_stats.at(usize::MAX).0.crc_errors += 1;
        client_stats.remove(ClientId(9));
        assert_eq!(client_stats.total().crc_errors, 2);
        assert!(client_stats.by_client().is_empty());
    }
}
