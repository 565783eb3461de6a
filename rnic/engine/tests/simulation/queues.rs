//! Queues that several queue pairs share in random programs: completion queues, which wake their
//! client and overflow, and shared receive queues with their limit.

use std::collections::VecDeque;

use rnic_engine::command::Command;
use rnic_ipc::control::Access;
use rnic_ipc::id::{CqId, PdId, SrqId};
use rnic_ipc::work::{Completion, WC_SOLICITED, WcStatus, WrOpcode};

use crate::memory::{Party, Use};
use crate::node::{CQS, MAX_SGE, SRQ_DEPTH, TIGHT_CQ};
use crate::simulation::Simulation;
use crate::stream::{Life, Receive, What};

pub struct SharedQueue {
    node: usize,
    pd: PdId,
    pub id: SrqId,
    max_sge: usize,
    /// Bytes that each of its receives has room for.
    room: usize,
    /// Those that have not completed.
    receives: VecDeque<Receive>,
    /// The client is to be told when fewer wait.
    limit: Option<u32>,
    /// The fewest that there were since it said so, those in hand not counted.
    least: usize,
    /// Memory of a receive was taken away: whoever takes that one fails.
    tainted: bool,
}

/// What a client asked of its CQs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wishes([Wish; CQS as usize]);

#[derive(Clone, Copy, Debug, Default)]
struct Wish {
    /// To be woken once, perhaps only by a solicited completion or an error.
    armed: Option<bool>,
    /// Such a completion came.
    fulfilled: bool,
}

impl Simulation {
    /// A shared receive queue of this domain, an old one perhaps.
    pub fn srq(&mut self, node: usize, pd: PdId) -> usize {
        let known = self.srqs.iter();
        let known = known
            .enumerate()
            .find(|(_, srq)| srq.node == node && srq.pd == pd);
        if let Some((index, _)) = known {
            return index;
        }
        let max_sge = if self.random.chance(200) { MAX_SGE } else { 4 };
        self.srqs.push(SharedQueue {
            node,
            pd,
            id: self.nodes[node].create_srq(max_sge),
            max_sge: max_sge as usize,
            room: self.random.below(300) as usize,
            receives: VecDeque::new(),
            limit: None,
            least: 0,
            tainted: false,
        });
        self.srqs.len() - 1
    }

    fn takers(&self, srq: usize) -> impl Iterator<Item = Party> {
        let streams = self.streams.iter().enumerate();
        streams.flat_map(move |(stream, of)| {
            let takes = move |end: &usize| {
                of.ends[*end].srq == Some(srq) && of.ends[*end].life != Life::Gone
            };
            (0..2).filter(takes).map(move |end| Party { stream, end })
        })
    }

    /// Sends under way that will take one of its receives.
    fn claims(&self, srq: usize) -> usize {
        let lines = self
            .takers(srq)
            .map(|taker| &self.end_of(Self::peer(taker)).line);
        let is_send = |what: &What| matches!(what, What::Send(_));
        lines
            .map(|line| line.iter().filter(|m| is_send(&m.what)).count())
            .sum()
    }

    /// A receive of this end that a Send may take, one that is known if it is its own, and its room.
    pub fn waiting_receive(&mut self, party: Party) -> Option<(Option<u64>, usize)> {
        let Some(srq) = self.end_of(party).srq else {
            let receive = self.end_mut(party).receive_without_send()?;
            return Some((Some(receive.id), receive.room()));
        };
        let queue = &self.srqs[srq];
        let free = self.claims(srq) < queue.receives.len() && !queue.tainted;
        free.then_some((None, queue.room))
    }

    pub fn post_shared_receive(&mut self, party: Party, srq: usize) {
        let room = self.srqs[srq].room;
        if self.srqs[srq].receives.len() >= SRQ_DEPTH as usize - 4 {
            return;
        }
        let free = |it: &Self, node: usize, piece: &crate::program::Piece| {
            it.memories[node].is_free(&piece.range())
        };
        let places = self.pieces(
            party,
            4 * room,
            |access| access.contains(Access::LOCAL_WRITE),
            free,
        );
        if Self::total(&places) < room || places.len() > self.srqs[srq].max_sge {
            return;
        }
        let sges = self.sges(&places);
        let request = self.request(WrOpcode::Recv, &sges);
        self.note(|| format!("{party:?} posts {request:?}"));
        let (node, id) = (self.end_of(party).node, request.slot.wr_id);
        for place in &places {
            let at = (place.at, place.region);
            self.memories[node].expect_anything(id, party, at, place.len);
            self.memories[node].lock(id, party, place.place(), Use::Receive);
        }
        let queue = &mut self.srqs[srq];
        queue.receives.push_back(Receive {
            id,
            places,
            send: None,
            errors: Vec::new(),
        });
        self.nodes[node].post_shared_recv(queue.id, &request);
        // Nobody rings a doorbell: the next Send will find it.
    }

    /// Nobody takes from them any more.
    pub fn remove_srqs(&mut self) {
        for queue in std::mem::take(&mut self.srqs) {
            let (node, srq) = (queue.node, queue.id);
            if self.is_gone(node) {
                continue;
            }
            let command = Command::RemoveSrq { srq };
            self.nodes[node].execute(command, self.now).unwrap();
            for receive in queue.receives {
                self.memories[node].unlock(receive.id);
                // Not one byte was placed.
                self.memories[node].filled(receive.id, &[]);
            }
        }
    }

