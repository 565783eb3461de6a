//! What carries sessions: an association, with one session on each pair of its streams of one number (RFC 5043
//! section 6).

use rnic_ipc::id::ClientId;
use rnic_net::PeerRules;
use userspace_net::{ConnId, Endpoint};
use userspace_sctp::AssocId;

use super::STREAMS;

/// An association, and the sessions on it.
#[derive(Debug)]
pub struct Association {
    pub id: AssocId,
    /// Its name among the connections: those of its sessions are others.
    pub carrier: ConnId,
    /// Our end, once that is known.
    pub local: Option<Endpoint>,
    /// Streams that both sides send on: 0 up to this number.
    pub streams: u16,
    /// The client whose queue pairs it is for: we began it for one of them, or a listener of the client's took its
    /// first session.
    pub owner: Option<ClientId>,
    /// We began it.
    pub is_ours: bool,
    /// It is being shut down.
    pub is_closing: bool,
    /// Whom the peer may be at its further addresses, until it has told them.
    pub peers: PeerRules,
    /// By stream, as far as streams were used.
    on: Vec<Place>,
    /// Sessions that are over, but for an acknowledgment, and whose streams have others.
    aside: Vec<ConnId>,
    /// A session that the peer has not said the stream of: it has said nothing yet.
    silent: Option<ConnId>,
    /// Sessions of which chunks are not acknowledged.
    posting: usize,
    /// Sessions that found no chunk free.
    waiting: Vec<ConnId>,
}

/// What is on a pair of streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Unused,
    /// Nothing: both sides have ended all that was.
    Free,
    Session(ConnId),
    /// Nothing, nor will be: the peer may still send what is of a session that is gone here.
    Blocked,
}

impl Association {
    pub(super) fn new(id: AssocId, carrier: ConnId) -> Self {
        Self {
            id,
            carrier,
            local: None,
            streams: STREAMS,
            owner: None,
            is_ours: false,
            is_closing: false,
            peers: PeerRules::default(),
            on: Vec::new(),
            aside: Vec::new(),
            silent: None,
            posting: 0,
            waiting: Vec::new(),
        }
    }

    #[inline]
    pub fn on(&self, stream: u16) -> Place {
        let place = self.on.get(usize::from(stream));
        place.copied().unwrap_or(Place::Unused)
    }

    pub fn sessions(&self) -> impl Iterator<Item = ConnId> + '_ {
        let on = self.on.iter().filter_map(|place| match place {
            Place::Session(id) => Some(*id),
            _ => None,
        });
        on.chain(self.aside.iter().copied()).chain(self.silent)
    }

    /// A stream without a session, one that had none before if there is any: of that nothing can come late.
    pub fn free_stream(&self) -> Option<u16> {
        let with = |wanted: Place| (0..self.streams).find(|stream| self.on(*stream) == wanted);
        with(Place::Unused).or_else(|| with(Place::Free))
    }

    /// A session has a stream, or is to have the one that the peer chooses.
    pub(super) fn put(&mut self, session: ConnId, stream: Option<u16>) {
        match stream {
            Some(stream) => self.set(stream, Place::Session(session)),
            None => self.silent = Some(session),
        }
    }

    fn set(&mut self, stream: u16, place: Place) {
        let stream = usize::from(stream);
        if stream >= self.on.len() {
            self.on.resize(stream + 1, Place::Unused);
        }
        self.on[stream] = place;
    }

    /// The session that the peer had not said the stream of: it has now.
    pub(super) fn speaks(&mut self, stream: u16) -> Option<ConnId> {
        let session = self.silent.take()?;
        self.put(session, Some(stream));
        Some(session)
    }

    /// Both sides have ended the session on a stream, and the peer knows so before we do: it begins another.
    pub(super) fn put_aside(&mut self, stream: u16) {
        if let Place::Session(id) = self.on(stream) {
            self.aside.push(id);
            self.set(stream, Place::Free);
        }
    }

    /// Whether the peer has begun so many sessions before it acknowledged that those before them are over.
    pub(super) fn is_overrun(&self) -> bool {
        self.aside.len() >= usize::from(STREAMS)
    }

    /// A session is gone. Its stream is free, or blocked if the peer may still send on it what is the session's.
    pub(super) fn remove(&mut self, session: ConnId, is_blocked: bool) {
        let its = self
            .on
            .iter_mut()
            .find(|place| **place == Place::Session(session));
        if let Some(place) = its {
            *place = match is_blocked {
                true => Place::Blocked,
                false => Place::Free,
            };
        }
        self.aside.retain(|aside| *aside != session);
        self.waiting.retain(|waiting| *waiting != session);
        self.silent.take_if(|silent| *silent == session);
    }

    /// A session has chunks that are not acknowledged, or has none any more.
    #[inline]
    pub(super) fn set_posting(&mut self, is: bool) {
        match is {
            true => self.posting += 1,
            false => self.posting -= 1,
        }
    }

    /// How many share what may be posted, with a session that has `posted` chunks itself.
    #[inline]
    pub(super) fn sharing(&self, posted: usize) -> usize {
        self.posting + usize::from(posted == 0)
    }

    /// Chunks of others are all that may be posted: the session is to be seen to when one is acknowledged.
    pub(super) fn wait(&mut self, session: ConnId) {
        if !self.waiting.contains(&session) {
            self.waiting.push(session);
        }
    }

    /// One that waited, after a chunk was acknowledged.
    #[inline]
    pub(super) fn next_waiting(&mut self) -> Option<ConnId> {
        self.waiting.pop()
    }
}

