//! Connections to the same peer are one macroflow (RFC 3124). However many they are, together they have no
//! more segments in flight than one window allows ([`Window`]). Each TCP may send ten segments before it
//! knows anything of its path, and never less than one. A thousand of them overrun any receive ring before
//! one learns of a loss.
//!
//! Few connections don't need it: their own windows are enough, and the macroflow's follows them. A
//! connection that finds the macroflow's window used up waits. Waiting connections continue in turn: clients
//! in turn, and within a client its connections. The key is the peer's address, so a peer that acknowledges
//! nothing delays only connections to itself.
//!
//! The cost of a segment does not depend on the number of connections, peers and clients. Memory is allocated
//! when a connection joins.

mod window;

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use rnic_ipc::id::ClientId;
use userspace_net::Instant;
use userspace_tcp::ConnId;

use crate::idmap::IdMap;
use crate::prefetch::fetch;
use crate::shard::tx::drr_scheduler::SEGMENTS_PER_TURN;
use window::Window;

/// So many connections with segments under way need no window in common: their initial windows
/// (RFC 6928) fit what it would begin with.
const FEW: usize = 32;

/// A waiting connection's state is prefetched when so many connections of its client are ahead of it.
const SOON: usize = 2;

#[derive(Debug)]
pub(in crate::shard) struct Macroflows {
    by_peer: HashMap<IpAddr, usize>,
    flows: Vec<Option<Macroflow>>,
    vacant: Vec<usize>,
    /// By connection.
    members: Box<[Option<Member>]>,
    /// Macroflows with room for a connection that waits; each at most once.
    open: VecDeque<usize>,
    /// The most segments that a window may allow.
    limit: usize,
}

/// The connections to one peer.
#[derive(Debug)]
struct Macroflow {
    peer: IpAddr,
    members: usize,
    /// Members with segments under way.
    busy: usize,
    window: Window,
    parties: IdMap<u32, Party>,
    /// Clients with connections that wait; the front one is next.
    turns: VecDeque<ClientId>,
    /// Connections that were told to go on, and have not yet.
    unblocked: usize,
    /// It is among the open ones.
    open: bool,
}

/// A client's connections to one peer.
#[derive(Debug, Default)]
struct Party {
    members: usize,
    /// Those that wait, and some that have left since.
    waiting: VecDeque<ConnId>,
    /// How many of these have left: never more than wait.
    gone: usize,
}

#[derive(Clone, Copy, Debug)]
struct Member {
    id: ConnId,
    flow: usize,
    client: ClientId,
    /// Segments under way.
    segments: usize,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It doesn't wait.
    Free,
    Waiting,
    /// It may go on, before those that come now.
    Unblocked,
}

impl Macroflows {
    /// No macroflow; `limit` is the most segments of one that may ever be under way.
    pub fn new(connections: usize, limit: usize) -> Self {
        Self {
            by_peer: HashMap::with_capacity(connections),
            flows: Vec::new(),
            vacant: Vec::new(),
            members: vec![None; connections].into_boxed_slice(),
            open: VecDeque::new(),
            limit,
        }
    }

    /// A connection of the client's with this peer begins to send. No connection has had its name:
    /// what waits under a name is not told from what waited.
    pub fn join(&mut self, id: ConnId, client: ClientId, peer: IpAddr) {
        debug_assert!(self.members.get(id.index()).is_none_or(Option::is_none));
        let flow = match self.by_peer.get(&peer) {
            Some(flow) => *flow,
            None => self.found(peer),
        };
        let Some(macroflow) = self.flows.get_mut(flow).and_then(Option::as_mut) else {
            return;
        };
        macroflow.members += 1;
        let party = macroflow.parties.entry(client.0).or_default();
        party.members += 1;
        reserve(&mut party.waiting, 2 * party.members);
        let parties = macroflow.parties.len();
        reserve(&mut macroflow.turns, parties);
        if let Some(place) = self.members.get_mut(id.index()) {
            *place = Some(Member {
                id,
                flow,
                client,
                segments: 0,
                stage: Stage::Free,
            });
        }
    }

