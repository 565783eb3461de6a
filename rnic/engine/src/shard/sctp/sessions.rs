//! The sessions of a shard and the associations that carry them, by name.
//!
//! Names of connections are TCP's first. Behind them each association, by its place in SCTP, has an even one, and each
//! session an odd one: so the table of connections grows with what there is.

use std::collections::VecDeque;

use rnic_proto::sctp::{Control, DdpSsn, Function, Session, UserData};
use userspace_net::{ConnId, Endpoint};
use userspace_sctp::{AssocId, Message};

use super::association::{Association, Place};
use super::session::StreamSession;
use crate::shard::config::ShardLimits;

#[derive(Debug)]
pub struct Sessions {
    slots: Vec<Slot>,
    /// Places of `slots` that are empty.
    free: Vec<u32>,
    /// By place in SCTP.
    associations: Vec<Option<Box<Association>>>,
    associated: usize,
    /// The first name behind TCP's.
    first: u32,
    /// Sessions at most.
    limit: usize,
    /// Those of which something is to be seen to.
    heard: VecDeque<ConnId>,
    /// Those that their peers have begun, and nobody has been notified of.
    begun: VecDeque<ConnId>,
    /// Messages that no session took.
    unplaced: VecDeque<Unplaced>,
    /// Those whose associations were gone before SCTP's word of it was taken, and have no place any more.
    orphaned: VecDeque<ConnId>,
}

/// A message that came for a session that there is no place for.
#[derive(Debug)]
pub struct Unplaced {
    pub assoc: AssocId,
    pub stream: u16,
    /// It asks for the session.
    pub is_initiate: bool,
    pub bytes: usize,
}

/// A place of a session.
#[derive(Debug, Default)]
struct Slot {
    /// Of the session that is there, or comes next.
    generation: u32,
    session: Option<Box<StreamSession>>,
}

