//! RFC 7306 in random programs: Immediate Data and Atomic Operations.

use rnic_ipc::control::Access;
use rnic_ipc::ring::WorkRequest;
use rnic_ipc::work::{WR_SOLICITED, WrOpcode};
use rnic_proto::rdmap::AtomicOperation;

use crate::memory::Party;
use crate::program::Piece;
use crate::simulation::{Simulation, Validity};
use crate::stream::{Sent, What};
use crate::words::WORD;

impl Simulation {
    /// Makes a work request carry Immediate Data, which takes this receive of the peer's.
    pub fn immediate(
        &mut self,
        party: Party,
        receive: Option<u64>,
        request: &mut WorkRequest,
    ) -> Sent {
        let data = self.random.next();
        assert!(request.set_operands(&[data, 0, 0, 0]));
        let solicited = self.random.chance(300);
        if solicited {
            request.slot.flags |= WR_SOLICITED;
        }
        // Nothing of the receive's memory is touched.
        let nothing = self.id();
        self.expect_send(party, nothing, receive, &[]);
        Sent {
            receive,
            bytes: Vec::new(),
            solicited,
            invalidate: None,
            immediate: Some(data),
        }
    }

    pub fn post_immediate(&mut self, party: Party) {
        if !self.takes_work(party) || !self.arrives(party) {
            return;
        }
        let Some((receive, _)) = self.waiting_receive(Self::peer(party)) else {
            return;
        };
        let mut request = self.request(WrOpcode::Immediate, &[]);
        let sent = self.immediate(party, receive, &mut request);
        self.submit(party, &request, What::Send(sent));
    }

    /// An aligned word of the peer's that may be changed so; mostly one of few, so that several
    /// streams meet there.
    fn pick_word(&mut self, peer: Party) -> Option<Piece> {
        let (node, pd, qp) = (
            self.end_of(peer).node,
            self.end_of(peer).pd,
            self.end_of(peer).qp,
        );
        let first = |at: usize| at.next_multiple_of(WORD);
        let region = self.pick(node, |r| {
            r.pd == pd
                && r.validity == Validity::Valid
                && r.access.contains(Access::REMOTE_ATOMIC)
                && r.is_for(qp)
                && first(r.at) + WORD <= r.at + r.len
        })?;
        let (at, end) = (first(self.regions[region].at), self.regions[region].end());
        let words = (end - at) / WORD;
        let few = if self.random.chance(800) { 2 } else { words };
        let skip = self.random.below(few.min(words) as u64) as usize;
        Some(Piece {
            region,
            at: at + WORD * skip,
            len: WORD,
        })
    }

    pub fn operation(&mut self) -> AtomicOperation {
        let mut any = || match self.random.below(4) {
            0 => 0,
            1 => u64::MAX,
            2 => 1 << self.random.below(64),
            _ => self.random.next(),
        };
        match any() & 3 {
            0 | 3 => AtomicOperation::FetchAdd {
                add: any(),
                mask: any(),
            },
            _ => AtomicOperation::CompareSwap {
                swap: any(),
                swap_mask: any(),
                compare: any(),
                compare_mask: any(),
            },
        }
    }

    pub fn post_atomic(&mut self, party: Party) {
        let peer = Self::peer(party);
        if !self.takes_work(party) {
            return;
        }
        let Some(sink) = self.piece(party, WORD, |access| access.contains(Access::LOCAL_WRITE))
        else {
            return;
        };
        let (own, node) = (self.end_of(party).node, self.end_of(peer).node);
        if sink.len < WORD || !self.memories[own].is_free(&sink.range()) {
            return;
        }
        let Some(word) = self.pick_word(peer) else {
            return;
        };
        if !self.memories[node].takes_atomic(party, word.at)
            || self.is_onto_itself(party, &[sink], &word)
        {
            return;
        }
        let mut operation = self.operation();
        if let AtomicOperation::CompareSwap { compare, .. } = &mut operation
            && self.random.chance(700)
        {
            // So it is swapped, if no other comes before.
            *compare = self.memories[node].word(word.at);
        }
        let mut request = self.atomic(&sink, operation);
        let remote = self.sge(&word);
        (request.slot.rkey, request.slot.remote_addr) = (remote.lkey, remote.addr);
        let id = request.slot.wr_id;
        let arrives = self.arrives(party);
        if arrives {
            let at = (word.at, word.region);
            self.memories[node].expect_atomic(id, party, at, operation);
            let at = (sink.at, sink.region);
            self.memories[own].expect_anything(id, party, at, WORD);
        }
        let posted = self.submit(party, &request, What::Atomic);
        posted.sink = Some(sink.at);
        posted.hopeless |= !arrives;
    }

    /// A work request for an operation; what it works on is still to be named.
    pub fn atomic(&mut self, sink: &Piece, operation: AtomicOperation) -> WorkRequest {
        let (opcode, operands) = match operation {
            AtomicOperation::FetchAdd { add, mask } => {
                (WrOpcode::AtomicFetchAdd, [add, mask, 0, 0])
            }
            AtomicOperation::CompareSwap {
                swap,
                swap_mask,
                compare,
                compare_mask,
            } => (
                WrOpcode::AtomicCompareSwap,
                [swap, swap_mask, compare, compare_mask],
            ),
        };
        let sge = self.sge(sink);
        let mut request = self.request(opcode, &[sge]);
        assert!(request.set_operands(&operands));
        request
    }
}
