//! The receives that Sends consume, each the oldest of the queue pair's own queue or of a shared one
//! (RFC 5041 section 1.2).
//!
//! A Send that comes before its turn finds its receive by its number: the queue is looked into, and
//! nothing is taken from it. Of a shared queue only the next Send knows its receive, because others
//! take from it too.

use rnic_ipc::id::SrqId;
use rnic_ipc::ring::{Place, RingFault, WorkQueueConsumer, WorkRequest};
use rnic_ipc::work::WrOpcode;
use rnic_proto::Msn;
use rnic_proto::mpa::marker::Markers;

use crate::srq::SrqTable;

/// What a queue pair takes Sends with.
#[derive(Debug)]
pub(super) struct ReceiveSide {
    source: Receives,
    /// Elements that a receive may have.
    max_sge: usize,
    /// The receive that a Send is being placed into; without one, scratch.
    pub request: WorkRequest,
    current: Option<Msn>,
    pub markers: Markers,
    /// TCP segments begin with FPDUs.
    pub aligned: bool,
    /// Where the next FPDU begins, counted from the first byte after the start-up.
    pub at: u64,
    /// The place of the receive that was looked at last, and the Send that it is for.
    seen: Option<(Msn, Place)>,
}

#[derive(Debug)]
enum Receives {
    Own(WorkQueueConsumer),
    Shared(SrqId),
}

impl ReceiveSide {
    pub(super) fn new(ring: WorkQueueConsumer, max_sge: usize) -> Self {
        Self {
            source: Receives::Own(ring),
            max_sge,
            request: WorkRequest::with_room(max_sge),
            current: None,
            markers: Markers::Off,
            aligned: false,
            at: 0,
            seen: None,
        }
    }

    /// RDMA mode begins, or nothing is connected any more.
    pub(super) fn reset(&mut self, markers: Markers, aligned: bool) {
        self.markers = markers;
        self.aligned = aligned;
        self.at = 0;
        self.seen = None;
    }

    pub(super) fn share(&mut self, srq: SrqId, max_sge: usize) {
        self.source = Receives::Shared(srq);
        self.max_sge = max_sge;
        self.request = WorkRequest::with_room(max_sge);
    }

    /// Takes the oldest receive, if there is one. `yields`: of a shared queue none, while other queue pairs
    /// wait for the next that is posted.
    pub(super) fn pop(&mut self, srqs: &mut SrqTable, yields: bool) -> Result<bool, RingFault> {
        match &mut self.source {
            Receives::Own(ring) => ring.pop(&mut self.request),
            Receives::Shared(srq) if yields && srqs.has_waiting(*srq) => Ok(false),
            Receives::Shared(srq) => srqs.pop(*srq, &mut self.request),
        }
    }

    /// The shared queue that its receives come from, if one is.
    pub(super) fn shared(&self) -> Option<SrqId> {
        match &self.source {
            Receives::Own(_) => None,
            Receives::Shared(srq) => Some(*srq),
        }
    }

    /// Whether no receive waits. A broken ring counts as one that has some: `pop` will tell.
    pub(super) fn has_none(&self, srqs: &SrqTable) -> bool {
        match &self.source {
            Receives::Own(ring) => ring.is_empty(),
            Receives::Shared(srq) => srqs.has_none(*srq),
        }
    }

    /// The queue that is flushed with the queue pair: its own, not one that others take from too.
    pub(super) fn own_mut(&mut self) -> Option<(&mut WorkQueueConsumer, &mut WorkRequest)> {
        match &mut self.source {
            Receives::Own(ring) => Some((ring, &mut self.request)),
            Receives::Shared(_) => None,
        }
    }

    /// Whether the receive of this Send is under way.
    pub(super) fn is_for(&self, msn: Msn) -> bool {
        self.current == Some(msn)
    }

    /// Whether a receive is under way.
    pub(super) fn is_filling(&self) -> bool {
        self.current.is_some()
    }

    /// The receive of this Send, just taken, is under way.
    pub(super) fn begin(&mut self, msn: Msn) {
        self.current = Some(msn);
    }

    /// Whether a receive is one, and not more than a client may post.
    pub(super) fn is_possible(&self, request: &WorkRequest) -> bool {
        request.opcode() == Some(WrOpcode::Recv)
            && !request.is_inline()
            && request.num_sge() <= self.max_sge
    }

    /// Whether the queue is this queue pair's alone, so that it is known which Send will consume
    /// which receive.
    pub(super) fn is_own(&self) -> bool {
        matches!(self.source, Receives::Own(_))
    }

    /// Copies the receive that will match a Send `ahead` messages after the next one to `into`, and leaves it
    /// in the queue. False when it is not posted, or can't be read. The error is then reported when the
    /// receive is taken in order.
    pub(super) fn look_ahead(&mut self, msn: Msn, ahead: u32, into: &mut WorkRequest) -> bool {
        let Receives::Own(ring) = &self.source else {
            return false;
        };
        // The receive of the next Send is in the queue no more when it is under way.
        let Some(behind) = ahead.checked_sub(u32::from(self.current.is_some())) else {
            return false;
        };
        let front = (ring.front(), behind);
        let (from, count) = match self.seen {
            Some((seen, place)) if msn.0.wrapping_sub(seen.0) <= behind => {
                (place, msn.0.wrapping_sub(seen.0))
            }
            _ => front,
        };
        let Ok(Some(place)) = ring.behind(from, count) else {
            return false;
        };
        self.seen = Some((msn, place));
        ring.peek(place, into) == Ok(true) && self.is_possible(into)
    }

    /// Forgets the receive under way; whether there was one.
    pub(super) fn drop_current(&mut self) -> bool {
        self.current.take().is_some()
    }
}
