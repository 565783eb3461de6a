//! Changes of a queue pair's state that a client asks for.

use rnic_ipc::control::{DisconnectReason, QpState};
use rnic_ipc::id::QpNum;
use rnic_xsk::Port;

use crate::command::CommandError;
use crate::qp::NoSuchTransition;
use crate::shard::ctl::Ctl;
use crate::shard::ctl::control::sound_cqs;
use crate::shard::datapath::Datapath;
use crate::shard::tx::Tx;

impl Ctl {
    /// Makes of a queue pair what the client wants, where the states allow it.
    pub(in crate::shard) fn modify_qp<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        num: QpNum,
        wanted: QpState,
    ) -> Result<(), CommandError> {
        let slot = dp.qp(num)?;
        slot.qp.may_become(wanted).map_err(refused)?;
        let conn = slot.conn;
        match wanted {
            QpState::Closing => self.disconnect(dp, tx, num, false)?,
            QpState::Terminate => {
                slot.qp.terminate();
                if let Some(id) = conn {
                    if let Some(conn) = dp.conns.get_mut(id) {
                        conn.ending.get_or_insert(DisconnectReason::Aborted);
                    }
                    tx.make_ready(dp, id);
                }
                self.update_qp(dp, tx, num);
            }
            QpState::Error => match conn {
                Some(id) => self.abort(dp, tx, id, DisconnectReason::Aborted, None),
                None => {
                    let slot = dp.qps.get_mut(num.0);
                    if let Some(slot) = slot.filter(|slot| slot.qp.state() != QpState::Error) {
                        let reason = DisconnectReason::Aborted;
                        slot.qp
                            .connection_ended(&mut dp.tables.context(slot.tally, dp.now), reason);
                    }
                    self.update_qp(dp, tx, num);
                }
            },
            QpState::Idle => {
                if let Some(slot) = dp.qps.get_mut(num.0) {
                    sound_cqs(&slot.qp, &dp.tables)?;
                    slot.qp.reset(&mut dp.tables.context(slot.tally, dp.now));
                }
                self.update_qp(dp, tx, num);
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
