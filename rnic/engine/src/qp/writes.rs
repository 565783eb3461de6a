//! RDMA Writes in a row: most of what ever comes in bulk. An FPDU that is one piece, known to be sound,
//! and that of a Write by an STag that was looked up already needs little more than to be copied.
//!
//! All is decided by what decides of other FPDUs: [`fpdu::parse`], [`Stream::classify_write`] and the
//! STag table. What is not a plain Write, or may not be placed, is left to them as it is.
//!
//! [`Stream::classify_write`]: rnic_proto::rdmap::Stream::classify_write

use rnic_proto::Octets;
use rnic_proto::ddp::header::{Control, Header, TAGGED_LEN, Tagged};
use rnic_proto::mpa::fpdu;
use rnic_proto::mpa::marker::Markers;
use rnic_proto::rdmap::Offending;
use rnic_proto::rdmap::control::{self, Opcode};

use super::receive::copy_in;
use super::{Qp, QpContext};
use crate::stag::Writer;

/// Octets of the stream that lie together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece<'a> {
    pub octets: &'a [u8],
    /// They end with the CRC of what is before.
    pub sound: bool,
}

/// How much of a stream was taken in.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Run {
    pub pieces: usize,
    pub octets: usize,
    /// Octets of the longest piece.
    pub longest: usize,
}

/// The FPDU of a Write.
struct WriteFpdu<'a> {
    header: Tagged,
    ulpdu: &'a [u8],
    payload: &'a [u8],
}

impl Qp {
    /// As [`Qp::receive`], of octets that are in their place, and as far as they are Writes. What is
    /// behind one is not looked at before it has been placed.
    pub(crate) fn receive_in_turn<'a>(
        &mut self,
        ctx: &mut QpContext<'_>,
        pieces: impl Iterator<Item = Piece<'a>>,
    ) -> Run {
        if !self.is_receiving() {
            return Run::default();
        }
        self.receive_writes(ctx, pieces)
    }

    /// Takes in the Writes at the front of `pieces`, as long as each is one FPDU and may be placed.
    #[inline(always)]
    pub(super) fn receive_writes<'a>(
        &mut self,
        ctx: &mut QpContext<'_>,
        pieces: impl Iterator<Item = Piece<'a>>,
    ) -> Run {
        let mut run = Run::default();
        let (user, crc) = (self.id.user(), self.crc);
        let Some(stream) = self.stream.as_mut() else {
            return run;
        };
        if self.receive.markers != Markers::Off {
            return run;
        }
        // While this lives the table is borrowed: no command, and no Send with Invalidate, comes between.
        let mut writer: Option<Writer<'_>> = None;
        let (mut placed, mut writes, mut failed) = (0, 0, None);
        for piece in pieces {
            let Some(WriteFpdu {
                header,
                ulpdu,
                payload,
            }) = WriteFpdu::parse(&piece, crc)
            else {
                break;
            };
            let of = match &writer {
                Some(of) if of.stag() == header.stag => of,
                _ => match ctx.stags.writer(header.stag, user) {
                    Ok(of) => writer.insert(of),
                    Err(_) => break,
                },
            };
            // It came out of 16 bits.
            let Ok(sink) = of.sink(header.to, payload.len() as u32) else {
                break;
            };
            let Some(last) = stream.classify_write(&header, payload.len()) else {
                break;
            };
            run.pieces += 1;
            run.octets += piece.octets.len();
            run.longest = run.longest.max(piece.octets.len());
            if let Err(error) = copy_in(&sink, &payload) {
                failed = Some((ulpdu, error));
                break;
            }
            placed += payload.len() as u64;
            writes += u64::from(last);
        }
        if run.pieces == 0 {
            return run;
        }
        self.send.allow();
        self.receive.at += run.octets as u64;
        ctx.counters.fpdus_received += run.pieces as u64;
        ctx.counters.octets_placed += placed;
        ctx.counters.writes_received += writes;
        if let Some((ulpdu, error)) = failed {
            self.fail(error, Some(&Offending::of(&ulpdu)));
        }
        run
    }
}

/// Whether octets that begin an FPDU may be a Write's. To find out with all else that they are a Send's
/// takes longer.
#[inline]
pub(crate) fn is_tagged(octets: &[u8]) -> bool {
    let control = octets.get(fpdu::HEADER_LEN);
    control.is_some_and(|octet| Control::from_octet(*octet).tagged)
}

impl<'a> WriteFpdu<'a> {
    /// What a piece is if it is a whole FPDU, found sound, of a Write with payload.
    #[inline]
    fn parse(piece: &Piece<'a>, crc: bool) -> Option<Self> {
        if crc && !piece.sound {
            return None;
        }
        let octets = &piece.octets;
        let layout = fpdu::parse(octets, Markers::Off, 0)?;
        if layout.len() != octets.len() {
            return None;
        }
        let ulpdu = fpdu::ulpdu(octets, &layout)?;
        let Header::Tagged(header) = Header::parse(&ulpdu)? else {
            return None;
        };
        let payload = ulpdu.tail(TAGGED_LEN)?;
        let is_write = control::opcode(header.ulp) == Some(Opcode::Write);
        (is_write && !payload.is_empty()).then_some(Self {
            header,
            ulpdu,
            payload,
        })
    }
}
