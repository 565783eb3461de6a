//! Placement out of order (RFC 5041 section 5.3, RFC 5044 section 6). A whole FPDU whose start is known from
//! a Marker is placed when it arrives, and delivered in stream order.
//!
//! Nothing here ends a stream: data that can't be placed at once is parked, and checked when it is in order.

use rnic_ipc::control::Access;
use rnic_proto::mpa::MpaError;
use rnic_proto::mpa::fpdu::{self, Layout};
use rnic_proto::rdmap::stream::Early;
use rnic_proto::{Bytes, Gather, Msn};

use super::receive::{copy_in, read_sink, scatter};
use super::{Qp, QpContext};
use crate::conn::{DDP_HEADER_MAX, DELIVERED, FPDU_MIN, PLACED_AT_ONCE};

/// What stands for payload that lies where it belongs already.
static PLACED_PAYLOAD: [u8; u16::MAX as usize] = [0; u16::MAX as usize];

/// An FPDU that was placed: its place in the bytes that were shown.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PlacedFpdu {
    pub from: usize,
    pub len: usize,
    pub header: [u8; DDP_HEADER_MAX],
    pub ulpdu_len: u16,
}

/// What tells where an FPDU begins among bytes that come out of order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FpduSign {
    /// They can't be placed.
    Nothing,
    /// Markers in the stream (RFC 5044 section 4.3).
    Markers,
    /// The boundaries of TCP segments (the extension).
    Segments,
}

impl Qp {
    /// How FPDUs can be found for `place_early`.
    pub fn fpdu_sign(&self) -> FpduSign {
        match (self.is_receiving(), self.receive.markers.are_on()) {
            (true, true) => FpduSign::Markers,
            (true, false) if self.receive.aligned => FpduSign::Segments,
            _ => FpduSign::Nothing,
        }
    }

    /// Places what can be placed of bytes that are out of order. They lie `ahead` bytes ahead of
    /// the next in order; `aligned` says that an FPDU begins with them. Gives how many FPDUs were
    /// placed and noted in `placed`, in their order.
    pub(crate) fn place_early(
        &mut self,
        ctx: &mut QpContext<'_>,
        pieces: &[&[u8]],
        ahead: u64,
        aligned: bool,
        placed: &mut [PlacedFpdu; PLACED_AT_ONCE],
    ) -> usize {
        let bytes = Gather::new(pieces);
        let at = self.receive.at.wrapping_add(ahead);
        let begins = if aligned {
            Some(0)
        } else {
            fpdu::locate(&bytes, at)
        };
        let (Some(mut from), mut count) = (begins, 0) else {
            return 0;
        };
        while let Some(slot) = placed.get_mut(count) {
            let whole = bytes.tail(from).and_then(|rest| {
                let at = at.wrapping_add(from as u64);
                let layout = fpdu::parse(&rest, self.receive.markers, at)?;
                Some((rest.sub(0, layout.len())?, layout))
            });
            let Some((fpdu, layout)) = whole else {
                break;
            };
            if layout.len() >= FPDU_MIN
                && let Some(header) = self.place_one_early(ctx, &fpdu, &layout)
            {
                *slot = PlacedFpdu {
                    from,
                    len: layout.len(),
                    header,
                    // It was read from 16 bits.
                    ulpdu_len: layout.ulpdu_len() as u16,
                };
                count += 1;
            }
            from += layout.len();
        }
        count
    }

    /// An FPDU that `place_early` placed is the next in order: `len` bytes with this header.
    pub fn deliver_placed(
        &mut self,
        ctx: &mut QpContext<'_>,
        len: u64,
        header: &[u8; DDP_HEADER_MAX],
        ulpdu_len: u16,
    ) {
        if !self.is_receiving() {
            return;
        }
        self.receive.at += len;
        // Of a response that was delivered after a Send that waited nothing is left to do.
        if ulpdu_len != DELIVERED {
            self.take_placed(ctx, header, ulpdu_len);
        }
    }

