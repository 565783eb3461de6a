//! Messages that are one FPDU: from the work request in its queue to bytes in one go.
//!
//! What is written is what [`Qp::plan`] and [`Qp::produce`] would make of the same work request, and what
//! is left behind too. That holds for Sends and RDMA Writes of one element whose bytes are there to be
//! taken; all others, and all that goes wrong, are left to them as they are.

use rnic_crc::Words;
use rnic_ipc::control::QpState;
use rnic_ipc::work::{Sge, WR_INLINE, WR_SOLICITED, WorkSlot, WrOpcode};
use rnic_proto::mpa::fpdu::{HEADER_LEN, MULPDU_MIN, Written, plain_length, write_plain};
use rnic_proto::mpa::marker::Markers;
use rnic_proto::rdmap::{SendKind, segment};
use rnic_proto::{MessageOffset, Msn, Qn, Stag, TaggedOffset};

use super::pending::{Entry, Outcome, Posted};
use super::send::Turn;
use super::{Qp, QpContext};
use crate::stag::StagTable;

/// Words of the header of each kind, with the ULPDU_Length field.
pub(super) const WRITE_WORDS: usize = (HEADER_LEN + segment::WRITE_LEN) / 4;
pub(super) const SEND_WORDS: usize = (HEADER_LEN + segment::SEND_LEN) / 4;

/// The next message, if it is one FPDU: good until anything happens to its queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Whole {
    /// A copy that nobody else can write.
    slot: WorkSlot,
    opcode: WrOpcode,
    /// Bytes of the FPDU.
    len: usize,
}

impl Whole {
    /// Bytes of its FPDU.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.len
    }
}

impl Qp {
    /// The message of the next work request, if it is such a one and nothing else can be next. Nothing is
    /// taken, and [`Self::plan`] knows what is next if [`Self::write_whole`] does not write it.
    #[inline]
    pub(crate) fn next_whole(&mut self, mulpdu: usize) -> Option<Whole> {
        let sends = self.state == QpState::Rts && self.ending.lets_send() && !self.rings_dead;
        let send = &mut self.send;
        if !sends || !send.is_between_messages() || send.markers == Markers::On {
            return None;
        }
        let slot = send.ring.single()?;
        let opcode = WrOpcode::from_u8(slot.opcode)?;
        let words = match opcode {
            WrOpcode::Write => WRITE_WORDS,
            WrOpcode::Send => SEND_WORDS,
            _ => return None,
        };
        let len = slot.sge[0].length as usize;
        let most = mulpdu.max(MULPDU_MIN) + HEADER_LEN - 4 * words;
        let plain = slot.flags & WR_INLINE == 0 && self.id.max_sge > 0;
        let fits = plain && len > 0 && len <= most && !send.pending.is_full();
        fits.then(|| Whole {
            slot,
            opcode,
            len: plain_length(words, len),
        })
    }

    /// Writes the message that [`Self::next_whole`] has just given to the front of `out`; else nothing is
    /// done.
    // By itself, so that its code lies together.
    #[inline(never)]
    pub(super) fn write_whole(
        &mut self,
        ctx: &mut QpContext<'_>,
        whole: &Whole,
        out: &mut [u8],
    ) -> Option<Written> {
        let written = self.write_bytes(ctx.stags, whole, out)?;
        self.whole_sent(ctx, whole);
        Some(written)
    }

    /// The bytes of the message that [`Self::next_whole`] has just given: if they go out,
    /// [`Self::whole_sent`] is next.
    #[inline(always)]
    pub(crate) fn write_bytes(
        &self,
        stags: &StagTable,
        whole: &Whole,
        out: &mut [u8],
    ) -> Option<Written> {
        let Whole { slot, opcode, .. } = whole;
        let [sge, _] = &slot.sge;
        let stag = Stag(slot.rkey);
        if *opcode == WrOpcode::Write {
            let to = TaggedOffset(slot.remote_addr);
            to.checked_add(u64::from(sge.length))?;
            let header: [u32; WRITE_WORDS] = segment::write(stag, to, true).to_words();
            return self.write_single(stags, out, header, sge);
        }
        let kind = SendKind {
            solicited: slot.flags & WR_SOLICITED != 0,
            invalidate: false,
        };
        let msn = self.stream.as_ref()?.next_send();
        let header = segment::send(kind, stag, msn, MessageOffset(0), true);
        let header: [u32; SEND_WORDS] = header.to_words();
        self.write_single(stags, out, header, sge)
    }

    /// The bytes of [`Self::write_bytes`] are on their way.
    #[inline(always)]
    pub(crate) fn whole_sent(&mut self, ctx: &mut QpContext<'_>, whole: &Whole) {
        let Whole { slot, opcode, len } = whole;
        let mut number = None;
        if *opcode == WrOpcode::Write {
            ctx.counters.writes_sent += 1;
        } else {
            number = self.stream.as_mut().map(|stream| stream.begin_send());
            ctx.counters.sends_sent += 1;
        }
        self.send.ring.take_single();
        self.remember_whole(ctx, self.posted(slot, ctx.now), number);
        self.send.sent_whole(*len);
        self.message_done(Turn::Work);
        ctx.counters.fpdus_sent += 1;
        ctx.counters.bytes_gathered += u64::from(slot.sge[0].length);
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
            self.send.pending.push(entry, &mut ctx.queue_pool.pending);
        }
    }

    /// The FPDU of a message's header and the bytes of its only element; none when `out` is too short, or
    /// they can't be had.
    #[inline]
    fn write_single<const WORDS: usize>(
        &self,
        stags: &StagTable,
        out: &mut [u8],
        header: [u32; WORDS],
        sge: &Sge,
    ) -> Option<Written> {
        let len = sge.length as usize;
        if plain_length(WORDS, len) > out.len() {
            return None;
        }
        let source = stags.local_read(sge, self.id.user()).ok()?;
        write_plain(out, header, len, self.crc, |crc, place| {
            source.read_checked(0, self.checked_from(crc), place, Words::NONE)
        })
        .ok()
    }
}
