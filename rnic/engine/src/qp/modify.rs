//! What a client may make of a queue pair's state (the Modify QP of the RDMA verbs for iWARP), and
//! the ways that need no connection. How streams end by themselves is in `terminate`.

use rnic_ipc::control::{Access, QpState};
use rnic_proto::Stag;
use rnic_proto::mpa::marker::Markers;
use rnic_proto::rdmap::RdmapError;

use super::terminate::Ending;
use super::{Qp, QpContext};
use crate::stag::StagError;

/// A client may not make this of a queue pair that is in this state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the queue pair is {found:?}, but must be {needed}")]
pub struct NoSuchTransition {
    pub found: QpState,
    /// How it must be, and for what; for people.
    pub needed: &'static str,
}

impl Qp {
    /// Whether a client may make this of the queue pair now.
    pub fn may_become(&self, wanted: QpState) -> Result<(), NoSuchTransition> {
        let found = self.state;
        let (allowed, needed) = match wanted {
            QpState::Idle => (
                found == QpState::Error && !self.rings_dead,
                "in Error, with sound rings, to be made Idle",
            ),
            QpState::Closing => (found == QpState::Rts, "Rts to be made Closing"),
            QpState::Terminate => (found == QpState::Rts, "Rts to be made Terminate"),
            QpState::Error => return Ok(()),
            QpState::Connecting | QpState::Rts => (
                false,
                "Idle, and connected by Connect or Accept and not by ModifyQp",
            ),
        };
        if allowed {
            return Ok(());
        }
        Err(NoSuchTransition { found, needed })
    }

    /// Ends the stream with a Terminate because the client says so: a local error, which no message
    /// of the peer's brought about (RFC 5040 section 4.8). Nothing happens in another state than
    /// Ready to send.
    pub fn terminate(&mut self) {
        if self.state == QpState::Rts {
            self.fail(RdmapError::LocalCatastrophic.into(), None);
        }
    }

    /// From now on its peer may do this, of what STags allow; also where what came before is not answered yet.
    pub(crate) fn set_peer_access(&mut self, access: Access) {
        self.peer_access = access;
    }

    /// That the peer may do this to the memory of some STag, as far as the queue pair says.
    #[inline]
    pub(super) fn check_peer_access(&self, needed: Access, stag: Stag) -> Result<(), StagError> {
        match self.peer_access.contains(needed) {
            true => Ok(()),
            false => Err(StagError::AccessRights { stag }),
        }
    }

    /// Error becomes Idle: all is as when the queue pair was made. What was posted in Error is
    /// flushed first. Nothing happens in another state. It has no connection any more.
    pub fn reset(&mut self, ctx: &mut QpContext<'_>) {
        if self.state != QpState::Error || self.rings_dead {
            return;
        }
        self.flush(ctx);
        if self.rings_dead {
            return;
        }
        self.state = QpState::Idle;
        self.ending = Ending::default();
        self.leave_join();
        self.peer_access = Access::ALL;
        self.receive.reset(Markers::Off, false);
        self.send.reset();
    }
}