    pub fn forget_srqs(&mut self, node: usize) {
        for srq in self.srqs.iter_mut().filter(|srq| srq.node == node) {
            srq.limit = None;
            for receive in std::mem::take(&mut srq.receives) {
                self.memories[node].unlock(receive.id);
                self.memories[node].given_up(receive.id);
            }
        }
    }

    /// Memory of one of its receives is taken away.
    pub fn taint(&mut self, srq: usize) -> Vec<Party> {
        self.srqs[srq].tainted = true;
        self.takers(srq).collect()
    }

    /// A receive of a shared queue has completed for this end.
    pub fn take_shared(&mut self, party: Party, srq: usize, id: u64) -> Receive {
        let takers = self.takers(srq).count();
        let queue = &mut self.srqs[srq];
        let index = queue.receives.iter().position(|receive| receive.id == id);
        let index = index.expect("a receive that is posted");
        // Each queue pair takes the oldest that is there, and has one in hand at most.
        let older = queue.receives.iter().take(index);
        let older = older.filter(|receive| !self.batch.contains(&receive.id));
        let older = older.count();
        assert!(
            older < takers,
            "{party:?}: {older} older receives than {id}"
        );
        queue.least = queue
            .least
            .min((queue.receives.len() - 1).saturating_sub(takers));
        queue.receives.remove(index).unwrap()
    }

    /// What the client asks of a queue.
    pub fn wish(&mut self, party: Party) {
        let node = self.end_of(party).node;
        if let Some(srq) = self.end_of(party).srq
            && self.random.chance(600)
        {
            if self.srqs[srq].limit.is_none() {
                let limit = 1 + self.random.below(4) as u32;
                let takers = self.takers(srq).count();
                let srq = &mut self.srqs[srq];
                srq.limit = Some(limit);
                srq.least = srq.receives.len().saturating_sub(takers);
                let command = Command::ArmSrq { srq: srq.id, limit };
                self.nodes[node].execute(command, self.now).unwrap();
                self.due[node] = true;
            }
            return;
        }
        let cq = self.random.below(CQS.into()) as usize;
        let solicited_only = self.random.chance(500);
        let wish = &mut self.wishes[node].0[cq];
        // The wider of two wishes stays.
        wish.armed = Some(solicited_only && wish.armed != Some(false));
        self.nodes[node].arm(CqId(cq as u32), solicited_only);
    }

    pub fn note_completion(&mut self, node: usize, cq: CqId, completion: &Completion) {
        let Some(wish) = self.wishes[node].0.get_mut(cq.0 as usize) else {
            return;
        };
        let solicited =
            completion.flags & WC_SOLICITED != 0 || completion.status != WcStatus::Success as u8;
        wish.fulfilled |= wish.armed.is_some_and(|only| solicited || !only);
    }

    /// Whoever is to be woken is, once; and nobody else.
    pub fn check_wake_ups(&mut self, node: usize) {
        for cq in 0..CQS {
            let woken = self.nodes[node].wake_ups(CqId(cq));
            let wish = &mut self.wishes[node].0[cq as usize];
            assert_eq!(
                woken,
                usize::from(wish.fulfilled),
                "node {node}, CQ {cq}: {wish:?}"
            );
            if wish.fulfilled {
                *wish = Wish::default();
                self.count("clients_woken");
            }
        }
    }

    /// The event that fewer receives wait than the client wants.
    pub fn limit_reached(&mut self, node: usize, id: SrqId) {
        let srq = self
            .srqs
            .iter()
            .position(|srq| srq.node == node && srq.id == id);
        let srq = srq.expect("a shared receive queue that exists");
        let takers = self.takers(srq).count();
        self.count("srq_limits_reached");
        let queue = &mut self.srqs[srq];
        let limit = queue.limit.take().expect("a limit that is set");
        let least = queue.least.min(queue.receives.len().saturating_sub(takers));
        assert!(
            least < limit as usize,
            "{least} receives wait, which is no fewer than {limit}"
        );
    }

    /// Where certainly fewer wait the client was told.
    pub fn check_limits(&self, node: usize) {
        for srq in self.srqs.iter().filter(|srq| srq.node == node) {
            let waiting = srq.receives.len();
            assert!(
                srq.limit.is_none_or(|limit| waiting >= limit as usize),
                "{} has {waiting} receives, and nobody was told",
                srq.id
            );
        }
    }

    /// Whether completions of this end go to a CQ that takes none any more.
    pub fn has_dead_cq(&self, party: Party) -> bool {
        let end = self.end_of(party);
        self.dead_cqs[end.node] && end.cqs.contains(&TIGHT_CQ)
    }

    pub fn is_mute(&self, party: Party) -> bool {
        let end = self.end_of(party);
        self.dead_cqs[end.node] && end.cqs[1] == TIGHT_CQ
    }

    /// A CQ has overflowed: it had as many completions as it has entries. What else was to be told
    /// is lost, with the streams that it was of.
    pub fn overflowed(&mut self, node: usize, cq: CqId, completions: &[(CqId, Completion)]) {
        assert_eq!(cq, TIGHT_CQ, "the others are deep enough");
        assert!(!self.dead_cqs[node], "it was told before");
        let had = completions.iter().filter(|(name, _)| *name == cq).count();
        assert_eq!(
            had as u32,
            self.nodes[node].cq_depth(cq),
            "completions are lost"
        );
        self.dead_cqs[node] = true;
        self.count("cqs_overflowed");
        for stream in 0..self.streams.len() {
            if (0..2).any(|end| {
                let party = Party { stream, end };
                self.end_of(party).node == node && self.has_dead_cq(party)
            }) {
                self.doom_somehow(stream, "a CQ overflowed");
            }
        }
    }
}
