//! The connections of a shard, by TCP's names.

use userspace_tcp::ConnId;

use super::Conn;

/// As many slots as TCP has; TCP's index names the slot, its whole name the connection.
#[derive(Debug)]
pub(crate) struct ConnTable {
    slots: Vec<Option<Conn>>,
    count: usize,
}

impl ConnTable {
    /// An empty table.
    pub fn new(capacity: usize) -> Self {
        Self {
            slots: Vec::with_capacity(capacity),
            count: 0,
        }
    }

    /// How many connections there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// The connection with this name.
    pub fn get(&self, id: ConnId) -> Option<&Conn> {
        self.slots
            .get(id.index())?
            .as_ref()
            .filter(|conn| conn.id == id)
    }

    /// The connection with this name.
    pub fn get_mut(&mut self, id: ConnId) -> Option<&mut Conn> {
        self.slots
            .get_mut(id.index())?
            .as_mut()
            .filter(|conn| conn.id == id)
    }

    /// How many places there are, used or not.
    pub fn places(&self) -> usize {
        self.slots.len()
    }

    /// The connection at this place, whatever its name.
    pub fn at(&self, place: usize) -> Option<&Conn> {
        self.slots.get(place)?.as_ref()
    }

    /// The memory of a place, for who fetches it ahead of its use.
    pub fn memory_at(&self, place: usize) -> Option<&impl Sized> {
        self.slots.get(place)
    }

    /// Adds a connection. What TCP forgot in its slot without a word (half-open connections) comes
    /// back.
    pub fn insert(&mut self, conn: Conn) -> Option<Conn> {
        let index = conn.id.index();
        if index >= self.slots.len() {
            self.slots.resize_with(index + 1, || None);
        }
        let before = self.slots[index].replace(conn);
        if before.is_none() {
            self.count += 1;
        }
        before
    }

    /// All connections.
    pub fn iter(&self) -> impl Iterator<Item = &Conn> {
        self.slots.iter().flatten()
    }

    /// The names of the connections for which this holds.
    pub fn ids_where(&self, holds: impl Fn(&Conn) -> bool) -> Vec<ConnId> {
        self.iter()
            .filter(|conn| holds(conn))
            .map(|conn| conn.id)
            .collect()
    }

    /// Takes a connection out.
    pub fn remove(&mut self, id: ConnId) -> Option<Conn> {
        let slot = self.slots.get_mut(id.index())?;
        let conn = slot.take_if(|conn| conn.id == id)?;
        self.count -= 1;
        Some(conn)
    }
}
