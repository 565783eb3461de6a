//! Streams that wait for a receive go on when one is posted, or end when that takes too long
//! ([`crate::shard::holds`]).

use rnic_ipc::id::QpNum;
use rnic_xsk::Port;
use userspace_tcp::ConnId;

use super::Rx;
use super::reorder::{Parking, deliver};
use crate::conn::{DELIVERED, Placed, SLICES_MAX};
use crate::qp::{Behind, HoldStep};
use crate::shard::ctl::Ctl;
use crate::shard::datapath::Datapath;
use crate::shard::holds::Holder;
use crate::shard::tx::Tx;

/// Streams that are looked at in a poll.
const LOOKS: usize = 64;

/// Of the frames that connections may park together, streams that wait have one part in so many. What they have
/// beyond that is copied, and the frames are free again.
pub(super) const HELD_SHARE: usize = 2;

impl Rx {
    /// Looks at the streams that wait, each in its turn; says whether one has gone on.
    #[inline(never)]
    pub fn run_holds<P: Port>(&mut self, dp: &mut Datapath<P>, tx: &mut Tx, ctl: &mut Ctl) -> bool {
        let mut worked = false;
        for _ in 0..dp.holds.len().min(LOOKS) {
            let Some(holder) = dp.holds.take_first(&mut dp.tables.srqs) else {
                break;
            };
            match dp.step_hold(&holder) {
                HoldStep::Ended => dp.end_hold(tx, ctl, &holder),
                HoldStep::Waits => {
                    self.delivery.parking.give_back(dp, holder.id);
                    dp.holds.wait_on(&mut dp.tables.srqs, holder);
                }
                HoldStep::GoesOn => {
                    worked = true;
                    deliver(dp, tx, ctl, holder.id);
                    dp.end_hold(tx, ctl, &holder);
                    tx.make_ready(dp, holder.id);
                }
            }
        }
        worked
    }
}

impl Parking {
    /// Copies what a stream that waits has parked, when it needs more frames than there are for that.
    fn give_back<P>(&self, dp: &mut Datapath<P>, id: ConnId) {
        if dp.frames.held.count() <= self.most / HELD_SHARE {
            return;
        }
        if let Some(conn) = dp.conns.get_mut(id)
            && conn.inbound.pieces() > 0
            && !conn.inbound.is_bouncing()
        {
            dp.counters.bounced += 1;
            conn.inbound.start_bouncing(&mut dp.frames);
        }
    }
}

impl<P: Port> Datapath<P> {
    fn step_hold(&mut self, holder: &Holder) -> HoldStep {
        let slot = self.qps.get_mut(holder.qp.0);
        let Some(slot) = slot.filter(|slot| slot.conn == Some(holder.id)) else {
            return HoldStep::Ended;
        };
        let context = &mut self.tables.context(slot.tally, self.now);
        slot.qp.step_hold(context, self.config.close_timeout)
    }

    /// The stream of this queue pair is held from now on, if it is.
    pub(super) fn note_hold(&mut self, id: ConnId, qp: QpNum) {
        if let Some(slot) = self.qps.get_mut(qp.0)
            && slot.qp.take_new_hold()
        {
            let srq = slot.qp.held_for();
            let holder = Holder { id, qp, srq };
            self.holds.begin(&mut self.tables.srqs, holder, self.now);
        }
    }

    /// Of a stream that waits no more, what was received is delivered, and then the peer's FIN, if it came meanwhile.
    fn end_hold(&mut self, tx: &mut Tx, ctl: &mut Ctl, holder: &Holder) {
        let slot = self.qps.get_mut(holder.qp.0);
        let Some(slot) = slot.filter(|slot| slot.conn == Some(holder.id)) else {
            return;
        };
        if slot.qp.is_held() {
            return;
        }
        let closed = slot.qp.take_held_fin();
        // Of a stream that has ended what was received is dropped.
        deliver(self, tx, ctl, holder.id);
        if closed {
            ctl.peer_closed(self, tx, holder.id);
        }
    }

    /// Looks at one FPDU after the Send for which a stream waits, and delivers it if it is a response; true when
    /// there may be another.
    pub(super) fn deliver_behind(&mut self, id: ConnId, qp: u32) -> bool {
        let Some(conn) = self.conns.get_mut(id) else {
            return false;
        };
        let Some(slot) = self.qps.get_mut(qp) else {
            return false;
        };
        let start = conn.inbound.consumed_to() + slot.qp.looked_behind();
        let mut slices: [&[u8]; SLICES_MAX] = [&[]; SLICES_MAX];
        let found = conn
            .inbound
            .behind(start, &self.frames.umem, &self.frames.held, &mut slices);
        let context = &mut self.tables.context(slot.tally, self.now);
        let filled = match found {
            Ok(placed) => {
                if slot
                    .qp
                    .deliver_placed_behind(context, &placed.header, placed.ulpdu_len)
                {
                    conn.inbound
                        .placed_delivered(placed.start, &mut self.frames.held);
                }
                slot.qp.look_on(placed.end - placed.start);
                return slot.qp.is_held();
            }
            // A note of what is delivered needs a place.
            Err(_) if !conn.inbound.can_note(&self.frames.held) => 0,
            Err(filled) => filled,
        };
        if filled == 0 {
            return false;
        }
        let slices = slices.get(..filled).unwrap_or(&[]);
        match slot.qp.deliver_behind(context, slices) {
            Behind::Unknown => {
                // An FPDU in more pieces than one look shows.
                let split = filled == SLICES_MAX && !conn.inbound.is_bouncing();
                if split {
                    conn.inbound.start_bouncing(&mut self.frames);
                }
                split
            }
            Behind::Stays(len) => {
                slot.qp.look_on(len as u64);
                true
            }
            Behind::Delivered(len) => {
                slot.qp.look_on(len as u64);
                let placed = Placed {
                    start,
                    end: start + len as u64,
                    header: Default::default(),
                    ulpdu_len: DELIVERED,
                };
                conn.inbound.placed(placed, &mut self.frames);
                slot.qp.is_held()
            }
        }
    }
}