#[cfg(test)]
mod tests {
    use userspace_net::Instant;
    use userspace_sctp::{Config, Ends, Route, Stack};

    use super::*;
    use crate::shard::conn_ids::conn_ids;

    fn association() -> Association {
        let mut stack: Stack<Vec<u8>> = Stack::new(Config::default(), [1; 16], Instant::ZERO);
        let ends = Ends {
            local: "198.18.0.1:1000".parse().unwrap(),
            remote: "198.18.0.2:7174".parse().unwrap(),
        };
        let id = stack.connect(Instant::ZERO, Route { ends, udp: None });
        Association::new(id.unwrap(), conn_ids(1)[0])
    }

    #[test]
    fn streams_are_used_again_when_all_were_used() {
        let mut association = association();
        let ids = conn_ids(STREAMS + 1);
        for stream in 0..STREAMS {
            let name = ids[usize::from(stream)];
            assert_eq!(association.free_stream(), Some(stream));
            association.put(name, Some(stream));
            assert_eq!(association.on(stream), Place::Session(name));
            if stream == 3 {
                association.remove(name, false);
            }
        }
        assert_eq!(association.free_stream(), Some(3));
        association.put(ids[3], Some(3));
        assert_eq!(association.free_stream(), None);
        assert_eq!(association.sessions().count(), usize::from(STREAMS));
        // Not one on which something may still come.
        association.remove(ids[4], true);
        assert_eq!(association.free_stream(), None);
        assert_eq!(association.on(4), Place::Blocked);
    }

    #[test]
    fn streams_are_those_that_both_sides_have() {
        let mut association = association();
        let ids = conn_ids(2);
        association.streams = 1;
        // The peer sends on more.
        association.put(ids[0], Some(20));
        assert_eq!(association.free_stream(), Some(0));
        association.put(ids[1], Some(0));
        assert_eq!(association.free_stream(), None);
    }

    #[test]
    fn one_whose_stream_has_another_is_there_until_it_is_gone() {
        let mut association = association();
        let ids = conn_ids(2);
        association.put(ids[0], Some(0));
        association.put_aside(0);
        association.put(ids[1], Some(0));
        assert!(association.sessions().eq([ids[1], ids[0]]));
        association.remove(ids[0], false);
        assert!(association.sessions().eq([ids[1]]));
        assert_eq!(association.on(0), Place::Session(ids[1]));
    }

    #[test]
    fn a_peers_first_session_has_the_stream_that_its_first_message_comes_on() {
        let mut association = association();
        let ids = conn_ids(2);
        association.put(ids[0], None);
        assert!(association.sessions().eq([ids[0]]));
        assert_eq!(association.speaks(7), Some(ids[0]));
        assert_eq!(association.speaks(8), None);
        assert_eq!(association.on(7), Place::Session(ids[0]));
        assert_eq!(association.on(8), Place::Unused);
        association.remove(ids[0], false);
        assert_eq!(association.sessions().count(), 0);
    }

    #[test]
    fn one_that_waits_is_told_once() {
        let mut association = association();
        let ids = conn_ids(2);
        association.wait(ids[0]);
        association.wait(ids[1]);
        association.wait(ids[0]);
        association.remove(ids[1], false);
        assert_eq!(association.next_waiting(), Some(ids[0]));
        assert_eq!(association.next_waiting(), None);
    }
}
