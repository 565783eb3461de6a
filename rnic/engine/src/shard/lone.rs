//! A message that is one FPDU, and all that there is to send: from its work request to the link in one go.
//!
//! The peer waits for it, so whatever the shard, the queue pair and TCP write down of it is written down
//! when it has left. What goes out is what a [turn](Shard::turn) would send of what was posted until then.

use rnic_net::Differing;
use rnic_xsk::Port;
use userspace_tcp::checksum::PartialSum;
use userspace_tcp::{ConnId, Outgoing, Outlook};

use super::Shard;
use super::bursts::{Burst, burst};
use super::turn::{Allowed, COST_MIN, End, Turn};
use crate::capture::Tap;
use crate::conn::Phase;

impl<P: Port> Shard<P> {
    /// Sends the connection's message if it is such a one and may go now, when no other connection has
    /// anything to send, to a link that has room; else nothing is done.
    // By itself, so that its code lies together.
    #[inline(never)]
    pub(super) fn send_lone(&mut self, id: ConnId, allowed: Allowed) -> Option<Turn> {
        // Fragments go before all else.
        if self.link.waiting.is_some() || allowed.credit == 0 {
            return None;
        }
        let conn = self.conns.get(id)?;
        let Phase::Rdma { qp } = conn.phase else {
            return None;
        };
        let slot = self.qps.get_mut(qp.0)?;
        if self.macroflows.allowance(id) == 0 {
            return None;
        }
        let headers = conn.header_room();
        let mut message = None;
        let fill = |outlook: Outlook| {
            message = slot.qp.next_whole(slot.qp.mulpdu(outlook.mss));
            let whole = message.as_ref().filter(|_| slot.qp.whole_is_last())?;
            let len = whole.octets();
            let spare = self.reserve.spare(&self.pool, headers + len);
            // As for any segment: see `frame_for`.
            let held = allowed.held.unwrap_or(0).max(outlook.queued);
            if len > outlook.room || held >= spare {
                return None;
            }
            let mut frame = self.pool.alloc_for(headers + len)?;
            let out = self
                .umem
                .bytes_mut(&mut frame)
                .get_mut(headers..headers + len);
            let written = out.and_then(|out| slot.qp.write_octets(&self.tables.stags, whole, out));
            let Some(written) = written else {
                self.pool.free(frame);
                return None;
            };
            frame.set_len(headers + written.len);
            Some(Outgoing {
                buf: frame,
                len: written.len as u32,
                payload_sum: PartialSum::from_folded(written.sum),
            })
        };
        let mut burst = burst!(self, true);
        let sent = self.stack.send_alone(id, self.now, &mut burst, fill);
        match sent {
            Ok(true) => {}
            Ok(false) => return None,
            Err(refused) => {
                self.pool.free(refused.buf);
                return None;
            }
        }
        let whole = message?;
        let mut context = self.tables.context(slot.tally, self.now);
        slot.qp.whole_sent(&mut context, &whole);
        Some(Turn {
            segments: 1,
            fpdus: 1,
            cost: whole.octets().max(COST_MIN),
            end: match slot.qp.has_nothing_to_send() {
                true => End::Done,
                false => End::More,
            },
        })
    }
}