    /// The connection has nothing to send any more. Nothing happens when it never had.
    pub fn leave(&mut self, id: ConnId, now: Instant) {
        self.under_way(id, 0, now);
        let place = self.members.get_mut(id.index());
        let Some(member) = place.and_then(|place| place.take_if(|member| member.id == id)) else {
            return;
        };
        let Some(macroflow) = self.flows.get_mut(member.flow).and_then(Option::as_mut) else {
            return;
        };
        macroflow.members -= 1;
        macroflow.unblocked -= usize::from(member.stage == Stage::Unblocked);
        if let Some(party) = macroflow.parties.get_mut(&member.client.0) {
            party.members -= 1;
            if member.stage == Stage::Waiting && party.left(&self.members) {
                macroflow.turns.retain(|client| *client != member.client);
            }
            if party.members == 0 {
                macroflow.parties.remove(&member.client.0);
            }
        }
        if macroflow.members == 0 {
            self.by_peer.remove(&macroflow.peer);
            self.open.retain(|open| *open != member.flow);
            self.flows[member.flow] = None;
            self.vacant.push(member.flow);
        } else {
            self.look(member.flow);
        }
    }

    /// So many segments of the connection are posted and not acknowledged.
    pub fn under_way(&mut self, id: ConnId, segments: usize, now: Instant) {
        let Some(member) = member(&mut self.members, id) else {
            return;
        };
        let before = std::mem::replace(&mut member.segments, segments);
        if before == segments {
            return;
        }
        let flow = member.flow;
        let Some(macroflow) = self.flows.get_mut(flow).and_then(Option::as_mut) else {
            return;
        };
        macroflow.busy += usize::from(before == 0);
        macroflow.busy -= usize::from(segments == 0);
        if segments > before {
            macroflow.window.posted(segments - before, now);
            if macroflow.is_free() {
                macroflow.window.follow();
            }
        } else {
            macroflow.window.acknowledged(before - segments, now);
        }
        self.look(flow);
    }

    /// A segment of the connection that went out at `sent` is lost. Returns whether that makes its
    /// macroflow's window smaller.
    pub fn lost(&mut self, id: ConnId, sent: Instant, now: Instant) -> bool {
        let flow = member(&mut self.members, id).map(|member| member.flow);
        let macroflow = flow.and_then(|flow| self.flows.get_mut(flow)?.as_mut());
        macroflow.is_some_and(|macroflow| macroflow.window.lost(sent, now))
    }

    /// Whether the connection's macroflow allows it nothing now, so that a turn would find that out and
    /// no more. One that waits already does not begin to.
    pub fn must_wait(&self, id: ConnId) -> bool {
        let member = self.members.get(id.index()).and_then(Option::as_ref);
        let member = member.filter(|member| member.id == id && member.stage == Stage::Free);
        let macroflow = member.and_then(|member| self.flows.get(member.flow)?.as_ref());
        macroflow.is_some_and(|macroflow| !macroflow.is_clear() || macroflow.room() == 0)
    }

    /// Segments that the connection may post now, as far as its macroflow is concerned. It goes on if
    /// it was unblocked.
    pub fn allowance(&mut self, id: ConnId) -> usize {
        let Some(member) = member(&mut self.members, id) else {
            return usize::MAX;
        };
        let flow = member.flow;
        let unblocked = member.stage == Stage::Unblocked;
        if unblocked {
            member.stage = Stage::Free;
        }
        let Some(macroflow) = self.flows.get_mut(flow).and_then(Option::as_mut) else {
            return usize::MAX;
        };
        macroflow.unblocked -= usize::from(unblocked);
        let first = unblocked || macroflow.is_clear();
        let room = if first { macroflow.room() } else { 0 };
        if unblocked {
            // It may leave room.
            self.look(flow);
        }
        room
    }

    /// The connection has more to post than its macroflow allows: it waits until [`Self::pop_unblocked`]
    /// names it.
    pub fn wait(&mut self, id: ConnId) {
        let Some(member) = member(&mut self.members, id) else {
            return;
        };
        if member.stage == Stage::Waiting {
            return;
        }
        member.stage = Stage::Waiting;
        let Member { flow, client, .. } = *member;
        let Some(macroflow) = self.flows.get_mut(flow).and_then(Option::as_mut) else {
            return;
        };
        let Some(party) = macroflow.parties.get_mut(&client.0) else {
            return;
        };
        if party.is_empty() {
            macroflow.turns.push_back(client);
        }
        party.waiting.push_back(id);
        self.look(flow);
    }

