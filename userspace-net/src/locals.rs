//! How many connections each local address and port has.
//!
//! A table like that of the flows, and as quick: a caller that asks whether a port is still in use asks
//! at the end of each connection.

#[cfg(test)]
mod tests;

use crate::Endpoint;

use crate::flow_table::FlowTable;
use crate::keyed::Secret;

/// Local ends in use.
#[derive(Debug)]
pub struct Locals {
    table: FlowTable,
    /// By the table's index: the end, and how many connections it has.
    ends: Vec<(Endpoint, usize)>,
    /// Places in `ends` whose count is 0.
    vacant: Vec<u32>,
}

impl Locals {
    /// For at most so many connections.
    pub fn new(connections: usize) -> Self {
        Self {
            table: FlowTable::new(connections),
            ends: Vec::new(),
            vacant: Vec::new(),
        }
    }

    /// Connections at this end.
    pub fn count(&self, secret: &Secret, local: Endpoint) -> usize {
        let place = self.place(secret, local);
        place.map_or(0, |place| self.ends[place as usize].1)
    }

    /// Ends in use, and how often they had to go past a bucket.
    pub fn marks(&self) -> usize {
        self.table.marks()
    }

    /// One connection more.
    pub fn add(&mut self, secret: &Secret, local: Endpoint) {
        if let Some(place) = self.place(secret, local) {
            self.ends[place as usize].1 += 1;
            return;
        }
        let place = self.vacant.pop().unwrap_or_else(|| {
            self.ends.push((local, 0));
            // No more than connections.
            self.ends.len() as u32 - 1
        });
        self.ends[place as usize] = (local, 1);
        self.table.insert(secret.end(local), place);
    }

    /// One connection less.
    pub fn remove(&mut self, secret: &Secret, local: Endpoint) {
        let Some(place) = self.place(secret, local) else {
            return;
        };
        let (_, count) = &mut self.ends[place as usize];
        *count -= 1;
        if *count == 0 {
            self.table.remove(secret.end(local), place);
            self.vacant.push(place);
        }
    }

    fn place(&self, secret: &Secret, local: Endpoint) -> Option<u32> {
        let is_it = |place: u32| self.ends[place as usize].0 == local;
        self.table.find(secret.end(local), is_it)
    }
}
