//! Queue pairs that are joined by number (`docs/architecture/join.md`): how they differ from those that a connection
//! manager connects.

use rnic_ipc::control::QpState;

use super::{Qp, WrongQpState};

impl Qp {
    /// From now on it is joined, or not any more. Only an Idle queue pair may begin to be.
    pub(crate) fn set_joined(&mut self, reply: Option<Box<[u8]>>) -> Result<(), WrongQpState> {
        if reply.is_some() {
            self.check_idle()?;
        }
        self.joined = reply;
        if self.state == QpState::Idle {
            self.hold.set_forever(self.joined.is_some());
        }
        Ok(())
    }

    pub(crate) fn is_joined(&self) -> bool {
        self.joined.is_some()
    }

    /// Whether a responder that answers so is the one that is meant.
    pub(crate) fn may_be_answered(&self, private_data: &[u8]) -> bool {
        let wanted = self.joined.as_deref();
        wanted.is_none_or(|wanted| wanted == private_data)
    }

    /// An attempt to connect it has failed. True when it is Idle again, with all that is posted: it is joined, and there
    /// may be another attempt.
    pub(crate) fn attempt_failed(&mut self) -> bool {
        let again = self.joined.is_some() && self.state == QpState::Connecting && !self.rings_dead;
        if again {
            self.state = QpState::Idle;
        }
        again
    }

    /// It is as when it was made.
    pub(super) fn leave_join(&mut self) {
        self.joined = None;
        self.hold.set_forever(false);
    }
}
