//! What clients make of their queue pairs' states in random programs, and the ends of streams.

use rnic_engine::command::{Answer, Command};
use rnic_ipc::control::{DisconnectReason, QpState, Transport};

use rnic_ipc::work::{WR_SIGNALED, WrOpcode};

use crate::memory::Party;
use crate::simulation::Simulation;
use crate::stream::{Cause, End, Life, Sent, What, is_request};
use crate::trouble::LOCAL_CATASTROPHIC;

/// No more streams than that, one after the other.
const STREAMS_MAX: usize = 24;

impl Simulation {
    fn modify(&mut self, party: Party, state: QpState) -> bool {
        let (node, qp) = (self.end_of(party).node, self.end_of(party).qp);
        let command = Command::ModifyQp { qp, state };
        let done = self.nodes[node].execute(command, self.now).is_ok();
        // A CQ that overflowed is reported by the next poll.
        self.note(|| format!("{party:?} is made {state:?}: {done}"));
        self.due[node] = true;
        done
    }

    /// Both ends' queue pairs are reset, and connect again.
    pub fn connect_again(&mut self, party: Party) {
        let over = |party| self.end_of(party).life == Life::Over && !self.has_dead_cq(party);
        let peer = Self::peer(party);
        if !over(party) || !over(peer) || self.streams.len() >= STREAMS_MAX {
            return;
        }
        let revision = self.revision();
        let Some(first) = self.reset(party, revision) else {
            return;
        };
        let Some(second) = self.reset(peer, revision) else {
            // As it was.
            assert!(self.modify(party, QpState::Error));
            return;
        };
        for party in [party, peer] {
            self.end_mut(party).life = Life::Gone;
        }
        let internal = self.streams[party.stream].internal;
        self.open([first, second], internal);
        self.count("queue_pairs_reset");
    }

    /// The end as it begins again; none when its CQ could not take what was flushed.
    fn reset(&mut self, party: Party, revision: u8) -> Option<End> {
        if self.random.chance(500) {
            self.post_receive(party);
            self.post_immediate(party);
        }
        assert!(self.modify(party, QpState::Idle), "{party:?}: no reset");
        let node = self.end_of(party).node;
        self.work(node);
        if self.has_dead_cq(party) {
            self.abandon(party);
            return None;
        }
        let mpa = self.mpa(revision);
        let end = self.end_of(party);
        assert!(end.sq.is_empty() && end.rq.is_empty(), "{end:?}");
        let (qp, pd, cqs) = (end.qp, end.pd, end.cqs);
        let (srq, signal_all, max_sge) = (end.srq, end.signal_all, end.max_sge);
        let found = self.nodes[node].execute(Command::QueryQp { qp }, self.now);
        assert!(
            matches!(found, Ok(Answer::QpState(QpState::Idle))),
            "{found:?}"
        );
        Some(End {
            node,
            qp,
            pd,
            cqs,
            srq,
            signal_all,
            max_sge,
            mpa,
            life: Life::Opening,
            sq: Default::default(),
            rq: Default::default(),
            line: Default::default(),
            failed: [false; 3],
            bare: false,
        })
    }

    /// Its client ends a stream with a Terminate.
    pub fn terminate(&mut self, party: Party) {
        if self.end_of(party).life != Life::Up {
            return;
        }
        let doomed = self.streams[party.stream].is_doomed();
        if !self.modify(party, QpState::Terminate) {
            assert!(doomed, "{party:?}: no Terminate");
            return;
        }
        let mut reasons = [(); 2].map(|()| vec![DisconnectReason::Aborted]);
        // A responder that may not send yet can only reset.
        reasons[1 - party.end] = vec![
            DisconnectReason::TerminateReceived {
                control: LOCAL_CATASTROPHIC,
            },
            DisconnectReason::Reset,
        ];
        // Then its own end is a local error.
        reasons[party.end].push(DisconnectReason::LocalError);
        self.count("terminated_by_clients");
        let what = "terminated";
        self.doom(party.stream, Cause { what, reasons });
        self.work(self.end_of(party).node);
    }