impl Sessions {
    /// None yet.
    pub fn new(limits: &ShardLimits) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            associations: Vec::new(),
            associated: 0,
            // All limits together are far below 2^32.
            first: limits.connections as u32,
            limit: limits.associations,
            heard: VecDeque::new(),
            begun: VecDeque::new(),
            unplaced: VecDeque::new(),
            orphaned: VecDeque::new(),
        }
    }

    #[inline]
    pub fn carrier(&self, assoc: AssocId) -> ConnId {
        ConnId {
            index: self.first + 2 * assoc.index() as u32,
            generation: assoc.generation(),
        }
    }

    /// The place of the session with this name.
    #[inline]
    fn place(&self, id: ConnId) -> Option<usize> {
        let behind = id.index.checked_sub(self.first)? as usize;
        (behind % 2 == 1).then_some(behind / 2)
    }

    #[inline]
    pub fn get(&self, id: ConnId) -> Option<&StreamSession> {
        let session = self.slots.get(self.place(id)?)?.session.as_deref();
        session.filter(|session| session.id == id)
    }

    #[inline]
    pub fn get_mut(&mut self, id: ConnId) -> Option<&mut StreamSession> {
        let place = self.place(id)?;
        let session = self.slots.get_mut(place)?.session.as_deref_mut();
        session.filter(|session| session.id == id)
    }

    /// The session with this name, and its association.
    #[inline]
    pub fn with_association(
        &mut self,
        id: ConnId,
    ) -> Option<(&mut StreamSession, &mut Association)> {
        let place = self.place(id)?;
        let session = self.slots.get_mut(place)?.session.as_deref_mut();
        let session = session.filter(|session| session.id == id)?;
        let association = self.associations.get_mut(session.assoc.index())?;
        let association = association.as_deref_mut();
        let association = association.filter(|of| of.id == session.assoc)?;
        Some((session, association))
    }

    /// An association that is not gone.
    #[inline]
    pub fn association(&self, assoc: AssocId) -> Option<&Association> {
        let association = self.associations.get(assoc.index())?.as_deref();
        association.filter(|association| association.id == assoc)
    }

    /// An association that is not gone.
    #[inline]
    pub fn association_mut(&mut self, assoc: AssocId) -> Option<&mut Association> {
        let association = self.associations.get_mut(assoc.index())?.as_deref_mut();
        association.filter(|association| association.id == assoc)
    }

    /// What a session goes over, or what this association is to SCTP.
    pub fn assoc_of(&self, id: ConnId) -> Option<AssocId> {
        if let Some(session) = self.get(id) {
            return Some(session.assoc);
        }
        let place = id.index.checked_sub(self.first)? as usize / 2;
        let association = self.associations.get(place)?.as_deref()?;
        (association.carrier == id).then_some(association.id)
    }

    pub fn associations(&self) -> impl Iterator<Item = &Association> {
        self.associations.iter().flatten().map(Box::as_ref)
    }

    pub fn associated(&self) -> usize {
        self.associated
    }

    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether there is a place for one more session.
    pub fn has_place(&self) -> bool {
        self.len() < self.limit
    }

    /// The association, which is added when it is not there.
    pub fn associate(&mut self, assoc: AssocId) -> &mut Association {
        let (place, carrier) = (assoc.index(), self.carrier(assoc));
        if place >= self.associations.len() {
            self.associations.resize_with(place + 1, || None);
        }
        let there = &mut self.associations[place];
        match there.take_if(|there| there.id != assoc) {
            Some(gone) => self.orphaned.extend(gone.sessions()),
            None => self.associated += usize::from(there.is_none()),
        }
        there.get_or_insert_with(|| Box::new(Association::new(assoc, carrier)))
    }

    /// Adds a session on a stream of an association, or on the one that the peer chooses. None: there is no place.
    pub fn add(
        &mut self,
        assoc: AssocId,
        stream: Option<u16>,
        session: Session,
    ) -> Option<&mut StreamSession> {
        if !self.has_place() {
            return None;
        }
        let place = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[place as usize];
        let id = ConnId {
            index: self.first + 2 * place + 1,
            generation: slot.generation,
        };
        slot.session = Some(Box::new(StreamSession::new(id, assoc, stream, session)));
        self.associate(assoc).put(id, stream);
        self.get_mut(id)
    }

    /// The session that a message came for on a stream; one that the peer begins is added. None: there is no place, the
    /// association is being shut down, or the stream takes none any more.
    #[inline]
    pub fn of(&mut self, assoc: AssocId, message: &Message<'_>) -> Option<&mut StreamSession> {
        let stream = message.stream;
        match self.association(assoc).map(|it| it.on(stream)) {
            Some(Place::Session(id)) => {
                let is_over = self.get(id).is_some_and(|it| it.session.is_over());
                match is_over && is_initiate(message) {
                    true => self.begin(assoc, stream),
                    false => self.get_mut(id),
                }
            }
            Some(Place::Blocked) => None,
            _ => self.begin(assoc, stream),
        }
    }

    #[inline(never)]
    fn begin(&mut self, assoc: AssocId, stream: u16) -> Option<&mut StreamSession> {
        if let Some(id) = self.associate(assoc).speaks(stream) {
            let session = self.get_mut(id)?;
            session.stream = Some(stream);
            return Some(session);
        }
        let association = self.associate(assoc);
        // What comes behind the end of the last session comes too late.
        if association.is_closing || association.is_overrun() {
            return None;
        }
        association.put_aside(stream);
        let id = self.add(assoc, Some(stream), Session::passive())?.id;
        self.begun.push_back(id);
        self.get_mut(id)
    }

    /// The next session that nobody has been notified of.
    pub fn next_begun(&mut self) -> Option<ConnId> {
        while let Some(id) = self.begun.pop_front() {
            if self.get(id).is_some() {
                return Some(id);
            }
        }
        None
    }

    /// No session takes this message.
    pub fn unplaced(&mut self, assoc: AssocId, message: &Message<'_>) {
        self.unplaced.push_back(Unplaced {
            assoc,
            stream: message.stream,
            is_initiate: is_initiate(message),
            bytes: message.payload.len(),
        });
    }

    /// The next message that no session took.
    pub fn next_unplaced(&mut self) -> Option<Unplaced> {
        self.unplaced.pop_front()
    }

    /// The Initiate of a session that we begin, once.
    pub fn take_initiate(&mut self, id: ConnId) -> Vec<u8> {
        let initiate = self.get_mut(id).and_then(|session| session.initiate.take());
        initiate.map_or_else(Vec::new, |chunk| chunk.bytes().to_vec())
    }

    /// Forgets a session.
    pub fn remove(&mut self, id: ConnId) {
        if let Some((session, association)) = self.with_association(id) {
            association.remove(id, session.blocks_stream());
            if session.posted > 0 {
                association.set_posting(false);
            }
        }
        self.vacate(id);
    }

    /// The next session whose association was gone before that was told.
    pub fn next_orphaned(&mut self) -> Option<ConnId> {
        self.orphaned.pop_front()
    }

    fn vacate(&mut self, id: ConnId) {
        if self.get(id).is_some()
            && let Some(place) = self.place(id)
        {
            let slot = &mut self.slots[place];
            slot.session = None;
            slot.generation = slot.generation.wrapping_add(1);
            self.free.push(place as u32);
        }
    }

    /// Forgets an association, and the sessions on it that nobody on this host has. The others stay, and have nothing
    /// below them.
    pub fn dissociate(&mut self, assoc: AssocId, has_somebody: impl Fn(ConnId) -> bool) {
        let place = self.associations.get_mut(assoc.index());
        let gone = place.and_then(|place| place.take_if(|it| it.id == assoc));
        let Some(gone) = gone else {
            return;
        };
        self.associated -= 1;
        for id in gone.sessions() {
            if !has_somebody(id) {
                self.vacate(id);
            }
        }
    }

    /// Notes that something of a session is to be seen to.
    #[inline]
    pub fn hear(&mut self, id: ConnId) {
        let is_new = self
            .get_mut(id)
            .is_some_and(|session| !std::mem::replace(&mut session.is_heard, true));
        if is_new {
            self.heard.push_back(id);
        }
    }

    /// The next session to be seen to.
    pub fn next_heard(&mut self) -> Option<ConnId> {
        let id = self.heard.pop_front()?;
        if let Some(session) = self.get_mut(id) {
            session.is_heard = false;
        }
        Some(id)
    }

    /// Whether a session waits to be seen to.
    #[inline]
    pub fn is_any_heard(&self) -> bool {
        !self.heard.is_empty()
    }

    /// A chunk of a session is acknowledged, of so many bytes, and all that was posted before it.
    pub fn acknowledged(&mut self, id: ConnId, bytes: usize) {
        let Some((session, association)) = self.with_association(id) else {
            return;
        };
        let had_posted = session.posted > 0;
        session.acknowledged(bytes);
        if had_posted && session.posted == 0 {
            association.set_posting(false);
        }
        let assoc = session.assoc;
        self.hear(id);
        self.hear_waiting(assoc);
    }

    /// Those that wait for a chunk of an association are to be seen to: one is free.
    #[inline]
    pub fn hear_waiting(&mut self, assoc: AssocId) {
        while let Some(association) = self.association_mut(assoc)
            && let Some(waiting) = association.next_waiting()
        {
            self.hear(waiting);
        }
    }

    pub fn on(&self, assoc: AssocId) -> Vec<ConnId> {
        let association = self.association(assoc);
        association.map_or_else(Vec::new, |it| it.sessions().collect())
    }

    /// The sessions on the association that this is, or is on.
    pub fn with(&self, id: ConnId) -> Vec<ConnId> {
        self.assoc_of(id)
            .map_or_else(Vec::new, |assoc| self.on(assoc))
    }

    /// Whether no other session of its association is there that somebody on this host has.
    pub fn is_alone(&self, id: ConnId) -> bool {
        let association = self.get(id).and_then(|of| self.association(of.assoc));
        let mut others = association
            .into_iter()
            .flat_map(Association::sessions)
            .filter(|other| *other != id);
        others.all(|other| self.get(other).is_none_or(|session| session.is_abandoned))
    }

    /// Associations from this local end.
    pub fn at(&self, local: Endpoint) -> usize {
        let of_it = |association: &&Association| association.local == Some(local);
        self.associations().filter(of_it).count()
    }
}