    /// A connection that waited and may go on, with its client.
    pub fn pop_unblocked(&mut self) -> Option<(ConnId, ClientId)> {
        let (flow, macroflow) = loop {
            let flow = self.open.pop_front()?;
            let macroflow = self.flows.get_mut(flow)?.as_mut()?;
            macroflow.open = false;
            if macroflow.has_place() {
                break (flow, macroflow);
            }
        };
        let client = macroflow.turns.pop_front()?;
        let party = macroflow.parties.get_mut(&client.0)?;
        let id = party.next(&self.members)?;
        // Who will be asked for soon.
        if let Some(later) = party.waiting.get(SOON) {
            fetch(self.members.get(later.index()));
        }
        if !party.is_empty() {
            macroflow.turns.push_back(client);
        }
        macroflow.unblocked += 1;
        if let Some(member) = member(&mut self.members, id) {
            member.stage = Stage::Unblocked;
        }
        self.look(flow);
        Some((id, client))
    }

    /// What is kept by connection, of one: for who fetches it ahead of its use.
    pub fn memory_at(&self, place: usize) -> Option<&impl Sized> {
        self.members.get(place)
    }

    /// No connection that waits may go on.
    pub fn is_idle(&self) -> bool {
        self.open.is_empty()
    }

    fn found(&mut self, peer: IpAddr) -> usize {
        let macroflow = Some(Macroflow {
            peer,
            members: 0,
            busy: 0,
            window: Window::new(self.limit),
            parties: IdMap::default(),
            turns: VecDeque::new(),
            unblocked: 0,
            open: false,
        });
        let flow = match self.vacant.pop() {
            Some(flow) => {
                self.flows[flow] = macroflow;
                flow
            }
            None => {
                self.flows.push(macroflow);
                self.flows.len() - 1
            }
        };
        let flows = self.flows.len();
        reserve(&mut self.open, flows);
        self.by_peer.insert(peer, flow);
        flow
    }

    /// Notes when a waiting connection may continue.
    fn look(&mut self, flow: usize) {
        if let Some(macroflow) = self.flows.get_mut(flow).and_then(Option::as_mut)
            && !macroflow.open
            && macroflow.has_place()
        {
            macroflow.open = true;
            self.open.push_back(flow);
        }
    }
}

impl Party {
    /// Nobody waits.
    fn is_empty(&self) -> bool {
        self.waiting.len() == self.gone
    }

    /// The first that waits.
    fn next(&mut self, members: &[Option<Member>]) -> Option<ConnId> {
        while let Some(id) = self.waiting.pop_front() {
            if is_waiting(members, id) {
                return Some(id);
            }
            self.gone -= 1;
        }
        None
    }

    /// A connection that waited is no longer a member; returns whether it was the last. Searching the queue
    /// each time would cost as many steps as connections wait, for each of a thousand that end together. So
    /// entries of connections that are gone are removed when they outnumber those that wait.
    fn left(&mut self, members: &[Option<Member>]) -> bool {
        self.gone += 1;
        if 2 * self.gone > self.waiting.len() {
            self.waiting.retain(|id| is_waiting(members, *id));
            self.gone = 0;
        }
        self.is_empty()
    }
}

impl Macroflow {
    /// Its connections are few.
    fn is_free(&self) -> bool {
        self.busy <= FEW
    }

    /// Nobody waits, or was told to go on.
    fn is_clear(&self) -> bool {
        self.unblocked == 0 && self.turns.is_empty()
    }

    /// A connection waits and may continue: the window has space for a whole quantum. With less, a message
    /// would leave in pieces, each after all others that wait, and each acknowledged separately.
    fn has_place(&self) -> bool {
        let turn = SEGMENTS_PER_TURN.min(self.window.size());
        !self.turns.is_empty() && self.room() >= (self.unblocked + 1).saturating_mul(turn)
    }

    fn room(&self) -> usize {
        if self.is_free() {
            usize::MAX
        } else {
            self.window.room()
        }
    }
}

fn member(members: &mut [Option<Member>], id: ConnId) -> Option<&mut Member> {
    members
        .get_mut(id.index())?
        .as_mut()
        .filter(|member| member.id == id)
}

fn is_waiting(members: &[Option<Member>], id: ConnId) -> bool {
    let member = members.get(id.index()).and_then(Option::as_ref);
    member.is_some_and(|member| member.id == id && member.stage == Stage::Waiting)
}

fn reserve<T>(queue: &mut VecDeque<T>, entries: usize) {
    queue.reserve(entries.saturating_sub(queue.len()));
}

#[cfg(test)]
mod tests;
