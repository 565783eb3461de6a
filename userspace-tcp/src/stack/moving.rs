//! Connections that go from one stack to another of the same clock: of those that have nothing on the way but what the
//! peer would send again.

use super::Stack;
use crate::connection::Connection;
use crate::interface::{ConnCounters, ConnId};

/// A connection that is in no stack. Nothing answers its peer meanwhile.
#[derive(Debug)]
pub struct Detached<B>(Box<Connection<B>>);

impl<B> Stack<B> {
    /// Takes a connection out. It must be established, and have nothing to send that is not acknowledged; `None`, and
    /// nothing done, if it is not so. What came out of order is to be sent again, as after reneging (RFC 2018 section 8).
    /// Nothing is sent for it, and no event tells of it.
    pub fn detach(&mut self, conn: ConnId) -> Option<Detached<B>> {
        let connection = self.connections.get_mut(conn)?;
        if !connection.begin_move(&mut self.pools) {
            return None;
        }
        let mut connection = self.remove(conn)?;
        // What it counted here stays with this stack.
        connection.set_counters(ConnCounters::default());
        Some(Detached(Box::new(connection)))
    }

    /// Takes a connection in from another stack; its new name. `None` when there is one with its ends already, or no
    /// room: then it is nowhere, and its peer is reset when it sends again.
    pub fn attach(&mut self, detached: Detached<B>) -> Option<ConnId> {
        let Detached(mut connection) = detached;
        let tuple = connection.tuple();
        let room = !self.connections.is_full() || self.evict_time_wait();
        if !room || self.find(&tuple).is_some() {
            return None;
        }
        let id = self.connections.insert(|id| {
            connection.rename(id);
            *connection
        })?;
        self.flows.insert(self.secret.flow(&tuple), id.index);
        self.locals.add(&self.secret, tuple.local);
        self.settle(id);
        Some(id)
    }
}
