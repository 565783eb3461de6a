//! How a stream ends: Terminate sent, Terminate received, or closed (RFC 5040 sections 4.8, 6.2
//! and 7.1). The first error is the one that is reported; after it nothing is placed or delivered.

use rnic_ipc::control::QpState;
use rnic_ipc::work::WcStatus;
use rnic_proto::ddp::DdpError;
use rnic_proto::ddp::Header;
use rnic_proto::rdmap::{Offending, RdmapError, Terminate, TerminateError, TerminateMessage};

use super::pending::{Outcome, Ticket};
use super::{CloseKind, Qp, QpContext};
use crate::stag::StagError;

/// Where a stream is in its ending.
#[derive(Debug, Default)]
pub(super) struct Ending {
    /// A graceful end is wanted once everything is sent.
    pub wanted: bool,
    /// The peer sends nothing more: no use in waiting for it.
    pub peer_done: bool,
    /// Nothing is sent or received any more, a Terminate excepted.
    pub stopped: bool,
    /// The Terminate that is to be sent next.
    pub terminate: Option<(TerminateMessage, u16)>,
    /// The peer used an STag that there is not, until told.
    pub invalid_stag: bool,
    /// An answer of the peer's can't be placed where this end had asked for it: not the peer's fault.
    pub own_fault: bool,
    /// How the connection is to be ended, until told.
    pub close: Option<CloseKind>,
}

impl Ending {
    pub(super) fn peer_closed(&mut self, mid_fpdu: bool) {
        self.peer_done = true;
        self.wanted = true;
        if mid_fpdu && !self.stopped {
            self.stop();
            self.close = Some(CloseKind::AbortNow);
        }
    }

    pub(super) fn stop(&mut self) {
        self.stopped = true;
        self.terminate = None;
    }
}

impl Qp {
    /// Ends the stream with a Terminate. `offending` is of the ULPDU at fault. After our FIN, and as a
    /// responder before the first valid FPDU (RFC 5044 section 7.1.2), none may be sent: reset.
    pub(super) fn fail(&mut self, error: TerminateError, offending: Option<&Offending>) {
        if self.ending.stopped {
            return;
        }
        log::debug!("queue pair {}: ending the stream: {error}", self.id.num);
        self.ending.stop();
        let invalid_stag = error == DdpError::InvalidStag.into()
            || [RdmapError::InvalidStag, RdmapError::CannotInvalidate]
                .iter()
                .any(|named| error == (*named).into());
        self.ending.invalid_stag = invalid_stag && !self.ending.own_fault;
        if self.state != QpState::Rts || !self.send.may_send() {
            let control = error.control();
            let ours = error == RdmapError::LocalCatastrophic.into();
            self.ending.close = Some(match ours || error == DdpError::LocalCatastrophic.into() {
                true => CloseKind::AbortNow,
                false => CloseKind::PeerFault { control },
            });
            return;
        }
        self.state = QpState::Terminate;
        let stream = self.stream.as_mut();
        let message = stream.and_then(|stream| stream.terminate(error, offending));
        self.ending.terminate = message.map(|message| (message, error.control()));
    }

    /// A work request of the send queue can't be done. What was posted before it won't be done any
    /// more either, so all of them complete, in order (RFC 5040 section 7.1, case 1).
    pub(super) fn fail_work(&mut self, ctx: &mut QpContext<'_>, ticket: Ticket, status: WcStatus) {
        ctx.counters.local_errors += 1;
        self.send.pending.end_up_to(
            ticket,
            Outcome {
                status,
                byte_len: 0,
            },
        );
        self.complete_ended(ctx);
        self.fail(RdmapError::LocalCatastrophic.into(), None);
    }

    /// The peer ends the stream. The work request that it names ends with its error, if it is
    /// still there; the others are flushed when the connection is gone.
    pub(super) fn receive_terminate(&mut self, ctx: &mut QpContext<'_>, terminate: &Terminate) {
        log::debug!(
            "queue pair {}: Terminate received: {}",
            self.id.num,
            terminate.error
        );
        ctx.counters.terminates_received += 1;
        self.ending.stop();
        self.state = QpState::Terminate;
        let control = terminate.error.control();
        self.ending.close = Some(CloseKind::TerminateReceived { control });
        let named = self.named(terminate);
        if let Some(ticket) = self.refused(named, terminate.ddp_header) {
            let outcome = Outcome {
                status: remote_status(terminate.error),
                byte_len: 0,
            };
            self.send.pending.end_up_to(ticket, outcome);
            self.complete_ended(ctx);
        }
    }