    /// Delivers what lies in its place, by its header.
    pub(super) fn take_placed(
        &mut self,
        ctx: &mut QpContext<'_>,
        header: &[u8; DDP_HEADER_MAX],
        ulpdu_len: u16,
    ) {
        ctx.counters.fpdus_received += 1;
        self.send.allow();
        let ulpdu_len = usize::from(ulpdu_len);
        let pieces = [&header[..ulpdu_len.min(header.len())], &PLACED_PAYLOAD];
        let Some(ulpdu) = Gather::new(&pieces).sub(0, ulpdu_len) else {
            return;
        };
        let Some(stream) = self.stream.as_mut() else {
            return;
        };
        let inbound = stream.classify(&ulpdu);
        // It is judged once more, as if it came only now: what allowed it may be gone.
        self.take_in(ctx, &ulpdu, None::<&Gather<'_>>, inbound);
    }

    /// What is in order does not lead to where an FPDU was placed: a Marker pointed astray (RFC 5044
    /// section 8).
    pub fn marker_mismatch(&mut self, ctx: &mut QpContext<'_>) {
        ctx.counters.marker_errors += 1;
        self.fail(MpaError::MarkerMismatch.into(), None);
    }

    /// Places one FPDU, and gives its DDP header.
    fn place_one_early(
        &mut self,
        ctx: &mut QpContext<'_>,
        fpdu: &Gather<'_>,
        layout: &Layout,
    ) -> Option<[u8; DDP_HEADER_MAX]> {
        let ulpdu = fpdu::verify(fpdu, layout, self.crc).ok()?;
        self.place_segment_early(ctx, &ulpdu)
    }

    /// Places a DDP Segment that is out of order and verified, and gives its header; none when it can't be
    /// placed now.
    pub(crate) fn place_segment_early<'a>(
        &mut self,
        ctx: &mut QpContext<'_>,
        ulpdu: &impl Bytes<'a>,
    ) -> Option<[u8; DDP_HEADER_MAX]> {
        let receiving = self.is_receiving();
        let stream = self.stream.as_ref().filter(|_| receiving)?;
        let early = stream.early(ulpdu)?;
        let mut header = [0; DDP_HEADER_MAX];
        let known = header.len().min(ulpdu.len());
        ulpdu.copy_to(0, &mut header[..known])?;
        let payload = ulpdu.tail(early.payload_offset())?;
        match early {
            Early::Write { stag, to, len } => {
                self.check_peer_access(Access::REMOTE_WRITE, stag).ok()?;
                let sink = ctx.stags.remote_write(stag, to, len, self.id.user()).ok()?;
                copy_in(&sink, &payload).ok()?;
            }
            Early::ReadResponse { stag, to, len } => {
                let sink = read_sink(stag, to, len);
                let sink = ctx.stags.local_write(&sink, self.id.user()).ok()?;
                copy_in(&sink, &payload).ok()?;
            }
            Early::Send {
                msn,
                ahead,
                mo,
                len,
            } => {
                let user = self.id.user();
                self.look_for_receive(ctx, msn, ahead)?;
                let receive = match self.receive.is_for(msn) {
                    true => &self.receive.request,
                    false => &ctx.queue_pool.receive,
                };
                let end = u64::from(mo.0) + u64::from(len);
                if end > receive.total_length() {
                    return None;
                }
                let sges = receive.sges();
                scatter(ctx.stags, user, sges, (mo, len), Some(&payload)).ok()?;
            }
        }
        ctx.counters.bytes_placed += payload.len() as u64;
        Some(header)
    }

    /// Looks for the receive of a Send that is `ahead` messages ahead of the next: it is in hand
    /// then, or a copy of it queue_pool. It is taken in its turn; only that of a shared queue is taken at
    /// once, so that no other Send gets it. None when it is not posted.
    fn look_for_receive(&mut self, ctx: &mut QpContext<'_>, msn: Msn, ahead: u32) -> Option<()> {
        if self.receive.is_for(msn) {
            return Some(());
        }
        if self.receive.is_own() {
            let found = self
                .receive
                .look_ahead(msn, ahead, &mut ctx.queue_pool.receive);
            return found.then_some(());
        }
        let waiting = |srq| self.hold.yields() && ctx.srqs.has_waiting(srq);
        let is_taken = self.receive.shared().is_some_and(waiting);
        if ahead > 0 || is_taken || self.receive.has_none(ctx.srqs) {
            return None;
        }
        self.take_receive(ctx, msn)
            .map_err(|error| self.fail(error, None))
            .ok()
    }
}