/// Whether a message begins a session.
fn is_initiate(message: &Message<'_>) -> bool {
    let parsed = UserData::parse(message.protocol, message.payload);
    let Ok((DdpSsn(0), UserData::Control(Control { function, .. }))) = parsed else {
        return false;
    };
    matches!(function, Function::Initiate | Function::EnhancedInitiate)
}

#[cfg(test)]
mod tests {
    use userspace_net::Instant;
    use userspace_sctp::{Config, Ends, Route, Stack};

    use super::*;

    /// Names of associations, each in the place of the one before.
    fn in_one_place(count: u16) -> Vec<AssocId> {
        let mut stack: Stack<Vec<u8>> = Stack::new(Config::default(), [1; 16], Instant::ZERO);
        let one = |port| {
            let ends = Ends {
                local: format!("198.18.0.1:{port}").parse().unwrap(),
                remote: "198.18.0.2:7174".parse().unwrap(),
            };
            let id = stack.connect(Instant::ZERO, Route { ends, udp: None });
            stack.abort(Instant::ZERO, id.unwrap(), b"");
            id.unwrap()
        };
        (1000..1000 + count).map(one).collect()
    }

    fn sessions() -> Sessions {
        Sessions::new(&ShardLimits {
            associations: 2,
            ..ShardLimits::default()
        })
    }