    fn make_error(&mut self, party: Party) {
        match self.end_of(party).life {
            Life::Gone | Life::Over => return,
            Life::Opening => self.doom_somehow(party.stream, "made Error while opening"),
            Life::Up => {
                let reasons = self.reasons_of_abort(party);
                let what = "made Error";
                self.doom(party.stream, Cause { what, reasons });
            }
        }
        assert!(self.modify(party, QpState::Error));
        self.work(self.end_of(party).node);
    }

    /// What both ends are told when one aborts. The peer of a session that shares its association with others is told
    /// by a Terminate.
    fn reasons_of_abort(&self, party: Party) -> [Vec<DisconnectReason>; 2] {
        let mut reasons = [(); 2].map(|()| vec![DisconnectReason::Reset]);
        if self.streams[party.stream].transport == Transport::Sctp {
            reasons[1 - party.end].push(DisconnectReason::TerminateReceived {
                control: LOCAL_CATASTROPHIC,
            });
        }
        reasons[party.end] = vec![DisconnectReason::Aborted];
        reasons
    }

    /// Nobody will be told what becomes of what is posted.
    pub fn abandon(&mut self, party: Party) {
        let end = self.end_mut(party);
        let node = end.node;
        let (sq, rq) = (std::mem::take(&mut end.sq), std::mem::take(&mut end.rq));
        for posted in sq {
            self.memories[node].unlock(posted.id);
            if let Some(local) = posted.local {
                self.local_unknown(local);
            }
            if is_request(posted.opcode) {
                self.memories[node].unanswered(posted.id);
            }
        }
        for receive in rq {
            self.memories[node].unlock(receive.id);
            if let Some(send) = receive.send {
                self.memories[node].given_up(send);
            }
        }
    }

    pub fn disconnect(&mut self, party: Party, abort: bool) {
        if self.end_of(party).life != Life::Up {
            return;
        }
        let reasons = match abort {
            true => self.reasons_of_abort(party),
            false => [(); 2].map(|()| vec![DisconnectReason::Graceful]),
        };
        let what = if abort { "aborted" } else { "closed" };
        self.doom(party.stream, Cause { what, reasons });
        let (node, qp) = (self.end_of(party).node, self.end_of(party).qp);
        let command = Command::Disconnect { qp, abort };
        self.nodes[node].execute(command, self.now).unwrap();
        self.due[node] = true;
        self.work(node);
    }

    /// Destroys a queue pair: nothing of its work completes any more, and nothing is placed.
    pub fn destroy(&mut self, party: Party) {
        // A shard that stands still may have told something before.
        self.observe(self.end_of(party).node);
        if self.end_of(party).srq.is_some() {
            // Otherwise nobody would know which receive it had in hand.
            self.make_error(party);
        }
        let end = self.end_of(party);
        let (node, qp, life) = (end.node, end.qp, end.life);
        match life {
            Life::Gone => return,
            Life::Over => {}
            Life::Opening => self.doom_somehow(party.stream, "destroyed while opening"),
            Life::Up => {
                // To a queue pair that is gone nothing is told.
                let reasons = self.reasons_of_abort(party);
                let what = "destroyed";
                self.doom(party.stream, Cause { what, reasons });
            }
        }
        self.nodes[node]
            .execute(Command::RemoveQp { qp }, self.now)
            .unwrap();
        self.due[node] = true;
        self.end_mut(party).life = Life::Gone;
        self.abandon(party);
        self.windows_of_stream_end(node, qp);
        self.peers_line_ends(party, None);
        self.work(node);
    }

    /// A zero-length Send, for which a receive is posted: when it is delivered all before it is.
    pub fn fence(&mut self, party: Party) {
        let peer = Self::peer(party);
        if self.end_of(peer).srq.is_some() {
            // Another Send may take the receive: a Read of nothing will do.
            let mut request = self.request(WrOpcode::Read, &[]);
            request.slot.flags |= WR_SIGNALED;
            self.submit(party, &request, What::Read);
            return;
        }
        if self.end_mut(peer).receive_without_send().is_none() {
            self.submit_receive(peer, &[]);
        }
        let receive = self.end_mut(peer).receive_without_send().map(|r| r.id);
        let request = self.request(WrOpcode::Send, &[]);
        self.expect_send(party, request.slot.wr_id, receive, &[]);
        let sent = Sent {
            receive,
            bytes: Vec::new(),
            solicited: false,
            invalidate: None,
            immediate: None,
        };
        self.submit(party, &request, What::Send(sent));
    }
}
