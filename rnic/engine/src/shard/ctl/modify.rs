//! Changes of a queue pair's state that a client asks for.

use rnic_ipc::control::{DisconnectReason, QpState};
use rnic_ipc::id::QpNum;
use rnic_xsk::Port;

use crate::command::CommandError;
use crate::qp::NoSuchTransition;
use crate::shard::Shard;
use crate::shard::ctl::control::sound_cqs;

impl<P: Port> Shard<P> {
    /// Makes of a queue pair what the client wants, where the states allow it.
    pub(in crate::shard) fn modify_qp(
        &mut self,
        num: QpNum,
        wanted: QpState,
    ) -> Result<(), CommandError> {
        let slot = self.qp(num)?;
        slot.qp.may_become(wanted).map_err(refused)?;
        let conn = slot.conn;
        match wanted {
            QpState::Closing => self.disconnect(num, false)?,
            QpState::Terminate => {
                slot.qp.terminate();
                if let Some(id) = conn {
                    if let Some(conn) = self.dp.conns.get_mut(id) {
                        conn.ending.get_or_insert(DisconnectReason::Aborted);
                    }
                    self.tx.make_ready(&mut self.dp, id);
                }
                self.settle(num);
            }
            QpState::Error => match conn {
                Some(id) => self.abort(id, DisconnectReason::Aborted, None),
                None => {
                    let slot = self.dp.qps.get_mut(num.0);
                    if let Some(slot) = slot.filter(|slot| slot.qp.state() != QpState::Error) {
                        let reason = DisconnectReason::Aborted;
                        slot.qp.connection_ended(
                            &mut self.dp.tables.context(slot.tally, self.dp.now),
                            reason,
                        );
                    }
                    self.settle(num);
                }
            },
            QpState::Idle => {
                if let Some(slot) = self.dp.qps.get_mut(num.0) {
                    sound_cqs(&slot.qp, &self.dp.tables)?;
                    slot.qp
                        .reset(&mut self.dp.tables.context(slot.tally, self.dp.now));
                }
                self.settle(num);
            }
            // Refused above.
            QpState::Connecting | QpState::Rts => {}
        }
        Ok(())
    }
}

fn refused(error: NoSuchTransition) -> CommandError {
    CommandError::WrongState {
        what: "queue pair",
        found: format!("{:?}", error.found),
        wanted: error.needed,
    }
}