    #[test]
    fn names_are_used_once() {
        let assoc = in_one_place(1)[0];
        let mut sessions = sessions();
        let add = |sessions: &mut Sessions, stream| {
            let added = sessions.add(assoc, Some(stream), Session::passive());
            added.map(|session| session.id)
        };
        let first = add(&mut sessions, 0).unwrap();
        let second = add(&mut sessions, 1).unwrap();
        assert_eq!(add(&mut sessions, 2), None, "there are two places");
        assert_eq!(sessions.assoc_of(first), Some(assoc));
        let carrier = sessions.carrier(assoc);
        assert_eq!(sessions.assoc_of(carrier), Some(assoc));
        assert!(sessions.get(carrier).is_none());
        sessions.remove(first);
        sessions.remove(first);
        assert_eq!(sessions.len(), 1);
        let third = add(&mut sessions, 2).unwrap();
        assert_ne!(third, first);
        assert!(sessions.get(first).is_none());
        assert_eq!(sessions.on(assoc), [second, third]);
    }

    #[test]
    fn sessions_outlive_an_association_whose_place_is_anothers() {
        let [old, new] = in_one_place(2)[..] else {
            unreachable!();
        };
        assert_eq!(old.index(), new.index());
        let mut sessions = sessions();
        let id = sessions.add(old, Some(0), Session::passive()).unwrap().id;
        sessions.associate(new);
        assert_eq!(sessions.associated(), 1);
        assert_eq!(sessions.next_orphaned(), Some(id));
        assert_eq!(sessions.next_orphaned(), None);
        assert!(sessions.get(id).is_some());
        // The old one's end comes to be told, too.
        sessions.dissociate(old, |_| true);
        assert!(sessions.association(new).is_some());
        sessions.dissociate(new, |_| false);
        assert_eq!(sessions.associated(), 0);
    }
}