    /// The work request whose message a Terminate shows, by the message's number. Where siw shows a
    /// Read Request, its number is the size of the Read: then the sink tells more.
    fn named(&self, terminate: &Terminate) -> Option<Ticket> {
        let Header::Untagged(header) = terminate.ddp_header? else {
            return None;
        };
        let by_number = self.send.pending.find(header.qn, header.msn);
        let into = || {
            let stream = self.stream.as_ref()?;
            Some(stream.reads_into(terminate.read_request?).map(Ticket))
        };
        let mut by_sink = into().into_iter().flatten();
        if by_number.is_some() && by_sink.any(|ticket| Some(ticket) == by_number) {
            return by_number;
        }
        into().and_then(|mut tickets| tickets.next()).or(by_number)
    }
}

fn remote_status(error: TerminateError) -> WcStatus {
    match error {
        TerminateError::Rdmap(error) if error.error_type() == 1 => WcStatus::RemoteAccess,
        TerminateError::Ddp(error) if error.error_type() == 1 => WcStatus::RemoteAccess,
        _ => WcStatus::RemoteOperation,
    }
}

/// What DDP says of a tagged segment that may not be placed (RFC 5041 section 7.2); it has no
/// number for rights, RDMAP has (RFC 5040 Figure 9).
pub(super) fn tagged_error(error: StagError) -> TerminateError {
    match error {
        StagError::Invalid { .. } => DdpError::InvalidStag.into(),
        StagError::NotAssociated { .. } => DdpError::StagNotAssociated.into(),
        StagError::AccessRights { .. } => RdmapError::AccessRights.into(),
        StagError::Wrap { .. } => DdpError::ToWrap.into(),
        StagError::Bounds { .. } => DdpError::BaseOrBounds.into(),
        StagError::Misaligned { .. } => RdmapError::CatastrophicStream.into(),
    }
}

/// The RDMAP error for a Read Request whose source may not be read (RFC 5040 section 7.2), or an Atomic
/// Request whose memory may not be used (RFC 7306 section 8.2).
pub(super) fn source_error(error: StagError) -> TerminateError {
    match error {
        StagError::Invalid { .. } => RdmapError::InvalidStag,
        StagError::NotAssociated { .. } => RdmapError::StagNotAssociated,
        StagError::AccessRights { .. } => RdmapError::AccessRights,
        StagError::Wrap { .. } => RdmapError::ToWrap,
        StagError::Bounds { .. } => RdmapError::BaseOrBounds,
        StagError::Misaligned { .. } => RdmapError::CatastrophicStream,
    }
    .into()
}

/// Counts a peer's access that was refused.
pub(super) fn count_refusal(ctx: &mut QpContext<'_>, error: StagError) {
    let counters = &mut *ctx.counters;
    let counter = match error {
        StagError::Invalid { .. } => &mut counters.refused_invalid_stag,
        StagError::NotAssociated { .. } => &mut counters.refused_stag_not_associated,
        StagError::AccessRights { .. } => &mut counters.refused_access_rights,
        StagError::Wrap { .. } => &mut counters.refused_to_wrap,
        StagError::Bounds { .. } => &mut counters.refused_base_or_bounds,
        StagError::Misaligned { .. } => &mut counters.refused_misaligned,
    };
    *counter += 1;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the requester's completion says of a Terminate: protection errors of RDMAP and of DDP's tagged
    /// buffers are the STag's, all else is the operation's.
    #[test]
    fn a_protection_error_of_either_layer_is_one_of_access() {
        for (control, status) in [
            (0x0100, WcStatus::RemoteAccess),
            (0x0102, WcStatus::RemoteAccess),
            (0x1100, WcStatus::RemoteAccess),
            (0x1101, WcStatus::RemoteAccess),
            (0x1202, WcStatus::RemoteOperation),
            (0x0206, WcStatus::RemoteOperation),
            (0x1000, WcStatus::RemoteOperation),
            (0x2002, WcStatus::RemoteOperation),
        ] {
            let error = TerminateError::from_control(control);
            assert_eq!(remote_status(error), status, "{control:#06x}");
        }
    }
}
