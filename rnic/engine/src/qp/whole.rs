//! Messages that are one FPDU: from the work request in its queue to octets in one go.
//!
//! What is written is what [`Qp::plan`] and [`Qp::produce`] would make of the same work request, and what
//! is left behind too. That holds for Sends and RDMA Writes of one element whose octets are there to be
//! taken; all others, and all that goes wrong, are left to them as they are.

use rnic_crc::Words;
use rnic_ipc::control::QpState;
use rnic_ipc::work::{Sge, WR_INLINE, WR_SOLICITED, WrOpcode};
use rnic_proto::mpa::fpdu::{HEADER_LEN, MULPDU_MIN, Written, plain_length, write_plain};
use rnic_proto::mpa::marker::Markers;
use rnic_proto::rdmap::{SendKind, segment};
use rnic_proto::{MessageOffset, Msn, Qn, Stag, TaggedOffset};

use super::pending::{Entry, Outcome, Posted};
use super::send::Turn;
use super::{Qp, QpContext};

impl Qp {
    /// Whether nothing but work that is still to be taken can be next: [`Self::write_whole`] may write it.
    #[inline]
    pub(crate) fn is_between_messages(&self) -> bool {
        let send = &self.send;
        self.state == QpState::Rts
            && self.ending.lets_send()
            && send.is_between_messages()
            && send.markers == Markers::Off
            && !self.rings_dead
    }

    /// Writes the message of the next work request to the front of `out`, if it fits and is such a one.
    /// Else nothing is taken, and [`Self::plan`] knows what is next.
    // By itself, so that its code lies together.
    #[inline(never)]
    pub(super) fn write_whole(
        &mut self,
        ctx: &mut QpContext<'_>,
        mulpdu: usize,
        out: &mut [u8],
    ) -> Option<Written> {
        if !self.is_between_messages() || self.send.pending.is_full() {
            return None;
        }
        let slot = self.send.ring.single()?;
        let [sge, _] = slot.sge;
        if slot.flags & WR_INLINE != 0 || sge.length == 0 || self.id.max_sge == 0 {
            return None;
        }
        let stag = Stag(slot.rkey);
        let mut number = None;
        let written = match WrOpcode::from_u8(slot.opcode)? {
            WrOpcode::Write => {
                let to = TaggedOffset(slot.remote_addr);
                to.checked_add(u64::from(sge.length))?;
                let header = segment::write(stag, to, true).to_words();
                let written = self.write_single(ctx, mulpdu, out, header, &sge)?;
                ctx.counters.writes_sent += 1;
                written
            }
            WrOpcode::Send => {
                let kind = SendKind {
                    solicited: slot.flags & WR_SOLICITED != 0,
                    invalidate: false,
                };
                let msn = self.stream.as_ref()?.next_send();
                let header = segment::send(kind, stag, msn, MessageOffset(0), true).to_words();
                let written = self.write_single(ctx, mulpdu, out, header, &sge)?;
                number = Some(self.stream.as_mut()?.begin_send());
                ctx.counters.sends_sent += 1;
                written
            }
            _ => return None,
        };
        self.send.ring.take_single();
        self.remember_whole(ctx, self.posted(&slot, ctx.now), number);
        self.send.sent_whole(written.len);
        self.message_done(Turn::Work);
        ctx.counters.fpdus_sent += 1;
        ctx.counters.octets_gathered += u64::from(sge.length);
        Some(written)
    }

    /// A work request was taken and sent: it completes behind those before it.
    #[inline]
    fn remember_whole(&mut self, ctx: &mut QpContext<'_>, posted: Posted, number: Option<Msn>) {
        if !self.send.pending.push_sent(posted) {
            let mut entry = Entry::new(posted);
            entry.outcome = Some(Outcome::SENT);
            if let Some(msn) = number {
                entry.became(Qn::SEND, msn);
            }
            self.send.pending.push(entry, &mut ctx.lent.pending);
        }
    }

    /// The FPDU of a message's header and the octets of its only element; none when it does not fit, or
    /// they can't be had.
    #[inline]
    fn write_single<const WORDS: usize>(
        &self,
        ctx: &QpContext<'_>,
        mulpdu: usize,
        out: &mut [u8],
        header: [u32; WORDS],
        sge: &Sge,
    ) -> Option<Written> {
        let len = sge.length as usize;
        let most = mulpdu.max(MULPDU_MIN) + HEADER_LEN - 4 * WORDS;
        if len > most || plain_length(WORDS, len) > out.len() {
            return None;
        }
        let source = ctx.stags.local_read(sge, self.id.user()).ok()?;
        write_plain(out, header, len, self.crc, |crc, place| {
            source.read_checked(0, crc, place, Words::NONE)
        })
        .ok()
    }
}
