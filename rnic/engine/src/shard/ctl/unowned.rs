//! Connections that nobody on this host has: those whose MPA Request has not come whole, and those that
//! were let go after a rejection and wait for the peer's FIN. Peers make as many of them as they like,
//! so when the table of connections is nearly full the oldest gives way to a new one.

use std::collections::VecDeque;

use userspace_tcp::ConnId;

/// One in so many places of the table is kept free of them.
const KEPT: usize = 8;

/// Their names, oldest first. Some have found an owner since, or are no more.
#[derive(Debug)]
pub(in crate::shard) struct Unowned {
    /// Places in the table of connections.
    places: usize,
    names: VecDeque<ConnId>,
}

impl Unowned {
    pub fn new(places: usize) -> Self {
        Self {
            places,
            names: VecDeque::new(),
        }
    }

    /// One more; `is_unowned` tells which still are.
    pub fn enter(&mut self, id: ConnId, is_unowned: impl Fn(ConnId) -> bool) {
        // At most half of them can be.
        if self.names.len() >= 2 * self.places {
            self.names.retain(|id| is_unowned(*id));
        }
        self.names.push_back(id);
    }

    /// The one that is to give way when so many connections are in the table. One that may not go now may later.
    pub fn surplus(
        &mut self,
        connections: usize,
        is_unowned: impl Fn(ConnId) -> bool,
        may_go: impl Fn(ConnId) -> bool,
    ) -> Option<ConnId> {
        if connections <= self.places - self.places / KEPT {
            return None;
        }
        for _ in 0..self.names.len() {
            let id = self.names.pop_front()?;
            match is_unowned(id) {
                true if may_go(id) => return Some(id),
                true => self.names.push_back(id),
                false => {}
            }
        }
        None
    }
}
